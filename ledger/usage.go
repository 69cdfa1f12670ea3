package ledger

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MeterRange says which events a meter takes.
type MeterRange struct {
	MeterTerms
	// RewindTo counts the days of everything again that was received at this moment or later.
	// The zero time is none; with Beginning it is everything.
	RewindTo  time.Time
	Beginning bool
	// Large is from how many events on a range is not read by index; 0 is a default.
	Large int64
	// JudgeAll judges every event when the range is taken, also where it would be done while its
	// day is counted, so that all that would be set aside is known by then.
	JudgeAll bool
	// Progress, if not nil, is told how many rows of a phase are done.
	Progress func(phase string, done, total int64)
}

// Judged says what a meter found in the range that it took. What is judged while its day is
// counted is told by CountDays.
type Judged struct {
	// Repeats are copies of events that are counted already.
	Repeats int64
	// SetAside counts by reason what is not counted, repeats left out.
	SetAside []ReasonCount
	// Carried are late events, by the period they are of and the one that they go to.
	Carried []CarriedCount
	// Days is how many days are to be counted, of about so many events.
	Days, Events int64
	// Waiting says that a transaction which began before others still runs, so that what was
	// received after Since is left for the next meter.
	Waiting bool
}

// ReasonCount is how many events are set aside for a reason.
type ReasonCount struct {
	Reason string
	Count  int64
}

// CarriedCount is how many events of a period are carried to another.
type CarriedCount struct {
	FromPeriod, ToPeriod Period
	Count                int64
}

// bulkRows is how many events a range has at least to be read otherwise than by index.
const bulkRows = 50_000

// usageRange is a range under judgement.
type usageRange struct {
	MeterRange
	from, to uint64 // of transaction ids, half-open: what arrived since the last meter
	rows     int64  // about how many events it has, 0 for none
	all      int64  // about how many events there are
	// In a range that is most of the table, events between low and high are judged while their
	// days are counted, so that they are read once. Without one the two are nil.
	low, high *time.Time
}

func (r usageRange) bulk() bool { return r.rows >= cmp.Or(r.Large, bulkRows) }

// whole says that reading the whole table is less work than reading the range by index.
func (r usageRange) whole() bool { return r.bulk() && r.rows*3 > r.all && r.low == nil }

// large says that looking up each event of the range by its id is more work than reading
// the ids of the whole table.
func (r usageRange) large() bool { return r.bulk() && r.rows*20 > r.all }

// The oldest transaction that still runs is of the snapshot, not of pg_stat_activity,
// which hides those of others from ordinary roles.
const sqlTarget = `
SELECT pg_snapshot_xmin(pg_current_snapshot()), pg_current_xact_id()`

const sqlAddMark = `
INSERT INTO billing.usage_marks (job, xid, at) VALUES ($1, pg_current_xact_id(), $2)`

const sqlRangeSize = `
SELECT EXISTS (SELECT FROM billing.usage_events e WHERE e.xid >= $1 AND e.xid < $2),
    coalesce((SELECT max(e.arrival) FROM billing.usage_events e), 0)`

// TakeRange fixes what this meter counts: the events of all transactions that ended, from
// the watermark on. It sets aside what can't be counted, carries what is late, and keeps the days
// that are to be counted; CountDays counts them. The watermark must be locked by
// TakeWatermark in this transaction and must not be Unfinished. at is a moment before the
// transaction wrote anything.
func TakeRange(ctx context.Context, tx pgx.Tx, w Watermark, at time.Time, in MeterRange) (j Judged, err error) {
	r := usageRange{MeterRange: in, from: w.XID}
	var own uint64
	if err := tx.QueryRow(ctx, sqlTarget).Scan(&r.to, &own); err != nil {
		return j, fmt.Errorf("ask for the oldest transaction: %w", err)
	}
	if r.to < r.from {
		return j, &ClusterError{Job: w.Job, Why: "transaction ids are lower than when usage was counted the last time"}
	}
	j.Waiting = r.to < own
	if _, err := tx.Exec(ctx, sqlAddMark, w.Job, at); err != nil {
		return j, fmt.Errorf("keep the moment of this meter: %w", err)
	}
	if err := r.measure(ctx, tx, w); err != nil {
		return j, err
	}
	if r.rows > 0 {
		if err := r.judge(ctx, tx, &j); err != nil {
			return j, err
		}
	}
	first, err := r.rewound(ctx, tx)
	if err != nil {
		return j, err
	}
	if r.rows > 0 || first < r.from {
		if err := r.keepDays(ctx, tx, first, &j); err != nil {
			return j, err
		}
	}
	return j, r.setTarget(ctx, tx)
}

