package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// What was given back while an audit read is not taken back by its older pages.
func TestAnAuditDoesNotForgetARefundThatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "2m"
	o.declinedOnes("late")
	paid := o.emu.IntentsFor(keyOf("late"))[0].ID
	o.acts(o.emu.CustomerPays(paid))
	o.advance(time.Hour)
	o.audits(4)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: "GET disputes", Times: 1})
	p := o.start("reconcile", "--period", october, "--audit")
	if err := o.emu.WaitHeld(within(t), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "payments and refunds are noted", func() bool {
		return one[int](o, `SELECT count(*) FROM billing.audit_lists WHERE done AND list <> 'disputes'`) == 2
	})
	o.resolveAs(0, one[string](o, `SELECT id::text FROM billing.findings WHERE kind = 'late_paid'`), "refund", "--yes", "--amount", "4")
	o.emu.Release()
	p.wait()
	if got := one[int](o, `SELECT amount_refunded_minor FROM billing.charges WHERE account_id = 'late'`); got != 400 {
		t.Errorf("%d are noted as given back, want 400", got)
	}
	o.audits(0)
	if got := one[string](o, `SELECT amount_refunded_minor || ' ' || refunds FROM billing.charges WHERE account_id = 'late'`); got != "400 1" {
		t.Errorf("the next audit notes %s", got)
	}
}

// If Postgres loses the notebook, as a crash does, nothing is concluded from what is
// left of it: no finding is opened or closed, and the next audit reads anew.
func TestNothingIsConcludedFromANotebookThatWasLost(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]string{
		"between two pages": `BEFORE UPDATE ON billing.audit_lists`,
		"before the end":    `BEFORE UPDATE OF fee_minor ON billing.charges`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.plant(o.auditMonth(120, 5), 1)
			o.audits(4)
			o.exec(`UPDATE billing.charges SET fee_minor = fee_minor + 1 WHERE fee_minor IS NOT NULL`) // something to write
			before := o.found()
			o.exec(`CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
				DELETE FROM billing.audit_lists; DELETE FROM billing.audit_payments; DELETE FROM billing.audit_returns; DELETE FROM billing.audit_differences;
				RETURN CASE WHEN TG_TABLE_NAME = 'audit_lists' THEN NULL ELSE NEW END; END $$`)
			o.exec(`CREATE TRIGGER lose ` + when + ` FOR EACH ROW EXECUTE FUNCTION public.lose()`)
			r := o.must(75, "reconcile", "--period", october, "--audit")
			if !strings.Contains(r.stderr, "notebook was emptied") {
				t.Errorf("it says\n%s", r)
			}
			o.exec(`DROP FUNCTION public.lose() CASCADE`)
			if diff := cmp.Diff(before, o.found()); diff != "" {
				t.Errorf("findings (-before +after):\n%s", diff)
			}
			if a, _ := o.audits(4); a.Opened != 0 || a.Closed != 0 {
				t.Errorf("the next audit opened %d and closed %d", a.Opened, a.Closed)
			}
		})
	}
}

// A payment that a run found not to be as asked is one finding, whichever command looks
// next, also when a person has said what is to be done about it.
func TestTheSameFactIsOneFinding(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(1, nil)
	o.audits(4)
	if got := o.found(); len(got) != 1 || !got["not_as_asked"][keyOf("a0001")] {
		t.Errorf("the audit found %v", got)
	}
	o.resolveAs(0, o.finding("a0001"), "accept")
	if a, _ := o.audits(0); len(a.Differences) != 0 {
		t.Errorf("after a person accepted it: %v", a.Differences)
	}
}
