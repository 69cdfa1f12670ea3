package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chargeonce/billing/ledger"
)

// named makes customers of these ids, who each owe another amount, so that money
// that went astray shows.
func named(ids []string) []customer {
	list := customers(len(ids))
	for i := range list {
		list[i].id = ids[i]
	}
	return list
}

// mustChargeEach holds every account against its own key on the wire, in the
// ledger and at Stripe, and against its own amount.
func (o *office) mustChargeEach(list []customer) {
	o.t.Helper()
	bodies := o.bodiesByKey()
	if len(bodies) != len(list) {
		o.t.Errorf("%d idempotency keys on the wire for %d accounts", len(bodies), len(list))
	}
	for key := range bodies {
		if len(key) > 200 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			o.t.Errorf("key %q has %d bytes; want at most 200, printable ASCII", key, len(key))
		}
	}
	for _, c := range list {
		key := ledger.BillingKey("monthly-billing", october, c.id)
		intents := o.emu.IntentsFor(key)
		if len(intents) != 1 || len(bodies[key]) != 1 {
			o.t.Errorf("account %q: %d payments and %d bodies under %s, want one of each", c.id, len(intents), len(bodies[key]), key)
			continue
		}
		if pi := intents[0]; pi.Customer != c.customer || pi.Metadata["billing_account"] != c.id ||
			fmt.Sprintf("%d.%02d", pi.Amount/100, pi.Amount%100) != c.amount {
			o.t.Errorf("account %q: %d of %s from %s for %q, want %s from %s", c.id, pi.Amount, pi.Currency, pi.Customer,
				pi.Metadata["billing_account"], c.amount, c.customer)
		}
	}
	o.mustBeWhole()
}

// T31: ids up to the longest that is taken are charged each under a key of its
// own that Stripe takes, also where two differ in their last byte only.
func TestLongIDsHaveKeysThatStripeTakes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := named([]string{
		strings.Repeat("a", 164), strings.Repeat("a", 165), strings.Repeat("a", 231), strings.Repeat("a", 232),
		strings.Repeat("a", 254) + "1", strings.Repeat("a", 254) + "2",
		strings.Repeat("日", 20), strings.Repeat("日", 77), strings.Repeat("日", 78), strings.Repeat("日", 84) + "本", strings.Repeat("日", 84) + "月",
		// What an id that is hashed looks like to somebody who wants to collide.
		ledger.BillingKey("monthly-billing", october, strings.Repeat("a", 255))[len("monthly-billing/2026-10/"):],
	})
	o.imports(october, list)
	o.month(0)
	o.mustChargeEach(list)
}

// T32, T33: ids that differ in case, in the composition of a letter, in an
// escape or in what a search would take for the same are different accounts.
func TestIDsThatLookAlikeAreDifferentAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := named([]string{
		"0015g000001abcD", "0015g000001abcd", "00123", "123", "caf\u00e9", "cafe\u0301", "Müller-日本", "müller-日本",
		"a b", "a%20b", "a+b", "a/b", "a%2Fb", "a/r2", "a", "a~b", "o'neil", "oneil", `x" OR created>0`, `back\slash`, `trailing\`,
		"219E01BE", "-5", "=1+1", "a\u200bb", "ab",
	})
	var accounts, invoices strings.Builder
	accounts.WriteString("account_id,stripe_customer,payment_method,currency\n")
	invoices.WriteString("account_id,amount,currency\n")
	for _, c := range list {
		id := `"` + strings.ReplaceAll(c.id, `"`, `""`) + `"`
		fmt.Fprintf(&accounts, "%s,%s,%s,usd\n", id, c.customer, c.card)
		fmt.Fprintf(&invoices, "%s,%s,usd\n", id, c.amount)
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accounts.String()))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoices.String()))
	o.month(0)
	o.mustChargeEach(list)
}

