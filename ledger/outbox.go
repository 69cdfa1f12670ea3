package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MessageState says where a message stands.
type MessageState string

const (
	// MessageQueued is to be sent, or was and the outcome is not known.
	MessageQueued MessageState = "queued"
	// MessageSent is with its receiver, who said so. It is never sent again.
	MessageSent MessageState = "sent"
	// MessageDead is not sent again without a person; the reason says why.
	MessageDead MessageState = "dead"
	// MessageUndeliverable had nobody to go to when it was written: an account without
	// an address. It needs nobody, and is there to be seen.
	MessageUndeliverable MessageState = "undeliverable"
	// MessageDropped was given up by a person.
	MessageDropped MessageState = "dropped"
)

// MessageStates lists every state, in the order in which reports print them.
var MessageStates = []MessageState{MessageQueued, MessageSent, MessageDead, MessageUndeliverable, MessageDropped}

// The channels of messages.
const (
	ChannelEmail   = "email"
	ChannelWebhook = "webhook"
)

// Happening is what a message may be about.
type Happening string

const (
	// HappenedMove is a charge that came into another state.
	HappenedMove Happening = "move"
	// HappenedRefund is money of a charge that was given back by order.
	HappenedRefund Happening = "refund"
	// HappenedDone is a period that a run finished.
	HappenedDone Happening = "done"
)

// Change is something that just happened, in the transaction that is still open. Of a
// period that is done it has only the first fields.
type Change struct {
	Happened Happening
	Job      Job
	Period   Period
	At       time.Time // by Postgres
	// StripeAccount and Livemode are whose this ledger is, empty while it is nobody's.
	StripeAccount string
	Livemode      bool
	// Serial tells the times apart that one period was done: 1, and one more for each
	// time it was reopened.
	Serial int64

	AccountID  string
	BillingKey string
	Try        int
	From, To   ChargeState
	// Nth is how often the try came into review by now, and 1 for every other state.
	Nth int64
	// Accepted says that a person took a payment for the charge's that is not as asked:
	// what was paid is not what the charge says.
	Accepted      bool
	Reason        string
	DeclineCode   string
	Name          string
	Email         string
	Amount        string // major units, as invoiced
	AmountMinor   int64  // minor units
	RefundedMinor int64  // minor units, all that was given back by now
	Currency      string
	PaymentIntent string
	Body          string // the request of the try; its description is the customer's
}

// Message is a row of the outbox as it is written.
type Message struct {
	DedupeKey   string
	Kind        string
	Channel     string
	Lane        string
	Destination string
	Job         Job
	Period      Period
	AccountID   string
	BillingKey  string
	// Origin is the Stripe account and mode of the ledger, so that two ledgers with the
	// same keys have no name of a message in common.
	Origin  string
	Payload string
	// State is queued, undeliverable or dead, the latter two with a reason.
	State  MessageState
	Reason string
}

// Outbox makes messages of changes. A nil one makes none and costs nothing.
type Outbox struct {
	// Messages renders what a group of changes has to be told. It is called inside their
	// transaction, perhaps more than once, so it must do no I/O; and nothing that goes
	// wrong with a message may keep a change back, so it can't fail.
	Messages func([]Change) []Message
}

// A payment that wins leaves review too; that is nobody's acceptance. What is no move has
// its own time.
const sqlMoves = `
SELECT c.job, c.period, CASE WHEN $2 THEN e.at ELSE clock.t END AS at, c.account_id, c.billing_key, e.try, e.from_state AS from,
    e.to_state AS to, e.from_state = 'review' AND e.cause = 'person' AS accepted,
    CASE WHEN e.to_state = 'review' THEN (SELECT count(*) FROM billing.charge_events p WHERE p.job = e.job AND p.period = e.period
        AND p.account_id = e.account_id AND p.try = e.try AND p.to_state = 'review' AND p.id <= e.id) ELSE 1 END AS nth,
    coalesce(i.account_id, '') AS stripe_account, coalesce(i.livemode, false) AS livemode, c.reason, c.decline_code, c.name, c.email, c.amount::text AS amount,
    coalesce(c.amount_minor, 0) AS amount_minor, c.amount_refunded_minor AS refunded_minor, c.currency,
    coalesce(c.payment_intent, '') AS payment_intent, coalesce(c.body, '') AS body
FROM (SELECT billing.now() AS t OFFSET 0) clock
    CROSS JOIN (SELECT DISTINCT k FROM unnest($1::text[]) k) keys
    CROSS JOIN LATERAL (SELECT * FROM billing.charges c WHERE c.billing_key = k OFFSET 0) c
    CROSS JOIN LATERAL (SELECT * FROM billing.charge_events e WHERE e.id = c.last_event OFFSET 0) e
    LEFT JOIN billing.stripe_identity i ON true
ORDER BY c.last_event`

