package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const retryDeclinedHelp = `Tries declined charges again: each gets a new try, with today's card and a key of
its own, which the next run sends. Stripe is looked at first: what was paid meanwhile
is settled, every payment of the charge that is still open is cancelled, and Stripe
is looked at once more, so that nobody can pay twice.

Without --account and --all it takes those whose next try is due by the schedule, so
that cron may start it every day, and the run after it whatever its exit code: what
could not be opened is no reason to leave the others unsent. A person who names accounts, or says --all, need
not wait for the schedule. All else holds for everybody: no charge is tried more than
8 times, no card more than the card networks allow in 30 days, and no card again that
the bank refuses for good, until the account has another one.

Examples:
   billing retry-declined --period 2026-10 --why schedule; billing run --period 2026-10 --yes
   billing retry-declined --period 2026-10 --account 4182 --why "topped up, she says"
   billing retry-declined --period 2026-10 --all --dry-run --why look

Exit codes: 0 done, or nothing is due   4 not all of what was ordered could be, or
   the period needs a person   64 usage   69 unreachable   75 not yet, a run is at
   work, or tries are open that no run has sent   77 refused   78 configuration`

func (a *app) retryDeclinedCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "retry-declined", Usage: "try declined charges again, by the schedule or by a person's order", Description: retryDeclinedHelp,
		Flags: []cli.Flag{periodFlag(), accountsFlag(), allFlag("every declined charge of the period that may be tried again"), whyFlag(), byFlag(), scheduleFlag(),
			dryRunFlag(), formatFlag(), zoneFlag(), readRateFlag(), leaseFlag()},
	}, doRetryDeclined)
}

func scheduleFlag() cli.Flag {
	return &cli.StringFlag{Name: "schedule", Usage: "how long after each declined try the next one is due",
		Value: "3d,5d,7d", EnvVars: []string{"BILLING_RETRY_SCHEDULE"}}
}

// scheduleOf reads the schedule: days, or what Go writes for durations.
func scheduleOf(c *cli.Context) (list []time.Duration, err error) {
	for part := range strings.SplitSeq(c.String("schedule"), ",") {
		part = strings.TrimSpace(part)
		d, err := time.ParseDuration(part)
		if days, isDays := strings.CutSuffix(part, "d"); isDays {
			var n float64
			n, err = strconv.ParseFloat(days, 64)
			d = time.Duration(n * float64(24*time.Hour))
		}
		if err != nil || d < time.Hour || d > 90*24*time.Hour {
			return nil, usagef("--schedule %q: want waits of 1h to 90d, such as 3d,5d,7d", c.String("schedule"))
		}
		list = append(list, d)
	}
	if len(list) >= billing.MaxTries {
		return nil, usagef("--schedule has %d waits; a charge is tried %d times in all, so %d at most", len(list), billing.MaxTries, billing.MaxTries-1)
	}
	return list, nil
}

// retryOrder is what was asked for.
type retryOrder struct {
	period   ledger.Period
	accounts []string
	why      string
	dunning  billing.Dunning
}

func retryOrderOf(c *cli.Context) (o retryOrder, err error) {
	if o.period, err = periodOf(c); err != nil {
		return o, err
	}
	if o.dunning.Schedule, err = scheduleOf(c); err != nil {
		return o, err
	}
	o.accounts, o.why = c.StringSlice("account"), strings.TrimSpace(c.String("why"))
	o.dunning.Named = len(o.accounts) > 0
	o.dunning.Ordered = o.dunning.Named || c.Bool("all")
	switch {
	case o.why == "":
		err = usagef("--why is missing: type the reason; it is kept with each charge")
	case o.dunning.Named && c.Bool("all"):
		err = usagef("--account and --all: take one")
	}
	return o, err
}

