package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Most files have none, so the lines are looked for only once one is found.
const (
	duplicatesHead = `
WITH twice AS (
    SELECT account_id, count(*) OVER () AS total FROM (
        SELECT account_id FROM `
	duplicatesMiddle = ` GROUP BY account_id HAVING count(*) > 1) t)
SELECT s.account_id, (array_agg(s.line ORDER BY s.line))[1:5] AS lines, `
	duplicatesTail = ` AS identical, min(t.total) AS total
FROM twice t JOIN `
	duplicatesEnd = ` s ON s.account_id = t.account_id GROUP BY s.account_id ORDER BY min(s.line) LIMIT $1`

	identicalAccounts = `count(DISTINCT (s.stripe_account, s.stripe_customer, s.payment_method, s.currency, s.name, s.email, s.status, s.card_expires)) = 1`
	identicalInvoices = `count(DISTINCT (s.amount, s.currency, s.description, s.invoice_id, s.invoice_date)) = 1`

	sqlDuplicateAccounts = duplicatesHead + `pg_temp.account_staging` + duplicatesMiddle + identicalAccounts + duplicatesTail +
		`pg_temp.account_staging` + duplicatesEnd
	sqlDuplicateInvoices = duplicatesHead + `pg_temp.invoice_staging` + duplicatesMiddle + identicalInvoices + duplicatesTail +
		`pg_temp.invoice_staging` + duplicatesEnd
)

// refuseDuplicates returns a *DuplicateError if an account stands in two rows:
// neither can be said to be the right one.
func refuseDuplicates(ctx context.Context, tx pgx.Tx, sql string) error {
	rows, _ := tx.Query(ctx, sql, maxListed)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Duplicate])
	if err != nil {
		return fmt.Errorf("look for accounts with two rows: %w", err)
	}
	if len(list) > 0 {
		return &DuplicateError{List: list, Total: list[0].Total}
	}
	return nil
}

// NearError says that accounts of a file are not known, and that known ones have ids
// which a spreadsheet makes these of: zeros in front lost, .0 added, digits behind the
// fifteenth lost. An id is never matched as a number, so these are refused.
type NearError struct {
	List  []Near
	Total int64
}

// Near is a row of a file and the account that may be meant.
type Near struct {
	Line      int
	AccountID string
	Known     string
	Total     int64
}

func (e *NearError) Error() string {
	return fmt.Sprintf("%d accounts are not known as they stand", e.Total)
}

const (
	nearHead = `
WITH unknown AS MATERIALIZED (
    SELECT s.line, s.account_id, regexp_replace(s.account_id, '\.0+$', '') AS digits`
	nearWhere = `
    WHERE s.account_id ~ '^[0-9]+(\.0+)?$' AND NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = s.account_id)),
near AS (
    SELECT u.line, u.account_id, a.account_id AS known, u.customer, a.stripe_customer
    FROM unknown u JOIN billing.accounts a ON ltrim(a.account_id, '0') = ltrim(u.digits, '0') AND a.account_id <> u.account_id
    UNION
    SELECT u.line, u.account_id, a.account_id, u.customer, a.stripe_customer
    FROM unknown u JOIN billing.accounts a ON left(a.account_id, 15) = left(u.digits, 15)
    WHERE u.digits ~ '^[0-9]{15}0+$' AND length(a.account_id) = length(u.digits) AND a.account_id ~ '^[0-9]+$')`
	nearTail = `
SELECT line, account_id, min(known) AS known, count(*) OVER () AS total FROM near`
	nearEnd = ` GROUP BY line, account_id ORDER BY line LIMIT $1`

	sqlNearInvoices = nearHead + `, '' AS customer FROM pg_temp.invoice_staging s` + nearWhere + nearTail + nearEnd

	// A new account with another's id but for its zeros may be meant; one that is the
	// same customer at Stripe is not.
	sqlNearNewAccounts = nearHead + `, s.stripe_customer AS customer FROM pg_temp.account_staging s` + nearWhere + nearTail + `
WHERE customer <> '' AND customer = stripe_customer` + nearEnd
)

func refuseNear(ctx context.Context, tx pgx.Tx, sql string) error {
	rows, _ := tx.Query(ctx, sql, maxListed)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Near])
	if err != nil {
		return fmt.Errorf("look for accounts that may be meant: %w", err)
	}
	if len(list) > 0 {
		return &NearError{List: list, Total: list[0].Total}
	}
	return nil
}

// InvoiceIDError says that ids of invoices stand for more than one debt.
type InvoiceIDError struct {
	List  []InvoiceIDClash
	Total int64
}

// InvoiceIDClash is a row whose invoice id is another's: of another account in the
// same file (Line2), or of another period, or of an invoice of the period that the file
// does not have.
type InvoiceIDClash struct {
	Line      int
	AccountID string
	InvoiceID string
	Line2     int
	Account2  string
	Period2   string
	Amount2   string
	Currency2 string
	Total     int64
}

func (e *InvoiceIDError) Error() string {
	return fmt.Sprintf("%d invoice ids stand for more than one debt", e.Total)
}

const sqlInvoiceIDTwice = `
WITH twice AS (
    SELECT invoice_id, count(*) OVER () AS total FROM (
        SELECT invoice_id FROM pg_temp.invoice_staging WHERE invoice_id <> '' GROUP BY invoice_id HAVING count(*) > 1) t)
SELECT max(s.line) AS line, (array_agg(s.account_id ORDER BY s.line DESC))[1] AS account_id, s.invoice_id, min(s.line) AS line2,
    (array_agg(s.account_id ORDER BY s.line))[1] AS account2, '' AS period2, '' AS amount2, '' AS currency2, min(t.total) AS total
FROM twice t JOIN pg_temp.invoice_staging s ON s.invoice_id = t.invoice_id
GROUP BY s.invoice_id ORDER BY min(s.line) LIMIT $1`

// A year back is far enough to find last month's file, and bounded.
const sqlInvoiceIDElsewhere = `
SELECT s.line, s.account_id, s.invoice_id, 0 AS line2, i.account_id AS account2, i.period AS period2, i.amount::text AS amount2,
    i.currency AS currency2, count(*) OVER () AS total
FROM pg_temp.invoice_staging s
JOIN billing.invoices i ON i.invoice_id = s.invoice_id
WHERE s.invoice_id <> '' AND i.job = @job AND i.period <> @period AND i.period >= @since
ORDER BY s.line, i.period LIMIT @limit`

// refuseClashes returns an *InvoiceIDError if an id stands for two debts.
func refuseClashes(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	rows, _ := tx.Query(ctx, sql, args...)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[InvoiceIDClash])
	if err != nil {
		return fmt.Errorf("look for invoice ids that are used twice: %w", err)
	}
	if len(list) > 0 {
		return &InvoiceIDError{List: list, Total: list[0].Total}
	}
	return nil
}
