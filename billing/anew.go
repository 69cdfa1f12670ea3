package billing

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// RecordAccounts records what some accounts owe and have no charge for, by the
// decisions of a run. It is how a restored ledger gets the charges back that
// Stripe shows payments for. The caller holds the claim's row.
func RecordAccounts(ctx context.Context, tx pgx.Tx, run ledger.Run, accounts []string, windowOpensAt time.Time) (int64, error) {
	rows, err := ledger.BillableRows(ctx, tx, run.Job, run.Period, accounts)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	p := newPlanner(run.Job, run.Period)
	decided := make([]ledger.Decision, 0, len(rows))
	for i := range rows {
		dec, err := p.add(&rows[i])
		if err != nil {
			return 0, err
		}
		decided = append(decided, dec)
	}
	staging, err := ledger.NewStaging(ctx, tx)
	if err != nil {
		return 0, err
	}
	if err := staging.Add(ctx, rows, decided); err != nil {
		return 0, err
	}
	return staging.Record(ctx, run, windowOpensAt)
}

// DecideAnew decides what charges would ask for in their next try, by what their
// accounts owe and pay with today. Those that owe nothing any more are left out.
func DecideAnew(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period, list []ledger.OpenCharge) ([]ledger.Requeue, error) {
	accounts := make([]string, len(list))
	seen := make(map[string]ledger.OpenCharge, len(list))
	for i, c := range list {
		accounts[i], seen[c.AccountID] = c.AccountID, c
	}
	rows, err := ledger.BillableRows(ctx, q, job, period, accounts)
	if err != nil {
		return nil, err
	}
	p := newPlanner(job, period)
	out := make([]ledger.Requeue, 0, len(rows))
	for i := range rows {
		c := seen[rows[i].AccountID]
		p.try = c.NextTry()
		dec, err := p.add(&rows[i])
		if err != nil {
			return nil, err
		}
		out = append(out, ledger.Requeue{Seen: c, Billable: rows[i], Decision: dec})
	}
	return out, nil
}
