package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Severity says whether a finding needs a person.
type Severity string

const (
	// SeverityAct needs a person; while one is open a run ends with exit 4.
	SeverityAct Severity = "act"
	// SeverityNote is kept for the record.
	SeverityNote Severity = "note"
)

// Finding is something that Stripe and the ledger do not agree on.
type Finding struct {
	ID            int64
	Kind          string
	Severity      Severity
	Job           Job
	Period        Period
	AccountID     string
	BillingKey    string
	PaymentIntent string
	Currency      string
	Expected      string
	Seen          string
	OpenedAt      time.Time
}

// A resolved finding comes back only if what was seen changed.
const sqlOpenFinding = `
INSERT INTO billing.findings AS f (kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen)
VALUES (@kind, @severity, @job, @period, @account_id, @billing_key, @payment_intent, @currency, @expected, @seen)
ON CONFLICT ON CONSTRAINT findings_cause_key DO UPDATE
SET seen = excluded.seen, expected = excluded.expected, opened_at = billing.now(),
    resolved_at = NULL, resolved_by = '', resolution = '', why = ''
WHERE f.seen <> excluded.seen`

// OpenFinding records a disagreement once and reports whether it is new.
func OpenFinding(ctx context.Context, tx pgx.Tx, f Finding) (bool, error) {
	tag, err := tx.Exec(ctx, sqlOpenFinding, pgx.NamedArgs{
		"kind": f.Kind, "severity": f.Severity, "job": f.Job, "period": f.Period, "account_id": f.AccountID,
		"billing_key": f.BillingKey, "payment_intent": f.PaymentIntent, "currency": f.Currency,
		"expected": f.Expected, "seen": f.Seen,
	})
	if err != nil {
		return false, fmt.Errorf("open a finding on account %s: %w", f.AccountID, err)
	}
	return tag.RowsAffected() > 0, nil
}

const sqlOpenFindings = `
SELECT id, kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen, opened_at
FROM billing.findings WHERE job = $1 AND period = $2 AND resolved_at IS NULL ORDER BY severity, id LIMIT 1000`

// OpenFindings reads what is open for a period, those that need a person first,
// at most 1,000.
func OpenFindings(ctx context.Context, q Querier, job Job, period Period) ([]Finding, error) {
	rows, _ := q.Query(ctx, sqlOpenFindings, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Finding])
	if err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	return list, nil
}

// LongProcessing is how long a bank debit may be under way before it is reported.
const LongProcessing = 7 * 24 * time.Hour

const sqlOpenLongProcessing = `
INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen)
SELECT 'processing_long', 'act', c.job, c.period, c.account_id, c.billing_key, coalesce(c.payment_intent, ''), c.currency,
    'an outcome within 7 days', 'processing since ' || to_char(c.settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
FROM billing.charges c, (SELECT billing.now() AS t OFFSET 0) clock
WHERE c.job = $1 AND c.period = $2 AND c.state = 'processing' AND c.settled_at < clock.t - $3::interval
ON CONFLICT ON CONSTRAINT findings_cause_key DO UPDATE
SET seen = excluded.seen, opened_at = billing.now(), resolved_at = NULL, resolved_by = '', resolution = '', why = ''
WHERE findings.seen <> excluded.seen`

const sqlResolveLongProcessing = `
UPDATE billing.findings f
SET resolved_at = billing.now(), resolved_by = 'billing', resolution = 'settled', why = 'the charge is ' || c.state || ' now'
FROM billing.charges c
WHERE f.job = $1 AND f.period = $2 AND f.kind = 'processing_long' AND f.resolved_at IS NULL
  AND c.job = f.job AND c.period = f.period AND c.account_id = f.account_id AND c.state <> 'processing'`

// NoteLongProcessing opens a finding for each charge that has been processing for
// longer than LongProcessing, and resolves those of charges that no longer are.
func NoteLongProcessing(ctx context.Context, tx pgx.Tx, job Job, period Period) error {
	if _, err := tx.Exec(ctx, sqlOpenLongProcessing, job, period, LongProcessing); err != nil {
		return fmt.Errorf("report long processing: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlResolveLongProcessing, job, period); err != nil {
		return fmt.Errorf("resolve findings: %w", err)
	}
	return nil
}

const sqlResolveRecorded = `
UPDATE billing.findings f
SET resolved_at = billing.now(), resolved_by = 'billing', resolution = 'recorded', why = 'the charge is recorded, and ' || c.state
FROM billing.charges c
WHERE f.job = $1 AND f.period = $2 AND f.kind IN ('not_recorded', 'unknown_try') AND f.resolved_at IS NULL
  AND c.job = f.job AND c.period = f.period AND c.account_id = f.account_id AND c.billing_key = f.billing_key
  AND ((c.payment_intent = f.payment_intent AND c.state <> 'review')
    OR (f.kind = 'not_recorded' AND EXISTS (
        SELECT FROM billing.findings o
        WHERE o.billing_key = f.billing_key AND o.payment_intent = f.payment_intent AND o.kind <> f.kind AND o.resolved_at IS NULL)))`

// ResolveRecorded resolves what was reported as a payment without a charge, or of
// a try that the ledger did not know, once the charge is in the ledger and settled
// by it; the former also where another finding says what is wrong with the payment.
func ResolveRecorded(ctx context.Context, tx pgx.Tx, job Job, period Period) error {
	if _, err := tx.Exec(ctx, sqlResolveRecorded, job, period); err != nil {
		return fmt.Errorf("resolve findings: %w", err)
	}
	return nil
}
