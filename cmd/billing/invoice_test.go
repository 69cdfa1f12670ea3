package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

const pricesYAML = `prices:
  - valid_from: 2026-01
    currency: usd
    base_fee: "20.00"
    accounts:
      a0002: {base_fee: "100.00"}
    metrics:
      api_calls: {unit_price: "0.0049", included: 1000, unit: call}
      storage: {unit_price: "0.09", unit: GB}
`

// prices imports a file of prices.
func (o *office) prices(code int, yaml string, args ...string) outcome {
	o.t.Helper()
	return o.must(code, append([]string{"import", "prices", "--file", o.file("prices.yaml", yaml)}, args...)...)
}

// used writes one event, as an application does.
func (o *office) used(id, account, metric, quantity, at string) {
	o.t.Helper()
	o.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES ($1, $2, $3, $4::numeric, $5::timestamptz)`,
		id, account, metric, quantity, at)
}

// metered counts usage until everything that was received by now is counted. Other
// tests have transactions open on the same server, which a meter waits for.
func (o *office) metered() {
	o.t.Helper()
	now := one[time.Time](o, `SELECT billing.now()`)
	eventually(o.t, "usage is counted up to now", func() bool {
		if r := o.run("meter"); r.code != 0 && r.code != 4 {
			o.t.Fatal(r)
		}
		return one[bool](o, `SELECT coalesce(bool_and(through >= $1 AND target_xid IS NULL), false) FROM billing.job_watermarks`, now)
	})
}

// complete is two hours into November, with everything counted.
func (o *office) complete() {
	o.t.Helper()
	o.advance(2 * time.Hour)
	o.metered()
}

// usageOffice has accounts, prices, and a month's usage of the first two accounts.
func usageOffice(t *testing.T, n int, cfg ...stripeemu.Config) *office {
	t.Helper()
	o := newOffice(t, cfg...)
	o.ungated()
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(n))))
	o.prices(0, pricesYAML)
	o.used("e1", "a0001", "api_calls", "1200", "2026-10-03T10:00:00Z")
	o.used("e2", "a0001", "api_calls", "300", "2026-10-31T23:59:59.999999Z")
	o.used("e3", "a0001", "storage", "0.5", "2026-10-05T10:00:00Z")
	o.used("e4", "a0002", "api_calls", "400", "2026-10-05T10:00:00Z")
	o.used("e5", "a0002", "api_calls", "100000", "2026-11-01T00:00:00Z")
	return o
}

// invoiced is what invoices and their lines are, to be compared before and after.
func (o *office) invoiced() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(t, E'\n' ORDER BY t), '') FROM (
		SELECT 'invoice ' || i::text AS t FROM billing.invoices i UNION ALL SELECT 'line ' || l::text FROM billing.invoice_lines l
		UNION ALL SELECT 'close ' || c::text FROM billing.period_closes c UNION ALL SELECT 'event ' || e::text FROM billing.period_events e
		UNION ALL SELECT 'prices ' || p::text FROM billing.price_lists p UNION ALL SELECT 'metric ' || m::text FROM billing.metrics m
		UNION ALL SELECT 'usage ' || u::text FROM billing.usage_invoiced u) x`)
}

func (o *office) invoice(code int, args ...string) outcome {
	o.t.Helper()
	return o.must(code, append([]string{"invoice", "--period", october}, args...)...)
}

