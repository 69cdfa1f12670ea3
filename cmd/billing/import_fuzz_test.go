package main

import (
	"encoding/csv"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
	"github.com/chargeonce/billing/ledger/sheet"
)

// readAll reads a file to its end.
func readAll[T any](name, text string, kind sheet.Kind, parse func(*csvFile) T) (rows []T, err error) {
	f, err := openCSV(name, strings.NewReader(text), kind, sheet.Options{})
	if err != nil {
		return nil, err
	}
	next := csvRows(f, parse, (&app{quiet: true}).newMeter())
	for {
		v, err := next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, v)
	}
}

// placed is how a mistake begins: the file, and where in it, if it is not the whole.
var placed = regexp.MustCompile(`^file\.csv(:[1-9][0-9]*(:[1-9][0-9]*)?: |: the row after line [1-9]| is | has )`)

// mustBePlaced checks that a refusal is of the input, names the place of each mistake,
// is short enough to be read, and fit for a terminal.
func mustBePlaced(t *testing.T, err error) {
	t.Helper()
	var mistakes *sheet.Mistakes
	if !errors.As(err, &mistakes) || classify(err).code != exitBadInput || mistakes.Total < 1 || len(mistakes.List) > sheet.MaxListed {
		t.Fatalf("%v", err)
	}
	for _, one := range mistakes.List {
		if !placed.MatchString(one) || len(one) > 1000 || strings.ContainsFunc(one, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q", one)
		}
	}
}

// encoded writes rows as CSV.
func encoded(t *testing.T, header string, rows [][]string) string {
	t.Helper()
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := errors.Join(w.Write(strings.Split(header, ",")), w.WriteAll(rows)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An invoice that is taken is an amount that Stripe can be sent to the last digit, of
// an account with an id, and reads the same from a file that a program wrote of it.
func FuzzImportInvoices(f *testing.F) {
	const header = "account_id,amount,currency,description,invoice_id\n"
	for _, text := range []string{
		header + "4182,19.99,usd,Basic,in_1\n", header + "a,80,JPY,,\nb,1500,isk,\"two\r\nlines\",\n", "\ufeff" + header + "a,-5.00,eur,\"a \"\"b\"\"\",x\n",
		header + "a,1e3,usd,,\n", header + "a,1,50,usd,,\n", header + " a,1,usd,,\n", header + "a,1,xyz,,\n", header + "a,1.005,usd,,\n",
		header + "a,1,usd,\"open,\n", header + "a,1,usd,b\"c,\n", header + "1.2E+15,1,usd,,\n", header + "a\x00,1,usd,\xff,\n", "account_id;amount;currency\na;1;usd\n",
		"account_id,amount,currency\ra,1,usd\r", "PK\x03\x04", "\xff\xfea\x00", "", header, "Account ID,Amount,Currency,amount\n", ",,\n", header + "\n\na,1,usd,,\r\n\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := readAll("file.csv", text, invoiceKind, parseInvoice)
		if err != nil {
			mustBePlaced(t, err)
			return
		}
		var cells [][]string
		for i, v := range rows {
			amount, err := money.Parse(v.Amount)
			if err != nil || ledger.CheckAccountID(v.AccountID) != nil || !currencyCode.MatchString(v.Currency) || v.Line < 2 || i > 0 && v.Line <= rows[i-1].Line {
				t.Errorf("took %+v: %v", v, err)
			}
			if c := money.Currency(v.Currency); c.Known() {
				if _, err := money.ToMinor(amount, c); err != nil {
					t.Errorf("took %+v: %v", v, err)
				}
			}
			cells = append(cells, []string{v.AccountID, v.Amount, v.Currency, told(v.Description), told(v.InvoiceID)})
		}
		again, err := readAll("file.csv", encoded(t, strings.TrimSpace(header), cells), invoiceKind, parseInvoice)
		if err != nil || len(again) != len(rows) {
			t.Fatalf("%d rows are %d when read again: %v", len(rows), len(again), err)
		}
		for i, v := range again {
			w := rows[i]
			if v.AccountID != w.AccountID || v.Amount != w.Amount || v.Currency != w.Currency || told(v.Description) != told(w.Description) || told(v.InvoiceID) != told(w.InvoiceID) {
				t.Errorf("%+v\nread again is\n%+v", w, v)
			}
		}
	})
}

// An account that is taken has ids that nobody mixed up and a day on which its card
// expires, and reads the same again.
func FuzzImportAccounts(f *testing.F) {
	const header = "account_id,stripe_customer,payment_method,currency,email,name,status,card_expires,stripe_account\n"
	for _, text := range []string{
		header + "4182,cus_1,pm_1,usd,a@b.example,Ann,active,2027-08,\n", header + "a,cus_1,,,,,PAUSED,2028-02-29,acct_1\n", header + "a,pm_1,cus_1,usd,,,active,,\n",
		header + "a,cus_1,pm_1,usd,,,gone,,\n", header + "a,cus_1,pm_1,usd,,,active,2027-02-30,\n", header + "a,cus_1,pm_1,usd,,,active,,cus_1\n",
		"account_id,stripe_customer,payment_method,currency\na,,,\n", header + "a,cus\n1,pm_1,usd,,,active,,\n", header + "a,\"cus\n1\",pm_1,usd,,,active,,\n", "account_id\na\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := readAll("file.csv", text, accountKind, parseAccount)
		if err != nil {
			mustBePlaced(t, err)
			return
		}
		var cells [][]string
		for _, a := range rows {
			expires, status := told(a.CardExpires), told(a.Status)
			if _, err := time.Parse(time.DateOnly, expires); expires != "" && err != nil {
				t.Errorf("took %q for a day", expires)
			}
			if ledger.CheckAccountID(a.AccountID) != nil || strings.HasPrefix(a.StripeCustomer, "pm_") || strings.HasPrefix(a.PaymentMethod, "cus_") {
				t.Errorf("took %+v", a)
			}
			if a.Status == nil {
				status = "active"
			}
			cells = append(cells, []string{a.AccountID, a.StripeCustomer, a.PaymentMethod, a.Currency, told(a.Email), told(a.Name), status, expires, told(a.StripeAccount)})
		}
		again, err := readAll("file.csv", encoded(t, strings.TrimSpace(header), cells), accountKind, parseAccount)
		if err != nil || len(again) != len(rows) {
			t.Fatalf("%d rows are %d when read again: %v", len(rows), len(again), err)
		}
		for i, a := range again {
			if got := []string{a.AccountID, a.StripeCustomer, a.PaymentMethod, a.Currency, told(a.Email), told(a.Name), told(a.Status), told(a.CardExpires), told(a.StripeAccount)}; !reflect.DeepEqual(got, cells[i]) {
				t.Errorf("%q\nread again is\n%q", cells[i], got)
			}
		}
	})
}
