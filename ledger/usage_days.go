package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// CountedDays says what one step of counting did.
type CountedDays struct {
	// Days is how many days were counted, and Events how many events of the range are in them.
	Days, Events int64
	// SetAside counts by reason what was judged with these days and is not counted.
	SetAside []ReasonCount
	// Done and Left are about how many events of the range were in these days, and are in
	// those that are still to be counted.
	Done, Left int64
}

// isNone reports that a query for one row found none.
func isNone(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Days that follow one another are counted together, up to so many events of the range.
const sqlNextDays = `
SELECT min(r.day), max(r.day), count(*), sum(r.events)::bigint, r.left
FROM (SELECT d.day, d.events, d.day - row_number() OVER (ORDER BY d.day)::integer AS run, min(d.day) OVER () - 1 AS first_run,
        sum(d.events) OVER (ORDER BY d.day) - d.events AS before, sum(d.events) OVER ()::bigint AS left
    FROM billing.usage_due d WHERE d.job = $1) r
WHERE r.run = r.first_run AND (r.before = 0 OR r.before + r.events <= $2)
GROUP BY r.left`

const sqlDoneDays = `
DELETE FROM billing.usage_due d WHERE d.job = $1 AND d.day BETWEEN $2 AND $3`

// CountDays counts the next days of the range under work, of about so many events at a
// time and one day at least, and moves the watermark once none is left. The watermark must be
// locked by TakeWatermark in this transaction.
func CountDays(ctx context.Context, tx pgx.Tx, w Watermark, terms MeterTerms, most int64) (done CountedDays, err error) {
	c := counting{Watermark: w, terms: terms}
	var left int64
	err = tx.QueryRow(ctx, sqlNextDays, w.Job, most).Scan(&c.first, &c.last, &done.Days, &done.Done, &left)
	if isNone(err) {
		return done, finishRange(ctx, tx, w.Job)
	}
	if err != nil {
		return done, fmt.Errorf("choose days to count: %w", err)
	}
	done.Left = left - done.Done
	all, err := countEvents(ctx, tx)
	if err != nil {
		return done, err
	}
	c.bulk = done.Done >= bulkRows && done.Done*3 > all
	if done.Events, done.SetAside, err = c.count(ctx, tx); err != nil {
		return done, err
	}
	if _, err := tx.Exec(ctx, sqlDoneDays, w.Job, c.first, c.last); err != nil {
		return done, fmt.Errorf("keep which days are counted: %w", err)
	}
	return done, finishRange(ctx, tx, w.Job)
}

const sqlCountEvents = `
SELECT coalesce(max(e.arrival), 0) FROM billing.usage_events e`

// countEvents says about how many events there are.
func countEvents(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	if err := tx.QueryRow(ctx, sqlCountEvents).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n, nil
}

// Days are not quite stretches of time: clocks that are put back at midnight bring
// back the day before. So a little more is read than the days' own hours, and the date decides.
const ofDays = `coalesce(e.occurred_at, e.received_at) >= @first::date::timestamptz - interval '2 hours'
  AND coalesce(e.occurred_at, e.received_at) < (@last::date + 1)::timestamptz + interval '2 hours'`

// An event that was judged before is fine: what is not is set aside. What is carried is of
// frozen days alone, which are not counted.
const countEventsOfDays = `
CREATE TEMPORARY TABLE usage_counted ON COMMIT DROP AS
SELECT e.account_id, e.metric, coalesce(e.occurred_at, e.received_at)::date AS day, e.xid < @from OR ` + fineEvent + ` AS fine,
    sum(e.quantity) AS quantity, count(*) AS events, count(*) FILTER (WHERE e.xid >= @from) AS new
FROM billing.usage_events e
WHERE ` + ofDays + ` AND e.xid < @to`

const perAccount = `
GROUP BY 1, 2, 3, 4`

const sqlCountDays = countEventsOfDays + `
  AND NOT EXISTS (SELECT FROM billing.usage_set_aside s WHERE s.job = @job AND s.arrival = e.arrival AND s.decided IS DISTINCT FROM 'released')` + perAccount

// Where nothing is set aside nothing is looked up for each event.
const sqlCountAll = countEventsOfDays + perAccount

const sqlAnySetAside = `
SELECT EXISTS (SELECT FROM billing.usage_set_aside s WHERE s.job = $1)`

const sqlAnyDoubtful = `
SELECT EXISTS (SELECT FROM pg_temp.usage_counted c
    WHERE c.day BETWEEN $1 AND $2 AND c.new > 0 AND (NOT c.fine
        OR NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = c.account_id)
        OR NOT EXISTS (SELECT FROM billing.metrics m WHERE m.metric = c.metric)))`

const sqlJudgeDays = judgeEvents + ` AND ` + ofDays + `
  AND coalesce(e.occurred_at, e.received_at)::date BETWEEN @first AND @last
  AND NOT EXISTS (SELECT FROM billing.usage_set_aside s WHERE s.job = @job AND s.arrival = e.arrival)`

const sqlDropCounted = `
DROP TABLE IF EXISTS pg_temp.usage_counted, pg_temp.usage_judged`

const sqlForgetDays = `
DELETE FROM billing.daily_usage d
WHERE d.job = $1 AND d.day BETWEEN $2 AND $3
  AND NOT EXISTS (SELECT FROM pg_temp.usage_counted c WHERE c.account_id = d.account_id AND c.metric = d.metric AND c.day = d.day)`

const sqlSetDays = `
INSERT INTO billing.daily_usage AS d (job, account_id, metric, day, quantity, events)
SELECT $1, c.account_id, c.metric, c.day, trim_scale(c.quantity), c.events FROM pg_temp.usage_counted c
WHERE c.day BETWEEN $2 AND $3
ORDER BY c.account_id, c.metric, c.day
ON CONFLICT ON CONSTRAINT daily_usage_pkey DO UPDATE SET quantity = excluded.quantity, events = excluded.events
WHERE (d.quantity, d.events) IS DISTINCT FROM (excluded.quantity, excluded.events)`

const sqlNewlyCounted = `
SELECT coalesce(sum(c.new), 0)::bigint FROM pg_temp.usage_counted c WHERE c.day BETWEEN $1 AND $2`

// counting is whole days that are counted anew, the last one included, and overwrite what
// stands there.
type counting struct {
	Watermark
	terms       MeterTerms
	first, last time.Time
	bulk        bool // they hold a large part of all events
}

func (c counting) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"first": c.first, "last": c.last, "from": c.XID, "to": c.judged(), "job": c.Job, "future": c.terms.Future, "ancient": c.terms.Ancient,
	}
}