// invoiceDetails is what invoice --json says of its work.
func (r outcome) invoiceDetails(t testing.TB) (d usageInvoicesJSON) {
	t.Helper()
	text, err := json.Marshal(r.json(t).Details)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (o *office) amounts() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(account_id || ' ' || trim_scale(amount) || ' ' || currency, ', ' ORDER BY account_id), '') FROM billing.invoices WHERE period = '2026-10'`)
}

// A month by hand. a0001: 20.00 + (1,500 − 1,000) × 0.0049 = 2.45 + 0.5 × 0.09 = 0.045,
// together 22.495, rounded once to 22.50. a0002: 100.00, its own fee; 400 of 1,000 calls
// are included. What happened at midnight is November's (T59). Again, nothing changes.
func TestUsageBecomesInvoicesThatCanBeFollowed(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 3)
	o.complete()
	before := o.invoiced()
	o.invoice(0, "--dry-run").says(t, "3 invoices from usage: 3 new", "usd: 3 invoices, 142.50 usd", "nothing was changed (dry run)")
	if o.invoiced() != before {
		t.Error("a dry run changed something")
	}
	o.invoice(0, "--by", "ann").says(t, "complete since 2026-11-01 01:00:00 UTC (settle 1h0m0s)", "2026-10 is closed: 3 invoices, 142.50 usd", "next: billing preview --period 2026-10")
	if got, want := o.amounts(), "a0001 22.5 usd, a0002 100 usd, a0003 20 usd"; got != want {
		t.Errorf("the invoices are %s, want %s", got, want)
	}
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "account \"a0001\", 2026-10: 22.50 usd", "(1500 − 1000) × 0.0049", "0.5 × 0.09",
		"0.045", "prices: usd from 2026-01, version 1, of \"prices.yaml\"", "it agrees")
	o.must(0, "explain", "--account", "a0002", "--period", october).says(t, "0 × 0.0049 [400 of 1000 included]")
	done := o.invoiced()
	o.invoice(0, "--by", "bob").says(t, "3 invoices from usage, nothing changed")
	if o.invoiced() != done {
		t.Errorf("the same again changed\n%s\nto\n%s", done, o.invoiced())
	}
	o.month(0)
	o.mustBeWhole()
	o.invoice(0).says(t, "nothing changed")
	if got := one[int64](o, `SELECT sum(amount_minor)::bigint FROM billing.charges WHERE state = 'succeeded'`); got != 14250 {
		t.Errorf("%d were charged, want 14250", got)
	}
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "charged: 22.50 usd, the charge is succeeded", "it agrees")
	o.must(64, "explain", "--account", "nobody", "--period", october).says(t, "has no invoice for 2026-10")
}

// T55: of a hundred accounts one has no prices in its currency and one has an imported
// invoice. They are named with what to do, the others are invoiced, and the period is
// not closed, so that it can't be run. After mending, just the two are new.
func TestOneBadAccountStopsNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(100)
	list[2].currency = "gbp"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "import", "invoices", "--period", october, "--open", "--file", o.file("deal.csv", invoicesCSV(list[49:50])))
	o.prices(0, pricesYAML)
	o.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at)
		SELECT 'e' || account_id, account_id, 'storage', 100, '2026-10-10T00:00:00Z' FROM billing.accounts`)
	o.complete()
	r := o.invoice(4)
	r.says(t, "98 invoices from usage: 98 new", "not invoiced: 2 accounts", `account "a0003": there are no prices in gbp that are valid in 2026-10: add a list: billing import prices`,
		`account "a0050": an invoice of "deal.csv" is in the way`, "add --replace", "2026-10 is not closed", "2 accounts of 2026-10 could not be invoiced")
	o.month(3).says(t, "not closed")
	o.must(0, "status", "--period", october).says(t, "invoiced, but for accounts with a problem", "next: billing invoice --period 2026-10   # it lists the accounts that are missing")
	if n := one[int](o, `SELECT count(*) FROM billing.usage_invoiced`); n != 1 {
		t.Error("98 invoices may be charged, and their usage is not frozen")
	}
	d := o.invoice(4, "--json").invoiceDetails(t)
	if d.Unchanged != 98 || d.New+d.Changed+d.Replaced+d.Removed != 0 || d.ProblemCount != 2 || d.Problems[0].AccountID != "a0003" || d.Problems[0].Code != "no_price_list" || d.Problems[1].Code != "imported" {
		t.Errorf("again: %+v", d)
	}
	o.prices(0, strings.Replace(strings.Replace(pricesYAML, "usd", "gbp", 1), "      a0002: {base_fee: \"100.00\"}\n", "      a0003: {base_fee: 0}\n", 1))
	d = o.invoice(0, "--replace", "--json").invoiceDetails(t)
	if d.New != 1 || d.Replaced != 1 || d.Unchanged != 98 || d.ProblemCount != 0 || d.Closed == nil || d.Closed.Invoices != 100 {
		t.Errorf("after mending: %+v", d)
	}
	o.must(0, "explain", "--account", "a0003", "--period", october).says(t, "9.00 gbp", "it agrees")
	o.must(0, "explain", "--account", "a0050", "--period", october).says(t, "29.00 usd", "it agrees")
	o.month(0)
	o.mustBeWhole()
	if got := o.states(october)["succeeded"]; got != 100 {
		t.Errorf("%d of 100 are charged", got)
	}
}

