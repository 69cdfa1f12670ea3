package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A month is charged once; the same command again sends nothing, changes no row
// and says so.
func TestARunTwiceChargesOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1000))
	first := o.month(0, "--json").json(t)
	if first.Outcome != "done" || first.Sent != 1000 || first.Settled != 1000 {
		t.Errorf("first run: outcome %s, %d sent, %d settled; want done, 1000, 1000", first.Outcome, first.Sent, first.Settled)
	}
	o.mustBeWhole()
	before, posts := o.ledgerText(), o.emu.Posts()

	again := o.month(0, "--json").json(t)
	if again.Outcome != "already_done" || again.Sent != 0 {
		t.Errorf("second run: outcome %s, %d sent; want already_done and 0", again.Outcome, again.Sent)
	}
	if got := o.emu.Posts(); got != posts {
		t.Errorf("the second run sent %d POSTs", got-posts)
	}
	if diff := cmp.Diff(before, o.ledgerText()); diff != "" {
		t.Errorf("the second run changed the ledger:\n%s", diff)
	}
}

// An invoice that comes after the period was done is named by run and status,
// with the way to charge it, and never ends in a silent 0.
func TestALateInvoiceIsNamedAndCanBeCharged(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.month(0)
	o.imports(october, customers(4))

	run := o.month(4)
	status := o.must(0, "status", "--period", october)
	for name, text := range map[string]string{"run": run.stdout + run.stderr, "status": status.stdout} {
		if !strings.Contains(text, "not in the ledger") || !strings.Contains(text, "billing reopen --period 2026-10") {
			t.Errorf("%s does not say what is missing and how to reopen:\n%s", name, text)
		}
	}
	if o.emu.Posts() != 3 {
		t.Errorf("%d POSTs; a done period was charged again", o.emu.Posts())
	}
	o.must(0, "reopen", "--period", october, "--why", "late invoice")
	o.month(0)
	if o.emu.Posts() != 4 {
		t.Errorf("%d POSTs, want one for each of 4 invoices", o.emu.Posts())
	}
	o.mustBeWhole()
}

// Three runs at once: one owns the period, the others wait and find it done.
func TestThreeRunsAtOnceChargeOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(200))
	runs := []process{}
	for range 3 {
		runs = append(runs, o.start("run", "--period", october, "--rate", "200"))
	}
	for _, p := range runs {
		if r := p.wait(); r.code != 0 {
			t.Errorf("want exit 0 from each\n%s", r)
		}
	}
	if o.emu.Posts() != 200 {
		t.Errorf("%d POSTs for 200 charges", o.emu.Posts())
	}
	o.mustBeWhole()
}

// A run that may not wait leaves a busy period alone.
func TestABusyPeriodIsLeftAlone(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 100)
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, OnRequest: func(r *stripeemu.Request) {
		if r.Method == "POST" {
			reached <- struct{}{}
		}
	}})
	o.imports(october, customers(5))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Times: 1})
	owner := o.start("run", "--period", october)
	<-reached
	r := o.month(75, "--wait", "0s", "--json").json(t)
	if r.Outcome != "busy" || r.Sent != 0 {
		t.Errorf("outcome %s, %d sent; want busy and 0", r.Outcome, r.Sent)
	}
	o.emu.Release()
	if r := owner.wait(); r.code != 0 {
		t.Errorf("the owner was disturbed\n%s", r)
	}
	o.mustBeWhole()
}

// Each way in which an account can't be charged is a row with its reason, and
// the others are charged.
func TestAnUnusableAccountNeverStopsTheMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{})
	good := customer{"good", "cus_good", "pm_good", "20.00", "usd"}
	list := []customer{
		good,
		{"zero", "cus_zero", "pm_zero", "0.00", "usd"},
		{"credit", "cus_credit", "pm_credit", "-5.00", "usd"},
		{"tiny", "cus_tiny", "pm_tiny", "0.49", "usd"},
		{"nocard", "cus_nocard", "", "20.00", "usd"},
		{"nocustomer", "", "pm_x", "20.00", "usd"},
		{"gone", "cus_gone", "pm_gone", "20.00", "usd"},
		{"poor", "cus_poor", "pm_poor", "20.00", "usd"},
		{"secure", "cus_secure", "pm_secure", "20.00", "usd"},
		{"debit", "cus_debit", "pm_debit", "20.00", "usd"},
	}
	for id, alias := range map[string]string{"good": "pm_card_visa", "poor": "pm_card_chargeCustomerFail",
		"secure": "pm_card_authenticationRequired", "debit": "pm_usBankAccount_success"} {
		o.emu.AddCustomer(stripeemu.Customer{ID: "cus_" + id})
		o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: "pm_" + id, Customer: "cus_" + id, Alias: alias})
	}
	o.imports(october, list)
	o.exec(`INSERT INTO billing.accounts (account_id, stripe_customer, payment_method, status) VALUES ('paused', 'cus_p', 'pm_p', 'paused')`)
	o.exec(`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		SELECT 'monthly-billing', '2026-10', a, 20, c, 'test', '' FROM (VALUES ('paused', 'usd'), ('noaccount', 'usd'), ('odd', 'zzz'), (' blank', 'usd')) v(a, c)`)
	o.exec(`INSERT INTO billing.accounts (account_id, stripe_customer, payment_method) VALUES ('odd', 'cus_o', 'pm_o'), (' blank', 'cus_b', 'pm_b')`)
	o.exec(`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		VALUES ('monthly-billing', '2026-10', 'cents', 10.001, 'usd', 'test', '')`)
	o.exec(`INSERT INTO billing.accounts (account_id, stripe_customer, payment_method) VALUES ('cents', 'cus_c', 'pm_c')`)

	o.month(4) // rejected and unusable rows need a person
	want := map[string]string{
		"good": "succeeded", "zero": "skipped zero", "credit": "skipped credit", "tiny": "skipped below_minimum",
		"nocard": "skipped no_payment_method", "nocustomer": "skipped no_customer", "paused": "skipped paused",
		"noaccount": "skipped no_account", "odd": "skipped bad_currency", " blank": "skipped bad_account_id", "cents": "skipped bad_amount",
		"gone": "rejected resource_missing", "poor": "declined", "secure": "action_required", "debit": "processing",
	}
	for account, w := range want {
		got := one[string](o, `SELECT trim(state || ' ' || CASE WHEN state IN ('skipped', 'rejected') THEN reason ELSE '' END)
			FROM billing.charges WHERE account_id = $1`, account)
		if got != w {
			t.Errorf("account %q is %q, want %q", account, got, w)
		}
	}
	o.mustBeWhole()
	before := o.ledgerText()
	o.month(4) // the ledger decides: the same again
	if diff := cmp.Diff(before, o.ledgerText()); diff != "" {
		t.Errorf("a second run changed the ledger:\n%s", diff)
	}
}

