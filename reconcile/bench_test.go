package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// benchWorld is a ledger of October, sent yesterday, and a Stripe.
type benchWorld struct {
	b    *testing.B
	pool *pgxpool.Pool
	emu  *stripeemu.Server
	url  string
	work Work
	sent time.Time
}

const (
	// spread is the time in which a month was sent.
	spread  = 2 * time.Hour
	benchID = "acc_%07d"
)

func newBenchWorld(b *testing.B) *benchWorld {
	b.Helper()
	w := &benchWorld{b: b, pool: testdb.New(b).Pool, emu: stripeemu.New(stripeemu.Config{AnyCustomer: true, LogLimit: -1})}
	url, err := w.emu.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.emu.Close)
	w.url, w.sent = url, time.Now().Add(-26*time.Hour).Truncate(time.Second)
	var run ledger.Run
	err = ledger.InTx(b.Context(), w.pool, func(tx pgx.Tx) error {
		run, err = ledger.TakeClaim(b.Context(), tx, ledger.ClaimRequest{
			Job: ledger.DefaultJob, Period: "2026-10", RunID: uuid.New(), Owner: "bench", Build: "bench", Lease: time.Hour, Timeout: time.Hour, Location: time.UTC})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	w.work = Work{Period: "2026-10", Horizon: time.Now().Add(-200 * time.Hour), Run: &run, Pending: true}
	return w
}

// reconciler reads as often a second as it is told; 0 is without limit.
func (w *benchWorld) reconciler(rate float64, opts Options) *Reconciler {
	w.b.Helper()
	opts.Job, opts.OnAbsent = ledger.DefaultJob, PolicyCharge
	return New(w.pool, w.finder(rate), opts)
}

func (w *benchWorld) finder(rate float64) *gateway.Finder {
	w.b.Helper()
	if rate == 0 {
		rate = -1
	}
	client, err := gateway.New(gateway.Config{SecretKey: stripeemu.DefaultKey, APIBase: w.url, ReadRate: rate})
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(client.Close)
	return client.Finder()
}

// month is what was sent.
type month struct {
	charges int
	// unknown is true for charges whose answer was lost.
	unknown func(i int) bool
	// openSends and sentAgo are those of the unknown ones; 0 is 25 hours.
	openSends int
	sentAgo   time.Duration
	period    ledger.Period
}

// fill makes the ledger's side of a month.
func (w *benchWorld) fill(m month) {
	w.b.Helper()
	if m.period == "" {
		m.period = "2026-10"
	}
	unknown := make([]bool, m.charges)
	for i := range unknown {
		unknown[i] = m.unknown != nil && m.unknown(i)
	}
	_, err := w.pool.Exec(w.b.Context(), `
		INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			stripe_customer, window_opened_at, sends, open_sends, last_sent_at, payment_intent, settled_at, recorded_by, created_at)
		SELECT 'monthly-billing', $1, a, k, 10, 'usd', 1000, CASE WHEN unknown THEN 'pending' ELSE 'succeeded' END, k, 'x', sha256('x'), 'cus_' || n,
			least(at - interval '1 hour', at - $5::interval), 1, CASE WHEN unknown THEN $4::int ELSE 0 END, at - CASE WHEN unknown THEN $5::interval ELSE interval '0' END,
			CASE WHEN NOT unknown THEN 'pi_' || replace($1, '-', '') || n END, CASE WHEN NOT unknown THEN at END, gen_random_uuid(), at
		FROM (SELECT unknown, n, 'acc_' || lpad(n::text, 7, '0') AS a, 'monthly-billing/' || $1 || '/acc_' || lpad(n::text, 7, '0') AS k,
				$3::timestamptz + n * interval '2 hours' / cardinality($2::boolean[]) AS at
			FROM unnest($2::boolean[]) WITH ORDINALITY u (unknown, n)) rows`,
		string(m.period), unknown, w.sent, m.openSends, m.sentAgo)
	if err != nil {
		w.b.Fatal(err)
	}
	if _, err := w.pool.Exec(w.b.Context(), `VACUUM ANALYZE billing.charges`); err != nil {
		w.b.Fatal(err)
	}
}

// paidAt makes Stripe's side of some charges, numbered from 0 as in a month of n.
func (w *benchWorld) paidAt(period ledger.Period, n int, exists func(i int) bool) {
	w.b.Helper()
	for i := range n {
		if !exists(i) {
			continue
		}
		number, account := strconv.Itoa(i+1), fmt.Sprintf(benchID, i+1)
		w.emu.AddIntent(stripeemu.PaymentIntent{
			ID: "pi_" + string(period[:4]) + string(period[5:]) + number, Customer: "cus_" + number, Amount: 1000, Currency: "usd",
			Created: w.sent.Add(time.Duration(i+1) * spread / time.Duration(n)),
			Metadata: map[string]string{"billing_key": ledger.BillingKey(ledger.DefaultJob, period, account), "billing_job": string(ledger.DefaultJob),
				"billing_period": string(period), "billing_account": account, "billing_try": "1"},
		})
	}
}

func every(int) bool { return true }

func scatteredOnes(i int) bool { return i%21 == 7 }

// A thousand unknown charges scattered over twenty thousand known ones: at most 0.2
// calls for each that exists, and 1.2 for each that does not.
func BenchmarkScattered(b *testing.B) {
	const n = 21_000
	for _, test := range []struct {
		name      string
		exists    bool
		openSends int
		sentAgo   time.Duration
		outcome   Outcome
		bound     float64
	}{
		{"exists", true, 1, 0, OutcomeSucceeded, 0.2},
		{"missing/429", false, 0, 0, OutcomeRenewed, 1.2},
		{"missing/lost", false, 1, 0, OutcomeWaiting, 1.2},
		{"missing/lost-73h", false, 1, 73 * time.Hour, OutcomeRenewed, 1.2},
	} {
		for _, older := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/older-payment=%t", test.name, older), func(b *testing.B) {
				for range b.N {
					w := newBenchWorld(b)
					w.fill(month{charges: n, unknown: scatteredOnes, openSends: test.openSends, sentAgo: test.sentAgo})
					if older {
						w.fill(month{charges: n, period: "2026-09"})
						w.paidAt("2026-09", n, scatteredOnes)
					}
					w.paidAt("2026-10", n, func(i int) bool { return !scatteredOnes(i) || test.exists })
					report, err := w.reconciler(0, Options{}).Look(b.Context(), w.work)
					if err != nil || report.Counts[test.outcome] != n/21 {
						b.Fatal(report, err)
					}
					calls := float64(report.Calls.All()) / (n / 21)
					b.ReportMetric(calls, "calls/charge")
					bound := test.bound
					if test.sentAgo > 0 && !older {
						bound++ // whether the customer is still there: only an empty list speaks for the absence
					}
					if calls > bound {
						b.Errorf("%.3f calls a charge, at most %.1f: %+v", calls, bound, report.Calls)
					}
				}
			})
		}
	}
}