// count counts, and before that sets aside what is not fine and was not judged when the range
// was taken. It returns how many events of the range are in the days now.
func (c counting) count(ctx context.Context, tx pgx.Tx) (events int64, aside []ReasonCount, err error) {
	doubtful, err := c.read(ctx, tx)
	if err != nil {
		return 0, nil, err
	}
	if doubtful {
		began, err := Now(ctx, tx)
		if err != nil {
			return 0, nil, err
		}
		if err := setAside(ctx, tx, c.Job, sqlJudgeDays, c.args()); err != nil {
			return 0, nil, err
		}
		if aside, err = countReasons(ctx, tx, c.Job, began, c.XID, c.judged()); err != nil {
			return 0, nil, err
		}
		if doubtful, err = c.read(ctx, tx); err != nil {
			return 0, nil, err
		}
		if doubtful {
			return 0, nil, fmt.Errorf("count %s: an event that can't be counted was not set aside", c.first.Format(time.DateOnly))
		}
	}
	for _, sql := range []string{sqlForgetDays, sqlSetDays} {
		if _, err := tx.Exec(ctx, sql, c.Job, c.first, c.last); err != nil {
			return 0, nil, fmt.Errorf("write daily usage: %w", err)
		}
	}
	if err := tx.QueryRow(ctx, sqlNewlyCounted, c.first, c.last).Scan(&events); err != nil {
		return 0, nil, fmt.Errorf("count what was counted: %w", err)
	}
	return events, aside, nil
}

// read adds up the days, and says whether something in them is to be judged first.
func (c counting) read(ctx context.Context, tx pgx.Tx) (doubtful bool, err error) {
	var aside bool
	if err := tx.QueryRow(ctx, sqlAnySetAside, c.Job).Scan(&aside); err != nil {
		return false, fmt.Errorf("look for what is set aside: %w", err)
	}
	if err := scan(ctx, tx, c.bulk, false); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, sqlDropCounted); err != nil {
		return false, fmt.Errorf("drop staging for days: %w", err)
	}
	if _, err := tx.Exec(ctx, map[bool]string{true: sqlCountDays, false: sqlCountAll}[aside], c.args()); err != nil {
		return false, fmt.Errorf("count %s to %s: %w", c.first.Format(time.DateOnly), c.last.Format(time.DateOnly), err)
	}
	if err := lookUp(ctx, tx); err != nil {
		return false, err
	}
	if err := tx.QueryRow(ctx, sqlAnyDoubtful, c.first, c.last).Scan(&doubtful); err != nil {
		return false, fmt.Errorf("look for what can't be counted: %w", err)
	}
	return doubtful, nil
}

// The latest moment of which it is known by now that everything before it is counted.
const sqlFinishRange = `
UPDATE billing.job_watermarks w SET xid = w.target_xid, arrival = w.target_arrival, target_xid = NULL, target_arrival = NULL, updated_at = billing.now(),
    through = greatest(w.through, (SELECT max(m.at) FROM billing.usage_marks m WHERE m.job = w.job AND m.xid <= w.target_xid))
WHERE w.job = $1 AND w.target_xid IS NOT NULL AND NOT EXISTS (SELECT FROM billing.usage_due d WHERE d.job = w.job)`

const sqlForgetMarks = `
DELETE FROM billing.usage_marks m USING billing.job_watermarks w WHERE w.job = $1 AND m.job = w.job AND m.xid <= w.xid`

// finishRange moves the watermark to the end of its range if no day is left to count.
func finishRange(ctx context.Context, tx pgx.Tx, job Job) error {
	moved, err := tx.Exec(ctx, sqlFinishRange, job)
	if err == nil && moved.RowsAffected() > 0 {
		_, err = tx.Exec(ctx, sqlForgetMarks, job)
	}
	if err != nil {
		return fmt.Errorf("move the watermark of %s: %w", job, err)
	}
	return nil
}
