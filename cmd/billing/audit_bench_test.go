package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// An audit's memory is flat: it holds the pages that it reads at the same time, which
// are nine in a large month, and nothing of the month. It prints the program's peak,
// and how many payments a call to Stripe reads.
func BenchmarkAudit(b *testing.B) {
	for _, payments := range []int{20_000, 60_000, 180_000} {
		b.Run(fmt.Sprint(payments), func(b *testing.B) {
			o := newOffice(b, stripeemu.Config{AnyCustomer: true, LogLimit: -1})
			o.env["BILLING_READ_RATE"], o.env["BILLING_LEASE"] = "0", "10m"
			o.paidMonth(payments)
			before := o.emu.Count("GET *")
			for b.Loop() {
				p := o.start("reconcile", "--period", october, "--audit")
				b.ReportMetric(p.Resident(), "MiB-peak")
				if r := p.wait(); r.code != 0 {
					b.Fatal(r)
				}
			}
			b.ReportMetric(float64(payments)/float64(o.emu.Count("GET *")-before), "payments/call")
		})
	}
}

// paidMonth puts an October of n payments there, on both sides.
func (o *office) paidMonth(n int) {
	o.t.Helper()
	sent, step := o.emu.Now().Add(-26*time.Hour), 20*time.Hour/time.Duration(n)
	for i := range n {
		id := fmt.Sprintf("acc_%07d", i)
		o.emu.AddIntent(stripeemu.PaymentIntent{
			ID: "pi_" + id, Customer: "cus_" + id, Amount: 4900, Created: sent.Add(step * time.Duration(i)),
			Metadata: map[string]string{
				"billing_key": ledger.BillingKey(ledger.DefaultJob, october, id), "billing_job": string(ledger.DefaultJob),
				"billing_period": october, "billing_account": id, "billing_try": "1",
			},
		})
	}
	o.exec(sqlPaidMonth, ledger.DefaultJob, october, n, sent, step)
}

const sqlPaidMonth = `
INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
    stripe_customer, window_opened_at, sends, last_sent_at, payment_intent, stripe_status, settled_at, recorded_by, created_at)
SELECT $1, $2, id, $1 || '/' || $2 || '/' || id, 49, 'usd', 4900, 'succeeded', $1 || '/' || $2 || '/' || id, 'amount=4900', sha256('amount=4900'),
    'cus_' || id, at, 1, at, 'pi_' || id, 'succeeded', at, '00000000-0000-0000-0000-000000000001', at
FROM generate_series(0, $3 - 1) n, LATERAL (SELECT 'acc_' || lpad(n::text, 7, '0') AS id, $4::timestamptz + n * $5::interval AS at) x`
