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
)

const importAccountsHelp = `Reads a CSV file of accounts: UTF-8, separated by commas, with a header.
Needed columns: account_id, stripe_customer, payment_method, currency.
Optional: email, name, status (active or paused), card_expires (2027-08),
stripe_account. What an optional column says is kept if the file lacks it.
All rows or none come in; the same file again changes nothing.

Example:
   billing import accounts --file accounts.csv

Exit codes: 0 imported   64 usage   65 mistakes in the file, nothing was imported
   69 Postgres unreachable   74 the file can't be read   78 configuration`

const importInvoicesHelp = `Reads a CSV file of what accounts owe for a period: UTF-8, separated by commas,
with a header. Needed columns: account_id, amount (12.50), currency. Optional:
description, invoice_id. All rows or none come in; the same file again changes
nothing. A row that differs from an invoice that is there is refused without
--replace, and always if its charge is recorded: a correction is a line of the
next period. The period is marked closed unless --open is given.

Example:
   billing import invoices --period 2026-10 --file invoices.csv

Exit codes: 0 imported   64 usage   65 mistakes in the file, nothing was imported
   69 Postgres unreachable   74 the file can't be read   75 a run is at work on
   the period, come back later   78 configuration`

func (a *app) importCommand(code *int) *cli.Command {
	// A flag of urfave/cli remembers what it was given: each command has its own.
	file := func() cli.Flag {
		return &cli.StringFlag{Name: "file", Usage: "the CSV file, or - for stdin", EnvVars: []string{"BILLING_FILE"}}
	}
	return a.group(&cli.Command{
		Name: "import", Usage: "read accounts or invoices from CSV files",
		Subcommands: []*cli.Command{
			a.command(code, &cli.Command{
				Name: "accounts", Usage: "whom invoices are for", Description: importAccountsHelp,
				Flags: []cli.Flag{file(), dryRunFlag()},
			}, importAccounts),
			a.command(code, &cli.Command{
				Name: "invoices", Usage: "what accounts owe for a period", Description: importInvoicesHelp,
				Flags: []cli.Flag{
					periodFlag(), file(),
					&cli.BoolFlag{Name: "open", Usage: "more is to come: do not close the period", EnvVars: []string{"BILLING_OPEN"}},
					&cli.BoolFlag{Name: "replace", Usage: "change invoices that are not recorded as charges yet"},
					byFlag(), dryRunFlag(),
				},
			}, importInvoices),
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

// importedJSON is what an import adds to --json.
type importedJSON struct {
	Rows      int64      `json:"rows"`
	New       int64      `json:"new"`
	Changed   int64      `json:"changed"`
	Unchanged int64      `json:"unchanged"`
	Others    *int64     `json:"others,omitempty"` // invoices of the period that the file does not have
	Closed    *closeJSON `json:"closed,omitempty"`
}

func importAccounts(ctx context.Context, a *app, c *cli.Context) (*result, error) {
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
	var done ledger.Imported
	var file *csvFile
	meter := a.newMeter()
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if file, err = reopenCSV(in, accountColumns); err != nil {
			return err
		}
		if done, err = ledger.ImportAccounts(ctx, tx, csvRows(file, parseAccount, meter)); err != nil {
			return err
		}
		return unlessDry(c)
	})
	meter.close()
	text, err := afterDry(err, importedText(in.name, "account", done))
	if err != nil {
		return nil, importError(in.name, err)
	}
	out := &result{Details: importedJSON{Rows: done.Rows, New: done.New, Changed: done.Changed, Unchanged: done.Unchanged}}
	file.warn(a, out)
	return out, a.emit(text)
}

func importedText(name, noun string, done ledger.Imported) string {
	text := fmt.Sprintf("%s: %s, ", name, plural(done.Rows, noun, noun+"s"))
	if done.New+done.Changed == 0 {
		return text + "nothing changed\n"
	}
	return text + fmt.Sprintf("%d new, %d changed, %d unchanged\n", done.New, done.Changed, done.Unchanged)
}

func importInvoices(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	req := ledger.InvoiceImport{Replace: c.Bool("replace"), Open: c.Bool("open"), Try: c.Bool("dry-run"), Person: personOf(c)}
	var err error
	if req.Job, err = jobOf(c); err != nil {
		return nil, err
	}
	if req.Period, err = periodOf(c); err != nil {
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
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		if file, err = reopenCSV(in, invoiceColumns); err != nil {
			return err
		}
		if done, err = importInvoicesIn(ctx, tx, req, csvRows(file, parseInvoice, meter)); err != nil {
			return err
		}
		return unlessDry(c)
	})
	meter.close()
	out := &result{Job: string(req.Job), Period: string(req.Period)}
	dry := errors.Is(err, errDryRun)
	if err != nil && !dry {
		return out, importError(in.name, err)
	}
	out.Details = done.json()
	file.warn(a, out)
	if dry {
		return out, a.emit(importedText(in.name, "invoice", done.Imported) + "nothing was changed (dry run)\n")
	}
	done.warn(a, out, req)
	return out, a.emit(done.text(in.name, req))
}

// reopenCSV starts a file from its beginning.
func reopenCSV(in *input, columns []csvColumn) (*csvFile, error) {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, outputError{error: fmt.Errorf("read %s: %w", in.name, err)}
	}
	return openCSV(in.name, in, columns)
}

