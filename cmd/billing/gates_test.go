package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// company is forty customers whose amounts differ a little from month to month.
func company(month int) []customer {
	list := customers(40)
	for i := range list {
		list[i].amount = fmt.Sprintf("%d.%02d", 20+i, (i*month)%60)
	}
	return list
}

const september, november = "2026-09", "2026-11"

// monthOf moves the clocks to just after a month.
func (o *office) monthOf(period string) {
	o.t.Helper()
	start, err := time.Parse("2006-01", period)
	if err != nil {
		o.t.Fatal(err)
	}
	o.setNow(start.AddDate(0, 1, 0).Add(5 * time.Minute))
}

func scaled(list []customer, factor func(i int) int) []customer {
	list = slices.Clone(list)
	for i := range list {
		var whole, cents int
		_, _ = fmt.Sscanf(list[i].amount, "%d.%d", &whole, &cents)
		n := (100*whole + cents) * factor(i)
		list[i].amount = fmt.Sprintf("%d.%02d", n/100, n%100)
	}
	return list
}

// mistakes are what is imported by mistake, and the gates of which one must see it.
var mistakes = map[string]struct {
	gates []string
	make  func(right, last []customer) []customer
}{
	"amounts times 100": {[]string{"growth", "jumped", "single_charge", "account_growth"}, func(right, _ []customer) []customer {
		return scaled(right, func(int) int { return 100 })
	}},
	"half the accounts missing": {[]string{"min_count", "gone_accounts", "drop"}, func(right, _ []customer) []customer { return right[:19] }},
	"another currency": {[]string{"new_currency", "drop", "jumped"}, func(right, _ []customer) []customer {
		wrong := slices.Clone(right)
		for i := range wrong {
			wrong[i].currency = "eur"
		}
		return wrong
	}},
	"last month's file": {[]string{"same"}, func(_, last []customer) []customer { return last }},
	"one giant account": {[]string{"single_charge", "growth", "account_growth"}, func(right, _ []customer) []customer {
		return scaled(right, func(i int) int { return map[bool]int{true: 5000, false: 1}[i == 17] })
	}},
	"too many without a card": {[]string{"skipped", "gone_accounts"}, func(right, _ []customer) []customer {
		wrong := slices.Clone(right)
		for i := range 12 {
			wrong[i*3].card = ""
		}
		return wrong
	}},
}

// Each kind of mistake stops the run with 3 before anything is written or sent, says
// which gate, by how much and what to type; the mended file goes through, and so does
// the mistake itself if exactly what the message says is typed.
func TestAGateStopsAMistakeBeforeAnythingIsThere(t *testing.T) {
	t.Parallel()
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			for i, period := range []string{september, october, november} {
				o.monthOf(period)
				right := company(i + 1)
				if period == september {
					o.imports(period, right)
					o.must(0, "run", "--period", period)
					continue
				}
				o.imports(period, m.make(right, company(i)))
				flags := o.stoppedByGate(period, m.gates)
				if period == november {
					o.must(0, append([]string{"run", "--period", period}, flags...)...)
					continue
				}
				o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(right)))
				o.must(0, "import", "invoices", "--period", period, "--replace", "--file", o.file("mended.csv", invoicesCSV(right)))
				o.must(0, "run", "--period", period)
				if got := o.states(period); got["succeeded"] != 40 {
					t.Errorf("the mended month is %v", got)
				}
			}
			o.mustBeWhole()
		})
	}
}

// stoppedByGate runs a period, wants it stopped by one of the gates with nothing
// written or sent, and returns the flags that the message says to type.
func (o *office) stoppedByGate(period string, gates []string, args ...string) []string {
	o.t.Helper()
	before := o.recordedText()
	o.emu.ResetLog()
	r := o.must(3, append([]string{"run", "--period", period, "--json"}, args...)...)
	res := r.json(o.t)
	if !slices.Contains(gates, res.Error.Code) || res.Sent != 0 || o.emu.Posts() != 0 || res.Outcome != "stopped" {
		o.t.Errorf("stopped by %s, %d POSTs, want one of %v\n%s", res.Error.Code, o.emu.Posts(), gates, r)
	}
	if diff := cmp.Diff(before, o.recordedText()); diff != "" {
		o.t.Errorf("a gate that stops left\n%s", diff)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE period = $1 AND window_opened_at IS NOT NULL`, period); n != 0 {
		o.t.Errorf("%d windows are open", n)
	}
	if !strings.Contains(res.Error.Message, "nothing was recorded") || !strings.ContainsAny(res.Error.Message, "0123456789") {
		o.t.Errorf("it does not say by how much\n%s", r)
	}
	_, typed, there := strings.Cut(res.Error.Hint, "if it is right: billing run --period "+period)
	if !there {
		o.t.Fatalf("it does not say what to type\n%s", r)
	}
	return strings.Fields(typed)
}

// recordedText is every row that a record could have left.
func (o *office) recordedText() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(t, E'\n' ORDER BY t), '') FROM (
		SELECT 'charge ' || c::text AS t FROM billing.charges c
		UNION ALL SELECT 'event ' || e::text FROM billing.charge_events e
		UNION ALL SELECT 'try ' || r::text FROM billing.charge_tries r) x`)
}

