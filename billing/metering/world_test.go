package metering_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/metering"
	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// world is a ledger with usage.
type world struct {
	t    testing.TB
	db   *testdb.DB
	zone string
}

// newWorld knows the accounts acme, bolt and core and the metrics calls and bytes. Its clock
// stands at noon of 2 November 2026, UTC.
func newWorld(t testing.TB, zone string) *world {
	t.Helper()
	w := &world{t: t, db: testdb.New(t), zone: zone}
	w.db.SetNow(time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC))
	w.exec(`INSERT INTO billing.accounts (account_id) VALUES ('acme'), ('bolt'), ('core')`)
	w.exec(`INSERT INTO billing.metrics (metric) VALUES ('calls'), ('bytes')`)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// execer writes: the pool, or a transaction that is open.
type execer interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// event is what an application writes. An empty at is none.
type event struct{ id, account, metric, quantity, at string }

const sqlEvent = `INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES ($1, $2, $3, $4::text::numeric, nullif($5, '')::timestamptz)`

func (w *world) add(in execer, events ...event) {
	w.t.Helper()
	tx, err := in.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if _, err := tx.Exec(w.t.Context(), sqlEvent, e.id, cmp.Or(e.account, "acme"), cmp.Or(e.metric, "calls"), e.quantity, e.at); err != nil {
			w.t.Fatalf("%+v: %v", e, err)
		}
	}
	if err := tx.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// open begins a transaction of an application's, on a connection of its own.
func (w *world) open() pgx.Tx {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.db.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return tx
}

