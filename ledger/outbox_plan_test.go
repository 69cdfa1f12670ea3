package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// heard keeps the last statement that names the outbox, with its arguments.
type heard struct {
	sql  string
	args []any
}

func (h *heard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "billing.outbox") {
		h.sql, h.args = q.SQL, q.Args
	}
	return ctx
}
func (*heard) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// node is a step of a plan that was carried out.
type node struct {
	Type    string  `json:"Node Type"`
	Table   string  `json:"Relation Name"`
	Index   string  `json:"Index Name"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Heap    float64 `json:"Heap Fetches"`
	Plans   []node
}

// looks adds up what a plan reads of the outbox itself, index entries that need no row
// apart.
func (n node) looks() (rows float64, how []string) {
	if n.Table == "outbox" {
		how = append(how, n.Type+" "+n.Index)
		if n.Type == "Index Only Scan" {
			rows += n.Heap
		} else {
			rows += (n.Rows + n.Removed) * n.Loops
		}
	}
	for _, p := range n.Plans {
		r, h := p.looks()
		rows, how = rows+r, append(how, h...)
	}
	return rows, how
}

// aLongQueue is a lane where nearly all waits and was never tried, beside as many that
// are sent, and that nobody can have.
func aLongQueue(t *testing.T) (*pgxpool.Pool, *heard) {
	t.Helper()
	db, tracer := testdb.New(t), new(heard)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox (dedupe_key, kind, channel, lane, destination, job, period, account_id, payload,
			state, reason, settled_at, tries, open_tries, first_try_at, last_try_at, next_at, lease_owner, lease_until)
		SELECT 'k' || i, 'receipt', 'email', 'email', 'a@example.com', 'j', '2026-10', 'a' || i, '{"from":"b@example.com","text":"' || repeat('x', 500) || '"}',
			state, CASE WHEN state IN ('dead', 'undeliverable') THEN 'no_address' ELSE '' END, CASE WHEN state <> 'queued' THEN billing.now() END,
			odd, odd, CASE WHEN odd = 1 THEN billing.now() - interval '1 day' * (i % 2) END, CASE WHEN odd = 1 THEN billing.now() END,
			billing.now() + interval '1 millisecond' * i, CASE WHEN odd = 1 THEN gen_random_uuid() END, CASE WHEN odd = 1 THEN billing.now() + interval '4 minutes' END
		FROM generate_series(1, 30000) i, LATERAL (SELECT CASE WHEN i <= 10000 THEN 'queued' WHEN i <= 20000 THEN 'sent' WHEN i <= 20010 THEN 'dead' ELSE 'undeliverable' END) s(state),
			LATERAL (SELECT (i % 2000 = 0 AND state = 'queued')::int) o(odd)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `VACUUM (ANALYZE) billing.outbox`); err != nil {
		t.Fatal(err)
	}
	config := db.Pool.Config()
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, tracer
}

// mustLookAt wants the last statement to read at most so many rows, and the table never
// from end to end.
func (h *heard) mustLookAt(t *testing.T, tx pgx.Tx, what string, most float64) {
	t.Helper()
	var text string
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+h.sql, h.args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	rows, how := plans[0].Plan.looks()
	if said := fmt.Sprint(how); rows > most || len(how) == 0 || strings.Contains(said, "Seq Scan") {
		t.Errorf("%s: %v rows are read, want at most %v, by %s", what, rows, most, said)
	}
}

// What a sender asks again and again reads no whole lane, however long it is, and the
// counts are of index entries alone.
func TestNoLookAtALaneReadsAllOfIt(t *testing.T) {
	t.Parallel()
	pool, tracer := aLongQueue(t)
	for what, do := range map[string]func(tx pgx.Tx) error{
		"how a lane is": func(tx pgx.Tx) error {
			h, err := ledger.ReadLane(t.Context(), tx, "email")
			if err == nil && (h.Due == nil || *h.Due > time.Second) {
				err = fmt.Errorf("due in %v, want now", h.Due)
			}
			return err
		},
		"what is too old": func(tx pgx.Tx) error {
			_, err := ledger.EndUnknown(t.Context(), tx, "email", nil)
			return err
		},
	} {
		if err := ledger.InQueueTx(t.Context(), pool, func(tx pgx.Tx) error {
			if err := do(tx); err != nil {
				return err
			}
			tracer.mustLookAt(t, tx, what, 50)
			return nil
		}); err != nil {
			t.Fatal(what, err)
		}
	}
	if err := ledger.InReadTx(t.Context(), pool, func(tx pgx.Tx) error {
		counts, err := ledger.CountLanes(t.Context(), tx)
		if err != nil {
			return err
		}
		if len(counts) != 1 || counts[0].Queued != 10_000 || counts[0].Open != 5 || counts[0].Dead != 10 || counts[0].Undeliverable != 9_990 {
			t.Errorf("counted %+v", counts)
		}
		tracer.mustLookAt(t, tx, "counts", 50)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The list for people reads what it shows, and counts the rest from an index.
func TestTheListReadsWhatItShows(t *testing.T) {
	t.Parallel()
	pool, tracer := aLongQueue(t)
	what := ledger.MessageQuery{States: []ledger.MessageState{ledger.MessageDead, ledger.MessageUndeliverable}}
	if err := ledger.InReadTx(t.Context(), pool, func(tx pgx.Tx) error {
		n, jobs, err := ledger.CountMessages(t.Context(), tx, what)
		if err != nil {
			return err
		}
		if n != 10_000 || jobs {
			t.Errorf("counted %d, of several jobs: %t", n, jobs)
		}
		tracer.mustLookAt(t, tx, "the count of the list", 50)
		var listed []ledger.MessageLine
		if err := ledger.EachMessage(t.Context(), tx, what, 100, func(m ledger.MessageLine) error {
			listed = append(listed, m)
			return nil
		}); err != nil {
			return err
		}
		if len(listed) != 100 || listed[0].FromDomain != "example.com" {
			t.Errorf("%d are listed, the first %+v", len(listed), listed[0])
		}
		// Those that are queued stand before them.
		tracer.mustLookAt(t, tx, "the list", 10_200)
		what.States = append(what.States, ledger.MessageQueued)
		if err := ledger.EachMessage(t.Context(), tx, what, 100, func(ledger.MessageLine) error { return nil }); err != nil {
			return err
		}
		tracer.mustLookAt(t, tx, "the list of all that is not sent", 200)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
