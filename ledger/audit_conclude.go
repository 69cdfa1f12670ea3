package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The kinds of findings that an audit opens, and closes when they are no longer true.
const (
	FindingOrphan           = "orphan"
	FindingMissing          = "missing"
	FindingDuplicate        = "duplicate"
	FindingAmountMismatch   = "amount_mismatch"
	FindingCurrencyMismatch = "currency_mismatch"
	FindingWrongCustomer    = "wrong_customer"
	FindingLatePaid         = "late_paid"
	FindingAdjacentDouble   = "adjacent_double"
	FindingRefunded         = "refunded"
	FindingDisputed         = "disputed"
	FindingCanceled         = "canceled"
)

// closable are those that stop being true when the two sides agree again. late_paid
// is something that happened: only a person can say that it was seen to.
var closable = []string{
	FindingOrphan, FindingMissing, FindingDuplicate, FindingAmountMismatch, FindingCurrencyMismatch, FindingWrongCustomer,
	FindingAdjacentDouble, FindingRefunded, FindingDisputed, FindingCanceled,
}

const sqlSetSeverity = `UPDATE billing.audit_differences SET severity = 'act' WHERE audit = $1 AND kind = $2`

// MustAct makes a kind of difference need a person, because there are too many.
func (a Audit) MustAct(ctx context.Context, tx pgx.Tx, kind string) error {
	if _, err := tx.Exec(ctx, sqlSetSeverity, a.ID, kind); err != nil {
		return fmt.Errorf("raise %s findings: %w", kind, err)
	}
	return nil
}

// DifferenceCount says how many differences of a kind an audit saw.
type DifferenceCount struct {
	Kind     string
	Severity Severity
	Count    int64
}

const sqlCountDifferences = `
SELECT kind, severity, count(*) AS count FROM billing.audit_differences WHERE audit = $1 GROUP BY kind, severity ORDER BY severity, kind`

// Differences counts what the audit saw.
func (a Audit) Differences(ctx context.Context, q Querier) ([]DifferenceCount, error) {
	rows, _ := q.Query(ctx, sqlCountDifferences, a.ID)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[DifferenceCount])
	if err != nil {
		return nil, fmt.Errorf("count the differences: %w", err)
	}
	return list, nil
}

// One that a person resolved comes back only if something else is seen; one that an
// audit closed comes back whenever it is true again, and so does a payment too many that
// was given back before this audit began: it is only seen while some of it was not.
const comesBack = `(f.resolution = 'gone' OR f.resolved_at < $2 AND f.resolution = 'refunded' AND f.kind = ANY ($3))`

const sqlOpenDifferences = `
INSERT INTO billing.findings AS f (kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen)
SELECT d.kind, d.severity, $4, $5, d.account_id, d.billing_key, d.payment_intent, d.currency, d.expected, d.seen
FROM billing.audit_differences d WHERE d.audit = $1 ORDER BY d.kind, d.billing_key, d.payment_intent
ON CONFLICT ON CONSTRAINT findings_cause_key DO UPDATE
SET seen = excluded.seen, expected = excluded.expected, severity = excluded.severity, opened_at = billing.now(),
    resolved_at = NULL, resolved_by = '', resolution = '', why = ''
WHERE f.seen <> excluded.seen OR f.resolved_at IS NOT NULL AND ` + comesBack

const sqlMoveSeverity = `
UPDATE billing.findings f SET severity = d.severity
FROM billing.audit_differences d
WHERE d.audit = $1 AND f.kind = d.kind AND f.billing_key = d.billing_key AND f.payment_intent = d.payment_intent
  AND f.resolved_at IS NULL AND f.severity <> d.severity`

const sqlCloseDifferences = `
UPDATE billing.findings f
SET resolved_at = billing.now(), resolved_by = 'billing', resolution = 'gone', why = 'a complete audit no longer shows it'
WHERE f.job = $2 AND f.period = $3 AND f.resolved_at IS NULL AND f.kind = ANY ($4) AND f.opened_at < $5
  AND NOT EXISTS (SELECT FROM billing.audit_differences d
    WHERE d.audit = $1 AND d.kind = f.kind AND d.billing_key = f.billing_key AND d.payment_intent = f.payment_intent)`

// Conclude makes findings of what a complete audit saw, and closes those that it no
// longer sees.
func (a Audit) Conclude(ctx context.Context, tx pgx.Tx) (opened, closed int64, err error) {
	reopened, err := a.refundsFailed(ctx, tx)
	if err != nil {
		return 0, 0, err
	}
	tag, err := tx.Exec(ctx, sqlOpenDifferences, a.ID, a.StartedAt, tooMany, a.Job, a.Period)
	if err != nil {
		return 0, 0, fmt.Errorf("open findings: %w", err)
	}
	opened = reopened + tag.RowsAffected()
	if _, err = tx.Exec(ctx, sqlMoveSeverity, a.ID); err != nil {
		return 0, 0, fmt.Errorf("raise findings: %w", err)
	}
	if tag, err = tx.Exec(ctx, sqlCloseDifferences, a.ID, a.Job, a.Period, closable, a.StartedAt); err != nil {
		return 0, 0, fmt.Errorf("close findings: %w", err)
	}
	return opened, tag.RowsAffected(), nil
}

// What somebody resolved stays so while it looks the same.
const stillResolved = `f.resolved_at IS NOT NULL AND f.seen = d.seen AND NOT ` + comesBack

