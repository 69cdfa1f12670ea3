package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const runHelp = `Records every charge of the period, sends those that are pending inside their
window, and finishes. Run it again at any moment: nobody is charged twice.

Example:
   billing run --period 2026-10 --yes

Without --period it is the month before --scheduled-at, or before now.
STRIPE_SECRET_KEY is the key; a live one needs BILLING_LIVE=true.

Exit codes:
   0 done, or done before   3 stopped by a guard     4 a person is needed
   64 usage   65 bad data   69 Postgres or Stripe could not be reached
   75 busy, or outcomes still unknown: run again   77 refused   78 configuration`

func (a *app) runCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name:        "run",
		Usage:       "charge the month",
		Description: runHelp,
		Flags: append([]cli.Flag{
			periodFlag(), zoneFlag(),
			&cli.StringFlag{Name: "scheduled-at", Usage: "when this run was due, RFC 3339; the period is the month before", EnvVars: []string{"BILLING_SCHEDULED_AT"}},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask", EnvVars: []string{"BILLING_YES"}},
			&cli.BoolFlag{Name: "dry-run", Usage: "the same as preview", EnvVars: []string{"BILLING_DRY_RUN"}},
			&cli.BoolFlag{Name: "early", Usage: "charge a period that has not ended", EnvVars: []string{"BILLING_EARLY"}},
			&cli.BoolFlag{Name: "allow-old", Usage: "charge a period that ended more than a year ago", EnvVars: []string{"BILLING_ALLOW_OLD"}},
			&cli.BoolFlag{Name: "unclosed", Usage: "charge a period that is not closed", EnvVars: []string{"BILLING_UNCLOSED"}},
			uninvoicedFlag(),
			&cli.BoolFlag{Name: "allow-empty", Usage: "a period without invoices is fine", EnvVars: []string{"BILLING_ALLOW_EMPTY"}},
			rateFlag(),
			&cli.StringFlag{Name: "concurrency", Usage: "charges under way at once, or auto", Value: "auto", EnvVars: []string{"BILLING_CONCURRENCY"}},
			&cli.DurationFlag{Name: "lease", Usage: "without a sign of life for this long another run may take over", Value: billing.DefaultLease, EnvVars: []string{"BILLING_LEASE"}},
			&cli.DurationFlag{Name: "wait", Usage: "how long to wait for another run", Value: billing.DefaultWait, EnvVars: []string{"BILLING_WAIT"}},
			onAbsentFlag("charge"), absentAfterFlag(), readRateFlag(),
			timeoutFlag(),
			&cli.IntFlag{Name: "canary", Usage: "send so many charges first, spread over currencies and amounts, and stop if they go badly", EnvVars: []string{"BILLING_CANARY"}, Category: "While it runs"},
			&cli.Float64Flag{Name: "canary-declines", Usage: "the share of the canary that may be declined", Value: billing.DefaultCanaryDeclines, EnvVars: []string{"BILLING_CANARY_DECLINES"}, Category: "While it runs"},
			&cli.Float64Flag{Name: "canary-failures", Usage: "the share of it that may be refused or unknown", Value: billing.DefaultCanaryFailures, EnvVars: []string{"BILLING_CANARY_FAILURES"}, Category: "While it runs"},
			&cli.Float64Flag{Name: "breaker", Usage: "the share of the last 200 sends that may be refused or unknown; 0 is any", Value: billing.DefaultBreaker, EnvVars: []string{"BILLING_BREAKER"}, Category: "While it runs"},
			&cli.BoolFlag{Name: "require-approval", Usage: "charge only a plan that somebody approved", EnvVars: []string{"BILLING_REQUIRE_APPROVAL"}, Category: "Gates"},
			&cli.Int64Flag{Name: "drift", Usage: "by how many accounts the plan may differ from the approved one", EnvVars: []string{"BILLING_DRIFT"}, Category: "Gates"},
		}, slices.Concat(limitFlags(), monitorFlags(), metricsFlags())...),
	}, doRun)
}

// maxCanary keeps a canary small: it is claimed by naming each charge.
const maxCanary = 1000

