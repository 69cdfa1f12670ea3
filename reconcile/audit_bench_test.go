package reconcile

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// An audit's memory is flat: of ten times the payments it holds no more at a time. It
// prints calls and the heap's peak beyond what the emulator needs for its objects.
func BenchmarkAudit(b *testing.B) {
	for _, payments := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(payments), func(b *testing.B) {
			w := newBenchWorld(b)
			w.paid(payments)
			peak := heapPeak{}
			peak.start()
			rec := w.reconciler(0, Options{Alive: peak.look})
			b.ResetTimer()
			for b.Loop() {
				report, err := rec.Audit(b.Context(), AuditWork{Period: w.work.Period, Horizon: w.work.Horizon, Owner: "bench", Lease: time.Hour})
				if err != nil || report.Count() != 0 || report.Compared != int64(payments) {
					b.Fatalf("%+v, %v", report, err)
				}
				b.ReportMetric(float64(report.Calls), "calls")
				b.ReportMetric(float64(payments)/float64(report.Calls), "payments/call")
			}
			b.ReportMetric(float64(peak.most.Load()-peak.before)/1e6, "MB-peak")
		})
	}
}

// heapPeak is the most memory in use while something works.
type heapPeak struct {
	before int64
	looks  atomic.Int64
	most   atomic.Int64
}

func (h *heapPeak) start() { runtime.GC(); h.before = inUse() }

func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// look measures now and then: it stops the world.
func (h *heapPeak) look() {
	if h.looks.Add(1)%8 != 0 {
		return
	}
	runtime.GC()
	for now := inUse(); ; {
		most := h.most.Load()
		if now <= most || h.most.CompareAndSwap(most, now) {
			return
		}
	}
}

// paid puts a month of payments there on both sides.
func (w *benchWorld) paid(n int) {
	w.b.Helper()
	step := spread / time.Duration(n)
	for i := range n {
		id := fmt.Sprintf(benchID, i)
		w.emu.AddIntent(stripeemu.PaymentIntent{
			ID: "pi_" + id, Customer: "cus_" + id, Amount: 4900, Created: w.sent.Add(step * time.Duration(i)),
			Metadata: map[string]string{
				"billing_key": ledger.BillingKey(ledger.DefaultJob, w.work.Period, id), "billing_job": string(ledger.DefaultJob),
				"billing_period": string(w.work.Period), "billing_account": id, "billing_try": "1",
			},
		})
	}
	_, err := w.pool.Exec(w.b.Context(), sqlBenchPaid, ledger.DefaultJob, w.work.Period, n, w.sent, step, w.work.Run.RunID)
	if err != nil {
		w.b.Fatal(err)
	}
}

const sqlBenchPaid = `
INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
    stripe_customer, window_opened_at, sends, last_sent_at, payment_intent, stripe_status, settled_at, recorded_by, created_at)
SELECT $1, $2, id, $1 || '/' || $2 || '/' || id, 49, 'usd', 4900, 'succeeded', $1 || '/' || $2 || '/' || id, 'amount=4900', sha256('amount=4900'),
    'cus_' || id, at, 1, at, 'pi_' || id, 'succeeded', at, $6, at
FROM generate_series(0, $3 - 1) n, LATERAL (SELECT 'acc_' || lpad(n::text, 7, '0') AS id, $4::timestamptz + n * $5::interval AS at) x`
