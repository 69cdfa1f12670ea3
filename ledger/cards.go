package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlExpiredCards = `
SELECT b.account_id::text FROM billing.billable b
JOIN billing.accounts a ON a.account_id = b.account_id::text
WHERE b.job = $1 AND b.period = $2 AND a.card_expires < (billing.now() AT TIME ZONE 'UTC')::date
ORDER BY 1`

// ExpiredCards names up to limit accounts of a period whose card has expired, by
// the day that was imported with it, and counts them all. An account without such
// a day is not among them.
func ExpiredCards(ctx context.Context, q Querier, job Job, period Period, limit int) (n int64, accounts []string, err error) {
	rows, _ := q.Query(ctx, sqlExpiredCards, job, period)
	var account string
	_, err = pgx.ForEachRow(rows, []any{&account}, func() error {
		if n++; len(accounts) < limit {
			accounts = append(accounts, account)
		}
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("look for expired cards: %w", err)
	}
	return n, accounts, nil
}