// Nineteen of twenty thousand unknown: everything is read once, whether the
// payments exist or not.
func BenchmarkMostUnknown(b *testing.B) {
	const n = 20_000
	unknown := func(i int) bool { return i%20 != 0 }
	for name, exists := range map[string]func(i int) bool{"exist": every, "half-missing": func(i int) bool { return !unknown(i) || i%2 == 0 }} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				w := newBenchWorld(b)
				w.fill(month{charges: n, unknown: unknown, openSends: 1})
				w.paidAt("2026-10", n, exists)
				report, err := w.reconciler(0, Options{}).Look(b.Context(), w.work)
				if err != nil || report.Looked != n*19/20 || report.Counts[OutcomeSucceeded] == 0 {
					b.Fatal(report, err)
				}
				b.ReportMetric(float64(report.Calls.All()), "calls")
				if bound := int64(w.emu.IntentCount()/100 + 10); report.Calls.All() > bound {
					b.Errorf("%d calls, at most %d: %+v", report.Calls.All(), bound, report.Calls)
				}
			}
		})
	}
}

// The configured read rate is reached, against a bare loop of as many reads under
// the same limit and latency.
func BenchmarkReadRate(b *testing.B) {
	for _, speed := range []struct {
		rate    float64
		latency time.Duration
	}{{gateway.DefaultReadRate, 300 * time.Millisecond}, {100, 80 * time.Millisecond}} {
		at := fmt.Sprintf("%.0f-a-second-%s", speed.rate, speed.latency)
		lists := int(speed.rate * 8)
		b.Run("one-by-one/"+at, func(b *testing.B) {
			for range b.N {
				w := newBenchWorld(b)
				w.fill(month{charges: lists, unknown: every})
				r := w.reconciler(speed.rate, Options{NoSearch: true})
				r.judge = newJudge()
				r.noSearch.Store(true)
				w.compareRate(r, speed.rate, speed.latency, false, func() error {
					_, err := r.scattered(b.Context(), w.work, "")
					return err
				})
			}
		})
		b.Run("span/"+at, func(b *testing.B) {
			n := lists * 100
			for range b.N {
				w := newBenchWorld(b)
				w.fill(month{charges: n, unknown: func(i int) bool { return i%100 == 0 }, openSends: 1})
				w.paidAt("2026-10", n, every)
				r := w.reconciler(speed.rate, Options{})
				r.judge = newJudge()
				w.compareRate(r, speed.rate, speed.latency, true, func() error {
					return r.span(b.Context(), w.work, "", way{span: true, all: int64(lists)}, nil)
				})
			}
		})
	}
}

