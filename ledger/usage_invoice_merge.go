package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

// The statements below give an account a verdict: new, same, changed, replaced (an imported
// invoice) or frozen (it would differ, and is recorded as a charge), or one of these, or
// the problem that was staged.
const (
	// ProblemImported: an imported invoice is in the way.
	ProblemImported = "imported"
	// ProblemImportedCharged: and it is recorded as a charge.
	ProblemImportedCharged = "imported_charged"
	// ProblemIdle is none: an active account without usage, for whose currency there
	// are no prices.
	ProblemIdle = "idle"
	// ProblemJoined is none: an active account without usage that came, or was changed,
	// after the month was invoiced, so that it owes no base fee for it.
	ProblemJoined = "joined"
)

// maxProblems bounds how many accounts a result names.
const maxProblems = 1000

// UsageInvoices says what became of a month's usage.
type UsageInvoices struct {
	State UsageState
	// New, Changed, Replaced, Unchanged and Frozen count invoices; Frozen ones would
	// differ today and stay as they were charged. Removed had usage before and have
	// none now.
	New, Changed, Replaced, Unchanged, Frozen, Removed int64
	// Sums are what the invoices from usage come to, by currency.
	Sums []InvoiceSum
	// Problems are accounts without an invoice, the first thousand of all by id.
	Problems     []UsageProblem
	ProblemCount int64
	// Differing names the first of those that Frozen counts.
	Differing []UsageDifference
	// RemovedIDs names the first twenty.
	RemovedIDs []string
	// Idle counts active accounts without usage, and without prices in their currency;
	// IdleIDs names the first five.
	Idle    int64
	IdleIDs []string
	// Joined counts active accounts that came after the month was invoiced; JoinedIDs
	// names the first five.
	Joined    int64
	JoinedIDs []string
	// Changes are the first twenty invoices that got another amount or currency, those
	// with another currency first.
	Changes []UsageChange
	// Run is the state of the period's run, empty if there was none.
	Run RunState
}

// UsageChange is an invoice before and after it was made again.
type UsageChange struct {
	UsageDifference
	// Moved counts invoices that got another currency, Total all that changed in amount
	// or currency; both are the same in each UsageChange.
	Moved, Total int64
}

// UsageProblem is an account that got no invoice, and why.
type UsageProblem struct {
	AccountID string
	Code      string
	Detail    string
}

// UsageDifference is an invoice that is charged, and what it would be today.
type UsageDifference struct {
	AccountID              string
	OldAmount, OldCurrency string
	NewAmount, NewCurrency string
}

// Lines as text: two that say the same are the same. lists says by which prices.
const linesText = `
    string_agg(concat_ws(E'\x1f', l.line, l.kind, l.metric, l.from_period, trim_scale(l.before), trim_scale(l.quantity), trim_scale(l.included),
        trim_scale(l.unit_price), trim_scale(l.exact), trim_scale(l.amount), l.currency), E'\x1e' ORDER BY l.line) AS lines,
    string_agg(concat_ws(' ', l.list_from, l.list_version), ',' ORDER BY l.line) AS lists`

// What is staged is held against what is there, lines and all. A charged invoice keeps
// the prices it was made with, whatever version of the list says the same today.
const sqlJudgeUsageInvoices = `
WITH want AS (SELECT l.account_id, ` + linesText + ` FROM pg_temp.usage_line_staging l GROUP BY l.account_id),
have AS (SELECT l.account_id, ` + linesText + ` FROM billing.invoice_lines l WHERE l.job = @job AND l.period = @period GROUP BY l.account_id)
UPDATE pg_temp.usage_invoice_staging s SET verdict = CASE
    WHEN i.account_id IS NULL THEN 'new'
    WHEN have.account_id IS NULL AND c.account_id IS NOT NULL THEN 'imported_charged'
    WHEN have.account_id IS NULL AND @replace THEN 'replaced'
    WHEN have.account_id IS NULL THEN 'imported'
    WHEN have.lines <> want.lines OR i.amount <> s.amount OR i.currency <> s.currency THEN CASE WHEN c.account_id IS NULL THEN 'changed' ELSE 'frozen' END
    WHEN have.lists <> want.lists AND c.account_id IS NULL THEN 'changed'
    ELSE 'same' END,
    detail = coalesce(i.source, '')
FROM want
LEFT JOIN billing.invoices i ON i.job = @job AND i.period = @period AND i.account_id = want.account_id
LEFT JOIN have ON have.account_id = want.account_id
LEFT JOIN billing.charges c ON c.job = @job AND c.period = @period AND c.account_id = want.account_id AND c.state <> 'void'
WHERE s.account_id = want.account_id AND s.verdict = ''`

