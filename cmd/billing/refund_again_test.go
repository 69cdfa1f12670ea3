package main

import (
	"strings"
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// anotherFinding opens a second finding about a payment and returns its number.
func (o *office) anotherFinding(payment string) string {
	o.t.Helper()
	return one[string](o, `INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
		VALUES ('orphan', 'act', 'monthly-billing', $1, 'a0001', $2, $3, 'usd') RETURNING id::text`, october, keyOf("a0001"), payment)
}

// refundKeys are the keys under which refunds arrived at Stripe.
func (o *office) refundKeys() string {
	var keys []string
	for _, sent := range o.refundsSent() {
		key, _, _ := strings.Cut(sent, " ")
		keys = append(keys, key)
	}
	return strings.Join(keys, " ")
}

// givenBack is what Stripe gave back of a payment, in cents.
func (o *office) givenBack(payment string) int64 {
	o.t.Helper()
	pi, there := o.emu.Intent(payment)
	if !there {
		o.t.Fatalf("there is no %s", payment)
	}
	return pi.AmountRefunded
}

// Two refunds of the same amount, and of the same payment, are two: each has the key of
// its own finding, so that neither is taken for a repetition of the other.
func TestTwoFindingsOfOneAmountAreTwoRefunds(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	other := o.anotherFinding(second)
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
	o.resolveAs(0, other, "refund", "--yes", "--amount", "4")
	if got := o.refundKeys(); got != "finding/"+id+"/"+second+"/refund finding/"+other+"/"+second+"/refund" {
		t.Errorf("refunds were sent under %q", got)
	}
	if got := o.givenBack(second); got != 800 {
		t.Errorf("%d were given back, want 800", got)
	}
}

// No more than is left of a payment is ordered, not a cent, and nothing is sent for it.
func TestNoMoreThanIsLeftIsOrdered(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	refund := func(amount string) []string {
		return []string{"resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes", "--amount", amount}
	}
	o.refused("there are 10.01 usd to give back", refund("10.02")...)
	o.refused("there are 10.01 usd to give back", refund("0")...)
	if err := o.emu.Refund(second, 401); err != nil {
		t.Fatal(err)
	}
	o.refused("there are 6.00 usd to give back", refund("6.01")...)
	if n := o.emu.Count(opRefund); n > 0 {
		t.Errorf("%d refunds were sent", n)
	}
	o.must(0, refund("6.00")...)
	if got := o.givenBack(second); got != 1001 {
		t.Errorf("%d were given back, want 1001", got)
	}
}

// A refund that failed at the bank gave nothing back: the finding stays open, and a
// person may order it anew, under another key.
func TestAFailedRefundLeavesItsFindingOpen(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Operation: opRefund, Times: 1})
	o.resolveAs(75, id, "refund", "--yes")
	if err := o.emu.FailRefunds(second); err != nil {
		t.Fatal(err)
	}
	o.resolveAs(4, id, "refund", "--yes").says(t, "stays open", "the money is not on its way back")
	if got := one[string](o, `SELECT o.state || ' ' || o.refund_status || ' ' || (f.resolved_at IS NULL)::text
		FROM billing.refund_orders o JOIN billing.findings f ON f.id = o.finding_id`); got != "refused failed true" {
		t.Errorf("the order is %s", got)
	}
	o.resolveAs(0, id, "refund", "--yes")
	if got := o.refundKeys(); got != "finding/"+id+"/"+second+"/refund finding/"+id+"/"+second+"/refund/r2" {
		t.Errorf("refunds were sent under %q", got)
	}
	if got := o.givenBack(second); got != 1001 {
		t.Errorf("%d were given back, want 1001", got)
	}
}

// A refund that is sent again is the request that was ordered, byte for byte, whatever
// was given back of the payment since.
func TestARefundThatIsSentAgainIsTheSameRequest(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
	o.resolveAs(75, id, "refund", "--yes", "--amount", "4")
	if err := o.emu.Refund(second, 100); err != nil {
		t.Fatal(err)
	}
	o.resolveAs(0, id, "refund", "--yes")
	if sent := o.refundsSent(); len(sent) != 2 || sent[0] != sent[1] {
		t.Errorf("sent %q", sent)
	}
	if got := o.givenBack(second); got != 500 {
		t.Errorf("%d were given back, want 500", got)
	}
}
