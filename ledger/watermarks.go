package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// DefaultSettle is how long after its end a month is waited for by default.
	DefaultSettle = time.Hour
	// MaxSettle is the longest that a month may be waited for.
	MaxSettle = 31 * 24 * time.Hour
)

// Watermark says how far the usage of a job is counted. Who holds its row
// (LockWatermark) is alone with the job's usage until the transaction ends.
type Watermark struct {
	Job Job
	// Every event of a transaction below XID is counted, if it is not set aside. Arrival is
	// the highest that was counted.
	XID     uint64
	Arrival int64
	// TargetXID and TargetArrival are the end of the range under work, nil if there is none.
	TargetXID     *uint64
	TargetArrival *int64
	// Everything that the database received before Through is counted. Nil: nothing can be said yet.
	Through *time.Time
	// TimeZone is where days begin, an IANA name; the first meter pinned it.
	TimeZone string
	// Settle is how long after a month's end its usage may still come in.
	Settle time.Duration
	// SystemIdentifier is the cluster of Postgres that the transaction ids are of, and
	// Cluster the one that is connected.
	SystemIdentifier, Cluster string
}

// Unfinished reports a range under work: some of its events are counted and others
// are not. Nothing may be invoiced before a meter has finished it.
func (w Watermark) Unfinished() bool { return w.TargetXID != nil }

// judged is the transaction id below which every event was judged, so that it may be
// counted.
func (w Watermark) judged() uint64 {
	if w.TargetXID != nil {
		return *w.TargetXID
	}
	return w.XID
}

// SameCluster returns a *ClusterError if the transaction ids that the watermark knows
// are of another cluster: events could lie behind it that were never counted.
func (w Watermark) SameCluster() error {
	if w.SystemIdentifier != w.Cluster {
		return &ClusterError{Job: w.Job, Why: "this is another cluster of Postgres than the one that usage was counted in (restored from a dump, or upgraded)"}
	}
	return nil
}

// ClusterError says that transaction ids began anew since usage was counted.
type ClusterError struct {
	Job Job
	Why string
}

func (e *ClusterError) Error() string {
	return fmt.Sprintf("usage of %s: %s", e.Job, e.Why)
}

// Hint says what to type.
func (e *ClusterError) Hint() string {
	return `if the ledger is whole: billing meter --moved --why "…"`
}

// ZoneError says that usage is counted in another time zone than the one that was
// asked for, or that Postgres does not know the zone.
type ZoneError struct {
	Job           Job
	Asked, Pinned string
}

func (e *ZoneError) Error() string {
	if e.Pinned == "" {
		return fmt.Sprintf("Postgres does not know the time zone %q", e.Asked)
	}
	return fmt.Sprintf("the days of %s are counted in %s since its first meter, and %s was asked for", e.Job, e.Pinned, e.Asked)
}

// Hint says what to set.
func (e *ZoneError) Hint() string {
	if e.Pinned == "" {
		return "take a name that both know, such as Europe/Berlin"
	}
	return "set BILLING_TIMEZONE=" + e.Pinned
}

const selectWatermark = `
SELECT w.job, w.xid, w.arrival, w.target_xid, w.target_arrival, w.through, w.time_zone, w.settle, w.system_identifier,
    (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c) AS cluster
FROM billing.job_watermarks w WHERE w.job = $1`

const sqlReadWatermark = selectWatermark

const sqlLockWatermark = selectWatermark + ` FOR UPDATE OF w`

// ReadWatermark reads how far usage is counted; ErrNotFound if no meter ran yet.
func ReadWatermark(ctx context.Context, q Querier, job Job) (Watermark, error) {
	return watermark(ctx, q, sqlReadWatermark, job)
}

// LockWatermark is ReadWatermark that keeps everybody else from counting, releasing
// and invoicing usage of the job until the transaction ends.
func LockWatermark(ctx context.Context, tx pgx.Tx, job Job) (Watermark, error) {
	return watermark(ctx, tx, sqlLockWatermark, job)
}

func watermark(ctx context.Context, q Querier, sql string, job Job) (w Watermark, err error) {
	rows, _ := q.Query(ctx, sql, job)
	w, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Watermark])
	if errors.Is(err, pgx.ErrNoRows) {
		return w, fmt.Errorf("no usage of %s was counted yet: %w", job, ErrNotFound)
	}
	if err != nil {
		return w, fmt.Errorf("read the watermark of %s: %w", job, err)
	}
	return w, nil
}

