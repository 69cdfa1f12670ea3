package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

// readInvoices reads a file to its end and writes account=amount currency.
func readInvoices(text string) (rows []string, err error) {
	list, err := readAll("invoices.csv", text, invoiceKind, parseInvoice)
	for _, v := range list {
		rows = append(rows, fmt.Sprintf("%d: %s=%s %s", v.Line, v.AccountID, v.Amount, v.Currency))
	}
	return rows, err
}

// wide writes ASCII as UTF-16.
func wide(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
		b.WriteByte(0)
	}
	return b.String()
}

// Files that look odd and mean one thing are read.
func TestCSVReadsWhatIsClear(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"plain":                   {"account_id,amount,currency\n4182,19.99,usd\n", []string{"2: 4182=19.99 usd"}},
		"BOM before a quote":      {"\ufeff\"account_id\",\"amount\",\"currency\"\n\"4182\",\"19.99\",\"usd\"\n", []string{"2: 4182=19.99 usd"}},
		"Windows line ends":       {"account_id,amount,currency\r\n4182,19.99,usd\r\n", []string{"2: 4182=19.99 usd"}},
		"no line end at the end":  {"account_id,amount,currency\n4182,19.99,usd", []string{"2: 4182=19.99 usd"}},
		"titles as people write":  {"Currency,AMOUNT, Account ID\nUSD,19.99,4182\n", []string{"2: 4182=19.99 usd"}},
		"zeros in front are kept": {"account_id,amount,currency\n00123,1,usd\n123,2,usd\n", []string{"2: 00123=1 usd", "3: 123=2 usd"}},
		"a code that is no number": {"account_id,amount,currency\n219E01BE,1,usd\n219E01,1,usd\n",
			[]string{"2: 219E01BE=1 usd", "3: 219E01=1 usd"}},
		"zero and a credit":      {"account_id,amount,currency\na,0.00,usd\nb,-5.00,usd\n", []string{"2: a=0.00 usd", "3: b=-5.00 usd"}},
		"currencies of all kind": {"account_id,amount,currency\na,80,JPY\nb,1500,isk\nc,1.250,kwd\n", []string{"2: a=80 jpy", "3: b=1500 isk", "4: c=1.250 kwd"}},
		"semicolon in a text":    {"account_id,amount,currency,description\na,1,usd,Basic; yearly\n", []string{"2: a=1 usd"}},
		"line breaks in quotes":  {"account_id,amount,currency,description\na,1,usd,\"two\r\nlines\"\nb,2,usd,\n", []string{"2: a=1 usd", "4: b=2 usd"}},
		"CR line ends":           {"account_id,amount,currency\r4182,19.99,usd\r4183,5.00,usd\r", []string{"2: 4182=19.99 usd", "3: 4183=5.00 usd"}},
		"UTF-16":                 {"\xff\xfe" + wide("account_id,amount,currency\n4182,19.99,usd\n"), []string{"2: 4182=19.99 usd"}},
		"semicolons":             {"account_id;amount;currency\n4182;19,99;eur\n", []string{"2: 4182=19.99 eur"}},
		"tabs":                   {"account_id\tamount\tcurrency\n4182\t19.99\teur\n", []string{"2: 4182=19.99 eur"}},
		"decimal comma":          {"account_id,amount,currency\na,\"12,50\",usd\n", []string{"2: a=12.50 usd"}},
		"currency sign":          {"account_id,amount,currency\na,$13.50,usd\n", []string{"2: a=13.50 usd"}},
		"blank lines":            {"account_id,amount,currency\n\na,1,usd\n\n\n", []string{"3: a=1 usd"}},
		"ids that differ by case": {"account_id,amount,currency\n0015gD,1,usd\n0015gd,2,usd\n",
			[]string{"2: 0015gD=1 usd", "3: 0015gd=2 usd"}},
	} {
		got, err := readInvoices(c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// Every refusal says where it is, what stands there and what to type instead.
func TestCSVRefusesWithThePlaceAndTheCure(t *testing.T) {
	const header = "account_id,amount,currency\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":                  {"", "is empty: it needs a header with account_id, amount, currency"},
		"BOM alone":              {"\ufeff", "is empty"},
		"header alone":           {header, "has a header and no rows"},
		"header and blank lines": {header + "\n\n", "has a header and no rows"},
		"a workbook":             {"PK\x03\x04zip", "no CSV file: save the sheet as CSV UTF-8"},
		"unknown column":         {"account_id,amount,currency,discount\na,1,usd,2\n", `invoices.csv:1:28: column "discount" is not known; there are account_id, amount, currency, description, invoice_id`},
		"no name":                {"account_id,amount,currency,\na,1,usd,\n", "invoices.csv:1:28: column 4 has no name"},
		"twice":                  {"account_id,amount,Amount,currency\na,1,2,usd\n", `column "Amount" stands here a second time`},
		"lacking column":         {"account_id,amount\na,1\n", "there is no column currency"},
		"short row":              {header + "a,1,usd\nb,2\n", "invoices.csv:3: the row has 2 values, the header has 3 columns"},
		"long row":               {header + "a,1,usd,x\n", "invoices.csv:2: the row has 4 values, the header has 3 columns"},
		"stray quote":            {header + "a\"b,1,usd\n", `invoices.csv:2:2: a quote inside a value`},
		"text after a quote":     {header + "\"a\"b,1,usd\n", "invoices.csv:2:"},
		"quote without an end":   {header + "\"a,1,usd\nb,2,usd\n", "begun in line 2, does not end"},
		"a very long row":        {header + "a,1,usd\n\"" + strings.Repeat("x\n", 2<<20), "the row after line 2 is longer than 1048576 bytes"},
		"a very long header":     {"\"" + strings.Repeat("x\n", 2<<20), "the header is longer than 1048576 bytes"},
		"a spreadsheet's id":     {header + "1.91431E+18,1,usd\n", `invoices.csv:2:1: account_id "1.91431E+18": looks like a number that a spreadsheet rewrote`},
		"with a decimal comma":   {header + "\"2,19E+26\",1,usd\n", "looks like a number that a spreadsheet rewrote"},
		"blank id":               {header + ",1,usd\n", "account id is blank"},
		"space around an id":     {header + "a ,1,usd\n", "has space around it"},
		"line break in an id":    {header + "\"a\nb\",1,usd\n", "has a control character"},
		"Latin-1":                {header + "M\xfcller,1,usd\n", "is not valid UTF-8"},
		"exponent":               {header + "a,1e20000000,usd\n", `amount "1e20000000"`},
		"no amount":              {header + "a,,usd\n", `amount "": want plain digits`},
		"a fraction of a yen":    {header + "a,80.50,JPY\n", `amount "80.50": jpy has no digits after the point: round it`},
		"a fraction of a cent":   {header + "a,1.001,usd\n", `amount "1.001": usd has 2 digits after the point: round it`},
		"a fraction of a krona":  {header + "a,1500.50,isk\n", `amount "1500.50": `},
		"too large":              {header + "a,99999999999.99,usd\n", "is larger than Stripe charges at once"},
		"no currency":            {header + "a,1,\n", `currency "": want a three-letter code, such as usd`},
		"a currency's name":      {header + "a,1,dollar\n", `currency "dollar": want a three-letter code`},
		"NUL in a text":          {"account_id,amount,currency,description\na,1,usd,x\x00y\n", "has a NUL byte"},
	} {
		rows, err := readInvoices(c.text)
		var input inputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: read %q, error %v, want %q", name, rows, err, c.want)
		}
		if err != nil && !strings.HasSuffix(err.Error(), "nothing was imported") {
			t.Errorf("%s: %v does not say that nothing was imported", name, err)
		}
	}
}

