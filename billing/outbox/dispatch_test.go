package outbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

func read[T any](t testing.TB, db *testdb.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func dispatch(t testing.TB, db *testdb.DB, o outbox.Options, lanes ...outbox.LaneSender) map[string]outbox.LaneReport {
	t.Helper()
	reports, err := outbox.NewDispatcher(db.Pool, o).Run(t.Context(), lanes)
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

// T63: what can never be delivered is tried once and dead, with what the receiver said;
// what may be is queued for a later try; what is gone stops its endpoint.
func TestPermanentAndTemporaryAreToldApart(t *testing.T) {
	t.Parallel()
	db, sender := testdb.New(t), benchSender(t)
	var asked sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := asked.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("Location", "/200")
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(code)
		fmt.Fprintf(w, "no, %d\n", code)
	}))
	t.Cleanup(server.Close)
	var lanes []outbox.LaneSender
	want := map[string]string{
		"200": "sent", "301": "dead http_301 no, 301", "400": "dead http_400 no, 400", "404": "dead http_404 no, 404", "409": "queued http_409 no, 409",
		"410": "dead http_410 no, 410 stopped", "422": "dead http_422 no, 422", "429": "queued http_429 no, 429", "500": "queued http_500 no, 500",
		"503": "queued http_503 no, 503",
	}
	for code := range want {
		fill(t, db, server.URL+"/"+code, 1)
		lanes = append(lanes, webhooks(server.URL+"/"+code, sender))
	}
	dispatch(t, db, outbox.Options{}, lanes...)
	for code, state := range want {
		lane := outbox.Lane(server.URL + "/" + code)
		got := read[string](t, db, `SELECT concat_ws(' ', o.state, nullif(o.reason, ''), nullif(o.answer, ''), CASE WHEN l.stopped_at IS NOT NULL THEN 'stopped' END)
			FROM billing.outbox o LEFT JOIN billing.outbox_lanes l ON l.lane = o.lane WHERE o.lane = $1`, lane)
		n, there := asked.Load("/" + code)
		if got != state || !there || n.(*atomic.Int64).Load() != 1 {
			t.Errorf("%s: %s, want %s; asked %v", code, got, state, n)
		}
	}
	if !read[bool](t, db, `SELECT bool_and(next_at >= billing.now() + interval '119 minutes') FROM billing.outbox WHERE lane = $1`, outbox.Lane(server.URL+"/429")) {
		t.Error("Retry-After of two hours is not kept")
	}
}

// senderFunc is a receiver that is no server.
type senderFunc func(outbox.Message) outbox.Outcome

func (f senderFunc) Send(_ context.Context, m outbox.Message) outbox.Outcome { return f(m) }

// A message that its receiver can't take delays no other of the same receiver.
func TestAPoisonedMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 500)
	first := "charge.succeeded/" + outbox.Lane(endpoint) + "/"
	dispatch(t, db, outbox.Options{}, outbox.LaneSender{Lane: outbox.Lane(endpoint), Sender: senderFunc(func(m outbox.Message) outbox.Outcome {
		if m.DedupeKey == first+"3" || m.DedupeKey == first+"4" {
			return outbox.Outcome{Verdict: outbox.Temporary, Reason: "http_500"}
		}
		return outbox.Outcome{Verdict: outbox.Sent}
	})})
	if sent := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'sent'`); sent != 498 {
		t.Errorf("%d were sent beside two that failed, want 498", sent)
	}
}

// A dead receiver is asked a few times and then left alone, by every sender; its
// messages do not count a try that was not made.
func TestADeadReceiverIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 300)
	var calls atomic.Int64
	dead := outbox.LaneSender{Lane: outbox.Lane(endpoint), Sender: senderFunc(func(outbox.Message) outbox.Outcome {
		calls.Add(1)
		return outbox.Outcome{Verdict: outbox.Temporary, Reason: "no_connection"}
	})}
	dispatch(t, db, outbox.Options{}, dead)
	dispatch(t, db, outbox.Options{}, dead)
	if n := calls.Load(); n < 3 || n > 2+outbox.DefaultConcurrency {
		t.Errorf("it was asked %d times, want three, or more only where they were on their way together", n)
	}
	if tries := read[int64](t, db, `SELECT sum(tries) FROM billing.outbox`); tries != calls.Load() {
		t.Errorf("%d tries are counted, and %d were made", tries, calls.Load())
	}
	db.Advance(time.Hour)
	before := calls.Load()
	dispatch(t, db, outbox.Options{}, dead)
	if n := calls.Load() - before; n != 1 {
		t.Errorf("an hour later it was asked %d times, want once", n)
	}
}

// A sender that was killed leaves its messages to the next one once its lease is over,
// and not before; what it had may have arrived, and after 23 hours is not sent again.
func TestAKilledSendersMessagesAreGoneOnWith(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 3)
	err := ledger.InQueueTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := ledger.ClaimMessages(t.Context(), tx, ledger.MessageClaim{Lane: outbox.Lane(endpoint), Owner: uuid.New(), Rows: 2, Lease: outbox.Lease})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	lane := outbox.LaneSender{Lane: outbox.Lane(endpoint), Sender: senderFunc(func(outbox.Message) outbox.Outcome {
		calls.Add(1)
		return outbox.Outcome{Verdict: outbox.Sent}
	})}
	dispatch(t, db, outbox.Options{}, lane)
	if calls.Swap(0) != 1 {
		t.Fatal("it took what another sender has, or not what was free")
	}
	clone := db.Clone(t)
	db.Advance(6 * time.Minute)
	dispatch(t, db, outbox.Options{}, lane)
	if calls.Load() != 2 {
		t.Errorf("%d were sent after the lease, want 2", calls.Load())
	}
	clone.Advance(24 * time.Hour)
	dispatch(t, clone, outbox.Options{Twice: []string{"receipt"}}, lane)
	if dead := read[int](t, clone, `SELECT count(*) FROM billing.outbox WHERE state = 'dead' AND reason = 'unknown'`); calls.Load() != 2 || dead != 2 {
		t.Errorf("%d calls, %d dead letters a day later", calls.Load(), dead)
	}
	if _, err := clone.Pool.Exec(t.Context(), `UPDATE billing.outbox SET state = 'queued', settled_at = NULL WHERE state = 'dead'`); err != nil {
		t.Fatal(err)
	}
	dispatch(t, clone, outbox.Options{Twice: []string{"charge.succeeded"}}, lane)
	if calls.Load() != 4 {
		t.Errorf("%d calls; this kind is rather sent twice than never", calls.Load())
	}
}

// A receiver that dies in the middle of a large group is not asked for the rest of it.
func TestAReceiverThatDiesIsNotAskedForTheRest(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 3000)
	var calls, failed atomic.Int64
	dispatch(t, db, outbox.Options{}, outbox.LaneSender{Lane: outbox.Lane(endpoint), Sender: senderFunc(func(outbox.Message) outbox.Outcome {
		if calls.Add(1) <= 1500 {
			return outbox.Outcome{Verdict: outbox.Sent}
		}
		failed.Add(1)
		return outbox.Outcome{Verdict: outbox.Temporary, Reason: "no_connection"}
	})})
	if n := failed.Load(); n < 3 || n > 2+outbox.DefaultConcurrency {
		t.Errorf("it was asked %d times after it died", n)
	}
}

// A key that is refused costs no message a try, and ends the work on the lane.
func TestARefusedKeyCostsNoTry(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 50)
	lane := outbox.Lane(endpoint)
	reports := dispatch(t, db, outbox.Options{}, outbox.LaneSender{Lane: lane, Concurrency: 1, Sender: senderFunc(func(outbox.Message) outbox.Outcome {
		return outbox.Outcome{Verdict: outbox.Stop, Reason: "unauthorized"}
	})})
	untouched := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'queued' AND tries = 0 AND open_tries = 0 AND first_try_at IS NULL AND lease_until IS NULL`)
	if reports[lane].Refused != "unauthorized" || untouched != 50 {
		t.Errorf("%+v, %d untouched", reports[lane], untouched)
	}
}

