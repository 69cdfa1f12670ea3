package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// audits runs the audit of October, wants an exit code and returns what --json says
// of it.
func (o *office) audits(code int, args ...string) (auditJSON, result) {
	o.t.Helper()
	r := o.must(code, append([]string{"reconcile", "--period", october, "--audit", "--json"}, args...)...)
	var res struct {
		Details struct {
			Audit auditJSON `json:"audit"`
		} `json:"details"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil {
		o.t.Fatalf("stdout is no JSON: %v\n%s", err, r)
	}
	return res.Details.Audit, r.json(o.t)
}

// amounts are the amounts of one currency's lines, by what they are.
func (a auditJSON) amounts(currency string) map[string]string {
	out := map[string]string{}
	for _, sum := range a.Sums {
		if sum.Currency != currency {
			continue
		}
		for _, line := range sum.Lines {
			out[line.What] = line.Amount
		}
	}
	return out
}

// A month in which all went well has no differences, its sums lead from the invoices
// to the net amount to the cent, and the export has fee, net and the day on which the
// money is available. A second audit writes nothing.
func TestAnAuditOfACleanMonthFindsNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedReadOnlyKeys: []string{"rk_test_reader"}})
	list := customers(6)
	list[4].card, list[5].card = "pm_card_chargeCustomerFail_5", ""
	o.ungated()
	o.imports(october, list)
	o.month(0)
	o.env["STRIPE_SECRET_KEY"] = "rk_test_reader"
	text := o.must(0, "reconcile", "--period", october, "--audit").stdout
	if !strings.Contains(text, "0 differences; compared: 6 charges with 5 payments, 0 refunds and 0 disputes") {
		t.Errorf("the text says\n%s", text)
	}
	before := o.ledgerText()
	a, _ := o.audits(0)
	if diff := cmp.Diff(map[string]string{
		"invoiced": "60.21", "recorded": "60.21", "skipped": "-10.06", "declined": "-10.05", "paid in the ledger": "40.10",
		"paid at Stripe": "40.10", "fees": "-2.36", "net": "37.74",
	}, a.amounts("usd")); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	if after := o.ledgerText(); after != before {
		t.Errorf("a second audit changed the ledger:\n%s", cmp.Diff(before, after))
	}
	rows := readCSV(t, o.must(0, "export", "charges", "--period", october).stdout)
	if got := rows[1]; got["fee"] != "0.59" || got["net"] != "9.42" || got["available_on"] == "" || got["refunds"] != "0" || got["balance_currency"] != "usd" {
		t.Errorf("the export has %v", got)
	}
	if got := rows[5]; got["fee"] != "" || got["net"] != "" {
		t.Errorf("the export has a fee of what was declined: %v", got)
	}
}

// readCSV reads an export by its header; row 0 is the header itself.
func readCSV(t testing.TB, text string) (rows []map[string]string) {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range lines {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// planted is what a test put wrong, by kind and billing key.
type planted map[string]map[string]bool

func (p planted) add(kind, account string) {
	if p[kind] == nil {
		p[kind] = map[string]bool{}
	}
	p[kind]["monthly-billing/2026-10/"+account] = true
}

// plant puts n differences of each kind among a month that was charged; the first 4n
// customers were declined. It takes two hours.
func (o *office) plant(list []customer, n int) planted {
	o.t.Helper()
	defer o.advance(2 * time.Hour)
	p := planted{}
	payments := map[string]stripeemu.PaymentIntent{}
	for _, pi := range o.emu.PaymentIntents() {
		payments[pi.Metadata["billing_account"]] = pi
	}
	must := func(err error) {
		if err != nil {
			o.t.Fatal(err)
		}
	}
	again := func(account string, change func(*stripeemu.PaymentIntent)) {
		pi := payments[account]
		pi.ID, pi.Status, pi.DeclineCode, pi.ErrorCode, pi.Metadata = "", "succeeded", "", "", maps.Clone(pi.Metadata)
		pi.PaymentMethod, pi.Created = "pm_card_visa", pi.Created.Add(time.Hour)
		change(&pi)
		o.emu.AddIntent(pi)
	}
	next := 0
	each := func(kind string, do func(account string)) {
		for range n {
			account := list[next].id
			next++
			p.add(kind, account)
			do(account)
		}
	}
	each("late_paid", func(a string) { must(o.emu.CustomerPays(payments[a].ID)) })
	each("amount_mismatch", func(a string) { again(a, func(pi *stripeemu.PaymentIntent) { pi.Amount++ }) })
	each("currency_mismatch", func(a string) { again(a, func(pi *stripeemu.PaymentIntent) { pi.Currency = "eur" }) })
	each("wrong_customer", func(a string) { again(a, func(pi *stripeemu.PaymentIntent) { pi.Customer = "cus_other" }) })
	each("canceled", func(a string) { must(o.emu.CancelIntent(payments[a].ID, "abandoned")) })
	each("missing", func(a string) {
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultOmit, PaymentIntent: payments[a].ID})
	})
	each("duplicate", func(a string) { again(a, func(*stripeemu.PaymentIntent) {}) })
	each("adjacent_double", func(a string) {
		again(a, func(pi *stripeemu.PaymentIntent) {
			pi.Metadata["billing_period"], pi.Metadata["billing_key"] = "2026-11", "monthly-billing/2026-11/"+a
		})
	})
	each("refunded", func(a string) { must(o.emu.Refund(payments[a].ID, 500)) })
	each("disputed", func(a string) { must(o.emu.Dispute(payments[a].ID)) })
	for i := range n {
		account := fmt.Sprintf("x%04d", i)
		p.add("orphan", account)
		again(list[next].id, func(pi *stripeemu.PaymentIntent) {
			pi.Metadata["billing_account"], pi.Metadata["billing_key"] = account, "monthly-billing/2026-10/"+account
		})
	}
	return p
}

// found reads the open findings, as planted has them.
func (o *office) found() planted {
	o.t.Helper()
	p := planted{}
	for _, line := range strings.Fields(one[string](o, `SELECT coalesce(string_agg(kind || '|' || billing_key, ' '), '') FROM billing.findings WHERE resolved_at IS NULL`)) {
		kind, key, _ := strings.Cut(line, "|")
		if p[kind] == nil {
			p[kind] = map[string]bool{}
		}
		p[kind][key] = true
	}
	return p
}

// auditMonth is a month of n customers, of whom the first declined ones were declined.
func (o *office) auditMonth(n, declined int) []customer {
	o.t.Helper()
	o.ungated()
	list := customers(n)
	for i := range declined {
		list[i].card = fmt.Sprintf("pm_card_chargeCustomerFail_%d", i)
	}
	o.imports(october, list)
	o.month(0)
	return list
}

// A hundred differences of all kinds among all payments of a month are found, and no
// other is; the sums are right to the cent; it takes few calls. Under BILLING_PROOF
// there are 100,000 payments.
func TestAnAuditFindsEveryDifference(t *testing.T) {
	t.Parallel()
	n := 2000
	if os.Getenv("BILLING_PROOF") != "" {
		n = 100_000
	}
	const each = 10
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, LogLimit: -1})
	o.env["BILLING_READ_RATE"], o.env["BILLING_LEASE"] = "0", "2m"
	list := o.auditMonth(n, 5*each)
	want := o.plant(list, each)
	before := o.emu.Count("GET *")
	a, _ := o.audits(4)
	calls := o.emu.Count("GET *") - before
	if diff := cmp.Diff(want, o.found()); diff != "" {
		t.Errorf("findings (-planted +found):\n%s", diff)
	}
	if budget := 1200 * n / 100_000; calls > max(budget, n/100+3+each+spareCalls) || a.Calls > int64(calls) {
		t.Errorf("%d calls for %d payments; the audit counted %d", calls, n, a.Calls)
	}
	if diff := cmp.Diff(o.sumsBesides(want), a.amounts("usd")); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	again, _ := o.audits(4)
	if again.Opened != 0 || again.Closed != 0 {
		t.Errorf("a second audit opened %d findings and closed %d", again.Opened, again.Closed)
	}
	o.emu.ClearFaults()
	if a, _ := o.audits(4); a.Closed != each || len(o.found()["missing"]) != 0 {
		t.Errorf("%d findings were closed once the missing payments were there again", a.Closed)
	}
}

// spareCalls are for the identity of the key, and for the ends of parts.
const spareCalls = 14

// sumsBesides works out what the audit must say of usd, from the files and from what
// the emulator has, if what was planted is all that differs.
func (o *office) sumsBesides(p planted) map[string]string {
	o.t.Helper()
	cents := map[string]int64{}
	for _, pi := range o.emu.PaymentIntents() {
		key := pi.Metadata["billing_key"]
		if pi.Status != "succeeded" || pi.Currency != "usd" || pi.Metadata["billing_period"] != october {
			continue
		}
		if p["missing"][key] {
			cents["missing"] -= pi.Amount
			continue
		}
		for _, kind := range []string{"amount_mismatch", "wrong_customer", "orphan"} {
			if p[kind][key] {
				cents[kind] += pi.Amount
			}
		}
		if p["duplicate"][key] {
			cents["duplicate"] += pi.Amount
		}
		cents["paid at Stripe"] += pi.Amount
		cents["refunded"] -= pi.AmountRefunded
		cents["fees"] -= pi.Amount*29/1000 + 30
		if pi.Disputed {
			cents["disputed"] -= pi.Amount
			cents["fees"] -= 1500
		}
	}
	cents["duplicate"] /= 2 // one of the two is the charge's
	cents["net"] = cents["paid at Stripe"] + cents["refunded"] + cents["disputed"] + cents["fees"]
	cents["invoiced"] = one[int64](o, `SELECT sum(amount * 100)::bigint FROM billing.invoices`)
	cents["recorded"] = cents["invoiced"]
	cents["declined"] = -one[int64](o, `SELECT sum(amount * 100)::bigint FROM billing.charges WHERE state = 'declined'`)
	cents["paid in the ledger"] = cents["recorded"] + cents["declined"]
	if got := cents["paid in the ledger"] + cents["missing"] + cents["amount_mismatch"] + cents["wrong_customer"] + cents["orphan"] + cents["duplicate"]; got != cents["paid at Stripe"] {
		o.t.Fatalf("the test's own lines do not add up: %v", cents)
	}
	out := map[string]string{}
	for what, n := range cents {
		sign := ""
		if n < 0 {
			sign, n = "-", -n
		}
		out[what] = fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
	}
	return out
}
