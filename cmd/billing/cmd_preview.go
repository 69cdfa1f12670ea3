package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

const previewHelp = `Shows what a run of the period would record: the same decisions, on one
read-only snapshot. Nothing is written and nothing is sent; no Stripe key is needed.

Example:
   billing preview --period 2026-10

Exit codes: 0 shown   64 usage   65 bad data   69 Postgres unreachable   78 configuration`

func (a *app) previewCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "preview", Usage: "show what a run would charge", Description: previewHelp,
		Flags: []cli.Flag{periodFlag()},
	}, func(ctx context.Context, a *app, c *cli.Context) (*result, error) {
		job, period, err := jobAndPeriodOf(c)
		if err != nil {
			return nil, err
		}
		pool, err := openLedger(ctx, c)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		return preview(ctx, a, pool, job, period)
	})
}

func preview(ctx context.Context, a *app, pool *pgxpool.Pool, job ledger.Job, period ledger.Period) (*result, error) {
	meter := a.newMeter()
	plan, now, err := billing.Preview(ctx, pool, job, period, func(rows int64) {
		meter.show(billing.Progress{Phase: "preview", Done: rows})
	})
	meter.close()
	if err != nil {
		return nil, err
	}
	out := &result{Job: string(job), Period: string(period), Outcome: "preview", Plan: plan.Hash}
	out.addSums(plan.Sums)
	if a.json {
		return out, nil
	}
	fmt.Fprintf(a.out, "period %s of %s: %d invoices, plan %s\n", period, job, plan.Rows, plan.Hash)
	if plan.Rows == 0 {
		fmt.Fprintf(a.out, "nothing is billable; import invoices: billing import invoices --period %s --file F\n", period)
		return out, nil
	}
	a.printSums(plan.Sums)
	if recorded := plan.Rows - now.Unrecorded; recorded > 0 {
		fmt.Fprintf(a.out, "%d of them are in the ledger already and stay as they were recorded; see billing status --period %s\n", recorded, period)
	}
	fmt.Fprintln(a.out, "nothing was written and nothing was sent")
	return out, nil
}
