package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Audit is one comparison of a period with Stripe, owned by one process at a time.
// What was read so far is kept, so that another process can go on with it.
type Audit struct {
	ID      int64
	Job     Job
	Period  Period
	Horizon time.Time
	// StartedAt is Postgres's time before the first page was asked for. What was
	// created at Stripe later is not read, and what changed in the ledger later is
	// not compared.
	StartedAt time.Time
	RunID     uuid.UUID
	Calls     int64 // also those of processes before
	// Resumed says that another process had begun it.
	Resumed bool
}

// AuditRequest asks for an audit.
type AuditRequest struct {
	Job     Job
	Period  Period
	Horizon time.Time
	RunID   uuid.UUID
	Owner   string // host and process, for people
	Lease   time.Duration
}

// MaxAuditAge is how long after an audit began another process may go on with it:
// what its first pages showed must not be too old to be compared.
const MaxAuditAge = 6 * time.Hour

const sqlOpenAudit = `
SELECT id, owner, lease_until > billing.now() AS leased, started_at > billing.now() - $3::interval AS fresh
FROM billing.audits WHERE job = $1 AND period = $2 AND finished_at IS NULL FOR UPDATE`

const sqlTakeAudit = `
UPDATE billing.audits SET run_id = $2, owner = $3, lease_until = billing.now() + $4::interval
WHERE id = $1 RETURNING id, job, period, horizon, started_at, run_id, calls, true AS resumed`

const sqlGiveUpAudit = `UPDATE billing.audits SET finished_at = billing.now() WHERE id = $1`

const sqlNewAudit = `
INSERT INTO billing.audits (job, period, horizon, run_id, owner, lease_until)
VALUES ($1, $2, $3, $4, $5, billing.now() + $6::interval)
ON CONFLICT (job, period) WHERE finished_at IS NULL DO NOTHING
RETURNING id, job, period, horizon, started_at, run_id, calls, false AS resumed`

// TakeAudit begins an audit, or goes on with one whose process is gone. While another
// process is at work on it the error is a *HeldError.
func TakeAudit(ctx context.Context, tx pgx.Tx, req AuditRequest) (a Audit, err error) {
	var open struct {
		ID            int64
		Owner         string
		Leased, Fresh bool
	}
	row := tx.QueryRow(ctx, sqlOpenAudit, req.Job, req.Period, MaxAuditAge)
	switch err := row.Scan(&open.ID, &open.Owner, &open.Leased, &open.Fresh); {
	case errors.Is(err, pgx.ErrNoRows):
		return newAudit(ctx, tx, req)
	case err != nil:
		return a, fmt.Errorf("look for an audit of %s: %w", req.Period, err)
	case open.Leased:
		return a, auditHeld(req, open.Owner)
	case open.Fresh:
		rows, _ := tx.Query(ctx, sqlTakeAudit, open.ID, req.RunID, req.Owner, req.Lease)
		if a, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Audit]); err != nil {
			return a, fmt.Errorf("go on with the audit of %s: %w", req.Period, err)
		}
		return a, nil
	}
	if _, err := tx.Exec(ctx, sqlGiveUpAudit, open.ID); err != nil {
		return a, fmt.Errorf("give up an old audit of %s: %w", req.Period, err)
	}
	if err := emptyNotebook(ctx, tx, open.ID); err != nil {
		return a, err
	}
	return newAudit(ctx, tx, req)
}

func newAudit(ctx context.Context, tx pgx.Tx, req AuditRequest) (Audit, error) {
	rows, _ := tx.Query(ctx, sqlNewAudit, req.Job, req.Period, req.Horizon, req.RunID, req.Owner, req.Lease)
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Audit])
	switch {
	case errors.Is(err, pgx.ErrNoRows): // at the same moment
		return a, auditHeld(req, "another process")
	case err != nil:
		return a, fmt.Errorf("begin an audit of %s: %w", req.Period, err)
	}
	return a, nil
}

func auditHeld(req AuditRequest, owner string) error {
	return fmt.Errorf("it is being audited: %w", &HeldError{Job: req.Job, Period: req.Period, Holder: Run{Owner: owner, State: RunClaimed}})
}

const sqlKeepAudit = `
UPDATE billing.audits SET lease_until = billing.now() + $3::interval, calls = calls + $4
WHERE id = $1 AND run_id = $2 AND finished_at IS NULL`

// Keep renews the audit's lease and counts calls to Stripe. It belongs into every
// transaction of the audit, at its end: ErrClaimLost means that another process goes
// on with it, and rolls back what this one wanted to write.
func (a Audit) Keep(ctx context.Context, tx pgx.Tx, lease time.Duration, calls int64) error {
	tag, err := tx.Exec(ctx, sqlKeepAudit, a.ID, a.RunID, lease, calls)
	if err != nil {
		return fmt.Errorf("keep the audit: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("the audit of %s: %w", a.Period, ErrClaimLost)
	}
	return nil
}

const sqlLeaveAudit = `UPDATE billing.audits SET lease_until = billing.now() WHERE id = $1 AND run_id = $2 AND finished_at IS NULL`

// Leave lets another process go on at once.
func (a Audit) Leave(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlLeaveAudit, a.ID, a.RunID); err != nil {
		return fmt.Errorf("leave the audit: %w", err)
	}
	return nil
}

