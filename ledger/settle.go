package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Actor is who makes a change: a run, a person, or a person by a run.
type Actor struct {
	RunID  *uuid.UUID
	Person string
	// Outbox tells what is changed; nil tells nobody.
	Outbox *Outbox
}

// Found is a PaymentIntent that was found for a charge, and what it proves.
type Found struct {
	BillingKey string
	// From, Try and Sends are the charge as it was when the look began.
	From  ChargeState
	Try   int
	Sends int
	// Unpaid evidence counts only while nothing was sent since.
	Unpaid        bool
	State         ChargeState
	Reason        string
	PaymentIntent string
	StripeStatus  string
	DeclineCode   string
	AdviceCode    string
	RequestID     string
	Minor         int64 // the payment's amount, for a charge that was never a request
	RefundedMinor int64
	Disputed      bool
	Detail        string
}

const sqlSettleFound = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
found AS MATERIALIZED (
    SELECT * FROM unnest(@keys::text[], @from::text[], @tries::int[], @sends::int[], @unpaid::boolean[], @states::text[], @reasons::text[],
        @payment_intents::text[], @statuses::text[], @declines::text[], @advices::text[], @request_ids::text[], @minors::bigint[],
        @refunded::bigint[], @disputed::boolean[], @details::text[])
    AS a(billing_key, from_state, try, sends, unpaid, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id,
        minor, refunded, disputed, detail)),
moved AS (
    UPDATE billing.charges c
    SET state = a.state, reason = a.reason, payment_intent = coalesce(nullif(a.payment_intent, ''), c.payment_intent),
        stripe_status = a.stripe_status, decline_code = a.decline_code, advice_code = a.advice_code,
        request_id = CASE WHEN a.request_id <> '' THEN a.request_id ELSE c.request_id END,
        amount_minor = coalesce(c.amount_minor, a.minor), amount_refunded_minor = a.refunded, disputed = a.disputed,
        settled_at = clock.t, open_sends = CASE WHEN a.state = 'review' THEN c.open_sends ELSE 0 END,
        lease_until = NULL, next_send_at = NULL, last_event = nextval('billing.charge_events_id_seq')
    FROM found a, clock
    WHERE c.billing_key = a.billing_key AND c.try = a.try AND c.state || '' = a.from_state
      AND (NOT a.unpaid OR (c.sends = a.sends AND (c.lease_until IS NULL OR c.lease_until <= clock.t)))
    RETURNING c.billing_key, c.last_event, c.job, c.period, c.account_id, c.try, a.from_state, c.state, c.reason, c.payment_intent,
        a.request_id, a.detail, clock.t),
events AS (
    INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, reason, cause, run_id, person,
        payment_intent, request_id, detail)
    SELECT m.last_event, m.t, m.job, m.period, m.account_id, m.try, m.from_state, m.state, m.reason, 'found', @run_id, @person,
        coalesce(m.payment_intent, ''), m.request_id, m.detail
    FROM moved m)
