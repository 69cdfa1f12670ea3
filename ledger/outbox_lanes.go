package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LaneHealth is how a lane is, as every sender sees it.
type LaneHealth struct {
	// Failures is how often in a row the receiver failed; 0 is well.
	Failures int
	// Rest is for how long it is left alone from now, 0 for not at all.
	Rest time.Duration
	// StoppedFor says why a person must release it; empty if it is not stopped.
	StoppedFor string
	// Due is in how long the next message of the lane may be claimed, leases and rest
	// included; nil if none is queued.
	Due *time.Duration
}

const sqlLaneHealth = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t)
SELECT coalesce(l.failures, 0), greatest(coalesce(l.resume_at - clock.t, interval '0'), interval '0'), coalesce(l.stopped_for, ''),
    CASE WHEN queue.free_at IS NOT NULL THEN greatest(queue.free_at, l.resume_at) - clock.t END
FROM clock
CROSS JOIN (SELECT min(greatest(o.next_at, o.lease_until)) AS free_at FROM billing.outbox o WHERE o.lane = $1 AND o.state = 'queued') queue
LEFT JOIN billing.outbox_lanes l ON l.lane = $1`

// ReadLane reads how a lane is. A lane without queued messages has nothing due.
func ReadLane(ctx context.Context, q Querier, lane string) (h LaneHealth, err error) {
	var due *time.Duration
	if err := q.QueryRow(ctx, sqlLaneHealth, lane).Scan(&h.Failures, &h.Rest, &h.StoppedFor, &due); err != nil {
		return h, fmt.Errorf("look at lane %s: %w", lane, err)
	}
	h.Due = due
	return h, nil
}

const sqlRestLane = `
INSERT INTO billing.outbox_lanes AS l (lane, failures, resume_at) VALUES ($1, 1, billing.now() + $2::interval)
ON CONFLICT ON CONSTRAINT outbox_lanes_pkey DO UPDATE
SET failures = l.failures + 1, resume_at = greatest(l.resume_at, billing.now() + $2::interval)`

// RestLane counts a failure of the receiver, and leaves it alone for a while.
func RestLane(ctx context.Context, tx pgx.Tx, lane string, rest time.Duration) error {
	if _, err := tx.Exec(ctx, sqlRestLane, lane, rest); err != nil {
		return fmt.Errorf("let lane %s rest: %w", lane, err)
	}
	return nil
}

const sqlLaneIsWell = `UPDATE billing.outbox_lanes SET failures = 0, resume_at = NULL WHERE lane = $1 AND failures > 0`

// LaneIsWell says that the receiver takes messages.
func LaneIsWell(ctx context.Context, tx pgx.Tx, lane string) error {
	if _, err := tx.Exec(ctx, sqlLaneIsWell, lane); err != nil {
		return fmt.Errorf("note that lane %s is well: %w", lane, err)
	}
	return nil
}

const sqlStopLane = `
INSERT INTO billing.outbox_lanes AS l (lane, stopped_at, stopped_for) VALUES ($1, billing.now(), $2)
ON CONFLICT ON CONSTRAINT outbox_lanes_pkey DO UPDATE SET stopped_at = excluded.stopped_at, stopped_for = excluded.stopped_for
WHERE l.stopped_at IS NULL`

// StopLane stops a lane until a person releases it.
func StopLane(ctx context.Context, tx pgx.Tx, lane, why string) error {
	if _, err := tx.Exec(ctx, sqlStopLane, lane, why); err != nil {
		return fmt.Errorf("stop lane %s: %w", lane, err)
	}
	return nil
}

// LaneCount is where the messages of a lane stand.
type LaneCount struct {
	Lane string
	// Queued are to be sent, Open of them may have arrived already.
	Queued, Open int64
	Dead         int64
	// Unknown of those that are dead may have arrived.
	Unknown       int64
	Undeliverable int64
	StoppedFor    string
	OldestAt      *time.Time // of what is queued
}

const sqlCountLanes = `
SELECT o.lane, count(*) FILTER (WHERE o.state = 'queued') AS queued, count(*) FILTER (WHERE o.state = 'queued' AND o.open_tries > 0) AS open,
    count(*) FILTER (WHERE o.state = 'dead') AS dead, count(*) FILTER (WHERE o.state = 'dead' AND o.reason = 'unknown') AS unknown,
    count(*) FILTER (WHERE o.state = 'undeliverable') AS undeliverable, coalesce(max(l.stopped_for), '') AS stopped_for,
    min(o.created_at) FILTER (WHERE o.state = 'queued') AS oldest_at
FROM (SELECT lane, state, open_tries, reason, created_at FROM billing.outbox WHERE state = 'queued'
    UNION ALL SELECT lane, state, open_tries, reason, created_at FROM billing.outbox WHERE state IN ('dead', 'undeliverable')) o
LEFT JOIN billing.outbox_lanes l ON l.lane = o.lane
GROUP BY o.lane ORDER BY o.lane`

// CountLanes counts what is not with its receiver, of all jobs, by lane. A lane where all was sent
// or given up is left out.
func CountLanes(ctx context.Context, q Querier) ([]LaneCount, error) {
	rows, _ := q.Query(ctx, sqlCountLanes)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[LaneCount])
	if err != nil {
		return nil, fmt.Errorf("count messages: %w", err)
	}
	return list, nil
}

// ErrLaneNotStopped says that a lane that was to be released is not stopped.
var ErrLaneNotStopped = errors.New("the lane is not stopped")

const sqlResumeLane = `
WITH resumed AS (
    UPDATE billing.outbox_lanes SET stopped_at = NULL, stopped_for = '', failures = 0, resume_at = NULL
    WHERE lane = $1 AND stopped_at IS NOT NULL RETURNING lane)
INSERT INTO billing.outbox_events (lane, action, person, why) SELECT lane, 'resume', $2, $3 FROM resumed`

// ResumeLane lets a stopped lane send again. ErrLaneNotStopped if it is not stopped.
func ResumeLane(ctx context.Context, tx pgx.Tx, lane, person, why string) error {
	tag, err := tx.Exec(ctx, sqlResumeLane, lane, person, why)
	if err != nil {
		return fmt.Errorf("resume lane %s: %w", lane, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%s: %w", lane, ErrLaneNotStopped)
	}
	return nil
}