// A card that was added after the first run is charged by the next run of the
// period, under the key that the debt always had.
func TestASkippedChargeIsDecidedAgainWhenItsCauseIsMended(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(2)
	list[1].card = ""
	o.imports(october, list)
	o.month(0)
	list[1].card = "pm_card_visa_new"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "reopen", "--period", october, "--why", "a card was added")
	o.month(0)
	if got := o.state("a0002"); got != "succeeded" {
		t.Errorf("the charge is %s after its card was added", got)
	}
	o.mustBeWhole()
}

// A person who stops the program loses nothing: what was under way is recorded,
// no new send starts, and the next run finishes.
func TestAStoppedRunRecordsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(60))
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: 9, Times: 1})
			p := o.start("run", "--period", october, "--concurrency", "1", "--lease", "1m", "--json")
			eventually(t, "a send is held", func() bool { return o.emu.Held() == 1 })
			p.signal(sig)
			eventually(t, "what was claimed and not sent is given back", func() bool {
				return one[int](o, `SELECT sum(sends) FROM billing.charges`) == o.emu.Posts()
			})
			o.emu.Release()
			r := p.wait()
			if want := 128 + int(sig); r.code != want {
				t.Errorf("want exit %d\n%s", want, r)
			}
			posts := o.emu.Posts()
			if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'succeeded'`); n != posts {
				t.Errorf("%d charges are recorded as paid after %d POSTs", n, posts)
			}
			if n := one[int](o, `SELECT coalesce(sum(sends), 0) FROM billing.charges`); n != posts {
				t.Errorf("%d sends counted, %d POSTs on the wire", n, posts)
			}
			o.month(0)
			if o.emu.Posts() != 60 {
				t.Errorf("%d POSTs for 60 charges", o.emu.Posts())
			}
			o.mustBeWhole()
		})
	}
}

// Money moves only when somebody said so.
func TestARunWithoutATerminalNeedsYes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	delete(o.env, "BILLING_YES")
	r := o.month(64)
	if !strings.Contains(r.stderr, "--yes") || o.emu.Posts() != 0 {
		t.Errorf("%d POSTs, and the refusal reads\n%s", o.emu.Posts(), r)
	}
}

// What a run needs before it may start is asked for by name, and nothing is
// recorded before it is there.
func TestARunThatMayNotStartChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	r := o.month(3)
	if !strings.Contains(r.stderr, "billing close --period 2026-10") {
		t.Errorf("an open period: %s", r)
	}
	r = o.month(3, "--unclosed")
	if !strings.Contains(r.stderr, "--allow-empty") {
		t.Errorf("nothing to bill: %s", r)
	}
	o.imports("2026-11", customers(1))
	r = o.must(3, "run", "--period", "2026-11")
	if !strings.Contains(r.stderr, "--early") {
		t.Errorf("a period that has not ended: %s", r)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 0 || o.emu.Posts() != 0 {
		t.Errorf("%d charges, %d POSTs", n, o.emu.Posts())
	}
	o.must(0, "run", "--period", "2026-11", "--early")
	o.mustBeWhole()
}

// A derived period is the month before the scheduled time, never a guess.
func TestThePeriodIsTheMonthBefore(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	// T11: an edited schedule fires in the middle of the month.
	o.setNow(time.Date(2026, 11, 17, 14, 0, 0, 0, time.UTC))
	r := o.must(0, "run", "--json").json(t)
	if r.Period != october || r.Outcome != "already_done" {
		t.Errorf("period %s, outcome %s; want 2026-10, already_done", r.Period, r.Outcome)
	}
	// Late in the month "the month before" may well be a mistake.
	o.setNow(time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC))
	if r := o.must(64, "run"); !strings.Contains(r.stderr, "--period 2026-10") {
		t.Errorf("want the command to type\n%s", r)
	}
	// At midnight in UTC it is still October in New York.
	o.setNow(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
	if r := o.must(64, "run", "--timezone", "America/New_York"); !strings.Contains(r.stderr, "2026-09") {
		t.Errorf("want a refusal that names 2026-09\n%s", r)
	}
	for _, bad := range []string{"2026-1", "2026-13", "202610", "2026-10 ", "October", "1926-10"} {
		if r := o.must(64, "run", "--period", bad); !strings.Contains(r.stderr, "2026-10") {
			t.Errorf("period %q: want an example in\n%s", bad, r)
		}
	}
}
