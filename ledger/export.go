package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ReportCharge is one row of the view report_charges, the public face of a
// charge. Amounts are text in major units, because numeric holds more than a
// charge may: what was invoiced is shown as it is.
type ReportCharge struct {
	Job            Job
	Period         Period
	AccountID      string
	Name           string
	BillingKey     string
	Try            int
	IdempotencyKey *string
	State          ChargeState
	Reason         string
	Amount         string // major units
	Currency       string
	AmountMinor    *int64
	PaymentIntent  *string
	StripeCustomer string
	StripeAccount  string
	DeclineCode    string
	AmountRefunded string // major units
	Disputed       bool
	Sends          int
	CreatedAt      time.Time
	WindowOpenedAt *time.Time
	SettledAt      *time.Time
	RunID          uuid.UUID
	RequestID      string
	// Fee and Net are what Stripe took of the payment and what was left, in major units
	// of BalanceCurrency; nil until an audit saw it booked.
	Fee, Net        *string
	Payout          string
	AvailableOn     *time.Time
	Refunds         int
	BalanceCurrency string
}

const reportChargeColumns = `
    r.job, r.period, r.account_id, r.name, r.billing_key, r.try, r.idempotency_key, r.state, r.reason, r.amount::text AS amount,
    r.currency, r.amount_minor, r.payment_intent, r.stripe_customer, r.stripe_account, r.decline_code,
    r.amount_refunded::text AS amount_refunded, r.disputed, r.sends, r.created_at, r.window_opened_at, r.settled_at, r.run_id,
    r.request_id, r.fee::text AS fee, r.net::text AS net, r.payout, r.available_on, r.refunds, r.balance_currency`

const sqlExportCharges = `
SELECT r.job, r.period, r.account_id, r.name, r.billing_key, r.try, r.idempotency_key, r.state, r.reason, r.amount, r.currency,
    r.amount_minor, r.payment_intent, r.stripe_customer, r.stripe_account, r.decline_code, r.amount_refunded, r.disputed, r.sends,
    r.created_at, r.window_opened_at, r.settled_at, r.run_id, r.request_id, r.fee, r.net, r.payout, r.available_on, r.refunds,
    r.balance_currency
FROM billing.report_charges r
WHERE r.job = $1 AND r.period = $2
ORDER BY r.account_id`

const sqlExportEvents = `
SELECT e.id, e.at, e.job, e.period, e.account_id, e.try, e.from_state, e.to_state, e.reason, e.cause, e.run_id, e.person,
    e.payment_intent, e.request_id, e.detail
FROM billing.charge_events e
WHERE e.job = $1 AND e.period = $2
ORDER BY e.account_id, e.id`

// Cells are those of one row as Postgres writes them as text, with ISO dates in UTC;
// nil is NULL. They are valid until the next row.
type Cells = [][]byte

// EachChargeRow calls do with every charge of a period, in the columns of report_charges
// and the order of account ids as bytes. Rows are read as they are needed, so memory
// stays flat. The first error of do ends it and is returned as it is.
func EachChargeRow(ctx context.Context, tx pgx.Tx, job Job, period Period, do func(Cells) error) error {
	return eachRow(ctx, tx, "the charges of "+string(period), sqlExportCharges, do, job, period)
}

// EachEventRow is EachChargeRow for what happened to the charges of a period, by account
// and then in the order in which it happened.
func EachEventRow(ctx context.Context, tx pgx.Tx, job Job, period Period, do func(Cells) error) error {
	return eachRow(ctx, tx, "the events of "+string(period), sqlExportEvents, do, job, period)
}

// Text of dates must not depend on what a server or a role is set to.
const sqlPlainText = `SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true)`

func eachRow(ctx context.Context, tx pgx.Tx, what, sql string, do func(Cells) error, args ...any) error {
	// Ending early must not read a large month to its end.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := tx.Exec(ctx, sqlPlainText); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	rows, err := tx.Query(ctx, sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	for rows.Next() {
		if err := do(rows.RawValues()); err != nil {
			cancel()
			rows.Close()
			return err
		}
	}
	// A connection that broke would otherwise look like the end.
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

const sqlLastRun = `SELECT coalesce((SELECT r.run_id::text FROM billing.job_runs r WHERE r.job = $1 AND r.period = $2), '')`

// LastRunID is the id of the run that owned the period last, empty before the first.
func LastRunID(ctx context.Context, q Querier, job Job, period Period) (id string, err error) {
	if err := q.QueryRow(ctx, sqlLastRun, job, period).Scan(&id); err != nil {
		return "", fmt.Errorf("read the run of %s: %w", period, err)
	}
	return id, nil
}
