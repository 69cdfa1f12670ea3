package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// BlindLimit is how long after its first try a message whose outcome is not known may
// be sent again without a person: Resend keeps a key for 24 hours, and the missing hour
// is the margin.
const BlindLimit = 23 * time.Hour

// QueuedMessage is a message that may be sent once now. The try was counted and
// committed before it was handed out.
type QueuedMessage struct {
	ID int64
	// DedupeKey is how receivers know it: the row's, and the origin of the ledger.
	DedupeKey   string
	Kind        string
	Channel     string
	Destination string
	Payload     string
	Sender      string // of a mail, frozen with its first try
	CreatedAt   time.Time
	Tries       int // this one included
	// ClaimedAt is the database's time of the claim. It tells this try from every other.
	ClaimedAt time.Time
}

// MessageClaim asks for messages of one lane.
type MessageClaim struct {
	Lane  string
	Owner uuid.UUID
	Rows  int
	// Lease is for how long nobody else takes them.
	Lease time.Duration
	// Sender is frozen in those that were never tried.
	Sender string
	// Twice are the kinds that may be sent again although an old try of them may have
	// arrived.
	Twice []string
}

// A row that another sender has is passed by.
const sqlClaimMessages = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT o.id FROM billing.outbox o, clock
    WHERE o.lane = @lane AND o.state = 'queued' AND o.next_at <= clock.t AND (o.lease_until IS NULL OR o.lease_until <= clock.t)
      AND (o.open_tries = 0 OR clock.t < o.first_try_at + @blind::interval OR o.kind = ANY (@twice::text[]))
      AND NOT EXISTS (SELECT FROM billing.outbox_lanes l
          WHERE l.lane = @lane AND (l.stopped_at IS NOT NULL OR l.resume_at > clock.t))
    ORDER BY o.next_at, o.id
    LIMIT @rows
    FOR UPDATE OF o SKIP LOCKED)
UPDATE billing.outbox o
SET tries = o.tries + 1, open_tries = o.open_tries + 1, first_try_at = coalesce(o.first_try_at, clock.t), last_try_at = clock.t,
    lease_owner = @owner, lease_until = clock.t + @lease::interval, sender = CASE WHEN o.sender = '' THEN @sender ELSE o.sender END
FROM picked p, clock
WHERE o.id = p.id
RETURNING o.id, o.dedupe_key || CASE WHEN o.origin <> '' THEN '/' || o.origin ELSE '' END AS dedupe_key, o.kind, o.channel, o.destination,
    o.payload, o.sender, o.created_at, o.tries, clock.t AS claimed_at`

// ClaimMessages takes messages of a lane that are due, the longest due first, unless
// the lane rests or is stopped. It wants a transaction of InQueueTx.
func ClaimMessages(ctx context.Context, tx pgx.Tx, c MessageClaim) ([]QueuedMessage, error) {
	rows, _ := tx.Query(ctx, sqlClaimMessages, pgx.NamedArgs{
		"lane": c.Lane, "owner": c.Owner, "rows": c.Rows, "lease": c.Lease, "blind": BlindLimit, "twice": c.Twice, "sender": c.Sender,
	})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[QueuedMessage])
	if err != nil {
		return nil, fmt.Errorf("claim messages of %s: %w", c.Lane, err)
	}
	return list, nil
}

const sqlEndUnknown = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT o.id FROM billing.outbox o, clock
    WHERE o.lane = $1 AND o.state = 'queued' AND o.open_tries > 0 AND o.first_try_at + $2::interval <= clock.t
      AND (o.lease_until IS NULL OR o.lease_until <= clock.t) AND o.kind <> ALL ($3::text[])
    FOR UPDATE OF o SKIP LOCKED)
UPDATE billing.outbox o SET state = 'dead', reason = 'unknown', settled_at = clock.t, lease_until = NULL
FROM picked p, clock WHERE o.id = p.id`

// EndUnknown makes dead letters of the messages of a lane that may have arrived and
// are too old to be sent again blindly. It returns how many.
func EndUnknown(ctx context.Context, tx pgx.Tx, lane string, twice []string) (int64, error) {
	tag, err := tx.Exec(ctx, sqlEndUnknown, lane, BlindLimit, twice)
	if err != nil {
		return 0, fmt.Errorf("end what is unknown of %s: %w", lane, err)
	}
	return tag.RowsAffected(), nil
}

// TryEnd is what one try came to.
type TryEnd string

const (
	// TrySent says that the receiver has the message.
	TrySent TryEnd = "sent"
	// TryFailed did not deliver it; another may.
	TryFailed TryEnd = "failed"
	// TryRefused did not deliver it, and none will.
	TryRefused TryEnd = "refused"
	// TryUnknown may have delivered it.
	TryUnknown TryEnd = "unknown"
	// TryNone was never made, or says nothing of the message: the claim is taken back.
	// With a reason the message goes to the end of the queue.
	TryNone TryEnd = "none"
)

// Try is one try of a message and what it came to.
type Try struct {
	ID int64
	// ClaimedAt is the message's.
	ClaimedAt  time.Time
	End        TryEnd
	Reason     string
	Answer     string // the beginning of what the receiver said, where it took nothing
	ProviderID string
	Wait       time.Duration // before it is due again
}

