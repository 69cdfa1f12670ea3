package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allTables is every row and every sequence of the schema.
func (o *office) allTables() map[string]string {
	o.t.Helper()
	all := map[string]string{}
	tables := one[[]string](o, `SELECT array_agg(table_name::text) FROM information_schema.tables
		WHERE table_schema = 'billing' AND table_type = 'BASE TABLE'`)
	for _, name := range tables {
		all[name] = one[string](o, `SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM billing.`+name+` t`)
	}
	all["sequences"] = one[string](o, `SELECT coalesce(string_agg(sequencename || ' ' || coalesce(last_value, 0), ', ' ORDER BY sequencename), '')
		FROM pg_sequences WHERE schemaname = 'billing'`)
	return all
}

// typedOf takes a command out of a hint: what follows "billing NAME ".
func (r outcome) typedOf(t *testing.T, command string) []string {
	t.Helper()
	_, typed, there := strings.Cut(r.json(t).Error.Hint, "billing "+command+" ")
	if !there {
		t.Fatalf("the hint has no billing %s\n%s", command, r)
	}
	typed, _, _ = strings.Cut(typed, ",")
	return append([]string{command}, strings.Fields(typed)...)
}

// With BILLING_REQUIRE_APPROVAL a run without one is refused with the command to
// type; typed by a person, it lets exactly this plan through, and typed twice it says
// so.
func TestARunWaitsForItsApproval(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_REQUIRE_APPROVAL"] = "true"
	list := customers(30)
	o.imports(october, list)
	r := o.month(3, "--json")
	if e := r.json(t).Error; e.Code != "not_approved" || o.emu.Posts() != 0 || len(o.states(october)) != 0 {
		t.Errorf("%+v, %d POSTs", e, o.emu.Posts())
	}
	approve := r.typedOf(t, "approve")
	if !slices.Contains(approve, o.must(0, "preview", "--period", october, "--json").json(t).Plan) {
		t.Errorf("the hint %v has not the plan that preview prints", approve)
	}
	approve = append(approve[:len(approve)-1], "anna")
	if r := o.must(0, approve...); !strings.Contains(r.stdout, "approved by anna: 30 invoices, 304.65 usd") {
		t.Errorf("it does not say what was approved\n%s", r)
	}
	if r := o.must(0, approve...); !strings.Contains(r.stdout, "approved before") {
		t.Errorf("the second time\n%s", r)
	}
	list[2].card = "pm_another" // not a matter of the plan
	o.imports(october, list)
	if r := o.month(0, "--json").json(t); len(r.Warnings) > 0 {
		t.Errorf("an approved first period warns of %v", r.Warnings)
	}
	o.mustBeWhole()
}

// A plan that drifted from the approved one is refused, and the accounts are named;
// --drift lets as many through as it says and not one more.
func TestADriftedPlanNamesItsAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_REQUIRE_APPROVAL"] = "true"
	list := customers(30)
	o.imports(october, list)
	first := o.must(0, "preview", "--period", october, "--json").json(t).Plan
	o.must(0, "approve", "--period", october, "--plan", first, "--by", "anna")
	list[3].amount = "11.00"
	list = append(list, customer{"b-new", "cus_new", "pm_new", "5.00", "usd"})
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "import", "invoices", "--period", october, "--replace", "--file", o.file("invoices.csv", invoicesCSV(list)))
	o.exec(`DELETE FROM billing.invoices WHERE account_id = 'a0010'`)
	r := o.month(3, "--json")
	e := r.json(t).Error
	for _, want := range []string{"approved by anna", "3 accounts differ", "a0004: 11 usd, approved were 10.04 usd", "b-new: 5 usd, not in the approved plan",
		"a0010: gone, approved were 10.1 usd"} {
		if !strings.Contains(e.Message, want) {
			t.Errorf("want %q in\n%s", want, e.Message)
		}
	}
	if e.Code != "plan_drifted" || o.emu.Posts() != 0 || len(o.states(october)) != 0 || !strings.Contains(e.Hint, "--drift 3") {
		t.Errorf("%+v, %d POSTs, %v", e, o.emu.Posts(), o.states(october))
	}
	o.month(3, "--drift", "2")
	before := o.allTables()
	o.must(3, "approve", "--period", october, "--plan", first, "--by", "anna") // it is another by now
	if diff := cmp.Diff(before, o.allTables()); diff != "" {
		t.Errorf("a refused approval wrote\n%s", diff)
	}
	o.month(0, r.typedOf(t, "run")[3:]...)
	o.mustBeWhole()
}

