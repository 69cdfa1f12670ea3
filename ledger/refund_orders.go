package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/ledger/money"
)

// RefundState says where a refund that a person ordered stands.
type RefundState string

const (
	// RefundPending is recorded, and its outcome is not known.
	RefundPending RefundState = "pending"
	// RefundMade gave the money back, or is about to.
	RefundMade RefundState = "refunded"
	// RefundRefused gave nothing back, and can't.
	RefundRefused RefundState = "refused"
	// RefundHeld is past its window, and Stripe shows no such refund.
	RefundHeld RefundState = "held"
)

const (
	// RefundLease is how long a send of a refund may take, permit and request.
	RefundLease = 2 * time.Minute
)

// ErrRefundUnderWay says that a refund of the same payment is under way, ordered about
// another finding.
var ErrRefundUnderWay = errors.New("another refund of the payment is under way")

// maxKeyPayment is how much of a payment's id a key has: Stripe's have 27 characters,
// and a key of ours no more than 200.
const maxKeyPayment = 150

// RefundKey is the idempotency key of the n-th refund about a finding: made from the
// finding, which a restored ledger may number like another one, its payment, and
// nothing else.
func RefundKey(finding int64, paymentIntent string, try int) string {
	key := fmt.Sprintf("finding/%d/%.*s/refund", finding, maxKeyPayment, paymentIntent)
	if try == 1 {
		return key
	}
	return fmt.Sprintf("%s/r%d", key, try)
}

// RefundOrder is a refund that a person ordered, with the request as it is sent.
type RefundOrder struct {
	FindingID      int64
	Try            int
	IdempotencyKey string
	Body           string
	BodySHA256     []byte
	StripeAccount  string
	PaymentIntent  string
	AmountMinor    int64
	Currency       string
	OrderedAt      time.Time
	OrderedBy      string
	Why            string
	WindowOpenedAt time.Time
	State          RefundState
	Reason         string
	LeaseUntil     *time.Time
	Sends          int
	OpenSends      int
	LastSentAt     *time.Time
	Refund         string
	RefundStatus   string
	RequestID      string
	SettledAt      *time.Time
}

// WindowEnds is when the order may no longer be sent.
func (o *RefundOrder) WindowEnds() time.Time { return o.WindowOpenedAt.Add(Window) }

// DeadAt is when no request of the order can be on its way, or be completed by Stripe
// itself, any more.
func (o *RefundOrder) DeadAt() time.Time {
	at := o.WindowEnds().Add(RequestDead)
	if o.OpenSends > 0 && o.LastSentAt != nil && o.LastSentAt.Add(DefaultAbsentAfter).After(at) {
		at = o.LastSentAt.Add(DefaultAbsentAfter)
	}
	return at
}

const refundColumns = `
    o.finding_id, o.try, o.idempotency_key, o.body, o.body_sha256, o.stripe_account, o.payment_intent, o.amount_minor, o.currency,
    o.ordered_at, o.ordered_by, o.why, o.window_opened_at, o.state, o.reason, o.lease_until, o.sends, o.open_sends, o.last_sent_at,
    o.refund, o.refund_status, o.request_id, o.settled_at`

const sqlLastRefund = `
SELECT` + refundColumns + ` FROM billing.refund_orders o WHERE o.finding_id = $1 ORDER BY o.try DESC LIMIT 1`

// LastRefund reads the refund that was ordered last about a finding, ErrNotFound if
// none ever was.
func LastRefund(ctx context.Context, q Querier, finding int64) (RefundOrder, error) {
	rows, _ := q.Query(ctx, sqlLastRefund, finding)
	o, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[RefundOrder])
	if errors.Is(err, pgx.ErrNoRows) {
		return o, fmt.Errorf("a refund about finding %d: %w", finding, ErrNotFound)
	}
	if err != nil {
		return o, fmt.Errorf("read the refund about finding %d: %w", finding, err)
	}
	return o, nil
}

const sqlOrderRefund = `
INSERT INTO billing.refund_orders (finding_id, try, idempotency_key, body, body_sha256, stripe_account, payment_intent, amount_minor, currency,
    ordered_by, why, window_opened_at)
VALUES (@finding_id, @try, @key, @body, @body_sha256, @stripe_account, @payment_intent, @amount_minor, @currency,
    @person, @why, @looked_at::timestamptz - @request_life::interval)`

