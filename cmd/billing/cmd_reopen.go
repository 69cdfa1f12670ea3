package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const reopenHelp = `Lets a period that is done be run again: for an invoice that came late, or a card
that was added. Nobody who paid is charged again. Who and why are kept.

Example:
   billing reopen --period 2026-10 --why "late invoice"

Exit codes: 0 reopened   64 usage, or the period is not done
   69 Postgres unreachable   78 configuration`

func (a *app) reopenCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "reopen", Usage: "let a done period be run again", Description: reopenHelp,
		Flags: []cli.Flag{periodFlag(), whyFlag(), byFlag(), dryRunFlag()},
	}, reopen)
}

func reopen(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	why := strings.TrimSpace(c.String("why"))
	if why == "" {
		return nil, usagef("--why is missing: type the reason, such as --why \"late invoice\"")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job), Period: string(period)}
	if c.Bool("dry-run") {
		run, err := ledger.ReadRun(ctx, pool, job, period)
		switch {
		case errors.Is(err, ledger.ErrNotFound):
			return out, neverRun(job, period)
		case err != nil:
			return out, err
		case run.State != ledger.RunDone:
			return out, notDone(run)
		}
		return out, a.emit(fmt.Sprintf("%s of %s would be open again; nothing was changed (dry run)\n", period, job))
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		reopened, err := ledger.Reopen(ctx, tx, job, period, personOf(c), why)
		if errors.Is(err, ledger.ErrNotFound) {
			return neverRun(job, period)
		}
		if err != nil {
			return err
		}
		run, err := ledger.ReadRun(ctx, tx, job, period)
		if err != nil {
			return err
		}
		if !reopened {
			return notDone(run)
		}
		out.addRun(run)
		return nil
	})
	if err != nil {
		return out, err
	}
	return out, a.emit(fmt.Sprintf("%s of %s is open again\nnext: billing run --period %s\n", period, job, period))
}

func neverRun(job ledger.Job, period ledger.Period) error {
	return usagef("%s of %s was never run, so there is nothing to reopen; to run it: billing run --period %s", period, job, period)
}

// notDone says what state a period is in that can't be reopened.
func notDone(run ledger.Run) error {
	if run.State == ledger.RunClaimed {
		return usagef("%s is not done but claimed by %s; see: billing status --period %s", run.Period, clean(run.Owner), run.Period)
	}
	return usagef("%s is not done but %s, so it may be run as it is: billing run --period %s", run.Period, run.State, run.Period)
}