// Until everything that was received up to the month's end and the settle delay is
// counted, there are no invoices; it says from when on, and what to type. There is one
// settle delay, the meter's (T56): invoice has no other.
func TestNoInvoiceBeforeUsageIsComplete(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.env["BILLING_SETTLE"] = "1s"
	before := o.invoiced()
	o.invoice(3).says(t, "no usage of monthly-billing is counted yet", "billing meter, then: billing invoice --period 2026-10")
	o.metered()
	o.invoice(3).says(t, "complete at 2026-11-01 01:00:00 UTC, 1h0m0s after the month's end in UTC, and not before")
	status := []string{"status", "--period", october}
	o.must(0, status...).says(t, "usage   complete from 2026-11-01 01:00:00 UTC on; counted up to", "next: billing meter   # from 2026-11-01 01:00:00 UTC on\n      billing invoice --period 2026-10")
	o.advance(56 * time.Minute)
	o.invoice(3).says(t, "usage of 2026-10 is complete from 2026-11-01 01:00:00 UTC on, and what was received up to 2026-11-01 00:", "billing meter, then:")
	if r := o.invoice(64, "--settle", "1s"); !strings.Contains(r.stderr, "there is no flag --settle") {
		t.Error(r)
	}
	if o.invoiced() != before {
		t.Error("a refusal changed something")
	}
	o.must(0, "meter", "--settle", "10m")
	o.metered()
	o.must(0, status...).says(t, "usage   complete, not invoiced", "next: billing invoice --period 2026-10\n")
	d := o.invoice(0, "--json").invoiceDetails(t)
	o.must(0, status...).says(t, "usage     invoiced", "next: billing preview --period 2026-10")
	if d.Settle != "10m0s" || d.CompleteAt != "2026-11-01T00:10:00Z" || d.New != 2 {
		t.Errorf("with the meter's settle of ten minutes: %+v", d)
	}
}

// A month ends where its last day ends in the zone of the meter; what is counted there
// belongs to it. What is in no invoice is told: an earlier month, and events set aside.
func TestAMonthEndsInItsTimeZone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_TIMEZONE"] = "America/New_York"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(1))))
	o.prices(0, pricesYAML)
	o.metered()
	o.invoice(3).says(t, "complete at 2026-11-01 05:00:00 UTC, 1h0m0s after the month's end in America/New_York")
	o.advance(5 * time.Hour)
	o.used("in", "a0001", "storage", "1", "2026-11-01T03:59:59Z")
	o.used("out", "a0001", "storage", "50", "2026-11-01T04:00:00Z")
	o.used("before", "a0001", "storage", "70", "2026-10-01T03:59:59Z")
	o.used("ghost", "nobody", "storage", "1", "2026-10-05T00:00:00Z")
	o.metered()
	o.invoice(0).says(t, "2026-09 has usage that was never invoiced: billing invoice --period 2026-09", "1 event is set aside and in no invoice: billing usage list")
	if got := o.amounts(); got != "a0001 20.09 usd" {
		t.Errorf("got %s", got)
	}
}

// Two at once do it once, and none of them fails.
func TestTwoInvoicesAtOnce(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 40)
	o.complete()
	var all []process
	for range 4 {
		all = append(all, o.start("invoice", "--period", october, "--json"))
	}
	added, kept := int64(0), int64(0)
	for _, p := range all {
		r := p.wait()
		if r.code != 0 {
			t.Fatal(r)
		}
		d := r.invoiceDetails(t)
		added, kept = added+d.New, kept+d.Unchanged
	}
	if added != 40 || kept != 120 {
		t.Errorf("%d were added and %d found, want 40 and 120", added, kept)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.invoice_lines`); n != 40+3 {
		t.Errorf("%d lines, want one base fee each and three of usage", n)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.period_events`); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

