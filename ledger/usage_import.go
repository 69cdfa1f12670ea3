package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// UsageEvent is one row of a file of usage.
type UsageEvent struct {
	Line       int // in the file
	EventID    string
	AccountID  string
	Metric     string
	Quantity   pgtype.Numeric
	OccurredAt *time.Time // nil: the moment of its arrival counts
}

// ImportedUsage says what an import of usage did. What is the same as an event that is
// there, or as an earlier row of the file, is unchanged.
type ImportedUsage struct {
	Imported
	// Unknown are rows of an account or a metric that the ledger does not know, so that a
	// meter would set them aside, with up to three of each for people.
	UnknownAccounts, UnknownMetrics     int64
	UnknownAccountIDs, UnknownMetricIDs []string
}

const sqlStageUsage = `
CREATE TEMPORARY TABLE usage_staging (
    line bigint, event_id text COLLATE "C", account_id text COLLATE "C", metric text COLLATE "C", quantity numeric, occurred_at timestamptz
) ON COMMIT DROP`

var usageStagingColumns = []string{"line", "event_id", "account_id", "metric", "quantity", "occurred_at"}

const sqlAddUsage = `
INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at)
SELECT s.event_id, s.account_id, s.metric, s.quantity, s.occurred_at FROM (
    SELECT DISTINCT ON (s.event_id, s.account_id, s.metric, s.quantity, s.occurred_at) * FROM pg_temp.usage_staging s
    ORDER BY s.event_id, s.account_id, s.metric, s.quantity, s.occurred_at, s.line) s
WHERE NOT EXISTS (
    SELECT FROM billing.usage_events e
    WHERE hashtextextended(e.event_id, 0) = hashtextextended(s.event_id, 0)
      AND (e.event_id, e.account_id, e.metric, e.quantity) = (s.event_id, s.account_id, s.metric, s.quantity)
      AND e.occurred_at IS NOT DISTINCT FROM s.occurred_at)
ORDER BY s.line`

const sqlUnknownUsage = `
SELECT (SELECT count(*) FROM pg_temp.usage_staging s WHERE NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = s.account_id)),
    ARRAY(SELECT DISTINCT s.account_id FROM pg_temp.usage_staging s
        WHERE NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = s.account_id) ORDER BY 1 LIMIT 3),
    (SELECT count(*) FROM pg_temp.usage_staging s WHERE NOT EXISTS (SELECT FROM billing.metrics m WHERE m.metric = s.metric)),
    ARRAY(SELECT DISTINCT s.metric FROM pg_temp.usage_staging s
        WHERE NOT EXISTS (SELECT FROM billing.metrics m WHERE m.metric = s.metric) ORDER BY 1 LIMIT 3)`

// ImportUsage adds events as an application would, other than those that are there
// already, word for word. next returns one row after another, io.EOF after the last; memory
// stays flat. An error of next leaves everything as it was when the caller rolls back.
func ImportUsage(ctx context.Context, tx pgx.Tx, next func() (UsageEvent, error)) (done ImportedUsage, err error) {
	if _, err := tx.Exec(ctx, sqlStageUsage); err != nil {
		return done, fmt.Errorf("create staging for usage: %w", err)
	}
	done.Rows, err = stageRows(ctx, tx, "usage_staging", usageStagingColumns, next, func(row []any, e UsageEvent) []any {
		return append(row, e.Line, e.EventID, e.AccountID, e.Metric, e.Quantity, e.OccurredAt)
	})
	if err != nil {
		return done, err
	}
	err = tx.QueryRow(ctx, sqlUnknownUsage).Scan(&done.UnknownAccounts, &done.UnknownAccountIDs, &done.UnknownMetrics, &done.UnknownMetricIDs)
	if err != nil {
		return done, fmt.Errorf("look for unknown accounts and metrics: %w", err)
	}
	if err := scan(ctx, tx, false, true); err != nil {
		return done, err
	}
	added, err := tx.Exec(ctx, sqlAddUsage)
	if err != nil {
		return done, fmt.Errorf("add usage: %w", err)
	}
	done.New = added.RowsAffected()
	done.Unchanged = done.Rows - done.New
	return done, nil
}
