package main

import (
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// twoFindings is a charge in review, its payment, and two findings about it: that of the
// run, and one of another kind.
func (o *office) twoFindings() (payment, review, mismatch string) {
	o.t.Helper()
	o.ungated()
	payment, review = o.inReview(1, nil)[0], o.finding("a0001")
	return payment, review, one[string](o, `INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
		VALUES ('amount_mismatch', 'act', 'monthly-billing', $1, 'a0001', $2, $3, 'usd') RETURNING id::text`, october, keyOf("a0001"), payment)
}

// While a refund of a payment is under way nothing is decided by that payment, about
// whatever finding: a debt is never paid by money that is being given back.
func TestNothingIsDecidedByAPaymentThatIsBeingGivenBack(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"accept", "release", "void"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			payment, review, mismatch := o.twoFindings()
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
			o.resolveAs(75, review, "refund", "--yes")
			resolve := []string{"resolve", "--finding", mismatch, "--as", as, "--why", "agreed"}
			o.refused("a refund of "+payment+" was ordered about finding "+review, resolve...)
			o.resolveAs(0, review, "refund", "--yes")
			o.is("a0001", "held payment_refunded")
			if got := o.givenBack(payment); got != 500 {
				t.Errorf("%d were given back, want 500", got)
			}
		})
	}
}

// Nor while a refund that got no answer may still be made by Stripe.
func TestNothingIsDecidedWhileStripeMayStillRefund(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	payment, review, mismatch := o.twoFindings()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
	o.resolveAs(75, review, "refund", "--yes")
	o.advance(day)
	o.resolveAs(4, review, "refund", "--yes").says(t, "Stripe shows no refund")
	accept := []string{"resolve", "--finding", mismatch, "--as", "accept", "--why", "agreed"}
	o.refused("a refund of "+payment+" about finding "+review+" got no answer, and Stripe may still make it until", accept...)
	o.advance(3 * day)
	o.must(0, accept...)
	o.is("a0001", "succeeded")
}

// A payment that was given back between the look and the decision, about another finding,
// pays nothing.
func TestAPaymentThatIsGivenBackMeanwhilePaysNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	payment, review, mismatch := o.twoFindings()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpRead, Times: 1})
	p := o.start("resolve", "--finding", mismatch, "--as", "accept", "--why", "agreed")
	if err := o.emu.WaitHeld(within(t), 1); err != nil {
		t.Fatal(err)
	}
	o.exec(`UPDATE billing.findings SET severity = 'note' WHERE id = $1::bigint`, review)
	o.resolveAs(0, review, "refund", "--yes")
	o.emu.Release()
	if r := p.wait(); r.code != 64 {
		t.Error(r)
	}
	o.is("a0001", "review not_as_asked")
	if got := o.givenBack(payment); got != 500 {
		t.Errorf("%d were given back, want 500", got)
	}
}

// The second payment is not given back while it is not sure that the first one stays.
func TestASecondPaymentStaysWhileTheFirstMayGo(t *testing.T) {
	t.Parallel()
	t.Run("disputed", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		right, _, id := o.paidTwice()
		o.acts(o.emu.Dispute(right))
		o.refused("disputes the other payment, "+right, "resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes")
	})
	t.Run("being given back", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		right, second, id := o.paidTwice()
		first := one[string](o, `INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
			VALUES ('late_paid', 'act', 'monthly-billing', $1, 'a0001', $2, $3, 'usd') RETURNING id::text`, october, keyOf("a0001"), right)
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
		o.resolveAs(75, first, "refund", "--yes", "--amount", "10.01")
		o.refused("a refund of the other payment, "+right+", is under way about finding "+first,
			"resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes")
		if got := o.givenBack(second); got > 0 {
			t.Errorf("%d of the second were given back", got)
		}
	})
}

// What was planned is looked at again under the lock: a refund that another finding got
// meanwhile, of this payment or of the one that should stay, stops it before it is sent.
func TestARefundIsNotOrderedOnWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]func(o *office, right, second string){
		"the payment that should stay": func(o *office, right, _ string) {
			first := o.anotherFinding(right)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
			o.resolveAs(75, first, "refund", "--yes", "--amount", "10.01")
		},
		"this payment": func(o *office, _, second string) {
			o.resolveAs(0, o.anotherFinding(second), "refund", "--yes", "--amount", "4")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			right, second, id := o.paidTwice()
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: "GET refunds", Times: 1})
			p := o.start("resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes", "--amount", "4")
			if err := o.emu.WaitHeld(within(t), 1); err != nil {
				t.Fatal(err)
			}
			scene(o, right, second)
			o.emu.Release()
			if r := p.wait(); r.code != 64 {
				t.Error(r)
			}
			if n := o.emu.Count(opRefund); n != 1 {
				t.Errorf("%d refunds were sent, want that of the other finding", n)
			}
		})
	}
}

// A debt is not withdrawn while its customer could still pay: the invoice would be free,
// and be charged once more.
func TestADebtThatMayStillBePaidIsNotWithdrawn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	payment := o.inReview(1, func(_ int, pi *stripeemu.PaymentIntent) { pi.Status = "requires_action" })[0]
	id := o.finding("a0001")
	for _, as := range []string{"void", "release"} {
		o.refused("so that it may still be paid", "resolve", "--finding", id, "--as", as, "--why", "agreed")
	}
	o.acts(o.emu.CancelIntent(payment, "requested_by_customer"))
	o.resolveAs(0, id, "void")
	o.is("a0001", "void")
}
