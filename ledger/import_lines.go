package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlStageLines = `CREATE TEMPORARY TABLE invoice_lines ` + stagedInvoice

// RepeatError says that rows of one invoice each carry its total, or that rows of one
// account can't be added up.
type RepeatError struct {
	List  []Repeat
	Total int64
}

// Repeat is an account whose rows can't be added up, and why.
type Repeat struct {
	AccountID string
	InvoiceID string // of the first row
	Lines     []int  // five at most
	Rows      int64
	Amount    string // of the first row
	Why       RepeatReason
	Total     int64
}

// RepeatReason says why rows can't be added up.
type RepeatReason string

// Reasons why the rows of an account can't be added up.
const (
	// RepeatTotal: each row has the total of the whole invoice.
	RepeatTotal RepeatReason = "total"
	// RepeatCurrencies: the rows are in several currencies.
	RepeatCurrencies RepeatReason = "currencies"
	// RepeatInvoices: the rows are of several invoices.
	RepeatInvoices RepeatReason = "invoices"
)

func (e *RepeatError) Error() string {
	return fmt.Sprintf("the rows of %d accounts can't be added up", e.Total)
}

// A total that is repeated is known by the title of its column. Without one it is known
// by this: every invoice of several rows has one amount on all of them, there are two
// such invoices or more, of different amounts, and their rows are not simply the same.
const sqlRepeats = `
WITH groups AS (
    SELECT account_id, min(invoice_id) AS invoice_id, (array_agg(line ORDER BY line))[1:5] AS lines, count(*) AS rows,
        min(amount) AS amount, min(amount) = max(amount) AS equal, min(currency) <> max(currency) AS currencies,
        min(coalesce(invoice_id, '')) <> max(coalesce(invoice_id, '')) AS invoices,
        min(coalesce(description, '')) <> max(coalesce(description, '')) AS described
    FROM pg_temp.invoice_lines GROUP BY account_id HAVING count(*) > 1),
verdict AS (
    SELECT count(*) FILTER (WHERE NOT equal) = 0 AND count(*) FILTER (WHERE coalesce(invoice_id, '') = '') = 0
        AND count(DISTINCT amount) > 1 AND bool_or(described) AS repeats FROM groups),
found AS (
    SELECT g.*, CASE WHEN g.currencies THEN 'currencies' WHEN g.invoices THEN 'invoices'
        WHEN g.equal AND g.amount <> 0 AND NOT $2 AND ($1 OR v.repeats) THEN 'total' ELSE '' END AS why
    FROM groups g, verdict v)
SELECT account_id, coalesce(invoice_id, '') AS invoice_id, lines, rows, amount::text AS amount, why, count(*) OVER () AS total
FROM found WHERE why <> '' ORDER BY lines[1] LIMIT $3`

const sqlIdenticalLines = `
SELECT coalesce(sum(n), 0)::bigint FROM (
    SELECT count(*) AS n FROM pg_temp.invoice_lines GROUP BY account_id, amount, currency, description, invoice_id, invoice_date
    HAVING count(*) > 1) t`

// The texts of the rows are put behind each other, once each, in the order of the file.
const sqlSumLines = `
INSERT INTO pg_temp.invoice_staging (line, account_id, amount, currency, description, invoice_id, invoice_date)
SELECT min(line), account_id, sum(amount), min(currency),
    CASE WHEN count(*) = 1 OR min(description) = max(description) THEN min(description)
         ELSE left((SELECT string_agg(d.text, '; ' ORDER BY d.first) FROM (
             SELECT t.text, min(t.at) AS first FROM unnest(array_agg(description ORDER BY line)) WITH ORDINALITY t(text, at)
             WHERE t.text <> '' GROUP BY t.text) d), 500) END,
    min(invoice_id), max(invoice_date)
FROM pg_temp.invoice_lines GROUP BY account_id`

