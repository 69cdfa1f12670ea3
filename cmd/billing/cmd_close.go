package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const closeHelp = `Says that all invoices of a period are there, so that it may be run, and keeps
their count and sums. Closing again brings these up to date.

Example:
   billing close --period 2026-10

Exit codes: 0 closed   64 usage   65 the period has no invoices
   69 Postgres unreachable   78 configuration`

func (a *app) closeCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "close", Usage: "mark a period complete", Description: closeHelp,
		Flags: []cli.Flag{periodFlag(), byFlag(), dryRunFlag()},
	}, closePeriod)
}

func closePeriod(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job), Period: string(period)}
	var closed ledger.PeriodClose
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		shut := ledger.Close
		if c.Bool("dry-run") {
			shut = ledger.TryClose
		}
		if err := shut(ctx, tx, job, period, personOf(c)); err != nil {
			return err
		}
		if closed, err = ledger.ReadClose(ctx, tx, job, period); err != nil {
			return err
		}
		return unlessDry(c)
	})
	if errors.Is(err, errDryRun) {
		return out, a.emit(fmt.Sprintf("%s of %s would be closed: %s\nnothing was changed (dry run)\n", period, job, closeText(closed)))
	}
	if errors.Is(err, ledger.ErrNoInvoices) {
		return out, nothingToClose(ctx, pool, job, period)
	}
	if err != nil {
		return out, err
	}
	out.Details = closeToJSON(&closed)
	return out, a.emit(fmt.Sprintf("%s of %s is closed by %s since %s: %s\nnext: billing preview --period %s\n",
		period, job, clean(closed.ClosedBy), timeText(&closed.ClosedAt), closeText(closed), period))
}

func nothingToClose(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period) error {
	needed, err := ledger.NeedsClose(ctx, q)
	if err != nil {
		return err
	}
	if !needed {
		return inputError{fmt.Errorf("the view billing.billable reads tables of your own, so %s needs no close: billing preview --period %s", period, period)}
	}
	return inputError{fmt.Errorf("%s of %s has no invoices to close; bring them in: billing import invoices --period %s --file F", period, job, period)}
}

// closeJSON is who said that a period is complete, and what its invoices came to.
type closeJSON struct {
	By       string           `json:"by"`
	At       string           `json:"at"`
	Invoices int64            `json:"invoices"`
	Sums     []invoiceSumJSON `json:"sums"`
}

type invoiceSumJSON struct {
	Currency string `json:"currency"`
	Count    int64  `json:"count"`
	Amount   string `json:"amount"`
}

func closeToJSON(c *ledger.PeriodClose) *closeJSON {
	if c == nil {
		return nil
	}
	out := &closeJSON{By: c.ClosedBy, At: rfc3339(&c.ClosedAt), Invoices: c.Invoices}
	for _, s := range c.Sums {
		out.Sums = append(out.Sums, invoiceSumJSON{s.Currency, s.Count, moneyText(s.Amount.String(), s.Currency)})
	}
	return out
}

// closeText is what the invoices came to, in a line.
func closeText(c ledger.PeriodClose) string {
	parts := []string{plural(c.Invoices, "invoice", "invoices")}
	for _, s := range c.Sums {
		parts = append(parts, moneyText(s.Amount.String(), s.Currency)+" "+s.Currency)
	}
	return strings.Join(parts, ", ")
}

// closeOf reads the close of a period, nil if it is open.
func closeOf(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period) (*ledger.PeriodClose, error) {
	closed, err := ledger.ReadClose(ctx, q, job, period)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &closed, nil
}

// rfc3339 prints a moment for programs, "" for none.
func rfc3339(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
