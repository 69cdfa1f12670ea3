package main

import (
	"encoding/hex"

	"github.com/google/uuid"

	"github.com/chargeonce/billing/ledger"
)

// historyJSON is a charge's history in --json.
type historyJSON struct {
	Charge   detailJSON        `json:"charge"`
	Tries    []tryJSON         `json:"tries"`
	Events   []eventJSON       `json:"events"`
	Findings []pastFindingJSON `json:"findings"`
}

type detailJSON struct {
	chargeJSONL
	StripeStatus string  `json:"stripe_status"`
	AdviceCode   string  `json:"advice_code"`
	OpenSends    int     `json:"open_sends"`
	ServerErrors int     `json:"server_errors"`
	LastSentAt   string  `json:"last_sent_at,omitempty"`
	NextSendAt   string  `json:"next_send_at,omitempty"`
	LeaseUntil   string  `json:"lease_until,omitempty"`
	WindowEndsAt string  `json:"window_ends_at,omitempty"`
	WindowOpen   bool    `json:"window_open"`
	Body         *string `json:"body"`
	BodySHA256   string  `json:"body_sha256,omitempty"`
}

type tryJSON struct {
	Try            int     `json:"try"`
	IdempotencyKey string  `json:"idempotency_key"`
	State          string  `json:"state"`
	Reason         string  `json:"reason"`
	StripeCustomer string  `json:"stripe_customer"`
	WindowOpenedAt string  `json:"window_opened_at"`
	Sends          int     `json:"sends"`
	OpenSends      int     `json:"open_sends"`
	LastSentAt     string  `json:"last_sent_at,omitempty"`
	PaymentIntent  *string `json:"payment_intent"`
	StripeStatus   string  `json:"stripe_status"`
	DeclineCode    string  `json:"decline_code"`
	RequestID      string  `json:"request_id"`
	SettledAt      string  `json:"settled_at,omitempty"`
	ClosedAt       string  `json:"closed_at"`
}

type eventJSON struct {
	ID            int64      `json:"id"`
	At            string     `json:"at"`
	Try           int        `json:"try"`
	From          string     `json:"from"`
	To            string     `json:"to"`
	Reason        string     `json:"reason"`
	Cause         string     `json:"cause"`
	RunID         *uuid.UUID `json:"run_id"`
	Person        string     `json:"person"`
	PaymentIntent string     `json:"payment_intent"`
	RequestID     string     `json:"request_id"`
	Detail        string     `json:"detail"`
}

type pastFindingJSON struct {
	findingJSON
	OpenedAt   string `json:"opened_at"`
	ResolvedAt string `json:"resolved_at,omitempty"`
	ResolvedBy string `json:"resolved_by"`
	Resolution string `json:"resolution"`
	Why        string `json:"why"`
}

func historyToJSON(h ledger.History) historyJSON {
	c := h.Charge
	out := historyJSON{
		Charge: detailJSON{
			chargeJSONL: chargeToJSONL(c.ReportCharge), StripeStatus: c.StripeStatus, AdviceCode: c.AdviceCode, OpenSends: c.OpenSends,
			ServerErrors: c.ServerErrors, LastSentAt: rfc3339(c.LastSentAt), NextSendAt: rfc3339(c.NextSendAt),
			LeaseUntil: rfc3339(c.LeaseUntil), WindowEndsAt: rfc3339(c.WindowEndsAt), WindowOpen: c.WindowOpen, Body: c.Body,
			BodySHA256: hex.EncodeToString(c.BodySHA256),
		},
		Tries: []tryJSON{}, Events: []eventJSON{}, Findings: []pastFindingJSON{},
	}
	for _, t := range h.Tries {
		out.Tries = append(out.Tries, tryJSON{
			Try: t.Try, IdempotencyKey: t.IdempotencyKey, State: string(t.State), Reason: t.Reason, StripeCustomer: t.StripeCustomer,
			WindowOpenedAt: rfc3339(&t.WindowOpenedAt), Sends: t.Sends, OpenSends: t.OpenSends, LastSentAt: rfc3339(t.LastSentAt),
			PaymentIntent: t.PaymentIntent, StripeStatus: t.StripeStatus, DeclineCode: t.DeclineCode, RequestID: t.RequestID,
			SettledAt: rfc3339(t.SettledAt), ClosedAt: rfc3339(&t.ClosedAt),
		})
	}
	for _, e := range h.Events {
		out.Events = append(out.Events, eventJSON{
			ID: e.ID, At: rfc3339(&e.At), Try: e.Try, From: string(e.FromState), To: string(e.ToState), Reason: e.Reason, Cause: e.Cause,
			RunID: e.RunID, Person: e.Person, PaymentIntent: e.PaymentIntent, RequestID: e.RequestID, Detail: e.Detail,
		})
	}
	for _, f := range h.Findings {
		var r result
		r.addFindings([]ledger.Finding{f.Finding})
		out.Findings = append(out.Findings, pastFindingJSON{
			findingJSON: r.Findings[0], OpenedAt: rfc3339(&f.OpenedAt), ResolvedAt: rfc3339(f.ResolvedAt),
			ResolvedBy: f.ResolvedBy, Resolution: f.Resolution, Why: f.Why,
		})
	}
	return out
}