// sumLines makes one row for each account of the lines of a file.
func sumLines(ctx context.Context, tx pgx.Tx, req InvoiceImport, done *ImportedInvoices) error {
	rows, _ := tx.Query(ctx, sqlRepeats, req.TotalsRepeat, req.EqualLines, maxListed)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Repeat])
	if err != nil {
		return fmt.Errorf("look for totals that repeat: %w", err)
	}
	if len(list) > 0 {
		return &RepeatError{List: list, Total: list[0].Total}
	}
	if err := tx.QueryRow(ctx, sqlIdenticalLines).Scan(&done.Identical); err != nil {
		return fmt.Errorf("count identical lines: %w", err)
	}
	summed, err := tx.Exec(ctx, sqlSumLines)
	if err != nil {
		return fmt.Errorf("add up lines: %w", err)
	}
	done.Lines, done.Rows = done.Rows, summed.RowsAffected()
	return nil
}

const sqlMovedInvoices = `
SELECT s.line, s.account_id, i.amount::text AS old_amount, i.currency AS old_currency, i.description AS old_description,
       i.invoice_id AS old_invoice_id, s.amount::text AS new_amount, s.currency AS new_currency,
       coalesce(s.description, i.description) AS new_description, i.invoice_id AS new_invoice_id,
       i.account_id AS old_account_id, coalesce(c.state, '') AS state, coalesce(c.sends, 0) AS sends
FROM pg_temp.invoice_staging s
JOIN billing.invoices i ON i.job = $1 AND i.period = $2 AND i.invoice_id = s.invoice_id AND i.account_id <> s.account_id
LEFT JOIN billing.charges c ON c.job = $1 AND c.period = $2 AND c.account_id = i.account_id
WHERE s.invoice_id <> '' AND NOT EXISTS (SELECT FROM pg_temp.invoice_staging o WHERE o.account_id = i.account_id)
ORDER BY coalesce(c.state, 'void') = 'void', s.line LIMIT $3`

const sqlMoveInvoice = `
UPDATE billing.invoices i
SET account_id = s.account_id,` + setInvoice + `
FROM pg_temp.invoice_staging s, (SELECT billing.now() AS t) clock
WHERE i.job = @job AND i.period = @period AND i.account_id = @old AND s.account_id = @new
  AND NOT EXISTS (SELECT FROM billing.invoices t WHERE t.job = @job AND t.period = @period AND t.account_id = @new)`

// maxMoved bounds how many invoices may get another account at once.
const maxMoved = 1000

// moveInvoices gives the invoices whose ids the file names under other accounts to
// these: an invoice id is one debt, and would be two otherwise.
func moveInvoices(ctx context.Context, tx pgx.Tx, req InvoiceImport) ([]InvoiceConflict, error) {
	rows, _ := tx.Query(ctx, sqlMovedInvoices, req.Job, req.Period, maxMoved+1)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[InvoiceConflict])
	if err != nil {
		return nil, fmt.Errorf("look for invoices of other accounts: %w", err)
	}
	conflict := &ConflictError{}
	for _, c := range list {
		if c.Frozen() {
			conflict.Frozen++
		} else {
			conflict.Changed++
		}
	}
	if len(list) > 0 && (conflict.Frozen > 0 || !req.Replace || len(list) > maxMoved) {
		conflict.List = list[:min(len(list), maxListed)]
		return nil, conflict
	}
	for _, c := range list {
		args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "source": req.Source, "old": c.OldAccountID, "new": c.AccountID}
		tag, err := tx.Exec(ctx, sqlMoveInvoice, args)
		if err != nil {
			return nil, fmt.Errorf("move invoice %s: %w", c.NewInvoiceID, err)
		}
		if tag.RowsAffected() == 0 {
			return nil, &InvoiceIDError{Total: 1, List: []InvoiceIDClash{{Line: c.Line, AccountID: c.AccountID, InvoiceID: c.NewInvoiceID,
				Account2: c.OldAccountID, Amount2: c.OldAmount, Currency2: c.OldCurrency}}}
		}
	}
	return list, nil
}

// yearBefore is the period twelve months before p.
func yearBefore(p Period) Period {
	for range 12 {
		p = p.Previous()
	}
	return p
}

// dateOf is a day for COPY, null for none.
func dateOf(day string) any {
	if day == "" {
		return nil
	}
	return day
}
