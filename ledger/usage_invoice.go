package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// UsageInvoiceSource is what stands as the source of an invoice that was made from
// usage. What makes it one is its lines, not this word.
const UsageInvoiceSource = "usage"

// UsageInvoicing says which month's usage becomes invoices.
type UsageInvoicing struct {
	Job    Job
	Period Period
	Person string
	// Replace lets it take the place of imported invoices that have no charge.
	Replace bool
	// AllowOld takes a month that ended long ago.
	AllowOld bool
	// Try is for a transaction that is rolled back: no event is written.
	Try bool
}

// UsageState says how far the usage of a job is counted, seen from one period.
type UsageState struct {
	Watermark
	// Counted is false where no meter ever ran; all else is then zero.
	Counted bool
	// CompleteAt is the period's end and the settle delay after it: a period is complete
	// once everything that was received before this moment is counted.
	CompleteAt time.Time
	Now        time.Time
	// Invoiced says that the period's usage became invoices before, perhaps not that of
	// every account. HasUsage says that there is usage of the period, or carried into it.
	Invoiced, HasUsage bool
	// SetAside counts events, of any month, that wait for a person and so are in no
	// invoice.
	SetAside int64
	// Missed are the months before this one that have usage and were never invoiced.
	Missed []Period
}

// Complete reports whether all usage of the period is counted.
func (s UsageState) Complete() bool {
	return s.Counted && !s.Unfinished() && s.Through != nil && !s.Through.Before(s.CompleteAt)
}

// The end of a month is where its last day ends in the zone that days are counted in.
const sqlUsageState = `
SELECT (((@period || '-01')::date + interval '1 month') AT TIME ZONE w.time_zone) + w.settle, billing.now(),
    EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = w.job AND i.period = @period),
    (SELECT count(*) FROM billing.usage_set_aside s WHERE s.job = w.job AND s.decided IS NULL AND s.reason <> 'repeat'),
    ` + anyUsage + `
FROM billing.job_watermarks w WHERE w.job = @job`

const anyUsage = `(EXISTS (SELECT FROM billing.daily_usage d
        WHERE d.job = @job AND d.day >= (@period || '-01')::date AND d.day < (@period || '-01')::date + interval '1 month')
    OR EXISTS (SELECT FROM billing.usage_carried c WHERE c.job = @job AND c.to_period = @period))`

// A month that was passed over may lie before one that was invoiced. Each month is looked
// up by itself, so that not all days are read.
const sqlMissedMonths = `
WITH months AS (
    SELECT to_char(m.first, 'YYYY-MM') AS period, m.first::date AS first
    FROM generate_series(
        date_trunc('month', least(
            (SELECT min(d.day) FROM billing.daily_usage d WHERE d.job = @job),
            (SELECT (min(c.to_period) || '-01')::date FROM billing.usage_carried c WHERE c.job = @job))::timestamp),
        (@period || '-01')::timestamp - interval '1 month', interval '1 month') AS m (first))
SELECT m.period FROM months m
WHERE NOT EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = @job AND i.period = m.period)
  AND (EXISTS (SELECT FROM billing.daily_usage d WHERE d.job = @job AND d.day >= m.first AND d.day < m.first + interval '1 month')
    OR EXISTS (SELECT FROM billing.usage_carried c WHERE c.job = @job AND c.to_period = m.period))
ORDER BY m.period`

const sqlUninvoiced = `
SELECT NOT EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = @job AND i.period = @period) AND ` + anyUsage

// HasUninvoicedUsage reports whether a period has usage that became no invoices.
func HasUninvoicedUsage(ctx context.Context, q Querier, job Job, period Period) (there bool, err error) {
	if err := q.QueryRow(ctx, sqlUninvoiced, pgx.NamedArgs{"job": job, "period": period}).Scan(&there); err != nil {
		return false, fmt.Errorf("look for usage of %s that is not invoiced: %w", period, err)
	}
	return there, nil
}

// ReadUsageState reads how far usage is counted.
func ReadUsageState(ctx context.Context, q Querier, job Job, period Period) (UsageState, error) {
	w, err := ReadWatermark(ctx, q, job)
	return usageState(ctx, q, w, err, job, period)
}

func usageState(ctx context.Context, q Querier, w Watermark, err error, job Job, period Period) (UsageState, error) {
	s := UsageState{Watermark: w, Counted: true}
	if errors.Is(err, ErrNotFound) {
		return UsageState{}, nil
	}
	args := pgx.NamedArgs{"job": job, "period": period}
	if err == nil {
		err = q.QueryRow(ctx, sqlUsageState, args).Scan(&s.CompleteAt, &s.Now, &s.Invoiced, &s.SetAside, &s.HasUsage)
	}
	if err == nil {
		rows, _ := q.Query(ctx, sqlMissedMonths, args)
		s.Missed, err = pgx.CollectRows(rows, pgx.RowTo[Period])
	}
	if err != nil {
		return s, fmt.Errorf("read how far usage of %s is counted: %w", job, err)
	}
	return s, nil
}

const sqlStageUsageInvoices = `
CREATE TEMPORARY TABLE usage_invoice_staging (
    account_id text COLLATE "C" PRIMARY KEY, amount numeric, currency text, content_hash bytea, verdict text, detail text
) ON COMMIT DROP`

