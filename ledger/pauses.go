package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pause keeps charges from being sent until somebody resumes it.
type Pause struct {
	// AccountID is empty if the whole job is paused.
	AccountID string
	PausedAt  time.Time
	PausedBy  string
	Why       string
}

const sqlPause = `
INSERT INTO billing.pauses (job, account_id, paused_by, why) VALUES ($1, nullif($2, ''), $3, $4)
ON CONFLICT (job, coalesce(account_id, '')) WHERE resumed_at IS NULL DO NOTHING`

// AddPause pauses a job, or one account of it; accountID is empty for all. It
// reports false if that was paused already.
func AddPause(ctx context.Context, tx pgx.Tx, job Job, accountID, by, why string) (bool, error) {
	tag, err := tx.Exec(ctx, sqlPause, job, accountID, by, why)
	if err != nil {
		return false, fmt.Errorf("pause: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

const sqlResume = `
UPDATE billing.pauses SET resumed_at = billing.now(), resumed_by = $3
WHERE job = $1 AND coalesce(account_id, '') = $2 AND resumed_at IS NULL`

// EndPause resumes what AddPause paused. It reports false if it was not paused.
func EndPause(ctx context.Context, tx pgx.Tx, job Job, accountID, by string) (bool, error) {
	tag, err := tx.Exec(ctx, sqlResume, job, accountID, by)
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

const sqlOpenPauses = `
SELECT coalesce(account_id, '') AS account_id, paused_at, paused_by, why
FROM billing.pauses WHERE job = $1 AND resumed_at IS NULL ORDER BY coalesce(account_id, '')`

// OpenPauses reads what is paused, the whole job first.
func OpenPauses(ctx context.Context, q Querier, job Job) ([]Pause, error) {
	rows, _ := q.Query(ctx, sqlOpenPauses, job)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Pause])
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	return list, nil
}

const sqlLeasedIn = `
SELECT EXISTS (SELECT FROM billing.charges c
    WHERE c.job = $1 AND c.state = 'pending' AND c.lease_until > billing.now() AND ($2 = '' OR c.account_id = $2))`

// MayStillSend reports whether any process holds a permit to send a charge of the
// job, or of one account: a pause that was just made has not reached it yet.
func MayStillSend(ctx context.Context, q Querier, job Job, accountID string) (may bool, err error) {
	if err := q.QueryRow(ctx, sqlLeasedIn, job, accountID).Scan(&may); err != nil {
		return false, fmt.Errorf("look for permits: %w", err)
	}
	return may, nil
}
