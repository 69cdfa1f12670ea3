package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

const eurYAML = `prices: [{valid_from: 2026-01, currency: eur, base_fee: "30.00", metrics: {api_calls: {unit_price: 0}}}]`

// inCurrency are n customers, of whom the last pays in another currency.
func inCurrency(n int, currency string) string {
	list := customers(n)
	list[n-1].currency = currency
	return accountsCSV(list)
}

// A period that an import closed is not run, nor taken for done, while usage of it is no
// invoice; unless somebody says so.
func TestNoRunWhileUsageIsNotInvoiced(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("one.csv", invoicesCSV(customers(1))))
	status := []string{"status", "--period", october}
	o.month(3).says(t, "period 2026-10 has usage that is not invoiced", "billing invoice --period 2026-10", "--uninvoiced")
	o.must(0, "preview", "--period", october).says(t, "usage_not_invoiced: period 2026-10 has usage that is not invoiced: billing invoice --period 2026-10   (--uninvoiced)")
	if r := o.must(0, "preview", "--period", october, "--uninvoiced"); strings.Contains(r.stdout, "usage_not_invoiced") {
		t.Error(r)
	}
	o.must(0, status...).says(t, "next: billing invoice --period 2026-10\n")
	o.month(0, "--uninvoiced")
	o.must(0, status...).says(t, "next: billing invoice --period 2026-10\n")
	o.invoice(4).says(t, `account "a0001": an invoice of "one.csv" is in the way, and it is charged`, "1 invoice from usage: 1 new")
	o.must(0, status...).says(t, "billing reopen --period 2026-10")
}

// What is said to do about an account that can't be invoiced leads to the end of the month:
// it is left out by a person, the others are charged, and what it used stays in the days.
func TestAnAccountThatCantBeInvoicedMayBeLeftOut(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 3)
	o.must(0, "import", "invoices", "--period", october, "--open", "--file", o.file("deal.csv", invoicesCSV(customers(1))))
	o.complete()
	o.invoice(4).says(t, `account "a0001": an invoice of "deal.csv" is in the way: to take the usage instead, add --replace; to keep that one, leave the account out`,
		"2026-10 is not closed", "or leave them out: billing close --period 2026-10\n")
	o.month(3).says(t, "not closed")
	o.must(0, "close", "--period", october)
	o.month(0)
	if got := o.states(october)["succeeded"]; got != 3 {
		t.Errorf("%d of 3 are charged", got)
	}
	if got := one[string](o, `SELECT source FROM billing.invoices WHERE account_id = 'a0001'`); got != "deal.csv" {
		t.Errorf("the invoice that was kept is of %s", got)
	}
	o.mustBeWhole()
}

// When nothing is owed any more the last invoice goes, and the period's close says so.
func TestTheLastInvoiceOfAPeriodMayVanish(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(1))))
	o.prices(0, pricesYAML)
	o.complete()
	o.invoice(0)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", pausedCSV(customers(1), "a0001")))
	before := o.invoiced()
	o.invoice(0, "--dry-run").says(t, "removed, because no usage is left of them: 1 invoice")
	if o.invoiced() != before {
		t.Error("a dry run changed something")
	}
	o.invoice(0, "--by", "bob").says(t, "removed, because no usage is left of them: 1 invoice: \"a0001\"", "2026-10 is closed: 0 invoices")
	if got := o.amounts(); got != "" {
		t.Errorf("%s is left", got)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.period_events WHERE action = 'close'`); n != 2 {
		t.Errorf("%d closes are kept, want 2", n)
	}
	o.invoice(65).says(t, "nobody owes anything")
	o.month(3).says(t, "has nothing to bill")
}

// A month that lies before one that was invoiced is passed over with a word, each time.
func TestMonthsThatWerePassedOverAreNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(1))))
	o.prices(0, pricesYAML)
	for _, month := range []string{"06", "08", "09", "10"} {
		o.used("e"+month, "a0001", "storage", "1", "2026-"+month+"-05T10:00:00Z")
	}
	o.complete()
	june, august := "2026-06 has usage that was never invoiced: billing invoice --period 2026-06", "2026-08 has usage that was never invoiced: billing invoice --period 2026-08"
	o.must(0, "invoice", "--period", "2026-09").says(t, june, august)
	o.invoice(0).says(t, june, august)
	o.must(0, "status", "--period", october).says(t, "invoiced; never invoiced: 2026-06, 2026-08")
	o.must(0, "invoice", "--period", "2026-06")
	if r := o.invoice(0); strings.Contains(r.stderr, "2026-06") || strings.Contains(r.stderr, "2026-07") {
		t.Error(r)
	}
}

// Where an account gets a problem later its older invoice stays, and so does the close.
func TestAClosedPeriodStaysClosedWithAProblem(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.invoice(0)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", inCurrency(2, "gbp")))
	r := o.invoice(4)
	r.says(t, "2026-10 stays closed, with the older invoices of these accounts: 2 invoices, 122.50 usd")
	if strings.Contains(r.stdout, "not closed") {
		t.Error(r)
	}
}

// An invoice that is made again in another currency is told, with what it was.
func TestAnotherCurrencyOfAnInvoiceIsTold(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.prices(0, eurYAML)
	o.complete()
	o.invoice(0)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", inCurrency(2, "eur")))
	o.invoice(0).says(t, `account "a0002": 30.00 eur, was 100.00 usd`, "1 invoice of 2026-10 got another currency")
}

// Who joins after a month was invoiced owes no base fee for it, and is named. Who was
// there and lacked prices owes it once there are some.
func TestAnInvoicedMonthBillsNobodyWhoJoinedLater(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 3)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", inCurrency(3, "eur")))
	o.complete()
	o.invoice(0).says(t, "1 active account has no usage, and no prices")
	o.advance(time.Minute)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(5)[3:])))
	o.prices(0, eurYAML)
	o.invoice(0).says(t, "3 invoices from usage: 1 new", "2 active accounts owe no base fee", `"a0004", "a0005"`)
	if got, want := o.amounts(), "a0001 22.5 usd, a0002 100 usd, a0003 30 eur"; got != want {
		t.Errorf("the invoices are %s, want %s", got, want)
	}
}

// A year that is typed wrong bills nobody.
func TestNoInvoiceForAMonthThatEndedLongAgo(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 1)
	o.complete()
	o.must(3, "invoice", "--period", "2025-09").says(t, "period 2025-09 ended 396 days ago", "--allow-old")
	o.prices(0, strings.Replace(pricesYAML, "2026-01", "2025-01", 1))
	o.must(0, "invoice", "--period", "2025-09", "--allow-old")
}

// The first run of a period can't begin between an import's last look for one and its end:
// it would charge what the import has changed.
func TestTheFirstRunWaitsForAnImport(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(2)
	o.imports(october, list)
	ctx := context.Background()
	tx, err := o.db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `LOCK TABLE billing.period_closes IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	list[0].amount = "77.00"
	p := o.start("import", "invoices", "--period", october, "--file", o.file("changed.csv", invoicesCSV(list)), "--replace")
	eventually(t, "the import is about to end", func() bool {
		return one[int](o, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'billing' AND wait_event_type = 'Lock'`) == 1
	})
	o.month(75, "--wait", "0s").says(t, "or an import that changes it")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if r := p.wait(); r.code != 0 {
		t.Fatal(r)
	}
	o.month(0)
	o.mustBeWhole()
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE account_id = 'a0001' AND amount_minor = 7700`); n != 1 {
		t.Error("another amount was charged than the import's")
	}
}
