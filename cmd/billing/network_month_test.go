package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/netproxy"
	"github.com/chargeonce/billing/fixtures/oracle"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// networkMonth is a command whose way to Stripe fails once, and what lies before
// it.
type networkMonth struct {
	name string
	// prepare does, over a way that is well, what comes before the command.
	prepare func(o *office)
	command []string
	// sampled is the kind of call that meets every fault also where not all points
	// are tried; empty for none.
	sampled string
}

// networkMonths are the commands that ask Stripe, each in the months in which it
// makes calls of all its kinds.
func networkMonths() []networkMonth {
	run := func(concurrency string) []string {
		return []string{"run", "--period", october, "--concurrency", concurrency}
	}
	reconcile := []string{"reconcile", "--period", october, "--on-absent", "charge"}
	return []networkMonth{
		{"run", lostOnce, run("1"), stripeemu.OpCreate},
		{"run of four at once", lostOnce, run("4"), ""},
		{"reconcile after a day", lostFor(26 * time.Hour), reconcile, ""},
		{"reconcile after three days", lostFor(73 * time.Hour), reconcile, ""},
		{"reconcile by search", crowded(lostFor(73*time.Hour), 0), reconcile, ""},
		{"reconcile by customer", crowded(lostFor(73*time.Hour), 74*time.Hour), reconcile, ""},
	}
}

// debtorsOfAll is a small month with a debtor of every fate.
func debtorsOfAll() []customer {
	list := customers(14)
	list[1].card = "pm_card_chargeCustomerFail_1"
	list[2].card = "pm_card_authenticationRequired_1"
	list[3].amount = "0.00"
	list[4].amount = "1000000.00" // more than Stripe takes, with eight digits
	list[5].amount, list[5].currency = "1200", "jpy"
	list[6].card = "pm_usBankAccount_success_1"
	list[7].card = ""
	return list
}

// lostOnce loses the answers to those who do not pay at once, so that they are
// sent again, replayed, and read by id.
func lostOnce(o *office) {
	for _, id := range []string{"a0002", "a0003", "a0007"} {
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: id, Times: 1})
	}
}

// lostFor is a month whose run was interrupted, so long ago, when it had lost
// answers after the work and requests before it, and was turned away by 429.
func lostFor(since time.Duration) func(*office) {
	return func(o *office) {
		for _, id := range []string{"a0002", "a0003", "a0006", "a0007", "a0010", "a0013"} {
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: id})
		}
		for _, id := range []string{"a0005", "a0009", "a0011"} {
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Account: id})
		}
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Method: "POST", Account: "a0012"})
		p := o.start("run", "--period", october)
		eventually(o.t, "every charge was sent once", func() bool {
			return one[bool](o, `SELECT coalesce(bool_and(state <> 'pending' OR reason <> ''), false) FROM billing.charges`)
		})
		p.kill()
		o.emu.ClearFaults()
		o.advance(since)
	}
}

// crowded puts so many payments of others there that reading all of them costs
// more than a search; with a lag the search finds nothing, and customers are
// listed one by one.
func crowded(before func(*office), lag time.Duration) func(*office) {
	return func(o *office) {
		before(o)
		o.flood(1300, "cus_shop")
		o.emu.SetSearchLag(lag)
	}
}

// begin is an office in which everything is ready for the command, and the proxy
// on its way to Stripe.
func (m networkMonth) begin(t *testing.T) (*office, *netproxy.Proxy) {
	t.Helper()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, Unverified: stripeemu.Unverified{EightDigits: true}})
	o.ungated()
	o.imports(october, debtorsOfAll())
	m.prepare(o)
	p, err := netproxy.Start(o.env["STRIPE_API_BASE"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	o.env["STRIPE_API_BASE"] = p.URL
	return o, p
}

// finish starts the program again, as cron would, until only people have
// something left to do, and moves the clock on while it says that it waits. It
// returns how the last one ended.
func (o *office) finish() outcome {
	o.t.Helper()
	for _, wait := range []time.Duration{2 * time.Minute, 2 * time.Minute, 25 * time.Hour, 73 * time.Hour, 25 * time.Hour, 73 * time.Hour, 0} {
		r := o.run("run", "--period", october)
		switch r.code {
		case exitOK, exitNeedsPerson:
			return r
		case exitUnknown:
			o.advance(wait)
		default:
			o.t.Fatalf("the network is well, and the run is not\n%s", r)
		}
	}
	o.t.Fatalf("it does not end: %v", o.states(october))
	return outcome{}
}

// judge asks the oracle whether all is as promised after a month that ended. What
// a proxy sent twice left the program once: the oracle is told of one request.
func (m networkMonth) judge(o *office, last outcome, repeated bool) oracle.Verdict {
	o.t.Helper()
	month := oracle.Month{Job: "monthly-billing", Period: october}
	for _, c := range debtorsOfAll() {
		month.Debts = append(month.Debts, oracle.Debt{Account: c.id, Amount: c.amount, Currency: c.currency, Customer: c.customer, Card: c.card})
	}
	ledger, err := oracle.Read(context.Background(), o.db.Pool)
	if err != nil {
		o.t.Fatal(err)
	}
	stripe := oracle.FromEmulator(o.emu)
	if repeated {
		stripe.Requests = withoutRepeat(stripe.Requests, ledger.Charges)
	}
	var typed []oracle.Command
	if verb := m.command[0]; verb != "run" {
		typed = append(typed, oracle.Command{Verb: verb, Period: october})
	}
	return oracle.Judge(oracle.Facts{
		Months: []oracle.Month{month}, Commands: typed, Stripe: stripe, Ledger: ledger, ExitCode: last.code, Ended: true,
	})
}

// withoutRepeat leaves out the first POST that is one more than were counted under
// its key.
func withoutRepeat(requests []stripeemu.Request, charges []oracle.Charge) []stripeemu.Request {
	left := map[string]int{}
	for _, c := range charges {
		left[c.IdempotencyKey] = c.Sends
	}
	for i, r := range requests {
		if r.Method != "POST" {
			continue
		}
		if left[r.IdempotencyKey]--; left[r.IdempotencyKey] < 0 {
			return slices.Delete(requests, i, i+1)
		}
	}
	return requests
}

// networkEnd is what must not depend on the network (G7), by billing key.
type networkEnd map[string]debtEnd

// debtEnd is what became of one debt.
type debtEnd struct {
	// Row has the state, reason, amount, currency and try of the ledger.
	Row string
	// Paid are the live PaymentIntents at Stripe.
	Paid []string
}

func (o *office) networkEnd() networkEnd {
	o.t.Helper()
	rows, err := o.db.Pool.Query(context.Background(), `SELECT billing_key, concat_ws(' ', state, reason, amount, currency, amount_minor, 'try', try)
		FROM billing.charges`)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	end := networkEnd{}
	for rows.Next() {
		var key, text string
		if err := rows.Scan(&key, &text); err != nil {
			o.t.Fatal(err)
		}
		end[key] = debtEnd{Row: text}
	}
	if rows.Err() != nil {
		o.t.Fatal(rows.Err())
	}
	for _, pi := range o.emu.PaymentIntents() {
		if key := pi.Metadata["billing_key"]; key != "" && pi.Live() {
			debt := end[key]
			debt.Paid = append(debt.Paid, fmt.Sprintf("%d %s %s", pi.Amount, pi.Currency, pi.Status))
			end[key] = debt
		}
	}
	return end
}
