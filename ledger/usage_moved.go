package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// MovedUsage says what MoveUsage did.
type MovedUsage struct {
	// Events got a transaction id that is lower than any of the new cluster.
	Events int64
	// Jobs are those whose watermark moved.
	Jobs int64
}

// ErrNotMoved says that usage was counted in this very cluster of Postgres, so that
// there is nothing to take over.
var ErrNotMoved = errors.New("the ledger did not move: usage was counted in this cluster of Postgres, and transaction ids only went on")

const sqlLockWatermarks = `
SELECT w.job FROM billing.job_watermarks w ORDER BY w.job FOR UPDATE`

// What a cluster gave out lies below what it gives out next, whoever counted it or not yet.
const sqlUsageFits = `
SELECT bool_and(w.job IS NULL OR w.system_identifier = c.system_identifier::text AND greatest(w.xid, w.target_xid) <= pg_snapshot_xmin(pg_current_snapshot()))
    AND coalesce((SELECT e.xid FROM billing.usage_events e ORDER BY e.xid DESC LIMIT 1) < pg_snapshot_xmax(pg_current_snapshot()), true)
FROM pg_catalog.pg_control_system() c LEFT JOIN billing.job_watermarks w ON true`

// The positions up to which a job counted, or judged, each once. An event was below one
// if its transaction was, and if it had arrived: what was written in the new cluster
// has a higher arrival, whatever its transaction's id is.
const sqlPositions = `
CREATE TEMPORARY TABLE usage_positions ON COMMIT DROP AS
SELECT p.xid, max(p.arrival) AS arrival, row_number() OVER (ORDER BY p.xid) AS rank FROM (
    SELECT w.xid, w.arrival FROM billing.job_watermarks w
    UNION ALL SELECT w.target_xid, w.target_arrival FROM billing.job_watermarks w WHERE w.target_xid IS NOT NULL) p
GROUP BY p.xid`

const sqlAllowMoves = `
SELECT set_config('billing.usage_moves', 'yes', true)`

const sqlMoveEvents = `
UPDATE billing.usage_events e
SET xid = (3 + (SELECT count(*) FROM pg_temp.usage_positions p WHERE e.xid >= p.xid OR e.arrival > p.arrival))::text::xid8`

const sqlForbidMoves = `
SELECT set_config('billing.usage_moves', '', true)`

const sqlMoveWatermarks = `
UPDATE billing.job_watermarks w
SET xid = (3 + (SELECT p.rank FROM pg_temp.usage_positions p WHERE p.xid = w.xid))::text::xid8,
    target_xid = (3 + (SELECT p.rank FROM pg_temp.usage_positions p WHERE p.xid = w.target_xid))::text::xid8,
    system_identifier = (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c), updated_at = billing.now()`

const sqlMoveInvoiced = `
UPDATE billing.usage_invoiced i SET xid = w.xid, arrival = least(i.arrival, w.arrival) FROM billing.job_watermarks w WHERE w.job = i.job`

const sqlForgetAllMarks = `
DELETE FROM billing.usage_marks`

const sqlMovedHistory = `
INSERT INTO billing.usage_history (job, action, person, why) SELECT w.job, 'moved', $1, $2 FROM billing.job_watermarks w`

// MoveUsage takes the transaction ids of another cluster out of the usage: counted events
// and the others get ids that are lower than all that this cluster gives out, in their
// order. It touches every event, and is of all jobs, because they have the same events. It is
// for a ledger that is whole; nothing is counted twice by it, and nothing passed over. One
// that did not move is refused: ErrNotMoved.
func MoveUsage(ctx context.Context, tx pgx.Tx, person, why string) (done MovedUsage, err error) {
	if _, err := tx.Exec(ctx, sqlLockWatermarks); err != nil {
		return done, fmt.Errorf("lock watermarks: %w", err)
	}
	var fits bool
	if err := tx.QueryRow(ctx, sqlUsageFits).Scan(&fits); err != nil {
		return done, fmt.Errorf("look whether the ledger moved: %w", err)
	}
	if fits {
		return done, ErrNotMoved
	}
	for _, sql := range []string{sqlPositions, sqlAllowMoves} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return done, fmt.Errorf("prepare to move usage: %w", err)
		}
	}
	moved, err := tx.Exec(ctx, sqlMoveEvents)
	if err != nil {
		return done, fmt.Errorf("move events: %w", err)
	}
	done.Events = moved.RowsAffected()
	if moved, err = tx.Exec(ctx, sqlMoveWatermarks); err != nil {
		return done, fmt.Errorf("move watermarks: %w", err)
	}
	done.Jobs = moved.RowsAffected()
	for _, sql := range []string{sqlForbidMoves, sqlMoveInvoiced, sqlForgetAllMarks} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return done, fmt.Errorf("move usage: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, sqlMovedHistory, person, why); err != nil {
		return done, fmt.Errorf("keep who moved usage: %w", err)
	}
	return done, nil
}
