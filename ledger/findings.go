package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// StandsAt is since when it is known that the payment was not given back whole, zero
	// if nobody looked. It is not kept.
	StandsAt time.Time `db:"-"`
}

// tooMany are the kinds that say that a payment should not be there at all: a part of it
// given back settles nothing.
var tooMany = []string{FindingDuplicate, FindingOrphan, FindingAdjacentDouble, "not_recorded"}

// TooMany reports that the finding is about a payment that must be given back whole, if
// it is given back.
func (f *Finding) TooMany() bool { return slices.Contains(tooMany, f.Kind) }

// A resolved finding comes back only if what was seen changed; a payment too many that
// was given back, by what a person ordered or otherwise, also if it is known to be there.
const sqlOpenFinding = `
INSERT INTO billing.findings AS f (kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen)
VALUES (@kind, @severity, @job, @period, @account_id, @billing_key, @payment_intent, @currency, @expected, @seen)
ON CONFLICT ON CONSTRAINT findings_cause_key DO UPDATE
SET seen = excluded.seen, expected = excluded.expected, opened_at = billing.now(),
    resolved_at = NULL, resolved_by = '', resolution = '', why = ''
WHERE f.seen <> excluded.seen OR f.resolution IN ('refunded', 'gone') AND f.resolved_at < @stands_at`

