package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Witness is a payment that the ledger knows. A list that should show it and does
// not proves nothing about others.
type Witness struct {
	StripeCustomer string
	PaymentIntent  string
}

// A payment belongs into a list of what was created since the horizon if it was
// sent after that and answered before the list began. A charge of several tries may
// have been paid by an earlier one, of another customer.
const sqlWitnesses = `
SELECT c.stripe_customer, c.payment_intent
FROM billing.charges c
WHERE c.job = @job AND c.period = ANY (@periods) AND c.account_id = ANY (@accounts) AND c.stripe_account = @stripe_account
  AND c.payment_intent IS NOT NULL AND c.state <> 'review' AND c.try = 1 AND c.last_sent_at >= @sent_from AND c.settled_at < @known_before
UNION ALL
SELECT t.stripe_customer, t.payment_intent
FROM billing.charge_tries t
WHERE t.job = @job AND t.period = ANY (@periods) AND t.account_id = ANY (@accounts) AND t.stripe_account = @stripe_account
  AND t.payment_intent IS NOT NULL AND t.last_sent_at >= @sent_from AND t.settled_at < @known_before`

// Witnesses returns the payments of some accounts that a list of what was created
// since sentFrom must show if it began after knownBefore: those of the period, of
// the one before and of the one after, and of closed tries.
func Witnesses(ctx context.Context, q Querier, job Job, period Period, stripeAccount string, accounts []string, sentFrom, knownBefore time.Time) ([]Witness, error) {
	rows, _ := q.Query(ctx, sqlWitnesses, pgx.NamedArgs{
		"job": job, "periods": []string{string(period.Previous()), string(period), string(period.Next())},
		"accounts": accounts, "stripe_account": stripeAccount, "sent_from": sentFrom, "known_before": knownBefore,
	})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Witness])
	if err != nil {
		return nil, fmt.Errorf("look for known payments: %w", err)
	}
	return list, nil
}

const sqlSpanWitnesses = `
SELECT c.stripe_customer, c.payment_intent
FROM billing.charges c
WHERE c.job = $1 AND c.period = $2 AND c.state = 'succeeded' AND c.try = 1 AND c.stripe_account = $3
  AND c.last_sent_at >= $4 AND c.settled_at < $5
LIMIT 100`

// SpanWitnesses is Witnesses for a list of everybody's payments: up to a hundred
// that the period's own ledger knows.
func SpanWitnesses(ctx context.Context, q Querier, job Job, period Period, stripeAccount string, sentFrom, knownBefore time.Time) ([]Witness, error) {
	rows, _ := q.Query(ctx, sqlSpanWitnesses, job, period, stripeAccount, sentFrom, knownBefore)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Witness])
	if err != nil {
		return nil, fmt.Errorf("look for known payments: %w", err)
	}
	return list, nil
}

const sqlCountSent = `
SELECT count(*) FROM billing.charges c
WHERE c.job = $1 AND c.period >= $2 AND c.state NOT IN ('skipped', 'void', 'rejected')`

// CountSent is about how many PaymentIntents Stripe has of this job since the
// period before, for choosing the cheaper way to read them.
func CountSent(ctx context.Context, q Querier, job Job, period Period) (n int64, err error) {
	if err := q.QueryRow(ctx, sqlCountSent, job, period.Previous()).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what was sent: %w", err)
	}
	return n, nil
}

// The bounds divide what was sent into parts of about the same size, so that
// they can be read at the same time.
const sqlSpanBounds = `
SELECT DISTINCT date_trunc('second', b) FROM (
    SELECT unnest(percentile_disc(@shares::float8[]) WITHIN GROUP (ORDER BY c.last_sent_at)) AS b
    FROM billing.charges c
    WHERE c.job = @job AND c.period >= @period AND c.last_sent_at > @sent_from AND c.stripe_account = @stripe_account) s
WHERE b IS NOT NULL ORDER BY 1`

// SpanBounds divides the time since sentFrom into up to parts pieces with about as
// many payments each; whole seconds, ascending, without both ends.
func SpanBounds(ctx context.Context, q Querier, job Job, period Period, stripeAccount string, sentFrom time.Time, parts int) ([]time.Time, error) {
	shares := make([]float64, parts-1)
	for i := range shares {
		shares[i] = float64(i+1) / float64(parts)
	}
	rows, _ := q.Query(ctx, sqlSpanBounds, pgx.NamedArgs{
		"shares": shares, "job": job, "period": period.Previous(), "sent_from": sentFrom, "stripe_account": stripeAccount,
	})
	list, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, fmt.Errorf("divide the span: %w", err)
	}
	return list, nil
}

// TrySeen is what a closed try asked for.
type TrySeen struct {
	AccountID      string
	Try            int
	StripeCustomer string
	PaymentIntent  string
}

const sqlTriesOf = `
SELECT account_id, try, stripe_customer, coalesce(payment_intent, '') AS payment_intent
FROM billing.charge_tries WHERE job = $1 AND period = $2 AND account_id = ANY ($3) ORDER BY account_id, try`

// TriesOf reads the closed tries of some accounts.
func TriesOf(ctx context.Context, q Querier, job Job, period Period, accounts []string) ([]TrySeen, error) {
	rows, _ := q.Query(ctx, sqlTriesOf, job, period, accounts)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[TrySeen])
	if err != nil {
		return nil, fmt.Errorf("read closed tries: %w", err)
	}
	return list, nil
}
