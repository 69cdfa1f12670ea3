package main

import (
	"context"

	"github.com/urfave/cli/v2"
)

const doctorHelp = `Looks at everything that a run rests on: settings, Postgres, the view
billing.billable, the Stripe key, the clocks. One line for each check: ok, warn or
fail, what is wrong, and what to do. It writes nothing, sends nothing, and makes
every check whatever came of the others; none takes longer than five seconds. With
--json the checks are in details.

Example:
   billing doctor
   billing doctor --json

Exit codes, those that a run would end with: 0 nothing failed   64 a flag or
   setting   65 bad data   69 Postgres or Stripe unreachable   73 a folder
   77 key or role refused   78 configuration`

func (a *app) doctorCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "doctor", Usage: "look at everything that a run rests on", Description: doctorHelp,
		Flags: []cli.Flag{periodFlag()},
	}, examine)
}

// doctorJSON is what doctor adds to --json.
type doctorJSON struct {
	Checks []check `json:"checks"`
}

func examine(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	period, err := periodIfGiven(c)
	if err != nil {
		return nil, err
	}
	d := newDoctor(a, c, job, period)
	defer d.close()
	d.examine(ctx)
	out := &result{Job: string(job), Period: string(period), Details: doctorJSON{d.checks}}
	if d.stripe != nil {
		out.StripeAccount = d.stripe.AccountID
	}
	if d.client != nil {
		live := d.client.Livemode()
		out.Livemode = &live
	}
	if err := a.emit(d.text()); err != nil {
		return out, err
	}
	return out, d.verdict()
}
