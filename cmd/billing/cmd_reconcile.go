package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const reconcileHelp = `Looks at Stripe for every charge whose outcome is not known, settles those that
it finds, and says what to type about each of the others. It only reads from
Stripe: a read-only key is enough. Nobody is charged by it.

Without --period it looks at every period that has open charges. A charge that
Stripe was proven to have no payment for is held, and a person decides (billing
release, billing void); with --on-absent charge it is renewed, as a run does, and
the next run sends it.

Examples:
   billing reconcile
   billing reconcile --period 2026-10 --dry-run
   billing reconcile --period 2026-10 --audit
   billing reconcile --period 2026-10 --rebuild --why "restored the backup of 3 am"

--audit compares the whole period with Stripe, both ways and to the cent: it opens
a finding for each difference, closes those that are no longer true, and records
refunds, disputes and fees beside the charges, and with --payouts also which payout
each payment went into, which takes as many calls again. If a page can't be read nothing is
concluded; the next audit goes on behind what was read. With --dry-run it lists what it
would open, and opens nothing.
--rebuild brings a ledger that was restored from a backup up to what Stripe shows.

Exit codes: 0 every outcome is known   4 a person is needed   64 usage
   69 Postgres or Stripe unreachable   75 outcomes still unknown: run again
   77 refused   78 configuration`

// claimTimeout is how long work on a claim may take that is not a run.
const claimTimeout = 6 * time.Hour

func (a *app) reconcileCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "reconcile", Usage: "find out from Stripe what became of charges whose outcome is not known", Description: reconcileHelp,
		Flags: append([]cli.Flag{
			periodFlag(), zoneFlag(), onAbsentFlag("hold"), absentAfterFlag(),
			// What is done once is not taken from the environment: it would be done by every
			// reconcile of that host.
			&cli.BoolFlag{Name: "audit", Usage: "compare the whole period with Stripe, both ways; needs --period"},
			&cli.BoolFlag{Name: "payouts", Usage: "with --audit: find out which payouts the money is in; a call for each 100 payments"},
			maxShareFlag("max-refunded", "refunded"), maxShareFlag("max-disputed", "disputed"),
			&cli.BoolFlag{Name: "rebuild", Usage: "bring a restored ledger up to what Stripe shows; needs --period and --why"},
			dryRunFlag(), formatFlag(), whyFlag(), byFlag(), readRateFlag(), leaseFlag(),
		}, metricsFlags()...),
	}, doReconcile)
}

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "decide everything and change nothing", EnvVars: []string{"BILLING_DRY_RUN"}}
}

func formatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Usage: "table, or csv with a line for each charge", Value: "table", EnvVars: []string{"BILLING_FORMAT"}}
}

func leaseFlag() cli.Flag {
	return &cli.DurationFlag{Name: "lease", Usage: "without a sign of life for this long another process may take over", Value: billing.DefaultLease, EnvVars: []string{"BILLING_LEASE"}}
}

// looking is one command that looks at Stripe.
type looking struct {
	a      *app
	c      *cli.Context
	pool   *pgxpool.Pool
	client *gateway.Client
	job    ledger.Job
	looks  lookOptions
	outbox *ledger.Outbox
	dryRun bool
	person string
	why    string
	out    *result
	report *lookReport
}

// startLooking reads the common flags and checks the identity of the key.
func startLooking(ctx context.Context, a *app, c *cli.Context) (*looking, func(), error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, nil, err
	}
	looks, err := lookOptionsOf(c)
	if err != nil {
		return nil, nil, err
	}
	if lease := c.Duration("lease"); lease < time.Second || lease > time.Hour {
		return nil, nil, usagef("--lease %s: want 1s to 1h", lease)
	}
	format, err := a.formatOf(c, "table", "csv")
	if err != nil {
		return nil, nil, err
	}
	report, err := newLookReport(a, format)
	if err != nil {
		return nil, nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	client, err := openGateway(a, 0, looks.readRate)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	l := &looking{
		a: a, c: c, pool: pool, client: client, job: job, looks: looks, dryRun: c.Bool("dry-run"), person: personOf(c),
		why: strings.TrimSpace(c.String("why")), report: report,
	}
	live := client.Livemode()
	l.out = &result{Job: string(job), Livemode: &live}
	closeAll := func() { client.Close(); pool.Close() }
	if l.outbox, err = a.openOutbox(ctx, pool, job, l.dryRun); err != nil {
		closeAll()
		return nil, nil, err
	}
	id, err := pinIdentity(ctx, pool, client, l.dryRun)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	l.out.StripeAccount, l.looks.noSearch = id.AccountID, id.Country == "IN"
	a.newMeter()
	return l, closeAll, nil
}