// Without statistics a month's staging is taken for a handful of rows.
const sqlAnalyzeUsageStaging = `ANALYZE pg_temp.usage_invoice_staging, pg_temp.usage_line_staging`

const sqlUsageChanges = `
SELECT i.account_id, i.amount::text AS old_amount, i.currency AS old_currency, s.amount::text AS new_amount, s.currency AS new_currency,
    count(*) FILTER (WHERE i.currency <> s.currency) OVER () AS moved, count(*) OVER () AS total
FROM pg_temp.usage_invoice_staging s JOIN billing.invoices i ON i.job = $1 AND i.period = $2 AND i.account_id = s.account_id
WHERE s.verdict IN ('changed', 'replaced') AND (i.amount, i.currency) IS DISTINCT FROM (s.amount, s.currency)
ORDER BY i.currency = s.currency, i.account_id LIMIT $3`

const sqlChangeUsageInvoices = `
UPDATE billing.invoices i
SET amount = s.amount, currency = s.currency, description = '', invoice_id = '', invoice_date = NULL, source = @source,
    content_hash = s.content_hash, imported_at = clock.t
FROM pg_temp.usage_invoice_staging s, (SELECT billing.now() AS t) clock
WHERE i.job = @job AND i.period = @period AND i.account_id = s.account_id AND s.verdict IN ('changed', 'replaced')`

const sqlAddUsageInvoices = `
INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash, imported_at)
SELECT @job, @period, s.account_id, s.amount, s.currency, @source, s.content_hash, clock.t
FROM pg_temp.usage_invoice_staging s, (SELECT billing.now() AS t) clock WHERE s.verdict = 'new' ORDER BY s.account_id`

// The old lines of changed invoices went with the change.
const sqlAddUsageLines = `
INSERT INTO billing.invoice_lines (job, period, account_id, line, kind, metric, from_period, before, quantity, included, unit_price, exact, amount,
    currency, list_from, list_version)
SELECT @job, @period, l.account_id, l.line, l.kind, l.metric, l.from_period, l.before, l.quantity, l.included, l.unit_price, l.exact, l.amount,
    l.currency, l.list_from, l.list_version
FROM pg_temp.usage_line_staging l JOIN pg_temp.usage_invoice_staging s ON s.account_id = l.account_id
WHERE s.verdict IN ('new', 'changed', 'replaced') ORDER BY l.account_id, l.line`

// An invoice from usage of which nothing is left.
const sqlVanishedUsage = `
SELECT coalesce(array_agg(g.account_id ORDER BY g.account_id) FILTER (WHERE g.free), '{}'),
       coalesce(array_agg(g.account_id ORDER BY g.account_id) FILTER (WHERE NOT g.free), '{}')
FROM (
    SELECT DISTINCT l.account_id, c.account_id IS NULL AS free FROM billing.invoice_lines l
    LEFT JOIN pg_temp.usage_invoice_staging s ON s.account_id = l.account_id
    LEFT JOIN billing.charges c ON c.job = @job AND c.period = @period AND c.account_id = l.account_id AND c.state <> 'void'
    WHERE l.job = @job AND l.period = @period AND (s.account_id IS NULL OR s.verdict = 'idle')) g`

const sqlRemoveUsageInvoices = `SELECT billing.remove_usage_invoices(@job, @period, @accounts)`

