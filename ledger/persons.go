package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a person may do to a single charge. Each is an event with who and why.

const sqlVoid = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT c.billing_key, c.state AS from_state FROM billing.charges c, clock
    WHERE c.job = @job AND c.period = @period AND c.account_id = ANY (@accounts)
      AND (c.state IN ('skipped', 'rejected', 'declined', 'held')
           OR (c.state = 'pending' AND c.sends = 0 AND (c.lease_until IS NULL OR c.lease_until <= clock.t)))
    FOR UPDATE OF c),
moved AS (
    UPDATE billing.charges c
    SET state = 'void', reason = '', settled_at = clock.t, next_send_at = NULL, last_event = nextval('billing.charge_events_id_seq')
    FROM picked p, clock
    WHERE c.billing_key = p.billing_key
    RETURNING c.last_event, c.account_id, c.try, p.from_state, clock.t),
events AS (
    INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, cause, person, detail)
    SELECT m.last_event, m.t, @job, @period, m.account_id, m.try, m.from_state, 'void', 'person', @person, @why
    FROM moved m)
SELECT account_id FROM moved`

// Void withdraws charges of some accounts: those that were skipped, rejected,
// declined or held, or are pending and were never sent. Their invoices are free
// again. It returns the accounts whose charge was withdrawn; the others are as
// they were.
func Void(ctx context.Context, tx pgx.Tx, job Job, period Period, accounts []string, person, why string) (map[string]bool, error) {
	moved, err := queryKeys(ctx, tx, sqlVoid, pgx.NamedArgs{
		"job": job, "period": period, "accounts": accounts, "person": person, "why": why,
	})
	if err != nil {
		return nil, fmt.Errorf("void charges of %s: %w", period, err)
	}
	return moved, nil
}

// Requeue is a charge whose cause is mended, with what is to be asked of Stripe
// now.
type Requeue struct {
	// Seen is the charge as it was when the look began.
	Seen     OpenCharge
	Billable Billable
	Decision Decision // pending, with the body of NextTry
}

// NextTry is the try that a requeue opens: the next one, or the first if nothing
// was ever recorded to be sent.
func (c *OpenCharge) NextTry() int {
	if c.WindowOpenedAt == nil {
		return c.Try
	}
	return c.Try + 1
}

const sqlCloseTry = `
INSERT INTO billing.charge_tries (job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer,
    window_opened_at, sends, open_sends, server_errors, renewals, last_sent_at, state, reason, payment_intent, stripe_status, decline_code,
    advice_code, request_id, settled_at, closed_at)
SELECT job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer,
    window_opened_at, sends, open_sends, server_errors, renewals, last_sent_at, state, reason, payment_intent, stripe_status, decline_code,
    advice_code, request_id, settled_at, billing.now()
FROM billing.charges
WHERE billing_key = @key AND state = @from AND try = @try AND sends = @sends AND window_opened_at IS NOT DISTINCT FROM @window_opened_at
  AND idempotency_key IS NOT NULL`

const sqlOpenTry = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
moved AS (
    UPDATE billing.charges c
    SET state = 'pending', reason = '', try = @next_try, idempotency_key = @idempotency_key, body = @body, body_sha256 = @body_sha256,
        name = @name, email = @email, amount = @amount::numeric, currency = @currency, amount_minor = @amount_minor,
        stripe_account = @stripe_account, stripe_customer = @stripe_customer,
        window_opened_at = @looked_at::timestamptz - @request_life::interval, sends = 0, open_sends = 0, run_sends = 0, server_errors = 0,
        renewals = 0, lease_owner = NULL, lease_until = NULL, next_send_at = NULL, last_sent_at = NULL, payment_intent = NULL,
        stripe_status = '', decline_code = '', advice_code = '', request_id = '', settled_at = NULL,
        last_event = nextval('billing.charge_events_id_seq')
    FROM clock
    WHERE c.billing_key = @key AND c.state = @from AND c.try = @try AND c.sends = @sends
      AND c.window_opened_at IS NOT DISTINCT FROM @window_opened_at AND clock.t - @looked_at::timestamptz <= @max_age::interval
    RETURNING c.last_event, c.job, c.period, c.account_id, c.try, clock.t)
INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, cause, run_id, person, detail)
SELECT m.last_event, m.t, m.job, m.period, m.account_id, m.try, @from, 'pending', 'person', @run_id, @person, @why
FROM moved m`

