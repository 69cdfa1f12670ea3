package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// mustHaveOneKeyEach holds the wire against the ledger: one key for each account,
// which is its billing key, one body under each, and as many POSTs as sends.
func (o *office) mustHaveOneKeyEach(list []customer) {
	o.t.Helper()
	keys := map[string]map[string]bool{}
	for _, r := range o.emu.Requests() {
		if r.Method != "POST" {
			continue
		}
		if keys[r.Account] == nil {
			keys[r.Account] = map[string]bool{}
		}
		keys[r.Account][r.IdempotencyKey] = true
	}
	for _, c := range list {
		if want := map[string]bool{ledger.BillingKey("monthly-billing", october, c.id): true}; !cmp.Equal(want, keys[c.id]) {
			o.t.Errorf("account %s was sent under the keys %v, want its billing key alone", c.id, keys[c.id])
		}
	}
	for key, bodies := range o.bodiesByKey() {
		if len(bodies) != 1 {
			o.t.Errorf("%s: %d different bodies", key, len(bodies))
		}
	}
}

// T03: two runs that both have a request for one charge under way: Stripe answers
// 409 to the later, which says nothing about the charge; it is asked again under
// the same key and ends as what the first one was.
func TestTwoRunsWithOneChargeUnderWayChargeItOnce(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{"paid": "pm_card_visa_x", "declined": "pm_card_chargeCustomerFail_x"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "1s"
			list := customers(8)
			list[3].card = card
			o.imports(october, list)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSlowExecution, Method: "POST", Account: list[3].id, Times: 1})
			first := o.start("run", "--period", october, "--concurrency", "1")
			eventually(t, "the first request is being executed", func() bool { return o.emu.Held() == 1 })
			// Without an answer its work does not get on, so its claim goes stale.
			second := o.start("run", "--period", october, "--concurrency", "1")
			eventually(t, "the second run gets a 409", func() bool { return o.conflicts() > 0 })
			if got := o.state(list[3].id); got != "pending" {
				t.Errorf("after a 409 the charge is %s", got)
			}
			o.emu.Release()
			if r := second.wait(); r.code != 0 {
				t.Errorf("the second run: want exit 0\n%s", r)
			}
			if r := first.wait(); r.code != 75 {
				t.Errorf("the first run was taken over: want exit 75\n%s", r)
			}
			want := map[string]string{"paid": "succeeded", "declined": "declined"}[name]
			if got := o.state(list[3].id); got != want || len(o.emu.IntentsFor("monthly-billing/2026-10/"+list[3].id)) != 1 {
				t.Errorf("the charge is %s, want %s and one PaymentIntent", got, want)
			}
			o.month(0)
			o.mustHaveOneKeyEach(list)
			o.mustHaveCountedSends()
			o.mustBeWhole()
		})
	}
}

// mustHaveCountedSends wants every POST to have been counted before it left. An
// owner that is killed or taken over may have counted some that never did.
func (o *office) mustHaveCountedSends() {
	o.t.Helper()
	posts := map[string]int{}
	for _, r := range o.emu.Requests() {
		if r.Method == "POST" {
			posts[r.Account]++
		}
	}
	for account, n := range posts {
		if sends := one[int](o, `SELECT sends FROM billing.charges WHERE account_id = $1`, account); sends < n {
			o.t.Errorf("account %s: %d POSTs on the wire and %d sends counted", account, n, sends)
		}
	}
}

// T04: owners that die one after the other while an answer is outstanding leave
// one key for each account, whatever the attempt.
func TestTakeoversNeverChangeAKey(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := customers(5)
	o.imports(october, list)
	for range 3 {
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "a0002", Times: 1})
		p := o.start("run", "--period", october, "--concurrency", "1")
		eventually(t, "a request is under way", func() bool { return o.emu.Held() == 1 })
		p.kill()
		o.emu.Release()
		eventually(t, "nothing is under way", func() bool { return o.emu.Held() == 0 })
	}
	o.month(0)
	if got := one[int](o, `SELECT attempt FROM billing.job_runs`); got != 4 {
		t.Errorf("the month was done by attempt %d, want 4", got)
	}
	if got := one[string](o, `SELECT string_agg(result, ' ' ORDER BY attempt) FROM billing.job_run_attempts`); got != "taken_over taken_over taken_over done" {
		t.Errorf("the attempts are kept as %q", got)
	}
	o.mustHaveOneKeyEach(list)
	o.mustHaveCountedSends()
	o.mustBeWhole()
}

