package billing

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// approvedGroup is how many amounts are written at once.
const approvedGroup = 5000

// Approve records that somebody agrees with a plan, if it is still what the period
// comes to; a *StoppedError if it is another one by now. It reports false if the plan
// was approved before.
func Approve(ctx context.Context, pool *pgxpool.Pool, job ledger.Job, period ledger.Period, plan, by, why string) (approved bool, p Plan, err error) {
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		// What is approved is what is counted: one snapshot.
		if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		if p, err = checkPlan(ctx, tx, job, period, plan); err != nil {
			return err
		}
		approved, err = ledger.Approve(ctx, tx, ledger.Approval{
			Job: job, Period: period, Plan: plan, ApprovedBy: by, Why: why, Accounts: p.Rows, Sums: p.ToCharge(),
		})
		if err != nil || !approved {
			return err
		}
		var list []ledger.ApprovedAmount
		write := func() error {
			err := ledger.AddApprovedAmounts(ctx, tx, job, period, plan, list)
			list = list[:0]
			return err
		}
		_, err := planOf(ctx, tx, job, period, func(a ledger.ApprovedAmount) error {
			if list = append(list, a); len(list) < approvedGroup {
				return nil
			}
			return write()
		})
		if err != nil {
			return err
		}
		return write()
	})
	return approved, p, err
}

// CheckPlan decides whether a plan is still what the period comes to, and changes
// nothing; a *StoppedError if it is another one by now.
func CheckPlan(ctx context.Context, pool *pgxpool.Pool, job ledger.Job, period ledger.Period, plan string) (p Plan, err error) {
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		p, err = checkPlan(ctx, tx, job, period, plan)
		return err
	})
	return p, err
}

func checkPlan(ctx context.Context, tx pgx.Tx, job ledger.Job, period ledger.Period, plan string) (Plan, error) {
	p, err := planOf(ctx, tx, job, period, nil)
	switch {
	case err != nil:
		return p, err
	case p.Rows == 0:
		return p, &StoppedError{Gate: "nothing_billable", Msg: fmt.Sprintf("period %s has nothing to bill", period), Hint: "is the period typed right?"}
	case p.Hash != plan:
		return p, &StoppedError{
			Gate: "plan_changed", Msg: fmt.Sprintf("the plan of %s is %s by now, not %s; nothing was approved", period, p.Hash, plan),
			Hint: fmt.Sprintf("look again: billing preview --period %s", period),
		}
	}
	return p, nil
}

// planOf decides everything that is billable, and tells each of it.
func planOf(ctx context.Context, tx pgx.Tx, job ledger.Job, period ledger.Period, each func(ledger.ApprovedAmount) error) (Plan, error) {
	p := newPlanner(job, period)
	p.bare = true
	err := ledger.EachBillable(ctx, tx, job, period, func(rows []ledger.Billable) error {
		for i := range rows {
			dec, amount, err := p.addAmount(&rows[i])
			if err != nil {
				return err
			}
			if each != nil {
				if err := each(ledger.ApprovedAmount{AccountID: rows[i].AccountID, Amount: amount.String(), Currency: dec.Currency}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return p.plan(), err
}

// ToCharge is what a plan charges, in major units by currency.
func (p Plan) ToCharge() map[string]string {
	sums := map[string]string{}
	for _, s := range p.Sums {
		if s.State == ledger.ChargePending {
			sums[s.Currency] = money.Format(s.Amount, money.Currency(s.Currency))
		}
	}
	return sums
}
