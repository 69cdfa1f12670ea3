package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Two jobs at once would each find no invoices of the other. It is the first lock of its
// transaction, and of no other kind of transaction, so that nobody waits for it in a circle.
const sqlLockUsageMonth = `
SELECT pg_advisory_xact_lock(hashtextextended('billing usage ' || $1, 0))`

const sqlOtherJob = `
SELECT i.job FROM billing.usage_invoiced i WHERE i.period = $2 AND i.job <> $1 ORDER BY i.job LIMIT 1`

// OtherJobInvoiced returns another job that made invoices from the usage of a period, empty
// if there is none, and keeps others from beginning until the transaction ends. Each job
// counts all events and knows all accounts: two of them would bill everything twice.
func OtherJobInvoiced(ctx context.Context, tx pgx.Tx, job Job, period Period) (other Job, err error) {
	if _, err := tx.Exec(ctx, sqlLockUsageMonth, period); err != nil {
		return "", fmt.Errorf("keep other jobs from invoicing %s: %w", period, err)
	}
	err = tx.QueryRow(ctx, sqlOtherJob, job, period).Scan(&other)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("look for invoices of other jobs: %w", err)
	}
	return other, nil
}
