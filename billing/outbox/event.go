package outbox

import (
	"fmt"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// Event is the body of a webhook. The names are a public interface.
type Event struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // of the change, RFC 3339 in UTC
	Data      any    `json:"data"`
}

// ChargeData is what an event says of a charge.
type ChargeData struct {
	Job    string `json:"job"`
	Period string `json:"period"`
	Ledger
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	Try           int    `json:"try"`
	State         string `json:"state"`
	Before        string `json:"state_before"`
	Reason        string `json:"reason"`
	DeclineCode   string `json:"decline_code"`
	Amount        string `json:"amount"` // major units, with the digits of the currency
	AmountMinor   int64  `json:"amount_minor"`
	Currency      string `json:"currency"`
	PaymentIntent string `json:"payment_intent"`
}

// Ledger says whose the money is: the Stripe account that the ledger belongs to, and
// whether it is real.
type Ledger struct {
	StripeAccount string `json:"stripe_account"`
	Livemode      bool   `json:"livemode"`
}

// RunData is what an event says of a period that is done.
type RunData struct {
	Job    string `json:"job"`
	Period string `json:"period"`
	Ledger
	// Serial counts from 1 how often the period was done: it can be reopened.
	Serial int64 `json:"serial"`
}

// event writes one webhook. The URL is not in it: it may be a secret, and who sends has it.
func event(kind, endpoint string, c *ledger.Change) ledger.Message {
	m := ledger.Message{
		Kind: kind, Channel: ledger.ChannelWebhook, Lane: Lane(endpoint), Destination: Lane(endpoint),
		Job: c.Job, Period: c.Period, AccountID: c.AccountID, BillingKey: c.BillingKey, Origin: originOf(c), State: ledger.MessageQueued,
	}
	owner := Ledger{c.StripeAccount, c.Livemode}
	e := Event{Type: kind, Timestamp: c.At.UTC().Format(time.RFC3339Nano)}
	if kind == EventRunFinished {
		m.DedupeKey = fmt.Sprintf("%s/%s/%s/%d/%s", kind, c.Job, c.Period, c.Serial, endpointID(endpoint))
		e.Data = RunData{Job: string(c.Job), Period: string(c.Period), Ledger: owner, Serial: c.Serial}
	} else {
		m.DedupeKey = fmt.Sprintf("%s/%s/%d/%s%s", kind, c.BillingKey, c.Try, again(c), endpointID(endpoint))
		e.Data = ChargeData{
			Job: string(c.Job), Period: string(c.Period), Ledger: owner, AccountID: c.AccountID, BillingKey: c.BillingKey, Try: c.Try, State: string(c.To),
			Before: string(c.From), Reason: c.Reason, DeclineCode: c.DeclineCode, Amount: amountOf(c), AmountMinor: c.AmountMinor,
			Currency: c.Currency, PaymentIntent: c.PaymentIntent,
		}
	}
	m.Payload = compact(e)
	return m
}

// again tells the times apart that one try came into review; the first has no number.
func again(c *ledger.Change) string {
	if c.Nth <= 1 {
		return ""
	}
	return fmt.Sprintf("%d/", c.Nth)
}

// originOf is a part of every name that leaves the house: other ledgers, such as that of
// the tests, have the same keys.
func originOf(c *ledger.Change) string {
	switch {
	case c.StripeAccount == "":
		return ""
	case c.Livemode:
		return c.StripeAccount + "/live"
	}
	return c.StripeAccount + "/test"
}
