package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// MessageQuery chooses messages. Empty fields choose all, but for States.
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
    (@job = '' OR o.job = @job) AND (@period = '' OR o.period = @period) AND (@account = '' OR o.account_id = @account)
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
	// SentAs is the dedupe key as receivers know it, with the origin of the ledger.
	SentAs string
	// FromDomain is that of a mail's sender: its Message-ID has it.
	FromDomain string
}

const sqlEachMessage = `
SELECT o.id, o.dedupe_key, o.kind, o.channel, o.lane, o.destination, o.job, o.period, o.account_id, o.state, o.reason, o.tries, o.open_tries,
    o.first_try_at, o.last_try_at, o.next_at, o.provider_id, o.answer, o.created_at, o.settled_at,
    o.dedupe_key || CASE WHEN o.origin <> '' THEN '/' || o.origin ELSE '' END AS sent_as,
    CASE WHEN o.channel = 'email' THEN coalesce(substring(o.sender FROM head.re), substring(o.payload FROM head.re), '') ELSE '' END AS from_domain
FROM billing.outbox o
CROSS JOIN (VALUES ('^\{"from":"(?:[^"\\]|\\.)*@([^"\\>@]+)')) head(re)
WHERE` + messageFilter

// unsent lets what was sent be passed by with an index, where it is not asked for.
func (m MessageQuery) unsent() string {
	if slices.Contains(m.States, MessageSent) {
		return ""
	}
	return ` AND o.state <> 'sent'`
}

const sqlCountMessages = `SELECT count(*), coalesce(min(o.job) <> max(o.job), false) FROM billing.outbox o WHERE` + messageFilter

// CountMessages counts what was chosen, and says whether it is of more than one job.
func CountMessages(ctx context.Context, q Querier, what MessageQuery) (n int64, jobs bool, err error) {
	if err := q.QueryRow(ctx, sqlCountMessages+what.unsent(), what.args()).Scan(&n, &jobs); err != nil {
		return 0, false, fmt.Errorf("count messages: %w", err)
	}
	return n, jobs, nil
}

// EachMessage calls do with the messages that were chosen, the oldest first, and no more
// than most of them; 0 is all.
func EachMessage(ctx context.Context, q Querier, what MessageQuery, most int, do func(MessageLine) error) error {
	sql := sqlEachMessage + what.unsent() + ` ORDER BY o.id`
	if most > 0 {
		sql += ` LIMIT ` + strconv.Itoa(most)
	}
	rows, _ := q.Query(ctx, sql, what.args())
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

// What was dropped by mistake is released like a dead letter, where that state is asked for.
// A person who releases a message answers for its being sent a second time: its tries
// begin anew. What nobody could read or render can't be sent at all.
const sqlReleaseMessages = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
picked AS MATERIALIZED (
    SELECT o.id FROM billing.outbox o
    WHERE` + messageFilter + ` AND o.state IN ('dead', 'dropped') AND o.payload <> '' AND o.destination <> ''
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

// ReleaseMessages queues dead letters and what was dropped again, also what may have
// arrived. It returns their ids.
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

const sqlHasTold = `SELECT EXISTS (SELECT FROM billing.outbox WHERE job = $1)`

// HasTold reports whether a job has ever written a message.
func HasTold(ctx context.Context, q Querier, job Job) (told bool, err error) {
	if err := q.QueryRow(ctx, sqlHasTold, job).Scan(&told); err != nil {
		return false, fmt.Errorf("look for messages: %w", err)
	}
	return told, nil
}
