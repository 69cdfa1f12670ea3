package main

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
	"github.com/chargeonce/billing/ledger/sheet"
)

// parseAccountID reads an id as the text that it is: nothing is trimmed, folded
// or taken for a number.
func parseAccountID(f *csvFile) string {
	id := f.Raw("account_id")
	if err := ledger.CheckAccountID(id); err != nil {
		what := err.Error()
		if !utf8.ValidString(id) {
			what += ": save the file as CSV UTF-8, or add --encoding windows-1252 if that is what it is"
		}
		f.Refuse("account_id", "%s", what)
	} else if why := sheet.ID(id); why != "" {
		f.Refuse("account_id", "%s", why)
	} else if strings.HasPrefix(id, "pi_") || strings.HasPrefix(id, "ch_") || strings.HasPrefix(id, "py_") || strings.HasPrefix(id, "po_") {
		f.Refuse("account_id", "is the id of a payment or payout at Stripe: want the id of the account in your own books")
	}
	return id
}

var currencyCode = regexp.MustCompile(`^[A-Za-z]{3}$`)

// parseCurrency takes a code in any case. One that Stripe does not charge in
// comes in too, with a warning, so that the debt is in the books: its charge is
// skipped and named. known says whether amounts in it can be checked.
func parseCurrency(f *csvFile) (code string, known bool) {
	text := f.Raw("currency")
	if c, err := money.ParseCurrency(text); err == nil {
		return string(c), true
	}
	if !currencyCode.MatchString(text) {
		f.Refuse("currency", "want a three-letter code, such as usd")
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
	a := ledger.Account{Line: f.Line(), AccountID: parseAccountID(f)}
	a.StripeCustomer = stripeID(f, "stripe_customer", "a customer, such as cus_4242", "pm_", "card_", "src_", "ba_", "pi_", "acct_")
	a.PaymentMethod = stripeID(f, "payment_method", "a payment method, such as pm_4242", "cus_", "pi_", "acct_")
	if f.Raw("currency") != "" {
		a.Currency, _ = parseCurrency(f)
	}
	a.Name = f.optional("name", f.Text)
	a.Email = f.optional("email", f.Word)
	a.Status = f.optional("status", func(column string) (string, bool) {
		status := strings.ToLower(f.Raw(column))
		if status != "active" && status != "paused" {
			f.Refuse(column, "want active or paused")
		}
		return status, true
	})
	a.StripeAccount = f.optional("stripe_account", func(column string) (string, bool) {
		id, ok := f.Word(column)
		if ok && id != "" && !strings.HasPrefix(id, "acct_") {
			f.Refuse(column, "want a connected account, such as acct_4242, or nothing for your own")
		}
		return id, ok
	})
	a.CardExpires = f.optional("card_expires", func(column string) (string, bool) { return parseExpiry(f, column) })
	if f.Mistakes.Total == 0 && len(f.first) < maxFirst {
		f.understood(strconv.Itoa(a.Line), show(a.AccountID), a.StripeCustomer, a.PaymentMethod, a.Currency, told(a.Name), told(a.Email))
	}
	return a
}

// stripeID reads an id of Stripe's, which may be missing. Customers that were
// moved to Stripe may have ids of any form, so only the prefixes of other objects
// are refused: they mean that columns were mixed up.
func stripeID(f *csvFile, column, want string, others ...string) string {
	id, _ := f.Word(column)
	for _, prefix := range others {
		if strings.HasPrefix(id, prefix) {
			f.Refuse(column, "want %s; are the columns mixed up?", want)
		}
	}
	return id
}

// parseExpiry reads when a card expires: a day, or a month, which ends with its
// last day. There is no time of day and so no time zone in it.
func parseExpiry(f *csvFile, column string) (string, bool) {
	text := f.Raw(column)
	if text == "" {
		return "", true
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Format(time.DateOnly), true
	}
	month, err := time.Parse("2006-01", text)
	if err != nil {
		f.Refuse(column, "want a month such as 2027-08, or a day such as 2027-08-31")
		return "", false
	}
	return month.AddDate(0, 1, -1).Format(time.DateOnly), true
}

func parseInvoice(f *csvFile) ledger.Invoice {
	v := ledger.Invoice{Line: f.Line(), AccountID: parseAccountID(f)}
	currency, known := parseCurrency(f)
	v.Currency = currency
	var amount decimal.Decimal
	var ok bool
	if v.Amount, amount, ok = f.Amount("amount", currency); ok && known {
		checkAmount(f, amount, money.Currency(currency))
	}
	v.Description = f.optional("description", f.Text)
	v.InvoiceID = f.optional("invoice_id", invoiceID(f))
	if f.Has("invoice_date") {
		v.InvoiceDate = parseInvoiceDate(f)
	}
	if f.Has("period") {
		checkPeriod(f)
	}
	if f.Mistakes.Total == 0 && len(f.first) < maxFirst {
		f.understood(strconv.Itoa(v.Line), show(v.AccountID), moneyText(v.Amount, currency), currency, told(v.InvoiceID), v.InvoiceDate, told(v.Description))
	}
	return v
}

// told is a value that a file may lack.
func told(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

func invoiceID(f *csvFile) func(string) (string, bool) {
	return func(column string) (string, bool) {
		id, ok := f.Word(column)
		if why := sheet.ID(id); ok && why != "" {
			f.Refuse(column, "%s", why)
			return "", false
		}
		return id, ok
	}
}

// parseInvoiceDate reads the day of an invoice, which has no time and no zone. One that
// lies neither in the period nor in the month after it says that this is the file of
// another month.
func parseInvoiceDate(f *csvFile) string {
	day, ok := f.Date("invoice_date")
	if !ok || day == "" || f.rules.period == "" || f.rules.anyDate {
		return day
	}
	if month := ledger.Period(day[:7]); month != f.rules.period && month != f.rules.period.Next() {
		f.Refuse("invoice_date", "lies in %s, and the period is %s: is this the file of another month? If it is the right one, add --any-date", month, f.rules.period)
	}
	return day
}

// checkPeriod compares the period that a row names with the one that is imported.
func checkPeriod(f *csvFile) {
	text := strings.TrimSpace(f.Raw("period"))
	period, err := ledger.ParsePeriod(text)
	switch {
	case text == "" || f.rules.period == "":
	case err != nil:
		f.Refuse("period", "want a month such as %s", f.rules.period)
	case period != f.rules.period:
		f.Refuse("period", "the file is imported as %s: type --period %s, or take the other file", f.rules.period, period)
	}
}

// checkAmount refuses what could not be charged exactly. Zero and credits are
// fine: they are recorded as skipped.
func checkAmount(f *csvFile, amount decimal.Decimal, currency money.Currency) {
	_, err := money.ToMinor(amount, currency)
	switch {
	case errors.Is(err, money.ErrFraction) && currency.Digits() == 0:
		f.Refuse("amount", "%s has no digits after the point: round it", currency)
	case errors.Is(err, money.ErrFraction):
		f.Refuse("amount", "%s has %d digits after the point: round it", currency, currency.Digits())
	case errors.Is(err, money.ErrNotDivisible) && currency.Digits() == 0:
		f.Refuse("amount", "Stripe charges %s in whole units: round it", currency)
	case errors.Is(err, money.ErrNotDivisible):
		f.Refuse("amount", "Stripe charges %s with a last digit of 0: round it", currency)
	case errors.Is(err, money.ErrOverflow):
		f.Refuse("amount", "is larger than Stripe charges at once")
	case err != nil:
		f.Refuse("amount", "%v", err)
	}
}