// tell writes the messages about charges that this transaction has just changed, by
// their billing keys.
func (o *Outbox) tell(ctx context.Context, tx pgx.Tx, what Happening, keys []string) error {
	if o == nil || len(keys) == 0 {
		return nil
	}
	rows, _ := tx.Query(ctx, sqlMoves, keys, what == HappenedMove)
	changes, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[Change])
	if err != nil {
		return fmt.Errorf("read what changed: %w", err)
	}
	for i := range changes {
		changes[i].Happened = what
	}
	return o.write(ctx, tx, changes)
}

const sqlDoneSerial = `
SELECT billing.now(), 1 + (SELECT count(*) FROM billing.period_events WHERE job = $1 AND period = $2 AND action = 'reopen'),
    coalesce(i.account_id, ''), coalesce(i.livemode, false)
FROM (SELECT) nobody LEFT JOIN billing.stripe_identity i ON true`

// tellDone writes the messages about a period that is done.
func (o *Outbox) tellDone(ctx context.Context, tx pgx.Tx, job Job, period Period) error {
	if o == nil {
		return nil
	}
	c := Change{Happened: HappenedDone, Job: job, Period: period}
	if err := tx.QueryRow(ctx, sqlDoneSerial, job, period).Scan(&c.At, &c.Serial, &c.StripeAccount, &c.Livemode); err != nil {
		return fmt.Errorf("count how often %s was done: %w", period, err)
	}
	return o.write(ctx, tx, []Change{c})
}

// Whoever wrote a message first has written it: the same change seen twice, as after
// an action that Stripe asks for again, is told once.
const sqlAddMessages = `
INSERT INTO billing.outbox (dedupe_key, kind, channel, lane, destination, job, period, account_id, billing_key, origin, payload, state,
    reason, created_at, next_at, settled_at)
SELECT m.dedupe_key, m.kind, m.channel, m.lane, m.destination, m.job, m.period, m.account_id, m.billing_key, m.origin, m.payload, m.state, m.reason,
    clock.t, clock.t, CASE WHEN m.state <> 'queued' THEN clock.t END
FROM (SELECT billing.now() AS t OFFSET 0) clock,
    unnest(@dedupe_keys::text[], @kinds::text[], @channels::text[], @lanes::text[], @destinations::text[], @jobs::text[], @periods::text[],
        @accounts::text[], @billing_keys::text[], @origins::text[], @payloads::text[], @states::text[], @reasons::text[]) WITH ORDINALITY
    AS m(dedupe_key, kind, channel, lane, destination, job, period, account_id, billing_key, origin, payload, state, reason, n)
ORDER BY m.n
ON CONFLICT ON CONSTRAINT outbox_dedupe_key_key DO NOTHING`

func (o *Outbox) write(ctx context.Context, tx pgx.Tx, changes []Change) error {
	list := o.Messages(changes)
	if len(list) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, sqlAddMessages, pgx.NamedArgs{
		"dedupe_keys":  columnOf(list, func(m Message) string { return m.DedupeKey }),
		"kinds":        columnOf(list, func(m Message) string { return m.Kind }),
		"channels":     columnOf(list, func(m Message) string { return m.Channel }),
		"lanes":        columnOf(list, func(m Message) string { return m.Lane }),
		"destinations": columnOf(list, func(m Message) string { return m.Destination }),
		"jobs":         columnOf(list, func(m Message) string { return string(m.Job) }),
		"periods":      columnOf(list, func(m Message) string { return string(m.Period) }),
		"accounts":     columnOf(list, func(m Message) string { return m.AccountID }),
		"billing_keys": columnOf(list, func(m Message) string { return m.BillingKey }),
		"origins":      columnOf(list, func(m Message) string { return m.Origin }),
		"payloads":     columnOf(list, func(m Message) string { return m.Payload }),
		"states":       columnOf(list, func(m Message) string { return string(m.State) }),
		"reasons":      columnOf(list, func(m Message) string { return m.Reason }),
	})
	if err != nil {
		return fmt.Errorf("write messages: %w", err)
	}
	return nil
}

const sqlMayTell = `SELECT has_table_privilege('billing.outbox', 'INSERT')`

// MayTell reports whether this role may write messages. Who tells anything asks before
// money moves: a right that is missing must not be found by the answer to a charge.
func MayTell(ctx context.Context, q Querier) (may bool, err error) {
	if err := q.QueryRow(ctx, sqlMayTell).Scan(&may); err != nil {
		return false, fmt.Errorf("look whether messages may be written: %w", err)
	}
	return may, nil
}

// What a backup calls queued may have been sent since it was made.
const sqlEndForgotten = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (SELECT o.id FROM billing.outbox o WHERE o.job = $1 AND o.state = 'queued' ORDER BY o.id FOR UPDATE)
UPDATE billing.outbox o SET state = 'dead', reason = 'unknown', settled_at = clock.t, lease_until = NULL
FROM picked p, clock WHERE o.id = p.id`

// endForgotten leaves to a person what is queued in a ledger that was restored, and
// returns how much that is.
func endForgotten(ctx context.Context, tx pgx.Tx, job Job) (int64, error) {
	tag, err := tx.Exec(ctx, sqlEndForgotten, job)
	if err != nil {
		return 0, fmt.Errorf("end what may have been sent: %w", err)
	}
	return tag.RowsAffected(), nil
}
