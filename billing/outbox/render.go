package outbox

import (
	"net/url"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Mail is what a template can show. Every value is one line without control characters.
type Mail struct {
	Company     string // the name in the sender's address
	Name        string // the customer's, or the account's id
	AccountID   string
	Period      string // "October 2026"
	Amount      string // "12.50 USD"
	Refunded    string // what was given back in all, "5.00 USD"
	Description string // as on the invoice, may be empty
	Date        string // "2 November 2026", in UTC
	Reference   string // the billing key
	PayURL      string // only where the customer must do something
}

func (w *Writer) data(c *ledger.Change) Mail {
	d := Mail{
		Company: w.company, Name: oneLine(c.Name), AccountID: oneLine(c.AccountID), Period: monthText(c.Period),
		Amount: amountOf(c) + " " + strings.ToUpper(c.Currency), Refunded: minorText(c.RefundedMinor, c.Currency),
		Description: descriptionOf(c.Body), Date: c.At.UTC().Format("2 January 2006"), Reference: c.BillingKey,
	}
	if d.Name == "" {
		d.Name = d.AccountID
	}
	if w.config.PayURL != "" {
		d.PayURL = w.payURL(c)
	}
	return d
}

// payURL fills the link's placeholders. A value can't leave its place in the address.
func (w *Writer) payURL(c *ledger.Change) string {
	return strings.NewReplacer(
		"{account_id}", url.QueryEscape(c.AccountID), "{period}", url.QueryEscape(string(c.Period)),
		"{billing_key}", url.QueryEscape(c.BillingKey), "{payment_intent}", url.QueryEscape(c.PaymentIntent),
	).Replace(w.config.PayURL)
}

func monthText(p ledger.Period) string {
	t, err := time.Parse("2006-01", string(p))
	if err != nil {
		return string(p)
	}
	return t.Format("January 2006")
}

// amountOf is the amount as Stripe has it, or what was invoiced where it never could be
// asked for, in major units.
func amountOf(c *ledger.Change) string {
	currency := money.Currency(strings.ToLower(c.Currency))
	if c.AmountMinor != 0 {
		return money.FormatMinor(c.AmountMinor, currency)
	}
	d, err := decimal.NewFromString(c.Amount)
	if err != nil {
		return c.Amount
	}
	return money.Format(d, currency)
}

func minorText(minor int64, currency string) string {
	return money.FormatMinor(minor, money.Currency(currency)) + " " + strings.ToUpper(currency)
}

// descriptionOf reads the description in the request that was sent to Stripe.
func descriptionOf(body string) string {
	form, err := url.ParseQuery(body)
	if err != nil {
		return ""
	}
	return oneLine(form.Get("description"))
}

// Sample is a change to show what a mail of a kind looks like.
func Sample(kind string) ledger.Change {
	c := ledger.Change{
		Happened: ledger.HappenedMove, Job: "monthly-billing", Period: "2026-10", At: time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC),
		AccountID: "4182", BillingKey: "monthly-billing/2026-10/4182", Try: 1, From: ledger.ChargePending,
		Name: "Ada Byron <ada> & Co", Email: "ada@example.com", Amount: "1234.50", AmountMinor: 123450, Currency: "usd",
		PaymentIntent: "pi_sample", Body: url.Values{"description": {"Analytical engine, October"}}.Encode(),
	}
	switch kind {
	case KindReceipt:
		c.To = ledger.ChargeSucceeded
	case KindPaymentFailed:
		c.To, c.Reason, c.DeclineCode = ledger.ChargeDeclined, "insufficient_funds", "insufficient_funds"
	case KindActionRequired:
		c.To = ledger.ChargeActionRequired
	case KindDebitStarted:
		c.To = ledger.ChargeProcessing
	case KindRefundNoted:
		c.Happened, c.From, c.To, c.RefundedMinor = ledger.HappenedRefund, ledger.ChargeSucceeded, ledger.ChargeSucceeded, 20000
	}
	return c
}
