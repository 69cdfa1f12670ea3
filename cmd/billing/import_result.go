package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

const nothingDone = "nothing was changed (dry run)\n"

// importedJSON is what an import adds to --json.
type importedJSON struct {
	Rows      int64         `json:"rows"`
	New       int64         `json:"new"`
	Changed   int64         `json:"changed"`
	Unchanged int64         `json:"unchanged"`
	Lines     int64         `json:"lines,omitempty"`     // rows of the file, where they were added up
	Identical int64         `json:"identical,omitempty"` // lines that say the same as another
	Others    *int64        `json:"others,omitempty"`    // invoices of the period that the file does not have
	Paused    *int64        `json:"paused,omitempty"`    // accounts that the file does not have
	Changes   []changedJSON `json:"changes,omitempty"`   // the first twenty
	Read      sheet.Format  `json:"read"`
	Closed    *closeJSON    `json:"closed,omitempty"`
}

type changedJSON struct {
	Line      int    `json:"line"`
	AccountID string `json:"account_id"`
	Old       string `json:"old"`
	New       string `json:"new"`
}

var (
	accountHead = []string{"line", "account_id", "stripe_customer", "payment_method", "currency", "name", "email"}
	invoiceHead = []string{"line", "account_id", "amount", "currency", "invoice_id", "invoice_date", "description"}
)

// readText says how a file was read, if that is not as expected, and in a dry run shows
// its first rows as they were understood.
func (a *app) readText(file *csvFile, dry bool, head []string) string {
	format := file.Format()
	if !dry {
		if format.Plain() {
			return ""
		}
		return fmt.Sprintf("%s: read as %s\n", file.Name, format)
	}
	row := table.Row{}
	for _, h := range head {
		row = append(row, h)
	}
	t := a.newTable(row, 3)
	for _, cells := range file.first {
		row := table.Row{}
		for _, cell := range cells {
			row = append(row, clean(cell))
		}
		t.AppendRow(row)
	}
	return fmt.Sprintf("%s: read as %s; the first rows:\n%s\n", file.Name, format, t.Render())
}

func importedText(name, noun string, done ledger.Imported) string {
	text := fmt.Sprintf("%s: %s, ", name, plural(done.Rows, noun, noun+"s"))
	if done.New+done.Changed == 0 {
		return text + "nothing changed\n"
	}
	return text + fmt.Sprintf("%d new, %d changed, %d unchanged\n", done.New, done.Changed, done.Unchanged)
}

func accountsJSON(file *csvFile, done ledger.ImportedAccounts) importedJSON {
	out := importedJSON{Rows: done.Rows, New: done.New, Changed: done.Changed, Unchanged: done.Unchanged, Read: file.Format()}
	if done.Paused > 0 {
		out.Paused = &done.Paused
	}
	for _, c := range done.Changes {
		before, after := changedColumns(c)
		out.Changes = append(out.Changes, changedJSON{c.Line, c.AccountID, before, after})
	}
	return out
}

// changedColumns shows the columns that are not the same on both sides.
func changedColumns(c ledger.AccountChange) (before, after string) {
	var b, n []string
	for i, column := range ledger.AccountColumns {
		if c.Old[i] != c.New[i] {
			b, n = append(b, column+" "+show(c.Old[i])), append(n, column+" "+show(c.New[i]))
		}
	}
	return strings.Join(b, ", "), strings.Join(n, ", ")
}

func accountChangesText(done ledger.ImportedAccounts) string {
	var b strings.Builder
	for _, c := range done.Changes {
		before, after := changedColumns(c)
		fmt.Fprintf(&b, "  %s: %s is now %s\n", show(c.AccountID), before, after)
	}
	b.WriteString(andMore(done.Changed, len(done.Changes)))
	if done.Paused > 0 {
		var names []string
		for _, id := range done.PausedIDs {
			names = append(names, show(id))
		}
		fmt.Fprintf(&b, "paused, because the file does not have them: %s: %s\n%s", plural(done.Paused, "account", "accounts"),
			strings.Join(names, ", "), andMore(done.Paused, len(names)))
	}
	return b.String()
}

func andMore(all int64, listed int) string {
	if more := all - int64(listed); more > 0 {
		return fmt.Sprintf("  and %d more\n", more)
	}
	return ""
}