// TriesRecorded counts what became of messages by their tries.
type TriesRecorded struct {
	Sent, Queued, Dead int64
	// Unknown of those that are dead may have arrived.
	Unknown int64
}

// That a message was sent counts whoever has it by now. All else counts only for the
// try that is the message's last and not yet recorded, so that writing it twice after a
// commit whose outcome was not seen changes nothing. Rows are locked one after the other
// in the order of their ids, here and where people move messages, so that no two wait
// for each other; a lane's row is locked after its messages'. One that is refused after
// a try that may have arrived is as unknown as before; one of which nothing can have
// arrived is free to have another sender.
const sqlRecordTries = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
tries AS MATERIALIZED (
    SELECT * FROM unnest(@ids::bigint[], @claims::timestamptz[], @ends::text[], @reasons::text[], @answers::text[], @provider_ids::text[],
        @waits::interval[]) AS a(id, claimed_at, ended, reason, answer, provider_id, wait)
    ORDER BY a.id),
judged AS MATERIALIZED (
    SELECT a.*, o.tries - (a.ended = 'none')::int AS tries,
        CASE a.ended WHEN 'sent' THEN 0 WHEN 'unknown' THEN o.open_tries ELSE greatest(0, o.open_tries - 1) END AS open_tries,
        a.ended IN ('failed', 'unknown') AND o.first_try_at + @give_up::interval <= clock.t + a.wait AS given_up
    FROM clock, tries a, LATERAL (SELECT * FROM billing.outbox m WHERE m.id = a.id FOR UPDATE) o
    WHERE (a.ended = 'sent' AND o.state IN ('queued', 'dead', 'dropped'))
       OR (o.state = 'queued' AND o.lease_owner = @owner AND o.last_try_at = a.claimed_at AND o.lease_until IS NOT NULL))
UPDATE billing.outbox o
SET state = CASE WHEN j.ended = 'sent' THEN 'sent' WHEN j.ended = 'refused' OR j.given_up THEN 'dead' ELSE 'queued' END,
    reason = CASE WHEN j.ended = 'sent' THEN '' WHEN j.ended = 'none' THEN o.reason
        WHEN (j.given_up OR j.ended = 'refused') AND j.open_tries > 0 THEN 'unknown' WHEN j.given_up THEN 'gave_up/' || j.reason ELSE j.reason END,
    answer = CASE WHEN j.ended = 'none' THEN o.answer WHEN j.ended = 'refused' AND j.open_tries > 0 THEN concat_ws(': ', j.reason, nullif(j.answer, ''))
        ELSE j.answer END,
    sender = CASE WHEN j.tries = 0 OR (j.open_tries = 0 AND (j.ended = 'refused' OR j.given_up)) THEN '' ELSE o.sender END, tries = j.tries, open_tries = j.open_tries,
    first_try_at = CASE WHEN j.tries = 0 THEN NULL ELSE o.first_try_at END,
    next_at = CASE WHEN j.ended IN ('failed', 'unknown') THEN clock.t + j.wait
        WHEN j.ended = 'none' AND j.reason <> '' THEN clock.t ELSE o.next_at END,
    lease_until = NULL, provider_id = CASE WHEN j.provider_id <> '' THEN j.provider_id ELSE o.provider_id END,
    settled_at = CASE WHEN j.ended IN ('sent', 'refused') OR j.given_up THEN clock.t END
FROM judged j, clock
WHERE o.id = j.id
RETURNING o.state, o.reason = 'unknown' AND o.state = 'dead'`

// RecordTries writes what tries came to. A message that failed is given up giveUp after its first
// try. It wants a transaction of InQueueTx.
func RecordTries(ctx context.Context, tx pgx.Tx, owner uuid.UUID, giveUp time.Duration, list []Try) (done TriesRecorded, err error) {
	rows, _ := tx.Query(ctx, sqlRecordTries, pgx.NamedArgs{
		"owner": owner, "give_up": giveUp,
		"ids":          columnOf(list, func(t Try) int64 { return t.ID }),
		"claims":       columnOf(list, func(t Try) time.Time { return t.ClaimedAt }),
		"ends":         columnOf(list, func(t Try) string { return string(t.End) }),
		"reasons":      columnOf(list, func(t Try) string { return t.Reason }),
		"answers":      columnOf(list, func(t Try) string { return t.Answer }),
		"provider_ids": columnOf(list, func(t Try) string { return t.ProviderID }),
		"waits":        columnOf(list, func(t Try) time.Duration { return t.Wait }),
	})
	var state MessageState
	var unknown bool
	_, err = pgx.ForEachRow(rows, []any{&state, &unknown}, func() error {
		switch state {
		case MessageSent:
			done.Sent++
		case MessageDead:
			done.Dead++
		default:
			done.Queued++
		}
		done.Unknown += int64(count(unknown))
		return nil
	})
	if err != nil {
		return done, fmt.Errorf("record tries: %w", err)
	}
	return done, nil
}
