package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

const importUsageHelp = `Reads a CSV file of usage, with a header, into billing.usage_events, as an application
would write it. Needed columns: id (or event_id, transaction_id), account_id, metric
(or code), quantity. Optional: occurred_at (or timestamp): 2026-10-01T06:00:00Z, or
seconds since 1970, which may have a fraction; without it the moment of arrival counts. A
time without an offset is refused, because it may be of any zone, unless --timezone
says which it is. Encoding, separators and other titles: docs/import.md.
All rows or none come in; the same file again adds nothing. billing meter counts them.

Example:
   billing import usage --file usage.csv --dry-run

Exit codes: 0 imported   64 usage   65 mistakes in the file, nothing was imported
   69 Postgres unreachable   74 the file can't be read   78 configuration`

// usageKind are files of events. The names of the columns are a public interface.
var usageKind = sheet.Kind{
	Columns: []sheet.Column{
		{Name: "id", Required: true, Also: []string{"event id", "transaction id", "idempotency key"}},
		{Name: "account_id", Required: true, Also: append([]string{"external customer id", "external subscription id"}, accountTitles...)},
		{Name: "metric", Required: true, Also: []string{"code", "event name", "meter"}},
		{Name: "quantity", Required: true, Also: []string{"value", "units"}},
		{Name: "occurred_at", Also: []string{"timestamp", "time", "event time"}},
	},
	Wrong: append([]sheet.Wrong{
		{What: "a file of invoices", Type: "billing import invoices --period P --file F", All: [][]string{{"account_id", "amount", "currency"}}},
		{What: "a file of accounts", Type: "billing import accounts --file F", All: [][]string{{"account_id", "stripe_customer"}, {"account_id", "payment_method"}}},
	}, notUsage(otherFiles)...),
}

// notUsage leaves out the files of usage: here they are what is asked for.
func notUsage(all []sheet.Wrong) (list []sheet.Wrong) {
	for _, w := range all {
		if w.What != "a file of usage" {
			list = append(list, w)
		}
	}
	return list
}

var usageHead = []string{"line", "id", "quantity", "metric", "account_id", "occurred_at"}

func (a *app) importUsageCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "usage", Usage: "what accounts used", Description: importUsageHelp,
		Flags: append(csvFlags(),
			&cli.StringFlag{Name: "timezone", Usage: "the zone of times that have none, such as Europe/Berlin", DefaultText: "such times are refused"},
			dryRunFlag()),
	}, importUsage)
}

func importUsage(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	opts, err := sheetOptions(c, usageKind)
	if err != nil {
		return nil, err
	}
	var zone *time.Location
	if c.String("timezone") != "" {
		if zone, err = zoneOf(c); err != nil {
			return nil, err
		}
	}
	in, err := a.openInput(c.String("file"))
	if err != nil {
		return nil, err
	}
	defer in.close()
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var done ledger.ImportedUsage
	var file *csvFile
	meter := a.newMeter()
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if file, err = reopenCSV(in, usageKind, opts, rowRules{}); err != nil {
			return err
		}
		parse := func(f *csvFile) ledger.UsageEvent { return parseUsage(f, zone) }
		if done, err = ledger.ImportUsage(ctx, tx, csvRows(file, parse, meter)); err != nil {
			return err
		}
		return unlessDry(c)
	})
	meter.close()
	dry := errors.Is(err, errDryRun)
	if err != nil && !dry {
		return nil, importError(in.name, "", err)
	}
	out := &result{Details: importedJSON{Rows: done.Rows, New: done.New, Unchanged: done.Unchanged, Read: file.Format()}}
	a.warnUnknown(out, done)
	text := a.readText(file, dry, usageHead) + importedText(in.name, "event", done.Imported)
	if dry {
		return out, a.emit(text + nothingDone)
	}
	return out, a.emit(text + "next: billing meter\n")
}

// warnUnknown says what a meter would set aside.
func (a *app) warnUnknown(out *result, done ledger.ImportedUsage) {
	if done.UnknownAccounts > 0 {
		a.warn(out, "%s of accounts that are not imported (%s): a meter sets them aside", plural(done.UnknownAccounts, "row is", "rows are"), shownList(done.UnknownAccountIDs))
	}
	if done.UnknownMetrics > 0 {
		a.warn(out, "%s of metrics that have no price (%s): a meter sets them aside", plural(done.UnknownMetrics, "row is", "rows are"), shownList(done.UnknownMetricIDs))
	}
}

func shownList(values []string) string {
	shown := make([]string, len(values))
	for i, v := range values {
		shown[i] = show(v)
	}
	return strings.Join(shown, ", ")
}
