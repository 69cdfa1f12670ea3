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

// The first that nobody has, and the first that somebody has: two looks at the beginning of
// an index, where one over both would read all that is queued.
const sqlLaneHealth = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t)
SELECT coalesce(l.failures, 0), greatest(coalesce(l.resume_at - clock.t, interval '0'), interval '0'), coalesce(l.stopped_for, ''),
    CASE WHEN coalesce(free.at, taken.at) IS NOT NULL THEN greatest(least(free.at, taken.at), l.resume_at) - clock.t END
FROM clock
LEFT JOIN LATERAL (SELECT o.next_at AS at FROM billing.outbox o
    WHERE o.lane = $1 AND o.state = 'queued' AND (o.lease_until IS NULL OR o.lease_until <= clock.t)
    ORDER BY o.next_at, o.id LIMIT 1) free ON true
LEFT JOIN LATERAL (SELECT o.lease_until AS at FROM billing.outbox o
    WHERE o.lane = $1 AND o.lease_until > clock.t
    ORDER BY o.lease_until LIMIT 1) taken ON true
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
SET failures = CASE WHEN l.resume_at > billing.now() THEN greatest(l.failures, 1) ELSE l.failures + 1 END, resume_at = greatest(l.resume_at, billing.now() + $2::interval)`

// RestLane counts a failure of the receiver, and leaves it alone for a while. While it
// rests already, that is the same failure, seen by several.
func RestLane(ctx context.Context, tx pgx.Tx, lane string, rest time.Duration) error {
	if _, err := tx.Exec(ctx, sqlRestLane, lane, rest); err != nil {
		return fmt.Errorf("let lane %s rest: %w", lane, err)
	}
	return nil
}

const sqlPauseLane = `
INSERT INTO billing.outbox_lanes AS l (lane, resume_at) VALUES ($1, billing.now() + $2::interval)
ON CONFLICT ON CONSTRAINT outbox_lanes_pkey DO UPDATE SET resume_at = greatest(l.resume_at, billing.now() + $2::interval)`

// PauseLane leaves a receiver alone for a while that takes messages, and fewer at once.
func PauseLane(ctx context.Context, tx pgx.Tx, lane string, rest time.Duration) error {
	if _, err := tx.Exec(ctx, sqlPauseLane, lane, rest); err != nil {
		return fmt.Errorf("pause lane %s: %w", lane, err)
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
}

// Each part is counted from an index of its own.
const sqlCountLanes = `
SELECT c.lane, sum(c.queued)::bigint AS queued, sum(c.open)::bigint AS open, sum(c.dead)::bigint AS dead, sum(c.unknown)::bigint AS unknown,
    sum(c.undeliverable)::bigint AS undeliverable, coalesce(max(l.stopped_for), '') AS stopped_for
FROM (SELECT lane, count(*) AS queued, 0 AS open, 0 AS dead, 0 AS unknown, 0 AS undeliverable
        FROM billing.outbox WHERE state = 'queued' GROUP BY lane
    UNION ALL SELECT lane, 0, count(*), 0, 0, 0 FROM billing.outbox WHERE state = 'queued' AND open_tries > 0 GROUP BY lane
    UNION ALL SELECT lane, 0, 0, count(*), count(*) FILTER (WHERE reason = 'unknown'), 0 FROM billing.outbox WHERE state = 'dead' GROUP BY lane
    UNION ALL SELECT lane, 0, 0, 0, 0, count(*) FROM billing.outbox WHERE state = 'undeliverable' GROUP BY lane) c
LEFT JOIN billing.outbox_lanes l ON l.lane = c.lane
GROUP BY c.lane ORDER BY c.lane`

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
