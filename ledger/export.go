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

const sqlReportCharges = `
SELECT` + reportChargeColumns + `
FROM billing.report_charges r
WHERE r.job = $1 AND r.period = $2
ORDER BY r.account_id`

// EachReportCharge calls do with every charge of a period, in the order of
// account ids as bytes, as of one moment. Rows are read as they are needed, so
// memory stays flat. The first error of do ends it and is returned as it is.
func EachReportCharge(ctx context.Context, q Querier, job Job, period Period, do func(ReportCharge) error) error {
	// Ending early must not read a large month to its end.
	ctx, cancel := context.WithCancel(ctx)
	rows, err := q.Query(ctx, sqlReportCharges, job, period)
	if err != nil {
		cancel()
		return fmt.Errorf("read the charges of %s: %w", period, err)
	}
	defer rows.Close()
	defer cancel()
	for rows.Next() {
		charge, err := pgx.RowToStructByName[ReportCharge](rows)
		if err != nil {
			return fmt.Errorf("read a charge of %s: %w", period, err)
		}
		if err := do(charge); err != nil {
			return err
		}
	}
	// A connection that broke would otherwise look like the end.
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the charges of %s: %w", period, err)
	}
	return nil
}
