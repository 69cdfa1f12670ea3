package main

import (
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A flag that does not exist is named as it was typed, with the one that may be
// meant, and with where to look.
func TestAMisspeltFlagIsNamedWithTheRightOne(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(64, "run", "--perod", october).says(t, "there is no flag --perod; is --period meant? billing run --help lists them")
	o.must(64, "import", "invoices", "--xyzzyx", "1").says(t, "there is no flag --xyzzyx; billing import invoices --help lists them")
}

// Whoever asks where a month stands that a gate stopped is told how to see which.
func TestAStoppedMonthSaysHowToSeeWhy(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.month(3, "--max-charges", "1")
	o.must(0, "status", "--period", october).says(t, "billing preview --period 2026-10   # the last run was stopped, exit 3: this says by what")
	o.month(0)
	o.must(0, "status", "--period", october).says(t, "next: nothing")
}

// Payments of the same month that belong to no account of this ledger do not stop a
// run, but somebody is told: two ledgers may share one Stripe account.
func TestPaymentsOfAnotherLedgerAreAWarning(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.emu.AddIntent(stripeemu.PaymentIntent{Status: "succeeded", Amount: 500, Currency: "usd", Customer: "cus_elsewhere", Metadata: ourKey("elsewhere", "1")})
	o.month(0).says(t, "warning: Stripe has 1 payment of monthly-billing and 2026-10 that is not in this ledger: does another ledger use this Stripe account?")
}
