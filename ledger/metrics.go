package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Measures are the numbers of one period that a monitor watches, summed from rows.
type Measures struct {
	Period   Period
	Charges  []ChargeMeasure
	Findings []FindingMeasure
	// Unknown counts pending charges with a send whose answer is not known.
	Unknown int64
	// OldestPending is how long ago the first of the charges that are pending was
	// recorded, 0 if none is.
	OldestPending time.Duration
	// Refused counts the runs that found the period owned by another.
	Refused int64
}

// ChargeMeasure is the charges of a period in one state and currency.
type ChargeMeasure struct {
	State       ChargeState
	Currency    string
	Count       int64
	AmountMinor int64 // minor units; 0 for what was skipped without an amount
}

// FindingMeasure is the open findings of a period of one severity and kind.
type FindingMeasure struct {
	Severity Severity
	Kind     string
	Count    int64
}

const sqlMeasureCharges = `
SELECT state, currency, count(*) AS count, coalesce(sum(amount_minor), 0)::bigint AS amount_minor
FROM billing.charges WHERE job = $1 AND period = $2
GROUP BY state, currency ORDER BY state, currency`

const sqlMeasureFindings = `
SELECT severity, kind, count(*) AS count
FROM billing.findings WHERE job = $1 AND period = $2 AND resolved_at IS NULL
GROUP BY severity, kind ORDER BY severity, kind`

const sqlMeasurePending = `
SELECT count(*) FILTER (WHERE open_sends > 0), greatest(coalesce(billing.now() - min(created_at), '0'), '0'),
       (SELECT coalesce(sum(a.refused), 0)::bigint FROM billing.job_run_attempts a WHERE a.job = $1 AND a.period = $2)
FROM billing.charges WHERE job = $1 AND period = $2 AND state = 'pending'`

// Measure reads the numbers of one period; all are zero where there is no such
// period. Read it on one snapshot (InReadTx).
func Measure(ctx context.Context, q Querier, job Job, period Period) (m Measures, err error) {
	m.Period = period
	rows, _ := q.Query(ctx, sqlMeasureCharges, job, period)
	if m.Charges, err = pgx.CollectRows(rows, pgx.RowToStructByName[ChargeMeasure]); err != nil {
		return m, fmt.Errorf("measure the charges of %s: %w", period, err)
	}
	rows, _ = q.Query(ctx, sqlMeasureFindings, job, period)
	if m.Findings, err = pgx.CollectRows(rows, pgx.RowToStructByName[FindingMeasure]); err != nil {
		return m, fmt.Errorf("measure the findings of %s: %w", period, err)
	}
	if err = q.QueryRow(ctx, sqlMeasurePending, job, period).Scan(&m.Unknown, &m.OldestPending, &m.Refused); err != nil {
		return m, fmt.Errorf("measure what is pending in %s: %w", period, err)
	}
	return m, nil
}

// MessageMeasures are the numbers of the outbox that a monitor watches, of all jobs.
type MessageMeasures struct {
	Queued, Dead, Undeliverable int64
	// OldestQueued is how long ago the first of the messages that wait was written, 0 if
	// none waits.
	OldestQueued time.Duration
}

// Only what was not sent is read, by its index.
const sqlMeasureMessages = `
SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'dead') AS dead,
    count(*) FILTER (WHERE state = 'undeliverable') AS undeliverable,
    greatest(coalesce(billing.now() - (SELECT o.created_at FROM billing.outbox o WHERE o.state = 'queued' AND o.state <> 'sent' ORDER BY o.id LIMIT 1), '0'), '0') AS oldest_queued
FROM billing.outbox WHERE state <> 'sent'`

// MeasureMessages reads the numbers of the outbox.
func MeasureMessages(ctx context.Context, q Querier) (m MessageMeasures, err error) {
	rows, _ := q.Query(ctx, sqlMeasureMessages)
	if m, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[MessageMeasures]); err != nil {
		return m, fmt.Errorf("measure the messages: %w", err)
	}
	return m, nil
}

const sqlLastDone = `
SELECT period, finished_at FROM billing.job_run_attempts
WHERE job = $1 AND result = 'done' ORDER BY finished_at DESC LIMIT 1`

// LastDone reads which period of a job was finished last, and when; ErrNotFound if
// none ever was. A period that was reopened since still counts: it was finished.
func LastDone(ctx context.Context, q Querier, job Job) (period Period, at time.Time, err error) {
	err = q.QueryRow(ctx, sqlLastDone, job).Scan(&period, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", at, fmt.Errorf("a finished period of %s: %w", job, ErrNotFound)
	}
	if err != nil {
		return "", at, fmt.Errorf("look for the last finished period: %w", err)
	}
	return period, at, nil
}

// The owner's row of the claim may be locked while it records; its attempt's is not.
const sqlCountRefusal = `
UPDATE billing.job_run_attempts a SET refused = a.refused + 1
FROM billing.job_runs r
WHERE r.job = $1 AND r.period = $2 AND r.state = 'claimed' AND a.job = r.job AND a.period = r.period AND a.attempt = r.attempt`

// CountRefusal notes at the attempt that owns the period that another run asked for
// it. Nothing happens if nobody owns it any more.
func CountRefusal(ctx context.Context, tx pgx.Tx, job Job, period Period) error {
	if _, err := tx.Exec(ctx, claimLockTimeout); err != nil {
		return fmt.Errorf("count a refused claim on %s: %w", period, err)
	}
	if _, err := tx.Exec(ctx, sqlCountRefusal, job, period); err != nil {
		return fmt.Errorf("count a refused claim on %s: %w", period, err)
	}
	return nil
}

// Settled counts the charges whose outcome is known: they left pending on evidence.
// What was skipped or voided was never charged and does not count.
func (s Summary) Settled() (n int64) {
	for _, sum := range s.Sums {
		switch sum.State {
		case ChargePending, ChargeSkipped, ChargeVoid:
		default:
			n += sum.Count
		}
	}
	return n
}

const sqlLatestRun = `SELECT period FROM billing.job_runs WHERE job = $1 ORDER BY period DESC LIMIT 1`

// LatestRun names the latest period that a run ever owned, ErrNotFound if there is
// none.
func LatestRun(ctx context.Context, q Querier, job Job) (period Period, err error) {
	err = q.QueryRow(ctx, sqlLatestRun, job).Scan(&period)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("a run of %s: %w", job, ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("look for the latest run: %w", err)
	}
	return period, nil
}
