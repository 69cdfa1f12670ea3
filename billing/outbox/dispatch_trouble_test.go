package outbox_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/fixtures/testdb"
)

// An ingress that turns everything away while its service is replaced says nothing about
// the messages: at most three of them die of it, however long it goes on.
func TestAReceiverThatTurnsAllAwayKillsFewMessages(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			var answer atomic.Int64
			answer.Store(int64(status))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) }))
			t.Cleanup(server.Close)
			fill(t, db, server.URL, 200)
			lane := webhooks(server.URL, benchSender(t))
			for range 4 {
				dispatch(t, db, outbox.Options{}, lane)
				db.Advance(time.Hour)
			}
			dead := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'dead'`)
			if dead < 1 || dead > 3 {
				t.Errorf("%d messages died, want one to three", dead)
			}
			answer.Store(http.StatusNoContent)
			dispatch(t, db, outbox.Options{}, lane)
			if sent := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'sent'`); sent != 200-dead {
				t.Errorf("%d were sent once it was back, want %d", sent, 200-dead)
			}
		})
	}
}

// Two in a row that are turned away, and a success after them, are the messages' own
// fault, as often as it happens.
func TestMessagesThatAreTurnedAwayOneByOneDie(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 != 0 {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	fill(t, db, server.URL, 12)
	lane := webhooks(server.URL, benchSender(t))
	lane.Concurrency = 1
	dispatch(t, db, outbox.Options{}, lane)
	if dead := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'dead'`); dead != 8 {
		t.Errorf("%d are dead, want 8", dead)
	}
}

// limited is a receiver that answers the first n requests with 429.
func limited(t *testing.T, n int64, after string) (outbox.LaneSender, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= n {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	return webhooks(server.URL, benchSender(t)), &asked
}

func failures(t *testing.T, db *testdb.DB) int {
	t.Helper()
	return read[int](t, db, `SELECT coalesce(max(failures), 0) FROM billing.outbox_lanes`)
}

// Too fast is no failure: a short wait is waited out by the same process, also without
// --wait-due, and all is sent.
func TestARateLimitIsWaitedOut(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"", "1"} {
		db := testdb.New(t)
		lane, _ := limited(t, 3, after)
		fill(t, db, lane.Endpoint, 20)
		dispatch(t, db, outbox.Options{}, lane)
		if sent := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'sent'`); sent != 20 || failures(t, db) != 0 {
			t.Errorf("Retry-After %q: %d of 20 are sent, and %d failures of the lane counted", after, sent, failures(t, db))
		}
	}
}

// A long one is left to a later process; one that never ends is a failure.
func TestARateLimitHoldsNoProcessForLong(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	lane, asked := limited(t, 1000, "60")
	fill(t, db, lane.Endpoint, 20)
	dispatch(t, db, outbox.Options{}, lane)
	if n := asked.Load(); n > outbox.DefaultConcurrency || failures(t, db) != 0 {
		t.Errorf("it was asked %d times, and %d failures of the lane counted", n, failures(t, db))
	}
	db = testdb.New(t)
	lane, asked = limited(t, 1000, "")
	lane.Concurrency = 1
	fill(t, db, lane.Endpoint, 20)
	dispatch(t, db, outbox.Options{}, lane)
	if n := asked.Load(); n < 2 || n > 10 || failures(t, db) != 1 {
		t.Errorf("it was asked %d times, and %d failures of the lane counted, want some and 1", n, failures(t, db))
	}
}

// A receiver that fails while two groups of one process are on their way failed once.
func TestTwoGroupsCountOneFailureOfTheirReceiver(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 3000)
	var calls, failing atomic.Int64
	both := make(chan struct{})
	dispatch(t, db, outbox.Options{}, outbox.LaneSender{Lane: outbox.Lane(endpoint), Concurrency: 8, Sender: senderFunc(func(outbox.Message) outbox.Outcome {
		if calls.Add(1) <= 500 {
			return outbox.Outcome{Verdict: outbox.Sent}
		}
		// Each of the two has four workers.
		if failing.Add(1) == 5 {
			close(both)
		}
		<-both
		return outbox.Outcome{Verdict: outbox.Temporary, Reason: "no_connection"}
	})})
	if n := failures(t, db); n != 1 {
		t.Errorf("%d failures are counted, want 1", n)
	}
}

// statements counts what a pool asks.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A message that somebody else has locked is asked for again at leisure.
func TestALockedMessageIsNotHammered(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 1)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM billing.outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	config, asked := db.Pool.Config(), new(statements)
	config.ConnConfig.Tracer = asked
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	_, err = outbox.NewDispatcher(pool, outbox.Options{}).Run(ctx, []outbox.LaneSender{{Lane: outbox.Lane(endpoint), Sender: senderFunc(
		func(outbox.Message) outbox.Outcome { return outbox.Outcome{Verdict: outbox.Sent} })}})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if n := asked.n.Load(); n == 0 || n > 60 {
		t.Errorf("%d statements in 1.5 s for one message that is locked", n)
	}
}
