package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Approval says that a person looked at a plan and agreed.
type Approval struct {
	Job        Job
	Period     Period
	Plan       string
	ApprovedBy string
	Why        string
	ApprovedAt time.Time
	Accounts   int64
	// Sums are major units by currency, as text.
	Sums map[string]string
}

// ApprovedAmount is what an approved plan said for one account: the amount as
// decided, in major units.
type ApprovedAmount struct {
	AccountID, Amount, Currency string
}

const sqlApprove = `
INSERT INTO billing.approvals (job, period, plan, approved_by, why, accounts, sums)
VALUES (@job, @period, @plan, @approved_by, @why, @accounts, @sums)
ON CONFLICT ON CONSTRAINT approvals_pkey DO NOTHING`

// Approve records an approval. It reports false if the plan was approved before.
func Approve(ctx context.Context, tx pgx.Tx, a Approval) (bool, error) {
	sums, err := json.Marshal(a.Sums)
	if err != nil {
		return false, fmt.Errorf("write the sums: %w", err)
	}
	tag, err := tx.Exec(ctx, sqlApprove, pgx.NamedArgs{
		"job": a.Job, "period": a.Period, "plan": a.Plan, "approved_by": a.ApprovedBy, "why": a.Why, "accounts": a.Accounts, "sums": sums,
	})
	if err != nil {
		return false, fmt.Errorf("approve plan %s of %s: %w", a.Plan, a.Period, err)
	}
	return tag.RowsAffected() > 0, nil
}

// AddApprovedAmounts keeps what an approved plan says.
func AddApprovedAmounts(ctx context.Context, tx pgx.Tx, job Job, period Period, plan string, list []ApprovedAmount) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"billing", "approved_amounts"}, []string{"job", "period", "plan", "account_id", "amount", "currency"},
		pgx.CopyFromSlice(len(list), func(i int) ([]any, error) {
			return []any{string(job), string(period), plan, list[i].AccountID, list[i].Amount, list[i].Currency}, nil
		}))
	if err != nil {
		return fmt.Errorf("keep the approved amounts of %s: %w", period, err)
	}
	return nil
}

const sqlReadApproval = `
SELECT job, period, plan, approved_by, why, approved_at, accounts, sums
FROM billing.approvals WHERE job = $1 AND period = $2 ORDER BY plan = $3 DESC, approved_at DESC LIMIT 1`

// ReadApproval reads the approval of a plan, or else the last one of the period,
// ErrNotFound if there is none.
func ReadApproval(ctx context.Context, q Querier, job Job, period Period, plan string) (a Approval, err error) {
	rows, _ := q.Query(ctx, sqlReadApproval, job, period, plan)
	a, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Approval])
	if errors.Is(err, pgx.ErrNoRows) {
		return a, fmt.Errorf("approval of %s: %w", period, ErrNotFound)
	}
	if err != nil {
		return a, fmt.Errorf("read the approval of %s: %w", period, err)
	}
	return a, nil
}

const sqlApprovedCursor = `
DECLARE %s NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT account_id, amount, currency FROM billing.approved_amounts
WHERE job = $1 AND period = $2 AND plan = $3 ORDER BY account_id`

// ApprovedAmounts reads what a plan said, in the order of account ids as bytes.
func ApprovedAmounts(ctx context.Context, tx pgx.Tx, job Job, period Period, plan string) (*Cursor[ApprovedAmount], error) {
	c, err := openCursor[ApprovedAmount](ctx, tx, "approved_amounts", sqlApprovedCursor, job, period, plan)
	if err != nil {
		return nil, fmt.Errorf("read the approved plan of %s: %w", period, err)
	}
	return c, nil
}
