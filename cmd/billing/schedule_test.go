package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bounds are those of the period as the ledger keeps them.
func (o *office) bounds(period string) (starts, ends time.Time) {
	o.t.Helper()
	return one[time.Time](o, `SELECT period_starts_at FROM billing.job_runs WHERE period = $1`, period).UTC(),
		one[time.Time](o, `SELECT period_ends_at FROM billing.job_runs WHERE period = $1`, period).UTC()
}

// T12: a month in which the clock is put forward begins and ends at local
// midnight, an hour shorter than its days; no run starts before that.
func TestAMonthEndsAtLocalMidnight(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string][2]string{
		"America/New_York":   {"2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"}, // forward on 8 March
		"Europe/Berlin":      {"2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"}, // forward on 29 March
		"Asia/Kolkata":       {"2026-02-28T18:30:00Z", "2026-03-31T18:30:00Z"},
		"Pacific/Kiritimati": {"2026-02-28T10:00:00Z", "2026-03-31T10:00:00Z"},
		"UTC":                {"2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"},
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			const march = "2026-03"
			o := newOffice(t)
			o.env["BILLING_TIMEZONE"] = zone
			ends, err := time.Parse(time.RFC3339, want[1])
			if err != nil {
				t.Fatal(err)
			}
			o.setNow(ends.Add(-time.Minute))
			o.imports(march, customers(2))
			if r := o.must(3, "run", "--period", march); !strings.Contains(r.stderr, "ends at") || o.emu.Posts() != 0 {
				t.Errorf("a minute before the end: %d POSTs\n%s", o.emu.Posts(), r)
			}
			o.setNow(ends.Add(time.Second))
			o.must(0, "run") // derives March
			starts, ended := o.bounds(march)
			if got := [2]string{starts.Format(time.RFC3339), ended.Format(time.RFC3339)}; got != want {
				t.Errorf("the month lies in %v, want %v", got, want)
			}
			o.mustBeWhole()
		})
	}
}

// The bounds that the first run of a period wrote stay, whatever the time zone of
// the host is that runs it next.
func TestBoundsOfAPeriodStayAcrossHosts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.env["BILLING_TIMEZONE"] = "Europe/Berlin"
	o.recordedOnly()
	starts, ends := o.bounds(october)
	o.env["BILLING_TIMEZONE"] = "America/New_York"
	o.advance(6 * time.Hour)
	o.month(0)
	if s, e := o.bounds(october); s != starts || e != ends || one[string](o, `SELECT time_zone FROM billing.job_runs`) != "Europe/Berlin" {
		t.Errorf("the month was %s to %s and is now %s to %s", starts, ends, s, e)
	}
	o.mustBeWhole()
}

// T13: a day in a file is that day, in whatever zone the host stands.
func TestADayInAFileIsThatDayOnEveryHost(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, zone := range []string{"Europe/Moscow", "Pacific/Kiritimati", "Pacific/Honolulu"} {
		o.env["TZ"], o.env["PGTZ"] = zone, zone
		text := "account_id,stripe_customer,payment_method,currency,card_expires\nday,cus_1,pm_1,usd,2027-06-01\nmonth,cus_2,pm_2,usd,2028-02\n"
		o.must(0, "import", "accounts", "--file", o.file("accounts.csv", text))
		got := one[string](o, `SELECT string_agg(account_id || ' ' || card_expires::text, ', ' ORDER BY account_id) FROM billing.accounts`)
		if want := "day 2027-06-01, month 2028-02-29"; got != want {
			t.Errorf("in %s: %s, want %s", zone, got, want)
		}
		o.exec(`DELETE FROM billing.accounts`)
	}
}

// T15: a period that is mistyped, not over, or without invoices is refused before
// anything is written, by every command that takes one.
func TestAMistypedPeriodIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(2)
	o.imports("2026-11", list)
	file := o.file("invoices.csv", invoicesCSV(list))
	before := o.everything()
	for _, bad := range []string{"2026-1", "2026-13", "2026-00", "202610", "2026-10 ", " 2026-10", "2026-10\n", "2026/10", "26-10", "10-2026",
		"2026-10-01", "２０２６-10", "2026–10", "-2026-10", "October", "1926-10", "3026-10"} {
		for _, command := range [][]string{
			{"run"}, {"preview"}, {"close"}, {"status"}, {"reopen", "--why", "x"}, {"show", "--account", "a0001"},
			{"export", "charges", "--format", "csv", "--output", "-"}, {"import", "invoices", "--file", file},
		} {
			if r := o.must(64, append(command, "--period="+bad)...); !strings.Contains(r.stderr, "2026-10") {
				t.Errorf("%s --period %q: want an example in\n%s", command[0], bad, r)
			}
		}
	}
	for _, early := range []string{"2026-11", "2026-12", "2062-10", "2019-01", october} {
		if r := o.must(3, "run", "--period", early); !strings.Contains(r.stderr, early) {
			t.Errorf("%s: the refusal does not name it\n%s", early, r)
		}
	}
	o.env["BILLING_PERIOD"] = "2026-1"
	o.must(64, "run")
	if diff := cmp.Diff(before, o.everything()); diff != "" || o.emu.Posts() != 0 {
		t.Errorf("%d POSTs, and written was:\n%s", o.emu.Posts(), diff)
	}
}