func doReconcile(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	rebuild := c.Bool("rebuild")
	switch {
	case c.Bool("audit"):
		return doAudit(ctx, a, c)
	case auditOnly(a) != "":
		return nil, usagef("--%s is about an audit: type --audit too, or leave it out", auditOnly(a))
	case rebuild && c.String("period") == "":
		return nil, usagef("--rebuild needs --period: which month was restored?")
	case rebuild && !c.Bool("dry-run") && strings.TrimSpace(c.String("why")) == "":
		return nil, usagef("--rebuild needs --why: type the reason, such as --why \"restored a backup\"")
	}
	if _, err := periodIfGiven(c); err != nil {
		return nil, err
	}
	return a.measured(ctx, c, func(m *measurements) (*result, error) { return a.reconcile(ctx, c, rebuild, m) })
}

// auditOnly is the first flag that was typed and means nothing without --audit.
func auditOnly(a *app) string {
	for _, name := range []string{"payouts", "max-refunded", "max-disputed"} {
		if a.typed(name) {
			return name
		}
	}
	return ""
}

// measured does the work of a reconcile, and tells its metrics whatever came of it.
func (a *app) measured(ctx context.Context, c *cli.Context, do func(*measurements) (*result, error)) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	m, err := a.metricsOf(c, "reconcile", job)
	if err != nil {
		return nil, err
	}
	res, err := do(m)
	return m.tell(ctx, res, err), err
}

// reconcile looks at each period, and lets the metrics be read when it is through.
func (a *app) reconcile(ctx context.Context, c *cli.Context, rebuild bool, m *measurements) (*result, error) {
	l, done, err := startLooking(ctx, a, c)
	if err != nil {
		return nil, err
	}
	defer done()
	m.limitedBy(l.client.RateLimited)
	periods, err := l.periods(ctx)
	if err != nil {
		return l.out, err
	}
	defer func() { m.look(ctx, l.pool, periods...) }()
	for _, period := range periods {
		if err := l.period(ctx, period, rebuild); err != nil {
			l.a.meter.Load().close()
			return l.end(ctx, periods, err)
		}
	}
	l.a.meter.Load().close()
	return l.end(ctx, periods, nil)
}

// periods are the one that was named, or all that are open or need somebody.
func (l *looking) periods(ctx context.Context) ([]ledger.Period, error) {
	if l.c.String("period") == "" {
		return ledger.UnfinishedPeriods(ctx, l.pool, l.job)
	}
	period, err := periodOf(l.c)
	l.out.Period = string(period)
	return []ledger.Period{period}, err
}

// period looks at one period, owning it where that is possible: without, what is
// absent is left to its owner.
func (l *looking) period(ctx context.Context, period ledger.Period, rebuild bool) error {
	work := reconcile.Work{Period: period, Pending: true, Inside: true, Unsettled: true, Held: true, Rebuild: rebuild}
	run, err := ledger.ReadRun(ctx, l.pool, l.job, period)
	never := errors.Is(err, ledger.ErrNotFound)
	switch {
	case never && !rebuild:
		return usagef("%s of %s was never run: there is nothing to look up; after a restore, add --rebuild", period, l.job)
	case never:
		loc, err := zoneOf(l.c)
		if err != nil {
			return err
		}
		work.Horizon = ledger.HorizonOf(period.Start(loc))
	case err != nil:
		return err
	default:
		work.Horizon = run.Horizon()
	}
	if l.dryRun || run.State == ledger.RunDone && !rebuild {
		return l.look(ctx, work, func() {})
	}
	var before func(context.Context, pgx.Tx) error
	var unknown int64
	if rebuild {
		before = func(ctx context.Context, tx pgx.Tx) (err error) {
			unknown, err = ledger.Rebuild(ctx, tx, l.job, period, l.person, l.why)
			return err
		}
	}
	err = l.owning(ctx, work, before)
	if unknown > 0 {
		l.a.warn(l.out, "%d messages that waited may have been sent since the backup: billing outbox list --state dead; release or drop them", unknown)
	}
	var held *ledger.HeldError
	if errors.As(err, &held) && !rebuild {
		l.a.warn(l.out, "%s: what Stripe does not show is left to it", held)
		return l.look(ctx, work, func() {})
	}
	return err
}

