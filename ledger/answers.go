package ledger

import (
	"cmp"
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

// Answer is what came back for one permit: evidence of a state, or nothing that
// proves anything. It is recorded by whoever received it, also after losing the
// claim or the lease.
type Answer struct {
	AccountID  string
	BillingKey string
	Try        int
	// ClaimedAt is the permit's: it tells this send from every other of the try,
	// so that an answer that is written twice counts once.
	ClaimedAt time.Time
	// State is the state that the answer proves; empty means unknown.
	// ChargeRejected holds only if no other send of the try is open.
	State         ChargeState
	Reason        string
	PaymentIntent string
	StripeStatus  string
	DeclineCode   string
	AdviceCode    string
	RequestID     string
	RefundedMinor int64 // in minor units
	Disputed      bool
	NotExecuted   bool          // Stripe did not execute this send, for certain
	NotSent       bool          // nothing reached the wire: the send is taken back
	ServerError   bool          // a 5xx of Stripe's own
	Wait          time.Duration // before the row is claimed again
}

// Recorded says what became of a group of answers.
type Recorded struct {
	// Settled charges left pending by these answers, by state.
	Settled map[ChargeState]int64
	// Unknown answers left their charge pending.
	Unknown int64
	// Late answers found their charge settled already.
	Late int64
	// Findings are those that were opened.
	Findings int64
	// Now is the database's time of recording.
	Now time.Time
}

// answerArrays passes a group to one statement.
const answerArrays = `unnest(@billing_keys::text[], @tries::int[], @claims::timestamptz[], @states::text[], @reasons::text[], @payment_intents::text[],
    @statuses::text[], @declines::text[], @advices::text[], @request_ids::text[], @refunded::bigint[], @disputed::boolean[],
    @not_executed::boolean[], @not_sent::boolean[], @server_errors::boolean[], @waits::interval[])
    AS a(billing_key, try, claimed_at, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id, refunded,
    disputed, not_executed, not_sent, server_error, wait)`

// A definite answer is the answer to every send of the key, so none is open any
// more. A refusal says nothing about an earlier send that is still on its way.
// The state is compared as an expression, so that Postgres does not think of the
// queue's index, which holds all that is pending: rows are found by their key.
const sqlSettleIfPending = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
moved AS (
    UPDATE billing.charges c
    SET state = a.state, reason = a.reason, payment_intent = nullif(a.payment_intent, ''), stripe_status = a.stripe_status,
        decline_code = a.decline_code, advice_code = a.advice_code, request_id = a.request_id,
        amount_refunded_minor = a.refunded, disputed = a.disputed, settled_at = clock.t, open_sends = 0,
        lease_until = NULL, next_send_at = NULL, last_event = nextval('billing.charge_events_id_seq')
    FROM clock, ` + answerArrays + `
    WHERE c.billing_key = a.billing_key AND c.try = a.try
      AND c.state || '' = 'pending' AND a.state <> '' AND (a.state <> 'rejected'
           OR (c.open_sends <= 1 AND c.last_sent_at = a.claimed_at AND c.lease_until IS NOT NULL))
    RETURNING c.billing_key, c.last_event, c.job, c.period, c.account_id, c.try, c.state, c.reason, c.payment_intent,
        c.request_id, clock.t),
events AS (
    INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, reason, cause, run_id,
        payment_intent, request_id)
    SELECT m.last_event, m.t, m.job, m.period, m.account_id, m.try, 'pending', m.state, m.reason, 'answer', @run_id,
        coalesce(m.payment_intent, ''), m.request_id
    FROM moved m)
SELECT billing_key FROM moved`

// An answer counts while its own permit is the row's last and not yet answered:
// the lease ends with it. A send that Stripe turned away at its door does not
// use up what this run may send.
const sqlCountUnknown = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t)
UPDATE billing.charges c
SET sends = c.sends - a.not_sent::int,
    open_sends = greatest(0, c.open_sends - (a.not_executed OR a.not_sent)::int),
    server_errors = c.server_errors + a.server_error::int,
    request_id = CASE WHEN a.request_id <> '' THEN a.request_id ELSE c.request_id END,
    reason = CASE WHEN a.not_sent THEN c.reason ELSE a.reason END,
    run_sends = c.run_sends - (c.lease_owner = @run_id AND (a.not_sent OR (a.not_executed AND a.state = '')))::int,
    lease_until = NULL,
    next_send_at = CASE WHEN c.lease_owner = @run_id AND a.wait > interval '0' THEN clock.t + a.wait ELSE c.next_send_at END
FROM clock, ` + answerArrays + `
WHERE c.billing_key = a.billing_key AND c.try = a.try AND c.state || '' = 'pending'
  AND c.last_sent_at = a.claimed_at AND c.lease_until IS NOT NULL
RETURNING c.billing_key`