// badIDs are those that people and systems take for another or can't write.
var badIDs = map[string]string{
	"line break": "a\nb", "tab": "a\tb", "escape": "a\x1bb", "delete": "a\x7fb", "next line": "a\u0085b",
	"leading space": " a", "trailing space": "a ", "no-break space": "a\u00a0", "wide space": "\u3000a", "blank": "  ",
	"too long": strings.Repeat("a", 256), "too long in bytes": strings.Repeat("日", 86),
}

// T31, T33: an id that could be mistaken is refused where a file brings it, with
// its line, and the file changes nothing.
func TestIDsThatCannotBeToldApartAreRefusedAtImport(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	all := map[string]string{"spreadsheet number": "1.91431E+18", "another": "2.19E+26", "broken UTF-8": "a\xffb", "NUL": "a\x00b"}
	for name, id := range badIDs {
		all[name] = id
	}
	for name, id := range all {
		rows := `"good",1.00,usd` + "\n" + `"` + id + `",1.00,usd` + "\n"
		r := o.must(65, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", "account_id,amount,currency\n"+rows))
		if !strings.Contains(r.stderr, "invoices.csv:3") && !strings.Contains(r.stderr, "UTF-8") {
			t.Errorf("%s: the refusal does not name the line\n%s", name, r)
		}
		rows = `"good",cus_1,pm_1,usd` + "\n" + `"` + id + `",cus_2,pm_2,usd` + "\n"
		o.must(65, "import", "accounts", "--file", o.file("accounts.csv", "account_id,stripe_customer,payment_method,currency\n"+rows))
	}
	if n := one[int](o, `SELECT (SELECT count(*) FROM billing.invoices) + (SELECT count(*) FROM billing.accounts)`); n != 0 {
		t.Errorf("%d rows came in from files that were refused", n)
	}
}

// T33: where a company's own view brings such an id, its row is skipped by name,
// nothing is sent for it, and the others are charged.
func TestIDsThatCannotBeToldApartAreSkippedFromAView(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ownView()
	good := named([]string{"good", "better"})
	for _, c := range good {
		o.owes(c.id, c.amount, c.currency, c.customer, c.card)
	}
	for _, id := range badIDs {
		o.owes(id, "10.00", "usd", "cus_bad", "pm_bad")
	}
	o.owes("", "10.00", "usd", "cus_bad", "pm_bad")
	o.month(4)
	o.mustChargeEach(good)
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'skipped' AND reason = 'bad_account_id'`); n != len(badIDs)+1 {
		t.Errorf("%d rows were skipped for their id, want %d; %v", n, len(badIDs)+1, o.states(october))
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE octet_length(billing_key) > 200 OR billing_key ~ '[^!-~]'`); n != 0 {
		t.Errorf("%d keys are too long or not printable ASCII", n)
	}
	for _, command := range [][]string{{"status", "--period", october}, {"export", "charges", "--period", october, "--format", "csv", "--output", "-"}} {
		if r := o.must(0, command...); strings.ContainsAny(r.stdout, "\x1b\x7f\u0085") && command[0] == "status" {
			t.Errorf("%s prints a control character", command[0])
		}
	}
}

// ownView replaces the view that runs record from by one of the company's own,
// whose table takes anything.
func (o *office) ownView() {
	o.t.Helper()
	o.exec(`CREATE TABLE public.owed (period text, account_id text, amount numeric, currency text, customer text, card text)`)
	o.exec(`CREATE OR REPLACE VIEW billing.billable AS
		SELECT 'monthly-billing'::text COLLATE "C" AS job, o.period COLLATE "C" AS period, o.account_id COLLATE "C" AS account_id, o.amount,
		       o.currency, ''::text AS description, ''::text AS stripe_account, o.customer AS stripe_customer, o.card AS payment_method,
		       ''::text AS name, ''::text AS email, 'active'::text AS status
		FROM public.owed o`)
}

// owes adds a row to the company's own table; the amount is anything that
// numeric takes.
func (o *office) owes(account, amount, currency, customer, card string) {
	o.t.Helper()
	o.exec(`INSERT INTO public.owed VALUES ($1, $2, $3::text::numeric, $4, $5, $6)`, october, account, amount, currency, customer, card)
}
