package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// RunState says where the work on a period stands.
type RunState string

const (
	// RunClaimed is owned by a run, as long as its heartbeat is fresh.
	RunClaimed RunState = "claimed"
	// RunDone is finished and is never claimed again without reopen.
	RunDone RunState = "done"
	// RunFailed ended with work left; the next start may claim it at once.
	RunFailed RunState = "failed"
)

// Run is the claim's row: who works or worked on a period.
type Run struct {
	Job         Job
	Period      Period
	State       RunState
	Attempt     int
	RunID       uuid.UUID
	Owner       string
	ClaimedAt   time.Time
	HeartbeatAt time.Time
	// StaleAt is when the claim may be taken over: no heartbeat for the lease,
	// or the deadline.
	StaleAt    time.Time
	FinishedAt *time.Time
	Early      bool
	TimeZone   string
	StartsAt   time.Time
	EndsAt     time.Time
	// Outbox tells what this run changes; of a row that was only read it is nil.
	Outbox *Outbox `db:"-"`
}

// Horizon is the earliest moment at which a payment for the period can exist: a
// day before its start, because it may have been charged early. That --early was
// used is not asked: a restored ledger may have forgotten it.
func (r Run) Horizon() time.Time { return HorizonOf(r.StartsAt) }

// HorizonOf is the horizon of a period that starts at a moment. Before it, the
// period can't be charged at all.
func HorizonOf(startsAt time.Time) time.Time { return startsAt.AddDate(0, 0, -1) }

// ClaimRequest asks for a period.
type ClaimRequest struct {
	Job     Job
	Period  Period
	RunID   uuid.UUID
	Owner   string // host and process, for people
	Build   string
	Lease   time.Duration // without a heartbeat for this long the claim is stale
	Timeout time.Duration // after this the claim is stale whatever the heartbeat says
	Early   bool
	// Location is where the period's bounds lie; only the first run's counts.
	Location *time.Location
	// Outbox is the run's.
	Outbox *Outbox
}

// claimLockTimeout bounds the wait for a claim whose row a long transaction
// holds: recording a large month does, and so do imports and `billing invoice`. To the one who asks that is busy.
const claimLockTimeout = `SET LOCAL lock_timeout TO '2s'`

const sqlTakeClaim = `
INSERT INTO billing.job_runs AS r (job, period, state, attempt, run_id, owner, lease, claimed_at, heartbeat_at,
    deadline_at, finished_at, early, time_zone, period_starts_at, period_ends_at)
SELECT @job, @period, 'claimed', 1, @run_id, @owner, @lease, t, t, t + @timeout::interval, NULL, @early, @time_zone, @starts_at, @ends_at
FROM (SELECT billing.now() AS t) clock
ON CONFLICT (job, period) DO UPDATE
SET state = 'claimed', attempt = r.attempt + 1, run_id = excluded.run_id, owner = excluded.owner, lease = excluded.lease,
    claimed_at = billing.now(), heartbeat_at = billing.now(), deadline_at = billing.now() + @timeout::interval,
    finished_at = NULL, early = r.early OR excluded.early
WHERE r.state = 'failed'
   OR (r.state = 'claimed' AND least(r.heartbeat_at + r.lease, r.deadline_at) < billing.now())
RETURNING job, period, state, attempt, run_id, owner, claimed_at, heartbeat_at,
    least(heartbeat_at + lease, deadline_at) AS stale_at, finished_at, early, time_zone,
    period_starts_at AS starts_at, period_ends_at AS ends_at`

const sqlEndLostAttempts = `
UPDATE billing.job_run_attempts SET result = 'taken_over', finished_at = billing.now()
WHERE job = $1 AND period = $2 AND attempt < $3 AND result = 'claimed'`

const sqlAddAttempt = `
INSERT INTO billing.job_run_attempts (job, period, attempt, run_id, owner, build, claimed_at)
VALUES (@job, @period, @attempt, @run_id, @owner, @build, @claimed_at)`

// TakeClaim makes this run the owner of the period if it is new, failed or
// stale. Otherwise it returns a *HeldError that shows the holder; a period that
// is done is held for good.
func TakeClaim(ctx context.Context, tx pgx.Tx, req ClaimRequest) (Run, error) {
	if _, err := tx.Exec(ctx, claimLockTimeout); err != nil {
		return Run{}, fmt.Errorf("claim period %s: %w", req.Period, err)
	}
	if _, err := tx.Exec(ctx, sqlTakePeriodLock, req.Job, req.Period); err != nil {
		return Run{}, fmt.Errorf("claim period %s: %w", req.Period, err)
	}
	rows, _ := tx.Query(ctx, sqlTakeClaim, pgx.NamedArgs{
		"job": req.Job, "period": req.Period, "run_id": req.RunID, "owner": req.Owner,
		"lease": req.Lease, "timeout": req.Timeout, "early": req.Early, "time_zone": req.Location.String(),
		"starts_at": req.Period.Start(req.Location), "ends_at": req.Period.End(req.Location),
	})
	run, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Run])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		holder, err := ReadRun(ctx, tx, req.Job, req.Period)
		if err != nil {
			return Run{}, err
		}
		return Run{}, &HeldError{Job: req.Job, Period: req.Period, Holder: holder}
	case err != nil:
		return Run{}, fmt.Errorf("claim period %s: %w", req.Period, err)
	}
	if _, err := tx.Exec(ctx, sqlEndLostAttempts, run.Job, run.Period, run.Attempt); err != nil {
		return Run{}, fmt.Errorf("end the attempts before %d: %w", run.Attempt, err)
	}
	_, err = tx.Exec(ctx, sqlAddAttempt, pgx.NamedArgs{
		"job": run.Job, "period": run.Period, "attempt": run.Attempt, "run_id": run.RunID,
		"owner": run.Owner, "build": req.Build, "claimed_at": run.ClaimedAt,
	})
	if err != nil {
		return Run{}, fmt.Errorf("add attempt %d: %w", run.Attempt, err)
	}
	run.Outbox = req.Outbox
	return run, nil
}