SELECT billing_key FROM moved`

// SettleFound moves charges on what was found at Stripe, each only if it is still
// in the state and try that it was found for. It returns the billing keys that
// moved; the others were settled by somebody else meanwhile. A PaymentIntent that
// pays for another charge already is a finding, and its charge stays as it is.
func SettleFound(ctx context.Context, pool *pgxpool.Pool, by Actor, list []Found) (map[string]bool, error) {
	if len(list) == 0 {
		return nil, nil
	}
	moved, err := settleFound(ctx, pool, by, list)
	if !errors.Is(err, ErrPaymentIntentTaken) {
		return moved, err
	}
	// One of them; the others must not wait for it.
	moved = map[string]bool{}
	for _, f := range list {
		one, err := settleFound(ctx, pool, by, []Found{f})
		if errors.Is(err, ErrPaymentIntentTaken) {
			err = settleTaken(ctx, pool, by, f)
		}
		if err != nil {
			return moved, err
		}
		for key := range one {
			moved[key] = true
		}
	}
	return moved, nil
}

func settleFound(ctx context.Context, pool *pgxpool.Pool, by Actor, list []Found) (moved map[string]bool, err error) {
	err = InQueueTx(ctx, pool, func(tx pgx.Tx) error {
		moved, err = queryKeys(ctx, tx, sqlSettleFound, pgx.NamedArgs{
			"run_id": by.RunID, "person": by.Person,
			"keys":            columnOf(list, func(f Found) string { return f.BillingKey }),
			"from":            columnOf(list, func(f Found) string { return string(f.From) }),
			"tries":           columnOf(list, func(f Found) int { return f.Try }),
			"sends":           columnOf(list, func(f Found) int { return f.Sends }),
			"unpaid":          columnOf(list, func(f Found) bool { return f.Unpaid }),
			"states":          columnOf(list, func(f Found) string { return string(f.State) }),
			"reasons":         columnOf(list, func(f Found) string { return f.Reason }),
			"payment_intents": columnOf(list, func(f Found) string { return f.PaymentIntent }),
			"statuses":        columnOf(list, func(f Found) string { return f.StripeStatus }),
			"declines":        columnOf(list, func(f Found) string { return f.DeclineCode }),
			"advices":         columnOf(list, func(f Found) string { return f.AdviceCode }),
			"request_ids":     columnOf(list, func(f Found) string { return f.RequestID }),
			"minors":          columnOf(list, func(f Found) int64 { return f.Minor }),
			"refunded":        columnOf(list, func(f Found) int64 { return f.RefundedMinor }),
			"disputed":        columnOf(list, func(f Found) bool { return f.Disputed }),
			"details":         columnOf(list, func(f Found) string { return f.Detail }),
		})
		if err != nil {
			return err
		}
		return by.Outbox.tell(ctx, tx, HappenedMove, slices.Collect(maps.Keys(moved)))
	})
	if err != nil {
		return nil, fmt.Errorf("settle what was found: %w", err)
	}
	return moved, nil
}

// settleTaken opens a finding, and puts the charge to review where it may go there:
// it would be found by the same PaymentIntent for ever.
func settleTaken(ctx context.Context, pool *pgxpool.Pool, by Actor, f Found) error {
	if MayMove(f.From, ChargeReview) {
		review := f
		review.State, review.Reason, review.PaymentIntent = ChargeReview, "payment_intent_taken", ""
		if _, err := settleFound(ctx, pool, by, []Found{review}); err != nil {
			return err
		}
	}
	return InTx(ctx, pool, func(tx pgx.Tx) error {
		charges, err := readKeysWithPeriod(ctx, tx, f.BillingKey)
		if err != nil {
			return err
		}
		_, err = OpenFinding(ctx, tx, Finding{
			Kind: "payment_intent_taken", Severity: SeverityAct, Job: charges.job, Period: charges.period, AccountID: charges.account,
			BillingKey: f.BillingKey, PaymentIntent: f.PaymentIntent,
			Expected: "a PaymentIntent of its own", Seen: SeenTaken,
		})
		return err
	})
}

type chargeID struct {
	job     Job
	period  Period
	account string
}

const sqlChargeOfKey = `SELECT job, period, account_id FROM billing.charges WHERE billing_key = $1`

func readKeysWithPeriod(ctx context.Context, q Querier, key string) (id chargeID, err error) {
	if err := q.QueryRow(ctx, sqlChargeOfKey, key).Scan(&id.job, &id.period, &id.account); err != nil {
		return id, fmt.Errorf("look up %s: %w", key, err)
	}
	return id, nil
}

// Absent is a charge that Stripe was proven to have no payment for.
type Absent struct {
	BillingKey string
	// From, Try, Sends and WindowOpenedAt are the charge as it was when the look
	// began: anything else since, and the proof is worth nothing.
	From           ChargeState
	Try            int
	Sends          int
	WindowOpenedAt time.Time
	// To is pending, which renews it, held or review.
	To     ChargeState
	Reason string
	Detail string
}

// MaxLookAge is how long after a look began its verdicts may be written.
const MaxLookAge = 30 * time.Minute

const sqlSettleAbsent = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
absent AS MATERIALIZED (
    SELECT * FROM unnest(@keys::text[], @from::text[], @tries::int[], @sends::int[], @windows::timestamptz[], @to::text[], @reasons::text[], @details::text[])
    AS a(billing_key, from_state, try, sends, window_opened_at, to_state, reason, detail)),
moved AS (
    UPDATE billing.charges c
    SET state = a.to_state, reason = a.reason,
        window_opened_at = CASE WHEN a.to_state = 'pending' THEN @looked_at::timestamptz - @request_life::interval ELSE c.window_opened_at END,
        renewals = c.renewals + (a.to_state = 'pending')::int,
        open_sends = CASE WHEN a.to_state = 'pending' THEN 0 ELSE c.open_sends END,
        run_sends = 0, lease_owner = NULL, lease_until = NULL, next_send_at = NULL,
        settled_at = CASE WHEN a.to_state <> 'pending' THEN clock.t END, last_event = nextval('billing.charge_events_id_seq')
    FROM absent a, clock
    WHERE c.billing_key = a.billing_key AND c.state || '' = a.from_state AND a.from_state IN ('pending', 'held')
      AND c.try = a.try AND c.sends = a.sends AND c.window_opened_at = a.window_opened_at AND (c.lease_until IS NULL OR c.lease_until <= clock.t)
      AND c.window_opened_at + @window::interval + @request_dead::interval <= @looked_at
      AND clock.t - @looked_at::timestamptz <= @max_age::interval
    RETURNING c.billing_key, c.last_event, c.job, c.period, c.account_id, c.try, a.from_state, c.state, c.reason, a.detail, clock.t),
events AS (
    INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, reason, cause, run_id, person, detail)
    SELECT m.last_event, m.t, m.job, m.period, m.account_id, m.try, m.from_state, m.state, m.reason, 'absent', @run_id, @person, m.detail
    FROM moved m)
SELECT billing_key FROM moved`