// Caps that somebody typed are kept to the cent, in a first period too; what the
// message suggests is enough.
func TestCapsAreKeptToTheCent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(30) // 10.01 to 10.30: 304.65
	o.imports(october, list)
	for gate, c := range map[string]struct{ args, suggested []string }{
		"max_total":   {[]string{"--max-total", "usd=304.64"}, []string{"--max-total", "usd=304.65"}},
		"max_charge":  {[]string{"--max-charge", "usd=10.29"}, []string{"--max-charge", "usd=10.30"}},
		"max_charges": {[]string{"--max-charges", "29"}, []string{"--max-charges", "30"}},
	} {
		if got := o.stoppedByGate(october, []string{gate}, c.args...); !slices.Equal(got, c.suggested) {
			t.Errorf("%s suggests %v, want %v", gate, got, c.suggested)
		}
	}
	for _, bad := range [][]string{{"--max-total", "usd"}, {"--max-total", "usd=1.001"}, {"--max-total", "usd=1", "--max-total", "usd=2"},
		{"--max-charge", "zzz=1"}, {"--max-growth", "-1"}, {"--max-growth", "NaN"}, {"--max-charges", "-1"}, {"--drift", "-1"}, {"--allow-currency", "zz"}} {
		o.must(64, append([]string{"run", "--period", october}, bad...)...)
	}
	o.month(0, "--max-total", "usd=304.65", "--max-charge", "usd=10.30", "--max-charges", "30")
	o.mustBeWhole()
}

// A first period has nothing to compare with: with a test key that is a warning, and
// none where a cap says how much is right.
func TestAFirstPeriodWithATestKeyIsWarnedOf(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(25))
	r := o.month(0, "--json").json(t)
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "first period") }) {
		t.Errorf("no warning in %v", r.Warnings)
	}
	o = newOffice(t)
	o.imports(october, customers(25))
	if r := o.month(0, "--max-total", "usd=1000", "--json").json(t); len(r.Warnings) > 0 {
		t.Errorf("warnings %v", r.Warnings)
	}
}

// A late invoice is held against the gates together with what is recorded already,
// so that a month can't be let through piece by piece.
func TestLateInvoicesCountWithTheWholeMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(20))
	o.month(0, "--max-total", "usd=202.10")
	late := append(customers(20), customer{"late", "cus_late", "pm_late", "0.60", "usd"})
	o.imports(october, late)
	o.must(0, "reopen", "--period", october, "--why", "late")
	o.emu.ResetLog()
	if r := o.month(3, "--max-total", "usd=202.10", "--json").json(t); r.Error.Code != "max_total" || o.emu.Posts() != 0 {
		t.Errorf("%+v, %d POSTs", r.Error, o.emu.Posts())
	}
	o.month(0, "--max-total", "usd=202.70")
	o.mustBeWhole()
}

