package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetAsideQuery chooses events that are set aside. Empty fields choose all.
type SetAsideQuery struct {
	Job      Job
	Reasons  []string // of UsageReasons, or repeat
	EventIDs []string
	Arrivals []int64
	Account  string
	// Decided lists what people released or dropped instead of what is open.
	Decided bool
}

func (q SetAsideQuery) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"job": q.Job, "reasons": q.Reasons, "events": q.EventIDs, "arrivals": q.Arrivals, "account": q.Account, "decided": q.Decided,
	}
}

// named reports that the query names single events, so that who asks means them.
func (q SetAsideQuery) named() bool { return q.EventIDs != nil || q.Arrivals != nil }

// SetAsideLine is an event that is set aside, as people see it.
type SetAsideLine struct {
	Arrival    int64 // its number in usage_events
	EventID    string
	AccountID  string
	Metric     string
	Quantity   string // as Postgres writes it: decimal, NaN or Infinity
	OccurredAt string // RFC 3339 in UTC, or what no RFC 3339 can say, such as infinityZ; empty if the event has no time of its own
	ReceivedAt time.Time
	Reason     string
	Detail     string
	Since      time.Time
	// What was decided: empty, released or dropped; by whom, why and when.
	Decided, Person, Why string
	At                   *time.Time
}

// Repeats are shown only to those who ask for them.
const chosenSetAside = `
FROM billing.usage_set_aside s JOIN billing.usage_events e ON e.arrival = s.arrival
WHERE s.job = @job AND (@reasons::text[] IS NULL AND s.reason <> 'repeat' OR s.reason = ANY (@reasons::text[]))
  AND (@events::text[] IS NULL OR hashtextextended(e.event_id, 0) = ANY (SELECT hashtextextended(u, 0) FROM unnest(@events::text[]) u)
    AND e.event_id = ANY (@events::text[]))
  AND (@arrivals::bigint[] IS NULL OR s.arrival = ANY (@arrivals::bigint[]))
  AND (@account::text = '' OR e.account_id = @account)`

const sqlCountSetAside = `
SELECT s.reason, count(*) AS count` + chosenSetAside + `
  AND (s.decided IS NOT NULL) = @decided GROUP BY s.reason ORDER BY s.reason`

const sqlSetAside = `
SELECT s.arrival, e.event_id, e.account_id, e.metric, e.quantity::text AS quantity, coalesce((to_json(e.occurred_at AT TIME ZONE 'UTC') #>> '{}') || 'Z', '') AS occurred_at,
    e.received_at, s.reason, s.detail, s.since, coalesce(s.decided, '') AS decided, s.person, s.why, s.at` + chosenSetAside + `
  AND (s.decided IS NOT NULL) = @decided ORDER BY s.arrival LIMIT @most`

// CountSetAside counts what is set aside by reason.
func CountSetAside(ctx context.Context, q Querier, query SetAsideQuery) ([]ReasonCount, error) {
	rows, _ := q.Query(ctx, sqlCountSetAside, query.args())
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[ReasonCount])
	if err != nil {
		return nil, fmt.Errorf("count what is set aside: %w", err)
	}
	return counts, nil
}

