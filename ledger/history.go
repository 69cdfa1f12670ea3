package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// History is everything that the ledger knows of one charge.
type History struct {
	Charge ChargeDetail
	// Tries are the closed ones, the first one first; the current try is in
	// Charge.
	Tries  []ClosedTry
	Events []ChargeEvent // in the order in which they happened
	// Findings are all that were ever opened, resolved ones too.
	Findings []PastFinding
}

// ChargeDetail is a charge with what its current try is about and how far its
// sends came.
type ChargeDetail struct {
	ReportCharge
	Body         *string // the request as it is sent
	BodySHA256   []byte
	StripeStatus string
	AdviceCode   string
	LeaseUntil   *time.Time
	NextSendAt   *time.Time
	OpenSends    int
	ServerErrors int
	LastSentAt   *time.Time
	// WindowEndsAt is when the try may no longer be sent, WindowOpen whether it
	// may be now.
	WindowEndsAt *time.Time
	WindowOpen   bool
}

// ClosedTry is one idempotency key's life that is over.
type ClosedTry struct {
	Try            int
	IdempotencyKey string
	State          ChargeState
	Reason         string
	StripeCustomer string
	WindowOpenedAt time.Time
	Sends          int
	OpenSends      int
	LastSentAt     *time.Time
	PaymentIntent  *string
	StripeStatus   string
	DeclineCode    string
	RequestID      string
	SettledAt      *time.Time
	ClosedAt       time.Time
}

// ChargeEvent is one change of a charge, and on what evidence it was made.
type ChargeEvent struct {
	ID            int64
	At            time.Time
	Try           int
	FromState     ChargeState
	ToState       ChargeState
	Reason        string
	Cause         string
	RunID         *uuid.UUID
	Person        string
	PaymentIntent string
	RequestID     string
	Detail        string
}

// PastFinding is a finding with what became of it.
type PastFinding struct {
	Finding
	ResolvedAt *time.Time
	ResolvedBy string
	Resolution string
	Why        string
}

const sqlChargeDetail = `
SELECT` + reportChargeColumns + `, c.body, c.body_sha256, c.stripe_status, c.advice_code, c.lease_until, c.next_send_at,
    c.open_sends, c.server_errors, c.last_sent_at, c.window_opened_at + $4::interval AS window_ends_at,
    coalesce(c.window_opened_at <= clock.t AND clock.t < c.window_opened_at + $4::interval, false) AS window_open
FROM billing.report_charges r
JOIN billing.charges c ON c.job = r.job AND c.period = r.period AND c.account_id = r.account_id,
    (SELECT billing.now() AS t OFFSET 0) clock
WHERE r.job = $1 AND r.period = $2 AND r.account_id = $3`

const sqlClosedTries = `
SELECT try, idempotency_key, state, reason, stripe_customer, window_opened_at, sends, open_sends, last_sent_at, payment_intent,
    stripe_status, decline_code, request_id, settled_at, closed_at
FROM billing.charge_tries WHERE job = $1 AND period = $2 AND account_id = $3 ORDER BY try`

const sqlChargeEvents = `
SELECT id, at, try, from_state, to_state, reason, cause, run_id, person, payment_intent, request_id, detail
FROM billing.charge_events WHERE job = $1 AND period = $2 AND account_id = $3 ORDER BY id`

const sqlChargeFindings = `
SELECT id, kind, severity, job, period, account_id, billing_key, payment_intent, currency, expected, seen, opened_at,
    resolved_at, resolved_by, resolution, why
FROM billing.findings WHERE job = $1 AND period = $2 AND account_id = $3 ORDER BY id`

// ReadHistory reads one charge with its tries, events and findings, ErrNotFound
// if the account has none in the period. Read it on one snapshot (InReadTx).
func ReadHistory(ctx context.Context, q Querier, job Job, period Period, accountID string) (h History, err error) {
	rows, _ := q.Query(ctx, sqlChargeDetail, job, period, accountID, Window)
	h.Charge, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[ChargeDetail])
	if errors.Is(err, pgx.ErrNoRows) {
		return h, fmt.Errorf("charge of account %s for %s: %w", accountID, period, ErrNotFound)
	}
	if err != nil {
		return h, fmt.Errorf("read the charge of account %s: %w", accountID, err)
	}
	rows, _ = q.Query(ctx, sqlClosedTries, job, period, accountID)
	if h.Tries, err = pgx.CollectRows(rows, pgx.RowToStructByName[ClosedTry]); err != nil {
		return h, fmt.Errorf("read the tries of account %s: %w", accountID, err)
	}
	rows, _ = q.Query(ctx, sqlChargeEvents, job, period, accountID)
	if h.Events, err = pgx.CollectRows(rows, pgx.RowToStructByName[ChargeEvent]); err != nil {
		return h, fmt.Errorf("read the events of account %s: %w", accountID, err)
	}
	rows, _ = q.Query(ctx, sqlChargeFindings, job, period, accountID)
	if h.Findings, err = pgx.CollectRows(rows, pgx.RowToStructByName[PastFinding]); err != nil {
		return h, fmt.Errorf("read the findings on account %s: %w", accountID, err)
	}
	return h, nil
}

const sqlBillableOf = `
SELECT coalesce(b.amount::text, 'NaN'), coalesce(b.currency, '') FROM billing.billable b
WHERE b.job = $1 AND b.period = $2 AND b.account_id::text = $3 LIMIT 1`

// BillableOf reads what an account owes for a period, recorded or not, in major
// units; ErrNotFound if nothing.
func BillableOf(ctx context.Context, q Querier, job Job, period Period, accountID string) (amount, currency string, err error) {
	err = q.QueryRow(ctx, sqlBillableOf, job, period, accountID).Scan(&amount, &currency)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("invoice of account %s for %s: %w", accountID, period, ErrNotFound)
	}
	if err != nil {
		return "", "", fmt.Errorf("read the invoice of account %s: %w", accountID, err)
	}
	return amount, currency, nil
}

const sqlEndedWith = `
SELECT coalesce((SELECT a.exit_code = $2 FROM billing.job_run_attempts a WHERE a.run_id = $1), false)`

// EndedWith reports whether a run ended with an exit code.
func EndedWith(ctx context.Context, q Querier, runID uuid.UUID, code int) (did bool, err error) {
	if err := q.QueryRow(ctx, sqlEndedWith, runID, code).Scan(&did); err != nil {
		return false, fmt.Errorf("read how the last run ended: %w", err)
	}
	return did, nil
}
