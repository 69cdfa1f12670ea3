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
	Job           string `json:"job"`
	Period        string `json:"period"`
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	Try           int    `json:"try"`
	State         string `json:"state"`
	Before        string `json:"state_before"`
	Reason        string `json:"reason"`
	DeclineCode   string `json:"decline_code"`
	Amount        string `json:"amount"` // major units
	AmountMinor   int64  `json:"amount_minor"`
	Currency      string `json:"currency"`
	PaymentIntent string `json:"payment_intent"`
}

// RunData is what an event says of a period that is done.
type RunData struct {
	Job    string `json:"job"`
	Period string `json:"period"`
	// Serial counts from 1 how often the period was done: it can be reopened.
	Serial int64 `json:"serial"`
}

// event writes one webhook. The URL is not in it: it may be a secret, and who sends has it.
func event(kind, endpoint string, c *ledger.Change) ledger.Message {
	m := ledger.Message{
		Kind: kind, Channel: ledger.ChannelWebhook, Lane: Lane(endpoint), Destination: Lane(endpoint),
		Job: c.Job, Period: c.Period, AccountID: c.AccountID, BillingKey: c.BillingKey, State: ledger.MessageQueued,
	}
	e := Event{Type: kind, Timestamp: c.At.UTC().Format(time.RFC3339Nano)}
	if kind == EventRunFinished {
		m.DedupeKey = fmt.Sprintf("%s/%s/%s/%d/%s", kind, c.Job, c.Period, c.Serial, endpointID(endpoint))
		e.Data = RunData{Job: string(c.Job), Period: string(c.Period), Serial: c.Serial}
	} else {
		m.DedupeKey = fmt.Sprintf("%s/%s/%d/%s", kind, c.BillingKey, c.Try, endpointID(endpoint))
		e.Data = ChargeData{
			Job: string(c.Job), Period: string(c.Period), AccountID: c.AccountID, BillingKey: c.BillingKey, Try: c.Try, State: string(c.To),
			Before: string(c.From), Reason: c.Reason, DeclineCode: c.DeclineCode, Amount: c.Amount, AmountMinor: c.AmountMinor,
			Currency: c.Currency, PaymentIntent: c.PaymentIntent,
		}
	}
	m.Payload = compact(e)
	return m
}
