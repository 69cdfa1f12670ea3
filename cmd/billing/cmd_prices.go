package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
)

const pricesListHelp = `Lists the price lists: from which month each is valid, in which currency, its version,
and where it came from. With --period only those that count in that month.

Example:
   billing prices list --period 2026-10

Exit codes: 0 listed   64 usage   69 Postgres unreachable   78 configuration`

func (a *app) pricesCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "prices", Usage: "see what usage costs",
		Subcommands: []*cli.Command{
			a.command(code, &cli.Command{
				Name: "list", Usage: "list the price lists", Description: pricesListHelp,
				Flags: []cli.Flag{&cli.StringFlag{Name: "period", Usage: "only what counts in this month, such as 2026-10"}},
			}, listPrices),
		},
	})
}

// priceListJSON is a price list in --json; prices are as import prices keeps them.
type priceListJSON struct {
	ValidFrom  string `json:"valid_from"`
	Currency   string `json:"currency"`
	Version    int    `json:"version"`
	Source     string `json:"source"`
	ImportedBy string `json:"imported_by"`
	ImportedAt string `json:"imported_at"`
	BaseFee    string `json:"base_fee"`
	Accounts   int    `json:"accounts"`
	Metrics    int    `json:"metrics"`
}

func listPrices(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	period, err := periodIfGiven(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var lists []ledger.PriceList
	if period == "" {
		lists, err = ledger.ReadPrices(ctx, pool)
	} else {
		lists, err = ledger.ReadPricesOf(ctx, pool, period)
	}
	if err != nil {
		return nil, err
	}
	out := &result{Period: string(period)}
	details := []priceListJSON{}
	t := a.newTable(table.Row{"valid from", "currency", "version", "base fee", "accounts", "metrics", "file", "imported", "by"}, 3, 4, 5, 6)
	for _, l := range lists {
		content, err := pricing.ReadContent(l.Content)
		if err != nil {
			return out, err
		}
		d := priceListJSON{ValidFrom: string(l.ValidFrom), Currency: l.Currency, Version: l.Version, Source: l.Source, ImportedBy: l.ImportedBy,
			ImportedAt: rfc3339(&l.ImportedAt), BaseFee: moneyText(content.BaseFee.String(), l.Currency), Accounts: len(content.Accounts), Metrics: len(content.Metrics)}
		details = append(details, d)
		t.AppendRow(table.Row{d.ValidFrom, d.Currency, d.Version, d.BaseFee, d.Accounts, d.Metrics, clean(l.Source), timeText(&l.ImportedAt), clean(l.ImportedBy)})
	}
	out.Details = details
	if len(lists) == 0 {
		return out, a.emit("there are no prices; bring them in: billing import prices --file F\n")
	}
	return out, a.emit(t.Render() + "\n")
}
