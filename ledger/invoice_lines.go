package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// InvoiceLine is one line of an invoice that was made from usage. Numbers are plain
// decimal text, as numeric prints it: they have more digits than any float.
type InvoiceLine struct {
	Line                                  int
	Kind, Metric                          string
	FromPeriod                            Period // of late usage; else empty
	Before, Quantity, Included, UnitPrice string
	Exact, Amount                         string // major units
	Currency                              string
	ListFrom                              Period
	ListVersion                           int
}

const sqlLinesOfInvoice = `
SELECT l.line, l.kind, l.metric, l.from_period, l.before::text AS before, l.quantity::text AS quantity, l.included::text AS included,
    l.unit_price::text AS unit_price, l.exact::text AS exact, l.amount::text AS amount, l.currency, l.list_from, l.list_version
FROM billing.invoice_lines l WHERE l.job = $1 AND l.period = $2 AND l.account_id = $3 ORDER BY l.line`

// UsageInvoice is an invoice with how it was computed.
type UsageInvoice struct {
	AccountID string
	Amount    string
	Currency  string
	Source    string
	// Lines are empty where the invoice was not made from usage.
	Lines []InvoiceLine
	// State is the charge's, empty if nothing is recorded; Charged is what it was
	// recorded with.
	State           ChargeState
	Charged         string
	ChargedCurrency string
}

const sqlUsageInvoice = `
SELECT i.account_id, i.amount::text, i.currency, i.source, coalesce(c.state, ''), coalesce(c.amount::text, ''), coalesce(c.currency, '')
FROM billing.invoices i
LEFT JOIN billing.charges c ON c.job = i.job AND c.period = i.period AND c.account_id = i.account_id AND c.state <> 'void'
WHERE i.job = $1 AND i.period = $2 AND i.account_id = $3`

// ReadUsageInvoice reads one invoice and its lines, ErrNotFound if there is none.
func ReadUsageInvoice(ctx context.Context, q Querier, job Job, period Period, account string) (inv UsageInvoice, err error) {
	rows, _ := q.Query(ctx, sqlUsageInvoice, job, period, account)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (inv UsageInvoice, err error) {
		err = row.Scan(&inv.AccountID, &inv.Amount, &inv.Currency, &inv.Source, &inv.State, &inv.Charged, &inv.ChargedCurrency)
		return inv, err
	})
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return inv, fmt.Errorf("read the invoice of account %q for %s: %w", account, period, err)
	}
	inv = list[0]
	rows, _ = q.Query(ctx, sqlLinesOfInvoice, job, period, account)
	if inv.Lines, err = pgx.CollectRows(rows, pgx.RowToStructByName[InvoiceLine]); err != nil {
		return inv, fmt.Errorf("read the lines of account %q for %s: %w", account, period, err)
	}
	return inv, nil
}

// UsageOf is what one account used of one metric: in a month, or late for it.
type UsageOf struct {
	Kind, Metric string // kind is usage or late
	FromPeriod   Period // of late usage
	// Before is what was invoiced of FromPeriod earlier, Quantity what is new; plain
	// decimal text.
	Before, Quantity string
	// ListFrom and ListVersion name the list, of ListCurrency, that the invoice of
	// FromPeriod was made with; empty and 0 if it was not.
	ListFrom     Period
	ListCurrency string
	ListVersion  int
}

// usageOfPeriod is what was counted in a month and what was carried into it. The first
// parameter is the job, the second the period. A day is one of the billing time zone
// already.
const usageOfPeriod = `
SELECT d.account_id, 'usage' AS kind, d.metric, '' AS from_period, 0::numeric AS before, sum(d.quantity) AS quantity
FROM billing.daily_usage d
WHERE d.job = @job AND d.day >= (@period || '-01')::date AND d.day < (@period || '-01')::date + interval '1 month'
GROUP BY d.account_id, d.metric
UNION ALL
SELECT c.account_id, 'late', c.metric, c.from_period,
    coalesce((SELECT sum(d.quantity) FROM billing.daily_usage d
        WHERE d.job = @job AND d.account_id = c.account_id AND d.metric = c.metric
          AND d.day >= (c.from_period || '-01')::date AND d.day < (c.from_period || '-01')::date + interval '1 month'), 0)
    + coalesce((SELECT sum(b.quantity) FROM billing.usage_carried b
        WHERE b.job = @job AND b.from_period = c.from_period AND b.account_id = c.account_id AND b.metric = c.metric AND b.to_period < @period), 0),
    sum(c.quantity)
FROM billing.usage_carried c WHERE c.job = @job AND c.to_period = @period
GROUP BY c.account_id, c.metric, c.from_period`

// usedList is the list that the invoice of a late event's month was made with.
const usedList = `
LEFT JOIN LATERAL (
    SELECT l.list_from, l.currency, l.list_version FROM billing.invoice_lines l
    WHERE l.job = @job AND l.period = u.from_period AND l.account_id = u.account_id AND l.kind <> 'late' LIMIT 1) l ON u.from_period <> ''`

const usageColumns = `coalesce(u.kind, '') AS kind, coalesce(u.metric, '') AS metric, coalesce(u.from_period, '') AS from_period,
    coalesce(u.before::text, '0') AS before, coalesce(u.quantity::text, '0') AS quantity,
    coalesce(l.list_from, '') AS list_from, coalesce(l.currency, '') AS list_currency, coalesce(l.list_version, 0) AS list_version`

const sqlUsageOfAccount = `
SELECT ` + usageColumns + `
FROM (` + usageOfPeriod + `) u` + usedList + `
WHERE u.account_id = @account`

// ReadUsageOf reads what one account is to be invoiced for in a period, besides its
// base fee.
func ReadUsageOf(ctx context.Context, q Querier, job Job, period Period, account string) ([]UsageOf, error) {
	rows, _ := q.Query(ctx, sqlUsageOfAccount, pgx.NamedArgs{"job": job, "period": period, "account": account})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[UsageOf])
	if err != nil {
		return nil, fmt.Errorf("read the usage of account %q in %s: %w", account, period, err)
	}
	return list, nil
}
