package main

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"
)

// journal exports the journal and returns its lines, and what each account and kind of
// entry comes to, debits less credits: "usd cash", "usd invoice receivable".
func (o *office) journal(args ...string) (rows []map[string]string, sums map[string]string) {
	o.t.Helper()
	rows = readCSV(o.t, o.must(0, append([]string{"export", "journal", "--period", october}, args...)...).stdout)[1:]
	totals, entries := map[string]decimal.Decimal{}, map[string]decimal.Decimal{}
	for _, r := range rows {
		amount := decimal.RequireFromString("0" + r["debit"]).Sub(decimal.RequireFromString("0" + r["credit"]))
		if (r["debit"] == "") == (r["credit"] == "") || strings.HasPrefix(r["debit"]+r["credit"], "-") {
			o.t.Errorf("a line is no debit and no credit: %v", r)
		}
		for _, key := range []string{r["currency"] + " " + r["role"], r["currency"] + " " + r["what"] + " " + r["role"]} {
			totals[key] = totals[key].Add(amount)
		}
		entries["entry "+r["entry"]] = entries["entry "+r["entry"]].Add(amount)
		entries[r["currency"]] = entries[r["currency"]].Add(amount)
	}
	for name, sum := range entries {
		if !sum.IsZero() {
			o.t.Errorf("%s does not come to zero but to %s", name, sum)
		}
	}
	sums = map[string]string{}
	for name, sum := range totals {
		sums[name] = sum.StringFixed(2)
	}
	return rows, sums
}

// ties holds a journal against the audit's sums in a currency.
func (o *office) ties(a auditJSON, sums map[string]string, currency string) {
	o.t.Helper()
	amounts := a.amounts(currency)
	for total, account := range map[string]string{"recorded": "invoice receivable", "paid in the ledger": "payment cash", "net": "cash"} {
		want, ok := amounts[total]
		if got := cmp.Or(sums[currency+" "+account], "0"); ok && !sameAmount(got, want) {
			o.t.Errorf("%s in %s: the journal has %s for %s, the audit %s", account, currency, got, total, want)
		}
	}
	if got, want := sums[currency+" refunded refunds"], amounts["refunded"]; want != "" && !sameAmount("-"+got, want) {
		o.t.Errorf("refunds in %s: %s, the audit has %s", currency, got, want)
	}
	if got, want := sums[currency+" fees"], amounts["fees"]; want != "" && !sameAmount("-"+got, want) {
		o.t.Errorf("fees in %s: %s, the audit has %s", currency, got, want)
	}
}

func sameAmount(a, b string) bool {
	return decimal.RequireFromString(a).Equal(decimal.RequireFromString(b))
}

// awkward is a month in which something of everything happened.
func (o *office) awkward() {
	o.t.Helper()
	list := customers(14)
	list[2].card = "pm_card_visa_chargeDeclined"
	list[3].amount = "-4.00" // a credit
	list[4].amount = "0"
	list[5].currency, list[6].currency = "eur", "eur"
	list[7].currency, list[7].amount = "jpy", "5000"
	list[8].card = "pm_card_visa_chargeDeclined"
	list[9].amount = "0.10" // below the minimum
	list[12].card = "pm_usBankAccount_success"
	o.imports(october, list)
	o.month(0)
	o.must(0, "void", "--period", october, "--account", "a0009", "--why", "test")
	o.acts(o.emu.Refund(o.payment("a0001"), 300))
	o.acts(o.emu.Refund(o.payment("a0006"), 0))
	o.acts(o.emu.Dispute(o.payment("a0002")))
	o.emu.AddIntent(o.ofKey("a0011")) // paid twice
	o.advance(96 * time.Hour)
	o.acts(o.emu.SettleDebit(o.payment("a0013"), true))
	o.acts(o.emu.Rebook(o.payment("a0013"), ""))
	o.acts(o.emu.Rebook(o.payment("a0014"), "gbp"))
}