// owning looks under the period's claim.
func (l *looking) owning(ctx context.Context, work reconcile.Work, before func(context.Context, pgx.Tx) error) error {
	return l.owningFor(ctx, work, before, l.look)
}

// owningFor does the work under the period's claim.
func (l *looking) owningFor(ctx context.Context, work reconcile.Work, before func(context.Context, pgx.Tx) error,
	look func(context.Context, reconcile.Work, func()) error,
) error {
	loc, err := zoneOf(l.c)
	if err != nil {
		return err
	}
	hold := billing.Hold{
		Pool: l.pool, Log: l.a.log, Before: before, ExitCode: func(err error) int { return classify(err).code },
		Request: ledger.ClaimRequest{
			Job: l.job, Period: work.Period, Owner: ownerOf(), Build: version, Lease: l.c.Duration("lease"), Timeout: claimTimeout, Location: loc,
			Outbox: l.outboxOf(work),
		},
	}
	return hold.While(ctx, func(ctx context.Context, run ledger.Run, alive func()) (ledger.Outcome, error) {
		l.a.owns(&run)
		defer l.a.owns(nil)
		work.Run, work.Horizon = &run, run.Horizon()
		before := l.report.total
		err := look(ctx, work, alive)
		return ledger.Outcome{
			Recorded: l.report.total.Recorded - before.Recorded, Settled: l.report.total.Settled - before.Settled, Renewed: l.report.total.Renewed - before.Renewed,
		}, err
	})
}

func (l *looking) look(ctx context.Context, work reconcile.Work, alive func()) error {
	opts := l.a.reconciler(l.pool, l.client, l.job, l.looks, l.outbox, alive)
	opts.DryRun, opts.Person, opts.Why, opts.Each = l.dryRun, l.person, l.why, l.report.line
	report, err := reconcile.New(l.pool, l.client.Finder(), opts).Look(ctx, work)
	l.report.add(work.Period, report)
	return err
}

// end writes the report; the exit code is what the ledger says, unless something
// more urgent went wrong.
func (l *looking) end(ctx context.Context, periods []ledger.Period, err error) (*result, error) {
	l.out.Settled, l.out.Renewed = l.report.total.Settled, l.report.total.Renewed
	readErr := ledger.InReadTx(context.WithoutCancel(ctx), l.pool, func(tx pgx.Tx) (err error) {
		if len(periods) == 0 {
			l.report.all, err = ledger.ReadPeriods(ctx, tx, l.job, 1000)
			return err
		}
		for _, period := range periods {
			s := standing{job: l.job, period: period, absentAfter: l.looks.absentAfter}
			if err := s.read(ctx, tx); err != nil {
				return err
			}
			l.report.standings = append(l.report.standings, s)
			l.out.addSums(s.summary.Sums)
			l.out.addFindings(s.findings)
			if s.run != nil && len(periods) == 1 {
				l.out.addRun(*s.run)
			}
		}
		return nil
	})
	l.out.Details = l.report.json()
	if err == nil {
		err = readErr
	}
	if writeErr := l.report.print(l.dryRun); writeErr != nil && err == nil {
		err = writeErr
	}
	if err != nil {
		return l.out, err
	}
	return l.out, l.report.verdict()
}
