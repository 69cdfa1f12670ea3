package ledger

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
)

// Decline is why a charge was declined, and what was asked for then.
type Decline struct {
	AccountID string
	Try       int
	// PaymentMethod is the one that the declined try asked for.
	PaymentMethod string
	Reason        string
	DeclineCode   string
	AdviceCode    string
	// SettledAt is when the decline was written down.
	SettledAt time.Time
}

// The body is frozen text, so that what was asked for is read from it.
const sqlDeclines = `
SELECT account_id, try, coalesce(substring(body FROM '&payment_method=([^&]*)'), '') AS payment_method, reason, decline_code, advice_code,
    coalesce(settled_at, created_at) AS settled_at
FROM billing.charges
WHERE job = $1 AND period = $2 AND account_id = ANY ($3) AND state = 'declined'
ORDER BY account_id`

// Declines reads why some accounts' charges were declined, by account; those in
// another state are left out.
func Declines(ctx context.Context, q Querier, job Job, period Period, accounts []string) (map[string]Decline, error) {
	rows, _ := q.Query(ctx, sqlDeclines, job, period, accounts)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Decline])
	if err != nil {
		return nil, fmt.Errorf("read why charges of %s were declined: %w", period, err)
	}
	found := make(map[string]Decline, len(list))
	for _, d := range list {
		if d.PaymentMethod, err = url.QueryUnescape(d.PaymentMethod); err != nil {
			return nil, fmt.Errorf("read the request of account %s: %w", d.AccountID, err)
		}
		found[d.AccountID] = d
	}
	return found, nil
}

// CardTry is a try that reached a payment method's bank and was not paid, or whose
// outcome is not known, or that was opened and will be sent.
type CardTry struct {
	PaymentMethod string
	Job           Job
	AccountID     string
	At            time.Time
}

// What was sent since a day was sent under a claim that is not much older, so that
// only the months that somebody worked on lately are read; of these only what was
// refused, by the index of the sums, and the short queue.
const sqlCardTries = `
WITH months AS MATERIALIZED (
    SELECT job, period FROM billing.job_runs WHERE claimed_at > billing.now() - @since::interval - interval '2 days')
SELECT payment_method, job, account_id, at FROM (
    SELECT substring(c.body FROM '&payment_method=([^&]*)') AS payment_method, c.job, c.account_id, c.last_sent_at AS at
    FROM months m JOIN billing.charges c ON c.job = m.job AND c.period = m.period AND c.state IN ('declined', 'action_required')
    UNION ALL
    SELECT substring(c.body FROM '&payment_method=([^&]*)'), c.job, c.account_id, coalesce(c.last_sent_at, billing.now())
    FROM months m JOIN billing.charges c ON c.job = m.job AND c.period = m.period AND c.state = 'pending' AND (c.sends > 0 OR c.try > 1)
    UNION ALL
    SELECT substring(t.body FROM '&payment_method=([^&]*)'), t.job, t.account_id, t.last_sent_at
    FROM months m JOIN billing.charge_tries t ON t.job = m.job AND t.period = m.period AND t.state = 'declined') tries
WHERE at > billing.now() - @since::interval AND payment_method = ANY (@methods)
ORDER BY at`

// CardTries reads how often some payment methods were tried since so long ago, over
// all jobs and periods, the earliest first, by payment method.
func CardTries(ctx context.Context, q Querier, methods []string, since time.Duration) (map[string][]CardTry, error) {
	asked := make([]string, len(methods))
	for i, m := range methods {
		asked[i] = url.QueryEscape(m)
	}
	rows, _ := q.Query(ctx, sqlCardTries, pgx.NamedArgs{"methods": asked, "since": since})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[CardTry])
	if err != nil {
		return nil, fmt.Errorf("count the tries of payment methods: %w", err)
	}
	found := map[string][]CardTry{}
	for _, t := range list {
		if t.PaymentMethod, err = url.QueryUnescape(t.PaymentMethod); err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
		found[t.PaymentMethod] = append(found[t.PaymentMethod], t)
	}
	return found, nil
}

const sqlOrderCancel = `
INSERT INTO billing.charge_cancels (payment_intent, job, period, account_id, run_id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT ON CONSTRAINT charge_cancels_pkey DO NOTHING`

// OrderCancel writes down that a payment of a charge is to be cancelled by this run,
// before Stripe is asked to. ErrClaimLost if the run does not own the period any more.
func (r *Run) OrderCancel(ctx context.Context, tx pgx.Tx, accountID, paymentIntent string) error {
	if err := r.Lock(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlOrderCancel, paymentIntent, r.Job, r.Period, accountID, r.RunID); err != nil {
		return fmt.Errorf("order to cancel %s: %w", paymentIntent, err)
	}
	return nil
}

const sqlOrderedCancels = `SELECT payment_intent FROM billing.charge_cancels WHERE payment_intent = ANY ($1)`

// OrderedCancels tells which of some payments this program ever asked to be cancelled.
func OrderedCancels(ctx context.Context, q Querier, paymentIntents []string) ([]string, error) {
	rows, _ := q.Query(ctx, sqlOrderedCancels, paymentIntents)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read what was to be cancelled: %w", err)
	}
	return list, nil
}
