package billing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// maxAge is how long ago a period may have ended: a mistyped year must not charge
// anybody.
const maxAge = 366 * 24 * time.Hour

// alreadyDone reports a period that was finished; it costs no call to Stripe. One
// that was charged in the other mode than the key's is not done for it.
func (r *Runner) alreadyDone(ctx context.Context) (bool, error) {
	run, err := ledger.ReadRun(ctx, r.pool, r.opts.Job, r.opts.Period)
	if errors.Is(err, ledger.ErrNotFound) {
		return false, nil
	}
	if err != nil || run.State != ledger.RunDone {
		return false, err
	}
	if err := ledger.CheckMode(ctx, r.pool, r.opts.Livemode); err != nil {
		return false, err
	}
	return true, nil
}

// mayStart holds the period against what must be true before it is claimed.
func (r *Runner) mayStart(ctx context.Context) error {
	now, err := ledger.Now(ctx, r.pool)
	if err != nil {
		return err
	}
	if ends := r.opts.Period.End(r.opts.Location); now.Before(ends) && !r.opts.Early {
		return &StoppedError{
			Gate: "not_ended",
			Msg:  fmt.Sprintf("period %s ends at %s, and it is %s", r.opts.Period, ends.Format(time.RFC3339), now.Format(time.RFC3339)),
			Hint: "wait, or charge it now on purpose with --early",
		}
	}
	if ended := r.opts.Period.End(r.opts.Location); now.Sub(ended) > maxAge && !r.opts.AllowOld {
		return &StoppedError{
			Gate: "old_period",
			Msg:  fmt.Sprintf("period %s ended %d days ago", r.opts.Period, int(now.Sub(ended).Hours()/24)),
			Hint: "is the period typed right? To charge it on purpose: --allow-old",
		}
	}
	if from := ledger.HorizonOf(r.opts.Period.Start(r.opts.Location)); now.Before(from) {
		// A payment made now would lie before everything that a look reads.
		return &StoppedError{
			Gate: "not_begun",
			Msg:  fmt.Sprintf("period %s can't be charged before %s, not even early", r.opts.Period, from.Format(time.RFC3339)),
			Hint: "is the period typed right?",
		}
	}
	if err := r.mustNotBePaused(ctx); err != nil {
		return err
	}
	if err := r.mustBeInvoiced(ctx); err != nil {
		return err
	}
	if err := r.mustBeClosed(ctx); err != nil {
		return err
	}
	return r.mustHaveInvoices(ctx)
}

// mustNotBePaused refuses to start while everything is paused.
func (r *Runner) mustNotBePaused(ctx context.Context) error {
	list, err := ledger.OpenPauses(ctx, r.pool, r.opts.Job)
	if err != nil || len(list) == 0 || list[0].AccountID != "" {
		return err
	}
	return &StoppedError{
		Gate: "paused",
		Msg:  fmt.Sprintf("everything of %s is paused since %s, by %s: %s", r.opts.Job, list[0].PausedAt.UTC().Format("2006-01-02 15:04 UTC"), list[0].PausedBy, list[0].Why),
		Hint: "billing resume --all",
	}
}

// mustBeInvoiced refuses a period whose usage became no invoices: it would be done without
// what is owed for it.
func (r *Runner) mustBeInvoiced(ctx context.Context) error {
	if r.opts.Uninvoiced {
		return nil
	}
	left, err := usageLeft(ctx, r.pool, r.opts.Job, r.opts.Period)
	if err != nil || !left {
		return err
	}
	return &StoppedError{
		Gate: "usage_not_invoiced",
		Msg:  usageLeftText(r.opts.Period),
		Hint: fmt.Sprintf("billing invoice --period %s, or charge it without its usage on purpose: --uninvoiced", r.opts.Period),
	}
}

// usageLeft reports whether a period has usage that became no invoices. Where the view
// reads tables of the company's own, its usage is billed by these.
func usageLeft(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period) (bool, error) {
	needed, err := ledger.NeedsClose(ctx, q)
	if err != nil || !needed {
		return false, err
	}
	return ledger.HasUninvoicedUsage(ctx, q, job, period)
}

func usageLeftText(period ledger.Period) string {
	return fmt.Sprintf("period %s has usage that is not invoiced", period)
}

