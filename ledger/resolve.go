package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrResolved says that somebody resolved the finding before.
var ErrResolved = errors.New("the finding is resolved")

// SeenTaken is what a finding saw of a payment that is two charges'.
const SeenTaken = "one that pays for another charge"

const sqlLockPeriod = `SELECT FROM billing.job_runs WHERE job = $1 AND period = $2 FOR UPDATE`

const sqlLockFinding = `SELECT period, billing_key, payment_intent FROM billing.findings WHERE job = $1 AND id = $2`

const sqlLockFindingRow = `SELECT FROM billing.findings WHERE id = $1 FOR UPDATE`

const sqlLockCharges = `
SELECT FROM billing.charges WHERE billing_key = $1 OR (payment_intent = $2 AND $2 <> '') ORDER BY billing_key FOR UPDATE`

// LockFinding holds a finding, its charge and its period for the rest of the
// transaction, and reads them. A period whose row a run holds for long is a
// *HeldError, and an id that does not exist ErrNotFound. Whoever locks several
// findings does so in the order of their ids.
func LockFinding(ctx context.Context, tx pgx.Tx, job Job, id int64) (f FindingState, err error) {
	var period Period
	var key, payment string
	err = tx.QueryRow(ctx, sqlLockFinding, job, id).Scan(&period, &key, &payment)
	if errors.Is(err, pgx.ErrNoRows) {
		return f, fmt.Errorf("finding %d of %s: %w", id, job, ErrNotFound)
	}
	if err == nil {
		_, err = tx.Exec(ctx, claimLockTimeout)
	}
	if err == nil {
		_, err = tx.Exec(ctx, sqlLockPeriod, job, period)
	}
	if err == nil {
		_, err = tx.Exec(ctx, sqlLockFindingRow, id)
	}
	if err == nil {
		_, err = tx.Exec(ctx, sqlLockCharges, key, payment)
	}
	switch {
	case IsLockTimeout(err):
		return f, &HeldError{Job: job, Period: period, Holder: Run{Owner: "a run that is recording it"}}
	case err != nil:
		return f, fmt.Errorf("lock finding %d: %w", id, err)
	}
	return ReadFinding(ctx, tx, job, id)
}

const sqlResolveFinding = `
UPDATE billing.findings SET resolved_at = billing.now(), resolved_by = $2, resolution = $3, why = $4
WHERE id = $1 AND resolved_at IS NULL`

const sqlFindingEvent = `
INSERT INTO billing.finding_events (finding_id, action, person, why, refund, request_id, detail)
VALUES (@finding_id, @action, @person, @why, @refund, @request_id, @detail)`

// findingEvent is one row of the history of findings.
type findingEvent struct{ action, person, why, refund, requestID, detail string }

func addFindingEvent(ctx context.Context, tx pgx.Tx, id int64, e findingEvent) error {
	_, err := tx.Exec(ctx, sqlFindingEvent, pgx.NamedArgs{
		"finding_id": id, "action": e.action, "person": e.person, "why": e.why, "refund": e.refund, "request_id": e.requestID, "detail": e.detail,
	})
	if err != nil {
		return fmt.Errorf("record what was done about finding %d: %w", id, err)
	}
	return nil
}

// actions are the names of resolutions in the history.
var actions = map[Resolution]string{
	ResolutionAccepted: "accept", ResolutionReleased: "release", ResolutionVoided: "void", ResolutionRefunded: "refund",
}

// Resolved is what a person says about a finding, and what it rests on.
type Resolved struct {
	As          Resolution
	Person, Why string
	// Refund, RequestID and Detail are the evidence, if there is any.
	Refund, RequestID, Detail string
}

// Resolve closes a finding that was locked. ErrResolved if it is not open any more.
func (f *FindingState) Resolve(ctx context.Context, tx pgx.Tx, r Resolved) error {
	tag, err := tx.Exec(ctx, sqlResolveFinding, f.ID, r.Person, r.As, r.Why)
	if err != nil {
		return fmt.Errorf("resolve finding %d: %w", f.ID, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("finding %d: %w", f.ID, ErrResolved)
	}
	return addFindingEvent(ctx, tx, f.ID, findingEvent{actions[r.As], r.Person, r.Why, r.Refund, r.RequestID, r.Detail})
}

// The payment of a charge that is held is not this charge's, so it is not kept there;
// the event has it.
const sqlEndReview = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
moved AS (
    UPDATE billing.charges c
    SET state = @to, reason = @reason, settled_at = clock.t, lease_until = NULL, next_send_at = NULL,
        payment_intent = CASE @to WHEN 'succeeded' THEN @payment_intent WHEN 'held' THEN NULL ELSE c.payment_intent END,
        stripe_status = CASE @to WHEN 'succeeded' THEN @status WHEN 'held' THEN '' ELSE c.stripe_status END,
        amount_refunded_minor = CASE @to WHEN 'succeeded' THEN @refunded::bigint WHEN 'held' THEN 0 ELSE c.amount_refunded_minor END,
        disputed = CASE @to WHEN 'succeeded' THEN @disputed WHEN 'held' THEN false ELSE c.disputed END,
        decline_code = '', advice_code = '', open_sends = CASE @to WHEN 'succeeded' THEN 0 ELSE c.open_sends END,
        last_event = nextval('billing.charge_events_id_seq')
    FROM clock
    WHERE c.billing_key = @key AND c.state = 'review' AND c.try = @try
    RETURNING c.last_event, c.job, c.period, c.account_id, c.try, c.state, c.reason, clock.t)
INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, reason, cause, person, payment_intent, request_id, detail)
SELECT m.last_event, m.t, m.job, m.period, m.account_id, m.try, 'review', m.state, m.reason, 'person', @person, @payment_intent, @request_id, @detail
FROM moved m`

// ReviewEnd is where a charge in review goes, and the payment that it was about.
type ReviewEnd struct {
	To     ChargeState // succeeded, held or void
	Reason string
	// PaymentIntent, and for succeeded its status, what of it was given back in
	// minor units, and whether it is disputed.
	PaymentIntent, Status string
	RefundedMinor         int64
	Disputed              bool
	Person, RequestID     string
	Detail                string
	// Outbox tells it; nil tells nobody.
	Outbox *Outbox
}

// EndReview moves the charge of a finding that was locked out of review. It reports
// false if the charge is not in review any more, or in another try.
func (f *FindingState) EndReview(ctx context.Context, tx pgx.Tx, e ReviewEnd) (bool, error) {
	tag, err := tx.Exec(ctx, sqlEndReview, pgx.NamedArgs{
		"key": f.BillingKey, "try": f.ChargeTry, "to": e.To, "reason": e.Reason, "payment_intent": e.PaymentIntent, "status": e.Status,
		"refunded": e.RefundedMinor, "disputed": e.Disputed, "person": e.Person, "request_id": e.RequestID, "detail": e.Detail,
	})
	if err != nil {
		return false, fmt.Errorf("end the review of account %s: %w", f.AccountID, err)
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	return true, e.Outbox.tell(ctx, tx, HappenedMove, []string{f.BillingKey})
}