// A plan that was approved, left and taken up again is approved still.
func TestAnApprovedPlanThatComesBackIsApproved(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_REQUIRE_APPROVAL"] = "true"
	list := customers(5)
	for _, amount := range []string{"1.00", "2.00", "1.00"} {
		list[0].amount = amount
		o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
		o.must(0, "import", "invoices", "--period", october, "--replace", "--file", o.file("invoices.csv", invoicesCSV(list)))
		o.must(0, "approve", "--period", october, "--plan", o.must(0, "preview", "--period", october, "--json").json(t).Plan, "--by", "anna")
	}
	o.month(0)
	o.mustBeWhole()
}

// An extraordinary plan that somebody approved passes the gates, without being
// required to, and still not a cap that was typed.
func TestAnApprovedPlanPassesTheGatesAndNotTheCaps(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.monthOf(september)
	o.imports(september, company(1))
	o.must(0, "run", "--period", september)
	o.monthOf(october)
	o.imports(october, scaled(company(2), func(int) int { return 100 }))
	o.stoppedByGate(october, mistakes["amounts times 100"].gates)
	plan := o.must(0, "preview", "--period", october, "--json").json(t).Plan
	if r := o.must(0, "preview", "--period", october); !strings.Contains(r.stdout, fmt.Sprintf("billing approve --period %s --plan %s --by NAME", october, plan)) {
		t.Errorf("preview does not say how to approve\n%s", r)
	}
	o.must(0, "approve", "--period", october, "--plan", plan, "--by", "anna", "--why", "a price rise")
	if _, p := o.previewed(october); len(p.Gates) > 0 || p.ApprovedBy != "anna" {
		t.Errorf("after the approval preview foretells %v", p.Gates)
	}
	o.stoppedByGate(october, []string{"max_total"}, "--max-total", "usd=100000")
	o.month(0)
	o.mustBeWhole()
}

// T15: the commands of this page refuse a period that is mistyped or has nothing.
func TestAMistypedPeriodIsRefusedByWhatAPersonOrders(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	before := o.allTables()
	for _, bad := range []string{"2026-1", "2026-13", "202610", "2026-10 "} {
		for _, command := range [][]string{
			{"approve", "--plan", "x", "--by", "anna"}, {"void", "--account", "a0001", "--why", "x"}, {"release", "--account", "a0001", "--why", "x"},
			{"requeue", "--all", "--why", "x"}, {"reconcile"}, {"run", "--dry-run"},
		} {
			if r := o.must(64, append(command, "--period="+bad)...); !strings.Contains(r.stderr, "2026-10") {
				t.Errorf("%s --period %q: want an example in\n%s", command[0], bad, r)
			}
		}
	}
	for _, missing := range []string{"2062-10", "2019-01", november} {
		o.must(3, "approve", "--period", missing, "--plan", "x", "--by", "anna")
		o.must(64, "void", "--period", missing, "--account", "a0001", "--why", "x")
	}
	o.must(64, "approve", "--period", october, "--by", "anna")
	delete(o.env, "BILLING_BY")
	o.must(64, "approve", "--period", october, "--plan", "x")
	if diff := cmp.Diff(before, o.allTables()); diff != "" || o.emu.RequestCount() != 0 {
		t.Errorf("%d requests, and written was:\n%s", o.emu.RequestCount(), diff)
	}
	if r := o.must(0, "run", "--period", october, "--dry-run"); !strings.Contains(r.stdout, "20.03") || !strings.Contains(r.stdout, "2 invoices") {
		t.Errorf("--dry-run does not print count and total\n%s", r)
	}
}
