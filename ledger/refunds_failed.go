package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A refund that failed at the bank, or was cancelled, gave nothing back: what it had
// resolved is open again, whatever its kind, once. Its history says so.
const sqlReopenFailed = `
WITH failed AS MATERIALIZED (
    SELECT DISTINCT e.finding_id, e.refund, r.status
    FROM billing.audit_returns r
    JOIN billing.finding_events e ON e.refund = r.id AND e.action = 'refund'
    JOIN billing.findings f ON f.id = e.finding_id AND f.job = $2 AND f.period = $3
    WHERE r.audit = $1 AND r.kind = 'refund' AND r.amount = 0
      AND NOT EXISTS (SELECT FROM billing.finding_events x WHERE x.finding_id = e.finding_id AND x.refund = e.refund AND x.action = 'refund_refused')),
said AS (
    INSERT INTO billing.finding_events (finding_id, action, person, why, refund, detail)
    SELECT finding_id, 'refund_refused', 'billing', 'an audit saw what became of it', refund, 'it is ' || status || ': nothing was given back' FROM failed)
UPDATE billing.findings f
SET opened_at = billing.now(), resolved_at = NULL, resolved_by = '', resolution = '', why = ''
WHERE f.id IN (SELECT finding_id FROM failed) AND f.resolution = 'refunded'`

// What is newer than the audit's pages is not touched.
const sqlSettledRefunds = `
UPDATE billing.refund_orders o
SET refund_status = r.status, state = CASE WHEN r.amount = 0 THEN 'refused' ELSE o.state END,
    reason = CASE WHEN r.amount = 0 THEN 'refund_' || r.status ELSE o.reason END
FROM billing.audit_returns r, billing.findings f
WHERE r.audit = $1 AND r.kind = 'refund' AND o.refund = r.id AND o.state = 'refunded' AND o.refund_status <> r.status AND o.settled_at < $4
  AND f.id = o.finding_id AND f.job = $2 AND f.period = $3`

// refundsFailed brings the orders of the period up to date with what became of their
// refunds, and reopens the findings of those that failed. It returns how many.
func (a Audit) refundsFailed(ctx context.Context, tx pgx.Tx) (reopened int64, err error) {
	tag, err := tx.Exec(ctx, sqlReopenFailed, a.ID, a.Job, a.Period)
	if err != nil {
		return 0, fmt.Errorf("reopen the findings of refunds that failed: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlSettledRefunds, a.ID, a.Job, a.Period, a.StartedAt); err != nil {
		return 0, fmt.Errorf("note what became of refunds: %w", err)
	}
	return tag.RowsAffected(), nil
}