func doRun(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	opts, err := runOptions(c)
	if err != nil {
		return nil, err
	}
	watch, err := a.monitorOf(c)
	if err != nil {
		return nil, err
	}
	m, err := a.metricsOf(c, "run", opts.Job)
	if err != nil {
		return nil, err
	}
	res, err := a.openAndRun(ctx, c, opts, watch, m)
	return m.tell(ctx, res, err), err
}

// openAndRun opens what a run needs, and runs.
func (a *app) openAndRun(ctx context.Context, c *cli.Context, opts billing.Options, watch *monitor, m *measurements) (*result, error) {
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	defer func() { m.look(ctx, pool, opts.Period) }()
	if opts.Period == "" {
		if opts.Period, err = derivePeriod(ctx, c, pool, opts.Location); err != nil {
			return nil, err
		}
		a.log.Info("period derived", "period", opts.Period)
	}
	if c.Bool("dry-run") {
		return a.preview(ctx, pool, billing.PreviewOptions{Job: opts.Job, Period: opts.Period, Limits: opts.Limits, Uninvoiced: opts.Uninvoiced, Rate: opts.Rate, Timeout: opts.Timeout})
	}
	looks, err := lookOptionsOf(c)
	if err != nil {
		return nil, err
	}
	client, err := openGateway(a, max(opts.Concurrency, gateway.MaxConcurrency), looks.readRate)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := a.confirm(c, client, opts.Period); err != nil {
		return nil, err
	}
	m.limitedBy(client.RateLimited)
	if opts.Outbox, err = a.openOutbox(ctx, pool, opts.Job, false); err != nil {
		return nil, err
	}
	return a.runPeriod(ctx, pool, client, opts, looks, watch)
}

func (a *app) runPeriod(ctx context.Context, pool *pgxpool.Pool, client *gateway.Client, opts billing.Options, looks lookOptions, watch *monitor) (*result, error) {
	out := &result{Job: string(opts.Job), Period: string(opts.Period)}
	live := client.Livemode()
	out.Livemode, opts.Livemode = &live, live
	meter := a.newMeter()
	opts.Progress = meter.show
	opts.ExitCode = func(err error) int { return classify(err).code }
	opts.Claimed = func(run ledger.Run) {
		a.owns(&run)
		watch.start(run, live)
	}
	opts.Identify = func(ctx context.Context) error {
		id, err := pinIdentity(ctx, pool, client, false)
		out.StripeAccount, looks.noSearch = id.AccountID, looks.noSearch || id.Country == "IN"
		return err
	}
	opts.Settle = func(ctx context.Context, run *ledger.Run, alive func()) (billing.Settled, error) {
		return a.settle(ctx, pool, client, opts, looks, run, alive)
	}
	res, err := billing.NewRunner(pool, client, a.log, opts).Run(ctx)
	meter.close()
	res.Warnings = append(res.Warnings, watch.finish(ctx, res, endedBy(ctx, err))...)
	if res.Run.Attempt > 0 {
		out.addRun(res.Run)
	}
	out.addSums(res.Summary.Sums)
	out.addFindings(res.Findings)
	out.Sent, out.Settled, out.Renewed, out.Warnings = res.Sent, res.Settled, res.Renewed, res.Warnings
	if res.AlreadyDone {
		out.Outcome = "already_done"
	}
	if !a.json {
		a.printRun(res, opts.Period, client.Mode(), err)
	}
	return out, err
}

// printRun writes what a run came to, for people.
func (a *app) printRun(res billing.Result, period ledger.Period, mode string, err error) {
	for _, w := range res.Warnings {
		fmt.Fprintln(a.err, "warning:", w)
	}
	var held *ledger.HeldError
	if errors.As(err, &held) {
		return
	}
	if len(res.Summary.Sums) > 0 {
		a.printSums(res.Summary.Sums)
	}
	switch {
	case res.AlreadyDone:
		fmt.Fprintf(a.out, "period %s was done before; nothing was sent (%s mode)\n", period, mode)
	case res.Claimed:
		fmt.Fprintf(a.out, "period %s is %s: %d recorded, %d sent, %d settled by attempt %d (%s mode)\n",
			period, res.Run.State, res.Recorded, res.Sent, res.Settled, res.Run.Attempt, mode)
	}
}

