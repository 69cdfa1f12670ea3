package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const releaseHelp = `Lets held charges be charged: Stripe was proven to have no payment for them, and
a person says that they may be sent again. Each is looked up once more first; one
that turns out to be paid is settled instead. The next run sends the others.

Example:
   billing release --period 2026-10 --account 4182 --why "the customer confirms: not charged"
   billing release --period 2026-10 --all --why "Stripe's incident report"

One that was sent, or may have been, within its window of 23 hours must wait for its
end: it says until when, and nothing is done.

Exit codes: 0 released   4 not all could be   64 usage   69 unreachable
   75 not yet, or a run is at work   77 refused   78 configuration`

func (a *app) releaseCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "release", Usage: "let held charges be charged", Description: releaseHelp,
		Flags: []cli.Flag{periodFlag(), accountsFlag(), allFlag("every held charge of the period"), whyFlag(), byFlag(), dryRunFlag(), formatFlag(), zoneFlag(), readRateFlag(), leaseFlag()},
	}, func(ctx context.Context, a *app, c *cli.Context) (*result, error) {
		return order(ctx, a, c, reconcile.ActRelease, []ledger.ChargeState{ledger.ChargeHeld})
	})
}

const requeueHelp = `Lets charges that were skipped or rejected, or that were withdrawn, be charged
after all: their cause is mended. What is asked for is decided anew, by today's
invoice and card, in a new try. Stripe is looked at first; one that turns out to be
paid is settled instead. The next run sends the others.

Example:
   billing requeue --period 2026-10 --account 4182 --why "a new card"
   billing requeue --period 2026-10 --all --why "cards were imported late"

--all takes those that were skipped for a cause that can mend, and the rejected
ones; a withdrawn charge must be named.

Exit codes: 0 requeued   4 not all could be   64 usage   69 unreachable
   75 not yet, or a run is at work   77 refused   78 configuration`

func (a *app) requeueCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "requeue", Usage: "let skipped, rejected or withdrawn charges be charged after all", Description: requeueHelp,
		Flags: []cli.Flag{periodFlag(), accountsFlag(), allFlag("every skipped or rejected charge of the period that can mend"), whyFlag(), byFlag(), dryRunFlag(), formatFlag(), zoneFlag(), readRateFlag(), leaseFlag()},
	}, func(ctx context.Context, a *app, c *cli.Context) (*result, error) {
		states := []ledger.ChargeState{ledger.ChargeSkipped, ledger.ChargeRejected}
		if !c.Bool("all") {
			states = append(states, ledger.ChargeVoid)
		}
		return order(ctx, a, c, reconcile.ActRequeue, states)
	})
}

func accountsFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "account", Usage: "the account, as in the invoices; may be given more than once"}
}

func allFlag(usage string) cli.Flag { return &cli.BoolFlag{Name: "all", Usage: usage} }

// ordered reads what a person's order is about.
func ordered(c *cli.Context) (period ledger.Period, accounts []string, why string, err error) {
	if period, err = periodOf(c); err != nil {
		return "", nil, "", err
	}
	// A slice flag takes commas for separators, and an account id may have one.
	accounts = c.StringSlice("account")
	why = strings.TrimSpace(c.String("why"))
	switch {
	case why == "":
		err = usagef("--why is missing: type the reason; it is kept with each charge")
	case len(accounts) == 0 && !c.Bool("all"):
		err = usagef("--account is missing: type the account, or --all")
	case len(accounts) > 0 && c.Bool("all"):
		err = usagef("--account and --all: take one")
	}
	return period, accounts, why, err
}

