package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// AuditWork is one comparison of a whole period with Stripe, both ways.
type AuditWork struct {
	Period ledger.Period
	// Horizon is the earliest moment at which a payment for it can exist.
	Horizon time.Time
	// Owner is the process, for people; Lease is how long it may be silent before
	// another one goes on.
	Owner string
	Lease time.Duration
	// MaxRefunded and MaxDisputed are the shares of the payments, 0 to 1, beyond
	// which those that were refunded or disputed need a person; 0 is no limit.
	MaxRefunded, MaxDisputed float64
}

// AuditReport is what an audit came to.
type AuditReport struct {
	// Compared are the charges that were compared, Moving those that were not,
	// because a run may be sending them or they changed meanwhile.
	Compared, Moving int64
	// Payments, Refunds and Disputes are those of the period that Stripe showed.
	Payments, Refunds, Disputes int64
	// Pages were read, Calls made, by all processes of this audit.
	Pages, Calls int64
	// Resumed says that an earlier process had begun it.
	Resumed bool
	// Differences need a person, Notes are for the record, by their kinds.
	Differences, Notes []ledger.DifferenceCount
	// Resolved counts the differences that somebody resolved before, and that look as
	// they did then: no finding is open about them.
	Resolved int64
	// Listed are the others, at most 1,000, of a dry run: it makes no findings of them,
	// and those that have one already carry its ID.
	Listed []ledger.Finding `json:"-"`
	// Opened and Closed findings are new, or no longer true.
	Opened, Closed int64
	// Settled charges were found to be paid.
	Settled int64
	Sums    []AuditSum
}

// Count adds up the differences that need a person.
func (r *AuditReport) Count() (n int64) {
	for _, d := range r.Differences {
		n += d.Count
	}
	return n
}

// auditor is one audit under way.
type auditor struct {
	r     *Reconciler
	w     AuditWork
	audit ledger.Audit
	judge judge

	mu    sync.Mutex // guards pages
	pages int64
	parts int   // of the plan
	total int64 // about how many there are

	report AuditReport
	sums   sums
	// batch waits to be written.
	batch []ledger.Finding
	late  []verdict
	since int64 // charges since the lease was renewed
	// confirmed counts payments that were looked for by their id.
	confirmed       int
	paid, given     int64 // payments of charges, and those of them that were refunded
	disputedCharges int64
}

// Audit reads everything that Stripe has of a period and compares it with the ledger.
// Findings are opened and closed only when every page was read; what was read before
// an error, or a kill, is kept for the next one. Another process at work on the same
// audit is a *ledger.HeldError. An Options.DryRun changes nothing but the notebook.
func (r *Reconciler) Audit(ctx context.Context, w AuditWork) (AuditReport, error) {
	a := &auditor{r: r, w: w, judge: judge{job: r.opts.Job, period: w.Period, livemode: r.opts.Livemode}, sums: sums{}}
	err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		a.audit, err = ledger.TakeAudit(ctx, tx, ledger.AuditRequest{
			Job: r.opts.Job, Period: w.Period, Horizon: w.Horizon, RunID: uuid.Must(uuid.NewV7()), Owner: w.Owner, Lease: w.Lease,
		})
		return err
	})
	if err != nil {
		return a.report, err
	}
	a.report.Resumed = a.audit.Resumed
	if err := a.run(ctx); err != nil {
		// The next one need not wait for the lease.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = ledger.InTx(clean, r.pool, func(tx pgx.Tx) error { return a.audit.Leave(clean, tx) })
		return a.report, fmt.Errorf("audit %s: %w", w.Period, err)
	}
	return a.report, nil
}

func (a *auditor) run(ctx context.Context) error {
	lists, err := a.plan(ctx)
	if err != nil {
		return err
	}
	a.parts = len(lists)
	if err := a.read(ctx, lists); err != nil {
		return err
	}
	if err := a.write(ctx, 0, a.audit.CompareAgain); err != nil {
		return err
	}
	if err := a.compare(ctx); err != nil {
		return err
	}
	return a.conclude(ctx)
}

