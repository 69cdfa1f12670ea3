package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
	"github.com/chargeonce/billing/reconcile/export"
)

const exportJournalHelp = `Writes the period as double entry, for the books: what was invoiced, withdrawn and
paid by day and currency, from the charges; and from the last complete audit what
Stripe's balance has of it: fees, refunds, disputes, conversion, what is not booked
yet, and what the ledger and Stripe do not agree on. Each entry and each currency
comes to zero, and the journal to the audit's sums: if the ledger changed since, it
is refused until the next audit. Without an audit only the charges are in it.

A journal replaces the earlier one of its period: reverse that one first, or take only
entries whose key is new or whose amounts changed, and reverse those whose key is gone.
Entry numbers may change.

The accounts are receivable, revenue, tax (if the view billable has a column tax,
which must keep a month's tax as it was; a refund carries none), cash, fees, refunds,
disputes, transit, conversion and suspense; --chart names them.
` + exportFormats + `
Examples:
   billing reconcile --audit --period 2026-10
   billing export journal --period 2026-10 --chart cash=1360,revenue=8400 --output journal.csv

Exit codes: 0 written   3 the ledger is not what the last audit saw   64 usage
   65 the view has tax that can't be   69 Postgres unreachable
   73 / 74 the file can't be created / written   77 the bucket refuses the key   78 configuration`

const exportMonthHelp = `Writes charges, events and journal of a period into a folder or a bucket, from one
moment of the ledger, with one manifest for all of them. The manifest appears last
and goes first: who finds one finds the files that it names.
` + exportFormats + `
Example:
   billing export month --period 2026-10 --output exports/
` + exportCodes + `
   3 the ledger is not what the last audit saw   65 the view has tax that can't be`

func chartFlag() cli.Flag {
	return &cli.StringFlag{Name: "chart", Usage: "what the books call the accounts, such as receivable=1400,revenue=8400", EnvVars: []string{"BILLING_CHART"}}
}

var journalFile = exportFile{table: export.Journal, noun: [2]string{"line", "lines"}, body: writeJournal}

func writeJournal(ctx context.Context, e *exporting, tx pgx.Tx, to export.Encoder) (content export.Content, err error) {
	bookings, err := ledger.Bookings(ctx, tx, e.job, e.period)
	var tax *ledger.TaxError
	if errors.As(err, &tax) {
		return content, inputError{err}
	}
	if err != nil {
		return content, err
	}
	day, steps, err := e.audited(ctx, tx)
	if err != nil {
		return content, err
	}
	entries := export.BookEntries(bookings, day, steps)
	if steps != nil {
		var untied *export.TieError
		if err := export.Tie(entries, steps); errors.As(err, &untied) {
			return content, &billing.StoppedError{
				Gate: "not_audited", Msg: untied.Error() + ": the ledger changed since",
				Hint: fmt.Sprintf("type: billing reconcile --audit --period %s, and export again", e.period),
			}
		}
	}
	return export.WriteEntries(to, e.job, e.period, entries, e.chart)
}

// audited reads the steps of the last complete audit, nil if there is none.
func (e *exporting) audited(ctx context.Context, tx pgx.Tx) (day time.Time, steps []export.AuditStep, err error) {
	audit, err := ledger.LastAudit(ctx, tx, e.job, e.period)
	if errors.Is(err, ledger.ErrNotFound) {
		e.a.warn(e.out, "%s was never audited, so fees, refunds and disputes are not in the journal: billing reconcile --audit --period %s", e.period, e.period)
		return day, nil, nil
	}
	if err != nil {
		return day, nil, err
	}
	var report reconcile.AuditReport
	if err := json.Unmarshal(audit.Result, &report); err != nil {
		return day, nil, fmt.Errorf("read the audit of %s: %w", e.period, err)
	}
	steps = []export.AuditStep{}
	for _, sum := range report.Sums {
		for _, line := range sum.Lines {
			step := export.AuditStep{
				Currency: sum.Currency, What: line.What, Count: line.Count, Amount: line.Amount, Total: line.Total,
				Ledger: line.Side == reconcile.SideInvoices || line.Side == reconcile.SideLedger,
			}
			for _, d := range sum.Days {
				if !line.Total && d.What == line.What {
					step.Days = append(step.Days, export.AuditDay{Day: d.Day, Count: d.Count, Amount: d.Amount})
				}
			}
			steps = append(steps, step)
		}
	}
	return audit.Day, steps, nil
}