const sqlAddWatermark = `
INSERT INTO billing.job_watermarks (job, time_zone, settle, system_identifier)
SELECT $1, $2, $3, c.system_identifier::text FROM pg_catalog.pg_control_system() c
ON CONFLICT ON CONSTRAINT job_watermarks_pkey DO NOTHING`

const sqlSetSettle = `
UPDATE billing.job_watermarks SET settle = $2, updated_at = billing.now() WHERE job = $1 AND settle <> $2`

// MeterTerms are what a meter of a job is asked to hold to.
type MeterTerms struct {
	Job Job
	// Zone is where days begin, an IANA name that Postgres knows too.
	Zone string
	// Settle changes how long after its end a month is waited for; nil leaves it.
	Settle *time.Duration
	// An event may have occurred this long after it was received, at most, and this long
	// before.
	Future, Ancient time.Duration
}

// TakeWatermark locks the watermark as LockWatermark does, makes it if this is the
// first meter, and prepares the transaction for counting. It returns a *ZoneError or a
// *ClusterError where counting would be wrong.
func TakeWatermark(ctx context.Context, tx pgx.Tx, terms MeterTerms) (w Watermark, err error) {
	if err := prepareCounting(ctx, tx, terms.Zone); err != nil {
		return w, err
	}
	settle := DefaultSettle
	if terms.Settle != nil {
		settle = *terms.Settle
	}
	if _, err := tx.Exec(ctx, sqlAddWatermark, terms.Job, terms.Zone, settle); err != nil {
		return w, fmt.Errorf("add the watermark of %s: %w", terms.Job, err)
	}
	if w, err = LockWatermark(ctx, tx, terms.Job); err != nil {
		return w, err
	}
	if w.TimeZone != terms.Zone {
		return w, &ZoneError{Job: w.Job, Asked: terms.Zone, Pinned: w.TimeZone}
	}
	if err := w.SameCluster(); err != nil {
		return w, err
	}
	if terms.Settle != nil && w.Settle != settle {
		if _, err := tx.Exec(ctx, sqlSetSettle, w.Job, settle); err != nil {
			return w, fmt.Errorf("keep how long a month is waited for: %w", err)
		}
		w.Settle = settle
	}
	return w, nil
}

// A day is what the zone of the transaction says it is. Groups of days stay in memory, in
// the order in which they come: to sort the events of a day is most of the work.
const sqlPrepareCounting = `
SELECT set_config('TimeZone', $1, true), set_config('jit', 'off', true), set_config('enable_sort', 'off', true),
    CASE WHEN pg_size_bytes(current_setting('work_mem')) < 67108864 THEN set_config('work_mem', '64MB', true) END`

func prepareCounting(ctx context.Context, tx pgx.Tx, zone string) error {
	_, err := tx.Exec(ctx, sqlPrepareCounting, zone)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "22023" {
		return &ZoneError{Asked: zone}
	}
	if err != nil {
		return fmt.Errorf("prepare for counting: %w", err)
	}
	return nil
}

const sqlScan = `
SELECT set_config('enable_seqscan', $1, true), set_config('enable_indexscan', $2, true), set_config('enable_bitmapscan', $2, true),
    set_config('enable_hashjoin', $3, true), set_config('enable_mergejoin', $3, true), set_config('enable_nestloop', 'on', true)`

// scan says how the next statements read events: the whole table, or by index; byRow
// joins one row after another, by index too. That a table was just filled and has no
// statistics must not choose the plan.
func scan(ctx context.Context, tx pgx.Tx, whole, byRow bool) error {
	word := map[bool]string{true: "on", false: "off"}
	if _, err := tx.Exec(ctx, sqlScan, word[whole], word[!whole], word[!byRow]); err != nil {
		return fmt.Errorf("choose how to read events: %w", err)
	}
	return nil
}

const sqlLookUp = `
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
    set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)`

// lookUp lets the next statements choose, other than going through a table for each row of
// another: what was just filled may look small.
func lookUp(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlLookUp); err != nil {
		return fmt.Errorf("choose how to look up: %w", err)
	}
	return nil
}
