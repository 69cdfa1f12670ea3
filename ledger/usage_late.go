package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Where late events of each invoiced period go: the first period after it that is not
// invoiced yet. Bounds only save reading; the date decides.
const withInvoiced = `
WITH invoiced AS MATERIALIZED (
    SELECT i.period, (
        SELECT min(n.next) FROM (SELECT to_char(to_date(l.period || '-01', 'YYYY-MM-DD') + interval '1 month', 'YYYY-MM') AS next
            FROM billing.usage_invoiced l WHERE l.job = @job AND l.period >= i.period) n
        WHERE NOT EXISTS (SELECT FROM billing.usage_invoiced t WHERE t.job = @job AND t.period = n.next)) AS next
    FROM billing.usage_invoiced i WHERE i.job = @job),
bound AS MATERIALIZED (
    SELECT (to_date(max(i.period) || '-01', 'YYYY-MM-DD') + interval '1 month')::timestamptz + interval '2 hours' AS ends FROM invoiced i)`

const sqlAnyInvoiced = `
SELECT EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = $1)`

const intoCarried = `, carried AS (
    INSERT INTO billing.usage_carried (job, arrival, from_period, to_period, account_id, metric, quantity)
    SELECT @job, e.arrival, i.period, i.next, e.account_id, e.metric, e.quantity
    FROM late e JOIN invoiced i ON i.period = to_char(e.day, 'YYYY-MM')
    ORDER BY e.arrival
    ON CONFLICT ON CONSTRAINT usage_carried_pkey DO NOTHING
    RETURNING from_period, to_period)
SELECT c.from_period, c.to_period, count(*) AS count FROM carried c GROUP BY 1, 2 ORDER BY 1, 2`

const sqlCarryRange = withInvoiced + `, late AS (
    SELECT e.arrival, e.account_id, e.metric, e.quantity, coalesce(e.occurred_at, e.received_at)::date AS day
    FROM billing.usage_events e
    WHERE e.xid >= @from AND e.xid < @to AND coalesce(e.occurred_at, e.received_at) < (SELECT b.ends FROM bound b)
      AND NOT EXISTS (SELECT FROM billing.usage_set_aside s
        WHERE s.job = @job AND s.arrival = e.arrival AND s.decided IS DISTINCT FROM 'released'))` + intoCarried

// carry takes what arrived for an invoiced period to a later one.
func (r usageRange) carry(ctx context.Context, tx pgx.Tx) ([]CarriedCount, error) {
	var there bool
	if err := tx.QueryRow(ctx, sqlAnyInvoiced, r.Job).Scan(&there); err != nil || !there {
		return nil, err
	}
	if err := scan(ctx, tx, r.whole(), false); err != nil {
		return nil, err
	}
	r.tell("find late events", 0)
	return carried(ctx, tx, sqlCarryRange, pgx.NamedArgs{"job": r.Job, "from": r.from, "to": r.to})
}

func carried(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs) ([]CarriedCount, error) {
	rows, _ := tx.Query(ctx, sql, args)
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[CarriedCount])
	if err != nil {
		return nil, fmt.Errorf("carry late events: %w", err)
	}
	return counts, nil
}
