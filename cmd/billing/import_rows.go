package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// The columns of both files are a public interface.
var (
	accountColumns = []csvColumn{
		{"account_id", true}, {"stripe_customer", true}, {"payment_method", true}, {"currency", true},
		{"email", false}, {"name", false}, {"status", false}, {"card_expires", false}, {"stripe_account", false},
	}
	invoiceColumns = []csvColumn{
		{"account_id", true}, {"amount", true}, {"currency", true}, {"description", false}, {"invoice_id", false},
	}
)

// A spreadsheet that takes an id for a number writes it like this, and the
// digits behind are lost. 219E01BE is an id.
var spreadsheetNumber = regexp.MustCompile(`^-?[0-9]+([.,][0-9]+)?[eE][+-][0-9]+$`)

// parseAccountID reads an id as the text that it is: nothing is trimmed, folded
// or taken for a number.
func parseAccountID(f *csvFile) string {
	id := f.raw("account_id")
	if err := ledger.CheckAccountID(id); err != nil {
		f.refuse("account_id", "%v", err)
	} else if spreadsheetNumber.MatchString(id) {
		f.refuse("account_id", "looks like a number that a spreadsheet rewrote: format the column as text and export again")
	}
	return id
}

var currencyCode = regexp.MustCompile(`^[A-Za-z]{3}$`)

// parseCurrency takes a code in any case. One that Stripe does not charge in
// comes in too, with a warning, so that the debt is in the books: its charge is
// skipped and named. known says whether amounts in it can be checked.
func parseCurrency(f *csvFile) (code string, known bool) {
	text := f.raw("currency")
	if c, err := money.ParseCurrency(text); err == nil {
		return string(c), true
	}
	if !currencyCode.MatchString(text) {
		f.refuse("currency", "want a three-letter code, such as usd")
		return "", false
	}
	code = strings.ToLower(text)
	f.uncharged[code]++
	return code, false
}

// warn says what was let in and will not be charged as it is.
func (f *csvFile) warn(a *app, out *result) {
	for _, code := range slices.Sorted(maps.Keys(f.uncharged)) {
		a.warn(out, "%s in %s, a currency that Stripe does not charge in", plural(f.uncharged[code], "row is", "rows are"), code)
	}
}

func parseAccount(f *csvFile) ledger.Account {
	a := ledger.Account{Line: f.line(), AccountID: parseAccountID(f)}
	a.StripeCustomer = stripeID(f, "stripe_customer", "a customer, such as cus_4242", "pm_", "card_", "src_", "ba_", "pi_", "acct_")
	a.PaymentMethod = stripeID(f, "payment_method", "a payment method, such as pm_4242", "cus_", "pi_", "acct_")
	if f.raw("currency") != "" {
		a.Currency, _ = parseCurrency(f)
	}
	a.Name = f.optional("name", f.text)
	a.Email = f.optional("email", f.word)
	a.Status = f.optional("status", func(column string) (string, bool) {
		status := strings.ToLower(f.raw(column))
		if status != "active" && status != "paused" {
			f.refuse(column, "want active or paused")
		}
		return status, true
	})
	a.StripeAccount = f.optional("stripe_account", func(column string) (string, bool) {
		id, ok := f.word(column)
		if ok && id != "" && !strings.HasPrefix(id, "acct_") {
			f.refuse(column, "want a connected account, such as acct_4242, or nothing for your own")
		}
		return id, ok
	})
	a.CardExpires = f.optional("card_expires", func(column string) (string, bool) { return parseExpiry(f, column) })
	return a
}

// stripeID reads an id of Stripe's, which may be missing. Customers that were
// moved to Stripe may have ids of any form, so only the prefixes of other objects
// are refused: they mean that columns were mixed up.
func stripeID(f *csvFile, column, want string, others ...string) string {
	id, _ := f.word(column)
	for _, prefix := range others {
		if strings.HasPrefix(id, prefix) {
			f.refuse(column, "want %s; are the columns mixed up?", want)
		}
	}
	return id
}

// parseExpiry reads when a card expires: a day, or a month, which ends with its
// last day. There is no time of day and so no time zone in it.
func parseExpiry(f *csvFile, column string) (string, bool) {
	text := f.raw(column)
	if text == "" {
		return "", true
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Format(time.DateOnly), true
	}
	month, err := time.Parse("2006-01", text)
	if err != nil {
		f.refuse(column, "want a month such as 2027-08, or a day such as 2027-08-31")
		return "", false
	}
	return month.AddDate(0, 1, -1).Format(time.DateOnly), true
}

func parseInvoice(f *csvFile) ledger.Invoice {
	v := ledger.Invoice{Line: f.line(), AccountID: parseAccountID(f), Amount: f.raw("amount")}
	currency, known := parseCurrency(f)
	v.Currency = currency
	amount, err := money.Parse(v.Amount)
	switch {
	case err != nil:
		f.refuse("amount", "want plain digits and a point, such as 1234.50: no currency sign, no thousands separator, no decimal comma")
	case known:
		checkAmount(f, amount, money.Currency(currency))
	}
	v.Description = f.optional("description", f.text)
	v.InvoiceID = f.optional("invoice_id", f.word)
	return v
}

// checkAmount refuses what could not be charged exactly. Zero and credits are
// fine: they are recorded as skipped.
func checkAmount(f *csvFile, amount decimal.Decimal, currency money.Currency) {
	_, err := money.ToMinor(amount, currency)
	switch {
	case errors.Is(err, money.ErrFraction) && currency.Digits() == 0:
		f.refuse("amount", "%s has no digits after the point: round it", currency)
	case errors.Is(err, money.ErrFraction):
		f.refuse("amount", "%s has %d digits after the point: round it", currency, currency.Digits())
	case errors.Is(err, money.ErrNotDivisible) && currency.Digits() == 0:
		f.refuse("amount", "Stripe charges %s in whole units: round it", currency)
	case errors.Is(err, money.ErrNotDivisible):
		f.refuse("amount", "Stripe charges %s with a last digit of 0: round it", currency)
	case errors.Is(err, money.ErrOverflow):
		f.refuse("amount", "is larger than Stripe charges at once")
	case err != nil:
		f.refuse("amount", "%v", err)
	}
}

// importedInvoices is what an import of invoices came to, with what only the
// database knows about it.
type importedInvoices struct {
	ledger.ImportedInvoices
	close        *ledger.PeriodClose
	usesInvoices bool
	usesAccounts bool
}

func importInvoicesIn(ctx context.Context, tx pgx.Tx, req ledger.InvoiceImport, next func() (ledger.Invoice, error)) (done importedInvoices, err error) {
	if done.ImportedInvoices, err = ledger.ImportInvoices(ctx, tx, req, next); err != nil {
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

func (d importedInvoices) json() importedJSON {
	return importedJSON{
		Rows: d.Rows, New: d.New, Changed: d.Changed, Unchanged: d.Unchanged, Others: &d.Others, Closed: closeToJSON(d.close),
	}
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

func (d importedInvoices) text(name string, req ledger.InvoiceImport) string {
	text := importedText(name, "invoice", d.Imported)
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
