package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

const importAccountsHelp = `Reads a CSV file of accounts, with a header. Needed columns: account_id,
stripe_customer, payment_method, currency. Optional: email, name, status (active or
paused), card_expires (2027-08), stripe_account. What an optional column says is kept
if the file lacks it. Encoding, separators and other titles: docs/import.md.
All rows or none come in; the same file again changes nothing. Charges that are
recorded keep the customer and the card that they were recorded with.

Example:
   billing import accounts --file accounts.csv --dry-run

Exit codes: 0 imported   64 usage   65 mistakes in the file, nothing was imported
   69 Postgres unreachable   74 the file can't be read   78 configuration`

const importInvoicesHelp = `Reads a CSV file of what accounts owe for a period, with a header. Needed columns:
account_id, amount (12.50), currency. Optional: description, invoice_id, invoice_date,
period. Encoding, separators, decimal marks and other titles are found, and told:
docs/import.md. All rows or none come in; the same file again changes nothing. A row
that differs from an invoice that is there is refused without --replace, and always
if its charge is recorded: a correction is a line of the next period. Several rows
for one account are refused without --sum-lines. The period is marked closed unless
--open is given.

Example:
   billing import invoices --period 2026-10 --file invoices.csv --dry-run

Exit codes: 0 imported   64 usage   65 mistakes in the file, nothing was imported
   69 Postgres unreachable   74 the file can't be read   75 a run is at work on
   the period, come back later   78 configuration`

func (a *app) importCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "import", Usage: "read accounts, invoices, prices or usage from files",
		Subcommands: []*cli.Command{
			a.command(code, &cli.Command{
				Name: "accounts", Usage: "whom invoices are for", Description: importAccountsHelp,
				Flags: append(csvFlags(),
					&cli.BoolFlag{Name: "deactivate-missing", Usage: "pause the accounts that the file does not have"},
					dryRunFlag()),
			}, importAccounts),
			a.command(code, &cli.Command{
				Name: "invoices", Usage: "what accounts owe for a period", Description: importInvoicesHelp,
				Flags: append(append([]cli.Flag{periodFlag()}, csvFlags()...),
					&cli.StringFlag{Name: "decimal", Usage: "point or comma: the decimal mark of the amounts", DefaultText: "found in the file"},
					&cli.StringFlag{Name: "dates", Usage: "dmy or mdy: the order of 01/02/2026", DefaultText: "refused where it is not clear"},
					&cli.StringFlag{Name: "currency", Usage: "the currency of a file that has no column for it"},
					&cli.BoolFlag{Name: "open", Usage: "more is to come: do not close the period", EnvVars: []string{"BILLING_OPEN"}},
					&cli.BoolFlag{Name: "replace", Usage: "change invoices that are not recorded as charges yet"},
					&cli.BoolFlag{Name: "sum-lines", Usage: "add up the rows of each account"},
					&cli.BoolFlag{Name: "equal-lines", Usage: "with --sum-lines: rows of an account with one amount are its lines, and not its total again"},
					&cli.BoolFlag{Name: "keep-totals", Usage: "a row that looks like a total is an account"},
					&cli.BoolFlag{Name: "any-date", Usage: "take invoices whose date is of another month"},
					&cli.BoolFlag{Name: "same-ids", Usage: "take invoice ids that another period has too"},
					byFlag(), dryRunFlag()),
			}, importInvoices),
			a.importPricesCommand(code),
			a.importUsageCommand(code),
		},
	})
}

// group completes a command that only has subcommands.
func (a *app) group(cmd *cli.Command) *cli.Command {
	var names []string
	for _, sub := range cmd.Subcommands {
		names = append(names, cmd.Name+" "+sub.Name)
	}
	cmd.HideHelpCommand = true
	cmd.OnUsageError = badFlag
	cmd.Action = func(c *cli.Context) error {
		given := strings.TrimSpace("billing " + cmd.Name + " " + c.Args().First())
		return usagef("%s: want billing %s", given, strings.Join(names, " or billing "))
	}
	return cmd
}

func importAccounts(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	opts, err := sheetOptions(c, accountKind)
	if err != nil {
		return nil, err
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
	var done ledger.ImportedAccounts
	var file *csvFile
	meter := a.newMeter()
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if file, err = reopenCSV(in, accountKind, opts, rowRules{}); err != nil {
			return err
		}
		req := ledger.AccountImport{PauseMissing: c.Bool("deactivate-missing")}
		if done, err = ledger.ImportAccounts(ctx, tx, req, csvRows(file, parseAccount, meter)); err != nil {
			return err
		}
		return unlessDry(c)
	})
	meter.close()
	dry := errors.Is(err, errDryRun)
	if err != nil && !dry {
		return nil, importError(in.name, "", err)
	}
	out := &result{Details: accountsJSON(file, done)}
	file.warn(a, out)
	text := a.readText(file, dry, accountHead) + importedText(in.name, "account", done.Imported) + accountChangesText(done)
	if dry {
		text += nothingDone
	}
	return out, a.emit(text)
}

func importInvoices(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	req := ledger.InvoiceImport{Replace: c.Bool("replace"), Open: c.Bool("open"), Try: c.Bool("dry-run"), Person: personOf(c),
		SumLines: c.Bool("sum-lines"), EqualLines: c.Bool("equal-lines"), ReusedIDs: c.Bool("same-ids")}
	var err error
	if req.Job, err = jobOf(c); err != nil {
		return nil, err
	}
	if req.Period, err = periodOf(c); err != nil {
		return nil, err
	}
	opts, err := sheetOptions(c, invoiceKind)
	if err != nil {
		return nil, err
	}
	in, err := a.openInput(c.String("file"))
	if err != nil {
		return nil, err
	}
	defer in.close()
	req.Source = filepath.Base(in.name)
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var done importedInvoices
	var file *csvFile
	meter := a.newMeter()
	open := func() (func() (ledger.Invoice, error), error) {
		if file, err = reopenCSV(in, invoiceKind, opts, rowRules{req.Period, c.Bool("any-date")}); err != nil {
			return nil, err
		}
		return csvRows(file, parseInvoice, meter), nil
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if _, err := open(); err != nil {
			return err
		}
		req.TotalsRepeat = file.IsTotal("amount")
		if done, err = importInvoicesIn(ctx, tx, req, open); err != nil {
			return err
		}
		return unlessDry(c)
	})
	meter.close()
	out := &result{Job: string(req.Job), Period: string(req.Period)}
	dry := errors.Is(err, errDryRun)
	if err != nil && !dry {
		return out, importError(in.name, req.Period, err)
	}
	out.Details = done.json(file)
	file.warn(a, out)
	text := a.readText(file, dry, invoiceHead) + importedText(in.name, "invoice", done.Imported) + done.linesText()
	if dry {
		return out, a.emit(text + done.changesText() + done.sumsText(req.Period) + nothingDone)
	}
	done.warn(a, out, req)
	return out, a.emit(text + done.changesText() + done.text(req))
}

// reopenCSV starts a file from its beginning.
func reopenCSV(in *input, kind sheet.Kind, opts sheet.Options, rules rowRules) (*csvFile, error) {
	size, err := in.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, outputError{error: fmt.Errorf("read %s: %w", in.name, err)}
	}
	file, err := openCSV(in.name, in, kind, opts)
	if err != nil {
		return nil, err
	}
	file.size, file.rules = size, rules
	return file, nil
}