// chargeJSONL has the columns of report_charges, as export charges does.
type chargeJSONL struct {
	Job            string  `json:"job"`
	Period         string  `json:"period"`
	AccountID      string  `json:"account_id"`
	Name           string  `json:"name"`
	BillingKey     string  `json:"billing_key"`
	Try            int     `json:"try"`
	IdempotencyKey *string `json:"idempotency_key"`
	State          string  `json:"state"`
	Reason         string  `json:"reason"`
	Amount         string  `json:"amount"`
	Currency       string  `json:"currency"`
	AmountMinor    *int64  `json:"amount_minor"`
	PaymentIntent  *string `json:"payment_intent"`
	StripeCustomer string  `json:"stripe_customer"`
	StripeAccount  string  `json:"stripe_account"`
	DeclineCode    string  `json:"decline_code"`
	AmountRefunded string  `json:"amount_refunded"`
	Disputed       bool    `json:"disputed"`
	Sends          int     `json:"sends"`
	CreatedAt      string  `json:"created_at"`
	WindowOpenedAt *string `json:"window_opened_at"`
	SettledAt      *string `json:"settled_at"`
	RunID          string  `json:"run_id"`
	RequestID      string  `json:"request_id"`
	// What an audit saw on Stripe's balance, in its currency.
	Fee             *string `json:"fee"`
	Net             *string `json:"net"`
	Payout          string  `json:"payout"`
	AvailableOn     *string `json:"available_on"`
	Refunds         int     `json:"refunds"`
	BalanceCurrency string  `json:"balance_currency"`
}

func chargeToJSONL(c ledger.ReportCharge) chargeJSONL {
	return chargeJSONL{
		Job: string(c.Job), Period: string(c.Period), AccountID: c.AccountID, Name: c.Name, BillingKey: c.BillingKey, Try: c.Try,
		IdempotencyKey: c.IdempotencyKey, State: string(c.State), Reason: c.Reason, Amount: moneyText(c.Amount, c.Currency),
		Currency: c.Currency, AmountMinor: c.AmountMinor, PaymentIntent: c.PaymentIntent, StripeCustomer: c.StripeCustomer,
		StripeAccount: c.StripeAccount, DeclineCode: c.DeclineCode, AmountRefunded: moneyText(c.AmountRefunded, c.Currency),
		Disputed: c.Disputed, Sends: c.Sends, CreatedAt: rfc3339(&c.CreatedAt), WindowOpenedAt: nullIfEmpty(rfc3339(c.WindowOpenedAt)),
		SettledAt: nullIfEmpty(rfc3339(c.SettledAt)), RunID: c.RunID.String(), RequestID: c.RequestID,
		Fee: bookedText(c.Fee, c.BalanceCurrency), Net: bookedText(c.Net, c.BalanceCurrency), Payout: c.Payout,
		AvailableOn: nullIfEmpty(rfc3339(c.AvailableOn)), Refunds: c.Refunds, BalanceCurrency: c.BalanceCurrency,
	}
}

// bookedText is an amount on Stripe's balance, nil until it is booked.
func bookedText(amount *string, currency string) *string {
	if amount == nil {
		return nil
	}
	text := moneyText(*amount, currency)
	return &text
}

func nullIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
