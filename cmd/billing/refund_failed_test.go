package main

import (
	"strings"
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// history is what was done about a finding, in order.
func (o *office) history(finding string) string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(action, ' ' ORDER BY id), '') FROM billing.finding_events WHERE finding_id = $1::bigint`, finding)
}

// orders are the states of the refunds that were ordered, with Stripe's own.
func (o *office) orders() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(concat_ws(' ', state, nullif(reason, ''), nullif(refund_status, '')), ', ' ORDER BY finding_id, try), '') FROM billing.refund_orders`)
}

// A refund that fails days after it was made resolves nothing: the next audit opens its
// finding again, the month needs a person, and the money can be given back anew, under
// another key. That one stays resolved, whatever the first one was.
func TestARefundThatFailsLaterOpensItsFindingAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.resolveAs(0, id, "refund", "--yes")
	o.audits(0)
	o.acts(o.emu.FailRefunds(second))
	if a, _ := o.audits(4); a.Opened != 1 {
		t.Errorf("it opened %d findings", a.Opened)
	}
	o.month(4)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s is open, not %s", got, id)
	}
	if got := o.orders(); got != "refused refund_failed failed" {
		t.Errorf("the order is %s", got)
	}
	before := o.resolutionText()
	o.audits(4)
	if after := o.resolutionText(); after != before {
		t.Errorf("a second audit changed the ledger\n%s\n-- before\n%s", after, before)
	}
	o.resolveAs(0, id, "refund", "--yes")
	o.audits(0)
	if keys := o.refundKeys(); !strings.HasSuffix(keys, "/refund/r2") || o.givenBack(second) != 1001 {
		t.Errorf("refunds were sent under %q, %d were given back", keys, o.givenBack(second))
	}
	if got := o.history(id); got != "refund_ordered refund refund_refused refund_ordered refund" {
		t.Errorf("its history is %s", got)
	}
}

// So it is with a refund that somebody made by hand and a person resolved the finding
// by, with one of a part, and with that of a charge in review: whatever the finding's kind.
func TestAFailedRefundOpensFindingsOfEveryKind(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]func(o *office) (payment, finding string){
		"made by hand": func(o *office) (string, string) {
			_, second, id := o.paidTwice()
			o.acts(o.emu.Refund(second, 0))
			o.resolveAs(0, id, "refund", "--yes")
			return second, id
		},
		"of a part": func(o *office) (string, string) {
			aFinding("late_paid", own)(o)
			id := o.finding("a0001")
			o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
			return own(o), id
		},
		"of a charge in review": func(o *office) (string, string) {
			o.ungated()
			payment := o.inReview(1, nil)[0]
			id := o.finding("a0001")
			o.resolveAs(0, id, "refund", "--yes")
			o.is("a0001", "held payment_refunded")
			return payment, id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			payment, id := scene(o)
			o.run("reconcile", "--period", october, "--audit")
			if open := one[bool](o, `SELECT resolved_at IS NULL FROM billing.findings WHERE id = $1::bigint`, id); open {
				t.Error("an audit opened it while its refund stands")
			}
			o.acts(o.emu.FailRefunds(payment))
			o.audits(4)
			if open := one[bool](o, `SELECT resolved_at IS NULL FROM billing.findings WHERE id = $1::bigint`, id); !open {
				t.Error("it is not open")
			}
			if got := o.history(id); !strings.HasSuffix(got, "refund refund_refused") {
				t.Errorf("its history is %s", got)
			}
		})
	}
}

// A charge whose payment was given back, and is there again because that failed, is not
// charged by a release: that payment counts again.
func TestAReleaseSeesAPaymentWhoseRefundFailed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	payment := o.inReview(1, nil)[0]
	o.resolveAs(0, o.finding("a0001"), "refund", "--yes")
	o.acts(o.emu.FailRefunds(payment))
	o.audits(4)
	o.emu.ResetLog()
	o.must(4, "release", "--period", october, "--all", "--why", "tried")
	o.is("a0001", "review not_as_asked")
	o.posts(0)
}

// Of what a person gave back a part on purpose no audit opens the finding again: an
// amount that differs stays as it was agreed.
func TestAPartThatWasGivenBackOnPurposeStaysResolved(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(2)
	list[0].card = "pm_card_chargeCustomerFail_1"
	o.imports(october, list)
	o.month(0)
	payment := o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1500, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	o.audits(4)
	id := o.finding("a0001")
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4.99").says(t, "4.99 usd of payment "+payment)
	for range 2 {
		if a, _ := o.audits(0); a.Opened > 0 || len(a.Differences) != 1 {
			t.Errorf("an audit opened %d findings, of %+v", a.Opened, a.Differences)
		}
	}
	o.acts(o.emu.FailRefunds(payment))
	o.audits(4)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s is open, not %s", got, id)
	}
}

// A rebuild shows what was given back: a second payment that was is no finding, and one
// that is there again is.
func TestARebuildSeesWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	rebuild := []string{"reconcile", "--period", october, "--rebuild", "--why", "test"}
	_, second, id := o.paidTwice()
	o.resolveAs(0, id, "refund", "--yes")
	o.must(0, rebuild...)
	o.acts(o.emu.FailRefunds(second))
	o.must(4, rebuild...)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s is open, not %s", got, id)
	}
	o.acts(o.emu.Refund(second, 0))
	o.audits(0) // it is gone
	o.acts(o.emu.FailRefunds(second))
	o.must(4, rebuild...)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s is open, not %s", got, id)
	}
}