func (w *world) end(tx pgx.Tx, commit bool) {
	w.t.Helper()
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := end(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := tx.Conn().Close(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// meter is what the next meter does, changed by each of with.
func (w *world) meter(with ...func(*metering.Meter)) metering.Meter {
	m := metering.Meter{Pool: w.db.Pool, Chunk: 3}
	m.Range.Job, m.Range.Zone, m.Range.Future, m.Range.Ancient = ledger.DefaultJob, w.zone, metering.DefaultFuture, metering.DefaultAncient
	for _, change := range with {
		change(&m)
	}
	return m
}

// count runs a meter to its end.
func (w *world) count(with ...func(*metering.Meter)) metering.Result {
	w.t.Helper()
	done, err := w.meter(with...).Run(w.t.Context())
	if err != nil {
		w.t.Fatalf("meter: %v", err)
	}
	return done
}

// rewound rewinds to a moment, or to the beginning.
func rewound(to time.Time) func(*metering.Meter) {
	return func(m *metering.Meter) { m.Range.RewindTo, m.Range.Beginning = to, to.IsZero() }
}

// large makes a meter take every range for a large one.
func large(yes bool) func(*metering.Meter) {
	return func(m *metering.Meter) {
		if yes {
			m.Range.Large = 1
		}
	}
}

// killed breaks off a meter at the n-th thing that it tells of.
func (w *world) killed(n int, with ...func(*metering.Meter)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	m := w.meter(with...)
	m.Range.Progress = func(string, int64, int64) {
		if n--; n < 0 {
			cancel()
		}
	}
	if _, err := m.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		w.t.Fatalf("a meter that is broken off: %v", err)
	}
}

// invoice freezes a month as `billing invoice` does.
func (w *world) invoice(period ledger.Period) {
	w.t.Helper()
	w.exec(`INSERT INTO billing.usage_invoiced (job, period, person, xid, arrival) SELECT w.job, $1, 'test', w.xid, w.arrival FROM billing.job_watermarks w`, period)
}

func (w *world) release(q ledger.SetAsideQuery) (done ledger.DecidedUsage) {
	w.t.Helper()
	q.Job = ledger.DefaultJob
	err := ledger.InTx(w.t.Context(), w.db.Pool, func(tx pgx.Tx) (err error) {
		done, err = ledger.ReleaseUsage(w.t.Context(), tx, q, "ada", "a test")
		return err
	})
	if err != nil {
		w.t.Fatalf("release: %v", err)
	}
	return done
}

// lines collects a query's text column.
func (w *world) lines(sql string, args ...any) []string {
	w.t.Helper()
	rows, _ := w.db.Pool.Query(w.t.Context(), sql, args...)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

func (w *world) daily() []string {
	return w.lines(`SELECT concat_ws(' ', account_id, metric, day, quantity, events) FROM billing.daily_usage ORDER BY 1`)
}

func (w *world) carried() []string {
	return w.lines(`SELECT concat_ws(' ', e.event_id, from_period, to_period, c.account_id, c.metric, trim_scale(c.quantity))
		FROM billing.usage_carried c JOIN billing.usage_events e USING (arrival) ORDER BY 1`)
}

func (w *world) setAside() []string {
	return w.lines(`SELECT concat_ws(' ', e.event_id, s.reason) FROM billing.usage_set_aside s JOIN billing.usage_events e USING (arrival) ORDER BY s.arrival`)
}

func (w *world) same(what string, got, want []string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s:\n%q\nwant\n%q", what, got, want)
	}
}

// written is an event as it stands in the ledger, with what people decided about it.
type written struct {
	arrival             int64
	xid                 uint64
	id, account, metric string
	quantity            string
	occurred            *time.Time
	received            time.Time
	released            *time.Time // by a person
	repeat, conflict    bool
}

// recount is a second opinion of what the ledger must say about all events of transactions
// below a bound. It shares no code and no SQL with the meter.
type recount struct{ daily, carried []string }

func (w *world) recount(below uint64) (out recount) {
	w.t.Helper()
	zone, err := time.LoadLocation(w.zone)
	if err != nil {
		w.t.Fatal(err)
	}
	invoiced := w.invoicedMonths()
	sums, events := map[string]decimal.Decimal{}, map[string]int{}
	for _, e := range w.written(below) {
		at := e.received
		if e.occurred != nil {
			at = *e.occurred
		}
		day := at.In(zone).Format(time.DateOnly)
		if reasonOf(e) != "" && e.released == nil {
			continue
		}
		if invoiced.before(day[:7], e) {
			next := ledger.Period(day[:7]).Next()
			for invoiced.before(string(next), e) {
				next = next.Next()
			}
			out.carried = append(out.carried, e.id+" "+day[:7]+" "+string(next)+" "+e.account+" "+e.metric+" "+decimal.RequireFromString(e.quantity).String())
			continue
		}
		key := e.account + " " + e.metric + " " + day
		sums[key] = sums[key].Add(decimal.RequireFromString(e.quantity))
		events[key]++
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		out.daily = append(out.daily, fmt.Sprintf("%s %s %d", key, sums[key], events[key]))
	}
	slices.Sort(out.daily)
	slices.Sort(out.carried)
	return out
}

// reasonOf says why an event is not to be counted, as a reader of the document would.
func reasonOf(e written) string {
	known := (e.account == "acme" || e.account == "bolt" || e.account == "core") && (e.metric == "calls" || e.metric == "bytes")
	switch {
	case e.repeat:
		return "repeat"
	case e.conflict:
		return "conflict"
	case e.quantity == "NaN":
		return "nan"
	}
	q := decimal.RequireFromString(e.quantity)
	switch {
	case q.Abs().Cmp(decimal.New(1, 18)) >= 0 || !q.Equal(q.Truncate(12)):
		return "huge"
	case q.Sign() < 0:
		return "negative"
	case e.occurred != nil && e.occurred.Sub(e.received) > time.Hour:
		return "future"
	case e.occurred != nil && e.received.Sub(*e.occurred) > 400*24*time.Hour:
		return "ancient"
	case !known:
		return "unknown"
	}
	return ""
}

// written reads the events in the order of their positions, and marks copies.
func (w *world) written(below uint64) []written {
	w.t.Helper()
	rows, _ := w.db.Pool.Query(w.t.Context(), `SELECT e.arrival, e.xid::text::bigint, e.event_id, e.account_id, e.metric, e.quantity::text, e.occurred_at, e.received_at,
		(SELECT s.at FROM billing.usage_set_aside s WHERE s.arrival = e.arrival AND s.decided = 'released') FROM billing.usage_events e`)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e written, err error) {
		return e, row.Scan(&e.arrival, &e.xid, &e.id, &e.account, &e.metric, &e.quantity, &e.occurred, &e.received, &e.released)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(e written) bool { return e.xid >= below })
	slices.SortFunc(list, func(a, b written) int { return cmp.Or(cmp.Compare(a.xid, b.xid), cmp.Compare(a.arrival, b.arrival)) })
	// What each id said so far, every saying once: who says the same again adds nothing to
	// what was said, and who says something else than the first contradicts it.
	said := map[string][]written{}
	for i, e := range list {
		list[i].repeat = slices.ContainsFunc(said[e.id], e.saysTheSame)
		list[i].conflict = !list[i].repeat && len(said[e.id]) > 0
		if !list[i].repeat {
			said[e.id] = append(said[e.id], e)
		}
	}
	return list
}

func (e written) saysTheSame(f written) bool {
	return f.account == e.account && f.metric == e.metric && sameQuantity(f.quantity, e.quantity) && sameInstant(f.occurred, e.occurred)
}

func sameQuantity(a, b string) bool {
	return a == b || a != "NaN" && b != "NaN" && decimal.RequireFromString(a).Equal(decimal.RequireFromString(b))
}

func sameInstant(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

type frozenMonth struct {
	xid uint64
	at  time.Time
}

type frozenMonths map[string]frozenMonth

// before reports that a month was invoiced before an event was counted.
func (f frozenMonths) before(month string, e written) bool {
	frozen, ok := f[month]
	return ok && (e.xid >= frozen.xid || e.released != nil && e.released.After(frozen.at))
}

func (w *world) invoicedMonths() frozenMonths {
	w.t.Helper()
	out := frozenMonths{}
	rows, err := w.db.Pool.Query(w.t.Context(), `SELECT period, xid::text::bigint, at FROM billing.usage_invoiced`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var period string
		var m frozenMonth
		if err := rows.Scan(&period, &m.xid, &m.at); err != nil {
			w.t.Fatal(err)
		}
		out[period] = m
	}
	if rows.Err() != nil {
		w.t.Fatal(rows.Err())
	}
	return out
}

// mustAgree holds the ledger against the recount of all that the watermark says is counted.
func (w *world) mustAgree(what string) {
	w.t.Helper()
	mark, err := ledger.ReadWatermark(w.t.Context(), w.db.Pool, ledger.DefaultJob)
	if err != nil {
		w.t.Fatal(err)
	}
	if mark.Unfinished() {
		w.t.Fatalf("%s: a meter ended and left a range under work: %+v", what, mark)
	}
	want := w.recount(mark.XID)
	w.same(what+": daily usage", w.daily(), want.daily)
	w.same(what+": late events", w.carried(), want.carried)
}
