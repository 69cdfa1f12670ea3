package billing

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stripe/stripe-go/v82"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/fixtures/pgserver"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/migrations"
)

// The benchmarks measure against something bare in the same run, on a Postgres
// with durable commits, and report the ratio. BILLING_BENCH_ROWS makes the large
// ones smaller.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("BILLING_BENCH_ROWS")); err == nil && n > 0 {
		return n
	}
	return 1_000_000
}

var durable = sync.OnceValues(func() (*pgserver.Server, error) {
	return pgserver.Start(context.Background(), pgserver.Options{Durable: true, Log: os.Stderr})
})

var databases atomic.Int64

// benchLedger is an empty migrated database on a durable server.
func benchLedger(b *testing.B, name string) *pgxpool.Pool {
	b.Helper()
	ctx := context.Background()
	name += strconv.FormatInt(databases.Add(1), 10)
	server, err := durable()
	if err != nil {
		b.Fatal(err)
	}
	admin, err := pgx.Connect(ctx, server.URL(""))
	if err != nil {
		b.Fatal(err)
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+name); err != nil {
		b.Fatal(err)
	}
	if err := migrations.Up(ctx, server.URL(name), slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	pool, err := ledger.Open(ctx, server.URL(name))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

// bill fills accounts and invoices for October.
func bill(b *testing.B, pool *pgxpool.Pool, n int) {
	b.Helper()
	for _, sql := range []string{
		`INSERT INTO billing.accounts (account_id, stripe_customer, payment_method, currency, name)
		 SELECT 'acc_' || lpad(i::text, 8, '0'), 'cus_' || i, 'pm_card_visa_' || i, 'usd', 'Customer number ' || i FROM generate_series(1, ` + strconv.Itoa(n) + `) i`,
		`INSERT INTO billing.invoices (job, period, account_id, amount, currency, description, source, content_hash)
		 SELECT 'monthly-billing', '2026-10', account_id, 10 + (row_number() OVER () % 9000) / 100.0, 'usd', 'October 2026', 'bench', '\x00' FROM billing.accounts`,
		`INSERT INTO billing.period_closes (job, period, closed_by, invoices, sums) VALUES ('monthly-billing', '2026-10', 'bench', 0, '{}')`,
		`VACUUM ANALYZE`,
	} {
		mustExec(b, pool, sql)
	}
}

func mustExec(b *testing.B, pool *pgxpool.Pool, sql string) time.Duration {
	b.Helper()
	started := time.Now()
	if _, err := pool.Exec(context.Background(), sql); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	return time.Since(started)
}

// benchRunner is a runner against an emulator.
func benchRunner(b *testing.B, pool *pgxpool.Pool, cfg stripeemu.Config, opts Options) (*Runner, *stripeemu.Server) {
	b.Helper()
	cfg.AnyCustomer = true
	emu := stripeemu.New(cfg)
	url, err := emu.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(emu.Close)
	client, err := gateway.New(gateway.Config{SecretKey: "sk_test_emulator", APIBase: url})
	if err != nil {
		b.Fatal(err)
	}
	opts.Job, opts.Period, opts.Location, opts.Owner, opts.Build = ledger.DefaultJob, "2026-10", time.UTC, "bench", "bench"
	opts.Lease, opts.Timeout, opts.SendsPerRun = DefaultLease, DefaultTimeout, DefaultSendsPerRun
	opts.Identify = func(context.Context) error { return nil }
	opts.ExitCode = func(error) int { return 0 }
	return NewRunner(pool, client, slog.New(slog.DiscardHandler), opts), emu
}

// Recording 1,000,000 charges, against a bare INSERT … SELECT of the same rows
// into a table like charges with its indexes.
func BenchmarkRecord(b *testing.B) {
	ctx := context.Background()
	n := benchRows()
	for range b.N {
		pool := benchLedger(b, "record")
		bill(b, pool, n)
		r, _ := benchRunner(b, pool, stripeemu.Config{}, Options{})
		if _, err := r.claim(ctx); err != nil {
			b.Fatal(err)
		}
		r.heart = &heart{pool: pool, run: r.run, lease: DefaultLease, log: r.log}
		peak := watchMemory()
		started := time.Now()
		if err := r.record(ctx); err != nil {
			b.Fatal(err)
		}
		ours := time.Since(started)
		b.ReportMetric(peak(), "peak-MB")
		mustExec(b, pool, `CREATE TABLE billing.bare (LIKE billing.charges INCLUDING ALL)`)
		mustExec(b, pool, `ALTER TABLE billing.bare ADD FOREIGN KEY (last_event) REFERENCES billing.charge_events (id)`)
		bare := mustExec(b, pool, `INSERT INTO billing.bare SELECT * FROM billing.charges`)
		b.ReportMetric(float64(n)/ours.Seconds(), "charges/s")
		b.ReportMetric(ours.Seconds()/bare.Seconds(), "x-bare-insert")
	}
}

// preview of 1,000,000 rows, against a bare pgx loop over the same rows.
func BenchmarkPreview(b *testing.B) {
	ctx := context.Background()
	n := benchRows()
	for range b.N {
		pool := benchLedger(b, "preview")
		bill(b, pool, n)
		peak := watchMemory()
		started := time.Now()
		plan, err := NewPreview(ctx, pool, PreviewOptions{Job: ledger.DefaultJob, Period: "2026-10", Limits: DefaultLimits})
		if err != nil || plan.Rows != int64(n) {
			b.Fatal(plan.Rows, err)
		}
		ours := time.Since(started)
		b.ReportMetric(peak(), "peak-MB")
		bare := bareRead(b, pool, n)
		b.ReportMetric(float64(n)/ours.Seconds(), "rows/s")
		b.ReportMetric(ours.Seconds()/bare.Seconds(), "x-bare-read")
	}
}

func bareRead(b *testing.B, pool *pgxpool.Pool, n int) time.Duration {
	b.Helper()
	started := time.Now()
	rows, err := pool.Query(context.Background(), `SELECT account_id, amount::text, currency, description, stripe_account, stripe_customer,
		payment_method, name, status FROM billing.billable WHERE job = 'monthly-billing' AND period = '2026-10' ORDER BY account_id COLLATE "C"`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	var f [9]string
	count := 0
	for rows.Next() {
		if err := rows.Scan(&f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8]); err != nil {
			b.Fatal(err)
		}
		count++
	}
	if count != n || rows.Err() != nil {
		b.Fatal(count, rows.Err())
	}
	return time.Since(started)
}

// run on a done period of 1,000,000 rows, against counting both sides.
func BenchmarkDonePeriod(b *testing.B) {
	ctx := context.Background()
	n := benchRows()
	for range b.N {
		pool := benchLedger(b, "done")
		bill(b, pool, n)
		r, emu := benchRunner(b, pool, stripeemu.Config{}, Options{})
		if _, err := r.claim(ctx); err != nil {
			b.Fatal(err)
		}
		r.heart = &heart{pool: pool, run: r.run, lease: DefaultLease, log: r.log}
		if err := r.record(ctx); err != nil {
			b.Fatal(err)
		}
		mustExec(b, pool, `INSERT INTO billing.charge_events (id, job, period, account_id, try, from_state, to_state, cause, person)
			SELECT row_number() OVER (), job, period, account_id, 1, 'pending', 'succeeded', 'person', 'bench' FROM billing.charges`)
		mustExec(b, pool, `UPDATE billing.charges c SET state = 'succeeded', payment_intent = 'pi_' || c.account_id, settled_at = billing.now(), last_event = e.id
			FROM billing.charge_events e WHERE e.account_id = c.account_id`)
		mustExec(b, pool, `UPDATE billing.job_runs SET state = 'done', finished_at = billing.now()`)
		mustExec(b, pool, `VACUUM ANALYZE billing.charges`)
		requests := emu.RequestCount()
		count := func() time.Duration {
			return mustExec(b, pool, `SELECT count(*) FROM billing.billable WHERE job = 'monthly-billing' AND period = '2026-10'`) +
				mustExec(b, pool, `SELECT count(*) FROM billing.charges WHERE job = 'monthly-billing' AND period = '2026-10'`)
		}
		count() // warm both
		started := time.Now()
		res, err := r.Run(ctx)
		ours := time.Since(started)
		if err != nil || !res.AlreadyDone || emu.RequestCount() != requests {
			b.Fatal(res.AlreadyDone, err)
		}
		b.ReportMetric(ours.Seconds(), "s/run")
		b.ReportMetric(ours.Seconds()/count().Seconds(), "x-bare-count")
	}
}

// Charging 20,000 rows against an emulator without latency, against a bare
// stripe-go loop of the same concurrency without a database.
func BenchmarkCharge(b *testing.B) {
	ctx := context.Background()
	const n, concurrency = 20_000, 32
	for range b.N {
		pool := benchLedger(b, "charge")
		bill(b, pool, n)
		r, emu := benchRunner(b, pool, stripeemu.Config{LogLimit: -1}, Options{Concurrency: concurrency})
		if _, err := r.claim(ctx); err != nil {
			b.Fatal(err)
		}
		r.heart = &heart{pool: pool, run: r.run, lease: DefaultLease, log: r.log}
		if err := r.record(ctx); err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		if err := r.charge(ctx, nil); err != nil {
			b.Fatal(err)
		}
		ours := time.Since(started)
		if got := emu.IntentCount(); got != n {
			b.Fatalf("%d payments", got)
		}
		bare := bareStripe(b, n, concurrency)
		b.ReportMetric(n/ours.Seconds(), "charges/s")
		b.ReportMetric(n/bare.Seconds(), "bare/s")
		b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%-of-bare")
	}
}

// bareStripe is what a program without a ledger does.
func bareStripe(b *testing.B, n, concurrency int) time.Duration {
	b.Helper()
	emu := stripeemu.New(stripeemu.Config{AnyCustomer: true, LogLimit: -1})
	url, err := emu.Start()
	if err != nil {
		b.Fatal(err)
	}
	defer emu.Close()
	client := stripe.NewClient("sk_test_emulator", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), EnableTelemetry: stripe.Bool(false), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}},
	})))
	var next atomic.Int64
	var done sync.WaitGroup
	started := time.Now()
	for range concurrency {
		done.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if err := bareCharge(client, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	return time.Since(started)
}

func bareCharge(client *stripe.Client, i int64) error {
	id := strconv.FormatInt(i, 10)
	p := &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(1000 + i%9000), Currency: stripe.String("usd"), Customer: stripe.String("cus_" + id),
		PaymentMethod: stripe.String("pm_card_visa_" + id), Confirm: stripe.Bool(true), OffSession: stripe.Bool(true),
		AutomaticPaymentMethods: &stripe.PaymentIntentCreateAutomaticPaymentMethodsParams{
			Enabled: stripe.Bool(true), AllowRedirects: stripe.String("never")},
		Description: stripe.String("October 2026"),
	}
	p.AddMetadata("billing_key", "monthly-billing/2026-10/"+id)
	p.SetIdempotencyKey("bare/" + id)
	_, err := client.V1PaymentIntents.Create(context.Background(), p)
	return err
}

