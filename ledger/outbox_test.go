package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/office"
	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// threeMessages queues three that lie in the table in the opposite order of their ids.
func threeMessages(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox (id, dedupe_key, kind, channel, lane, destination, job, period, payload,
			state, reason, settled_at)
		SELECT i, 'k' || i, 'receipt', 'email', 'email', 'a@example.com', 'j', '2026-10', '{}', 'dead', 'unknown', billing.now()
		FROM generate_series(3, 1, -1) i`); err != nil {
		t.Fatal(err)
	}
	return db
}

// begin opens a transaction that ends with the test.
func begin(t *testing.T, db *testdb.DB) pgx.Tx {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// waiting counts who waits for a lock.
func waiting(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

// Two senders that have had the same messages, one after the other's lease, and a person
// who moves them: whoever comes second waits for the first, and none for each other,
// though each names them, or finds them, in another order.
func TestMessagesAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	everyone := map[string]func(context.Context, pgx.Tx) error{
		"a sender": func(ctx context.Context, tx pgx.Tx) error { return recordSent(ctx, tx, 1, 2, 3) },
		"another":  func(ctx context.Context, tx pgx.Tx) error { return recordSent(ctx, tx, 3, 2, 1) },
		"who drops": func(ctx context.Context, tx pgx.Tx) error {
			_, err := ledger.DropMessages(ctx, tx, ledger.MessageQuery{Job: "j", States: []ledger.MessageState{ledger.MessageDead}}, "p", "w")
			return err
		},
		"who releases": func(ctx context.Context, tx pgx.Tx) error {
			_, err := ledger.ReleaseMessages(ctx, tx, ledger.MessageQuery{Job: "j", States: []ledger.MessageState{ledger.MessageDead}}, "p", "w")
			return err
		},
	}
	for _, pair := range [][2]string{{"a sender", "another"}, {"another", "a sender"}, {"a sender", "who drops"}, {"who drops", "a sender"},
		{"a sender", "who releases"}, {"who releases", "a sender"}} {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			t.Parallel()
			db := threeMessages(t)
			holder := begin(t, db)
			if _, err := holder.Exec(t.Context(), `SELECT FROM billing.outbox WHERE id = 2 FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			ends := make(chan error, len(pair))
			for i, who := range pair {
				tx := begin(t, db)
				go func() {
					err := everyone[who](t.Context(), tx)
					if err == nil {
						err = tx.Commit(t.Context())
					}
					ends <- err
				}()
				office.Eventually(t, "they wait", func() bool { return waiting(t, db) == i+1 })
			}
			if err := holder.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range pair {
				if err := <-ends; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func recordSent(ctx context.Context, tx pgx.Tx, ids ...int64) error {
	var tries []ledger.Try
	for _, id := range ids {
		tries = append(tries, ledger.Try{ID: id, ClaimedAt: time.Unix(0, 0), End: ledger.TrySent})
	}
	_, err := ledger.RecordTries(ctx, tx, uuid.New(), time.Hour, tries)
	return err
}

// An outcome that is recorded after a person has moved the message counts only if it was
// sent, and is seen in the row as the person left it.
func TestARecordSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	db := threeMessages(t)
	person := begin(t, db)
	moved, err := ledger.ReleaseMessages(t.Context(), person, ledger.MessageQuery{Job: "j", States: []ledger.MessageState{ledger.MessageDead}}, "p", "w")
	slices.Sort(moved)
	if err != nil || !slices.Equal(moved, []int64{1, 2, 3}) {
		t.Fatal(moved, err)
	}
	sender := begin(t, db)
	ends := make(chan error, 1)
	go func() {
		done, err := ledger.RecordTries(t.Context(), sender, uuid.New(), time.Hour, []ledger.Try{
			{ID: 1, ClaimedAt: time.Unix(0, 0), End: ledger.TrySent, ProviderID: "p1"},
			{ID: 2, ClaimedAt: time.Unix(0, 0), End: ledger.TryFailed, Reason: "http_500"},
		})
		if err == nil && (done.Sent != 1 || done.Queued != 0 || done.Dead != 0) {
			t.Errorf("recorded %+v, want one that was sent", done)
		}
		ends <- err
	}()
	office.Eventually(t, "the sender waits", func() bool { return waiting(t, db) == 1 })
	if err := person.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err != nil {
		t.Fatal(err)
	}
	if err := sender.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := db.Pool.QueryRow(t.Context(), `SELECT string_agg(state || ' ' || reason || provider_id || tries, ', ' ORDER BY id) FROM billing.outbox`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "sent p10, queued 0, queued 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
