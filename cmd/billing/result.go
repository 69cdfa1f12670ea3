package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
	"github.com/chargeonce/billing/reconcile"
)

// resultSchemaVersion grows when a field of --json changes its meaning.
const resultSchemaVersion = 1

// result is what --json prints, for every command. Amounts are strings in major
// units with the digits of the currency.
type result struct {
	SchemaVersion int           `json:"schema_version"`
	Command       string        `json:"command"`
	Job           string        `json:"job,omitempty"`
	Period        string        `json:"period,omitempty"`
	Outcome       string        `json:"outcome"`
	ExitCode      int           `json:"exit_code"`
	Livemode      *bool         `json:"livemode,omitempty"`
	StripeAccount string        `json:"stripe_account,omitempty"`
	Run           *runJSON      `json:"run,omitempty"`
	Charges       []chargeJSON  `json:"charges"`
	Sent          int64         `json:"sent"`
	Settled       int64         `json:"settled"`
	Renewed       int64         `json:"renewed"`
	Findings      []findingJSON `json:"findings"`
	Warnings      []string      `json:"warnings"`
	// Plan and Details are what single commands add.
	Plan    string     `json:"plan,omitempty"`
	Details any        `json:"details,omitempty"`
	Error   *errorJSON `json:"error,omitempty"`
}

type runJSON struct {
	ID      string `json:"id"`
	Attempt int    `json:"attempt"`
	State   string `json:"state"`
	Owner   string `json:"owner"`
}

type chargeJSON struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
	// AdviceCode is Stripe's advice about what was declined for this reason, if any.
	AdviceCode string `json:"advice_code,omitempty"`
	Currency   string `json:"currency"`
	Count      int64  `json:"count"`
	Amount     string `json:"amount"`
	// AmountMinor is null where the amount is none in minor units, as of what was skipped.
	AmountMinor *int64 `json:"amount_minor"`
}

type findingJSON struct {
	ID            int64  `json:"id"`
	Kind          string `json:"kind"`
	Severity      string `json:"severity"`
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	PaymentIntent string `json:"payment_intent"`
	Currency      string `json:"currency"`
	Expected      string `json:"expected"`
	Seen          string `json:"seen"`
}

type errorJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func (r *result) write(w io.Writer) error {
	r.SchemaVersion = resultSchemaVersion
	if r.Outcome == "" {
		r.Outcome = "done"
	}
	if r.Charges == nil {
		r.Charges = []chargeJSON{}
	}
	if r.Findings == nil {
		r.Findings = []findingJSON{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (r *result) addSums(sums []ledger.StateSum) {
	for _, s := range sums {
		c := chargeJSON{State: string(s.State), Reason: s.Reason, AdviceCode: s.AdviceCode, Currency: s.Currency, Count: s.Count, Amount: formatAmount(s)}
		if s.AmountMinor != 0 || s.Amount.IsZero() {
			c.AmountMinor = &s.AmountMinor
		}
		r.Charges = append(r.Charges, c)
	}
}

// formatAmount prints a sum with its currency's digits, and as it is where the
// currency is not one.
func formatAmount(s ledger.StateSum) string {
	if c, err := money.ParseCurrency(s.Currency); err == nil {
		return money.Format(s.Amount, c)
	}
	return s.Amount.String()
}

func (r *result) addRun(run ledger.Run) {
	r.Job, r.Period = string(run.Job), string(run.Period)
	r.Run = &runJSON{ID: run.RunID.String(), Attempt: run.Attempt, State: string(run.State), Owner: run.Owner}
}

func (r *result) addFindings(list []ledger.Finding) {
	for _, f := range list {
		r.Findings = append(r.Findings, findingJSON{
			ID: f.ID, Kind: f.Kind, Severity: string(f.Severity), AccountID: f.AccountID, BillingKey: f.BillingKey,
			PaymentIntent: f.PaymentIntent, Currency: f.Currency, Expected: f.Expected, Seen: reconcile.SeenText(f),
		})
	}
}