// entryDates are the keys and dates of a journal's entries.
func entryDates(rows []map[string]string) map[string]string {
	keys := map[string]string{}
	for _, r := range rows {
		keys[strings.TrimPrefix(r["key"], "monthly-billing/"+october+"/")] = r["date"]
	}
	return keys
}

// The journal balances in every entry and currency, and comes to the audit's sums.
func TestTheJournalTiesToTheAudit(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.awkward()
	r := o.must(0, "export", "journal", "--period", october)
	if !strings.Contains(r.stderr, "was never audited") || strings.Contains(r.stdout, ",fees,") {
		t.Errorf("before the audit:\n%s", r)
	}
	a, _ := o.audits(4)
	rows, sums := o.journal()
	for _, currency := range []string{"usd", "eur", "jpy", "gbp"} {
		o.ties(a, sums, currency)
	}
	for account, want := range map[string]string{
		// What is owed and not paid: declined, below the minimum, less the credit.
		"usd receivable": "6.13", "usd void receivable": "-10.09", "usd suspense": "-10.11", "eur refunds": "10.06",
		"usd refunds": "3.00", "usd disputes": "10.02", "jpy receivable": "0.00", "jpy payment cash": "5000.00",
		"usd transit": "10.13", "usd conversion": "10.14", "gbp conversion": "-20.28",
	} {
		if sums[account] != want {
			t.Errorf("%s is %s, want %s", account, sums[account], want)
		}
	}
	const end, first, now = "2026-10-31", "2026-11-01", "2026-11-05"
	want := map[string]string{
		"invoice/2026-10-31/usd": end, "invoice/2026-10-31/eur": end, "invoice/2026-10-31/jpy": end, "void/2026-11-01/usd": first,
		"payment/2026-11-01/usd": first, "payment/2026-11-01/eur": first, "payment/2026-11-01/jpy": first, "payment/2026-11-05/usd": now,
		"fees/2026-11-01/usd": first, "fees/2026-11-01/eur": first, "fees/2026-11-01/jpy": first, "fees/2026-11-01/gbp": first,
		"refunded/2026-11-01/usd": first, "refunded/2026-11-01/eur": first, "disputed/2026-11-01/usd": first,
		"paid-into-another-currency/2026-11-01/usd": first, "paid-in-it-from-another-currency/2026-11-01/gbp": first,
		"duplicate/usd": now, "not-booked-yet/usd": now,
	}
	if diff := gocmp.Diff(want, entryDates(rows)); diff != "" {
		t.Errorf("the keys (-want +got)\n%s", diff)
	}
	// The ledger goes on, and the audit is no longer its own.
	o.must(0, "void", "--period", october, "--account", "a0003", "--why", "test")
	o.journal() // what was owed is withdrawn, which no audit need see
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.imports(october, customers(15)[14:])
	o.month(4)
	for _, command := range []string{"journal", "month"} {
		dir := t.TempDir()
		r := o.must(3, "export", command, "--period", october, "--output", dir)
		if !strings.Contains(r.stderr, "reconcile --audit --period 2026-10") || len(folder(t, dir)) != 0 {
			t.Errorf("%s: the folder has %s\n%s", command, namesOf(folder(t, dir)), r)
		}
	}
}