// RecordAnswers writes a group of answers in one transaction. If that fails, each
// is written by itself, so that one bad row never costs the others their answer;
// the error then names the first that could not be written at all. Writing the
// same answers twice, after a commit whose outcome was not seen, changes nothing
// the second time.
func RecordAnswers(ctx context.Context, pool *pgxpool.Pool, run Run, answers []Answer) (Recorded, error) {
	total := Recorded{Settled: map[ChargeState]int64{}}
	// One order for all writers keeps deadlocks rare; of two answers for one key,
	// one statement would apply either.
	slices.SortStableFunc(answers, func(a, b Answer) int { return cmp.Compare(a.BillingKey, b.BillingKey) })
	for len(answers) > 0 {
		var group, again []Answer
		for i, a := range answers {
			if i > 0 && a.BillingKey == answers[i-1].BillingKey {
				again = append(again, a)
			} else {
				group = append(group, a)
			}
		}
		one, err := recordOrSplit(ctx, pool, run, group)
		total.add(one)
		if err != nil {
			return total, err
		}
		answers = again
	}
	return total, nil
}

func recordOrSplit(ctx context.Context, pool *pgxpool.Pool, run Run, answers []Answer) (Recorded, error) {
	rec, err := recordGroup(ctx, pool, run, answers)
	if err == nil || len(answers) <= 1 || IsUnreachable(err) || ctx.Err() != nil {
		return rec, err
	}
	total := Recorded{Settled: map[ChargeState]int64{}}
	var firstErr error
	for i := range answers {
		one, err := recordGroup(ctx, pool, run, answers[i:i+1])
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("record the answer for account %s: %w", answers[i].AccountID, err)
		}
		total.add(one)
	}
	return total, firstErr
}

func (r *Recorded) add(o Recorded) {
	for s, n := range o.Settled {
		r.Settled[s] += n
	}
	r.Unknown += o.Unknown
	r.Late += o.Late
	r.Findings += o.Findings
	r.Now = o.Now
}

func recordGroup(ctx context.Context, pool *pgxpool.Pool, run Run, answers []Answer) (rec Recorded, err error) {
	err = InQueueTx(ctx, pool, func(tx pgx.Tx) error {
		rec, err = recordIn(ctx, tx, run, answers)
		return err
	})
	if errors.Is(err, ErrPaymentIntentTaken) && len(answers) == 1 {
		return recordTaken(ctx, pool, run, answers[0])
	}
	return rec, err
}

func recordIn(ctx context.Context, tx pgx.Tx, run Run, answers []Answer) (Recorded, error) {
	rec := Recorded{Settled: map[ChargeState]int64{}}
	settled, err := queryKeys(ctx, tx, sqlSettleIfPending, answerArgs(run, answers))
	if err != nil {
		return rec, fmt.Errorf("settle charges: %w", err)
	}
	if err := run.Outbox.tell(ctx, tx, HappenedMove, slices.Collect(maps.Keys(settled))); err != nil {
		return rec, err
	}
	var rest []Answer
	for _, a := range answers {
		if settled[a.BillingKey] {
			rec.Settled[a.State]++
		} else {
			rest = append(rest, a)
		}
	}
	if len(rest) > 0 {
		if err := recordRest(ctx, tx, run, rest, &rec); err != nil {
			return rec, err
		}
	}
	rec.Now, err = Now(ctx, tx)
	return rec, err
}

// recordRest counts answers that prove nothing, and looks at those that found
// their charge in another state or try.
func recordRest(ctx context.Context, tx pgx.Tx, run Run, rest []Answer, rec *Recorded) error {
	counted, err := queryKeys(ctx, tx, sqlCountUnknown, answerArgs(run, rest))
	if err != nil {
		return fmt.Errorf("count answers: %w", err)
	}
	for _, a := range rest {
		if counted[a.BillingKey] {
			if !a.NotSent {
				rec.Unknown++
			}
			continue
		}
		rec.Late++
		if a.State != ChargeSucceeded {
			continue
		}
		opened, moved, err := paidWins(ctx, tx, run.Job, run.Period, a, run.RunID)
		if err != nil {
			return err
		}
		if moved {
			rec.Settled[a.State]++
			if err := run.Outbox.tell(ctx, tx, HappenedMove, []string{a.BillingKey}); err != nil {
				return err
			}
		}
		rec.Findings += int64(opened)
	}
	return nil
}

func answerArgs(run Run, answers []Answer) pgx.NamedArgs {
	return pgx.NamedArgs{
		"run_id":          run.RunID,
		"billing_keys":    columnOf(answers, func(a Answer) string { return a.BillingKey }),
		"claims":          columnOf(answers, func(a Answer) time.Time { return a.ClaimedAt }),
		"tries":           columnOf(answers, func(a Answer) int { return a.Try }),
		"states":          columnOf(answers, func(a Answer) string { return string(a.State) }),
		"reasons":         columnOf(answers, func(a Answer) string { return a.Reason }),
		"payment_intents": columnOf(answers, func(a Answer) string { return a.PaymentIntent }),
		"statuses":        columnOf(answers, func(a Answer) string { return a.StripeStatus }),
		"declines":        columnOf(answers, func(a Answer) string { return a.DeclineCode }),
		"advices":         columnOf(answers, func(a Answer) string { return a.AdviceCode }),
		"request_ids":     columnOf(answers, func(a Answer) string { return a.RequestID }),
		"refunded":        columnOf(answers, func(a Answer) int64 { return a.RefundedMinor }),
		"disputed":        columnOf(answers, func(a Answer) bool { return a.Disputed }),
		"not_executed":    columnOf(answers, func(a Answer) bool { return a.NotExecuted }),
		"not_sent":        columnOf(answers, func(a Answer) bool { return a.NotSent }),
		"server_errors":   columnOf(answers, func(a Answer) bool { return a.ServerError }),
		"waits":           columnOf(answers, func(a Answer) time.Duration { return a.Wait }),
	}
}