const sqlStageUsageLines = `
CREATE TEMPORARY TABLE usage_line_staging (
    account_id text COLLATE "C", line integer, kind text, metric text, from_period text, before numeric, quantity numeric, included numeric,
    unit_price numeric, exact numeric, amount numeric, currency text, list_from text, list_version integer, PRIMARY KEY (account_id, line)
) ON COMMIT DROP`

// BeginUsageInvoices keeps runs and meters out of the way until the transaction ends,
// and says how far usage is counted: the caller goes on only if it is complete. A
// *HeldError means that a run works on the period.
func BeginUsageInvoices(ctx context.Context, tx pgx.Tx, req UsageInvoicing) (s UsageState, err error) {
	if _, err := keepRunsOut(ctx, tx, req.Job, req.Period, sqlLockRunState); err != nil {
		return s, err
	}
	w, err := LockWatermark(ctx, tx, req.Job)
	if s, err = usageState(ctx, tx, w, err, req.Job, req.Period); err != nil {
		return s, err
	}
	for _, sql := range []string{sqlStageUsageInvoices, sqlStageUsageLines} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return s, fmt.Errorf("create staging for invoices: %w", err)
		}
	}
	return s, nil
}

// AccountUsage is one account with what it is to be invoiced for.
type AccountUsage struct {
	AccountID string
	// Known is false where usage has no account in billing.accounts.
	Known    bool
	Active   bool
	Currency string // lower case or empty
	// Joined says that it came, or was changed, after the month was invoiced, and has no
	// invoice of it.
	Joined bool
	Usage  []UsageOf
}

type accountUsageRow struct {
	AccountID string
	Known     bool
	Active    bool
	Currency  string
	Joined    bool
	UsageOf
}

const sqlEachAccountUsage = `
DECLARE %s NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT coalesce(a.account_id, u.account_id) AS account_id, a.account_id IS NOT NULL AS known, coalesce(a.status = 'active', false) AS active,
    coalesce(a.currency, '') AS currency,
    coalesce(a.updated_at > (SELECT i.at FROM billing.usage_invoiced i WHERE i.job = @job AND i.period = @period), false)
        AND NOT EXISTS (SELECT FROM billing.invoices i WHERE i.job = @job AND i.period = @period AND i.account_id = a.account_id) AS joined,
    ` + usageColumns + `
FROM billing.accounts a
FULL JOIN (` + usageOfPeriod + `) u ON u.account_id = a.account_id` + usedList + `
WHERE u.account_id IS NOT NULL OR a.status = 'active'
ORDER BY 1, u.kind, u.metric, u.from_period`

// batchAccounts bounds how many accounts EachAccountUsage hands over at once.
const batchAccounts = 1000

// EachAccountUsage hands over, some at a time and in the order of their ids, all
// accounts that have usage in the period or carried into it, and all active ones
// besides. do may write in the same transaction; memory stays flat.
func EachAccountUsage(ctx context.Context, tx pgx.Tx, job Job, period Period, do func([]AccountUsage) error) error {
	rows, err := openCursor[accountUsageRow](ctx, tx, "account_usage", sqlEachAccountUsage, pgx.NamedArgs{"job": job, "period": period})
	if err != nil {
		return fmt.Errorf("read the usage of %s: %w", period, err)
	}
	var batch []AccountUsage
	for {
		row, err := rows.Peek(ctx)
		if err != nil {
			return fmt.Errorf("read the usage of %s: %w", period, err)
		}
		last := len(batch) - 1
		more := row != nil && last >= 0 && batch[last].AccountID == row.AccountID
		if !more && (row == nil || len(batch) >= batchAccounts) && len(batch) > 0 {
			if err := do(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
		if row == nil {
			return rows.Close(ctx)
		}
		if !more {
			batch = append(batch, AccountUsage{AccountID: row.AccountID, Known: row.Known, Active: row.Active, Currency: row.Currency, Joined: row.Joined})
		}
		if a := &batch[len(batch)-1]; row.Kind != "" {
			a.Usage = append(a.Usage, row.UsageOf)
		}
		rows.Take()
	}
}

// PricedAccount is what an account's month came to.
type PricedAccount struct {
	AccountID string
	Amount    string // major units
	Currency  string
	Hash      [32]byte
	Lines     []InvoiceLine
	// Problem names why it has no invoice, and Detail says more; then it has no lines.
	Problem, Detail string
}

// StageUsageInvoices keeps what accounts came to for MergeUsageInvoices.
func StageUsageInvoices(ctx context.Context, tx pgx.Tx, batch []PricedAccount) error {
	var lines [][]any
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "usage_invoice_staging"}, []string{"account_id", "amount", "currency", "content_hash", "verdict", "detail"},
		pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
			a := batch[i]
			for _, l := range a.Lines {
				lines = append(lines, []any{a.AccountID, l.Line, l.Kind, l.Metric, string(l.FromPeriod), l.Before, l.Quantity, l.Included,
					l.UnitPrice, l.Exact, l.Amount, l.Currency, string(l.ListFrom), l.ListVersion})
			}
			var amount any
			if a.Problem == "" {
				amount = a.Amount
			}
			return []any{a.AccountID, amount, a.Currency, a.Hash[:], a.Problem, a.Detail}, nil
		}))
	if err == nil {
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "usage_line_staging"}, []string{"account_id", "line", "kind", "metric", "from_period", "before", "quantity",
			"included", "unit_price", "exact", "amount", "currency", "list_from", "list_version"}, pgx.CopyFromRows(lines))
	}
	if err != nil {
		return fmt.Errorf("stage invoices: %w", err)
	}
	return nil
}