// AuditList is a part of one of Stripe's lists, and how far it was read.
type AuditList struct {
	Part          int
	List          string // payments, refunds, disputes
	StripeAccount string
	CreatedFrom   time.Time
	CreatedTo     time.Time
	After         string // the id that was read last
	Pages         int64
	Objects       int64
	Done          bool
}

const sqlAddAuditList = `
INSERT INTO billing.audit_lists (audit, part, list, stripe_account, created_from, created_to) VALUES ($1, $2, $3, $4, $5, $6)`

const sqlAuditLists = `
SELECT part, list, stripe_account, created_from, created_to, after, pages, objects, done
FROM billing.audit_lists WHERE audit = $1 ORDER BY part`

// AddLists writes down what there is to read.
func (a Audit) AddLists(ctx context.Context, tx pgx.Tx, lists []AuditList) error {
	for _, l := range lists {
		if _, err := tx.Exec(ctx, sqlAddAuditList, a.ID, l.Part, l.List, l.StripeAccount, l.CreatedFrom, l.CreatedTo); err != nil {
			return fmt.Errorf("plan the audit: %w", err)
		}
	}
	return nil
}

// Lists reads what there is to read, and how far it was; nothing before AddLists.
func (a Audit) Lists(ctx context.Context, q Querier) ([]AuditList, error) {
	rows, _ := q.Query(ctx, sqlAuditLists, a.ID)
	lists, err := pgx.CollectRows(rows, pgx.RowToStructByName[AuditList])
	if err != nil {
		return nil, fmt.Errorf("read the plan of the audit: %w", err)
	}
	return lists, nil
}

const sqlAuditRead = `
UPDATE billing.audit_lists SET after = $3, pages = pages + 1, objects = objects + $4, done = $5 WHERE audit = $1 AND part = $2`

// Read notes that a page was read, with what was written of it in the same
// transaction.
func (a Audit) Read(ctx context.Context, tx pgx.Tx, part int, after string, objects int, last bool) error {
	tag, err := tx.Exec(ctx, sqlAuditRead, a.ID, part, after, objects, last)
	if err != nil {
		return fmt.Errorf("note a page: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errNotebookGone
	}
	return nil
}

// errNotebookGone is a claim lost: Postgres crashed, or another server took its place,
// and emptied the notebook. The next audit reads anew.
var errNotebookGone = fmt.Errorf("the audit's notebook was emptied, as by a crash of Postgres: %w", ErrClaimLost)

const sqlListsDone = `SELECT count(*) FROM billing.audit_lists WHERE audit = $1 AND done`

// MustBeWhole wants every part of the plan to be in the notebook, read to its end, at
// the moment at which something is concluded from it: its tables are emptied together.
func (a Audit) MustBeWhole(ctx context.Context, tx pgx.Tx, parts int) error {
	var done int
	if err := tx.QueryRow(ctx, sqlListsDone, a.ID).Scan(&done); err != nil {
		return fmt.Errorf("look at the audit's notebook: %w", err)
	}
	if done != parts {
		return errNotebookGone
	}
	return nil
}

const sqlFinishAudit = `
UPDATE billing.audits SET finished_at = billing.now(), complete = $4, result = $3 WHERE id = $1 AND run_id = $2 AND finished_at IS NULL`

// Finish ends an audit, keeps its result and empties its notebook. complete says that
// its findings are the ledger's.
func (a Audit) Finish(ctx context.Context, tx pgx.Tx, complete bool, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write the audit's result: %w", err)
	}
	tag, err := tx.Exec(ctx, sqlFinishAudit, a.ID, a.RunID, text, complete)
	switch {
	case err != nil:
		return fmt.Errorf("finish the audit: %w", err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("the audit of %s: %w", a.Period, ErrClaimLost)
	}
	return emptyNotebook(ctx, tx, a.ID)
}

const (
	sqlEmptyAuditLists       = `DELETE FROM billing.audit_lists WHERE audit = $1`
	sqlEmptyAuditPayments    = `DELETE FROM billing.audit_payments WHERE audit = $1`
	sqlEmptyAuditReturns     = `DELETE FROM billing.audit_returns WHERE audit = $1`
	sqlEmptyAuditDifferences = `DELETE FROM billing.audit_differences WHERE audit = $1`
)

func emptyNotebook(ctx context.Context, tx pgx.Tx, id int64) error {
	for _, sql := range []string{sqlEmptyAuditLists, sqlEmptyAuditPayments, sqlEmptyAuditReturns, sqlEmptyAuditDifferences} {
		if _, err := tx.Exec(ctx, sql, id); err != nil {
			return fmt.Errorf("empty the audit's notebook: %w", err)
		}
	}
	return nil
}
