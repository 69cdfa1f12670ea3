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