// order does what a person says to charges in some states, under the period's
// claim: a period that is done is open again afterwards.
func order(ctx context.Context, a *app, c *cli.Context, act reconcile.Act, states []ledger.ChargeState) (*result, error) {
	period, accounts, why, err := ordered(c)
	if err != nil {
		return nil, err
	}
	l, done, err := startLooking(ctx, a, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.out.Period = string(period)
	if err := l.mustBeIn(ctx, period, accounts, states); err != nil {
		return l.out, err
	}
	run, err := ledger.ReadRun(ctx, l.pool, l.job, period)
	if err != nil {
		return l.out, err
	}
	work := reconcile.Work{Period: period, Horizon: run.Horizon(), Act: act, States: states, Accounts: accounts}
	if l.dryRun {
		err = l.look(ctx, work, func() {})
	} else {
		err = l.owning(ctx, work, func(ctx context.Context, tx pgx.Tx) error {
			_, err := ledger.Reopen(ctx, tx, l.job, period, l.person, why)
			return err
		})
	}
	a.meter.Load().close()
	return l.endOrder(ctx, period, err)
}

// mustBeIn refuses an order that is about nothing, before anything is reopened.
func (l *looking) mustBeIn(ctx context.Context, period ledger.Period, accounts []string, states []ledger.ChargeState) error {
	counts, err := ledger.CountInState(ctx, l.pool, l.job, period, states, accounts)
	if err != nil {
		return err
	}
	var n int64
	for _, c := range counts {
		n += c.Past
	}
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	either := strings.Join(names, " or ")
	if n == 0 && accounts == nil {
		return usagef("%s of %s has no charge that is %s: billing status --period %s", period, l.job, either, period)
	}
	if n < int64(len(accounts)) {
		return l.notIn(ctx, period, accounts, states, either)
	}
	return nil
}

// notIn names the first account whose charge is in another state.
func (l *looking) notIn(ctx context.Context, period ledger.Period, accounts []string, states []ledger.ChargeState, either string) error {
	return ledger.InReadTx(ctx, l.pool, func(tx pgx.Tx) error {
		for _, account := range accounts {
			h, err := ledger.ReadHistory(ctx, tx, l.job, period, account)
			if errors.Is(err, ledger.ErrNotFound) {
				return usagef("account %s has no charge for %s; see: billing status --period %s", clean(account), period, period)
			}
			if err != nil {
				return err
			}
			if !slices.Contains(states, h.Charge.State) {
				return usagef("the charge of account %s for %s is %s, not %s; nothing was done: billing show --period %s --account %s",
					clean(account), period, h.Charge.State, either, period, clean(account))
			}
		}
		return nil
	})
}

// endOrder reports an order; the exit code says whether all of it was done.
func (l *looking) endOrder(ctx context.Context, period ledger.Period, err error) (*result, error) {
	out, verdict := l.end(ctx, []ledger.Period{period}, err)
	if err != nil {
		return out, err
	}
	if failed := (outputError{}); errors.As(verdict, &failed) {
		return out, verdict
	}
	counts := l.report.counts
	if err := l.undecided(); err != nil {
		return out, errors.Join(l.nextRun(period), err)
	}
	if counts[reconcile.OutcomeRefused]+counts[reconcile.OutcomeReview] > 0 {
		return out, errors.Join(l.nextRun(period), notAll(period))
	}
	return out, l.nextRun(period)
}

// undecided says that an order was not carried out for some charges, and until when
// those that wait must wait; nil if there are none.
func (l *looking) undecided() error {
	counts := l.report.counts
	waiting := counts[reconcile.OutcomeWaiting] + counts[reconcile.OutcomeInWindow]
	again := counts[reconcile.OutcomeUnreadable] + counts[reconcile.OutcomeMovedOn]
	if waiting+again == 0 {
		return nil
	}
	err := &billing.UnsettledError{Left: plural(waiting+again, "charge", "charges") + " can't be decided yet: see the lines above"}
	if again == 0 {
		err.LookAt = l.report.total.NextLook
	}
	return err
}

func notAll(period ledger.Period) error {
	return &billing.PersonError{
		Msg: "not all of it could be done: see the lines above", Hint: fmt.Sprintf("billing status --period %s", period),
	}
}

func (l *looking) nextRun(period ledger.Period) error {
	if l.dryRun || l.report.total.Renewed == 0 {
		return nil
	}
	return l.a.emit(fmt.Sprintf("next: billing run --period %s\n", period))
}
