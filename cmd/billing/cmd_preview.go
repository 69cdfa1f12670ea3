package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
	"github.com/chargeonce/billing/reconcile/export"
)

const previewHelp = `Shows what a run of the period would do: the same decisions, on one read-only
snapshot; what is odd beside the last period; whether the gates would stop it; how
long it takes. Nothing is written and nothing is sent; no Stripe key is needed.

Examples:
   billing preview --period 2026-10
   billing preview --period 2026-10 --format csv --output preview.csv   # every account

Exit codes: 0 shown   64 usage   65 bad data   69 Postgres unreachable
   73 / 74 a file could not be written   78 configuration`

func (a *app) previewCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "preview", Usage: "show what a run would charge, and what is odd about it", Description: previewHelp,
		Flags: append([]cli.Flag{
			periodFlag(), formatFlag(),
			&cli.StringFlag{Name: "output", Usage: "the file for --format csv, or - for stdout", Value: "-", EnvVars: []string{"BILLING_OUTPUT"}},
			rateFlag(), timeoutFlag(), uninvoicedFlag(),
		}, limitFlags()...),
	}, func(ctx context.Context, a *app, c *cli.Context) (*result, error) {
		job, period, err := jobAndPeriodOf(c)
		if err != nil {
			return nil, err
		}
		format, err := a.formatOf(c, "table", "csv")
		if err != nil {
			return nil, err
		}
		output := c.String("output")
		switch {
		case format == "csv" && output == "-" && a.json:
			return nil, usagef("--json and the list would both go to stdout: name a file with --output")
		case format == "table" && a.typed("output") && output != "-":
			return nil, usagef("--output needs --format csv")
		}
		opts, err := previewOptions(c, job, period)
		if err != nil {
			return nil, err
		}
		pool, err := openLedger(ctx, c)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		if format == "csv" {
			return a.previewCSV(ctx, pool, opts, output)
		}
		return a.preview(ctx, pool, opts)
	})
}

func rateFlag() cli.Flag {
	return &cli.Float64Flag{Name: "rate", Usage: "charges a second at most; 0 is unlimited", Value: billing.DefaultRate, EnvVars: []string{"BILLING_RATE"}}
}

func uninvoicedFlag() cli.Flag {
	return &cli.BoolFlag{Name: "uninvoiced", Usage: "charge a period with usage that is not invoiced", EnvVars: []string{"BILLING_UNINVOICED"}}
}

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "how long this run may take", Value: billing.DefaultTimeout, EnvVars: []string{"BILLING_TIMEOUT"}}
}

// previewOptions reads what a preview shares with the run that follows.
func previewOptions(c *cli.Context, job ledger.Job, period ledger.Period) (billing.PreviewOptions, error) {
	limits, err := limitsOf(c)
	return billing.PreviewOptions{Job: job, Period: period, Limits: limits, Uninvoiced: c.Bool("uninvoiced"), Rate: c.Float64("rate"), Timeout: c.Duration("timeout")}, err
}

func (a *app) preview(ctx context.Context, pool *pgxpool.Pool, opts billing.PreviewOptions) (*result, error) {
	meter := a.newMeter()
	opts.Progress = func(rows int64) { meter.show(billing.Progress{Phase: "preview", Done: rows}) }
	v, err := billing.NewPreview(ctx, pool, opts)
	meter.close()
	if err != nil {
		return nil, err
	}
	out := previewResult(opts, v)
	return out, a.emit(a.previewText(opts.Period, v))
}

func previewResult(opts billing.PreviewOptions, v billing.Preview) *result {
	out := &result{Job: string(opts.Job), Period: string(opts.Period), Outcome: "preview", Plan: v.Plan.Hash, Details: previewToJSON(v)}
	out.addSums(v.Plan.Sums)
	return out
}

// previewCSV writes a line for every account of this period and of the last one.
func (a *app) previewCSV(ctx context.Context, pool *pgxpool.Pool, opts billing.PreviewOptions, output string) (*result, error) {
	var v billing.Preview
	rows := int64(0)
	err := a.writeOutput(output, func(w io.Writer) error {
		to := csv.NewWriter(w)
		if err := to.Write(previewColumns); err != nil {
			return err
		}
		opts.Each = func(r billing.PreviewRow) error {
			rows++
			return to.Write(previewCells(r))
		}
		var err error
		if v, err = billing.NewPreview(ctx, pool, opts); err != nil {
			return err
		}
		to.Flush()
		return to.Error()
	})
	if err != nil {
		return nil, err
	}
	out := previewResult(opts, v)
	if output == "-" {
		return out, nil
	}
	return out, a.emit(fmt.Sprintf("%s: %s, plan %s\n", output, plural(rows, "account", "accounts"), v.Plan.Hash))
}