// everything is every row of the schema except the tables of migrations.
func (o *office) everything() string {
	o.t.Helper()
	return o.ledgerText() + one[string](o, `SELECT coalesce(string_agg(t, E'\n' ORDER BY t), '') FROM (
		SELECT 'invoice ' || i::text AS t FROM billing.invoices i
		UNION ALL SELECT 'account ' || a::text FROM billing.accounts a
		UNION ALL SELECT 'close ' || c::text FROM billing.period_closes c
		UNION ALL SELECT 'period event ' || e::text FROM billing.period_events e
		UNION ALL SELECT 'identity ' || s::text FROM billing.stripe_identity s) x`)
}

// T50: every time in the ledger, and every decision by time, is Postgres's; the
// clock and the zone of the host count for nothing.
func TestEveryTimeInTheLedgerIsPostgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now  time.Time
		zone string
	}{
		"years ahead": {time.Date(2031, 5, 1, 0, 5, 0, 0, time.UTC), "Pacific/Kiritimati"},
		"years ago":   {time.Date(2021, 5, 1, 0, 5, 0, 0, time.UTC), "Pacific/Honolulu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.setNow(c.now)
			o.env["TZ"] = c.zone
			period := c.now.AddDate(0, -1, 0).Format("2006-01")
			list := customers(5)
			list[1].card = "pm_card_chargeCustomerFail_1"
			o.imports(period, list)
			r := o.must(0, "run", "--json").json(t)
			if r.Period != period {
				t.Errorf("the month before %s is %s, the run took %s", c.now, period, r.Period)
			}
			from, to := c.now.Add(-11*time.Minute), o.db.Now()
			rows := one[string](o, `SELECT coalesce(string_agg(what || ' ' || at, ', '), '') FROM (
				SELECT 'claimed' AS what, claimed_at AS at FROM billing.job_runs UNION ALL SELECT 'heartbeat', heartbeat_at FROM billing.job_runs
				UNION ALL SELECT 'finished', finished_at FROM billing.job_runs UNION ALL SELECT 'created', created_at FROM billing.charges
				UNION ALL SELECT 'window', window_opened_at FROM billing.charges UNION ALL SELECT 'sent', last_sent_at FROM billing.charges
				UNION ALL SELECT 'settled', settled_at FROM billing.charges UNION ALL SELECT 'event', at FROM billing.charge_events
				UNION ALL SELECT 'attempt', finished_at FROM billing.job_run_attempts UNION ALL SELECT 'closed', closed_at FROM billing.period_closes
				UNION ALL SELECT 'invoice', imported_at FROM billing.invoices UNION ALL SELECT 'account', updated_at FROM billing.accounts
				UNION ALL SELECT 'identity', pinned_at FROM billing.stripe_identity
			) x WHERE at NOT BETWEEN $1 AND $2`, from, to)
			if rows != "" {
				t.Errorf("outside of %s to %s: %s", from, to, rows)
			}
			o.mustBeWhole()
		})
	}
}

// T49, T50: a claim is stale when Postgres says so: not a moment before the end
// of its lease, and at once after it.
func TestAClaimIsStaleWhenPostgresSaysSo(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "10m"
	o.imports(october, customers(3))
	o.recordedOnly()
	o.advance(9*time.Minute + 30*time.Second)
	if r := o.month(75, "--wait", "0s"); !strings.Contains(r.stderr, "claimed by") || o.emu.Posts() != 0 {
		t.Errorf("half a minute before the lease ends: %d POSTs\n%s", o.emu.Posts(), r)
	}
	o.advance(time.Minute)
	if r := o.month(0, "--wait", "0s", "--json").json(t); r.Run.Attempt != 2 {
		t.Errorf("attempt %d took over, want 2", r.Run.Attempt)
	}
	o.mustBeWhole()
}