// A message for which the key is refused goes to the end of the queue: it is tried again
// by the next sender, and keeps no other back.
func TestARefusedMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 20)
	first := "charge.succeeded/" + outbox.Lane(endpoint) + "/1"
	lane := outbox.LaneSender{Lane: outbox.Lane(endpoint), Concurrency: 1, Sender: senderFunc(func(m outbox.Message) outbox.Outcome {
		if m.DedupeKey == first {
			return outbox.Outcome{Verdict: outbox.Stop, Reason: "http_403"}
		}
		return outbox.Outcome{Verdict: outbox.Sent}
	})}
	dispatch(t, db, outbox.Options{}, lane)
	dispatch(t, db, outbox.Options{}, lane)
	sent := read[int](t, db, `SELECT count(*) FROM billing.outbox WHERE state = 'sent'`)
	if tries := read[int](t, db, `SELECT tries FROM billing.outbox WHERE state = 'queued'`); sent != 19 || tries != 0 {
		t.Errorf("%d of 19 are sent, and %d tries counted for the other", sent, tries)
	}
}

// A message never changes, and what was sent stays sent.
func TestMessagesAreFrozen(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	fill(t, db, "https://hooks.example.com/", 1)
	for _, sql := range []string{
		`UPDATE billing.outbox SET payload = 'x'`, `UPDATE billing.outbox SET dedupe_key = 'x'`, `UPDATE billing.outbox SET destination = 'x'`,
		`DELETE FROM billing.outbox`, `TRUNCATE billing.outbox CASCADE`,
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was done", sql)
		}
	}
	dispatch(t, db, outbox.Options{}, outbox.LaneSender{Lane: outbox.Lane("https://hooks.example.com/"),
		Sender: senderFunc(func(outbox.Message) outbox.Outcome { return outbox.Outcome{Verdict: outbox.Sent} })})
	if _, err := db.Pool.Exec(t.Context(), `UPDATE billing.outbox SET state = 'queued', settled_at = NULL`); err == nil {
		t.Error("a message that was sent was queued again")
	}
	if state := read[ledger.MessageState](t, db, `SELECT state FROM billing.outbox`); state != ledger.MessageSent {
		t.Errorf("it is %s", state)
	}
}

// Nothing is claimed whose turn, by the rate, comes when the lease is over: another
// sender would have it by then.
func TestASlowLaneClaimsNoMoreThanItsLeaseIsLong(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const endpoint = "https://hooks.example.com/"
	fill(t, db, endpoint, 50)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var claimed atomic.Int64
	_, err := outbox.NewDispatcher(db.Pool, outbox.Options{}).Run(ctx, []outbox.LaneSender{{
		Lane: outbox.Lane(endpoint), Rate: 0.01, Sender: senderFunc(func(outbox.Message) outbox.Outcome {
			claimed.Store(read[int64](t, db, `SELECT count(*) FROM billing.outbox WHERE lease_until > billing.now()`))
			cancel()
			return outbox.Outcome{Verdict: outbox.Sent}
		}),
	}})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if n := claimed.Load(); n != 1 {
		t.Errorf("%d messages were claimed at one in 100 seconds, want 1", n)
	}
}
