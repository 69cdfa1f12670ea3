package reconcile

import (
	"regexp"
	"strconv"

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

// The amounts that this package writes into what a finding saw. They are Stripe's whole
// numbers, and stay so: what was seen is compared to tell whether a finding that somebody
// resolved comes back.
var (
	seenAmount = regexp.MustCompile(`, ([0-9]{1,18}) ([a-z]{3})([,)])`)
	seenReturn = regexp.MustCompile(`^([0-9]{1,18}) of ([0-9]{1,18}) ([a-z]{3}) were refunded$`)
)

// SeenText is what a finding saw, for people: amounts in major units, with the digits of
// their currency.
func SeenText(f ledger.Finding) string {
	if m := seenReturn.FindStringSubmatch(f.Seen); m != nil && money.Currency(m[3]).Known() {
		return majorText(m[1], m[3]) + " of " + majorText(m[2], m[3]) + " " + m[3] + " were refunded"
	}
	return seenAmount.ReplaceAllStringFunc(f.Seen, func(part string) string {
		m := seenAmount.FindStringSubmatch(part)
		if !money.Currency(m[2]).Known() {
			return part
		}
		return ", " + majorText(m[1], m[2]) + " " + m[2] + m[3]
	})
}

// AmountAbout is the money that a finding is about, in minor units of its currency: what
// was given back, or what the payment came to, or else what was invoiced. It is false where
// nobody knows, as of a payment that was reported without its amount.
func AmountAbout(f ledger.FindingState) (minor int64, known bool) {
	if !money.Currency(f.Currency).Known() {
		return 0, false
	}
	if minor, known := amountSeen(f.Finding); known {
		return minor, true
	}
	return f.ChargeMinor, f.ChargeMinor > 0
}

// amountSeen reads the amount from what was seen, if it is in the finding's currency.
func amountSeen(f ledger.Finding) (minor int64, known bool) {
	amount, currency := "", ""
	if m := seenReturn.FindStringSubmatch(f.Seen); m != nil {
		amount, currency = m[1], m[3]
	} else if m := seenAmount.FindStringSubmatch(f.Seen); m != nil {
		amount, currency = m[1], m[2]
	}
	if currency != f.Currency {
		return 0, false
	}
	minor, err := strconv.ParseInt(amount, 10, 64)
	return minor, err == nil
}

// majorText is an amount that was written down in Stripe's whole number.
func majorText(minor, currency string) string {
	n, err := strconv.ParseInt(minor, 10, 64)
	if err != nil {
		return minor
	}
	return money.FormatMinor(n, money.Currency(currency))
}
