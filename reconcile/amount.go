package reconcile

import (
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// invoiced is what was invoiced in minor units, or unknown if that is no amount.
func invoiced(c *ledger.OpenCharge, unknown int64) int64 {
	currency, err := money.ParseCurrency(c.Currency)
	if err != nil {
		return unknown
	}
	amount, err := money.Parse(c.Amount)
	if err != nil {
		return unknown
	}
	minor, err := money.ToMinor(amount, currency)
	if err != nil {
		return unknown
	}
	return minor
}

// givenBack reports that all of a payment is known to be the customer's again: it is
// nobody's second one any more.
func givenBack(pi gateway.PaymentIntent) bool {
	return pi.Amount > 0 && pi.AmountRefundedMinor >= pi.Amount
}
