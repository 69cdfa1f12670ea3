package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MessageQuery chooses messages of a job. Empty fields choose all.
type MessageQuery struct {
	Job     Job
	Period  Period
	Account string
	IDs     []int64
	Kind    string
	Lane    string
	Reason  string
	States  []MessageState
}

func (m MessageQuery) args() pgx.NamedArgs {
	states := make([]string, len(m.States))
	for i, s := range m.States {
		states[i] = string(s)
	}
	return pgx.NamedArgs{"job": m.Job, "period": m.Period, "account": m.Account, "ids": m.IDs, "kind": m.Kind, "lane": m.Lane,
		"reason": m.Reason, "states": states}
}

const messageFilter = `
    o.job = @job AND (@period = '' OR o.period = @period) AND (@account = '' OR o.account_id = @account)
    AND (@ids::bigint[] IS NULL OR o.id = ANY (@ids)) AND (@kind = '' OR o.kind = @kind) AND (@lane = '' OR o.lane = @lane)
    AND (@reason = '' OR o.reason = @reason) AND o.state = ANY (@states::text[])`

// MessageLine is a message as it is listed.
type MessageLine struct {
	ID          int64
	DedupeKey   string
	Kind        string
	Channel     string
	Lane        string
	Destination string
	Job         Job
	Period      Period
	AccountID   string
	State       MessageState
	Reason      string
	Tries       int
	OpenTries   int
	FirstTryAt  *time.Time
	LastTryAt   *time.Time
	NextAt      time.Time
	ProviderID  string
	Answer      string
	CreatedAt   time.Time
	SettledAt   *time.Time
	Payload     string
}

const sqlEachMessage = `
SELECT o.id, o.dedupe_key, o.kind, o.channel, o.lane, o.destination, o.job, o.period, o.account_id, o.state, o.reason, o.tries, o.open_tries,
    o.first_try_at, o.last_try_at, o.next_at, o.provider_id, o.answer, o.created_at, o.settled_at, o.payload
FROM billing.outbox o
WHERE` + messageFilter + `
ORDER BY o.id`

// EachMessage calls do with every message that was chosen, the oldest first.
func EachMessage(ctx context.Context, q Querier, what MessageQuery, do func(MessageLine) error) error {
	rows, _ := q.Query(ctx, sqlEachMessage, what.args())
	defer rows.Close()
	for rows.Next() {
		m, err := pgx.RowToStructByName[MessageLine](rows)
		if err != nil {
			return fmt.Errorf("read messages: %w", err)
		}
		if err := do(m); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read messages: %w", err)
	}
	return nil
}

// A person who releases a message answers for its being sent a second time: its tries
// begin anew. What nobody could read or render can't be sent at all.
const sqlReleaseMessages = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT o.id FROM billing.outbox o
    WHERE` + messageFilter + ` AND o.state = 'dead' AND o.payload <> '' AND o.destination <> ''
    ORDER BY o.id FOR UPDATE),
moved AS (
    UPDATE billing.outbox o
    SET state = 'queued', reason = '', answer = '', settled_at = NULL, tries = 0, open_tries = 0, first_try_at = NULL, next_at = clock.t
    FROM picked p, clock WHERE o.id = p.id
    RETURNING o.id, o.lane)
INSERT INTO billing.outbox_events (message_id, lane, action, person, why)
SELECT id, lane, 'release', @person, @why FROM moved RETURNING message_id`

const sqlDropMessages = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT o.id FROM billing.outbox o, clock
    WHERE` + messageFilter + ` AND (o.state IN ('dead', 'undeliverable')
        OR (o.state = 'queued' AND (o.lease_until IS NULL OR o.lease_until <= clock.t)))
    ORDER BY o.id FOR UPDATE OF o),
moved AS (
    UPDATE billing.outbox o SET state = 'dropped', settled_at = clock.t, lease_until = NULL
    FROM picked p, clock WHERE o.id = p.id
    RETURNING o.id, o.lane)
INSERT INTO billing.outbox_events (message_id, lane, action, person, why)
SELECT id, lane, 'drop', @person, @why FROM moved RETURNING message_id`

// ReleaseMessages queues dead letters again, also those that may have arrived. It
// returns their ids.
func ReleaseMessages(ctx context.Context, tx pgx.Tx, what MessageQuery, person, why string) ([]int64, error) {
	return moveMessages(ctx, tx, "release", sqlReleaseMessages, what, person, why)
}

// DropMessages gives up messages that are queued and not under way, or dead or
// undeliverable. It returns their ids.
func DropMessages(ctx context.Context, tx pgx.Tx, what MessageQuery, person, why string) ([]int64, error) {
	return moveMessages(ctx, tx, "drop", sqlDropMessages, what, person, why)
}

func moveMessages(ctx context.Context, tx pgx.Tx, action, sql string, what MessageQuery, person, why string) ([]int64, error) {
	args := what.args()
	args["person"], args["why"] = person, why
	rows, _ := tx.Query(ctx, sql, args)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("%s messages: %w", action, err)
	}
	return ids, nil
}