func runOptions(c *cli.Context) (o billing.Options, err error) {
	if o.Job, err = jobOf(c); err != nil {
		return o, err
	}
	if o.Location, err = zoneOf(c); err != nil {
		return o, err
	}
	// An empty one is a variable that was not set, not a wish for a guess.
	if c.String("period") != "" || c.IsSet("period") {
		if o.Period, err = periodOf(c); err != nil {
			return o, err
		}
	}
	if text := c.String("concurrency"); text != "auto" {
		if o.Concurrency, err = strconv.Atoi(text); err != nil || o.Concurrency < 1 || o.Concurrency > gateway.MaxConcurrency {
			return o, usagef("--concurrency %q: want auto or a number from 1 to %d", text, gateway.MaxConcurrency)
		}
	}
	o.Early, o.Unclosed, o.AllowEmpty, o.AllowOld = c.Bool("early"), c.Bool("unclosed"), c.Bool("allow-empty"), c.Bool("allow-old")
	o.Uninvoiced = c.Bool("uninvoiced")
	o.Rate, o.Lease, o.Wait, o.Timeout = c.Float64("rate"), c.Duration("lease"), c.Duration("wait"), c.Duration("timeout")
	if o.Limits, err = limitsOf(c); err != nil {
		return o, err
	}
	o.Canary, o.CanaryDeclines, o.CanaryFailures, o.Breaker = c.Int("canary"), c.Float64("canary-declines"), c.Float64("canary-failures"), c.Float64("breaker")
	if o.Canary < 0 || o.Canary > maxCanary {
		return o, usagef("--canary %d: want 0 to %d charges", o.Canary, maxCanary)
	}
	for name, share := range map[string]float64{"canary-declines": o.CanaryDeclines, "canary-failures": o.CanaryFailures, "breaker": o.Breaker} {
		if !(share >= 0 && share <= 1) { // NaN is neither
			return o, usagef("--%s %v: want a share from 0 to 1", name, share)
		}
	}
	if o.RequireApproval, o.Drift = c.Bool("require-approval"), c.Int64("drift"); o.Drift < 0 {
		return o, usagef("--drift %d: want 0 or more accounts", o.Drift)
	}
	if o.ExpectMin = c.Int64("expect-min"); o.ExpectMin < 0 {
		return o, usagef("--expect-min %d: want 0 or more charges", o.ExpectMin)
	}
	o.SendsPerRun, o.Owner, o.Build = billing.DefaultSendsPerRun, ownerOf(), version
	switch {
	case o.Rate != 0 && !(o.Rate >= 0.1 && o.Rate <= 10_000): // NaN is neither
		return o, usagef("--rate %v: want charges a second from 0.1 to 10000, or 0 for no limit", o.Rate)
	case o.Rate != 0 && o.Rate*min(o.Lease, ledger.PermitLife).Seconds() < 3:
		// A charge may be sent for as long as the lease: at this pace it would
		// be over before its turn.
		return o, usagef("--rate %v is too slow for --lease %s: take a lease of 30s or more", o.Rate, o.Lease)
	case o.Lease < time.Second || o.Lease > time.Hour:
		return o, usagef("--lease %s: want 1s to 1h", o.Lease)
	case o.Wait < 0 || o.Wait > 24*time.Hour:
		return o, usagef("--wait %s: want 0s to 24h", o.Wait)
	case o.Timeout < time.Second || o.Timeout > 22*time.Hour:
		// Past its window a charge may not be sent anyway.
		return o, usagef("--timeout %s: want 1s to 22h", o.Timeout)
	}
	return o, nil
}

// confirm asks for the period to be typed before money moves; without a
// terminal it takes --yes.
func (a *app) confirm(c *cli.Context, client *gateway.Client, period ledger.Period) error {
	if c.Bool("yes") {
		return nil
	}
	if !isTTYReader(a.in) {
		return usagef("run moves money: without a terminal it needs --yes")
	}
	fmt.Fprintf(a.err, "This charges customers in %s mode. Type the period to go on (%s): ", client.Mode(), period)
	line, err := bufio.NewReader(io.LimitReader(a.in, 100)).ReadString('\n')
	if err != nil && line == "" {
		return usagef("nothing was typed; nothing was done")
	}
	if strings.TrimSpace(line) != string(period) {
		return usagef("%q is not %s; nothing was done", strings.TrimSpace(line), period)
	}
	return nil
}

func isTTYReader(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && isTTY(f)
}
