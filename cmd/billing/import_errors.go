package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

// importError says what an import refused in terms of the file.
func importError(name string, period ledger.Period, err error) error {
	var twice *ledger.DuplicateError
	var conflict *ledger.ConflictError
	var repeat *ledger.RepeatError
	var clash *ledger.InvoiceIDError
	var near *ledger.NearError
	switch {
	case errors.As(err, &twice):
		return inputError{duplicatesOf(name, period, twice)}
	case errors.As(err, &repeat):
		return inputError{repeatsOf(name, repeat)}
	case errors.As(err, &clash):
		return inputError{clashesOf(name, clash)}
	case errors.As(err, &near):
		return inputError{nearOf(name, period, near)}
	case errors.As(err, &conflict) && conflict.Frozen > 0:
		// Classified by ErrInvoiceFrozen, which has a hint of its own.
		return fmt.Errorf("%w\n%w", ledger.ErrInvoiceFrozen, conflictsOf(name, period, conflict))
	case errors.As(err, &conflict):
		return inputError{conflictsOf(name, period, conflict)}
	}
	return err
}

// listed are mistakes that the database found and counted; add is called for those of
// the list.
func listed(name, what string, total int64) *sheet.Mistakes {
	return &sheet.Mistakes{Name: name, What: what, Total: int(total)}
}

func add(m *sheet.Mistakes, format string, args ...any) {
	m.List = append(m.List, fmt.Sprintf(format, args...))
}

func lineList(lines []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(lines), " ", ", "), "[]")
}

func duplicatesOf(name string, period ledger.Period, err *ledger.DuplicateError) error {
	mistake := listed(name, "", err.Total)
	for _, d := range err.List {
		what := "keep one of them"
		switch {
		case d.Identical && period != "":
			what = "they are identical: keep one of them; if each is owed, add --sum-lines"
		case d.Identical:
			what = "they are identical: keep one of them"
		case period != "":
			what = "keep one of them; if they are lines of one invoice, add --sum-lines"
		}
		add(mistake, "%s:%d: account_id %s stands in more than one row (lines %s): %s",
			name, d.Lines[len(d.Lines)-1], show(d.AccountID), lineList(d.Lines), what)
	}
	return mistake
}

func repeatsOf(name string, err *ledger.RepeatError) error {
	mistake := listed(name, "accounts whose rows can't be added up", err.Total)
	for _, r := range err.List {
		var what string
		switch r.Why {
		case ledger.RepeatTotal:
			what = fmt.Sprintf("amount %s stands on each of its %d rows, so it looks like the total of the invoice: keep one row of each invoice, or name the column with the amounts of the lines, --column amount=TITLE; if these are its lines, add --equal-lines",
				show(r.Amount), r.Rows)
		case ledger.RepeatCurrencies:
			what = "its rows are in several currencies: bill one of them in another period"
		case ledger.RepeatInvoices:
			what = "its rows are of several invoices, and one account has one invoice a period: give them one invoice_id, or leave that column out"
		}
		add(mistake, "%s:%d: account_id %s (lines %s): %s", name, r.Lines[0], show(r.AccountID), lineList(r.Lines), what)
	}
	return mistake
}

func clashesOf(name string, err *ledger.InvoiceIDError) error {
	mistake := listed(name, "invoice ids that stand for two debts", err.Total)
	for _, c := range err.List {
		at := fmt.Sprintf("%s:%d: invoice_id %s of account %s ", name, c.Line, show(c.InvoiceID), show(c.AccountID))
		other := fmt.Sprintf("account %s, %s %s", show(c.Account2), moneyText(c.Amount2, c.Currency2), c.Currency2)
		switch {
		case c.Line2 > 0:
			add(mistake, "%sis that of account %s in line %d too: correct one of them", at, show(c.Account2), c.Line2)
		case c.Period2 != "":
			add(mistake, "%sis in %s already (%s): is this the file of that month? If your ids are used again every month, add --same-ids", at, c.Period2, other)
		default:
			add(mistake, "%sis that of another invoice of the period (%s): void one of them", at, other)
		}
	}
	return mistake
}

func nearOf(name string, period ledger.Period, err *ledger.NearError) error {
	mistake := listed(name, "accounts that are not known as they stand", err.Total)
	for _, n := range err.List {
		what := fmt.Sprintf("is not known, and %s is: a spreadsheet changes ids that look like numbers; format the column as text and export again; if it is another account, import it first: billing import accounts --file F",
			show(n.Known))
		if period == "" {
			what = fmt.Sprintf("is new, and has the customer of account %s: a spreadsheet changes ids that look like numbers; format the column as text and export again", show(n.Known))
		}
		add(mistake, "%s:%d: account_id %s: %s", name, n.Line, show(n.AccountID), what)
	}
	return mistake
}

func conflictsOf(name string, period ledger.Period, err *ledger.ConflictError) error {
	mistake := listed(name, "rows that differ from what is there", err.Frozen+err.Changed)
	for _, d := range err.List {
		what := "to take the new one, add --replace"
		if d.Frozen() {
			what = fmt.Sprintf("its charge is recorded (%s), so it stays: %s", d.State, correctionOf(d, period))
		}
		whose := "account " + show(d.AccountID)
		if d.OldAccountID != "" {
			whose = fmt.Sprintf("account %s, invoice_id %s,", show(d.OldAccountID), show(d.OldInvoiceID))
		}
		text := newInvoice(d)
		if d.OldAccountID != "" {
			text += " for account " + show(d.AccountID)
		}
		add(mistake, "%s:%d: the invoice of %s is %s, the file has %s: %s", name, d.Line, whose, oldInvoice(d), text, what)
	}
	return mistake
}

// correctionOf is what to type where an invoice can't be changed any more. As long as
// nothing was sent, or nothing came of it, the charge can be withdrawn; what may be paid
// is corrected by the next period.
func correctionOf(d ledger.InvoiceConflict, period ledger.Period) string {
	account := d.AccountID
	if d.OldAccountID != "" {
		account = d.OldAccountID
	}
	of := fmt.Sprintf("--period %s --account %s", period, quoted(account))
	switch {
	case d.State == ledger.ChargePending && d.Sends > 0:
		return fmt.Sprintf("its outcome is not known yet; first billing reconcile --period %s", period)
	case d.State == ledger.ChargePending, d.State == ledger.ChargeSkipped, d.State == ledger.ChargeRejected,
		d.State == ledger.ChargeDeclined, d.State == ledger.ChargeHeld:
		return fmt.Sprintf("billing void %s --why \"wrong amount\", this import with --replace, then billing requeue %s --why \"the right amount\"", of, of)
	}
	next := fmt.Sprintf("billing import invoices --period %s --file F", period.Next())
	was, err1 := decimal.NewFromString(d.OldAmount)
	is, err2 := decimal.NewFromString(d.NewAmount)
	if err1 != nil || err2 != nil || d.OldCurrency != d.NewCurrency || was.Equal(is) {
		return "correct it with the next period: " + next
	}
	return fmt.Sprintf("bill the difference, %s %s, with the next period: %s", moneyText(is.Sub(was).String(), d.NewCurrency), d.NewCurrency, next)
}

// quoted writes an id as a shell takes it.
func quoted(id string) string {
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:/") == "" {
		return id
	}
	return quoteShell(id)
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