// What may be of a day that can be counted: from the first event's bound, and behind what is
// invoiced, to the bound of what arrives now. Outside of it there is little.
const sqlWindow = `
SELECT greatest(
        (SELECT e.received_at FROM billing.usage_events e ORDER BY e.arrival LIMIT 1) - $2::interval,
        (SELECT (to_date(max(i.period) || '-01', 'YYYY-MM-DD') + interval '1 month')::timestamptz FROM billing.usage_invoiced i WHERE i.job = $1)
    ) + interval '1 day',
    billing.now() + $3::interval`

// measure says about how large the range and the table are: numbers of arrivals are given out one
// after another, and few are lost.
func (r *usageRange) measure(ctx context.Context, tx pgx.Tx, w Watermark) error {
	if err := scan(ctx, tx, false, false); err != nil {
		return err
	}
	var there bool
	if err := tx.QueryRow(ctx, sqlRangeSize, r.from, r.to).Scan(&there, &r.all); err != nil {
		return fmt.Errorf("measure what arrived: %w", err)
	}
	if there {
		r.rows = max(1, r.all-w.Arrival)
	}
	if r.JudgeAll || !r.bulk() || r.rows*2 < r.all {
		return nil
	}
	if err := tx.QueryRow(ctx, sqlWindow, r.Job, r.Ancient, r.Future).Scan(&r.low, &r.high); err != nil {
		return fmt.Errorf("find what is judged with its day: %w", err)
	}
	return nil
}

// fineEvent is an event that can be counted, if its account and metric are known. What is fine is
// passed by comparisons that cost little.
const fineEvent = `(e.quantity >= 0 AND e.quantity < 1e18 AND (scale(e.quantity) <= 12 OR min_scale(e.quantity) <= 12)
    AND (e.occurred_at IS NULL OR e.occurred_at <= e.received_at + @future::interval AND e.occurred_at >= e.received_at - @ancient::interval))`

// The first reason of this order that holds is the one that is kept; repeats and conflicts
// were found before.
const judgeEvents = `
CREATE TEMPORARY TABLE usage_judged ON COMMIT DROP AS
SELECT e.arrival, CASE
    WHEN e.quantity::text IN ('NaN', 'Infinity', '-Infinity') THEN 'nan'
    WHEN abs(e.quantity) >= 1e18 OR min_scale(e.quantity) > 12 THEN 'huge'
    WHEN e.quantity < 0 THEN 'negative'
    WHEN e.occurred_at > e.received_at + @future::interval THEN 'future'
    WHEN e.occurred_at < e.received_at - @ancient::interval THEN 'ancient'
    WHEN a.account_id IS NULL THEN 'unknown_account'
    ELSE 'unknown_metric'
END AS reason
FROM billing.usage_events e
LEFT JOIN billing.accounts a ON a.account_id = e.account_id
LEFT JOIN billing.metrics m ON m.metric = e.metric
WHERE e.xid >= @from AND e.xid < @to AND NOT (` + fineEvent + ` AND a.account_id IS NOT NULL AND m.metric IS NOT NULL)`

const sqlJudge = judgeEvents + `
  AND (@low::timestamptz IS NULL OR coalesce(e.occurred_at, e.received_at) < @low::timestamptz OR coalesce(e.occurred_at, e.received_at) >= @high::timestamptz)`

const sqlSetAsideJudged = `
INSERT INTO billing.usage_set_aside (job, arrival, reason, since)
SELECT $1, j.arrival, j.reason, clock.t FROM pg_temp.usage_judged j, (SELECT billing.now() AS t) clock
ORDER BY j.arrival
ON CONFLICT ON CONSTRAINT usage_set_aside_pkey DO NOTHING`