// OpenFinding records a disagreement once and reports whether it is new.
func OpenFinding(ctx context.Context, tx pgx.Tx, f Finding) (bool, error) {
	tag, err := tx.Exec(ctx, sqlOpenFinding, pgx.NamedArgs{
		"kind": f.Kind, "severity": f.Severity, "job": f.Job, "period": f.Period, "account_id": f.AccountID,
		"billing_key": f.BillingKey, "payment_intent": f.PaymentIntent, "currency": f.Currency,
		"expected": f.Expected, "seen": f.Seen, "stands_at": f.StandsAt,
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

// Resolution is what a person made of a finding.
type Resolution string

const (
	// ResolutionAccepted leaves everything as it is; for a charge in review its
	// payment is taken for the debt's.
	ResolutionAccepted Resolution = "accepted"
	// ResolutionReleased says that the payment is not the charge's, which is held.
	ResolutionReleased Resolution = "released"
	// ResolutionVoided withdraws the charge.
	ResolutionVoided Resolution = "voided"
	// ResolutionRefunded gave the payment back.
	ResolutionRefunded Resolution = "refunded"
)

// FindingState is a finding with what there is to know before it is resolved.
type FindingState struct {
	PastFinding
	Age time.Duration
	// The charge that it is about; State is empty if there is none.
	ChargeState    ChargeState
	ChargeReason   string
	ChargeTry      int
	ChargePayment  string
	ChargeAmount   string // in major units, as invoiced
	ChargeMinor    int64
	StripeAccount  string
	StripeCustomer string
	// PaysFor is the account whose charge the payment stands for, in PaysForPeriod,
	// and PaysForState that charge's state; empty if it stands for none.
	PaysFor       string
	PaysForPeriod Period
	PaysForState  ChargeState
	// Order is the state of the last refund that was ordered, empty if none was;
	// OrderTry its number and OrderedRefund what came of it.
	Order         RefundState
	OrderTry      int
	OrderedRefund string
}

// Open reports that nobody resolved it.
func (f *FindingState) Open() bool { return f.ResolvedAt == nil }

// InReview reports that it is about what put its charge into review.
func (f *FindingState) InReview() bool {
	return f.ChargeState == ChargeReview && f.Severity == SeverityAct &&
		(f.Kind == f.ChargeReason || f.PaymentIntent != "" && f.PaymentIntent == f.ChargePayment)
}

const findingColumns = `
    f.id, f.kind, f.severity, f.job, f.period, f.account_id, f.billing_key, f.payment_intent, f.currency, f.expected, f.seen, f.opened_at,
    f.resolved_at, f.resolved_by, f.resolution, f.why, clock.t - f.opened_at AS age,
    coalesce(c.state, '') AS charge_state, coalesce(c.reason, '') AS charge_reason, coalesce(c.try, 0) AS charge_try,
    coalesce(c.payment_intent, '') AS charge_payment, coalesce(c.amount::text, '') AS charge_amount, coalesce(c.amount_minor, 0) AS charge_minor,
    coalesce(c.stripe_account, '') AS stripe_account, coalesce(c.stripe_customer, '') AS stripe_customer,
    coalesce(p.account_id, '') AS pays_for, coalesce(p.period, '') AS pays_for_period, coalesce(p.state, '') AS pays_for_state,
    coalesce(o.state, '') AS "order", coalesce(o.try, 0) AS order_try, coalesce(o.refund, '') AS ordered_refund`

const findingTables = `
FROM billing.findings f
CROSS JOIN (SELECT billing.now() AS t OFFSET 0) clock
LEFT JOIN billing.charges c ON c.billing_key = f.billing_key
LEFT JOIN billing.charges p ON p.payment_intent = f.payment_intent AND p.state IN ('succeeded', 'processing', 'action_required')
LEFT JOIN LATERAL (SELECT r.state, r.try, r.refund FROM billing.refund_orders r WHERE r.finding_id = f.id ORDER BY r.try DESC LIMIT 1) o ON true`

const sqlListFindings = `
SELECT` + findingColumns + findingTables + `
WHERE f.job = @job AND (@period = '' OR f.period = @period) AND (@kind = '' OR f.kind = @kind)
  AND (@severity = '' OR f.severity = @severity) AND (@account = '' OR f.account_id = @account)
  AND (@all OR f.resolved_at IS NULL)
ORDER BY f.opened_at, f.id`

// FindingQuery asks for findings of a job. What is empty is no limit; All asks for
// resolved ones too.
type FindingQuery struct {
	Job      Job
	Period   Period
	Kind     string
	Severity Severity
	Account  string
	All      bool
}

// EachFinding reads findings, the one that was opened first before the others. The
// error of do ends it.
func EachFinding(ctx context.Context, q Querier, what FindingQuery, do func(FindingState) error) error {
	rows, _ := q.Query(ctx, sqlListFindings, pgx.NamedArgs{
		"job": what.Job, "period": what.Period, "kind": what.Kind, "severity": what.Severity, "account": what.Account, "all": what.All,
	})
	defer rows.Close()
	for rows.Next() {
		f, err := pgx.RowToStructByName[FindingState](rows)
		if err != nil {
			return fmt.Errorf("read findings: %w", err)
		}
		if err := do(f); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read findings: %w", err)
	}
	return nil
}

const sqlFinding = `
SELECT` + findingColumns + findingTables + `
WHERE f.job = $1 AND f.id = $2`

// ReadFinding reads one finding of a job, ErrNotFound if there is none.
func ReadFinding(ctx context.Context, q Querier, job Job, id int64) (FindingState, error) {
	rows, _ := q.Query(ctx, sqlFinding, job, id)
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[FindingState])
	if errors.Is(err, pgx.ErrNoRows) {
		return f, fmt.Errorf("finding %d of %s: %w", id, job, ErrNotFound)
	}
	if err != nil {
		return f, fmt.Errorf("read finding %d: %w", id, err)
	}
	return f, nil
}

const sqlDisowned = `
SELECT kind, billing_key, payment_intent, seen FROM billing.findings
WHERE job = $1 AND period = $2 AND resolution IN ('released', 'refunded') AND resolved_at IS NOT NULL AND payment_intent <> ''`

// Disowned is a payment of which a person said that it is not its charge's, as it was
// seen then.
type Disowned struct{ Kind, BillingKey, PaymentIntent, Seen string }

// ReadDisowned reads the payments of a period that no look needs to report again
// while they look the same.
func ReadDisowned(ctx context.Context, q Querier, job Job, period Period) (map[Disowned]bool, error) {
	rows, _ := q.Query(ctx, sqlDisowned, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Disowned])
	if err != nil {
		return nil, fmt.Errorf("read what people resolved: %w", err)
	}
	set := make(map[Disowned]bool, len(list))
	for _, d := range list {
		set[d] = true
	}
	return set, nil
}