func doRetryDeclined(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	o, err := retryOrderOf(c)
	if err != nil {
		return nil, err
	}
	l, done, err := startLooking(ctx, a, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.out.Period, l.report.retry = string(o.period), true
	if o.dunning.Named {
		if err := l.mustBeIn(ctx, o.period, o.accounts, []ledger.ChargeState{ledger.ChargeDeclined}); err != nil {
			return l.out, err
		}
	}
	run, err := ledger.ReadRun(ctx, l.pool, l.job, o.period)
	if errors.Is(err, ledger.ErrNotFound) {
		return l.out, usagef("%s of %s was never run: nothing was declined", o.period, l.job)
	}
	if err != nil {
		return l.out, err
	}
	err = l.retry(ctx, o, reconcile.Work{Period: o.period, Horizon: run.Horizon(), Accounts: o.accounts})
	a.meter.Load().close()
	return l.endRetry(ctx, o, err)
}

// retry asks the ledger what may be tried again, and only if there is something takes
// the period's claim and asks Stripe.
func (l *looking) retry(ctx context.Context, o retryOrder, work reconcile.Work) error {
	plan, report, err := reconcile.New(l.pool, l.client.Finder(), l.retryOptions(o, func() {})).PlanRetry(ctx, work)
	l.report.add(work.Period, report)
	if err != nil || plan.Empty() {
		return err
	}
	look := func(ctx context.Context, work reconcile.Work, alive func()) error {
		report, err := reconcile.New(l.pool, l.client.Finder(), l.retryOptions(o, alive)).Retry(ctx, work, plan)
		l.report.add(work.Period, report)
		return err
	}
	if l.dryRun {
		return look(ctx, work, func() {})
	}
	return l.owningFor(ctx, work, func(ctx context.Context, tx pgx.Tx) error {
		_, err := ledger.Reopen(ctx, tx, l.job, o.period, l.person, o.why)
		return err
	}, look)
}

// retryOptions wires the rules of dunning, and what cancels.
func (l *looking) retryOptions(o retryOrder, alive func()) reconcile.Options {
	opts := l.a.reconciler(l.pool, l.client, l.job, l.looks, l.outbox, alive)
	opts.DryRun, opts.Person, opts.Why, opts.Each = l.dryRun, l.person, o.why, l.report.line
	opts.Cancel = l.client.Canceller().Cancel
	rules := billing.NewRetryRules(l.job, o.dunning)
	opts.Rule = func(ctx context.Context, q ledger.Querier, period ledger.Period, list []ledger.OpenCharge) (map[string]reconcile.Ruling, error) {
		refused, err := rules.Refused(ctx, q, period, list)
		rulings := make(map[string]reconcile.Ruling, len(list))
		for _, c := range list {
			r := refused[c.AccountID]
			rulings[c.AccountID] = reconcile.Ruling{Try: c.Try, Refused: r.Why, Next: r.Next, Until: r.Until, Named: o.dunning.Named}
		}
		return rulings, err
	}
	return opts
}

// endRetry reports what became of each. The exit code says whether what was ordered
// was done; by the schedule, only what Stripe shows needs somebody.
func (l *looking) endRetry(ctx context.Context, o retryOrder, err error) (*result, error) {
	out, verdict := l.end(ctx, []ledger.Period{o.period}, err)
	if err != nil {
		return out, err
	}
	if failed := (outputError{}); errors.As(verdict, &failed) {
		return out, verdict
	}
	counts := l.report.counts
	left := counts[reconcile.OutcomeRefused] + counts[reconcile.OutcomeReview]
	if o.dunning.Named {
		left += counts[reconcile.OutcomeNotRetried]
	}
	opened := l.report.total.Renewed > 0
	var unsent *billing.UnsettledError
	switch err := l.undecided(); {
	case err != nil:
		return out, errors.Join(l.nextRun(o.period), err)
	case !opened && errors.As(verdict, &unsent):
		// Tries that were opened before are sent by a run, not by this command.
		unsent.Type = fmt.Sprintf("billing run --period %s", o.period)
		return out, unsent
	case left > 0:
		return out, errors.Join(l.nextRun(o.period), notAll(o.period))
	case opened:
		return out, l.nextRun(o.period)
	}
	return out, verdict
}