// A meter that is at work is waited for: what it counts is in the invoice, whole.
func TestInvoiceWaitsForAMeter(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 1)
	o.complete()
	ctx := context.Background()
	tx, err := o.db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	for _, sql := range []string{`SELECT FROM billing.job_watermarks FOR UPDATE`, `UPDATE billing.daily_usage SET quantity = quantity + 1000 WHERE metric = 'storage'`} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	p := o.start("invoice", "--period", october)
	eventually(t, "the invoice waits", func() bool {
		select {
		case <-p.Done():
			t.Fatal(p.wait())
		default:
		}
		return one[int](o, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'billing' AND wait_event_type = 'Lock'`) == 1
	})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if r := p.wait(); r.code != 0 {
		t.Fatal(r)
	}
	if got := o.amounts(); got != "a0001 112.5 usd" {
		t.Errorf("the invoice is %s, want the meter's 1,000 GB in it", got)
	}
}

// While a run works on the period invoices stay as they are (75, as an import), and
// what it charged is frozen. With the first invoice the month's usage is frozen too, also
// where an account has a problem: what is counted later is carried. If it went on into
// October's days instead, nobody would ever owe it. What makes another amount all the
// same, such as a base fee that is not owed any more, is told, and not made.
func TestChargedInvoicesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 3)
	o.used("x", "a0003", "unpriced", "1", "2026-10-05T10:00:00Z")
	o.exec(`INSERT INTO billing.metrics (metric) VALUES ('unpriced')`)
	o.complete()
	o.invoice(4).says(t, `account "a0003": "unpriced" has no price in the list of usd that is valid from 2026-01`)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "a0001", Times: 1})
	p := o.start("run", "--period", october, "--unclosed", "--concurrency", "1")
	eventually(t, "a charge is under way", func() bool { return o.emu.Held() == 1 })
	p.signal(syscall.SIGSTOP)
	o.invoice(75).says(t, "claimed by")
	p.signal(syscall.SIGCONT)
	o.emu.Release()
	if r := p.wait(); r.code != 0 {
		t.Fatal(r)
	}
	o.used("late", "a0001", "storage", "10", "2026-10-06T10:00:00Z")
	o.metered()
	if n := one[int](o, `SELECT count(*) FROM billing.usage_carried WHERE account_id = 'a0001' AND from_period = '2026-10' AND to_period = '2026-11' AND quantity = 10`); n != 1 {
		t.Error("late usage of a charged invoice is not carried")
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", pausedCSV(customers(3), "a0002")))
	before := o.amounts()
	r := o.invoice(4)
	r.says(t, "charged, and over another amount today: 1 invoice", `account "a0002": charged with 100.00 usd, 0.00 usd today`, "not invoiced: 1 account")
	if strings.Contains(r.stdout, "a0001") || o.amounts() != before {
		t.Error(r)
	}
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "it agrees")
	o.prices(65, strings.Replace(pricesYAML, "0.09", "0.10", 1)).says(t,
		"the prices of usd from 2026-01 would change what 2 charged invoices of 2026-10 were made with: give the new prices valid_from: 2026-11 or a later month", "nothing was imported")
	// A list may get another metric: nothing that was computed changes by it.
	o.prices(0, pricesYAML+"      unpriced: {unit_price: 2}\n").says(t, "0 new, 1 changed", "usd from 2026-01, version 2")
	d := o.invoice(4, "--json").invoiceDetails(t)
	if d.New != 1 || d.ProblemCount != 0 || d.DifferingCount != 1 || d.Closed == nil {
		t.Errorf("after the price came: %+v", d)
	}
}

// Late usage is a line of the next month, once, priced as what the month would have come
// to with it: the 700 that were included and not used are used first.
func TestLateUsageIsALineOfTheNextMonth(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.invoice(0)
	o.month(0)
	// a0002 used 400 of 1,000 in October: 500 more are free, and of the next 300 are 200 paid.
	o.used("l1", "a0002", "api_calls", "500", "2026-10-20T10:00:00Z")
	o.metered()
	o.used("l1", "a0002", "api_calls", "500", "2026-10-20T10:00:00Z")
	o.used("l2", "a0002", "api_calls", "300", "2026-10-21T10:00:00Z")
	o.metered()
	before := o.invoiced()
	if o.invoice(0); o.invoiced() != before {
		t.Error("October again: what was late changed it, or how far it was counted")
	}
	o.prices(0, strings.Replace(strings.Replace(pricesYAML, "2026-01", "2026-11", 1), "0.0049", "7", 1))
	o.setNow(time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC))
	o.metered()
	const november = "2026-11"
	// 100.00 + (100,000 − 1,000) × 7 of November, and 200 × 0.0049 of October.
	for range 2 {
		o.must(0, "invoice", "--period", november)
		r := o.must(0, "explain", "--account", "a0002", "--period", november)
		r.says(t, "693100.98 usd", "(100000 − 1000) × 7", "api_calls, late for 2026-10", "(1200 − 1000) × 0.0049 − 0 × 0.0049 [400 of 1000 included]", "0.98",
			"usd from 2026-01, version 1", "usd from 2026-11, version 1", "it agrees")
	}
	o.must(0, "run", "--period", november)
	// Another one comes later still, after a month in between: it sees both before it.
	o.used("l3", "a0002", "api_calls", "10", "2026-10-22T10:00:00Z")
	o.metered()
	o.setNow(time.Date(2027, 1, 1, 3, 0, 0, 0, time.UTC))
	o.metered()
	o.must(0, "invoice", "--period", "2026-12")
	o.must(0, "explain", "--account", "a0002", "--period", "2026-12").says(t, "(1210 − 1000) × 0.0049 − (1200 − 1000) × 0.0049", "0.049", "100.05 usd", "it agrees")
	if n := one[int](o, `SELECT count(*) FROM billing.invoice_lines WHERE kind = 'late'`); n != 2 {
		t.Errorf("%d late lines, want 2", n)
	}
	o.must(0, "explain", "--account", "a0002", "--period", october).says(t, "it agrees")
}

// What somebody changes past the program is found: a line, an amount, the prices, the
// usage, and a list that is gone to garbage. Before it is charged, invoice mends it.
func TestExplainSeesWhatWasTampered(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.invoice(0)
	explain := []string{"explain", "--account", "a0001", "--period", october}
	tamper := func(sql string) {
		o.exec("SET session_replication_role = replica; " + sql + "; SET session_replication_role = origin")
	}
	for sql, want := range map[string]string{
		`UPDATE billing.invoice_lines SET quantity = 15000 WHERE account_id = 'a0001' AND metric = 'api_calls'`: "differs: line 2, api_calls: its quantity is 15000, and comes to 1500",
		`UPDATE billing.invoice_lines SET amount = 2.44 WHERE account_id = 'a0001' AND metric = 'api_calls'`:    "differs: its lines add up to 22.49, and it is over 22.5",
		`UPDATE billing.invoice_lines SET unit_price = 1 WHERE account_id = 'a0001' AND metric = 'storage'`:     "storage: its unit price is 1, and comes to 0.09",
		`DELETE FROM billing.invoice_lines WHERE account_id = 'a0001' AND metric = 'storage'`:                   "differs: storage is no line of it, and comes to 0.045 usd",
		`DELETE FROM billing.invoice_lines WHERE account_id = 'a0001' AND kind = 'base_fee'`:                    "differs: its lines add up to 2.5, and it is over 22.5",
		`UPDATE billing.invoices SET amount = 1 WHERE account_id = 'a0001'`:                                     "differs: it is over 1 usd, and comes to 22.5",
	} {
		tamper(sql)
		r := o.must(4, explain...)
		r.says(t, want, "to make it anew: billing invoice --period 2026-10")
		if r := o.must(4, append(explain, "--json")...).json(t); r.Error == nil || r.Error.Code != "explain_differs" {
			t.Errorf("--json: %+v", r)
		}
		if d := o.invoice(0, "--json").invoiceDetails(t); d.Changed != 1 || d.Unchanged != 1 {
			t.Errorf("%s: made anew: %+v", sql, d)
		}
		o.must(0, explain...)
	}
	o.month(0)
	tamper(`UPDATE billing.daily_usage SET quantity = quantity + 1 WHERE account_id = 'a0001' AND metric = 'storage'`)
	o.must(4, explain...).says(t, "storage: its quantity is 0.5, and comes to 1.5", "it is charged, and stays")
	tamper(`UPDATE billing.daily_usage SET quantity = quantity - 1 WHERE account_id = 'a0001' AND metric = 'storage'`)
	tamper(`UPDATE billing.price_lists SET content = replace(content, '0.0049', '0.0050'), sha256 = sha256(convert_to(replace(content, '0.0049', '0.0050'), 'UTF8'))`)
	o.must(4, explain...).says(t, "api_calls: its unit price is 0.0049, and comes to 0.005")
	tamper(`UPDATE billing.price_lists SET content = 'x', sha256 = sha256('x')`)
	o.must(4, explain...).says(t, "was made with a price list that can't be read any more")
}

// What is left when nobody owes a base fee any more, or a file takes an invoice over:
// no invoice without usage, no lines that explain another amount.
func TestInvoicesThatVanishAndThatAreTakenOver(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 4)
	o.complete()
	o.invoice(0)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", pausedCSV(customers(4), "a0002", "a0003")))
	o.invoice(0).says(t, "removed, because no usage is left of them: 1 invoice: \"a0003\"", "2026-10 is closed: 3 invoices, 42.50 usd")
	if got := o.amounts(); got != "a0001 22.5 usd, a0002 0 usd, a0004 20 usd" {
		t.Errorf("paused accounts owe a base fee: %s", got)
	}
	takeover := o.file("deal.csv", "account_id,amount,currency\na0001,7.00,usd\n")
	o.must(65, "import", "invoices", "--period", october, "--file", takeover)
	o.must(0, "import", "invoices", "--period", october, "--file", takeover, "--replace")
	if n := one[int](o, `SELECT count(*) FROM billing.invoice_lines WHERE account_id = 'a0001'`); n != 0 {
		t.Errorf("%d lines explain an invoice that was taken over", n)
	}
	o.must(64, "explain", "--account", "a0001", "--period", october).says(t, `7.00 usd, was imported from "deal.csv" and not made from usage`)
	o.invoice(4).says(t, `account "a0001": an invoice of "deal.csv" is in the way`)
	o.month(0)
	o.invoice(4, "--replace").says(t, `account "a0001": an invoice of "deal.csv" is in the way, and it is charged`)
	o.mustBeWhole()
}

func pausedCSV(list []customer, paused ...string) string {
	b := strings.Builder{}
	b.WriteString("account_id,stripe_customer,payment_method,currency,status\n")
	for _, c := range list {
		fmt.Fprintf(&b, "%s,%s,%s,%s,%s\n", c.id, c.customer, c.card, c.currency, map[bool]string{true: "paused", false: "active"}[slices.Contains(paused, c.id)])
	}
	return b.String()
}

// A ledger that came to another cluster can't say what was counted, and says so.
func TestNoInvoiceInALedgerThatWasMoved(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.exec(`UPDATE billing.job_watermarks SET system_identifier = '1'`)
	o.invoice(78).says(t, "another cluster", "billing meter --moved")
}

// T61: quantities of 16 digits are priced exactly, and a total that Stripe can't charge
// is a problem of one account. T60: a negative net is a credit and never sent.
func TestHugeAndNegativeUsage(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(4))))
	o.prices(0, "prices: [{valid_from: 2026-10, currency: usd, metrics: {m: {unit_price: 0.0000001}, dear: {unit_price: 1000000}}}]")
	o.used("huge", "a0001", "m", "9007199254740993", "2026-10-05T10:00:00Z")
	o.used("more", "a0002", "dear", "9007199254740993", "2026-10-05T10:00:00Z")
	for i, q := range []string{"100", "-100", "-500000000"} {
		o.used(fmt.Sprint("n", i), "a0003", "m", q, "2026-10-06T10:00:00Z")
	}
	o.metered()
	o.must(0, "usage", "release", "--reason", "negative", "--why", "corrections")
	o.complete()
	o.invoice(4).says(t, `account "a0002": comes to 9007199254740993000000.00 usd, and Stripe charges at most 9999999999.99 usd at once`)
	if got := o.amounts(); got != "a0001 900719925.47 usd, a0003 -50 usd" {
		t.Errorf("got %s", got)
	}
	o.must(0, "explain", "--account", "a0001", "--period", october).says(t, "9007199254740993 × 0.0000001", "900719925.4740993")
	o.month(0, "--unclosed")
	if got := one[string](o, `SELECT state || ' ' || reason || ' ' || sends FROM billing.charges WHERE account_id = 'a0003'`); got != "skipped credit 0" {
		t.Errorf("the negative one is %s", got)
	}
	if n := o.emu.Posts(); n != 1 {
		t.Errorf("%d POSTs, want 1", n)
	}
}

// Help and documents name the same file of prices, and it can be imported.
func TestTheExampleOfTheDocumentCanBeImported(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/pricing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "```yaml\n")
	example, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatal("docs/pricing.md has no example")
	}
	o := newOffice(t)
	o.prices(0, example, "--dry-run").says(t, "new", nothingDone)
}
