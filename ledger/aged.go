package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AgedItem is what is open in a period for one reason, and since when.
type AgedItem struct {
	// What is a state of charges, or finding for open findings that need a person.
	What  string
	Count int64
	// Since is when the oldest began to wait, and AccountID whose it is; empty for
	// pending, of which there may be millions.
	Since     time.Time
	AccountID string
}

// AgedFinding is an AgedItem's What for findings.
const AgedFinding = "finding"

const sqlAged = `
SELECT what, count, since, account_id FROM (
    SELECT 1 AS place, 'finding' AS what, count(*) AS count, min(f.opened_at) AS since,
           (array_agg(f.account_id ORDER BY f.opened_at, f.id))[1] AS account_id
    FROM billing.findings f WHERE f.job = $1 AND f.period = $2 AND f.severity = 'act' AND f.resolved_at IS NULL
    UNION ALL
    SELECT 2, c.state, count(*), min(coalesce(c.settled_at, c.created_at)),
           (array_agg(c.account_id ORDER BY coalesce(c.settled_at, c.created_at), c.account_id))[1]
    FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
    WHERE c.job = $1 AND c.period = $2
      AND (c.state IN ('review', 'held', 'rejected', 'action_required') OR (c.state = 'processing' AND c.settled_at < clock.t - $3::interval))
    GROUP BY c.state
    UNION ALL
    SELECT 3, 'pending', count(*), min(c.created_at), ''
    FROM billing.charges c WHERE c.job = $1 AND c.period = $2 AND c.state = 'pending') x
WHERE count > 0 ORDER BY place, since, what`

// ReadAged reads what is open in a period and since when: findings that need a person,
// charges that are in review, held, rejected, or wait for the customer, bank debits
// under way for longer than LongProcessing, and what is pending.
func ReadAged(ctx context.Context, q Querier, job Job, period Period) ([]AgedItem, error) {
	rows, _ := q.Query(ctx, sqlAged, job, period, LongProcessing)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[AgedItem])
	if err != nil {
		return nil, fmt.Errorf("read what is open in %s: %w", period, err)
	}
	return list, nil
}