// A journal of an audit that found nothing new is the earlier one, byte for byte but for the
// day of what stands; what happened since is new keys beside the old ones.
func TestAJournalKeepsItsKeysAndDates(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.awkward()
	o.audits(4)
	before, _ := o.journal()
	o.advance(36 * 24 * time.Hour)
	o.audits(4)
	after, _ := o.journal()
	for _, r := range after {
		if r["what"] == "duplicate" || r["what"] == "not booked yet" {
			if r["date"] != "2026-12-11" {
				t.Errorf("%s is of %s, want the day of the audit", r["what"], r["date"])
			}
			r["date"] = "2026-11-05"
		}
	}
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("36 days later (-before +after)\n%s", diff)
	}
	o.acts(o.emu.FailRefunds(o.payment("a0001"))) // comes back on another day
	o.acts(o.emu.Refund(o.payment("a0012"), 0))
	o.audits(4)
	rows, sums := o.journal()
	keys := entryDates(rows)
	for key := range entryDates(before) {
		if keys[key] == "" {
			t.Errorf("the key %s is gone", key)
		}
		delete(keys, key)
	}
	// 3.00 came back, 10.12 went.
	if len(keys) != 1 || keys["refunded/2026-12-11/usd"] != "2026-12-11" || sums["usd refunded refunds"] != "10.12" {
		t.Errorf("new are %v, refunds are %s", keys, sums["usd refunded refunds"])
	}
}

// A second payment that is given back leaves suspense, and is no expense.
func TestADuplicateThatIsRefundedLeavesSuspense(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.imports(october, customers(3))
	o.month(0)
	twice, nobodys := o.ofKey("a0001"), o.ofKey("a0002")
	second := o.emu.AddIntent(twice)
	nobodys.Metadata["billing_key"], nobodys.Metadata["billing_account"] = keyOf("b0001"), "b0001"
	orphan := o.emu.AddIntent(nobodys)
	disputed := o.emu.AddIntent(o.ofKey("a0003"))
	o.acts(o.emu.Refund(o.payment("a0003"), 100))
	o.audits(4)
	if _, sums := o.journal(); sums["usd suspense"] != "-30.06" || sums["usd refunds"] != "1.00" {
		t.Errorf("before: suspense %s, refunds %s", sums["usd suspense"], sums["usd refunds"])
	}
	o.acts(o.emu.Refund(second, 0))
	o.acts(o.emu.Refund(orphan, 0))
	o.acts(o.emu.Dispute(disputed))
	a, _ := o.audits(4)
	_, sums := o.journal()
	o.ties(a, sums, "usd")
	if sums["usd suspense"] != "0.00" || sums["usd refunds"] != "1.00" || sums["usd disputes"] != "" {
		t.Errorf("suspense %s, refunds %s, disputes %s", sums["usd suspense"], sums["usd refunds"], sums["usd disputes"])
	}
	if got := a.amounts("usd")["refunded, not owed"]; got != "-20.03" {
		t.Errorf("the audit has %s refunded and not owed", got)
	}
}

