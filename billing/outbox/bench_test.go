package outbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/fixtures/testdb"
)

const benchSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// fill queues n webhooks for an endpoint, as large as those of a charge.
func fill(t testing.TB, db *testdb.DB, endpoint string, n int) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox (dedupe_key, kind, channel, lane, destination, job, period, payload)
		SELECT 'charge.succeeded/' || $1 || '/' || i, 'charge.succeeded', 'webhook', $1, $1, 'j', '2026-10', $2 || i || '"}'
		FROM generate_series(1, $3) i`, outbox.Lane(endpoint), `{"type":"charge.succeeded","filler":"`+strings.Repeat("x", 350), n)
	if err != nil {
		t.Fatal(err)
	}
}

func benchSender(t testing.TB) *outbox.Webhook {
	t.Helper()
	s, err := outbox.NewWebhook(outbox.WebhookConfig{
		Secrets: []string{benchSecret}, AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// webhooks is the lane of an endpoint.
func webhooks(endpoint string, sender outbox.Sender) outbox.LaneSender {
	return outbox.LaneSender{Lane: outbox.Lane(endpoint), Endpoint: endpoint, Sender: sender}
}

func counting(t testing.TB) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got.Add(1) }))
	t.Cleanup(server.Close)
	return server, &got
}

// bare is a loop of the same requests from the same senders, without a database.
func bare(t testing.TB, sender outbox.Sender, url string, n, workers int) time.Duration {
	t.Helper()
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	body := []byte(`{"type":"charge.succeeded","filler":"` + strings.Repeat("x", 350) + `"}`)
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if o := sender.Send(context.Background(), outbox.Message{ID: i, DedupeKey: fmt.Sprint(i), Destination: url, Body: body}); o.Verdict != outbox.Sent {
					t.Errorf("not sent: %+v", o)
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// 100,000 messages to a receiver without latency, against a bare loop of the same
// sends; and the same beside 100,000 that wait for a receiver that is dead, as a part of
// what goes through without those.
func BenchmarkDispatch(b *testing.B) {
	const n = 100_000
	for range b.N {
		b.StopTimer()
		sender := benchSender(b)
		server, got := counting(b)
		loop := float64(n) / bare(b, sender, server.URL, n, outbox.DefaultConcurrency).Seconds()
		got.Store(0)
		b.StartTimer()
		alone := dispatched(b, server.URL, n, 0)
		beside := dispatched(b, server.URL, n, n)
		if got.Load() != 2*n {
			b.Fatalf("%d arrived, want %d", got.Load(), 2*n)
		}
		b.ReportMetric(alone, "alone/s")
		b.ReportMetric(beside, "beside-dead/s")
		b.ReportMetric(beside/alone, "beside-dead-of-alone")
		b.ReportMetric(loop, "bare/s")
		b.ReportMetric(alone/loop, "alone-of-bare")
	}
}

// dispatched is how many messages a second arrive at an endpoint, beside some for a dead
// one.
func dispatched(b *testing.B, endpoint string, n, dead int) float64 {
	b.Helper()
	const nobody = "http://127.0.0.1:1/"
	b.StopTimer()
	db, sender := testdb.New(b), benchSender(b)
	fill(b, db, endpoint, n)
	lanes := []outbox.LaneSender{webhooks(endpoint, sender)}
	if dead > 0 {
		fill(b, db, nobody, dead)
		lanes = append(lanes, webhooks(nobody, sender))
	}
	b.StartTimer()
	began := time.Now()
	if _, err := outbox.NewDispatcher(db.Pool, outbox.Options{}).Run(b.Context(), lanes); err != nil {
		b.Fatal(err)
	}
	return float64(n) / time.Since(began).Seconds()
}