// importError says what an import refused in terms of the file.
func importError(name string, err error) error {
	var twice *ledger.DuplicateError
	var conflict *ledger.ConflictError
	switch {
	case errors.As(err, &twice):
		return inputError{duplicatesOf(name, twice)}
	case errors.As(err, &conflict) && conflict.Frozen > 0:
		// Classified by ErrInvoiceFrozen, which has a hint of its own.
		return fmt.Errorf("%w\n%w", ledger.ErrInvoiceFrozen, conflictsOf(name, conflict))
	case errors.As(err, &conflict):
		return inputError{conflictsOf(name, conflict)}
	}
	return err
}

func duplicatesOf(name string, err *ledger.DuplicateError) error {
	mistake := &fileErrors{name: name, total: int(err.Total)}
	for _, d := range err.List {
		lines := strings.Trim(strings.ReplaceAll(fmt.Sprint(d.Lines), " ", ", "), "[]")
		mistake.list = append(mistake.list, fmt.Sprintf("%s:%d: account_id %s stands in more than one row (lines %s): keep one of them",
			name, d.Lines[len(d.Lines)-1], show(d.AccountID), lines))
	}
	return mistake
}

func conflictsOf(name string, err *ledger.ConflictError) error {
	mistake := &fileErrors{name: name, what: "rows that differ from what is there", total: int(err.Frozen + err.Changed)}
	for _, d := range err.List {
		what := "to take the new one, add --replace"
		if d.Frozen() {
			what = fmt.Sprintf("its charge is recorded (%s), so it stays", d.State)
		}
		mistake.list = append(mistake.list, fmt.Sprintf("%s:%d: the invoice of account %s is %s, the file has %s: %s",
			name, d.Line, show(d.AccountID), oldInvoice(d), newInvoice(d), what))
	}
	return mistake
}

func oldInvoice(d ledger.InvoiceConflict) string {
	return invoiceText(d, d.OldAmount, d.OldCurrency, d.OldDescription, d.OldInvoiceID)
}

func newInvoice(d ledger.InvoiceConflict) string {
	return invoiceText(d, d.NewAmount, d.NewCurrency, d.NewDescription, d.NewInvoiceID)
}

// invoiceText shows the amount, and what else is not the same on both sides.
func invoiceText(d ledger.InvoiceConflict, amount, currency, description, invoiceID string) string {
	text := moneyText(amount, currency) + " " + currency
	if d.OldDescription != d.NewDescription {
		text += " " + show(description)
	}
	if d.OldInvoiceID != d.NewInvoiceID {
		text += " invoice_id " + show(invoiceID)
	}
	return text
}
