package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

const usageReleaseHelp = `Lets events count that were set aside: in their own day, or, if its month is invoiced, in
a later one. An account or metric must be known by now; nan is never released. A
conflict that is released counts beside the event of the same id that arrived first:
drop it if it is a correction of that one. What it acts on is typed.

Example:
   billing usage release --reason unknown_account --why "acme is imported now"
   billing usage release --event 7f3a --why "a credit that was agreed on"

Exit codes: 0 released   4 some were not, because they still can't be counted
   64 usage, or nothing was chosen   69 Postgres unreachable   75 a meter is at work, or was
   broken off: run billing meter   77 refused   78 configuration, or another cluster of Postgres`

const usageDropHelp = `Gives events up that were set aside: they are never counted. Nothing is deleted, and
release --event or --arrival takes it back.

Example:
   billing usage drop --reason nan --why "a fault of the sensor"

Exit codes: 0 dropped   64 usage, or nothing was chosen   69 Postgres unreachable
   75 a meter is at work, or was broken off: run billing meter   77 refused
   78 configuration, or another cluster of Postgres`

func (a *app) usageCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "usage", Usage: "look after events of usage that were set aside",
		Subcommands: []*cli.Command{
			a.usageListCommand(code),
			a.command(code, &cli.Command{
				Name: "release", Usage: "count events that were set aside", Description: usageReleaseHelp,
				Flags: append(setAsideFlags(), allFlag("everything that is set aside and not decided"), whyFlag(), byFlag(), dryRunFlag()),
			}, usageRelease),
			a.command(code, &cli.Command{
				Name: "drop", Usage: "give events up that were set aside", Description: usageDropHelp,
				Flags: append(setAsideFlags(), allFlag("everything that is set aside and not decided"), whyFlag(), byFlag(), dryRunFlag()),
			}, usageDrop),
		},
	})
}

// setAsideFlags choose events. None has a variable: what is dropped must be typed.
func setAsideFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "reason", Usage: "only events set aside for this: " + strings.Join(ledger.UsageReasons, ", ") + "; may be repeated"},
		&cli.StringSliceFlag{Name: "event", Usage: "only events with this id; may be repeated"},
		&cli.Int64SliceFlag{Name: "arrival", Usage: "only this event, by its number in the list; may be repeated"},
		&cli.StringFlag{Name: "account", Usage: "only events of this account"},
	}
}

// setAsideAsked reads which events are meant.
func setAsideAsked(c *cli.Context, also ...string) (q ledger.SetAsideQuery, err error) {
	if q.Job, err = jobOf(c); err != nil {
		return q, err
	}
	may := append(slices.Clone(ledger.UsageReasons), also...)
	for _, reason := range c.StringSlice("reason") {
		if !slices.Contains(may, reason) {
			return q, usagef("--reason %q: want %s", reason, strings.Join(may, ", "))
		}
		q.Reasons = append(q.Reasons, reason)
	}
	if given := c.StringSlice("event"); len(given) > 0 {
		q.EventIDs = given
	}
	if given := c.Int64Slice("arrival"); len(given) > 0 {
		q.Arrivals = given
	}
	q.Account = c.String("account")
	return q, nil
}

// decidedJSON is what release and drop add to --json.
type decidedJSON struct {
	Events  int64         `json:"events"`
	Refused []reasonJSON  `json:"refused"`
	Carried []carriedJSON `json:"carried"`
	Days    int64         `json:"days"`
}

func usageRelease(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	return a.decideUsage(ctx, c, ledger.ReleaseUsage, "released")
}

func usageDrop(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	return a.decideUsage(ctx, c, ledger.DropUsage, "dropped")
}

type decide func(ctx context.Context, tx pgx.Tx, q ledger.SetAsideQuery, person, why string) (ledger.DecidedUsage, error)

func (a *app) decideUsage(ctx context.Context, c *cli.Context, do decide, verb string) (*result, error) {
	q, err := setAsideAsked(c)
	why := strings.TrimSpace(c.String("why"))
	chosen := q.Reasons != nil || q.EventIDs != nil || q.Arrivals != nil || q.Account != ""
	switch {
	case err != nil:
		return nil, err
	case why == "":
		return nil, usagef("--why is missing: type the reason")
	case !chosen && !c.Bool("all"):
		return nil, usagef("which events? choose by --event, --arrival, --reason or --account, or type --all")
	case chosen && c.Bool("all"):
		return nil, usagef("--all is everything: leave out the other choice, or --all")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(q.Job)}
	var done ledger.DecidedUsage
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		if done, err = do(ctx, tx, q, personOf(c), why); err != nil {
			return err
		}
		return unlessDry(c)
	})
	text, err := afterDry(err, decidedText(done, verb))
	if err != nil {
		return out, meterError(err)
	}
	details := decidedJSON{Events: done.Events, Refused: []reasonJSON{}, Carried: []carriedJSON{}, Days: done.Days}
	for _, r := range done.Refused {
		details.Refused = append(details.Refused, reasonJSON{r.Reason, r.Count})
	}
	for _, late := range done.Carried {
		details.Carried = append(details.Carried, carriedJSON{string(late.FromPeriod), string(late.ToPeriod), late.Count})
	}
	out.Details = details
	if done.Events == 0 && len(done.Refused) == 0 {
		return out, usagef("no event that can be %s was chosen; billing usage list shows them", verb)
	}
	if done.Conflicts > 0 {
		a.warn(out, "%s beside the event of the same id that arrived first", plural(done.Conflicts, "conflict counts", "conflicts count"))
	}
	if err := a.emit(text); err != nil {
		return out, err
	}
	return out, stillRefused(done)
}

func decidedText(done ledger.DecidedUsage, verb string) string {
	text := plural(done.Events, "event ", "events ") + verb + "\n"
	for _, r := range done.Refused {
		text += fmt.Sprintf("not %s: %d %s\n", verb, r.Count, r.Reason)
	}
	for _, late := range done.Carried {
		text += fmt.Sprintf("late: %d of %s, carried to %s\n", late.Count, late.FromPeriod, late.ToPeriod)
	}
	if done.Days > 0 {
		text += plural(done.Days, "day", "days") + " counted anew\n"
	}
	return text
}

// stillRefused is exit 4 if some events can't be counted yet. What no month or sum can hold
// can only be given up; an account or a metric can be made known.
func stillRefused(done ledger.DecidedUsage) error {
	var n int64
	var hints []string
	for _, r := range done.Refused {
		n += r.Count
		hint := "what is no number, too large, or of no month that can be billed never counts: billing usage drop"
		switch r.Reason {
		case ledger.ReasonUnknownAccount:
			hint = "billing import accounts, and release again, or: billing usage drop"
		case ledger.ReasonUnknownMetric:
			hint = "price the metric (billing import prices) and release again, or: billing usage drop"
		}
		if !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	if n == 0 {
		return nil
	}
	return &billing.PersonError{
		Msg:  plural(n, "event was not released: it still can't be counted", "events were not released: they still can't be counted"),
		Hint: strings.Join(hints, "; "),
		Code: "usage_not_released",
	}
}
