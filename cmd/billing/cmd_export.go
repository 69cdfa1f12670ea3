package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/reconcile/export"
)

const exportFormats = `
Formats are csv, jsonl (one object a line) and xlsx (numbers and dates as such; at
most 1,048,575 rows on a sheet). Amounts are in major units with the digits of their
currency, times are RFC 3339 in UTC. In CSV, text that a spreadsheet would run as a
formula gets an apostrophe in front; numbers, dates and ids are never touched. A
BILLING_FORMAT that is none of them is refused: type --format.

--output is a file, - for stdout, a folder, or s3://bucket/prefix. In the last two the
file is named by the period and appears together with a manifest: rows, sums, SHA-256.
A file appears whole or not at all; in a bucket nothing is ever replaced. In a folder,
the manifest of another export goes away when a file that it names changes.
`

const exportCodes = `
Exit codes: 0 written   64 usage   69 Postgres unreachable
   73 the file can't be created, or the bucket has another one of its name
   74 it can't be written; an old one is as it was   (also, without a message, when
   nobody reads the pipe any more)   77 the bucket refuses the key
   78 configuration`

const exportChargesHelp = `Writes every charge of a period, in the order of account ids, with the columns of
the view report_charges.
` + exportFormats + `
Examples:
   billing export charges --period 2026-10 --format csv --output charges.csv
   billing export charges --period 2026-10 --format xlsx --output exports/
   billing export charges --period 2026-10 --output s3://finance/billing --by-hash
` + exportCodes

const exportEventsHelp = `Writes every change of the charges of a period: when, from what to what, on what
evidence, by which run or person. By account, and then in the order of events.
` + exportFormats + `
Example:
   billing export events --period 2026-10 --format jsonl --output events.jsonl
` + exportCodes

func (a *app) exportCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "export", Usage: "write the ledger to files",
		Subcommands: []*cli.Command{
			a.command(code, &cli.Command{
				Name: "charges", Usage: "every charge of a period", Description: exportChargesHelp, Flags: exportFlags("-"),
			}, exports("charges", chargesFile)),
			a.command(code, &cli.Command{
				Name: "events", Usage: "every change of the charges of a period", Description: exportEventsHelp, Flags: exportFlags("-"),
			}, exports("events", eventsFile)),
			a.command(code, &cli.Command{
				Name: "journal", Usage: "a period as double entry, for the books", Description: exportJournalHelp, Flags: append(exportFlags("-"), chartFlag()),
			}, exports("journal", journalFile)),
			a.command(code, &cli.Command{
				Name: "month", Usage: "charges, events and journal of one moment, in a folder or a bucket", Description: exportMonthHelp,
				Flags: append(exportFlags(""), chartFlag()),
			}, exports("month", chargesFile, eventsFile, journalFile)),
		},
	})
}

// exportFlags are new ones for each command: a flag of urfave/cli remembers what it
// was given.
func exportFlags(output string) []cli.Flag {
	return []cli.Flag{
		periodFlag(),
		&cli.StringFlag{Name: "format", Usage: "csv, jsonl or xlsx", Value: "csv", EnvVars: []string{"BILLING_FORMAT"}},
		&cli.StringFlag{Name: "output", Usage: "the file, folder or s3://bucket/prefix to write to, or - for stdout", Value: output, EnvVars: []string{"BILLING_OUTPUT"}},
		&cli.BoolFlag{Name: "by-hash", Usage: "in a folder or a bucket: name the files by their content, too", EnvVars: []string{"BILLING_BY_HASH"}},
	}
}

// exports is the action of a command that writes some files of one moment.
func exports(what string, files ...exportFile) action {
	return func(ctx context.Context, a *app, c *cli.Context) (*result, error) {
		e, err := newExport(ctx, a, c, what, files)
		if err != nil {
			return nil, err
		}
		return e.do(ctx)
	}
}

var (
	chargesFile = exportFile{table: export.Charges, noun: [2]string{"charge", "charges"}, body: writeCharges}
	eventsFile  = exportFile{table: export.Events, noun: [2]string{"event", "events"}, body: writeEvents}
)