var previewColumns = []string{"account_id", "name", "todo", "reason", "state", "currency", "amount", "last_amount", "last_currency", "change", "stripe_customer", "payment_method"}

func previewCells(r billing.PreviewRow) []string {
	return []string{
		r.AccountID, export.Disarm(r.Name), r.Todo, r.Reason, string(r.State), r.Currency, minorText(r.Minor, r.Currency),
		minorText(r.LastMinor, r.LastCurrency), r.LastCurrency, r.Change, r.StripeCustomer, r.Pay,
	}
}

// minorText writes minor units in major ones, and nothing for nothing.
func minorText(minor int64, currency string) string {
	c := money.Currency(currency)
	if minor == 0 || !c.Known() {
		return ""
	}
	return money.FormatMinor(minor, c)
}

// previewJSON is what preview adds to --json.
type previewJSON struct {
	Todo         []chargeJSON        `json:"todo"`        // what a run would record now
	Recorded     []chargeJSON        `json:"recorded"`    // what the ledger has already
	PastWindow   int64               `json:"past_window"` // of these, pending ones that only a look at Stripe settles
	Last         string              `json:"last_period,omitempty"`
	Currencies   []currencyJSON      `json:"currencies"`
	Accounts     map[string]int64    `json:"accounts"` // new, gone, up, down, same, moved, jumped
	Largest      []accountChangeJSON `json:"largest"`
	Steepest     []accountChangeJSON `json:"steepest"`
	Gates        []gateJSON          `json:"gates"` // those that would stop the run
	ApprovedPlan string              `json:"approved_plan,omitempty"`
	ApprovedBy   string              `json:"approved_by,omitempty"`
	ExpiredCards int64               `json:"expired_cards"`
	Pauses       []pauseJSON         `json:"pauses"` // what is not sent, although it counts below
	Sends        int64               `json:"sends"`
	TakesSeconds int64               `json:"takes_seconds"`
	Fits         bool                `json:"fits"`
}

type currencyJSON struct {
	Currency    string `json:"currency"`
	Count       int64  `json:"count"`
	Amount      string `json:"amount"`
	LastCount   int64  `json:"last_count"`
	LastAmount  string `json:"last_amount"`
	AmountMinor int64  `json:"amount_minor"`
	LastMinor   int64  `json:"last_amount_minor"`
}

type accountChangeJSON struct {
	AccountID  string `json:"account_id"`
	Currency   string `json:"currency"`
	Amount     string `json:"amount"`
	LastAmount string `json:"last_amount"`
}

type gateJSON struct {
	Gate    string `json:"gate"`
	Message string `json:"message"`
	Flag    string `json:"flag"`
}

func previewToJSON(v billing.Preview) previewJSON {
	out := previewJSON{
		Last: string(v.Last), Currencies: []currencyJSON{}, Largest: changesJSON(v.Largest), Steepest: changesJSON(v.Steepest), Gates: []gateJSON{},
		Accounts: map[string]int64{"new": v.New, "gone": v.Gone, "up": v.Up, "down": v.Down, "same": v.Same, "moved": v.Moved, "jumped": v.Jumped},
		Pauses:   pausesToJSON(v.Pauses), Sends: v.Sends, TakesSeconds: int64(v.Takes / time.Second), Fits: v.Fits, ExpiredCards: v.ExpiredCards,
	}
	out.Todo, out.Recorded, out.PastWindow = sumsJSON(v.Todo), sumsJSON(v.Summary.Sums), v.Summary.Expired
	for _, c := range v.Currencies {
		out.Currencies = append(out.Currencies, currencyJSON{
			c.Currency, c.Count, minorText(c.Minor, c.Currency), c.LastCount, minorText(c.LastMinor, c.Currency), c.Minor, c.LastMinor,
		})
	}
	for _, g := range v.Violations {
		out.Gates = append(out.Gates, gateJSON{g.Gate, g.Msg, g.Typed()})
	}
	if v.Approval != nil {
		out.ApprovedPlan, out.ApprovedBy = v.Approval.Plan, v.Approval.ApprovedBy
	}
	return out
}

func sumsJSON(sums []ledger.StateSum) []chargeJSON {
	of := result{Charges: []chargeJSON{}}
	of.addSums(sums)
	return of.Charges
}

func changesJSON(list []billing.AccountChange) []accountChangeJSON {
	out := []accountChangeJSON{}
	for _, c := range list {
		out = append(out, accountChangeJSON{c.AccountID, c.Currency, minorText(c.Minor, c.Currency), minorText(c.LastMinor, c.Currency)})
	}
	return out
}