// T09, T10: eight processes at once charge the month once; one of them owns it.
func TestEightProcessesAtOnceChargeOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(80)
	o.imports(october, list)
	var runs []process
	for range 8 {
		runs = append(runs, o.start("run", "--period", october, "--rate", "200", "--json"))
	}
	outcomes := map[string]int{}
	for _, p := range runs {
		r := p.wait()
		if r.code != 0 {
			t.Errorf("want exit 0 from each\n%s", r)
			continue
		}
		outcomes[r.json(t).Outcome]++
	}
	if outcomes["done"] != 1 || outcomes["already_done"] != 7 {
		t.Errorf("outcomes %v, want one done and seven already_done", outcomes)
	}
	if o.emu.Posts() != 80 || one[int](o, `SELECT attempt FROM billing.job_runs`) != 1 {
		t.Errorf("%d POSTs for 80 charges, attempt %d", o.emu.Posts(), one[int](o, `SELECT attempt FROM billing.job_runs`))
	}
	o.mustHaveOneKeyEach(list)
	o.mustBeWhole()
}

// An invoice that somebody adds to the table while the month is being charged is
// charged by the same run; a file is refused until the run is over.
func TestAnInvoiceThatArrivesDuringTheRunIsChargedByIt(t *testing.T) {
	t.Parallel()
	var o *office
	var once sync.Once
	o = newOffice(t, stripeemu.Config{AnyCustomer: true, OnAnswer: func(r *stripeemu.Request) {
		if r.Method == "POST" {
			once.Do(func() {
				_, err := o.db.Pool.Exec(context.Background(), `INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
					VALUES ('monthly-billing', '2026-10', 'a0009', 19.99, 'usd', 'the application', '')`)
				if err != nil {
					o.t.Errorf("add an invoice: %v", err)
				}
				p := o.start("import", "invoices", "--period", october, "--file", o.file("late.csv", invoicesCSV(customers(9))))
				if r := p.wait(); r.code != 75 || !strings.Contains(r.stderr, "claimed by") {
					o.t.Errorf("a file during the run: want exit 75\n%s", r)
				}
			})
		}
	}})
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(9))))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoicesCSV(customers(5))))
	o.month(0)
	if got := o.states(october); got["succeeded"] != 6 || one[int](o, `SELECT attempt FROM billing.job_runs`) != 1 {
		t.Errorf("states %v; want all six invoices charged by the first attempt", got)
	}
	o.mustBeWhole()
}

// Two rows for one account in a company's own view contradict each other: the run
// is refused as bad data, and nothing is recorded or sent.
func TestTwoRowsForOneAccountRecordNothing(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{"the same amount": "10.00", "another": "20.00"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.ownView()
			o.owes("a", "10.00", "usd", "cus_a", "pm_a")
			o.owes("twice", "10.00", "usd", "cus_b", "pm_b")
			o.owes("twice", second, "usd", "cus_b", "pm_b")
			if r := o.month(65); !strings.Contains(r.stderr, "twice") {
				t.Errorf("the account is not named\n%s", r)
			}
			o.must(65, "preview", "--period", october)
			if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 0 || o.emu.Posts() != 0 {
				t.Errorf("%d charges, %d POSTs", n, o.emu.Posts())
			}
			o.exec(`DELETE FROM public.owed WHERE account_id = 'twice' AND ctid = (SELECT max(ctid) FROM public.owed)`)
			o.month(0)
			o.mustBeWhole()
		})
	}
}

// A second row that appears after the period is done is not taken for the first,
// even where both owe the same.
func TestASecondRowAfterThePeriodIsDoneIsNotSilent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ownView()
	o.owes("twice", "10.00", "usd", "cus_b", "pm_b")
	o.month(0)
	o.owes("twice", "10.00", "usd", "cus_b", "pm_b")
	o.month(65)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(65)
	if o.emu.Posts() != 1 {
		t.Errorf("%d POSTs", o.emu.Posts())
	}
	o.mustBeWhole()
}

