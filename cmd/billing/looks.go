package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

// lookOptions are the flags of every command that looks at Stripe for charges.
type lookOptions struct {
	onAbsent    reconcile.Policy
	absentAfter time.Duration
	readRate    float64
	noSearch    bool
}

func onAbsentFlag(value string) cli.Flag {
	return &cli.StringFlag{Name: "on-absent", Usage: "what becomes of a charge that Stripe was proven to have no payment for: charge or hold",
		Value: value, EnvVars: []string{"BILLING_ON_ABSENT"}}
}

func absentAfterFlag() cli.Flag {
	return &cli.DurationFlag{Name: "absent-after", Usage: "how long after a send without an answer it may be charged again without a person",
		Value: ledger.DefaultAbsentAfter, EnvVars: []string{"BILLING_ABSENT_AFTER"}}
}

func readRateFlag() cli.Flag {
	return &cli.Float64Flag{Name: "read-rate", Usage: "questions to Stripe a second at most; 0 is unlimited",
		Value: gateway.DefaultReadRate, EnvVars: []string{"BILLING_READ_RATE"}}
}

// lookOptionsOf reads them. A command without --on-absent has a policy of its own.
func lookOptionsOf(c *cli.Context) (o lookOptions, err error) {
	o = lookOptions{onAbsent: reconcile.Policy(c.String("on-absent")), absentAfter: c.Duration("absent-after"), readRate: c.Float64("read-rate")}
	if !c.IsSet("absent-after") {
		o.absentAfter = ledger.DefaultAbsentAfter // also where the command has no such flag
	}
	switch {
	case o.onAbsent != "" && o.onAbsent != reconcile.PolicyCharge && o.onAbsent != reconcile.PolicyHold:
		return o, usagef("--on-absent %q: want charge or hold", o.onAbsent)
	case c.IsSet("absent-after") && (o.absentAfter < 24*time.Hour || o.absentAfter > 30*24*time.Hour):
		// Stripe may complete by itself what failed; less than a day is asking for
		// a second payment.
		return o, usagef("--absent-after %s: want 24h to 720h", o.absentAfter)
	case o.readRate != 0 && !(o.readRate >= 0.1 && o.readRate <= 10_000): // NaN is neither
		return o, usagef("--read-rate %v: want 0.1 to 10000 questions a second, or 0 for no limit", o.readRate)
	}
	if o.readRate == 0 {
		o.readRate = -1 // unlimited, as the gateway has it
	}
	return o, nil
}

// reconciler wires a look.
func (a *app) reconciler(pool *pgxpool.Pool, client *gateway.Client, job ledger.Job, looks lookOptions, out *ledger.Outbox, alive func()) reconcile.Options {
	m := a.meter.Load()
	return reconcile.Options{
		Job: job, Livemode: client.Livemode(), OnAbsent: looks.onAbsent, AbsentAfter: looks.absentAfter, NoSearch: looks.noSearch,
		Alive: alive, Log: a.log, Outbox: out,
		CheckClock: func(ctx context.Context, stripe time.Time) error { return billing.CheckClock(ctx, pool, stripe) },
		Progress: func(phase string, done, total int64) {
			if m != nil {
				m.show(billing.Progress{Phase: phase, Done: done, Total: total})
			}
		},
		Decide: func(ctx context.Context, q ledger.Querier, period ledger.Period, list []ledger.OpenCharge) ([]ledger.Requeue, error) {
			return billing.DecideAnew(ctx, q, job, period, list)
		},
		Record: billing.RecordAccounts,
	}
}

// settle is the step of a run that looks at Stripe: for what the period has past
// its window, and for what is under way in this and earlier periods.
func (a *app) settle(ctx context.Context, pool *pgxpool.Pool, client *gateway.Client, opts billing.Options, looks lookOptions,
	run *ledger.Run, alive func(),
) (total billing.Settled, err error) {
	rec := reconcile.New(pool, client.Finder(), a.reconciler(pool, client, opts.Job, looks, opts.Outbox, alive))
	if run != nil {
		report, err := rec.Look(ctx, reconcile.Work{Period: run.Period, Horizon: run.Horizon(), Run: run, Pending: true, Unsettled: true})
		total = billing.Settled{Settled: report.Settled, Renewed: report.Renewed, Warnings: lookWarnings(run.Period, report)}
		if err != nil {
			return total, err
		}
	}
	periods, err := ledger.OpenPeriods(ctx, pool, opts.Job)
	if err != nil {
		return total, err
	}
	for _, period := range periods {
		if period > opts.Period || run != nil && period == run.Period {
			continue
		}
		other, err := ledger.ReadRun(ctx, pool, opts.Job, period)
		if err != nil {
			return total, err
		}
		report, err := rec.Look(ctx, reconcile.Work{Period: period, Horizon: other.Horizon(), Unsettled: true})
		if err != nil {
			return total, err
		}
		total.Warnings = append(total.Warnings, lookWarnings(period, report)...)
	}
	return total, nil
}

// lookWarnings says what a look could not decide.
func lookWarnings(period ledger.Period, report reconcile.Report) (list []string) {
	if n := report.Counts[reconcile.OutcomeUnreadable]; n > 0 {
		list = append(list, plural(n, "charge", "charges")+fmt.Sprintf(" of %s could not be looked up at Stripe: billing reconcile --period %s", period, period))
	}
	if n := report.Findings; n > 0 {
		list = append(list, plural(n, "finding", "findings")+fmt.Sprintf(" opened in %s: billing status --period %s", period, period))
	}
	return list
}
