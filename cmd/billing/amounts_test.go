package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exactAmounts are invoices and the whole numbers that must be on the wire.
var exactAmounts = []struct {
	amount, currency string
	minor            string
}{
	{"80", "jpy", "80"}, {"80.00", "JPY", "80"}, {"12000", "krw", "12000"}, {"5", "vnd", "5"}, {"1000", "clp", "1000"}, {"100", "xof", "100"},
	{"5", "ugx", "500"}, {"1500", "isk", "150000"}, {"1500.00", "ISK", "150000"},
	{"4000.50", "huf", "400050"}, {"400.05", "huf", "40005"}, {"123.45", "twd", "12345"},
	{"1.230", "kwd", "1230"}, {"1.23", "bhd", "1230"}, {"0.5", "tnd", "500"},
	{"0.50", "usd", "50"}, {"51", "jpy", "51"}, {"0.32", "gbp", "32"}, {"10", "usd", "1000"}, {"10.1", "usd", "1010"}, {"10.100000", "usd", "1010"},
	{"1234567.89", "usd", "123456789"}, {"9999999999.99", "usd", "999999999999"},
}

// T16, T17: the whole number on the wire is the invoice in the unit that Stripe
// counts that currency in; a round trip through one wrong factor would not show.
func TestAmountsOnTheWireAreInStripesUnit(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list, want := []customer{}, map[string]string{}
	for i, a := range exactAmounts {
		c := customers(i + 1)[i]
		c.amount, c.currency = a.amount, a.currency
		list = append(list, c)
		want[c.id] = a.minor + " " + strings.ToLower(a.currency)
	}
	o.imports(october, list)
	o.month(0)
	got := map[string]string{}
	for _, r := range o.emu.Requests() {
		if r.Method != "POST" {
			continue
		}
		form, err := url.ParseQuery(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		got[form.Get("metadata[billing_account]")] = form.Get("amount") + " " + form.Get("currency")
		if r.Status != 200 {
			t.Errorf("Stripe answered %d to %s %s", r.Status, form.Get("amount"), form.Get("currency"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("amounts on the wire (-want +got):\n%s", diff)
	}
	o.mustBeWhole()
}

// inexactAmounts can't be charged to the last digit, so nothing of them is.
var inexactAmounts = [][2]string{
	{"80.50", "jpy"}, {"80.001", "jpy"}, {"12000.5", "krw"}, {"5.5", "ugx"}, {"1500.50", "isk"}, {"1500.5", "isk"},
	{"1.234", "kwd"}, {"0.001", "bhd"}, {"1.2345", "kwd"}, {"10.001", "usd"}, {"0.01999999999999999872", "usd"}, {"19.995", "usd"},
	{"10000000000.00", "usd"}, {"999999999999999", "usd"},
}

// T16–T18: what Stripe can't charge exactly is neither rounded nor cut: a file
// with it is refused with its line.
func TestInexactAmountsAreRefusedAtImport(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	bad := append([][2]string{{"1e3", "usd"}, {"1e20000000", "usd"}, {"NaN", "usd"}, {"Infinity", "usd"}, {"19,99", "usd"}, {"1,23,456.50", "usd"},
		{"€5.00", "usd"}, {".5", "usd"}, {"19.", "usd"}, {"+5", "usd"}, {"", "usd"}, {"0x10", "usd"}, {"１0", "usd"}, {"1 00", "usd"}, {"--5", "usd"}}, inexactAmounts...)
	for _, a := range bad {
		text := fmt.Sprintf("account_id,amount,currency\ngood,1.00,usd\nbad,\"%s\",%s\n", a[0], a[1])
		r := o.must(65, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", text))
		if !strings.Contains(r.stderr, "invoices.csv:3") {
			t.Errorf("%s %s: the refusal does not name the line\n%s", a[0], a[1], r)
		}
	}
	if n := one[int](o, `SELECT count(*) FROM billing.invoices`); n != 0 {
		t.Errorf("%d invoices came in from files that were refused", n)
	}
}

// The same amounts from a company's own view, and those that are no numbers, cost
// that row alone: it is skipped by name, and the others are charged.
func TestInexactAmountsFromAViewCostOnlyTheirRow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ownView()
	good := customers(3)
	for _, c := range good {
		o.owes(c.id, c.amount, c.currency, c.customer, c.card)
	}
	bad := append([][2]string{{"NaN", "usd"}, {"Infinity", "usd"}, {"-Infinity", "usd"}, {"1e130", "usd"}, {"1e-130", "usd"}}, inexactAmounts...)
	for i, a := range bad {
		o.owes(fmt.Sprintf("bad%02d", i), a[0], a[1], "cus_bad", "pm_bad")
	}
	o.month(4)
	o.mustChargeEach(good)
	for i, a := range bad {
		account := fmt.Sprintf("bad%02d", i)
		if got := one[string](o, `SELECT state || ' ' || reason FROM billing.charges WHERE account_id = $1`, account); got != "skipped bad_amount" {
			t.Errorf("%s %s is %s", a[0], a[1], got)
		}
	}
	// People can still look at the month.
	o.must(0, "status", "--period", october)
	o.must(0, "export", "charges", "--period", october, "--format", "csv", "--output", "-")
	o.must(0, "show", "--period", october, "--account", "bad00")
	before, posts := o.ledgerText(), o.emu.Posts()
	o.month(4)
	if diff := cmp.Diff(before, o.ledgerText()); diff != "" || o.emu.Posts() != posts {
		t.Errorf("a second run sent %d POSTs and changed:\n%s", o.emu.Posts()-posts, diff)
	}
}

// A row of a company's own view without an amount costs that row alone; one
// without an account is nobody's debt, and nothing is recorded beside it.
func TestARowOfAViewThatLacksSomething(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ownView()
	good := customers(2)
	for _, c := range good {
		o.owes(c.id, c.amount, c.currency, c.customer, c.card)
	}
	o.exec(`INSERT INTO public.owed VALUES ('2026-10', NULL, 10, 'usd', 'cus_x', 'pm_x')`)
	if r := o.month(65); !strings.Contains(r.stderr, "without an account id") || one[int](o, `SELECT count(*) FROM billing.charges`) != 0 {
		t.Errorf("a row without an account: %s", r)
	}
	o.exec(`UPDATE public.owed SET account_id = 'bad', amount = NULL WHERE account_id IS NULL`)
	o.month(4)
	if got := one[string](o, `SELECT state || ' ' || reason FROM billing.charges WHERE account_id = 'bad'`); got != "skipped bad_amount" {
		t.Errorf("a row without an amount is %s", got)
	}
	o.mustChargeEach(good)
}

// T20: what is below Stripe's minimum is skipped and sent nowhere; what only
// Stripe knows to be too small is refused once, named, and not asked again.
func TestWhatIsTooSmallIsNamedAndNotAskedAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(6)
	for i, a := range [][2]string{{"0.49", "usd"}, {"0.50", "usd"}, {"0.29", "gbp"}, {"49", "jpy"}, {"51", "jpy"},
		// No minimum is published for levs as a currency of charges; the emulator has one.
		{"0.99", "bgn"}} {
		list[i].amount, list[i].currency = a[0], a[1]
	}
	o.imports(october, list)
	r := o.month(4)
	want := []string{"skipped below_minimum", "succeeded ", "skipped below_minimum", "skipped below_minimum", "succeeded ", "rejected amount_too_small"}
	for i, c := range list {
		if got := one[string](o, `SELECT state || ' ' || reason FROM billing.charges WHERE account_id = $1`, c.id); got != want[i] {
			t.Errorf("%s %s is %q, want %q", c.amount, c.currency, got, want[i])
		}
	}
	if !strings.Contains(r.stdout, "amount_too_small") || !strings.Contains(r.stdout, "below_minimum") {
		t.Errorf("the reasons are not shown\n%s", r)
	}
	if o.emu.Posts() != 3 {
		t.Errorf("%d POSTs, want one for each of three", o.emu.Posts())
	}
	before := o.ledgerText()
	o.month(4)
	if diff := cmp.Diff(before, o.ledgerText()); diff != "" || o.emu.Posts() != 3 {
		t.Errorf("a second run: %d POSTs in all, and changed:\n%s", o.emu.Posts(), diff)
	}
	o.mustBeWhole()
}