const sqlLockCharge = `
SELECT state, coalesce(payment_intent, ''), try, billing_key, currency, coalesce(amount_minor, 0)
FROM billing.charges WHERE job = $1 AND period = $2 AND account_id = $3 FOR UPDATE`

const sqlPaidWins = `
UPDATE billing.charges
SET state = 'succeeded', reason = '', payment_intent = $4, stripe_status = $5, request_id = $6, decline_code = '',
    advice_code = '', open_sends = 0, settled_at = billing.now(), lease_until = NULL, next_send_at = NULL, last_event = $7
WHERE job = $1 AND period = $2 AND account_id = $3 AND state <> 'succeeded'`

const sqlAddEvent = `
INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, reason, cause, run_id, person, payment_intent, request_id, detail)
VALUES (@job, @period, @account_id, @try, @from, @to, @reason, @cause, @run_id, @person, @payment_intent, @request_id, @detail)
RETURNING id`

// paidWins moves a charge to succeeded whatever its state is, and opens a finding
// if another payment already stands for it.
func paidWins(ctx context.Context, tx pgx.Tx, job Job, period Period, a Answer, runID uuid.UUID) (findings int, moved bool, err error) {
	var state ChargeState
	var paidBy, key, currency string
	var try int
	var minor int64
	err = tx.QueryRow(ctx, sqlLockCharge, job, period, a.AccountID).Scan(&state, &paidBy, &try, &key, &currency, &minor)
	if errors.Is(err, pgx.ErrNoRows) {
		// The ledger was replaced by an older one under this process.
		opened, err := OpenFinding(ctx, tx, Finding{
			Kind: "not_recorded", Severity: SeverityAct, Job: job, Period: period, AccountID: a.AccountID,
			BillingKey: a.BillingKey, PaymentIntent: a.PaymentIntent,
			Expected: "a charge in the ledger", Seen: "a payment, " + a.PaymentIntent + ", and no charge",
		})
		return count(opened), false, err
	}
	if err != nil {
		return 0, false, fmt.Errorf("look at the charge of account %s: %w", a.AccountID, err)
	}
	opened := false
	if paidBy != "" && paidBy != a.PaymentIntent && isLive(state) {
		opened, err = OpenFinding(ctx, tx, Finding{
			Kind: "duplicate", Severity: SeverityAct, Job: job, Period: period, AccountID: a.AccountID,
			BillingKey: key, PaymentIntent: a.PaymentIntent, Currency: currency,
			Expected: "one payment, " + paidBy, Seen: "a second payment, " + a.PaymentIntent,
		})
	}
	if err != nil || state == ChargeSucceeded {
		return count(opened), false, err
	}
	var event int64
	err = tx.QueryRow(ctx, sqlAddEvent, pgx.NamedArgs{
		"job": job, "period": period, "account_id": a.AccountID, "try": a.Try, "from": state, "to": ChargeSucceeded,
		"reason": "", "cause": "answer", "run_id": runID, "person": "", "payment_intent": a.PaymentIntent,
		"request_id": a.RequestID, "detail": "paid wins",
	}).Scan(&event)
	if err != nil {
		return 0, false, fmt.Errorf("add an event: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlPaidWins, job, period, a.AccountID, a.PaymentIntent, a.StripeStatus, a.RequestID, event); err != nil {
		return 0, false, fmt.Errorf("settle account %s: %w", a.AccountID, err)
	}
	return count(opened), true, nil
}

// isLive reports a state behind which money has moved or may be moving.
func isLive(s ChargeState) bool {
	return s == ChargeSucceeded || s == ChargeProcessing
}

// recordTaken handles an answer whose PaymentIntent already pays for another
// debt: it proves nothing for this one, and a person must look.
func recordTaken(ctx context.Context, pool *pgxpool.Pool, run Run, a Answer) (rec Recorded, err error) {
	a.State, a.Reason = "", "payment_intent_taken"
	err = InTx(ctx, pool, func(tx pgx.Tx) error {
		if rec, err = recordIn(ctx, tx, run, []Answer{a}); err != nil {
			return err
		}
		opened, err := OpenFinding(ctx, tx, Finding{
			Kind: "payment_intent_taken", Severity: SeverityAct, Job: run.Job, Period: run.Period, AccountID: a.AccountID,
			BillingKey: a.BillingKey, PaymentIntent: a.PaymentIntent,
			Expected: "a PaymentIntent of its own", Seen: SeenTaken,
		})
		rec.Findings += int64(count(opened))
		return err
	})
	return rec, err
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