// The configured rate is held: 100 a second against answers that take 200 ms,
// counted from the emulator's log between its first and last POST.
func BenchmarkRate(b *testing.B) {
	ctx := context.Background()
	const n, rate = 1500, 100
	for range b.N {
		pool := benchLedger(b, "rate")
		bill(b, pool, n)
		r, emu := benchRunner(b, pool, stripeemu.Config{Latency: 200 * time.Millisecond}, Options{Rate: rate})
		if _, err := r.claim(ctx); err != nil {
			b.Fatal(err)
		}
		r.heart = &heart{pool: pool, run: r.run, lease: DefaultLease, log: r.log}
		if err := r.record(ctx); err != nil {
			b.Fatal(err)
		}
		if err := r.charge(ctx, nil); err != nil {
			b.Fatal(err)
		}
		var first, last time.Time
		for _, q := range emu.Requests() {
			if q.Method != http.MethodPost {
				continue
			}
			if first.IsZero() {
				first = q.Arrived
			}
			last = q.Arrived
		}
		b.ReportMetric(100*float64(n-1)/last.Sub(first).Seconds()/rate, "%-of-rate")
	}
}

// watchMemory returns a function that tells the peak of this process's resident
// memory since, in MB. The emulator and the benchmark itself are in it.
func watchMemory() func() float64 {
	runtime.GC()
	stop, peak := make(chan struct{}), make(chan float64)
	go func() {
		highest := 0.0
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			highest = max(highest, residentMB())
			select {
			case <-stop:
				peak <- highest
				return
			case <-tick.C:
			}
		}
	}()
	return func() float64 { close(stop); return <-peak }
}

func residentMB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
