package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files of a set are of one moment, also if the ledger changes between two of them.
func TestTheFilesOfAMonthAreOfOneMoment(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(4))
	o.month(0)
	tx, err := o.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	// The export has read the charges when it waits for the events.
	if _, err := tx.Exec(t.Context(), `LOCK TABLE billing.charge_events IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := o.start("export", "month", "--period", october, "--output", dir)
	eventually(t, "the export waits for the events", func() bool {
		return one[int](o, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'billing.charge_events'::regclass`) == 1
	})
	o.exec(`BEGIN; SET LOCAL session_replication_role = replica; UPDATE billing.charges SET amount = amount + 1; COMMIT`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.wait(); r.code != 0 {
		t.Fatalf("%s", r)
	}
	files := folder(t, dir)
	manifestOf(t, files, "month-2026-10.csv.manifest.json")
	var invoiced string
	for _, r := range readCSV(t, files["journal-2026-10.csv"])[1:] {
		if r["what"] == "invoice" && r["role"] == "receivable" {
			invoiced = r["debit"]
		}
	}
	if invoiced != "40.10" || !strings.Contains(files["month-2026-10.csv.manifest.json"], `"amount": "40.10"`) {
		t.Errorf("the journal has %s invoiced\n%s", invoiced, files["month-2026-10.csv.manifest.json"])
	}
}

// What a database or a role is set to changes no byte of an export.
func TestTheServersSettingsChangeNoByteOfAnExport(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[1].card = "pm_card_visa_chargeDeclined"
	o.imports(october, list)
	o.month(0)
	o.audits(0)
	exports := func() map[string]string {
		dir := t.TempDir()
		o.must(0, "export", "month", "--period", october, "--output", dir)
		return folder(t, dir)
	}
	before := exports()
	o.exec(`DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET TimeZone = ''Asia/Tokyo''', current_database());
		EXECUTE format('ALTER DATABASE %I SET DateStyle = ''German''', current_database());
		EXECUTE format('ALTER DATABASE %I SET IntervalStyle = ''sql_standard''', current_database());
	END $$`)
	if diff := cmp.Diff(before, exports()); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
}

// A month that the ledger knows nothing of is a mistake in typing: a good file stays.
func TestAnExportOfAnUnknownMonthReplacesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	path := filepath.Join(t.TempDir(), "charges.csv")
	if err := os.WriteFile(path, []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--period", "2099-01"}, {"--period", october, "--job", "other"}} {
		r := o.must(64, append([]string{"export", "charges", "--output", path}, args...)...)
		if !strings.Contains(r.stderr, "the ledger knows nothing of") {
			t.Errorf("%q: %s", args, r)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "good" {
		t.Errorf("the file is %q, %v", text, err)
	}
	// Imported and not run yet is no mistake.
	o.must(0, "export", "charges", "--period", october, "--output", path)
}

// Who pipes an export into head gets no message about a disk, and a code that says that
// not all was written.
func TestAReaderOfAnExportThatHadEnough(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.hasPaid(20_000)
	args := []string{"-c", `{ "$0" "$@"; echo "exit $?" >&2; } | head -1`, program, "export", "charges", "--period", october}
	r := o.startProgram("/bin/sh", args...).wait()
	if r.stderr != "exit 74\n" || !strings.HasPrefix(r.stdout, "job,period,") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("%s", r)
	}
}

// A text that a sheet does not hold is no trouble with the disk.
func TestATextThatIsTooLongForASheet(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.hasPaid(2)
	o.exec(`BEGIN; SET LOCAL session_replication_role = replica; UPDATE billing.charges SET name = repeat('x', 40000); COMMIT`)
	dir := t.TempDir()
	r := o.must(74, "export", "charges", "--period", october, "--format", "xlsx", "--output", dir)
	if !strings.Contains(r.stderr, "column name") || !strings.Contains(r.stderr, "--format csv") || strings.Contains(r.stderr, "disk") || len(folder(t, dir)) != 0 {
		t.Errorf("%s", r)
	}
}

// Fees have no more zeros than they need, for whoever reads the view.
func TestTheViewsFeesHaveNoZerosBehind(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	o.audits(0)
	if got := one[string](o, `SELECT fee::text || ' ' || net::text FROM billing.report_charges`); got != "0.59 9.42" {
		t.Errorf("fee and net are %q", got)
	}
}
