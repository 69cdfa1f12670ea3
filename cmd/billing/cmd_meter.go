package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/metering"
	"github.com/chargeonce/billing/ledger"
)

const meterHelp = `Counts the usage that arrived in billing.usage_events since the last time, a day of the
billing time zone at a time, into billing.daily_usage. Each event counts once: copies
are left out, and what can't be counted is set aside for billing usage list. What is
of a month that is invoiced is carried to the next one. It may be stopped anywhere, and
several may run at once. Run it by the clock, and before billing invoice.

--rewind-to counts the days of everything received since then again, which changes
nothing if they are right. --settle keeps how long after its end a month is waited
for, for every later command. --moved is for a ledger that came to another cluster of
Postgres (restored from a dump, or upgraded): transaction ids began anew there. Where
they did not, it is refused.

Example:
   billing meter
   billing meter --rewind-to 2026-10-01
   billing meter --moved --why "restored from the dump of 3 November"

Exit codes: 0 counted   4 counted, and events were set aside that a person decides about
   64 usage   69 Postgres unreachable   77 refused   78 another time zone than that of
   the first meter, or another cluster of Postgres`

func (a *app) meterCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "meter", Usage: "count the usage that arrived", Description: meterHelp,
		Flags: []cli.Flag{
			zoneFlag(),
			&cli.StringFlag{Name: "rewind-to", Usage: "count again what was received since: a moment, a day, or beginning"},
			&cli.DurationFlag{Name: "settle", Usage: "wait so long after a month's end before it is complete; kept", DefaultText: "what is kept; 1h at first"},
			&cli.DurationFlag{Name: "future", Usage: "an event may be so far ahead of its arrival", Value: metering.DefaultFuture, EnvVars: []string{"BILLING_USAGE_FUTURE"}},
			&cli.DurationFlag{Name: "ancient", Usage: "an event may be so far behind its arrival", Value: metering.DefaultAncient, EnvVars: []string{"BILLING_USAGE_ANCIENT"}},
			&cli.BoolFlag{Name: "moved", Usage: "the ledger came to another cluster of Postgres"},
			whyFlag(), byFlag(), dryRunFlag(),
		},
	}, meterUsage)
}

func meterUsage(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	asked, err := a.meterRange(c)
	if err != nil {
		return nil, err
	}
	why := strings.TrimSpace(c.String("why"))
	if c.Bool("moved") && why == "" {
		return nil, usagef("--why is missing: type why the ledger is here and whole")
	}
	if !c.Bool("moved") && c.IsSet("why") {
		return nil, usagef("--why goes with --moved")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(asked.Job)}
	details := meterJSON{DryRun: c.Bool("dry-run"), SetAside: []reasonJSON{}, Carried: []carriedJSON{}}
	out.Details = &details
	text := ""
	if c.Bool("moved") {
		moved, err := moveUsage(ctx, pool, personOf(c), why, details.DryRun)
		if err != nil {
			return out, err
		}
		details.Moved, text = moved.Events, fmt.Sprintf("%s of another cluster of Postgres taken over\n", plural(moved.Events, "event", "events"))
		if details.DryRun {
			return out, a.emit(text + "nothing was changed (dry run)\n")
		}
	}
	meter := a.newMeter()
	asked.Progress = func(phase string, done, total int64) {
		meter.show(billing.Progress{Phase: phase, Done: done, Total: total})
	}
	work := metering.Meter{Pool: pool, Range: asked}
	run := work.Run
	if details.DryRun {
		run = work.Try
	}
	done, err := run(ctx)
	meter.close()
	if err != nil {
		return out, meterError(err)
	}
	details.fill(done)
	a.log.Info("counted", "through", details.Through, "settle", details.Settle, "time_zone", details.TimeZone, "rows", details.Rows)
	a.warnMeter(out, done)
	if err := a.emit(text + details.text()); err != nil {
		return out, err
	}
	return out, needsDecision(done)
}

// meterRange reads what is asked of a meter.
func (a *app) meterRange(c *cli.Context) (in ledger.MeterRange, err error) {
	if in.Job, err = jobOf(c); err != nil {
		return in, err
	}
	zone, err := zoneOf(c)
	if err != nil {
		return in, err
	}
	in.Zone, in.Future, in.Ancient = zone.String(), c.Duration("future"), c.Duration("ancient")
	if in.Future < 0 || in.Ancient < time.Hour {
		return in, usagef("--future %s, --ancient %s: want 0s or more, and 1h or more", in.Future, in.Ancient)
	}
	if c.IsSet("settle") {
		settle := c.Duration("settle")
		if settle < 0 || settle > ledger.MaxSettle {
			return in, usagef("--settle %s: want 0s to %s", settle, ledger.MaxSettle)
		}
		in.Settle = &settle
	}
	switch text := c.String("rewind-to"); text {
	case "":
	case "beginning":
		in.Beginning = true
	default:
		if in.RewindTo, err = momentOf(text, zone); err != nil {
			return in, usagef("--rewind-to %q: %w", text, err)
		}
	}
	return in, nil
}

// momentOf reads a moment with its offset, or a day of the zone.
func momentOf(text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	day, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		return day, errors.New("want a day such as 2026-10-01, a moment such as 2026-10-01T06:00:00Z, or beginning")
	}
	return day, nil
}

func moveUsage(ctx context.Context, pool *pgxpool.Pool, person, why string, dry bool) (moved ledger.MovedUsage, err error) {
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if moved, err = ledger.MoveUsage(ctx, tx, person, why); err != nil {
			return err
		}
		if dry {
			return errDryRun
		}
		return nil
	})
	switch {
	case errors.Is(err, errDryRun):
		err = nil
	case errors.Is(err, ledger.ErrNotMoved):
		err = usagef("%w; leave out --moved", err)
	}
	return moved, err
}

// meterError adds what to do to errors of settings.
func meterError(err error) error {
	var cluster *ledger.ClusterError
	var zone *ledger.ZoneError
	switch {
	case errors.As(err, &cluster):
		return configError{err, cluster.Hint()}
	case errors.As(err, &zone):
		return configError{err, zone.Hint()}
	}
	return err
}

// warnMeter says what people should know.
func (a *app) warnMeter(out *result, done metering.Result) {
	if done.Waiting {
		a.warn(out, "a transaction that began before others still runs, so that what was received since %s waits for the next meter",
			throughText(done.Watermark.Through))
	}
	for _, late := range done.Carried {
		a.warn(out, "%s of %s came after that month was invoiced, and %s in %s", plural(late.Count, "event", "events"), late.FromPeriod,
			map[bool]string{true: "is billed", false: "are billed"}[late.Count == 1], late.ToPeriod)
	}
}

func throughText(through *time.Time) string {
	if through == nil {
		return "the beginning"
	}
	return timeText(through)
}

// needsDecision is exit 4 if this meter set something aside.
func needsDecision(done metering.Result) error {
	n := done.SetAsideTotal()
	if n == 0 {
		return nil
	}
	return &billing.PersonError{
		Msg:  fmt.Sprintf("%s set aside and not counted", plural(n, "event is", "events are")),
		Hint: "billing usage list shows why; then billing usage release or drop", Code: "usage_set_aside",
	}
}