// compareRate times a look and as many bare reads.
func (w *benchWorld) compareRate(r *Reconciler, rate float64, latency time.Duration, full bool, look func() error) {
	w.b.Helper()
	w.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "GET", Delay: latency})
	started := time.Now()
	if err := look(); err != nil {
		w.b.Fatal(err)
	}
	ours := time.Since(started)
	calls := r.calls.count().All()
	bare := w.bareReads(calls, rate, full)
	w.b.ReportMetric(float64(calls), "calls")
	w.b.ReportMetric(100*float64(calls)/ours.Seconds()/rate, "%-of-rate")
	w.b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%-of-bare")
}

// bareReads reads n lists, many at once, and looks at nothing: of customers, or of
// the moments of which each has a page of payments.
func (w *benchWorld) bareReads(n int64, rate float64, full bool) time.Duration {
	w.b.Helper()
	finder := w.finder(rate)
	var next atomic.Int64
	var readers sync.WaitGroup
	started := time.Now()
	for range 64 {
		readers.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				q := gateway.ListQuery{Customer: "cus_none_" + strconv.FormatInt(i, 10), CreatedFrom: w.work.Horizon}
				if full {
					moment := spread / time.Duration(n)
					from := w.sent.Add(time.Duration(i-1) * moment)
					// A second less, so that it is one page.
					q = gateway.ListQuery{CreatedFrom: from, CreatedTo: from.Add(moment - time.Second).Truncate(time.Second)}
				}
				if err := finder.List(context.Background(), q); err != nil {
					w.b.Error(err)
					return
				}
			}
		})
	}
	readers.Wait()
	return time.Since(started)
}

// The memory of a look does not grow with the month: what is live while 200,000
// charges are looked up, against 20,000.
func BenchmarkSpanMemory(b *testing.B) {
	for range b.N {
		small, large := liveHeap(b, 20_000), liveHeap(b, 200_000)
		b.ReportMetric(small, "MB-of-20k")
		b.ReportMetric(large, "MB-of-200k")
		b.ReportMetric(large/small, "x-memory-for-10x-charges")
	}
}

// liveHeap is the most memory, in MB, that a look at n charges keeps, besides what
// the emulator and the benchmark had before.
func liveHeap(b *testing.B, n int) float64 {
	b.Helper()
	w := newBenchWorld(b)
	w.fill(month{charges: n, unknown: every, openSends: 1})
	w.paidAt("2026-10", n, every)
	before := heapMB()
	highest := 0.0
	probe := func(phase string, done, _ int64) {
		if phase == "look" && done%int64(n/1000) == 0 {
			highest = max(highest, heapMB()-before)
		}
	}
	var one sync.Mutex
	report, err := w.reconciler(0, Options{Progress: func(phase string, done, total int64) {
		one.Lock()
		defer one.Unlock()
		probe(phase, done, total)
	}}).Look(b.Context(), w.work)
	if err != nil || report.Counts[OutcomeSucceeded] != int64(n) {
		b.Fatal(report, err)
	}
	return highest
}

// heapMB is what is live, after everything else was swept away.
func heapMB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
