package billing

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// Preview decides every billable row of a period as a run would, on one
// read-only snapshot, and writes and sends nothing.
func Preview(ctx context.Context, pool *pgxpool.Pool, job ledger.Job, period ledger.Period, progress func(rows int64)) (Plan, ledger.Summary, error) {
	p := newPlanner(job, period)
	p.bare = true
	var summary ledger.Summary
	err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) (err error) {
		err = ledger.EachBillable(ctx, tx, job, period, func(rows []ledger.Billable) error {
			for i := range rows {
				if _, err := p.add(&rows[i]); err != nil {
					return err
				}
			}
			progress(p.rows)
			return nil
		})
		if err != nil {
			return err
		}
		summary, err = ledger.Summarize(ctx, tx, job, period)
		return err
	})
	return p.plan(), summary, err
}