func (r *Runner) mustBeClosed(ctx context.Context) error {
	needed, err := ledger.NeedsClose(ctx, r.pool)
	if err != nil || !needed || r.opts.Unclosed {
		return err
	}
	_, err = ledger.ReadClose(ctx, r.pool, r.opts.Job, r.opts.Period)
	if !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	return &StoppedError{
		Gate: "not_closed",
		Msg:  fmt.Sprintf("period %s is not closed: nobody said that all its invoices are there", r.opts.Period),
		Hint: fmt.Sprintf("billing close --period %s", r.opts.Period),
	}
}

func (r *Runner) mustHaveInvoices(ctx context.Context) error {
	if r.opts.AllowEmpty {
		return nil
	}
	var there bool
	err := ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		there, err = ledger.HasInvoices(ctx, tx, r.opts.Job, r.opts.Period)
		return err
	})
	if err != nil || there {
		return err
	}
	return &StoppedError{
		Gate: "nothing_billable",
		Msg:  fmt.Sprintf("period %s has nothing to bill", r.opts.Period),
		Hint: fmt.Sprintf("import its invoices (billing import invoices --period %s --file F), or confirm with --allow-empty", r.opts.Period),
	}
}

// claim takes the period, waiting for another owner to finish or to go stale.
// It reports true if the other finished it.
func (r *Runner) claim(ctx context.Context) (done bool, err error) {
	request := ledger.ClaimRequest{
		Job: r.opts.Job, Period: r.opts.Period, RunID: newRunID(), Owner: r.opts.Owner, Build: r.opts.Build,
		Lease: r.opts.Lease, Timeout: r.opts.Timeout, Early: r.opts.Early, Location: r.opts.Location, Outbox: r.opts.Outbox,
	}
	until := time.Now().Add(r.opts.Wait)
	for told, counted := false, false; ; {
		err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			r.run, err = ledger.TakeClaim(ctx, tx, request)
			return err
		})
		if err == nil {
			r.log.Info("claimed", "period", r.run.Period, "run_id", r.run.RunID, "attempt", r.run.Attempt)
			r.opts.Claimed(r.run)
			return false, nil
		}
		held, busy := asHeld(err, request)
		if !busy {
			return false, err
		}
		if held.Holder.State == ledger.RunDone {
			return true, nil
		}
		if !counted {
			r.countRefusal(ctx)
			counted = true
		}
		if time.Now().After(until) {
			return false, held
		}
		if !told {
			r.log.Info("waiting for another run", "period", r.opts.Period, "owner", held.Holder.Owner,
				"last_alive", held.Holder.HeartbeatAt.UTC(), "stale_at", held.Holder.StaleAt.UTC(), "wait", r.opts.Wait.String())
			told = true
		}
		if err := sleep(ctx, min(time.Second, time.Until(until)+time.Millisecond)); err != nil {
			return false, err
		}
	}
}

// countRefusal notes that this run found the period owned by another. The count is
// for people: without it the work goes on all the same.
func (r *Runner) countRefusal(ctx context.Context) {
	err := ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error { return ledger.CountRefusal(ctx, tx, r.opts.Job, r.opts.Period) })
	if err != nil {
		r.log.Warn("the refused claim could not be counted", "error", err)
	}
}

// asHeld tells a busy claim; one whose row a transaction holds is busy too.
func asHeld(err error, request ledger.ClaimRequest) (*ledger.HeldError, bool) {
	var held *ledger.HeldError
	if errors.As(err, &held) {
		return held, true
	}
	if ledger.IsLockTimeout(err) {
		return &ledger.HeldError{Job: request.Job, Period: request.Period, Holder: ledger.Run{Owner: "a run that is recording it, or an import that changes it"}}, true
	}
	return nil, false
}

// patiently repeats a piece of database work while Postgres is away, for as long
// as the lease or half a minute: after that another host may own the period.
func (r *Runner) patiently(ctx context.Context, doing string, do func(context.Context) error) error {
	return r.whileAway(ctx, max(r.opts.Lease, 30*time.Second), doing, do)
}

// whileAway repeats a piece of database work while Postgres is away. It must be
// safe to repeat after a commit whose outcome was not seen.
func (r *Runner) whileAway(ctx context.Context, patience time.Duration, doing string, do func(context.Context) error) error {
	started := time.Now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		err := do(ctx)
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if !ledger.IsUnreachable(err) || time.Since(started) > patience {
			return fmt.Errorf("%s: %w", doing, err)
		}
		r.log.Warn("Postgres is away; trying again", "doing", doing, "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// sleep waits, or returns why the context ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter spreads a wait between three quarters and five quarters of d.
func jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}
