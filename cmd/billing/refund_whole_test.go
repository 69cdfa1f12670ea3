package main

import (
	"strings"
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// Two findings about one payment, named in one command, give it back once, and both are
// resolved by that.
func TestTwoFindingsOfOnePaymentInOneCommandAreOneRefund(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	other := o.anotherFinding(second)
	both := []string{"resolve", "--finding", id, "--finding", other, "--as", "refund", "--why", "agreed"}
	o.must(0, both...).says(t, "nothing would be sent: the refund above gives it back")
	o.must(0, append(both, "--yes")...)
	if n := o.emu.Count(opRefund); n != 1 || o.givenBack(second) != 1001 {
		t.Errorf("%d refunds were sent, %d given back", n, o.givenBack(second))
	}
	o.resolvedOnce(id, "refund")
	o.resolvedOnce(other, "refund")
	if got := o.orders(); got != "refunded succeeded" {
		t.Errorf("the orders are %s", got)
	}
	o.audits(0)
}

// An order whose payment was given back whole meanwhile, by whatever refund, ends, and
// does not wait for its hours to be over.
func TestAnOrderEndsOnceItsPaymentWasGivenBack(t *testing.T) {
	t.Parallel()
	for _, fault := range []stripeemu.FaultKind{stripeemu.FaultLoseRequest, stripeemu.FaultLoseAnswer} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			_, second, id := o.paidTwice()
			o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
			o.emu.Inject(stripeemu.Fault{Name: fault, Operation: opRefund, Times: 1})
			o.resolveAs(75, id, "refund", "--yes", "--amount", "1")
			want := "refunded succeeded, refunded succeeded"
			if fault == stripeemu.FaultLoseRequest {
				want = "refunded succeeded, refused charge_already_refunded"
			}
			o.acts(o.emu.Refund(second, 0))
			o.resolveAs(0, id, "refund", "--yes")
			if got := o.orders(); got != want {
				t.Errorf("the orders are %s, want %s", got, want)
			}
			if open := one[int](o, `SELECT count(*) FROM billing.findings WHERE resolved_at IS NULL`); open > 0 {
				t.Errorf("%d findings are open", open)
			}
		})
	}
}

// A payment too many of which a part was given back is still too many: its finding stays
// open, and says how much is left, until it is given back whole.
func TestAPaymentTooManyStaysAFindingUntilItIsGivenBackWhole(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"duplicate", "orphan", "adjacent_double", "not_recorded"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			_, second, id := o.paidTwice()
			o.exec(`UPDATE billing.findings SET kind = $1`, kind)
			o.resolveAs(0, id, "refund", "--yes", "--amount", "4").says(t, "4.00 usd of payment "+second+" given back", "6.01 usd are left of it, and the finding stays open",
				"next: billing resolve --finding "+id)
			o.month(4)
			o.resolveAs(0, id, "refund", "--yes").says(t, "6.01 usd of payment "+second+" given back")
			o.month(0)
			if got := o.givenBack(second); got != 1001 {
				t.Errorf("%d were given back, want 1001", got)
			}
		})
	}
}

// A finding that an earlier version closed by a part of its payment is opened by the
// next audit.
func TestAPartThatClosedADuplicateOpensItAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, _, id := o.paidTwice()
	o.audits(4)
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
	o.exec(`UPDATE billing.findings SET resolved_at = billing.now(), resolved_by = 'tester', resolution = 'refunded', why = 'w'`)
	o.month(0)
	o.audits(4)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s is open, not %s", got, id)
	}
}

// A restored ledger that forgot a part takes it once, and then the rest.
func TestARestoredLedgerTakesAForgottenPartOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	backup := o.db.Snapshot(t)
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
	o.db.RestoreSnapshot(t, backup)
	o.resolveAs(0, id, "refund", "--yes").says(t, "4.00 usd of payment", "6.01 usd are left")
	o.resolveAs(0, id, "refund", "--yes").says(t, "6.01 usd of payment")
	if n := o.emu.Count(opRefund); n != 2 || o.givenBack(second) != 1001 {
		t.Errorf("%d refunds were sent, %d given back", n, o.givenBack(second))
	}
}

// A ledger that was restored gives numbers out again: the finding that has one now, about
// another payment, has another key.
func TestAFindingThatIsNumberedAgainHasAnotherKey(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	backup := o.db.Snapshot(t)
	double := func(account, customer string) string {
		pi := o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1001, Customer: customer, Metadata: ourKey(account, "1")})
		return pi + " " + one[string](o, `INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
			VALUES ('duplicate', 'act', 'monthly-billing', $1, $2, $3, $4, 'usd') RETURNING id::text`, october, account, keyOf(account), pi)
	}
	first, id, _ := strings.Cut(double("a0001", "cus_0001"), " ")
	o.resolveAs(0, id, "refund", "--yes")
	o.db.RestoreSnapshot(t, backup)
	second, again, _ := strings.Cut(double("a0002", "cus_0002"), " ")
	if again != id {
		t.Fatalf("the finding is %s, not %s once more", again, id)
	}
	o.resolveAs(0, again, "refund", "--yes")
	if o.givenBack(first) != 1001 || o.givenBack(second) != 1001 {
		t.Errorf("%d and %d were given back", o.givenBack(first), o.givenBack(second))
	}
}