const sqlCountReasons = `
SELECT s.reason, count(*) AS count FROM billing.usage_set_aside s JOIN billing.usage_events e ON e.arrival = s.arrival
WHERE s.job = $1 AND s.since >= $2 AND e.xid >= $3 AND e.xid < $4 GROUP BY s.reason ORDER BY s.reason`

// judge sets aside and carries.
func (r usageRange) judge(ctx context.Context, tx pgx.Tx, j *Judged) error {
	began, err := Now(ctx, tx)
	if err != nil {
		return err
	}
	if err := r.setAsideCopies(ctx, tx); err != nil {
		return err
	}
	if err := scan(ctx, tx, r.whole(), false); err != nil {
		return err
	}
	r.tell("judge", 0)
	args := pgx.NamedArgs{"from": r.from, "to": r.to, "future": r.Future, "ancient": r.Ancient, "low": r.low, "high": r.high}
	if err := setAside(ctx, tx, r.Job, sqlJudge, args); err != nil {
		return err
	}
	counts, err := countReasons(ctx, tx, r.Job, began, r.from, r.to)
	if err != nil {
		return err
	}
	for _, c := range counts {
		if c.Reason == ReasonRepeat {
			j.Repeats = c.Count
			continue
		}
		j.SetAside = append(j.SetAside, c)
	}
	j.Carried, err = r.carry(ctx, tx)
	return err
}

// setAside sets aside what a statement judges.
func setAside(ctx context.Context, tx pgx.Tx, job Job, judge string, args pgx.NamedArgs) error {
	if _, err := tx.Exec(ctx, judge, args); err != nil {
		return fmt.Errorf("judge what arrived: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlSetAsideJudged, job); err != nil {
		return fmt.Errorf("set events aside: %w", err)
	}
	return nil
}

// countReasons counts what was set aside of a range since a moment.
func countReasons(ctx context.Context, tx pgx.Tx, job Job, began time.Time, from, to uint64) ([]ReasonCount, error) {
	if err := scan(ctx, tx, false, false); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, sqlCountReasons, job, began, from, to)
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[ReasonCount])
	if err != nil {
		return nil, fmt.Errorf("count what is set aside: %w", err)
	}
	return counts, nil
}

const sqlSetAsideOfRange = `
SELECT s.reason, count(*) AS count FROM billing.usage_set_aside s JOIN billing.usage_events e ON e.arrival = s.arrival
WHERE s.job = $1 AND s.decided IS NULL AND s.reason <> 'repeat' AND e.xid >= $2 AND e.xid < $3 GROUP BY s.reason ORDER BY s.reason`

// SetAsideOfRange counts what is set aside by now of the range under work. A meter that
// goes on where another one was killed tells it, because the other one could not.
func SetAsideOfRange(ctx context.Context, tx pgx.Tx, w Watermark) ([]ReasonCount, error) {
	if err := scan(ctx, tx, false, false); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, sqlSetAsideOfRange, w.Job, w.XID, w.judged())
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByName[ReasonCount])
	if err != nil {
		return nil, fmt.Errorf("count what is set aside: %w", err)
	}
	return counts, nil
}

func (r usageRange) tell(phase string, done int64) {
	if r.Progress != nil {
		r.Progress(phase, done, r.rows)
	}
}

const sqlRewound = `
SELECT e.xid FROM billing.usage_events e WHERE e.received_at >= $1 AND e.xid < $2 ORDER BY e.xid LIMIT 1`

// rewound is the first transaction whose days are counted: the range's, or an earlier one.
// What is between was judged and carried when it was counted first, and only its days
// are counted again.
func (r usageRange) rewound(ctx context.Context, tx pgx.Tx) (first uint64, err error) {
	switch {
	case r.Beginning:
		return 0, nil
	case r.RewindTo.IsZero():
		return r.from, nil
	}
	err = tx.QueryRow(ctx, sqlRewound, r.RewindTo, r.from).Scan(&first)
	if isNone(err) {
		return r.from, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find what was received at %s: %w", r.RewindTo, err)
	}
	return first, nil
}