// write does something in a transaction that only commits while this process owns
// the audit.
func (a *auditor) write(ctx context.Context, calls int64, do func(context.Context, pgx.Tx) error) error {
	return a.writeIn(ctx, ledger.InTx, calls, do)
}

// inTx is ledger.InTx, or ledger.InQueueTx where single rows are looked up in tables
// of which Postgres may have no statistics yet.
type inTx func(context.Context, *pgxpool.Pool, func(pgx.Tx) error) error

func (a *auditor) writeIn(ctx context.Context, in inTx, calls int64, do func(context.Context, pgx.Tx) error) error {
	err := in(ctx, a.r.pool, func(tx pgx.Tx) error {
		if err := do(ctx, tx); err != nil {
			return err
		}
		return a.audit.Keep(ctx, tx, a.w.Lease, calls)
	})
	a.r.alive()
	return err
}

// moneyRows are written beside their charges in one transaction: few enough that no
// run waits for them.
const moneyRows = 2000

// conclude writes what a complete reading showed.
func (a *auditor) conclude(ctx context.Context) error {
	err := a.write(ctx, 0, func(ctx context.Context, tx pgx.Tx) error {
		if err := a.audit.NoteAdjacentDoubles(ctx, tx); err != nil {
			return err
		}
		for _, limit := range []struct {
			kind  string
			count int64
			share float64
		}{{ledger.FindingRefunded, a.given, a.w.MaxRefunded}, {ledger.FindingDisputed, a.disputedCharges, a.w.MaxDisputed}} {
			if limit.share > 0 && float64(limit.count) > limit.share*float64(a.paid) {
				if err := a.audit.MustAct(ctx, tx, limit.kind); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for after := ""; !a.r.opts.DryRun; {
		err := a.writeIn(ctx, ledger.InQueueTx, 0, func(ctx context.Context, tx pgx.Tx) (err error) {
			after, _, err = a.audit.RecordMoney(ctx, tx, after, moneyRows)
			return err
		})
		if err != nil {
			return err
		}
		if after == "" {
			break
		}
	}
	return a.finish(ctx)
}

// finish opens and closes findings, and ends the audit, in one transaction.
func (a *auditor) finish(ctx context.Context) error {
	rep := &a.report
	err := ledger.InReadTx(ctx, a.r.pool, func(tx pgx.Tx) (err error) {
		if rep.Payments, rep.Refunds, rep.Disputes, err = a.audit.CountNoted(ctx, tx); err != nil {
			return err
		}
		all, err := a.audit.Differences(ctx, tx)
		for _, d := range all {
			if d.Severity == ledger.SeverityAct {
				rep.Differences = append(rep.Differences, d)
			} else {
				rep.Notes = append(rep.Notes, d)
			}
		}
		if err != nil {
			return err
		}
		balance, err := a.audit.BalanceSums(ctx, tx)
		rep.Sums = a.sums.report(balance)
		return err
	})
	if err != nil {
		return err
	}
	rep.Calls = a.audit.Calls + a.pages + int64(a.confirmed)
	rep.Pages = a.pages
	late := rep.Opened
	return ledger.InTx(ctx, a.r.pool, func(tx pgx.Tx) (err error) {
		if err := a.audit.MustBeWhole(ctx, tx, a.parts); err != nil {
			return err
		}
		if !a.r.opts.DryRun {
			opened, closed, err := a.audit.Conclude(ctx, tx)
			if err != nil {
				return err
			}
			rep.Opened, rep.Closed = late+opened, closed
		} else if rep.Listed, err = a.audit.ListDifferences(ctx, tx); err != nil {
			return err
		}
		if rep.Resolved, err = a.audit.ResolvedBefore(ctx, tx); err != nil {
			return err
		}
		return a.audit.Finish(ctx, tx, !a.r.opts.DryRun, rep)
	})
}
