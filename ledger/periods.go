package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PeriodLine is where one period stands, in a line.
type PeriodLine struct {
	Period Period
	// State is the run's, empty if the period was never run; Live says that a
	// run is at work.
	State   RunState
	Live    bool
	Attempt int
	Owner   string
	Closed  bool
	// FindingsToAct are open and need a person.
	FindingsToAct int64
	// Charges counts the period's charges by state.
	Charges map[ChargeState]int64 `db:"-"`
}

// A ledger of years has millions of rows and a few dozen periods: each is found
// by leaping to the next lower one in three indexes.
const sqlPeriods = `
WITH RECURSIVE p(period, n) AS (
    SELECT '9999-99'::text COLLATE "C", 0
    UNION ALL
    SELECT greatest(
        (SELECT i.period FROM billing.invoices i WHERE i.job = $1 AND i.period < p.period ORDER BY i.period DESC LIMIT 1),
        (SELECT c.period FROM billing.charges c WHERE c.job = $1 AND c.period < p.period ORDER BY c.period DESC LIMIT 1),
        (SELECT r.period FROM billing.job_runs r WHERE r.job = $1 AND r.period < p.period ORDER BY r.period DESC LIMIT 1)), p.n + 1
    FROM p WHERE p.period IS NOT NULL AND p.n < $2)
SELECT p.period, coalesce(r.state, '') AS state, coalesce(r.attempt, 0) AS attempt, coalesce(r.owner, '') AS owner,
    coalesce(r.state = 'claimed' AND least(r.heartbeat_at + r.lease, r.deadline_at) >= billing.now(), false) AS live,
    c.period IS NOT NULL AS closed,
    (SELECT count(*) FROM billing.findings f
     WHERE f.job = $1 AND f.period = p.period AND f.severity = 'act' AND f.resolved_at IS NULL) AS findings_to_act
FROM p
LEFT JOIN billing.job_runs r ON r.job = $1 AND r.period = p.period
LEFT JOIN billing.period_closes c ON c.job = $1 AND c.period = p.period
WHERE p.n > 0 AND p.period IS NOT NULL
ORDER BY p.period DESC`

const sqlCountStates = `
SELECT period, state, count(*) FROM billing.charges WHERE job = $1 AND period = ANY ($2) GROUP BY period, state`

// ReadPeriods reads where the last periods stand, the latest first. It counts
// their charges, so limit it.
func ReadPeriods(ctx context.Context, q Querier, job Job, limit int) ([]PeriodLine, error) {
	rows, _ := q.Query(ctx, sqlPeriods, job, limit)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[PeriodLine])
	if err != nil {
		return nil, fmt.Errorf("read the last periods: %w", err)
	}
	names := make([]string, len(list))
	at := make(map[Period]int, len(list))
	for i := range list {
		names[i], at[list[i].Period] = string(list[i].Period), i
		list[i].Charges = map[ChargeState]int64{}
	}
	rows, _ = q.Query(ctx, sqlCountStates, job, names)
	var period Period
	var state ChargeState
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&period, &state, &n}, func() error {
		list[at[period]].Charges[state] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the charges of the last periods: %w", err)
	}
	return list, nil
}

const sqlKnowsPeriod = `
SELECT EXISTS (SELECT FROM billing.invoices i WHERE i.job = $1 AND i.period = $2)
    OR EXISTS (SELECT FROM billing.charges c WHERE c.job = $1 AND c.period = $2)
    OR EXISTS (SELECT FROM billing.job_runs r WHERE r.job = $1 AND r.period = $2)`

// KnowsPeriod reports whether a period has invoices or charges, or was run.
func KnowsPeriod(ctx context.Context, q Querier, job Job, period Period) (known bool, err error) {
	if err := q.QueryRow(ctx, sqlKnowsPeriod, job, period).Scan(&known); err != nil {
		return false, fmt.Errorf("look for %s: %w", period, err)
	}
	return known, nil
}

const sqlPeriodEvents = `
SELECT at, action, person, why FROM billing.period_events WHERE job = $1 AND period = $2 ORDER BY id`

// PeriodEvent is what a person did to a whole period.
type PeriodEvent struct {
	At     time.Time
	Action string // close or reopen
	Person string
	Why    string
}

// ReadPeriodEvents reads what people did to a period, the first event first.
func ReadPeriodEvents(ctx context.Context, q Querier, job Job, period Period) ([]PeriodEvent, error) {
	rows, _ := q.Query(ctx, sqlPeriodEvents, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[PeriodEvent])
	if err != nil {
		return nil, fmt.Errorf("read what was done to %s: %w", period, err)
	}
	return list, nil
}
