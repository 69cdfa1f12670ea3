package billing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// Hold is the claim on a period for a piece of work that is not a run.
type Hold struct {
	Pool    *pgxpool.Pool
	Log     *slog.Logger
	Request ledger.ClaimRequest
	// Before is done in the claim's own transaction, before it is taken; it may
	// reopen a period that is done. nil is nothing.
	Before func(ctx context.Context, tx pgx.Tx) error
	// ExitCode tells the code of an error, for the attempt's history.
	ExitCode func(error) int
}

// While takes the claim, does the work, and gives the claim up: as done if the
// outcome of every charge is known and every invoice recorded, as a run would; else
// as failed, so that the next run goes on. If another process owns the period the
// error is a *ledger.HeldError and nothing was done. alive must be called while work
// gets on.
func (h Hold) While(ctx context.Context, do func(ctx context.Context, run ledger.Run, alive func()) (ledger.Outcome, error)) error {
	run, err := h.take(ctx)
	if err != nil {
		return err
	}
	owned, lose := context.WithCancelCause(ctx)
	beat := &heart{pool: h.Pool, run: run, lease: h.Request.Lease, log: h.Log}
	var beating sync.WaitGroup
	beating.Go(func() { beat.beat(owned, lose) })
	outcome, err := do(owned, run, beat.alive)
	if cause := context.Cause(owned); err != nil && cause != nil {
		err = cause
	}
	lose(nil)
	beating.Wait()
	if errors.Is(err, ledger.ErrClaimLost) {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if giveUpErr := h.giveUp(last, run, outcome, err); err == nil {
		err = giveUpErr
	}
	return err
}

func (h Hold) take(ctx context.Context) (run ledger.Run, err error) {
	h.Request.RunID = newRunID()
	err = ledger.InTx(ctx, h.Pool, func(tx pgx.Tx) error {
		if h.Before != nil {
			if err := h.Before(ctx, tx); err != nil {
				return err
			}
		}
		run, err = ledger.TakeClaim(ctx, tx, h.Request)
		return err
	})
	if held, busy := asHeld(err, h.Request); busy {
		return run, held
	}
	return run, err
}

func (h Hold) giveUp(ctx context.Context, run ledger.Run, outcome ledger.Outcome, cause error) error {
	return ledger.InTx(ctx, h.Pool, func(tx pgx.Tx) error {
		if err := run.Lock(ctx, tx); err != nil {
			return err
		}
		s, err := ledger.Summarize(ctx, tx, run.Job, run.Period)
		if err != nil {
			return err
		}
		billed, err := h.billed(ctx, tx, s)
		if err != nil {
			return err
		}
		state := ledger.RunDone
		if cause != nil || !billed || s.Count(ledger.ChargePending) > 0 || s.Unrecorded > 0 {
			state = ledger.RunFailed
		}
		if cause == nil {
			cause = Verdict(run.Period, state, s)
		}
		outcome.ExitCode = h.ExitCode(cause)
		return run.Finish(ctx, tx, state, outcome)
	})
}

// billed reports that a run may have finished the period: there is something in
// it, and somebody said that all its invoices are there. The ledger of a restored
// backup may have neither.
func (h Hold) billed(ctx context.Context, tx pgx.Tx, s ledger.Summary) (bool, error) {
	needed, err := ledger.NeedsClose(ctx, tx)
	if err != nil || !needed || len(s.Sums) == 0 {
		return len(s.Sums) > 0, err
	}
	_, err = ledger.ReadClose(ctx, tx, h.Request.Job, h.Request.Period)
	if errors.Is(err, ledger.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
