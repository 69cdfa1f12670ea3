package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

const importPricesHelp = `Reads a YAML file of prices: for each currency, and from a month on, a base fee, fees
of single accounts, and for each metric its unit price and the quantity of a month
that is included. docs/pricing.md has an example. Numbers are read digit by digit. All
lists or none come in; the same file again changes nothing, and lists that it does not
have stay valid. A list that charged invoices were made with is never changed: give
new prices a later valid_from. It may get further metrics.

Example:
   billing import prices --file prices.yaml --dry-run

Exit codes: 0 imported   64 usage   65 mistakes in the file, or charged invoices stand
   on a list that it changes: nothing was imported   69 Postgres unreachable
   74 the file can't be read   78 configuration`

func (a *app) importPricesCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "prices", Usage: "what usage costs", Description: importPricesHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "the YAML file, or - for stdin"},
			byFlag(), dryRunFlag(),
		},
	}, importPrices)
}

func importPrices(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	in, err := a.openInput(c.String("file"))
	if err != nil {
		return nil, err
	}
	defer in.close()
	req, err := readPrices(in)
	if err != nil {
		return nil, err
	}
	req.Person = personOf(c)
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var done ledger.ImportedPrices
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if done, err = ledger.ImportPrices(ctx, tx, req); err != nil {
			return err
		}
		return unlessDry(c)
	})
	dry := errors.Is(err, errDryRun)
	if err != nil && !dry {
		return nil, pricesError(in.name, err)
	}
	out := &result{Details: pricesImportedToJSON(done)}
	warnOfPrices(a, out, done)
	text := importedPricesText(in.name, done)
	if dry {
		text += nothingDone
	}
	return out, a.emit(text)
}

// readPrices reads and checks a file before anything is asked of Postgres.
func readPrices(in *input) (req ledger.PriceImport, err error) {
	data, err := io.ReadAll(io.LimitReader(in, pricing.MaxFileBytes+1))
	if err != nil {
		return req, outputError{error: fmt.Errorf("read %s: %w", in.name, err)}
	}
	rules := pricing.Rules{AccountID: ledger.CheckAccountID, Period: func(text string) error { _, err := ledger.ParsePeriod(text); return err }}
	lists, err := pricing.Parse(in.name, data, rules)
	if err != nil {
		return req, inputError{err}
	}
	req = ledger.PriceImport{Source: filepath.Base(in.name), Metrics: map[string]string{}}
	for _, l := range lists {
		req.Lists = append(req.Lists, ledger.NewPrices{ValidFrom: ledger.Period(l.ValidFrom), Currency: string(l.Currency), Content: l.Content()})
		for metric := range l.Metrics {
			if unit := l.Units[metric]; unit != "" || req.Metrics[metric] == "" {
				req.Metrics[metric] = unit
			}
		}
		for id := range l.Accounts {
			if !slices.Contains(req.Accounts, id) {
				req.Accounts = append(req.Accounts, id)
			}
		}
	}
	return req, nil
}

// pricesError says what was refused, and which month's list to write instead.
func pricesError(name string, err error) error {
	var frozen *ledger.PricesFrozenError
	if !errors.As(err, &frozen) {
		return err
	}
	m := &sheet.Mistakes{Name: name, What: "lists that charged invoices stand on"}
	last := map[string]ledger.Period{}
	for _, f := range frozen.List {
		last[f.Currency] = max(last[f.Currency], f.Period)
	}
	for _, f := range frozen.List {
		m.Add("list", "%s: the prices of %s from %s would change what %s of %s %s made with: give the new prices valid_from: %s or a later month; a correction is a line of the next period",
			name, f.Currency, f.ValidFrom, plural(f.Charges, "charged invoice", "charged invoices"), f.Period,
			map[bool]string{true: "was", false: "were"}[f.Charges == 1], last[f.Currency].Next())
	}
	return inputError{m}
}

// importedPricesJSON is what an import of prices adds to --json.
type importedPricesJSON struct {
	Lists   []importedListJSON `json:"lists"`
	Others  int64              `json:"others"`
	Metrics int64              `json:"metrics"`
	Stale   []stalePricesJSON  `json:"stale"`
}

type importedListJSON struct {
	ValidFrom string `json:"valid_from"`
	Currency  string `json:"currency"`
	Version   int    `json:"version"`
	Changed   bool   `json:"changed"`
}

type stalePricesJSON struct {
	Job      string `json:"job"`
	Period   string `json:"period"`
	Invoices int64  `json:"invoices"`
}

func pricesImportedToJSON(done ledger.ImportedPrices) importedPricesJSON {
	out := importedPricesJSON{Lists: []importedListJSON{}, Others: done.Others, Metrics: done.Metrics, Stale: []stalePricesJSON{}}
	for _, l := range done.Lists {
		out.Lists = append(out.Lists, importedListJSON{string(l.ValidFrom), l.Currency, l.Version, l.Changed})
	}
	for _, s := range done.Stale {
		out.Stale = append(out.Stale, stalePricesJSON{string(s.Job), string(s.Period), s.Invoices})
	}
	return out
}

func importedPricesText(name string, done ledger.ImportedPrices) string {
	var b strings.Builder
	added, changed := 0, 0
	for _, l := range done.Lists {
		switch {
		case l.Changed && l.Version == 1:
			added++
		case l.Changed:
			changed++
		}
	}
	fmt.Fprintf(&b, "%s: %s, ", name, plural(int64(len(done.Lists)), "price list", "price lists"))
	if added+changed == 0 {
		b.WriteString("nothing changed\n")
	} else {
		fmt.Fprintf(&b, "%d new, %d changed, %d unchanged\n", added, changed, len(done.Lists)-added-changed)
	}
	for _, l := range done.Lists {
		if l.Changed {
			fmt.Fprintf(&b, "  %s from %s, version %d\n", l.Currency, l.ValidFrom, l.Version)
		}
	}
	if done.Others > 0 {
		fmt.Fprintf(&b, "%s: not in this file\n", plural(done.Others, "other list stays valid", "other lists stay valid"))
	}
	return b.String()
}

// warnOfPrices says what may surprise later.
func warnOfPrices(a *app, out *result, done ledger.ImportedPrices) {
	if done.NoAccount > 0 {
		a.warn(out, "%s a fee of %s own and no account: %s", plural(done.NoAccount, "id has", "ids have"),
			map[bool]string{true: "its", false: "their"}[done.NoAccount == 1], shownIDs(done.NoAccountIDs, done.NoAccount))
	}
	for _, s := range done.Stale {
		a.warn(out, "%s of %s %s made with other prices: billing invoice --period %s", plural(s.Invoices, "invoice", "invoices"), s.Period,
			map[bool]string{true: "was", false: "were"}[s.Invoices == 1], s.Period)
	}
	if done.Known > 0 {
		a.warn(out, "%s set aside for a metric that is known now: billing usage release --reason unknown_metric --why \"priced\"",
			plural(done.Known, "event was", "events were"))
	}
}

// shownIDs names the first of some accounts.
func shownIDs(ids []string, all int64) string {
	var names []string
	for _, id := range ids {
		names = append(names, show(id))
	}
	if int64(len(names)) < all {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