// T42: a backup that is restored under a running process takes its claim away: it
// records what it has, sends nothing more, and the next run replays the rest.
func TestARestoreUnderARunningProcessChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := customers(60)
	o.imports(october, list)
	o.recordedOnly()
	backup := o.db.Snapshot(t)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: 20, Times: 1})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "a third is charged", func() bool { return o.emu.Held() == 1 })
	// What it has permits for it may send, and a restore can be quicker than they end.
	eventually(t, "its permits end", func() bool {
		return one[bool](o, `SELECT coalesce(max(lease_until), '-infinity') < billing.now() FROM billing.charges`)
	})
	o.db.RestoreSnapshot(t, backup)
	o.emu.Release()
	// Between the drop and the copy it may even find no database at all.
	if r := p.wait(); r.code != 75 && r.code != 69 && r.code != 78 {
		t.Errorf("its claim is gone: want exit 75, 69 or 78\n%s", r)
	}
	posts := o.emu.Posts()
	if posts > 21 {
		t.Errorf("%d POSTs: it went on after the restore", posts)
	}
	o.month(0)
	if n := o.emu.IntentCount(); n != 60 {
		t.Errorf("%d PaymentIntents for 60 debts", n)
	}
	o.mustHaveOneKeyEach(list)
	o.mustBeWhole()
}

// T42, T07: a copy of the ledger that is run beside it, such as a staging system
// with a copy of the data, replays what the first one charged. A request of the
// other that is still being executed says nothing about the charge.
func TestACopyOfTheLedgerReplaysAndChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(20)
	o.imports(october, list)
	o.recordedOnly()
	staging := *o
	staging.db = o.db.Clone(t)
	staging.env = maps.Clone(o.env)
	staging.env["DATABASE_URL"] = staging.db.URL
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSlowExecution, Method: "POST", Account: "a0010", Times: 1})
	first := o.start("run", "--period", october)
	eventually(t, "a request is being executed", func() bool { return o.emu.Held() == 1 })
	second := staging.start("run", "--period", october)
	eventually(t, "the other is told that the key is in use", func() bool { return o.conflicts() > 0 })
	o.emu.Release()
	if a, b := first.wait(), second.wait(); a.code != 0 || b.code != 0 {
		t.Errorf("want exit 0 from both\n%s\n%s", a, b)
	}
	if n := o.emu.IntentCount(); n != 20 {
		t.Errorf("%d PaymentIntents for 20 debts", n)
	}
	o.mustBeWhole()
	staging.mustBeWhole()
	if diff := cmp.Diff(payments(o), payments(&staging)); diff != "" {
		t.Errorf("the two ledgers know different payments:\n%s", diff)
	}
}

// conflicts counts the answers that say that a key is in use.
func (o *office) conflicts() (n int) {
	for _, r := range o.emu.Requests() {
		if r.Status == 409 {
			n++
		}
	}
	return n
}

func payments(o *office) string {
	return one[string](o, `SELECT string_agg(billing_key || ' ' || payment_intent, E'\n' ORDER BY billing_key) FROM billing.charges`)
}

// A charge that somebody else's proxy keeps and delivers after the month was
// finished finds its key used: nobody pays twice.
func TestARequestThatArrivesAfterTheMonthIsDoneReplays(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := customers(4)
	o.imports(october, list)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Account: "a0002", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "a request is on its way", func() bool { return o.emu.Held() == 1 })
	p.kill()
	o.month(0)
	o.advance(3 * time.Hour)
	o.emu.Release()
	eventually(t, "it arrives", func() bool { return o.emu.Held() == 0 })
	o.month(0)
	if n := len(o.emu.IntentsFor(fmt.Sprintf("monthly-billing/%s/a0002", october))); n != 1 {
		t.Errorf("%d PaymentIntents for one debt", n)
	}
	o.mustHaveOneKeyEach(list)
	o.mustHaveCountedSends()
	o.mustBeWhole()
}