// T69: no command with --dry-run, and neither preview nor an approval of a plan that
// changed, writes a row, takes a number from a sequence, makes a file, or sends a
// POST. All but the last are typed by a role that may only read.
func TestADryRunIsDry(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(6)
	list[5].card = ""
	o.imports(october, list)
	reader := *o
	reader.env = map[string]string{}
	for name, value := range o.env {
		reader.env[name] = value
	}
	reader.as("billing_read")
	home := t.TempDir()
	reader.env["HOME"], reader.env["TMPDIR"] = home, home
	dry := func(code int, args ...string) {
		t.Helper()
		before := o.allTables()
		o.emu.ResetLog()
		r := reader.must(code, args...)
		for _, q := range o.emu.Requests() {
			if q.Method != "GET" || args[0] == "run" || args[0] == "preview" {
				t.Errorf("%v: %s %s", args, q.Method, q.Path)
			}
		}
		if diff := cmp.Diff(before, o.allTables()); diff != "" {
			t.Errorf("%v wrote\n%s", args, diff)
		}
		if files, err := filepath.Glob(filepath.Join(home, "*")); err != nil || len(files) > 0 {
			t.Errorf("%v made %v, %v\n%s", args, files, err, r)
		}
	}
	dry(0, "preview", "--period", october)
	dry(0, "preview", "--period", october, "--format", "csv")
	dry(0, "run", "--period", october, "--dry-run")
	dry(0, "reconcile", "--dry-run")
	reader.must(77, "approve", "--period", october, "--plan", o.must(0, "preview", "--period", october, "--json").json(t).Plan, "--by", "reader")

	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Account: "a0001"})
	o.month(75, "--timeout", "8s")
	o.emu.ClearFaults()
	o.advance(26 * time.Hour)
	dry(0, "run", "--period", october, "--dry-run")
	dry(75, "reconcile", "--period", october, "--dry-run")
	dry(4, "requeue", "--period", october, "--account", "a0006", "--why", "test", "--dry-run")
	dry(0, "void", "--period", october, "--account", "a0006", "--why", "test", "--dry-run")
	dry(64, "release", "--period", october, "--account", "a0001", "--why", "test", "--dry-run")
	o.must(4, "reconcile", "--period", october)
	dry(0, "release", "--period", october, "--account", "a0001", "--why", "test", "--dry-run")
	dry(0, "void", "--period", october, "--account", "a0001", "--why", "test", "--dry-run")
	dry(4, "reconcile", "--period", october, "--rebuild", "--dry-run")

	before := o.allTables()
	o.must(3, "approve", "--period", october, "--plan", "0123456789abcdef", "--by", "anna")
	if diff := cmp.Diff(before, o.allTables()); diff != "" {
		t.Errorf("an approval that was refused wrote\n%s", diff)
	}
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	dry(0, "pause", "--all", "--why", "test", "--dry-run")
	o.must(0, "pause", "--account", "a0002", "--why", "test")
	dry(0, "resume", "--account", "a0002", "--dry-run")
	o.must(0, "resume", "--account", "a0002")
	o.month(0)
	dry(0, "reopen", "--period", october, "--why", "test", "--dry-run")
	o.mustBeWhole()
}

// What reads a file or agrees with a plan is tried in a transaction that is taken back.
func TestATriedImportOrApprovalChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(4)
	o.imports(october, list)
	list[0].card, list[1].amount = "pm_card_visa_new", "77.00"
	accounts, invoices := o.file("accounts.csv", accountsCSV(list)), o.file("invoices.csv", invoicesCSV(list))
	plan := o.must(0, "preview", "--period", october, "--json").json(t).Plan
	for _, args := range [][]string{
		{"import", "accounts", "--file", accounts}, {"import", "invoices", "--period", october, "--replace", "--file", invoices},
		{"import", "invoices", "--period", "2026-11", "--file", invoices}, {"close", "--period", october},
		{"approve", "--period", october, "--plan", plan, "--by", "anna"},
	} {
		before := o.allTables()
		r := o.must(0, append(args, "--dry-run")...)
		if diff := cmp.Diff(before, o.allTables()); diff != "" || !strings.Contains(r.stdout, "nothing was changed (dry run)") {
			t.Errorf("%v wrote\n%s\n%s", args, diff, r)
		}
	}
	o.must(65, "import", "invoices", "--period", october, "--file", invoices, "--dry-run")
	o.must(3, "approve", "--period", october, "--plan", "0123456789abcdef", "--by", "anna", "--dry-run")
}

// A year that was mistyped charges nobody, even where it has invoices.
func TestAPeriodOfLongAgoMustBeMeant(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports("2019-01", customers(2))
	r := o.must(3, "run", "--period", "2019-01", "--json")
	if got := r.json(t); got.Error == nil || got.Error.Code != "old_period" || o.emu.RequestCount() != 0 {
		t.Errorf("%d requests to Stripe\n%s", o.emu.RequestCount(), r)
	}
	o.must(0, "run", "--period", "2019-01", "--allow-old")
	o.mustBeWhole()
}