const itsFinding = `billing.findings f ON f.kind = d.kind AND f.billing_key = d.billing_key AND f.payment_intent = d.payment_intent`

const sqlResolvedBefore = `
SELECT count(*) FROM billing.audit_differences d JOIN ` + itsFinding + `
WHERE d.audit = $1 AND d.severity = 'act' AND ` + stillResolved

// ResolvedBefore counts the differences that need a person no more, because somebody
// resolved them and they look as they did then.
func (a Audit) ResolvedBefore(ctx context.Context, q Querier) (n int64, err error) {
	if err := q.QueryRow(ctx, sqlResolvedBefore, a.ID, a.StartedAt, tooMany).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the differences that were resolved: %w", err)
	}
	return n, nil
}

const sqlListDifferences = `
SELECT coalesce(f.id, 0) AS id, d.kind, d.severity, $4::text AS job, $5::text AS period, d.account_id, d.billing_key, d.payment_intent,
    d.currency, d.expected, d.seen, coalesce(f.opened_at, $2) AS opened_at
FROM billing.audit_differences d LEFT JOIN ` + itsFinding + `
WHERE d.audit = $1 AND d.severity = 'act' AND (f.id IS NULL OR NOT (` + stillResolved + `))
ORDER BY d.kind, d.billing_key, d.payment_intent LIMIT 1000`

// ListDifferences reads what Conclude would make open findings that need a person, at
// most 1,000; one that no finding is about has no ID.
func (a Audit) ListDifferences(ctx context.Context, q Querier) ([]Finding, error) {
	rows, _ := q.Query(ctx, sqlListDifferences, a.ID, a.StartedAt, tooMany, a.Job, a.Period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Finding])
	if err != nil {
		return nil, fmt.Errorf("list the differences: %w", err)
	}
	return list, nil
}

// Only what differs is written, so that a second audit writes nothing; and not what was
// given back by an order since the audit began, which its pages may not show. A charge is
// looked up by its payment alone, which is unique: without statistics the index of the
// period looks as good.
const sqlRecordMoney = `
WITH page AS MATERIALIZED (
    SELECT * FROM billing.audit_payments
    WHERE audit = @audit AND payment_intent > @after AND job = @job AND period = @period ORDER BY payment_intent LIMIT @rows),
money AS MATERIALIZED (
    SELECT p.payment_intent, p.job, p.period, nullif(p.balance_currency, '') AS balance_currency, p.balance_digits, p.fee, p.net, p.available_on,
        count(*) FILTER (WHERE r.kind = 'refund' AND r.amount > 0)::int AS refunds,
        coalesce(sum(r.amount) FILTER (WHERE r.kind = 'refund'), 0)::bigint AS refunded,
        count(*) FILTER (WHERE r.kind = 'dispute') > 0 AS disputed,
        EXISTS (SELECT FROM billing.refund_orders o WHERE o.payment_intent = p.payment_intent AND o.settled_at >= @started) AS newer
    FROM page p LEFT JOIN billing.audit_returns r ON r.audit = p.audit AND r.payment_intent = p.payment_intent
    GROUP BY p.payment_intent, p.job, p.period, p.balance_currency, p.balance_digits, p.fee, p.net, p.available_on),
written AS (
    UPDATE billing.charges c
    SET amount_refunded_minor = CASE WHEN m.newer THEN c.amount_refunded_minor ELSE m.refunded END,
        refunds = CASE WHEN m.newer THEN c.refunds ELSE m.refunds END, disputed = m.disputed,
        fee_minor = CASE WHEN m.balance_currency IS NULL THEN c.fee_minor ELSE m.fee END,
        net_minor = CASE WHEN m.balance_currency IS NULL THEN c.net_minor ELSE m.net END,
        balance_currency = coalesce(m.balance_currency, c.balance_currency),
        balance_digits = CASE WHEN m.balance_currency IS NULL THEN c.balance_digits ELSE m.balance_digits END,
        available_on = coalesce(m.available_on, c.available_on)
    FROM money m
    WHERE c.payment_intent = m.payment_intent
      AND (NOT m.newer AND (c.amount_refunded_minor, c.refunds) IS DISTINCT FROM (m.refunded, m.refunds) OR c.disputed IS DISTINCT FROM m.disputed
        OR m.balance_currency IS NOT NULL AND (c.fee_minor, c.net_minor, c.balance_currency, c.available_on)
            IS DISTINCT FROM (m.fee, m.net, m.balance_currency, m.available_on))
    RETURNING 1)
SELECT coalesce(max(payment_intent), ''), (SELECT count(*) FROM written) FROM page`

// RecordMoney writes beside the charges what was refunded and disputed, and what came
// of the payment on the balance, for up to rows payments after one. It returns the
// last of them, empty at the end.
func (a Audit) RecordMoney(ctx context.Context, tx pgx.Tx, after string, rows int) (last string, written int64, err error) {
	err = tx.QueryRow(ctx, sqlRecordMoney, pgx.NamedArgs{"audit": a.ID, "job": a.Job, "period": a.Period, "after": after, "rows": rows, "started": a.StartedAt}).Scan(&last, &written)
	if err != nil {
		return "", 0, fmt.Errorf("record fees, refunds and disputes: %w", err)
	}
	return last, written, nil
}