// MergeUsageInvoices brings what is staged into billing.invoices: what is new, what
// changed and is not charged, and what is no longer owed. Accounts with a problem stay
// as they were.
func MergeUsageInvoices(ctx context.Context, tx pgx.Tx, req UsageInvoicing) (done UsageInvoices, err error) {
	if _, err := tx.Exec(ctx, sqlLockInvoices); err != nil {
		return done, fmt.Errorf("lock invoices: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlAnalyzeUsageStaging); err != nil {
		return done, fmt.Errorf("look at what is staged: %w", err)
	}
	args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "replace": req.Replace, "source": UsageInvoiceSource}
	var free, kept []string
	if _, err := tx.Exec(ctx, sqlJudgeUsageInvoices, args); err != nil {
		return done, fmt.Errorf("compare invoices: %w", err)
	}
	if err := tx.QueryRow(ctx, sqlVanishedUsage, args).Scan(&free, &kept); err != nil {
		return done, fmt.Errorf("look for invoices without usage: %w", err)
	}
	rows, _ := tx.Query(ctx, sqlUsageChanges, req.Job, req.Period, maxListed)
	if done.Changes, err = pgx.CollectRows(rows, pgx.RowToStructByName[UsageChange]); err != nil {
		return done, fmt.Errorf("look at invoices that change: %w", err)
	}
	for _, step := range []struct{ what, sql string }{{"change", sqlChangeUsageInvoices}, {"add", sqlAddUsageInvoices}, {"add the lines of", sqlAddUsageLines}} {
		if _, err := tx.Exec(ctx, step.sql, args); err != nil {
			return done, fmt.Errorf("%s invoices: %w", step.what, err)
		}
	}
	if len(free) > 0 {
		args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "accounts": free}
		if err := tx.QueryRow(ctx, sqlRemoveUsageInvoices, args).Scan(&done.Removed); err != nil {
			return done, fmt.Errorf("remove invoices without usage: %w", err)
		}
	}
	done.RemovedIDs = free[:min(len(free), maxListed)]
	if err := readUsageVerdicts(ctx, tx, req, kept, &done); err != nil {
		return done, err
	}
	// The first run of a period has no row that could be locked beforehand.
	done.Run, err = keepRunsOut(ctx, tx, req.Job, req.Period, sqlLockRunState)
	return done, err
}

const sqlUsageVerdicts = `
SELECT count(*) FILTER (WHERE s.verdict = 'new'), count(*) FILTER (WHERE s.verdict = 'changed'), count(*) FILTER (WHERE s.verdict = 'replaced'),
    count(*) FILTER (WHERE s.verdict = 'same'), count(*) FILTER (WHERE s.verdict = 'frozen'),
    count(*) FILTER (WHERE s.verdict NOT IN ('new', 'changed', 'replaced', 'same', 'frozen', 'idle', 'joined'))
FROM pg_temp.usage_invoice_staging s`

const sqlUsageProblems = `
SELECT s.account_id, s.verdict AS code, s.detail FROM pg_temp.usage_invoice_staging s
WHERE s.verdict NOT IN ('new', 'changed', 'replaced', 'same', 'frozen', 'idle', 'joined') ORDER BY s.account_id LIMIT $1`

const sqlUsageDiffering = `
SELECT i.account_id, i.amount::text AS old_amount, i.currency AS old_currency, coalesce(s.amount::text, '0') AS new_amount,
    coalesce(nullif(s.currency, ''), i.currency) AS new_currency
FROM billing.invoices i LEFT JOIN pg_temp.usage_invoice_staging s ON s.account_id = i.account_id
WHERE i.job = @job AND i.period = @period AND (s.verdict = 'frozen' OR i.account_id = ANY (@kept)) ORDER BY i.account_id LIMIT @limit`

const sqlUsageSums = `
SELECT i.currency, count(*) AS count, sum(i.amount)::text AS amount
FROM billing.invoices i
WHERE i.job = $1 AND i.period = $2 AND EXISTS (
    SELECT FROM billing.invoice_lines l WHERE l.job = i.job AND l.period = i.period AND l.account_id = i.account_id)
GROUP BY i.currency ORDER BY i.currency`

// An account that has an invoice of another origin needs no prices.
const sqlUsageIdle = `
SELECT count(*), coalesce((array_agg(s.account_id ORDER BY s.account_id))[1:5], '{}')
FROM pg_temp.usage_invoice_staging s
WHERE s.verdict = 'idle' AND NOT EXISTS (SELECT FROM billing.invoices i WHERE i.job = $1 AND i.period = $2 AND i.account_id = s.account_id)`

const sqlUsageJoined = `
SELECT count(*), coalesce((array_agg(s.account_id ORDER BY s.account_id))[1:5], '{}')
FROM pg_temp.usage_invoice_staging s WHERE s.verdict = 'joined'`

