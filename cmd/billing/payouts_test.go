package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// payouts are the payouts of October's payments by account, as the export has them.
func (o *office) payouts() map[string]string {
	o.t.Helper()
	found := map[string]string{}
	for _, row := range readCSV(o.t, o.must(0, "export", "charges", "--period", october).stdout)[1:] {
		found[row["account_id"]] = row["payout"]
	}
	return found
}

// Each payment gets the payout that its money went into: what is not available yet has
// none, the next look fills it in, and what was found is not looked for again.
func TestPaymentsAreFoundInTheirPayouts(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedReadOnlyKeys: []string{"rk_test_reader"}})
	o.ungated()
	list := customers(205)
	list[0].card, list[1].card, list[2].currency = "pm_usBankAccount_success_1", "pm_card_chargeCustomerFail_2", "eur"
	o.imports(october, list)
	o.month(0)
	o.env["STRIPE_SECRET_KEY"] = "rk_test_reader"
	r := o.must(0, "reconcile", "--period", october, "--audit", "--payouts")
	if !strings.Contains(r.stdout, "payouts: 0 read, 0 payments found in them, 0 available and in none") {
		t.Errorf("before anything is available:\n%s", r.stdout)
	}
	o.advance(3 * 24 * time.Hour)
	o.acts(o.emu.Refund(o.payment("a0005"), 100)) // of which the payout is less
	if n := o.emu.PayOut(); n != 2 {
		t.Fatalf("%d payouts", n)
	}
	reads := o.emu.Count("GET balance_transactions")
	o.must(0, "reconcile", "--period", october, "--audit", "--payouts", "--dry-run")
	if got := o.payouts(); got["a0004"] != "" {
		t.Errorf("a dry run wrote %v", got)
	}
	r = o.must(0, "reconcile", "--period", october, "--audit", "--payouts")
	if !strings.Contains(r.stdout, "payouts: 2 read, 203 payments found in them, 0 available and in none") {
		t.Errorf("it says\n%s", r.stdout)
	}
	if n := o.emu.Count("GET balance_transactions") - reads; n != 2*(3+1) {
		t.Errorf("%d pages of balance transactions were read, want 3 of dollars and 1 of euros, twice", n)
	}
	got := o.payouts()
	for account, payout := range got {
		if isPaidOut := account != "a0001" && account != "a0002"; isPaidOut != strings.HasPrefix(payout, "po_") {
			t.Errorf("%s is in payout %q", account, payout)
		}
	}
	if got["a0003"] == got["a0004"] {
		t.Errorf("euros and dollars are in one payout: %v", got["a0003"])
	}
	// The debit is settled and paid out later; nothing else is looked for any more.
	o.acts(o.emu.SettleDebit(o.payment("a0001"), true))
	o.advance(3 * 24 * time.Hour)
	o.emu.PayOut()
	o.must(0, "reconcile", "--period", october, "--audit")
	r = o.must(0, "reconcile", "--period", october, "--audit", "--payouts")
	if !strings.Contains(r.stdout, " 1 payments found in them, 0 available") || !strings.HasPrefix(o.payouts()["a0001"], "po_") {
		t.Errorf("the debit is in %q:\n%s", o.payouts()["a0001"], r.stdout)
	}
	calls := o.emu.Count("GET payouts")
	before := o.ledgerText()
	o.must(0, "reconcile", "--period", october, "--audit", "--payouts")
	if o.emu.Count("GET payouts") != calls || o.ledgerText() != before {
		t.Error("all is found, and it was looked for again")
	}
}

// A list of a payout that does not come to its amount is not believed, and what a
// person paid out, or what failed, explains nothing. The audit itself stands.
func TestAPayoutIsBelievedOnlyWhole(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*stripeemu.Server)
		code  int
		want  string
	}{
		"another list": {func(e *stripeemu.Server) {
			e.Inject(stripeemu.Fault{Name: stripeemu.FaultListForgetsFilter, Operation: "GET balance_transactions"})
		}, 69, "not the whole list"},
		"failed":          {func(e *stripeemu.Server) { e.EditPayouts("failed") }, 0, "payouts: 0 read, 0 payments found in them, 3 available and in none"},
		"ordered by hand": {func(e *stripeemu.Server) { e.EditPayouts("manual") }, 0, "1 payouts were ordered by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.auditMonth(3, 0)
			o.advance(3 * 24 * time.Hour)
			o.emu.PayOut()
			o.acts(o.emu.Refund(o.payment("a0001"), 100)) // is in no payout yet
			o.must(0, "reconcile", "--period", october, "--audit")
			test.spoil(o.emu)
			r := o.must(test.code, "reconcile", "--period", october, "--audit", "--payouts")
			if !strings.Contains(r.stdout+r.stderr, test.want) {
				t.Errorf("it says\n%s", r)
			}
			for account, payout := range o.payouts() {
				if payout != "" {
					t.Errorf("%s is in payout %s", account, payout)
				}
			}
		})
	}
}
