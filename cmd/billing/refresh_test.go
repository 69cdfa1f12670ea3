package main

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// debits are customers who pay by bank debit, which takes days.
func debits(ids ...string) []customer {
	list := debtors(ids...)
	for i := range list {
		list[i].card = fmt.Sprintf("pm_usBankAccount_success_%d", i)
	}
	return list
}

// payment is the id of an account's PaymentIntent.
func (o *office) payment(account string) string {
	o.t.Helper()
	return one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1 AND period = $2`, account, october)
}

// acts fails the test on an error.
func (o *office) acts(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// Days later a bank debit is paid, or fails; whoever looks next finds it.
func TestABankDebitEndsDaysLaterAndWhoeverLooksNextFindsIt(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(o *office){
		"a run of the period, which is done": func(o *office) {
			if r := o.month(0, "--json").json(o.t); r.Outcome != "already_done" {
				o.t.Errorf("outcome %q", r.Outcome)
			}
		},
		"a run of the period, which is not done": func(o *office) {
			o.must(0, "import", "invoices", "--period", october, "--open", "--file", o.file("late.csv", invoicesCSV(debtors("", "", "late")[2:])))
			o.must(0, "close", "--period", october)
			o.must(0, "reopen", "--period", october, "--why", "late")
			o.month(0)
			o.is("late", "succeeded")
		},
		"a run of a later period": func(o *office) {
			o.setNow(time.Date(2026, 12, 1, 0, 5, 0, 0, time.UTC))
			o.must(0, "import", "invoices", "--period", "2026-11", "--file", o.file("invoices.csv", invoicesCSV(debtors("", "", "late")[2:])))
			o.must(0, "run", "--period", "2026-11")
		},
		"reconcile of the period": func(o *office) {
			o.must(0, "reconcile", "--period", october).says(o.t, "succeeded: 1 charge", "declined: 1 charge")
		},
		"reconcile of everything": func(o *office) { o.must(0, "reconcile") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := append(debits("pays", "fails"), debtors("", "", "late")[2])
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoicesCSV(list[:2])))
			o.month(0)
			o.is("pays", "processing")
			o.advance(3 * 24 * time.Hour)
			o.month(0)
			o.is("pays", "processing")
			o.acts(o.emu.SettleDebit(o.payment("pays"), true))
			o.acts(o.emu.SettleDebit(o.payment("fails"), false))
			look(o)
			o.is("pays", "succeeded")
			if got := o.state("fails"); got != "declined" {
				t.Errorf("the failed debit is %s", got)
			}
			if n := one[int](o, `SELECT count(*) FROM billing.charge_events WHERE from_state = 'processing' AND cause = 'found' AND payment_intent <> ''`); n != 2 {
				t.Errorf("%d events say what was found", n)
			}
			o.mustBeWhole()
		})
	}
}

// A debit that is under way for more than seven days is reported to a person, and
// the report goes away by itself when it ends.
func TestADebitUnderWayForAWeekIsReportedUntilItEnds(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"run", "reconcile"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, debits("pays"))
			o.month(0)
			since := one[time.Time](o, `SELECT settled_at FROM billing.charges`)
			o.setNow(since.Add(7*24*time.Hour - time.Minute))
			o.must(0, by, "--period", october)
			o.setNow(since.Add(7*24*time.Hour + time.Minute))
			o.must(4, by, "--period", october)
			o.must(4, by, "--period", october)
			o.must(4, "reconcile")
			o.must(0, "status", "--period", october).says(t, "processing_long", "an outcome within 7 days", "processing since")
			o.acts(o.emu.SettleDebit(o.payment("pays"), true))
			o.must(0, by, "--period", october)
			if got := one[string](o, `SELECT resolved_by || ': ' || why FROM billing.findings`); got != "billing: the charge is succeeded now" {
				t.Errorf("the finding was resolved by %q", got)
			}
			o.must(0, "reconcile")
		})
	}
}

// What a customer does after a charge that wanted 3-D Secure is found by the next
// run, whichever way it went, and however the ledger came to know of it.
func TestWhatTheCustomerDoesAfter3DSecureIsFoundByTheNextRun(t *testing.T) {
	t.Parallel()
	answered := func(o *office) string {
		list := debtors("shopper")
		list[0].card = "pm_card_authenticationRequired_1"
		o.imports(october, list)
		o.month(0)
		return "authentication_required"
	}
	found := func(o *office) string {
		o.imports(october, debtors("shopper"))
		o.meets(faults{"shopper": stripeemu.FaultRateLimit429})
		o.addIntent("shopper", "requires_action", 1000)
		o.must(0, "reconcile", "--period", october).says(o.t, "action_required: 1 charge")
		return "requires_action"
	}
	for _, c := range []struct {
		name   string
		begins func(o *office) (reason string)
		acts   func(s *stripeemu.Server, pi string) error
		want   string
	}{
		{"answered, pays", answered, (*stripeemu.Server).CustomerPays, "succeeded"},
		{"answered, is cancelled", answered, func(s *stripeemu.Server, pi string) error { return s.CancelIntent(pi, "abandoned") }, "declined canceled"},
		{"answered, does nothing", answered, func(*stripeemu.Server, string) error { return nil }, "action_required authentication_required"},
		{"found, pays", found, (*stripeemu.Server).CustomerPays, "succeeded"},
		{"found, fails", found, (*stripeemu.Server).CustomerFailsAuthentication, "action_required requires_action"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.is("shopper", "action_required "+c.begins(o))
			o.emu.ResetLog()
			o.advance(5 * time.Hour)
			o.acts(c.acts(o.emu, o.payment("shopper")))
			o.month(0)
			o.is("shopper", c.want)
			o.must(0, "reconcile")
			o.is("shopper", c.want)
			o.posts(0)
			o.mustBeWhole()
		})
	}
}

// A done month stays done when Stripe can't be asked about its debits; the exit
// code is still the ledger's, and a warning says what was not looked up.
func TestADoneMonthStaysDoneWhenStripeCannotBeAsked(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debits("pays"))
	o.month(0)
	o.acts(o.emu.SettleDebit(o.payment("pays"), true))
	o.emu.Stop()
	before := o.ledgerText()
	r := o.month(0, "--json").json(t)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "could not be looked up") {
		t.Errorf("warnings %q", r.Warnings)
	}
	o.must(69, "reconcile", "--period", october)
	o.acts(o.emu.Restart())
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultUnavailable503, Operation: stripeemu.OpRead})
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultListError, Operation: stripeemu.OpList})
	o.month(0).says(t, "warning:")
	if o.ledgerText() != before {
		t.Error("a look without an answer changed the ledger")
	}
	o.emu.ClearFaults()
	o.month(0)
	o.is("pays", "succeeded")
}

// rowsAndSequences is what the database has, with who wrote it last.
func (o *office) rowsAndSequences() string {
	o.t.Helper()
	return o.everything() + one[string](o, `SELECT string_agg(t, E'\n' ORDER BY t) FROM (
		SELECT concat_ws(' ', 'sequence', schemaname, sequencename, last_value) AS t FROM pg_sequences
		UNION ALL SELECT concat_ws(' ', 'row', c.billing_key, c.xmin, c.ctid) FROM billing.charges c
		UNION ALL SELECT concat_ws(' ', 'row', r.period, r.xmin, r.ctid) FROM billing.job_runs r) x`)
}

// mixed leaves a charge for every outcome that a look can come to, 26 hours on.
func (o *office) mixed() {
	o.t.Helper()
	list := debtors("good", "late", "busy", "hung", "error", "odd", "debit", "shopper", "refused", "slow")
	list[6].card, list[7].card, list[8].card = "pm_usBankAccount_success_1", "pm_card_authenticationRequired_1", "pm_card_chargeCustomerFail_1"
	o.imports(october, list)
	o.meets(faults{
		"late": stripeemu.FaultLoseAnswer, "busy": stripeemu.FaultRateLimit429, "hung": stripeemu.FaultLoseRequest,
		"error": stripeemu.FaultError500Undone, "odd": stripeemu.FaultRateLimit429, "refused": stripeemu.FaultLoseAnswer, "slow": stripeemu.FaultRateLimit429,
	})
	o.addIntent("odd", "succeeded", 999)
	o.addIntent("slow", "requires_payment_method", 1000)
	o.advance(26 * time.Hour)
	o.acts(o.emu.SettleDebit(o.payment("debit"), true))
}

// tablesOf are the lines of a report but for the sentence below them.
func tablesOf(r outcome) string {
	tables, _, _ := strings.Cut(r.stdout, " open charges looked at (")
	return strings.Join(slices.Sorted(strings.Lines(tables)), "")
}

// A dry run changes nothing, not even a sequence, sends no POST, and prints the
// lines that the real one prints after it.
func TestADryReconcileChangesNothingAndSaysWhatTheRealOneWillDo(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"hold", "charge"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.mixed()
			before := o.rowsAndSequences()
			dry := o.must(75, "reconcile", "--period", october, "--on-absent", policy, "--dry-run")
			all := o.must(75, "reconcile", "--on-absent", policy, "--dry-run")
			o.must(75, "reconcile", "--period", october, "--on-absent", policy, "--dry-run", "--format", "csv")
			o.must(75, "reconcile", "--period", october, "--on-absent", policy, "--dry-run", "--json")
			if got := o.rowsAndSequences(); got != before {
				t.Errorf("a dry run changed the database:\n%s\n\nbefore:\n%s", got, before)
			}
			dry.says(t, "nothing was changed (dry run)")
			after := o.run("reconcile", "--period", october, "--on-absent", policy)
			if tablesOf(dry) != tablesOf(after) || tablesOf(all) != tablesOf(after) {
				t.Errorf("the dry run says\n%s\nand the real one\n%s", dry, after)
			}
			if o.rowsAndSequences() == before {
				t.Error("the real one did nothing: the test proves nothing")
			}
			o.posts(0)
		})
	}
}

// A person sees one table for each outcome; every line says who, how much, what
// was found, what was done and what to type.
func TestAReconcileSaysWhatWasFoundWhatWasDoneAndWhatToType(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.mixed()
	dryJSON := o.must(75, "reconcile", "--on-absent", "charge", "--dry-run", "--json")
	dryCSV := o.must(75, "reconcile", "--on-absent", "charge", "--dry-run", "--format", "csv")
	r := o.must(75, "reconcile", "--on-absent", "charge")
	want := map[string][]string{
		"late": {"succeeded", "settled"}, "debit": {"succeeded", "settled"}, "busy": {"renewed", "nothing", "billing run --period 2026-10"},
		"hung": {"waiting", "nothing before 2026-11-04", "billing run --period 2026-10   # not before 2026-11-04"}, "odd": {"review", "another amount", "billing show --period 2026-10 --account odd"},
		"error": {"held", "server_error", "billing release --period 2026-10 --account error --why W"}, "slow": {"held", "not_attempted", "billing release"},
		"refused": {"declined", "requires_payment_method"}, "shopper": {"unchanged", "as before"},
	}
	title := ""
	seen := map[string]bool{}
	for line := range strings.Lines(r.stdout) {
		if name, _, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
			title = name
		}
		fields := strings.Fields(line)
		if len(fields) == 0 || want[fields[0]] == nil {
			continue
		}
		seen[fields[0]] = true
		for _, w := range append(want[fields[0]][1:], "10.00") {
			if title != want[fields[0]][0] || !strings.Contains(line, w) {
				t.Errorf("account %s is under %q; its line wants %q:\n%s", fields[0], title, w, line)
			}
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d accounts have a line, want %d\n%s", len(seen), len(want), r)
	}
	details, _ := dryJSON.json(t).Details.(map[string]any)
	counts, _ := details["outcomes"].(map[string]any)
	calls, _ := details["calls"].(map[string]any)
	charges, _ := details["charges"].([]any)
	if counts["succeeded"] != 2.0 || counts["renewed"] != 1.0 || len(charges) != len(want) || calls["pages"].(float64)+calls["single"].(float64) < 1 {
		t.Errorf("--json has outcomes %v, calls %v and %d charges", counts, calls, len(charges))
	}
	rows, err := csv.NewReader(strings.NewReader(dryCSV.stdout)).ReadAll()
	if err != nil || len(rows) != len(want)+1 {
		t.Fatalf("the CSV has %d rows: %v\n%s", len(rows), err, dryCSV)
	}
	for _, row := range rows[1:] {
		if want[row[2]] == nil || row[0] != want[row[2]][0] || row[4] != "10.00" || row[5] != "usd" {
			t.Errorf("a row of the CSV is %q", row)
		}
	}
}

// Many charges of one outcome are cut in the table, with a hint, and not in the
// CSV; what is settled is counted.
func TestLongTablesAreCutAndTheCSVIsNot(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(45))
	o.meets(faults{"a00*": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	dry := o.must(75, "reconcile", "--period", october, "--dry-run", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(dry.stdout)).ReadAll()
	if err != nil || len(rows) != 46 {
		t.Fatalf("the CSV has %d rows: %v", len(rows), err)
	}
	r := o.must(4, "reconcile", "--period", october)
	r.says(t, "held: 45 charges", "and 25 more; --format csv has them all")
	if n := strings.Count(r.stdout, "held: absent"); n != 20 {
		t.Errorf("%d lines are shown", n)
	}
}

// Without --period every open month is looked at, and the exit code is the most
// urgent of theirs; typed again on the same ledger it is the same.
func TestReconcileWithoutAPeriodLooksAtEveryOpenMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(0, "reconcile").says(t, "nothing open: 0 charges looked at")
	o.imports(october, debtors("hung", "good"))
	o.meets(faults{"hung": stripeemu.FaultLoseRequest})
	o.setNow(time.Date(2026, 12, 1, 0, 5, 0, 0, time.UTC))
	o.must(0, "import", "invoices", "--period", "2026-11", "--file", o.file("invoices.csv", invoicesCSV(debtors("hung", "good"))))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Method: "POST", Account: "hung"})
	p := o.start("run", "--period", "2026-11")
	eventually(t, "November was refused once", func() bool {
		return one[bool](o, `SELECT count(*) > 0 FROM billing.charges WHERE period = '2026-11' AND reason = 'rate_limit'`)
	})
	p.kill()
	o.emu.ClearFaults()
	o.advance(26 * time.Hour)
	r := o.must(75, "reconcile", "--on-absent", "charge", "--dry-run", "--format", "csv")
	for _, period := range []string{october, "2026-11"} {
		if !strings.Contains(r.stdout, ","+period+",") {
			t.Errorf("%s is not looked at\n%s", period, r)
		}
	}
	o.must(4, "reconcile")
	for range 2 {
		o.must(4, "reconcile")
		o.must(4, "reconcile", "--period", october)
		o.must(4, "reconcile", "--period", "2026-11")
	}
	for _, period := range []string{october, "2026-11"} {
		o.must(0, "release", "--period", period, "--all", "--why", "they wait")
		o.must(0, "run", "--period", period)
	}
	o.must(0, "reconcile").says(t, "nothing open: 4 charges looked at, every outcome is known")
	o.must(0, "reconcile", "--period", october).says(t, "nothing open: 2 charges looked at")
	o.must(64, "reconcile", "--period", "2026-09").says(t, "never run")
	o.mustBeWhole()
}