// EachSetAside calls each for the first events that are set aside, in the order of
// their arrival, at most so many.
func EachSetAside(ctx context.Context, q Querier, query SetAsideQuery, most int, each func(SetAsideLine) error) error {
	args := query.args()
	args["most"] = most
	rows, err := q.Query(ctx, sqlSetAside, args)
	if err != nil {
		return fmt.Errorf("list what is set aside: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		line, err := pgx.RowToStructByName[SetAsideLine](rows)
		if err != nil {
			return fmt.Errorf("list what is set aside: %w", err)
		}
		if err := each(line); err != nil {
			return err
		}
	}
	if rows.Err() != nil {
		return fmt.Errorf("list what is set aside: %w", rows.Err())
	}
	return nil
}

// DecidedUsage says what a decision of a person did.
type DecidedUsage struct {
	// Events were released or dropped.
	Events int64
	// Refused are events that can't be released, by what is wrong with them now.
	Refused []ReasonCount
	// Conflicts of the released ones count beside the event that has the same id.
	Conflicts int64
	// Carried are released events of invoiced periods.
	Carried []CarriedCount
	// Days were counted anew.
	Days int64
}

// What can never be added up or has no month stays out, whatever it was set aside for. The
// bounds of what can be released are wider than those of what is let in unseen.
const sqlStageReleased = `
CREATE TEMPORARY TABLE usage_decided ON COMMIT DROP AS
SELECT s.arrival, s.reason, CASE
    WHEN e.quantity::text IN ('NaN', 'Infinity', '-Infinity') THEN 'nan'
    WHEN abs(e.quantity) >= 1e30 OR min_scale(e.quantity) > 30 THEN 'huge'
    WHEN coalesce(e.occurred_at, e.received_at) >= '9999-01-01T00:00:00Z' THEN 'future'
    WHEN coalesce(e.occurred_at, e.received_at) < '2000-01-01T00:00:00Z' THEN 'ancient'
    WHEN NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = e.account_id) THEN 'unknown_account'
    WHEN NOT EXISTS (SELECT FROM billing.metrics m WHERE m.metric = e.metric) THEN 'unknown_metric'
    END AS refused` + chosenSetAside + `
  AND s.reason <> 'repeat' AND (s.decided IS NULL OR s.decided = 'dropped' AND @decided)`

const sqlStageDropped = `
CREATE TEMPORARY TABLE usage_decided ON COMMIT DROP AS
SELECT s.arrival, s.reason, NULL::text AS refused` + chosenSetAside + `
  AND s.reason <> 'repeat' AND s.decided IS NULL AND NOT @decided`

const sqlDecide = `
UPDATE billing.usage_set_aside s SET decided = $2, person = $3, why = $4, at = billing.now()
FROM pg_temp.usage_decided d WHERE s.job = $1 AND s.arrival = d.arrival AND d.refused IS NULL`

const sqlUsageHistory = `
INSERT INTO billing.usage_history (job, arrival, action, person, why)
SELECT $1, d.arrival, $2, $3, $4 FROM pg_temp.usage_decided d WHERE d.refused IS NULL ORDER BY d.arrival`

const sqlRefusedReleases = `
SELECT d.refused AS reason, count(*) AS count FROM pg_temp.usage_decided d WHERE d.refused IS NOT NULL GROUP BY 1 ORDER BY 1`

const sqlReleasedConflicts = `
SELECT count(*) FROM pg_temp.usage_decided d WHERE d.refused IS NULL AND d.reason = 'conflict'`

const sqlCarryReleased = withInvoiced + `, late AS (
    SELECT e.arrival, e.account_id, e.metric, e.quantity, coalesce(e.occurred_at, e.received_at)::date AS day
    FROM pg_temp.usage_decided d JOIN billing.usage_events e ON e.arrival = d.arrival
    WHERE d.refused IS NULL AND coalesce(e.occurred_at, e.received_at) < (SELECT b.ends FROM bound b))` + intoCarried

const sqlReleasedDays = `
SELECT min(r.day), max(r.day), count(*) FROM (
    SELECT d.day, d.day - row_number() OVER (ORDER BY d.day)::integer AS run FROM (
        SELECT DISTINCT coalesce(e.occurred_at, e.received_at)::date AS day
        FROM pg_temp.usage_decided r JOIN billing.usage_events e ON e.arrival = r.arrival WHERE r.refused IS NULL) d
    WHERE NOT EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = $1 AND i.period = to_char(d.day, 'YYYY-MM'))) r
GROUP BY r.run ORDER BY 1`

// ReleaseUsage lets events count that were set aside: in their day, or in a later period
// where their own is invoiced. A conflict that is released counts beside the event that
// arrived first. What still can't be counted is refused and told. What was dropped is
// released only if the query names it.
func ReleaseUsage(ctx context.Context, tx pgx.Tx, query SetAsideQuery, person, why string) (done DecidedUsage, err error) {
	w, err := takeCounted(ctx, tx, query.Job)
	if err != nil {
		return done, err
	}
	query.Decided = query.named()
	if done, err = decideUsage(ctx, tx, sqlStageReleased, query, "released", "release", person, why); err != nil {
		return done, err
	}
	rows, _ := tx.Query(ctx, sqlRefusedReleases)
	if done.Refused, err = pgx.CollectRows(rows, pgx.RowToStructByName[ReasonCount]); err != nil {
		return done, fmt.Errorf("count what was not released: %w", err)
	}
	if err := tx.QueryRow(ctx, sqlReleasedConflicts).Scan(&done.Conflicts); err != nil {
		return done, fmt.Errorf("count released conflicts: %w", err)
	}
	if done.Carried, err = carried(ctx, tx, sqlCarryReleased, pgx.NamedArgs{"job": query.Job}); err != nil {
		return done, err
	}
	runs, _ := tx.Query(ctx, sqlReleasedDays, query.Job)
	days, err := pgx.CollectRows(runs, func(row pgx.CollectableRow) (d dayRun, err error) {
		return d, row.Scan(&d.first, &d.last, &d.days)
	})
	if err != nil {
		return done, fmt.Errorf("find the days of what is released: %w", err)
	}
	for _, d := range days {
		c := counting{Watermark: w, first: d.first, last: d.last}
		if _, _, err := c.count(ctx, tx); err != nil {
			return done, err
		}
		done.Days += d.days
	}
	return done, nil
}

// dayRun is days that follow one another.
type dayRun struct {
	first, last time.Time
	days        int64
}

// DropUsage gives events up that were set aside. Nothing is deleted; one that is named
// can be released later.
func DropUsage(ctx context.Context, tx pgx.Tx, query SetAsideQuery, person, why string) (done DecidedUsage, err error) {
	if _, err := takeCounted(ctx, tx, query.Job); err != nil {
		return done, err
	}
	query.Decided = false
	return decideUsage(ctx, tx, sqlStageDropped, query, "dropped", "drop", person, why)
}

func decideUsage(ctx context.Context, tx pgx.Tx, stage string, query SetAsideQuery, decided, action, person, why string) (done DecidedUsage, err error) {
	if _, err := tx.Exec(ctx, stage, query.args()); err != nil {
		return done, fmt.Errorf("choose events: %w", err)
	}
	tag, err := tx.Exec(ctx, sqlDecide, query.Job, decided, person, why)
	if err != nil {
		return done, fmt.Errorf("keep what was decided: %w", err)
	}
	done.Events = tag.RowsAffected()
	if _, err := tx.Exec(ctx, sqlUsageHistory, query.Job, action, person, why); err != nil {
		return done, fmt.Errorf("keep who decided: %w", err)
	}
	return done, nil
}

// ErrHalfCounted says that a meter is at work, or was broken off: what it took is
// counted in part. The next meter finishes it.
var ErrHalfCounted = errors.New("a meter is at work, or was broken off")

// takeCounted locks the watermark of usage that was counted before, and prepares the
// transaction for counting as its meter does.
func takeCounted(ctx context.Context, tx pgx.Tx, job Job) (w Watermark, err error) {
	if w, err = LockWatermark(ctx, tx, job); err != nil {
		return w, err
	}
	if err := w.SameCluster(); err != nil {
		return w, err
	}
	if w.Unfinished() {
		return w, fmt.Errorf("usage of %s: %w", job, ErrHalfCounted)
	}
	return w, prepareCounting(ctx, tx, w.TimeZone)
}
