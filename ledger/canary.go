package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CanaryCharge is one of the few charges that are sent before the others.
type CanaryCharge struct {
	BillingKey  string
	Currency    string
	AmountMinor int64 // in minor units
}

// Each currency gets its share of the sample, one charge at least, spread evenly
// over its amounts.
const sqlPickCanary = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
ready AS (
    SELECT c.billing_key, c.currency, c.amount_minor,
        row_number() OVER (PARTITION BY c.currency ORDER BY c.amount_minor, c.account_id) - 1 AS place,
        count(*) OVER (PARTITION BY c.currency) AS of_currency, count(*) OVER () AS of_all
    FROM billing.charges c, clock
    WHERE c.job = @job AND c.period = @period AND c.state = 'pending' AND c.sends = 0
      AND c.window_opened_at <= clock.t AND clock.t < c.window_opened_at + @window::interval
      AND NOT EXISTS (SELECT FROM billing.pauses p WHERE p.job = c.job AND p.resumed_at IS NULL
          AND coalesce(p.account_id, '') IN ('', c.account_id))),
shared AS (
    SELECT *, greatest(1, round(@n::numeric * of_currency / of_all)) AS quota FROM ready),
spread AS (
    SELECT *, row_number() OVER (PARTITION BY currency, floor(place * quota / of_currency) ORDER BY place) AS first_of FROM shared)
SELECT billing_key, currency, amount_minor FROM spread WHERE first_of = 1
ORDER BY place = 0 DESC, place * 1.0 / of_currency, currency LIMIT @n`

// PickCanary picks up to n charges that were never sent and may be now, spread
// over currencies and amounts.
func PickCanary(ctx context.Context, q Querier, run Run, n int) ([]CanaryCharge, error) {
	rows, _ := q.Query(ctx, sqlPickCanary, pgx.NamedArgs{"job": run.Job, "period": run.Period, "window": Window, "n": n})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[CanaryCharge])
	if err != nil {
		return nil, fmt.Errorf("pick a canary: %w", err)
	}
	return list, nil
}

const sqlStatesOf = `SELECT state, count(*) FROM billing.charges WHERE billing_key = ANY ($1) GROUP BY state`

// StatesOf counts some charges by state.
func StatesOf(ctx context.Context, q Querier, keys []string) (map[ChargeState]int, error) {
	rows, _ := q.Query(ctx, sqlStatesOf, keys)
	states := map[ChargeState]int{}
	var state ChargeState
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { states[state] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count charges: %w", err)
	}
	return states, nil
}