// Requeue opens a new try, or the first one, for a charge that was skipped,
// rejected, void or declined, after a complete look that began at lookedAt and found nothing
// that was paid or may be. It reports false if the charge is not what it was. The
// caller owns the period (ErrClaimLost otherwise).
func (r Run) Requeue(ctx context.Context, tx pgx.Tx, q Requeue, person, why string, lookedAt time.Time) (bool, error) {
	if err := r.Lock(ctx, tx); err != nil {
		return false, err
	}
	next := q.Seen.NextTry()
	args := pgx.NamedArgs{
		"key": q.Seen.BillingKey, "from": q.Seen.State, "try": q.Seen.Try, "sends": q.Seen.Sends, "window_opened_at": q.Seen.WindowOpenedAt,
		"next_try": next, "idempotency_key": TryKey(q.Seen.BillingKey, next), "body": q.Decision.Body, "body_sha256": q.Decision.BodySHA256[:],
		"name": q.Billable.Name, "email": q.Billable.Email, "amount": q.Billable.Amount, "currency": q.Decision.Currency, "amount_minor": q.Decision.AmountMinor,
		"stripe_account": q.Billable.StripeAccount, "stripe_customer": q.Billable.StripeCustomer,
		"looked_at": lookedAt, "request_life": RequestLife, "max_age": MaxLookAge, "run_id": r.RunID, "person": person, "why": why,
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if next > q.Seen.Try {
			if _, err := tx.Exec(ctx, sqlCloseTry, args); err != nil {
				return fmt.Errorf("close try %d of account %s: %w", q.Seen.Try, q.Seen.AccountID, err)
			}
		}
		tag, err := tx.Exec(ctx, sqlOpenTry, args)
		if err != nil {
			return fmt.Errorf("open try %d of account %s: %w", next, q.Seen.AccountID, err)
		}
		if tag.RowsAffected() == 0 {
			return errNotAsSeen
		}
		return nil
	})
	if errors.Is(err, errNotAsSeen) {
		return false, nil
	}
	return err == nil, err
}

// errNotAsSeen takes back that a try was closed, where the next one can't open.
var errNotAsSeen = errors.New("the charge is not what it was")

const sqlBillableRows = `
SELECT` + billableColumns + `, false AS skipped, '' AS skipped_for, '' AS recorded, 0::bigint AS recorded_minor
FROM billing.billable b
WHERE b.job = $1 AND b.period = $2 AND b.account_id::text = ANY ($3)
ORDER BY b.account_id::text COLLATE "C"`

// BillableRows reads what some accounts owe today, in the order of account ids as
// bytes. A company's own view may give two rows for one. Their charges are looked up
// by key, for which there is one way also where the tables have no statistics.
func BillableRows(ctx context.Context, q Querier, job Job, period Period, accounts []string) ([]Billable, error) {
	rows, _ := q.Query(ctx, sqlBillableRows, job, period, accounts)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Billable])
	if err != nil {
		return nil, fmt.Errorf("read billable: %w", err)
	}
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = BillingKey(job, period, list[i].AccountID)
	}
	charges, err := ReadByKeys(ctx, q, keys)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if c, there := charges[keys[i]]; there {
			b := &list[i]
			b.Skipped, b.SkippedFor, b.Recorded, b.RecordedMinor = c.State == ChargeSkipped, c.Reason, c.State, c.AmountMinor
		}
	}
	return list, nil
}
