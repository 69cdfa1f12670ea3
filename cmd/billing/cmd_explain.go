package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

const explainHelp = `Prints how an invoice from usage was computed, line by line, so that it can be
followed with a pocket calculator, and computes it again from daily usage and from the
prices that it was made with. It says whether both agree. It changes nothing.

Example:
   billing explain --account 4182 --period 2026-10

Exit codes: 0 they agree   4 they do not: what differs is listed   64 usage, or there is
   no such invoice from usage   69 Postgres unreachable   78 configuration`

func (a *app) explainCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "explain", Usage: "show and check how an invoice was computed", Description: explainHelp,
		Flags: debtFlags(),
	}, explainInvoice)
}

// explanationJSON is an invoice's arithmetic in --json. Numbers are text with all
// their digits.
type explanationJSON struct {
	AccountID   string            `json:"account_id"`
	Amount      string            `json:"amount"`
	Currency    string            `json:"currency"`
	State       string            `json:"state"` // the charge's, empty if there is none
	Lines       []invoiceLineJSON `json:"lines"`
	Prices      []usedPriceJSON   `json:"prices"`
	Agrees      bool              `json:"agrees"`
	Differences []string          `json:"differences"`
}

type invoiceLineJSON struct {
	Line       int    `json:"line"`
	Kind       string `json:"kind"`
	Metric     string `json:"metric"`
	FromPeriod string `json:"from_period"`
	Before     string `json:"before"`
	Quantity   string `json:"quantity"`
	Included   string `json:"included"`
	UnitPrice  string `json:"unit_price"`
	Arithmetic string `json:"arithmetic"`
	Exact      string `json:"exact"`
	Amount     string `json:"amount"`
}

type usedPriceJSON struct {
	ValidFrom  string `json:"valid_from"`
	Currency   string `json:"currency"`
	Version    int    `json:"version"`
	Source     string `json:"source"`
	ImportedAt string `json:"imported_at"`
}

func explainInvoice(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, account, err := debtOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var e billing.Explanation
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		e, err = billing.Explain(ctx, tx, job, period, account)
		return err
	})
	out := &result{Job: string(job), Period: string(period)}
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return out, usagef("account %s has no invoice for %s of %s; ids are compared byte for byte; to see what it would be: billing invoice --period %s --dry-run",
			show(account), period, job, period)
	case err != nil:
		return out, err
	case len(e.Lines) == 0:
		return out, usagef("the invoice of account %s for %s, %s, was imported from %s and not made from usage", show(account), period, amountText(e.Amount, e.Currency), show(e.Source))
	}
	out.Details = explanationToJSON(e)
	if err := a.emit(a.explanationText(e, period)); err != nil {
		return out, err
	}
	return out, explained(e, period)
}

// explained is an error if the ledger does not agree with itself.
func explained(e billing.Explanation, period ledger.Period) error {
	if len(e.Differences) == 0 {
		return nil
	}
	hint := fmt.Sprintf("its usage or prices changed, or somebody else's hand did; to make it anew: billing invoice --period %s", period)
	if e.State != "" {
		hint = "it is charged, and stays; find out who changed usage, prices or lines, past the program; a correction is a line of the next period"
	}
	return &billing.PersonError{Code: "explain_differs", Msg: fmt.Sprintf("the invoice of account %s for %s does not come to what its usage and prices do", show(e.AccountID), period), Hint: hint}
}

func explanationToJSON(e billing.Explanation) explanationJSON {
	out := explanationJSON{AccountID: e.AccountID, Amount: moneyText(e.Amount, e.Currency), Currency: e.Currency, State: string(e.State),
		Lines: []invoiceLineJSON{}, Prices: []usedPriceJSON{}, Agrees: len(e.Differences) == 0, Differences: append([]string{}, e.Differences...)}
	for _, l := range e.Lines {
		out.Lines = append(out.Lines, invoiceLineJSON{Line: l.Line, Kind: l.Kind, Metric: l.Metric, FromPeriod: string(l.FromPeriod), Before: l.Before, Quantity: l.Quantity,
			Included: l.Included, UnitPrice: l.UnitPrice, Arithmetic: billing.LineArithmetic(l), Exact: l.Exact, Amount: moneyText(l.Amount, l.Currency)})
	}
	for _, p := range e.Lists {
		out.Prices = append(out.Prices, usedPriceJSON{string(p.ValidFrom), p.Currency, p.Version, p.Source, rfc3339(&p.ImportedAt)})
	}
	return out
}

func (a *app) explanationText(e billing.Explanation, period ledger.Period) string {
	var b strings.Builder
	fmt.Fprintf(&b, "account %s, %s: %s\n", show(e.AccountID), period, amountText(e.Amount, e.Currency))
	t := a.newTable(table.Row{"line", "what", "arithmetic", "exact", "amount"}, 1, 4, 5)
	for _, l := range e.Lines {
		t.AppendRow(table.Row{l.Line, clean(billing.LineName(l)), billing.LineArithmetic(l), l.Exact, moneyText(l.Amount, l.Currency)})
	}
	t.AppendFooter(table.Row{"", "", "rounded once", "", moneyText(e.Amount, e.Currency)})
	b.WriteString(t.Render() + "\n")
	for _, p := range e.Lists {
		fmt.Fprintf(&b, "prices: %s from %s, version %d, of %s, imported %s\n", p.Currency, p.ValidFrom, p.Version, show(p.Source), timeText(&p.ImportedAt))
	}
	if e.State != "" {
		fmt.Fprintf(&b, "charged: %s, the charge is %s\n", amountText(e.Charged, e.ChargedCurrency), e.State)
	}
	for _, d := range e.Differences {
		fmt.Fprintf(&b, "differs: %s\n", clean(d))
	}
	if len(e.Differences) == 0 {
		b.WriteString("computed again from daily usage and these prices: it agrees\n")
	}
	return b.String()
}
