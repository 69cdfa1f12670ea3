package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

// ErrNoInvoices says that a period can't be closed because it has no invoices.
var ErrNoInvoices = errors.New("the period has no invoices")

// PeriodClose says that all invoices of a period are there, who said so, and what
// they came to at that moment.
type PeriodClose struct {
	ClosedBy string
	ClosedAt time.Time
	Invoices int64
	Sums     []InvoiceSum // in the order of the currency's code
}

// InvoiceSum is the invoices of a period in one currency.
type InvoiceSum struct {
	Currency string
	Count    int64
	Amount   decimal.Decimal // major units
}

// The same invoices again change nothing, not even who closed the period.
const sqlClosePeriod = `
WITH sums AS (
    SELECT i.currency, count(*) AS n, trim_scale(sum(i.amount))::text AS amount
    FROM billing.invoices i WHERE i.job = @job AND i.period = @period GROUP BY i.currency)
INSERT INTO billing.period_closes AS p (job, period, closed_by, closed_at, invoices, sums)
SELECT @job, @period, @person, billing.now(), sum(s.n),
    jsonb_object_agg(s.currency, jsonb_build_object('count', s.n, 'amount', s.amount))
FROM sums s HAVING count(*) > 0
ON CONFLICT ON CONSTRAINT period_closes_pkey DO UPDATE
SET closed_by = excluded.closed_by, closed_at = excluded.closed_at, invoices = excluded.invoices, sums = excluded.sums
WHERE (p.invoices, p.sums) IS DISTINCT FROM (excluded.invoices, excluded.sums)`

const sqlAnyInvoice = `
SELECT EXISTS (SELECT FROM billing.invoices i WHERE i.job = $1 AND i.period = $2)`

// Close marks a period complete, with the count and sums of its invoices.
// Closing again brings them up to date; if they are, it changes nothing. It
// returns ErrNoInvoices if there is nothing to close.
func Close(ctx context.Context, tx pgx.Tx, job Job, period Period, person string) error {
	changed, err := closeRow(ctx, tx, job, period, person)
	if err != nil || !changed {
		return err
	}
	if _, err := tx.Exec(ctx, sqlPeriodEvent, job, period, "close", person, ""); err != nil {
		return fmt.Errorf("record who closed %s: %w", period, err)
	}
	return nil
}

// TryClose is Close without its event, to be rolled back: it shows what a close
// would say.
func TryClose(ctx context.Context, tx pgx.Tx, job Job, period Period, person string) error {
	_, err := closeRow(ctx, tx, job, period, person)
	return err
}

func closeRow(ctx context.Context, tx pgx.Tx, job Job, period Period, person string) (changed bool, err error) {
	tag, err := tx.Exec(ctx, sqlClosePeriod, pgx.NamedArgs{"job": job, "period": period, "person": person})
	if err != nil {
		return false, fmt.Errorf("close period %s: %w", period, err)
	}
	if tag.RowsAffected() > 0 {
		return true, nil
	}
	var there bool
	if err := tx.QueryRow(ctx, sqlAnyInvoice, job, period).Scan(&there); err != nil {
		return false, fmt.Errorf("look for invoices of %s: %w", period, err)
	}
	if !there {
		return false, fmt.Errorf("close period %s: %w", period, ErrNoInvoices)
	}
	return false, nil
}

const sqlReadClose = `
SELECT closed_by, closed_at, invoices, sums FROM billing.period_closes WHERE job = $1 AND period = $2`

// ReadClose reads whether and how a period was closed, ErrNotFound if it is open.
func ReadClose(ctx context.Context, q Querier, job Job, period Period) (c PeriodClose, err error) {
	var sums []byte
	err = q.QueryRow(ctx, sqlReadClose, job, period).Scan(&c.ClosedBy, &c.ClosedAt, &c.Invoices, &sums)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, fmt.Errorf("close of period %s: %w", period, ErrNotFound)
	}
	if err != nil {
		return c, fmt.Errorf("read the close of %s: %w", period, err)
	}
	if c.Sums, err = parseInvoiceSums(sums); err != nil {
		return c, fmt.Errorf("read the sums at the close of %s: %w", period, err)
	}
	return c, nil
}

func parseInvoiceSums(text []byte) ([]InvoiceSum, error) {
	var byCurrency map[string]struct {
		Count  int64           `json:"count"`
		Amount decimal.Decimal `json:"amount"`
	}
	if err := json.Unmarshal(text, &byCurrency); err != nil {
		return nil, err
	}
	var sums []InvoiceSum
	for currency, s := range byCurrency {
		sums = append(sums, InvoiceSum{Currency: currency, Count: s.Count, Amount: s.Amount})
	}
	slices.SortFunc(sums, func(a, b InvoiceSum) int { return cmp.Compare(a.Currency, b.Currency) })
	return sums, nil
}

// A company's own view may read our table through views of its own.
const sqlBillableReads = `
WITH RECURSIVE reads(relation) AS (
    SELECT pg_catalog.to_regclass('billing.billable')::oid
    UNION
    SELECT d.refobjid
    FROM reads v
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = v.relation
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
        AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass)
SELECT EXISTS (SELECT FROM reads WHERE relation = pg_catalog.to_regclass($1)::oid)`

// NeedsClose reports whether a period must be closed before it is run: where the
// view billing.billable reads billing.invoices, since only then is it us who know
// when all of them are there.
func NeedsClose(ctx context.Context, q Querier) (bool, error) {
	return billableReads(ctx, q, "billing.invoices")
}

// UsesAccounts reports whether what is billed comes with the customers of
// billing.accounts.
func UsesAccounts(ctx context.Context, q Querier) (bool, error) {
	return billableReads(ctx, q, "billing.accounts")
}

func billableReads(ctx context.Context, q Querier, table string) (reads bool, err error) {
	if err := q.QueryRow(ctx, sqlBillableReads, table).Scan(&reads); err != nil {
		return false, fmt.Errorf("look at what billing.billable reads: %w", err)
	}
	return reads, nil
}