// SettleAbsent renews, holds or puts to review charges whose absence at Stripe was
// proven by a complete look that began at lookedAt. The caller owns the period: if
// it does not any more, the error is ErrClaimLost and nothing changed. It returns
// the billing keys that moved; a charge that is not what it was, or a look older
// than MaxLookAge, moves nothing.
func (r Run) SettleAbsent(ctx context.Context, tx pgx.Tx, person string, lookedAt time.Time, list []Absent) (map[string]bool, error) {
	if err := r.Lock(ctx, tx); err != nil {
		return nil, err
	}
	moved, err := queryKeys(ctx, tx, sqlSettleAbsent, pgx.NamedArgs{
		"run_id": r.RunID, "person": person, "looked_at": lookedAt,
		"window": Window, "request_life": RequestLife, "request_dead": RequestDead, "max_age": MaxLookAge,
		"keys":    columnOf(list, func(a Absent) string { return a.BillingKey }),
		"from":    columnOf(list, func(a Absent) string { return string(a.From) }),
		"tries":   columnOf(list, func(a Absent) int { return a.Try }),
		"sends":   columnOf(list, func(a Absent) int { return a.Sends }),
		"windows": columnOf(list, func(a Absent) time.Time { return a.WindowOpenedAt }),
		"to":      columnOf(list, func(a Absent) string { return string(a.To) }),
		"reasons": columnOf(list, func(a Absent) string { return a.Reason }),
		"details": columnOf(list, func(a Absent) string { return a.Detail }),
	})
	if err != nil {
		return nil, fmt.Errorf("settle what is absent: %w", err)
	}
	return moved, r.Outbox.tell(ctx, tx, HappenedMove, slices.Collect(maps.Keys(moved)))
}

func queryKeys(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs) (map[string]bool, error) {
	rows, _ := tx.Query(ctx, sql, args)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	set := make(map[string]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set, nil
}

func columnOf[T, V any](list []T, get func(T) V) []V {
	out := make([]V, len(list))
	for i, v := range list {
		out[i] = get(v)
	}
	return out
}
