package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// everyRow is all that the database has, but for billing.audits: each audit, a dry one
// too, keeps a row there.
func (o *office) everyRow() string {
	o.t.Helper()
	tables := one[[]string](o, `SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
		WHERE relnamespace = 'billing'::regnamespace AND relkind = 'r' AND relname <> 'audits'`)
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "%s\n%s\n", table, one[string](o, `SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM billing.`+table+` t`))
	}
	return b.String()
}

// A dry run says the same and changes nothing.
func TestADryAuditChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(12, 5)
	o.plant(list, 1)
	before := o.everyRow()
	dry, _ := o.audits(4, "--dry-run")
	if after := o.everyRow(); after != before {
		t.Errorf("it changed the ledger:\n%s", cmp.Diff(before, after))
	}
	if a, _ := o.audits(4); cmp.Diff(dry.Differences, a.Differences) != "" || cmp.Diff(dry.Notes, a.Notes) != "" {
		t.Errorf("a dry audit says %v and %v, a real one %v and %v", dry.Differences, dry.Notes, a.Differences, a.Notes)
	}
}

// What a dry run would open is listed as a real audit lists it, under the number of the
// finding that there is already, or as new; what was resolved before is only counted. In
// every case the database stays as it is.
func TestADryAuditListsWhatItWouldOpen(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(12, 5)
	want := o.plant(list, 1)
	for _, note := range []string{"canceled", "refunded", "disputed"} {
		delete(want, note)
	}
	dry := func(code int, last string, numbers map[string]string) {
		t.Helper()
		before := o.everyRow()
		r := o.must(code, "reconcile", "--audit", "--period", october, "--dry-run")
		a, _ := o.audits(code, "--dry-run")
		if after := o.everyRow(); after != before {
			t.Errorf("it changed the ledger:\n%s", cmp.Diff(before, after))
		}
		r.says(t, last+"; compared: 12 charges", "nothing was changed (dry run)")
		shown := planted{}
		for _, d := range a.Listed {
			shown.add(d.Kind, strings.TrimPrefix(d.BillingKey, "monthly-billing/2026-10/"))
			number := numbers[d.Kind]
			if !hasRow(r.stdout, number, d.Kind, d.AccountID, d.PaymentIntent) || fmt.Sprint(d.Finding) != strings.Replace(number, "new", "0", 1) {
				t.Errorf("no line %s of %+v\n%s", number, d, r.stdout)
			}
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("listed (-planted +shown):\n%s", diff)
		}
	}
	numbers := map[string]string{}
	for kind := range want {
		numbers[kind] = "new"
	}
	dry(4, "8 differences", numbers)

	o.audits(4)
	for kind := range want {
		numbers[kind] = one[string](o, `SELECT id::text FROM billing.findings WHERE kind = $1`, kind)
	}
	delete(want, "late_paid") // its charge is settled now
	dry(4, "7 differences", numbers)

	for _, kind := range []string{"duplicate", "amount_mismatch"} {
		o.resolveAs(0, numbers[kind], "accept")
		delete(want, kind)
	}
	dry(4, "7 differences (2 resolved before, 5 would be open)", numbers)
	o.must(4, "reconcile", "--audit", "--period", october).says(t, "7 differences (2 resolved before, 5 open); compared: 12 charges")

	twice := list[slices.IndexFunc(list, func(c customer) bool { return c.id == "a0012" })]
	o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1012, Customer: twice.customer, Metadata: ourKey(twice.id, "1")})
	o.advance(time.Hour)
	want.add("duplicate", twice.id)
	numbers["duplicate"] = "new"
	dry(4, "8 differences (2 resolved before, 6 would be open)", numbers)
}

// More than a thousand open findings are not taken for some that were resolved, and a dry
// run says how to see those that it does not list.
func TestAnAuditOfVeryManyDifferences(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.auditMonth(1, 0)
	const many = 1010
	for i := range many {
		o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 500, Customer: "cus_0001", Metadata: ourKey(fmt.Sprintf("x%04d", i), "1")})
	}
	o.advance(time.Hour)
	r := o.must(4, "reconcile", "--audit", "--period", october, "--dry-run")
	r.says(t, "1010 differences; compared", "and 990 more; --json has a thousand")
	if a, _ := o.audits(4, "--dry-run"); len(a.Listed) != 1000 {
		t.Errorf("%d are listed", len(a.Listed))
	}
	o.must(4, "reconcile", "--audit", "--period", october).says(t, "1010 differences; compared", "and 990 more; billing findings has them all")
}
