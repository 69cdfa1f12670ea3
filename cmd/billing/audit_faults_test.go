package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A list of which a page can't be read proves nothing: no finding is opened or closed,
// and the exit code says that Stripe was not reached. The next audit goes on behind
// what was read.
func TestAnAuditConcludesNothingFromHalfAList(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(420, 10)
	o.plant(list, 2)
	o.audits(4)
	before := o.ledgerText()
	o.emu.ClearFaults() // what was missing is there again: its findings are no longer true
	o.exec(`UPDATE billing.findings SET seen = 'otherwise' WHERE kind = 'orphan'`)
	changed := o.ledgerText()
	fault := o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultListError, Operation: stripeemu.OpList, Page: 3})
	o.must(69, "reconcile", "--period", october, "--audit")
	if after := o.ledgerText(); after != changed {
		t.Errorf("an audit that could not read a page changed the ledger:\n%s", cmp.Diff(changed, after))
	}
	o.emu.RemoveFault(fault)
	pages := o.emu.Count(stripeemu.OpList)
	a, _ := o.audits(4)
	if n := o.emu.Count(stripeemu.OpList) - pages; n != 3 || !a.Resumed || a.Closed != 2 || a.Opened != 2 {
		t.Errorf("the next audit read %d pages (resumed: %t), closed %d findings and opened %d", n, a.Resumed, a.Closed, a.Opened)
	}
	if before == changed {
		t.Error("the test changed nothing")
	}
}

// A list that ends too early, without an error, is found out by asking for what it
// does not show: nothing is believed of it.
func TestAnAuditFindsAListThatIsNotComplete(t *testing.T) {
	t.Parallel()
	for _, name := range []stripeemu.FaultKind{stripeemu.FaultListCut, stripeemu.FaultListEnds, stripeemu.FaultListForgetsCreated} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.auditMonth(150, 0)
			if name == stripeemu.FaultListForgetsCreated {
				o.emu.AddIntent(stripeemu.PaymentIntent{Customer: "cus_0001", Created: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)})
			}
			before := o.ledgerText()
			page := 1
			if name == stripeemu.FaultListForgetsCreated {
				page = 2 // where the old one is
			}
			o.emu.Inject(stripeemu.Fault{Name: name, Operation: stripeemu.OpList, Page: page})
			o.must(69, "reconcile", "--period", october, "--audit")
			if after := o.ledgerText(); after != before {
				t.Errorf("it changed the ledger:\n%s", cmp.Diff(before, after))
			}
		})
	}
}

// A killed audit is gone on with: what was read is not read again, and the end is that
// of one that was not killed.
func TestAKilledAuditIsGoneOnWith(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(620, 10)
	want := o.plant(list, 2)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Page: 5, Times: 1})
	pages := o.emu.Count(stripeemu.OpList)
	p := o.start("reconcile", "--period", october, "--audit")
	if err := o.emu.WaitHeld(within(t), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "four pages are noted", func() bool {
		return one[int](o, `SELECT coalesce(sum(pages), 0)::int FROM billing.audit_lists WHERE list = 'payments'`) == 4
	})
	p.kill()
	o.emu.Release()
	o.must(75, "reconcile", "--period", october, "--audit") // its lease is not over
	o.advance(time.Minute)
	a, _ := o.audits(4)
	if n := o.emu.Count(stripeemu.OpList) - pages; n != 8 || !a.Resumed { // seven, and the one that was held
		t.Errorf("%d pages were read in all, resumed: %t", n, a.Resumed)
	}
	if diff := cmp.Diff(want, o.found()); diff != "" {
		t.Errorf("findings (-planted +found):\n%s", diff)
	}
	if n := one[int](o, `SELECT (SELECT count(*) FROM billing.audit_payments) + (SELECT count(*) FROM billing.audit_lists)`); n != 0 {
		t.Errorf("%d rows are left of the notebook", n)
	}
}

// within is as long as a test waits.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Of two audits at once one does the work, and the other says so.
func TestTwoAuditsAtOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "2m"
	list := o.auditMonth(220, 5)
	want := o.plant(list, 1)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Page: 2, Times: 1})
	p := o.start("reconcile", "--period", october, "--audit")
	if err := o.emu.WaitHeld(within(t), 1); err != nil {
		t.Fatal(err)
	}
	r := o.must(75, "reconcile", "--period", october, "--audit")
	if !strings.Contains(r.stderr, "it is being audited") {
		t.Errorf("the other says\n%s", r)
	}
	o.emu.Release()
	if r := p.wait(); r.code != 4 {
		t.Fatal(r)
	}
	if diff := cmp.Diff(want, o.found()); diff != "" {
		t.Errorf("findings (-planted +found):\n%s", diff)
	}
}

// What a process that was thought dead reads after another went on with its audit is
// thrown away.
func TestAnAuditThatWasTakenOverWritesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.auditMonth(220, 0)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Page: 2, Times: 1})
	p := o.start("reconcile", "--period", october, "--audit")
	if err := o.emu.WaitHeld(within(t), 1); err != nil {
		t.Fatal(err)
	}
	o.db.SetOffset(o.db.Offset() + time.Minute) // its lease is over, and Stripe's clock still near enough
	o.emu.SetOffset(o.emu.Offset() + time.Minute)
	o.audits(0)
	o.emu.Release()
	if r := p.wait(); r.code != 75 {
		t.Error(r)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.audits WHERE complete`); n != 1 {
		t.Errorf("%d audits are complete", n)
	}
}

// Rows that a run may be sending, and such as changed while the audit read, are not
// differences.
func TestWhatMovesIsNoDifference(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.imports(october, customers(4))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Account: "a0001"})
	o.month(75)
	o.emu.ClearFaults()
	a, _ := o.audits(75)
	if a.Moving != 1 || a.Compared != 3 || len(a.Differences) != 0 || o.state("a0001") != "pending" {
		t.Errorf("%+v", a)
	}
	if got := a.amounts("usd"); got["pending"] != "-10.01" || got["under way"] != "10.01" || got["paid at Stripe"] != "40.10" {
		t.Errorf("the sums say %v", got)
	}
	// Past its window it is settled, which is no finding either.
	o.advance(24 * time.Hour)
	if a, _ := o.audits(75); a.Moving != 0 || len(a.Differences) != 0 || o.state("a0001") != "succeeded" {
		t.Errorf("%+v, and the charge is %s", a, o.state("a0001"))
	}
	o.month(0)
	o.audits(0)
}

// The rights that docs/deploy grants are enough for an audit.
func TestTheGrantsAreEnoughForAnAudit(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.as("billing_run")
	list := o.auditMonth(12, 5)
	o.plant(list, 1)
	o.must(4, "reconcile", "--period", october, "--audit")
}