const sqlTouchedDays = `
CREATE TEMPORARY TABLE usage_touched ON COMMIT DROP AS
SELECT coalesce(e.occurred_at, e.received_at)::date AS day, count(*) AS events
FROM billing.usage_events e
WHERE e.xid >= @from AND e.xid < @to
  AND (@low::timestamptz IS NULL OR coalesce(e.occurred_at, e.received_at) < @low::timestamptz OR coalesce(e.occurred_at, e.received_at) >= @high::timestamptz)
  AND NOT EXISTS (SELECT FROM billing.usage_set_aside s WHERE s.job = @job AND s.arrival = e.arrival AND s.decided IS DISTINCT FROM 'released')
GROUP BY 1`

// The days of a window are found by jumping from one to the next in the index. The day before
// each is among them, because clocks that are put back at midnight bring it back.
const sqlTouchWindow = `
WITH RECURSIVE found AS (
    SELECT (SELECT min(coalesce(e.occurred_at, e.received_at)) FROM billing.usage_events e
        WHERE coalesce(e.occurred_at, e.received_at) >= $1 AND coalesce(e.occurred_at, e.received_at) < $2) AS at
    UNION ALL
    SELECT (SELECT min(coalesce(e.occurred_at, e.received_at)) FROM billing.usage_events e
        WHERE coalesce(e.occurred_at, e.received_at) >= greatest((f.at::date + 1)::timestamptz, f.at + interval '1 microsecond')
          AND coalesce(e.occurred_at, e.received_at) < $2)
    FROM found f WHERE f.at IS NOT NULL),
days AS (SELECT DISTINCT d.day FROM found f, LATERAL (VALUES (f.at::date), (f.at::date - 1)) d (day) WHERE f.at IS NOT NULL)
INSERT INTO pg_temp.usage_touched (day, events)
SELECT d.day, $3::bigint / (SELECT count(*) FROM days) + 1 FROM days d`

const sqlKeepDays = `
INSERT INTO billing.usage_due (job, day, events)
SELECT $1, t.day, sum(t.events) FROM pg_temp.usage_touched t
WHERE NOT EXISTS (SELECT FROM billing.usage_invoiced i WHERE i.job = $1 AND i.period = to_char(t.day, 'YYYY-MM'))
GROUP BY t.day ORDER BY t.day`

const sqlDue = `
SELECT count(*), coalesce(sum(d.events), 0)::bigint FROM billing.usage_due d WHERE d.job = $1`

// keepDays keeps the days that the range touches. Those of invoiced periods are frozen.
func (r usageRange) keepDays(ctx context.Context, tx pgx.Tx, first uint64, j *Judged) error {
	if first < r.from {
		r.low, r.high = nil, nil // days of what was judged before are found event by event
	}
	if err := scan(ctx, tx, r.whole() || first < r.from, false); err != nil {
		return err
	}
	r.tell("find days", 0)
	if _, err := tx.Exec(ctx, sqlTouchedDays, pgx.NamedArgs{"from": first, "to": r.to, "job": r.Job, "low": r.low, "high": r.high}); err != nil {
		return fmt.Errorf("find the days of what arrived: %w", err)
	}
	if r.low != nil {
		if _, err := tx.Exec(ctx, sqlTouchWindow, r.low, r.high, r.rows); err != nil {
			return fmt.Errorf("find days: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, sqlKeepDays, r.Job); err != nil {
		return fmt.Errorf("keep the days to count: %w", err)
	}
	if err := tx.QueryRow(ctx, sqlDue, r.Job).Scan(&j.Days, &j.Events); err != nil {
		return fmt.Errorf("count the days to count: %w", err)
	}
	return nil
}

const sqlSetTarget = `
UPDATE billing.job_watermarks w SET target_xid = $2, updated_at = billing.now(),
    target_arrival = greatest(w.arrival, coalesce((SELECT e.arrival FROM billing.usage_events e WHERE e.xid < $2 ORDER BY e.arrival DESC LIMIT 1), 0))
WHERE w.job = $1`

// setTarget puts the range under work. One without days is counted.
func (r usageRange) setTarget(ctx context.Context, tx pgx.Tx) error {
	if err := scan(ctx, tx, false, true); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlSetTarget, r.Job, r.to); err != nil {
		return fmt.Errorf("keep the range: %w", err)
	}
	return finishRange(ctx, tx, r.Job)
}