// IsLockTimeout reports that a row was held by another transaction for longer
// than the caller would wait.
func IsLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

const sqlReadRun = `
SELECT job, period, state, attempt, run_id, owner, claimed_at, heartbeat_at,
       least(heartbeat_at + lease, deadline_at) AS stale_at, finished_at, early, time_zone,
       period_starts_at AS starts_at, period_ends_at AS ends_at
FROM billing.job_runs WHERE job = $1 AND period = $2`

// ReadRun reads the claim of a period, ErrNotFound if nobody ever claimed it.
func ReadRun(ctx context.Context, q Querier, job Job, period Period) (Run, error) {
	rows, _ := q.Query(ctx, sqlReadRun, job, period)
	run, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Run])
	if errors.Is(err, pgx.ErrNoRows) {
		return run, fmt.Errorf("run of period %s: %w", period, ErrNotFound)
	}
	if err != nil {
		return run, fmt.Errorf("read the run of period %s: %w", period, err)
	}
	return run, nil
}

const sqlHeartbeat = `
UPDATE billing.job_runs SET heartbeat_at = billing.now()
WHERE job = $1 AND period = $2 AND run_id = $3 AND attempt = $4 AND state = 'claimed' AND deadline_at > billing.now()`

// Heartbeat says that the run is alive and getting on. ErrClaimLost means that
// it was taken over or is past its deadline.
func (r Run) Heartbeat(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, sqlHeartbeat, r.Job, r.Period, r.RunID, r.Attempt)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return nil
}

const sqlLockRun = `
SELECT FROM billing.job_runs
WHERE job = $1 AND period = $2 AND run_id = $3 AND attempt = $4 AND state = 'claimed' AND deadline_at > billing.now()
FOR UPDATE`

// Lock holds the claim's row for the rest of the transaction, so that nobody
// takes over, finishes or reopens beside it. ErrClaimLost if it is not ours.
func (r Run) Lock(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, sqlLockRun, r.Job, r.Period, r.RunID, r.Attempt)
	if err != nil {
		return fmt.Errorf("lock the claim of %s: %w", r.Period, err)
	}
	if tag.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return nil
}

// Outcome is how an attempt ended, for its row in the history.
type Outcome struct {
	ExitCode                         int
	Recorded, Sent, Settled, Renewed int64
}

const sqlFinish = `
UPDATE billing.job_runs SET state = $5, finished_at = billing.now()
WHERE job = $1 AND period = $2 AND run_id = $3 AND attempt = $4 AND state = 'claimed'`

const sqlEndAttempt = `
UPDATE billing.job_run_attempts
SET result = @result, finished_at = billing.now(), exit_code = @exit_code,
    recorded = @recorded, sent = @sent, settled = @settled, renewed = @renewed
WHERE run_id = @run_id AND result = 'claimed'`

// Finish gives the claim up as done or failed. ErrClaimLost if another run owns
// the period by now: its finish matches no row.
func (r Run) Finish(ctx context.Context, tx pgx.Tx, state RunState, o Outcome) error {
	tag, err := tx.Exec(ctx, sqlFinish, r.Job, r.Period, r.RunID, r.Attempt, state)
	if err != nil {
		return fmt.Errorf("finish period %s: %w", r.Period, err)
	}
	if tag.RowsAffected() == 0 {
		return ErrClaimLost
	}
	_, err = tx.Exec(ctx, sqlEndAttempt, pgx.NamedArgs{
		"result": state, "run_id": r.RunID, "exit_code": o.ExitCode,
		"recorded": o.Recorded, "sent": o.Sent, "settled": o.Settled, "renewed": o.Renewed,
	})
	if err != nil {
		return fmt.Errorf("end attempt %d: %w", r.Attempt, err)
	}
	if state == RunDone {
		return r.Outbox.tellDone(ctx, tx, r.Job, r.Period)
	}
	return nil
}

const sqlReopen = `
UPDATE billing.job_runs SET state = 'failed' WHERE job = $1 AND period = $2 AND state = 'done'`

const sqlPeriodEvent = `
INSERT INTO billing.period_events (job, period, action, person, why) VALUES ($1, $2, $3, $4, $5)`

// Reopen lets a done period be run again. It reports false if the period is not
// done; ErrNotFound if it was never run.
func Reopen(ctx context.Context, tx pgx.Tx, job Job, period Period, person, why string) (bool, error) {
	if _, err := ReadRun(ctx, tx, job, period); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, sqlReopen, job, period)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	if _, err := tx.Exec(ctx, sqlPeriodEvent, job, period, "reopen", person, why); err != nil {
		return false, fmt.Errorf("record who reopened %s: %w", period, err)
	}
	return true, nil
}

// Rebuild records that a person brings a period up to what Stripe shows, and lets
// it be run again if it is done. Messages that wait may have been sent by the ledger that
// was lost: it returns how many were left to a person.
func Rebuild(ctx context.Context, tx pgx.Tx, job Job, period Period, person, why string) (unknown int64, err error) {
	if _, err := tx.Exec(ctx, sqlReopen, job, period); err != nil {
		return 0, fmt.Errorf("reopen %s: %w", period, err)
	}
	if _, err := tx.Exec(ctx, sqlPeriodEvent, job, period, "rebuild", person, why); err != nil {
		return 0, fmt.Errorf("record who rebuilt %s: %w", period, err)
	}
	return endForgotten(ctx, tx, job)
}
