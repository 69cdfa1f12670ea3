package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

const invoiceHelp = `Turns a month's usage into invoices, by the prices that are valid in it, and closes
the period. It refuses until all usage of the month is counted: until a meter has
counted what was received up to the month's end and the settle delay after it. What
was late for an earlier month is a line of this one. Run it again whenever something
was mended: invoices that are not charged follow, charged ones stay as they are.
Accounts with a problem (no price, an imported invoice in the way) are listed with
what to do; the others are invoiced, and the period is not closed until all are.
With its first invoice the month's usage is frozen: what is counted later is late,
and an account that joins later owes no base fee for it.

Example:
   billing invoice --period 2026-10 --dry-run

Exit codes: 0 invoiced and closed   3 usage is not complete yet, or the month ended
   more than a year ago; nothing was changed
   4 invoiced, and accounts with a problem need a person, or a charged invoice would
   be another today   64 usage   65 nobody owes anything   69 Postgres unreachable
   75 a run is at work on the period, come back later   78 configuration`

func (a *app) invoiceCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "invoice", Usage: "turn a month's usage into invoices", Description: invoiceHelp,
		Flags: []cli.Flag{
			periodFlag(),
			&cli.BoolFlag{Name: "replace", Usage: "take the place of imported invoices that are not recorded as charges yet"},
			&cli.BoolFlag{Name: "allow-old", Usage: "invoice a period that ended more than a year ago", EnvVars: []string{"BILLING_ALLOW_OLD"}},
			byFlag(), dryRunFlag(),
		},
	}, invoiceUsage)
}

// invoicedUsage is what invoices from usage came to, with what only the database
// knows about them.
type invoicedUsage struct {
	ledger.UsageInvoices
	close        *ledger.PeriodClose
	usesInvoices bool
}

func invoiceUsage(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	req := ledger.UsageInvoicing{Job: job, Period: period, Person: personOf(c), Replace: c.Bool("replace"), AllowOld: c.Bool("allow-old"), Try: c.Bool("dry-run")}
	out := &result{Job: string(job), Period: string(period)}
	var done invoicedUsage
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		if done, err = invoiceUsageIn(ctx, tx, req); err != nil {
			return err
		}
		return unlessDry(c)
	})
	dry := errors.Is(err, errDryRun)
	switch {
	case errors.Is(err, ledger.ErrNoInvoices):
		return out, inputError{fmt.Errorf("nobody owes anything for %s: there is no usage, and no base fee in the prices of that month: billing prices list --period %s", period, period)}
	case err != nil && !dry:
		return out, meterError(err)
	}
	out.Details = usageInvoicesToJSON(done)
	done.warn(a, out, req)
	if err := a.emit(done.text(req)); err != nil {
		return out, err
	}
	return out, done.verdict(period)
}

func invoiceUsageIn(ctx context.Context, tx pgx.Tx, req ledger.UsageInvoicing) (done invoicedUsage, err error) {
	if err = ofOneJob(ctx, tx, req); err != nil {
		return done, err
	}
	if done.UsageInvoices, err = billing.InvoiceUsage(ctx, tx, req); err != nil {
		return done, err
	}
	if done.usesInvoices, err = ledger.NeedsClose(ctx, tx); err != nil {
		return done, err
	}
	done.close, err = closeOf(ctx, tx, req.Job, req.Period)
	return done, err
}

// verdict is what is left for a person, nil if nothing is.
func (d invoicedUsage) verdict(period ledger.Period) error {
	if d.ProblemCount > 0 {
		return &billing.PersonError{Code: "accounts_not_invoiced",
			Msg:  fmt.Sprintf("%s of %s could not be invoiced", plural(d.ProblemCount, "account", "accounts"), period),
			Hint: fmt.Sprintf("mend what is listed, then again: billing invoice --period %s", period)}
	}
	if d.Frozen > 0 {
		return &billing.PersonError{Code: "charged_otherwise",
			Msg:  fmt.Sprintf("%s of %s would be over another amount today, and stay as charged", plural(d.Frozen, "invoice", "invoices"), period),
			Hint: "a correction is a line of the next period"}
	}
	return nil
}