// All mistakes of a file are found at once: twenty are listed, the rest counted.
func TestCSVListsTwentyMistakes(t *testing.T) {
	var b strings.Builder
	b.WriteString("account_id,amount,currency\n")
	for i := range 30 {
		fmt.Fprintf(&b, "a%d,one,usd\n", i)
	}
	_, err := readInvoices(b.String())
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if !strings.HasPrefix(text, "invoices.csv has 30 mistakes:\n") || strings.Count(text, "amount \"one\"") != 20 ||
		!strings.Contains(text, "and 10 more") {
		t.Errorf("got\n%s", text)
	}
}

// A row of accounts: what the file lacks stays nil, what is mixed up is refused.
func TestParseAccount(t *testing.T) {
	parse := func(text string) (ledger.Account, error) {
		f, err := openCSV("accounts.csv", strings.NewReader(text), accountKind, sheet.Options{})
		if err != nil {
			return ledger.Account{}, err
		}
		return csvRows(f, parseAccount, (&app{quiet: true}).newMeter())()
	}
	got, err := parse("account_id,stripe_customer,payment_method,currency,card_expires,status\na,cus_1,,USD,2028-02,Paused\n")
	paused, expires := "paused", "2028-02-29"
	want := ledger.Account{Line: 2, AccountID: "a", StripeCustomer: "cus_1", Currency: "usd", Status: &paused, CardExpires: &expires}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	const header = "account_id,stripe_customer,payment_method,currency,status,card_expires,stripe_account\n"
	for row, want := range map[string]string{
		"a,pm_1,cus_1,usd,active,,\n":        "are the columns mixed up?",
		"a,cus_1 ,pm_1,usd,active,,\n":       "has space around it",
		"a,cus_1,pm_1,usd,,,\n":              "want active or paused",
		"a,cus_1,pm_1,usd,active,08/27,\n":   "want a month such as 2027-08",
		"a,cus_1,pm_1,usd,active,2027-13,\n": "want a month such as 2027-08",
		"a,cus_1,pm_1,usd,active,,4242\n":    "want a connected account, such as acct_4242",
	} {
		_, err := parse(header + row)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", row, err, want)
		}
	}
}
