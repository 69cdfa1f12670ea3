package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

// StatementLine is one month of an account. Amounts are in major units; what was
// invoiced may be no number, in a company's own view. State is empty where a month is
// invoiced and has no charge yet.
type StatementLine struct {
	Period        Period
	InvoiceID     string
	Description   string
	State         ChargeState
	Reason        string
	Amount        string
	Currency      string
	Paid          string
	Refunded      string
	Disputed      bool
	SettledAt     *time.Time
	PaymentIntent *string
}

// Open is what of the month is still owed, negative for a credit; nothing of what was
// withdrawn, and of what is no number.
func (l StatementLine) Open() decimal.Decimal {
	amount, err := decimal.NewFromString(l.Amount)
	paid, paidErr := decimal.NewFromString(l.Paid)
	if err != nil || paidErr != nil || l.State == ChargeVoid {
		return decimal.Zero
	}
	return amount.Sub(paid)
}

// Periods are found by leaping from one to the next in two indexes, and an account's
// charge or invoice in each of them: a ledger of years has millions of charges.
const sqlStatement = `
WITH RECURSIVE p(period) AS (
    SELECT '0000-00'::text COLLATE "C"
    UNION ALL
    SELECT least((SELECT c.period FROM billing.charges c WHERE c.job = $1 AND c.period > p.period ORDER BY c.period LIMIT 1),
        (SELECT i.period FROM billing.invoices i WHERE i.job = $1 AND i.period > p.period ORDER BY i.period LIMIT 1))
    FROM p WHERE p.period IS NOT NULL)
SELECT p.period, coalesce(i.invoice_id, '') AS invoice_id, coalesce(i.description, '') AS description, coalesce(r.state, '') AS state,
    coalesce(r.reason, '') AS reason, coalesce(r.amount, i.amount)::text AS amount, coalesce(r.currency, i.currency) AS currency,
    CASE WHEN r.state = 'succeeded' THEN r.amount ELSE 0 END::text AS paid, coalesce(r.amount_refunded, 0)::text AS refunded,
    coalesce(r.disputed, false) AS disputed, r.settled_at, r.payment_intent
FROM p
LEFT JOIN billing.report_charges r ON r.job = $1 AND r.period = p.period AND r.account_id = $2
LEFT JOIN billing.invoices i ON i.job = $1 AND i.period = p.period AND i.account_id = $2
WHERE p.period IS NOT NULL AND (r.account_id IS NOT NULL OR i.account_id IS NOT NULL)
ORDER BY p.period`

// Statement reads every month of an account, the earliest first; ErrNotFound if there is
// none.
func Statement(ctx context.Context, q Querier, job Job, accountID string) ([]StatementLine, error) {
	rows, _ := q.Query(ctx, sqlStatement, job, accountID)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[StatementLine])
	if err != nil {
		return nil, fmt.Errorf("read the months of account %s: %w", accountID, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("invoices and charges of account %s: %w", accountID, ErrNotFound)
	}
	return list, nil
}