// importedInvoices is what an import of invoices came to, with what only the
// database knows about it.
type importedInvoices struct {
	ledger.ImportedInvoices
	close        *ledger.PeriodClose
	usesInvoices bool
	usesAccounts bool
}

func importInvoicesIn(ctx context.Context, tx pgx.Tx, req ledger.InvoiceImport, open ledger.Rows[ledger.Invoice]) (done importedInvoices, err error) {
	if done.ImportedInvoices, err = ledger.ImportInvoices(ctx, tx, req, open); err != nil {
		return done, err
	}
	if done.usesInvoices, err = ledger.NeedsClose(ctx, tx); err != nil {
		return done, err
	}
	if done.usesAccounts, err = ledger.UsesAccounts(ctx, tx); err != nil {
		return done, err
	}
	done.close, err = closeOf(ctx, tx, req.Job, req.Period)
	return done, err
}

func (d importedInvoices) json(file *csvFile) importedJSON {
	out := importedJSON{
		Rows: d.Rows, New: d.New, Changed: d.Changed, Unchanged: d.Unchanged, Lines: d.Lines, Identical: d.Identical,
		Others: &d.Others, Read: file.Format(), Closed: closeToJSON(d.close),
	}
	for _, c := range d.Changes {
		out.Changes = append(out.Changes, changedJSON{c.Line, c.AccountID, oldInvoice(c), newInvoice(c)})
	}
	return out
}

func (d importedInvoices) linesText() string {
	if d.Lines == 0 {
		return ""
	}
	text := fmt.Sprintf("added up from %s", plural(d.Lines, "row", "rows"))
	if d.Identical > 0 {
		text += fmt.Sprintf(", %d of which say the same as another", d.Identical)
	}
	return text + "\n"
}

// sumsText is what the period would come to, for a dry run.
func (d importedInvoices) sumsText(period ledger.Period) string {
	if d.close == nil {
		return ""
	}
	return fmt.Sprintf("%s would come to %s\n", period, closeText(*d.close))
}

func (d importedInvoices) changesText() string {
	var b strings.Builder
	for _, c := range d.Changes {
		whose := "account " + show(c.AccountID)
		if c.OldAccountID != "" {
			whose += ", until now of account " + show(c.OldAccountID)
		}
		fmt.Fprintf(&b, "  the invoice of %s: %s is now %s\n", whose, oldInvoice(c), newInvoice(c))
	}
	return b.String() + andMore(d.Changed, len(d.Changes))
}

// warn says what may surprise later.
func (d importedInvoices) warn(a *app, out *result, req ledger.InvoiceImport) {
	if !d.usesInvoices {
		a.warn(out, "the view billing.billable does not read billing.invoices, so runs do not see these invoices")
	}
	if d.usesAccounts && d.NoAccount > 0 {
		names := make([]string, len(d.NoAccountIDs))
		for i, id := range d.NoAccountIDs {
			names[i] = show(id)
		}
		if int64(len(names)) < d.NoAccount {
			names = append(names, "…")
		}
		a.warn(out, "%s without an account will be skipped unless it comes: %s: billing import accounts --file F",
			plural(d.NoAccount, "invoice", "invoices"), strings.Join(names, ", "))
	}
	if d.Run == ledger.RunDone && d.New > 0 {
		a.warn(out, "%s is done, so %s not in the ledger; to charge: billing reopen --period %s --why \"late invoice\", then billing run --period %s",
			req.Period, plural(d.New, "new invoice is", "new invoices are"), req.Period, req.Period)
	}
	if req.Open && d.close != nil {
		a.warn(out, "%s was closed by %s on %s and stays closed", req.Period, clean(d.close.ClosedBy), timeText(&d.close.ClosedAt))
	}
}

func (d importedInvoices) text(req ledger.InvoiceImport) (text string) {
	if d.Others > 0 {
		text += fmt.Sprintf("%s of %s stay as they are: not in this file\n", plural(d.Others, "other invoice", "other invoices"), req.Period)
	}
	if d.close != nil && !req.Open {
		text += fmt.Sprintf("%s is closed: %s\n", req.Period, closeText(*d.close))
	}
	switch {
	case d.Run == ledger.RunDone:
	case d.close == nil && d.usesInvoices:
		text += fmt.Sprintf("next: more files, then billing close --period %s\n", req.Period)
	default:
		text += fmt.Sprintf("next: billing preview --period %s\n", req.Period)
	}
	return text
}
