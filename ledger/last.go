package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlLastPeriod = `
SELECT c.period FROM billing.charges c WHERE c.job = $1 AND c.period < $2 ORDER BY c.period DESC LIMIT 1`

// LastPeriod is the latest period before another one that has charges,
// ErrNotFound if there is none.
func LastPeriod(ctx context.Context, q Querier, job Job, period Period) (last Period, err error) {
	err = q.QueryRow(ctx, sqlLastPeriod, job, period).Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("a period before %s: %w", period, ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("look for the period before %s: %w", period, err)
	}
	return last, nil
}

// PlainCharge is what a charge comes to, for comparing periods.
type PlainCharge struct {
	AccountID   string
	Currency    string
	AmountMinor int64 // in minor units; 0 if it was skipped
	State       ChargeState
	Reason      string
}

const sqlPlainCursor = `
DECLARE %s NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT c.account_id, c.currency, coalesce(c.amount_minor, 0) AS amount_minor, c.state, c.reason
FROM billing.charges c WHERE c.job = $1 AND c.period = $2 AND c.state <> 'void' ORDER BY c.account_id`

// PlainCharges reads the charges of a period but those that are void, in the order
// of account ids as bytes.
func PlainCharges(ctx context.Context, tx pgx.Tx, name string, job Job, period Period) (*Cursor[PlainCharge], error) {
	c, err := openCursor[PlainCharge](ctx, tx, name, sqlPlainCursor, job, period)
	if err != nil {
		return nil, fmt.Errorf("read the charges of %s: %w", period, err)
	}
	return c, nil
}