func readUsageVerdicts(ctx context.Context, tx pgx.Tx, req UsageInvoicing, kept []string, done *UsageInvoices) (err error) {
	if err := tx.QueryRow(ctx, sqlUsageVerdicts).Scan(&done.New, &done.Changed, &done.Replaced, &done.Unchanged, &done.Frozen, &done.ProblemCount); err != nil {
		return fmt.Errorf("count invoices: %w", err)
	}
	done.Frozen += int64(len(kept))
	rows, _ := tx.Query(ctx, sqlUsageProblems, maxProblems)
	if done.Problems, err = pgx.CollectRows(rows, pgx.RowToStructByName[UsageProblem]); err != nil {
		return fmt.Errorf("read accounts without an invoice: %w", err)
	}
	rows, _ = tx.Query(ctx, sqlUsageDiffering, pgx.NamedArgs{"job": req.Job, "period": req.Period, "kept": kept, "limit": maxProblems})
	if done.Differing, err = pgx.CollectRows(rows, pgx.RowToStructByName[UsageDifference]); err != nil {
		return fmt.Errorf("read invoices that would differ: %w", err)
	}
	rows, _ = tx.Query(ctx, sqlUsageSums, req.Job, req.Period)
	done.Sums, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s InvoiceSum, err error) {
		var amount string
		if err := row.Scan(&s.Currency, &s.Count, &amount); err != nil {
			return s, err
		}
		s.Amount, err = decimal.NewFromString(amount)
		return s, err
	})
	if err != nil {
		return fmt.Errorf("add up invoices: %w", err)
	}
	if err := tx.QueryRow(ctx, sqlUsageIdle, req.Job, req.Period).Scan(&done.Idle, &done.IdleIDs); err != nil {
		return fmt.Errorf("look for accounts without prices: %w", err)
	}
	if err := tx.QueryRow(ctx, sqlUsageJoined).Scan(&done.Joined, &done.JoinedIDs); err != nil {
		return fmt.Errorf("look for accounts that joined later: %w", err)
	}
	return nil
}

// Days are frozen as they were counted when the first of them became an invoice: what arrived
// since then is carried, and must not be taken in a second time.
const sqlUsageInvoiced = `
INSERT INTO billing.usage_invoiced (job, period, person, xid, arrival)
SELECT w.job, @period, @person, w.xid, w.arrival FROM billing.job_watermarks w WHERE w.job = @job
ON CONFLICT ON CONSTRAINT usage_invoiced_pkey DO NOTHING`

// FinishUsageInvoices freezes the usage of the period as soon as one invoice was made from
// it: that one may be charged at once, and what is counted from then on must be carried,
// whatever keeps other accounts back. It closes the period if every account has its
// invoice. If not, a period that is closed already keeps its sums true. The error is
// ErrNoInvoices if there is nothing to close, and there was nothing before.
func FinishUsageInvoices(ctx context.Context, tx pgx.Tx, req UsageInvoicing, done UsageInvoices) error {
	complete := done.ProblemCount == 0
	if complete || len(done.Sums) > 0 {
		if _, err := tx.Exec(ctx, sqlUsageInvoiced, pgx.NamedArgs{"job": req.Job, "period": req.Period, "person": req.Person}); err != nil {
			return fmt.Errorf("freeze the usage of %s: %w", req.Period, err)
		}
	}
	if !complete {
		if _, err := ReadClose(ctx, tx, req.Job, req.Period); err != nil {
			return ignoreNotFound(err)
		}
	}
	shut := Close
	if req.Try {
		shut = TryClose
	}
	err := shut(ctx, tx, req.Job, req.Period, req.Person)
	if errors.Is(err, ErrNoInvoices) && (done.Removed > 0 || !complete) {
		return closeEmpty(ctx, tx, req)
	}
	return err
}

const sqlCloseEmpty = `
UPDATE billing.period_closes p SET closed_by = @person, closed_at = billing.now(), invoices = 0, sums = '{}'
WHERE p.job = @job AND p.period = @period AND p.invoices <> 0`

// closeEmpty keeps the close of a period true whose last invoice is gone. A run of it finds
// nothing to bill.
func closeEmpty(ctx context.Context, tx pgx.Tx, req UsageInvoicing) error {
	tag, err := tx.Exec(ctx, sqlCloseEmpty, pgx.NamedArgs{"job": req.Job, "period": req.Period, "person": req.Person})
	if err == nil && tag.RowsAffected() > 0 && !req.Try {
		_, err = tx.Exec(ctx, sqlPeriodEvent, req.Job, req.Period, "close", req.Person, "")
	}
	if err != nil {
		return fmt.Errorf("close %s without invoices: %w", req.Period, err)
	}
	return nil
}
