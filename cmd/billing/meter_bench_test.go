package main

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Counting 1,000,000 events, against one bare INSERT … SELECT … GROUP BY over the same rows, which
// looks at no event for what is wrong with it and knows no copies. BILLING_BENCH_ROWS makes it
// another number. The events are of October, of 2,000 accounts and three metrics, nearly in the
// order of their time; one in a hundred is up to three days late. The program's start counts.
func BenchmarkMeter(b *testing.B) {
	n := 1_000_000
	if rows, err := strconv.Atoi(os.Getenv("BILLING_BENCH_ROWS")); err == nil && rows > 0 {
		n = rows
	}
	o := newOffice(b)
	o.hasUsage(n)
	bare, equal := o.groups(b, "4MB"), o.groups(b, "64MB") // the first fills the cache
	for b.Loop() {
		bare, equal = min(bare, o.groups(b, "4MB")), min(equal, o.groups(b, "64MB"))
		o.exec(sqlUncounted)
		started := time.Now()
		p := o.start("meter", "--timezone", "Europe/Berlin")
		b.ReportMetric(p.Resident(), "MiB-peak")
		if r := p.wait(); r.code != 0 {
			b.Fatal(r)
		}
		ours := time.Since(started)
		if counted := one[int](o, `SELECT sum(events)::bigint FROM billing.daily_usage`); counted != n {
			b.Fatalf("%d of %d events are counted", counted, n)
		}
		bare, equal = min(bare, o.groups(b, "4MB")), min(equal, o.groups(b, "64MB"))
		b.ReportMetric(float64(n)/ours.Seconds(), "events/s")
		b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%-of-bare")
		b.ReportMetric(100*equal.Seconds()/ours.Seconds(), "%-of-bare-with-64MB")
	}
}

// hasUsage puts n events there. The triggers of one at a time are left out, and do no more than this.
func (o *office) hasUsage(n int) {
	o.t.Helper()
	o.exec(`INSERT INTO billing.metrics (metric) VALUES ('api_calls'), ('bytes'), ('seats')`)
	o.exec(`INSERT INTO billing.accounts (account_id) SELECT 'acct_' || lpad(i::text, 7, '0') FROM generate_series(1, 2000) i`)
	o.exec(`DROP INDEX billing.usage_events_id_idx, billing.usage_events_instant_idx, billing.usage_events_xid_idx`)
	o.exec(`BEGIN; SET LOCAL session_replication_role TO replica; SET LOCAL synchronous_commit TO off;
		INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at, received_at, xid)
		SELECT gen_random_uuid()::text, 'acct_' || lpad((1 + i * 7919 % 2000)::text, 7, '0'), (ARRAY['api_calls', 'bytes', 'seats'])[1 + i % 3], (i % 100000)::numeric / 1000,
			timestamptz '2026-09-30T22:00:00Z' + i * interval '31 days' / ` + strconv.Itoa(n) + ` - interval '1 second' * CASE WHEN i % 100 = 0 THEN i % 259200 ELSE i % 600 END,
			timestamptz '2026-09-30T22:00:00Z' + i * interval '31 days' / ` + strconv.Itoa(n) + `, pg_current_xact_id()
		FROM generate_series(0::bigint, ` + strconv.Itoa(n-1) + `) i; COMMIT`)
	o.exec(`SET maintenance_work_mem TO '512MB'; CREATE INDEX usage_events_xid_idx ON billing.usage_events (xid);
		CREATE INDEX usage_events_id_idx ON billing.usage_events (hashtextextended(event_id, 0));
		CREATE INDEX usage_events_instant_idx ON billing.usage_events ((coalesce(occurred_at, received_at)))`)
	o.exec(`CREATE TABLE public.bare (account_id text COLLATE "C", metric text COLLATE "C", day date, quantity numeric, events bigint)`)
	o.exec(`VACUUM ANALYZE billing.usage_events`)
}

// groups does the bare statement with some memory, and says how long that took: Postgres's own
// 4MB, or the 64MB that a meter takes.
func (o *office) groups(b *testing.B, memory string) time.Duration {
	b.Helper()
	o.exec(`TRUNCATE public.bare`)
	started := time.Now()
	o.exec(`BEGIN; SET LOCAL work_mem TO '` + memory + `'; INSERT INTO public.bare
		SELECT account_id, metric, (occurred_at AT TIME ZONE 'Europe/Berlin')::date, sum(quantity), count(*)
		FROM billing.usage_events GROUP BY 1, 2, 3; COMMIT`)
	return time.Since(started)
}

// sqlUncounted takes back what a meter did.
const sqlUncounted = `BEGIN; SET LOCAL session_replication_role TO replica; TRUNCATE billing.daily_usage; DELETE FROM billing.usage_marks; DELETE FROM billing.job_watermarks; COMMIT`
