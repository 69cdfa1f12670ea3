package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

// hasPaid puts an October of n paid charges into the ledger alone.
func (o *office) hasPaid(n int) {
	o.t.Helper()
	o.exec(sqlPaidMonth, ledger.DefaultJob, october, n, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 100*time.Microsecond)
}

// folder is all files of a folder by their names.
func folder(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

func namesOf(files map[string]string) string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// manifestOf reads a manifest and holds what it says against the files.
func manifestOf(t testing.TB, files map[string]string, name string) (m export.Manifest) {
	t.Helper()
	if err := json.Unmarshal([]byte(files[name]), &m); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, files[name])
	}
	for _, f := range m.Files {
		text := files[f.Name]
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); sum != f.SHA256 || int64(len(text)) != f.Bytes {
			t.Errorf("%s: %d bytes, %s; the manifest has %d, %s", f.Name, len(text), sum, f.Bytes, f.SHA256)
		}
	}
	return m
}

// In a folder a file is named by the period, and a manifest says what is in it. The same
// ledger gives the same bytes, in every format.
func TestAnExportIntoAFolder(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(5)
	list[3].card, list[4].currency = "pm_card_visa_chargeDeclined", "eur"
	o.imports(october, list)
	o.month(0)
	run := one[string](o, `SELECT run_id::text FROM billing.job_runs`)
	for _, format := range export.Formats {
		dir := t.TempDir()
		r := o.must(0, "export", "charges", "--period", october, "--format", format, "--output", dir+"/")
		if want := filepath.Join(dir, "charges-2026-10."+format) + ": 5 charges of 2026-10\n"; r.stdout != want {
			t.Errorf("it says %q, want %q", r.stdout, want)
		}
		first := folder(t, dir)
		if first["charges-2026-10."+format] == "" || len(first) != 2 {
			t.Fatalf("the folder has %s", namesOf(first))
		}
		m := manifestOf(t, first, "charges-2026-10."+format+".manifest.json")
		want := []export.Sum{{Currency: "eur", Rows: 1, Amount: "10.05"}, {Currency: "usd", Rows: 4, Amount: "40.10"}}
		if m.RunID != run || m.Export != "charges" || m.Period != october || len(m.Files) != 1 || m.Files[0].Rows != 5 || !cmp.Equal(m.Files[0].Sums, want) {
			t.Errorf("the manifest is %+v", m)
		}
		o.advance(time.Hour)
		res := o.must(0, "export", "charges", "--period", october, "--format", format, "--output", dir, "--json").json(t)
		if diff := cmp.Diff(first, folder(t, dir)); diff != "" {
			t.Errorf("%s: an hour later it has other bytes\n%s", format, diff)
		}
		text, _ := json.Marshal(res.Details)
		if !strings.Contains(string(text), m.Files[0].SHA256) || !strings.Contains(string(text), `"manifest":"charges-2026-10.`+format+`.manifest.json"`) {
			t.Errorf("--json has %s", text)
		}
		for name := range first {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o644 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	dir := t.TempDir()
	o.must(0, "import", "invoices", "--job", "other", "--period", october, "--file", o.file("other.csv", "account_id,amount,currency\na0001,1.00,usd\n"))
	o.must(0, "export", "charges", "--job", "other", "--period", october, "--output", dir)
	if got := namesOf(folder(t, dir)); got != "charges-2026-10-other.csv charges-2026-10-other.csv.manifest.json" {
		t.Errorf("another job's are %s", got)
	}
}

// Named by their content, files of another month's end stay beside the new ones.
func TestAnExportByHash(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	dir := t.TempDir()
	export := func() map[string]string {
		o.must(0, "export", "charges", "--period", october, "--output", dir, "--by-hash")
		return folder(t, dir)
	}
	first := export()
	if again := export(); !cmp.Equal(first, again) || len(first) != 2 {
		t.Errorf("first %s, then %s", namesOf(first), namesOf(again))
	}
	o.exec(`UPDATE billing.charges SET refunds = 1, amount_refunded_minor = 1 WHERE account_id = 'a0001'`)
	second := export()
	if len(second) != 4 {
		t.Errorf("after a change there are %s", namesOf(second))
	}
	for name, text := range first {
		if second[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
	for name, text := range second {
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); !strings.Contains(name, "-2026-10."+sum[:16]+".") {
			t.Errorf("%s is not named by its content, %s", name, sum)
		}
	}
}

// What can't be written where it is to go is refused, before anything is read.
func TestAnExportThatHasNoPlace(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	dir := t.TempDir()
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{73, "missing/", []string{"--output", filepath.Join(dir, "missing") + "/"}},
		{73, "missing", []string{"--output", filepath.Join(dir, "missing", "charges.csv")}},
		{64, "want csv, jsonl, xlsx", []string{"--format", "pdf"}},
		{64, "--output is empty", []string{"--output", ""}},
		{64, "must be a folder", []string{"--output", filepath.Join(dir, "charges.csv"), "--by-hash"}},
		{64, "both go to stdout", []string{"--json"}},
		{64, "want s3://bucket/prefix", []string{"--output", "s3://"}},
		{64, "names a file", []string{"--output", "s3://bucket/charges.csv"}},
		{64, "empty part", []string{"--output", "s3://bucket/a/../b"}},
		{77, "no credentials", []string{"--output", "s3://bucket/exports"}},
	} {
		o.env["AWS_EC2_METADATA_DISABLED"] = "true"
		r := o.must(tt.code, append([]string{"export", "charges", "--period", october}, tt.args...)...)
		if !strings.Contains(r.String(), tt.says) {
			t.Errorf("%q does not say %q\n%s", tt.args, tt.says, r)
		}
	}
	if got := namesOf(folder(t, dir)); got != "" {
		t.Errorf("something was left: %s", got)
	}
	// A folder in the place of the file is no place either, and stays.
	if err := os.Mkdir(filepath.Join(dir, "charges-2026-10.csv"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := o.must(73, "export", "charges", "--period", october, "--output", dir); !strings.Contains(r.stderr, "it is a folder") {
		t.Errorf("%s", r)
	}
}

// The events of a period are all there, in order, with what people wrote made harmless.
func TestExportEvents(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[1].card = "pm_card_visa_chargeDeclined"
	o.imports(october, list)
	o.month(0)
	o.must(0, "void", "--period", october, "--account", "a0002", "--why", "=HYPERLINK(1)", "--by", "+anna")
	rows := readCSV(t, o.must(0, "export", "events", "--period", october).stdout)
	if want := one[int](o, `SELECT count(*) FROM billing.charge_events`); len(rows)-1 != want {
		t.Errorf("%d events of %d", len(rows)-1, want)
	}
	last := ""
	for _, r := range rows[1:] {
		if r["account_id"] < last {
			t.Errorf("%s comes after %s", r["account_id"], last)
		}
		last = r["account_id"]
	}
	var got []string
	for _, r := range rows[1:] {
		if r["account_id"] == "a0002" {
			got = append(got, r["from_state"]+">"+r["to_state"]+" "+r["person"]+" "+r["detail"])
		}
	}
	if want := []string{"pending>declined  ", "declined>void '+anna '=HYPERLINK(1)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	lines := o.must(0, "export", "events", "--period", october, "--format", "jsonl").stdout
	if strings.Count(lines, "\n") != len(rows)-1 || !strings.Contains(lines, `"person":"+anna"`) {
		t.Errorf("jsonl has\n%s", lines)
	}
}

// T67: a name that a spreadsheet would run is text; numbers, days and ids come back
// through import as they were.
func TestExportedCellsComeBack(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ids := []string{"-5", "=A1", "+49 170", "@a", "007", "a\"b,c", "1.50", "TRUE", "2026-10-01", "ünïcode", "%41"}
	names := []string{"=1+1", "+49 170", "-x", "@a", "\tq", "Müller, \"X\"", "'quoted", " =cmd|' /C calc'!A0", "plain", "＝1", "-70.00"}
	accounts, invoices := "account_id,stripe_customer,payment_method,currency,name\n", "account_id,amount,currency\n"
	for i, id := range ids {
		quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		accounts += fmt.Sprintf("%s,cus_%d,pm_card_visa_%d,usd,%s\n", quote(id), i, i, quote(names[i]))
		invoices += fmt.Sprintf("%s,%s,usd\n", quote(id), []string{"-70.00", "10.50"}[min(i, 1)])
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accounts))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoices))
	o.month(0)
	file := filepath.Join(t.TempDir(), "charges.csv")
	o.must(0, "export", "charges", "--period", october, "--output", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The export's columns that an import of invoices takes are the same invoices.
	again := "account_id,amount,currency\n"
	for _, r := range readCSV(t, string(text))[1:] {
		if name := r["name"]; name != "" && strings.ContainsAny(strings.TrimSpace(name)[:1], "=+-@\t＝") {
			t.Errorf("a spreadsheet runs %q", name)
		}
		again += `"` + strings.ReplaceAll(r["account_id"], `"`, `""`) + `",` + r["amount"] + "," + r["currency"] + "\n"
	}
	r := o.must(0, "import", "invoices", "--period", october, "--file", o.file("again.csv", again))
	if !strings.Contains(r.stdout, fmt.Sprintf("%d invoices, nothing changed", len(ids))) {
		t.Errorf("it does not come back:\n%s\n%s", r, text)
	}
	if !strings.Contains(string(text), ",-70.00,usd,") {
		t.Errorf("the credit is no number any more:\n%s", text)
	}
}

// An export that somebody stops leaves the old file, and nothing else.
func TestAnExportThatIsInterrupted(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.hasPaid(40_000)
	dir := t.TempDir()
	path := filepath.Join(dir, "charges.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := o.start("export", "charges", "--period", october, "--output", path)
	eventually(t, "the export has begun", func() bool { return drafts(t, dir) > 0 })
	p.signal(15)
	if r := p.wait(); r.code != 143 && r.code != 0 {
		t.Errorf("want exit 143\n%s", r)
	} else if got := folder(t, dir); r.code == 143 && (len(got) != 1 || got["charges.csv"] != "old") {
		t.Errorf("the folder has %s\n%s", namesOf(got), r)
	}
}

// drafts is how much is written beside the files of a folder.
func drafts(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".billing-") {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
	}
	return bytes
}