// Days are those of the period's time zone, of the ledger's bookings and of the balance's.
func TestTheJournalHasTheDaysOfThePeriodsZone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	o.audits(0)
	o.exec(`UPDATE billing.job_runs SET time_zone = 'America/Los_Angeles'`)
	o.audits(0)
	rows, _ := o.journal()
	want := map[string]string{"invoice/2026-10-31/usd": "2026-10-31", "payment/2026-10-31/usd": "2026-10-31", "fees/2026-10-31/usd": "2026-10-31"}
	if diff := gocmp.Diff(want, entryDates(rows)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The books call the accounts as they do, and tax is a line of its own where the
// company's view knows it.
func TestTheJournalSpeaksTheBooksLanguage(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	o.exec(`CREATE OR REPLACE VIEW billing.billable AS
		SELECT i.job, i.period, i.account_id, i.amount, i.currency, i.description, a.stripe_account, a.stripe_customer, a.payment_method,
			a.name, a.email, a.status, round(i.amount * 19 / 119, 2) AS tax
		FROM billing.invoices i LEFT JOIN billing.accounts a ON a.account_id = i.account_id`)
	rows, sums := o.journal("--chart", "cash=1360, revenue = =8400,tax=1776")
	if want := map[string]string{"usd invoice receivable": "20.03", "usd invoice revenue": "-16.83", "usd invoice tax": "-3.20"}; !subset(want, sums) {
		t.Errorf("got %v, want %v", sums, want)
	}
	names := map[string]string{}
	for _, r := range rows {
		names[r["role"]] = r["account"]
	}
	if want := map[string]string{"cash": "1360", "revenue": "'=8400", "tax": "1776", "receivable": "Accounts receivable"}; !maps.Equal(names, want) {
		t.Errorf("the accounts are %v, want %v", names, want)
	}
	for chart, says := range map[string]string{"cash": "receivable=1400", "bank=1": "there is no such account", "cash=": "receivable=1400"} {
		if r := o.must(64, "export", "journal", "--period", october, "--chart", chart); !strings.Contains(r.stderr, says) {
			t.Errorf("--chart %s: %s", chart, r)
		}
	}
}

// Tax that can't be is refused, with the account and the value; it is no zero.
func TestTaxThatCantBeIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[2].amount = "-4.00"
	o.imports(october, list)
	o.month(0)
	for _, tt := range [][2]string{
		{"'NaN'::numeric", "tax of NaN for account a0002, of 10.02 usd: it is no number"},
		{"'-Infinity'::numeric", "tax of -Infinity for account a0002, of 10.02 usd: it is no number"},
		{"1.005", "tax of 1.005 for account a0002, of 10.02 usd: it has more digits than the currency"},
		{"10.03", "tax of 10.03 for account a0002, of 10.02 usd: it is more than the amount"},
		{"-1.00", "tax of -1.00 for account a0002, of 10.02 usd: it has the other sign"},
		{"1.600000", ""}, // zeros are no digits
	} {
		tax, says := tt[0], tt[1]
		o.exec(`CREATE OR REPLACE VIEW billing.billable AS
			SELECT i.job, i.period, i.account_id, i.amount, i.currency, i.description, a.stripe_account, a.stripe_customer, a.payment_method,
				a.name, a.email, a.status, CASE i.account_id WHEN 'a0002' THEN ` + tax + ` WHEN 'a0003' THEN -0.64 END AS tax
			FROM billing.invoices i LEFT JOIN billing.accounts a ON a.account_id = i.account_id`)
		dir := t.TempDir()
		want := 65
		if says == "" {
			want = 0
		}
		r := o.must(want, "export", "journal", "--period", october, "--output", dir)
		if !strings.Contains(r.stderr, says) || want == 65 && len(folder(t, dir)) != 0 {
			t.Errorf("%s: the folder has %s\n%s", tax, namesOf(folder(t, dir)), r)
		}
	}
	if _, sums := o.journal(); sums["usd tax"] != "-0.96" {
		t.Errorf("tax is %s", sums["usd tax"])
	}
}

func subset(want, got map[string]string) bool {
	for k, v := range want {
		if got[k] != v {
			return false
		}
	}
	return true
}

// The files of a month are of one moment: the manifest's sums are those of the charges,
// and both sides of the journal are equal.
func TestExportMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(4))
	o.month(0)
	o.audits(0)
	dir := t.TempDir()
	o.must(0, "export", "month", "--period", october, "--output", dir)
	files := folder(t, dir)
	if got := namesOf(files); got != "charges-2026-10.csv events-2026-10.csv journal-2026-10.csv month-2026-10.csv.manifest.json" {
		t.Fatalf("the folder has %s", got)
	}
	m := manifestOf(t, files, "month-2026-10.csv.manifest.json")
	if len(m.Files) != 3 || m.Files[0].Sums[0].Amount != "40.10" || m.Files[1].Rows != 4 || m.Files[2].Sums[0].Debit != m.Files[2].Sums[0].Credit {
		t.Errorf("the manifest is %+v", m)
	}
	for _, args := range [][]string{{"--output", dir + "/month.csv"}, {"--output", "-"}, nil} {
		o.must(64, append([]string{"export", "month", "--period", october}, args...)...)
	}
	if r := o.must(64, "export", "month", "--period", october, "--output", "-"); !strings.Contains(r.stderr, "a month is 3 files") {
		t.Errorf("%s", r)
	}
}