// OrderRefund records a refund about a finding that was locked, before anything is
// sent. lookedAt is when the look began that found no such refund: the window opens ten
// minutes before. ErrRefundUnderWay if the same payment is being refunded already.
func (f *FindingState) OrderRefund(ctx context.Context, tx pgx.Tx, o RefundOrder, lookedAt time.Time) error {
	_, err := tx.Exec(ctx, sqlOrderRefund, pgx.NamedArgs{
		"finding_id": f.ID, "try": o.Try, "key": RefundKey(f.ID, o.PaymentIntent, o.Try), "body": o.Body, "body_sha256": o.BodySHA256,
		"stripe_account": o.StripeAccount, "payment_intent": o.PaymentIntent, "amount_minor": o.AmountMinor, "currency": o.Currency,
		"person": o.OrderedBy, "why": o.Why, "looked_at": lookedAt, "request_life": RequestLife,
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "refund_orders_payment_key" {
		return fmt.Errorf("refund %s: %w", o.PaymentIntent, ErrRefundUnderWay)
	}
	if err != nil {
		return fmt.Errorf("order a refund about finding %d: %w", f.ID, err)
	}
	return addFindingEvent(ctx, tx, f.ID, findingEvent{action: "refund_ordered", person: o.OrderedBy, why: o.Why,
		detail: fmt.Sprintf("%s, %s %s, try %d", o.PaymentIntent, money.FormatMinor(o.AmountMinor, money.Currency(o.Currency)), o.Currency, o.Try)})
}

const sqlClaimRefund = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t)
UPDATE billing.refund_orders o
SET sends = o.sends + 1, open_sends = o.open_sends + 1, last_sent_at = clock.t, lease_until = clock.t + @lease::interval
FROM clock
WHERE o.finding_id = @finding_id AND o.try = @try AND o.state = 'pending' AND (o.lease_until IS NULL OR o.lease_until <= clock.t)
  AND o.window_opened_at <= clock.t AND clock.t < o.window_opened_at + @window::interval
RETURNING (1000 * extract(epoch FROM least(@permit::interval, o.window_opened_at + @window::interval - clock.t)))::float8, o.open_sends`

// Claim takes a pending refund to be sent, inside its window and by nobody else. life is
// for how long it may be sent, from before this was asked; resend says that an earlier
// send may have been executed. ok is false if it may not be sent.
func (o *RefundOrder) Claim(ctx context.Context, tx pgx.Tx) (life time.Duration, resend, ok bool, err error) {
	var ms float64
	var openSends int
	err = tx.QueryRow(ctx, sqlClaimRefund, pgx.NamedArgs{
		"finding_id": o.FindingID, "try": o.Try, "lease": RefundLease, "permit": PermitLife, "window": Window,
	}).Scan(&ms, &openSends)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, false, nil
	}
	if err != nil {
		return 0, false, false, fmt.Errorf("claim the refund about finding %d: %w", o.FindingID, err)
	}
	return time.Duration(ms * float64(time.Millisecond)), openSends > 1, true, nil
}

const sqlCountRefund = `
UPDATE billing.refund_orders
SET lease_until = NULL, open_sends = greatest(0, open_sends - @executed_not::int), reason = @reason,
    request_id = CASE WHEN @request_id <> '' THEN @request_id ELSE request_id END
WHERE finding_id = @finding_id AND try = @try AND state = 'pending'`

// CountUnknown records an answer that proves nothing about the refund; with notExecuted
// it proves that this send did nothing.
func (o *RefundOrder) CountUnknown(ctx context.Context, tx pgx.Tx, reason, requestID string, notExecuted bool) error {
	executedNot := 0
	if notExecuted {
		executedNot = 1
	}
	_, err := tx.Exec(ctx, sqlCountRefund, pgx.NamedArgs{
		"finding_id": o.FindingID, "try": o.Try, "reason": reason, "request_id": requestID, "executed_not": executedNot,
	})
	if err != nil {
		return fmt.Errorf("count the answer about finding %d: %w", o.FindingID, err)
	}
	return nil
}

const sqlSettleRefund = `
UPDATE billing.refund_orders
SET state = @state, reason = @reason, refund = @refund, refund_status = @status, request_id = CASE WHEN @request_id <> '' THEN @request_id ELSE request_id END,
    lease_until = NULL, open_sends = CASE WHEN @state = 'held' THEN open_sends ELSE 0 END, settled_at = billing.now()
WHERE finding_id = @finding_id AND try = @try
  AND (state = 'pending' OR (@state = 'refunded' AND state IN ('held', 'refused')))
  AND (@state <> 'held' OR lease_until IS NULL OR lease_until <= billing.now())`

// RefundResult is what became of an ordered refund.
type RefundResult struct {
	State                     RefundState // refunded, refused or held
	Reason                    string
	Refund, Status, RequestID string
	Person, Why, Detail       string
}

var refundActions = map[RefundState]string{RefundMade: "refund", RefundRefused: "refund_refused", RefundHeld: "refund_held"}

// Settle records what became of the refund. It reports false if that is recorded already.
func (o *RefundOrder) Settle(ctx context.Context, tx pgx.Tx, r RefundResult) (bool, error) {
	tag, err := tx.Exec(ctx, sqlSettleRefund, pgx.NamedArgs{
		"finding_id": o.FindingID, "try": o.Try, "state": r.State, "reason": r.Reason, "refund": r.Refund, "status": r.Status, "request_id": r.RequestID,
	})
	if err != nil {
		return false, fmt.Errorf("settle the refund about finding %d: %w", o.FindingID, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	if r.State == RefundMade {
		// The finding's own event says it, where it is resolved by this.
		return true, nil
	}
	return true, addFindingEvent(ctx, tx, o.FindingID, findingEvent{refundActions[r.State], r.Person, r.Why, r.Refund, r.RequestID, r.Detail})
}

// NoteRefund records that money was given back about a finding that stays as it is.
func (f *FindingState) NoteRefund(ctx context.Context, tx pgx.Tx, r Resolved) error {
	return addFindingEvent(ctx, tx, f.ID, findingEvent{"refund", r.Person, r.Why, r.Refund, r.RequestID, r.Detail})
}

// GivenBack is what of a payment was given back by now.
type GivenBack struct {
	PaymentIntent string
	Currency      string
	RefundedMinor int64
	Disputed      bool
}

// A payment that is looked at in review stands for nothing yet.
const sqlNoteRefunded = `
UPDATE billing.charges SET amount_refunded_minor = $2, disputed = $3
WHERE payment_intent = $1 AND state IN ('succeeded', 'review')
RETURNING billing_key, state = 'succeeded' AND lower(currency) = lower($4)`

// NoteRefunded keeps what of a payment was given back with the charge that has it, if one
// has. It tells the customer if the payment stands for the charge and is in its currency:
// else nothing that can be said of the charge is true of the payment.
func NoteRefunded(ctx context.Context, tx pgx.Tx, out *Outbox, g GivenBack) error {
	var key string
	var stands bool
	var keys []string
	rows, _ := tx.Query(ctx, sqlNoteRefunded, g.PaymentIntent, g.RefundedMinor, g.Disputed, g.Currency)
	_, err := pgx.ForEachRow(rows, []any{&key, &stands}, func() error {
		if stands {
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note what was refunded of %s: %w", g.PaymentIntent, err)
	}
	return out.tell(ctx, tx, HappenedRefund, keys)
}

const sqlRefundsOf = `
SELECT` + refundColumns + ` FROM billing.refund_orders o WHERE o.payment_intent = $1 ORDER BY o.ordered_at, o.finding_id, o.try`

// RefundsOf reads every refund that was ordered of a payment, about whatever finding.
func RefundsOf(ctx context.Context, q Querier, paymentIntent string) ([]RefundOrder, error) {
	rows, _ := q.Query(ctx, sqlRefundsOf, paymentIntent)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[RefundOrder])
	if err != nil {
		return nil, fmt.Errorf("read the refunds of %s: %w", paymentIntent, err)
	}
	return list, nil
}

const sqlNotedRefunds = `SELECT refund FROM billing.finding_events WHERE finding_id = $1 AND refund <> ''`

// NotedRefunds reads which refunds the history of a finding has.
func NotedRefunds(ctx context.Context, q Querier, finding int64) ([]string, error) {
	rows, _ := q.Query(ctx, sqlNotedRefunds, finding)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read what was given back about finding %d: %w", finding, err)
	}
	return ids, nil
}
