package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// invoices imports text as the invoices of October.
func (o *office) invoices(code int, text string, flags ...string) outcome {
	o.t.Helper()
	args := append([]string{"import", "invoices", "--period", october, "--file", o.file("invoices.csv", text)}, flags...)
	return o.must(code, args...)
}

// owed lists the invoices of all periods.
func (o *office) owed() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(concat_ws(' ', period, account_id, amount, currency, nullif(invoice_id, ''), invoice_date), ', '
		ORDER BY period, account_id COLLATE "C"), '') FROM billing.invoices`)
}

const lines3 = "account_id,amount,currency,invoice_id\na,10.00,usd,INV-1\nb,20.00,usd,INV-2\nc,30.00,usd,INV-3\n"

// T27: a file, the file again, a corrected one, one with a late row, and one with two
// rows for an account.
func TestAFileIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.invoices(0, lines3).says(t, "3 new, 0 changed, 0 unchanged")
	before := o.everyRow()
	o.invoices(0, lines3).says(t, "3 invoices, nothing changed")
	// The same content in another form is the same content.
	o.invoices(0, strings.NewReplacer(",", ";", ".", ",").Replace(lines3)).says(t, "nothing changed", "read as UTF-8, semicolons, comma decimals")
	if diff := cmp.Diff(before, o.everyRow()); diff != "" {
		t.Errorf("the same file again changed\n%s", diff)
	}
	corrected := strings.Replace(lines3, "20.00", "25.00", 1)
	o.invoices(65, corrected).says(t, "invoices.csv:3: the invoice of account \"b\" is 20.00 usd, the file has 25.00 usd: to take the new one, add --replace", "nothing was imported")
	o.invoices(0, corrected, "--replace").says(t, "0 new, 1 changed, 2 unchanged", `the invoice of account "b": 20.00 usd is now 25.00 usd`)
	o.invoices(0, corrected+"d,5.00,usd,INV-4\n").says(t, "1 new, 0 changed, 3 unchanged")
	o.invoices(65, corrected+"d,5.00,usd,INV-4\nd,5.00,usd,INV-4\n").says(t, "they are identical: keep one of them; if each is owed, add --sum-lines")
	if got, want := o.owed(), "2026-10 a 10.00 usd INV-1, 2026-10 b 25.00 usd INV-2, 2026-10 c 30.00 usd INV-3, 2026-10 d 5.00 usd INV-4"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A row whose charge is recorded is refused, with what to type for its correction, by
// what became of the charge; the file that it is in changes nothing.
func TestACorrectionOfWhatIsChargedIsNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[1].card = "" // skipped
	list[2].card = "pm_card_chargeDeclined"
	o.imports(october, list)
	o.month(0)
	before := o.everyRow()
	for i, want := range []string{
		`its charge is recorded (succeeded), so it stays: bill the difference, -1.01 usd, with the next period: billing import invoices --period 2026-11 --file F`,
		`its charge is recorded (skipped), so it stays: billing void --period 2026-10 --account a0002 --why "wrong amount", this import with --replace, then billing requeue --period 2026-10 --account a0002`,
		`its charge is recorded (declined), so it stays: billing void --period 2026-10 --account a0003`,
	} {
		r := o.invoices(65, fmt.Sprintf("account_id,amount,currency\n%s,9.00,usd\nnew,1.00,usd\n", list[i].id), "--replace")
		r.says(t, want, "nothing was imported")
	}
	if diff := cmp.Diff(before, o.everyRow()); diff != "" {
		t.Errorf("refused files changed\n%s", diff)
	}
	// What is said can be typed.
	o.must(0, "void", "--period", october, "--account", "a0002", "--why", "wrong amount")
	o.invoices(0, "account_id,amount,currency\na0002,9.00,usd\n", "--replace").says(t, "1 changed")
}

// An invoice id is one debt: it is the key where the account differs, and one that
// another period has is last month's file.
func TestAnInvoiceIDIsOneDebt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(0, "import", "invoices", "--period", "2026-09", "--file", o.file("september.csv", lines3))
	before := o.everyRow()
	o.invoices(65, strings.Replace(lines3, "10.00", "11.00", 1)).says(t, `invoices.csv has 3 invoice ids that stand for two debts`,
		`invoices.csv:2: invoice_id "INV-1" of account "a" is in 2026-09 already (account "a", 10.00 usd): is this the file of that month?`)
	if diff := cmp.Diff(before, o.everyRow()); diff != "" {
		t.Errorf("last month's file changed\n%s", diff)
	}
	o.invoices(0, lines3, "--same-ids").says(t, "3 new")
	moved := "account_id,amount,currency,invoice_id\nz,12.00,usd,INV-1\n"
	o.invoices(65, moved, "--same-ids").says(t, `the invoice of account "a", invoice_id "INV-1", is 10.00 usd, the file has 12.00 usd for account "z": to take the new one, add --replace`)
	o.invoices(0, moved, "--same-ids", "--replace").says(t, `account "z", until now of account "a": 10.00 usd is now 12.00 usd`, "0 new, 1 changed, 0 unchanged")
	o.invoices(65, "account_id,amount,currency,invoice_id\nb,1.00,usd,INV-3\n", "--same-ids", "--replace").says(t,
		`invoice_id "INV-3" of account "b" is that of another invoice of the period (account "c", 30.00 usd)`)
	if got, want := o.owed(), "2026-10 b 20.00 usd INV-2, 2026-10 c 30.00 usd INV-3, 2026-10 z 12.00 usd INV-1"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// One row for each line item: added up to the cent where that is asked for, the texts
// one behind the other, and again it changes nothing.
func TestLinesAreAddedUp(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const lines = "account_id,amount,currency,invoice_id,description\na,0.10,usd,INV-1,Seats\na,0.20,usd,INV-1,Storage\nb,5.00,usd,INV-2,Seats\na,-0.05,usd,INV-1,Credit\na,0.10,usd,INV-1,Seats\n"
	o.invoices(65, lines).says(t, "keep one of them; if they are lines of one invoice, add --sum-lines")
	o.invoices(0, lines, "--sum-lines").says(t, "added up from 5 rows, 2 of which say the same as another", "2 new")
	o.invoices(0, lines, "--sum-lines").says(t, "nothing changed")
	if got, want := o.owed(), "2026-10 a 0.35 usd INV-1, 2026-10 b 5.00 usd INV-2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := one[string](o, `SELECT description FROM billing.invoices WHERE account_id = 'a'`); got != "Seats; Storage; Credit" {
		t.Errorf("described as %q", got)
	}
	o.invoices(65, "account_id,Total,currency\nx,489.75,usd\nx,489.75,usd\ny,1.00,usd\n", "--sum-lines").says(t, `amount "489.75" stands on each of its 2 rows, so it looks like the total of the invoice`, "add --equal-lines")
	o.invoices(0, "account_id,Total,currency\nx,489.75,usd\nx,489.75,usd\ny,1.00,usd\n", "--sum-lines", "--equal-lines", "--dry-run").says(t, "985.85 usd")
}

// T25: an id is never matched as a number. What a spreadsheet makes of a known id is
// refused, in a file of invoices and where it would become a second account; an account
// that nobody knows is only named.
func TestIDsThatASpreadsheetChangedAreRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const header = "account_id,stripe_customer,payment_method,currency\n"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", header+"00123,cus_1,pm_1,usd\n12345678901234567,cus_2,pm_2,usd\n77,cus_3,pm_3,usd\n"))
	for id, known := range map[string]string{"123": "00123", "12345678901234500": "12345678901234567", "77.0": "77", "077": "77"} {
		o.invoices(65, "account_id,amount,currency\n"+id+",1.00,usd\n").says(t, fmt.Sprintf("invoices.csv:2: account_id %q: is not known, and %q is", id, known), "format the column as text")
		o.must(65, "import", "accounts", "--file", o.file("accounts.csv", header+id+","+one[string](o, `SELECT stripe_customer FROM billing.accounts WHERE account_id = $1`, known)+",pm_1,usd\n"))
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", header+"123,cus_9,pm_9,usd\n"))
	o.invoices(0, "account_id,amount,currency\n00123,1.00,usd\n123,2.00,usd\nnobody,3.00,usd\n").says(t, `1 invoice without an account will be skipped`)
	if got, want := o.owed(), "2026-10 00123 1.00 usd, 2026-10 123 2.00 usd, 2026-10 nobody 3.00 usd"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// T13: a day in a file is that day, wherever the program runs.
func TestAnInvoicesDayIsStoredAsWritten(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, zone := range []string{"Europe/Moscow", "Pacific/Honolulu", "UTC"} {
		o.env["TZ"], o.env["PGTZ"] = zone, zone
		o.must(0, "import", "invoices", "--period", "2026-11", "--file",
			o.file("invoices.csv", "account_id,amount,currency,invoice_date\na,1.00,usd,2026-11-01\nb,1.00,usd,2026-11-01T00:30:00+03:00\n"))
	}
	if got, want := o.owed(), "2026-11 a 1.00 usd 2026-11-01, 2026-11 b 1.00 usd 2026-11-01"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.invoices(65, "account_id,amount,currency,invoice_date\nc,1.00,usd,2026-09-30\n").says(t, "lies in 2026-09, and the period is 2026-10")
	o.invoices(0, "account_id,amount,currency,invoice_date\nc,1.00,usd,2026-09-30\n", "--any-date")
}

// What changed is shown, what the file lacks is paused by choice alone, and what was
// recorded keeps the card that it was recorded with.
func TestAccountsShowWhatChanged(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[0].card = "pm_card_chargeDeclined"
	o.imports(october, list)
	o.month(0)
	bodies := one[string](o, `SELECT string_agg(body, ' ' ORDER BY account_id) FROM billing.charges`)
	list[0].card = "pm_new"
	text := accountsCSV(list[:2])
	r := o.must(0, "import", "accounts", "--file", o.file("accounts.csv", text), "--deactivate-missing", "--dry-run")
	r.says(t, `"a0001": payment_method "pm_card_chargeDeclined" is now payment_method "pm_new"`, `1 account: "a0003"`, "nothing was changed (dry run)")
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", text)).says(t, "0 new, 1 changed, 1 unchanged")
	if n := one[int](o, `SELECT count(*) FROM billing.accounts WHERE status = 'paused'`); n != 0 {
		t.Errorf("%d accounts were paused without being asked", n)
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", text), "--deactivate-missing").says(t, "nothing changed", `paused, because the file does not have them: 1 account: "a0003"`)
	if got := one[string](o, `SELECT string_agg(account_id, ' ') FROM billing.accounts WHERE status = 'paused'`); got != "a0003" {
		t.Errorf("paused are %q", got)
	}
	if got := one[string](o, `SELECT string_agg(body, ' ' ORDER BY account_id) FROM billing.charges`); got != bodies {
		t.Errorf("requests changed from\n%s\nto\n%s", bodies, got)
	}
}

// Killed while it reads, writes or waits for a lock, an import leaves what was there.
func TestAKilledImportLeavesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.invoices(0, lines3)
	before := o.everyRow()
	var b strings.Builder
	b.WriteString("account_id,amount,currency\n")
	for i := range 50_000 {
		fmt.Fprintf(&b, "x%05d,1.00,usd\n", i)
	}
	file := o.file("invoices.csv", b.String())
	blocked := func() int {
		return one[int](o, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	for _, table := range []string{"billing.invoices", "billing.period_closes"} {
		tx, err := o.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			t.Fatal(err)
		}
		p := o.start("import", "invoices", "--period", october, "--file", file)
		eventually(t, "the import waits", func() bool { return blocked() == 1 })
		p.kill()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, o.everyRow()); diff != "" {
			t.Errorf("killed at %s, it changed\n%s", table, diff)
		}
		eventually(t, "its connection ends", func() bool { return blocked() == 0 })
	}
	o.must(0, "import", "invoices", "--period", october, "--file", file).says(t, "50000 new")
}

// The last rows of a file that is still being written, or was cut, are not billed by
// what came of them: a total that does not fit, a row that is short and a quote that
// does not end each refuse the file.
func TestHalfAFileIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	whole, err := os.ReadFile(filepath.Join(sheetsDir, "total-line.csv"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	for _, cut := range []string{strings.Replace(text, "4183,5.01,usd\n", "", 1), text[:strings.Index(text, ",usd\n4183")] + "\n", strings.TrimSuffix(text, ",25.00,\n") + "\n"} {
		o.invoices(65, cut)
	}
	if got := o.owed(); got != "" {
		t.Errorf("half a file left %s", got)
	}
}
