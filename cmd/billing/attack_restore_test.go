package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// late is an invoice that came after its month was done.
var late = customer{"late", "cus_late", "pm_card_visa_late", "77.00", "usd"}

// billsLate imports the late invoice into a month that is done, and lets it be run
// again.
func (o *office) billsLate(list []customer, c customer) {
	o.t.Helper()
	o.imports(october, append(list, c))
	o.must(0, "reopen", "--period", october, "--why", "an invoice came late")
}

// An invoice that came late was charged, and then forgotten by a restore to the end
// of the month's first run. Whenever it is imported again, with what customer and
// amount, and although all others were sent: its payment stops the run, and
// nothing is recorded or sent.
func TestALateInvoiceThatARestoreForgotIsNotChargedAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*customer){
		"the same": func(*customer) {}, "another customer": func(c *customer) { c.customer = "cus_moved" },
		"another amount": func(c *customer) { c.amount = "70.00" },
	} {
		for _, later := range []time.Duration{22 * time.Hour, 30 * time.Hour} {
			if name != "the same" && later < 24*time.Hour {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s later", name, later), func(t *testing.T) {
				t.Parallel()
				o := newOffice(t)
				o.ungated()
				list := customers(8)
				o.imports(october, list)
				o.month(0)
				backup := o.db.Snapshot(t)
				o.advance(9 * time.Hour)
				o.billsLate(list, late)
				o.month(0)
				o.db.RestoreSnapshot(t, backup)
				o.advance(later)
				o.emu.ResetLog()
				c := late
				again(&c)
				o.billsLate(list, c)
				o.month(3).says(t, "older than Stripe", "reconcile --period 2026-10 --rebuild")
				if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE account_id = 'late'`); n != 0 {
					t.Errorf("%d charges were recorded for it", n)
				}
				o.posts(0)
				code := 0
				if name != "the same" {
					code = 4
				}
				o.must(code, "reconcile", "--period", october, "--rebuild", "--why", "restored")
				o.advance(80 * time.Hour)
				o.month(code)
				o.posts(0)
				if n := len(o.emu.IntentsFor(keyOf("late"))); n != 1 {
					t.Errorf("it was paid %d times", n)
				}
			})
		}
	}
}

// After a restore a charge can be younger than its payment. Both ways to look read
// from the horizon on, not from when the row was made.
func TestAPaymentThatIsOlderThanItsChargeIsFound(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprintf("one by one %t", many), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(60))
			o.meets(faults{"a0002": stripeemu.FaultRateLimit429})
			pi := o.ofKey("a0002")
			pi.Created = o.emu.Now().Add(-20 * 24 * time.Hour)
			id := o.emu.AddIntent(pi)
			o.advance(26 * time.Hour)
			if many {
				o.flood(1500, "cus_shop")
				o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
			}
			o.month(0)
			if got := o.payment("a0002"); got != id {
				t.Errorf("it was paid by %s, and is settled by %s", id, got)
			}
			o.posts(0)
			o.mustBeWhole()
		})
	}
}

// A new try that a person ordered was charged, and then forgotten by a restore.
// Ordered once more, a day later, under a key that Stripe forgot: the payment is
// found, or what is left of it is shown to a person.
func TestANewTryThatARestoreForgotIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		card string // of the second try
		says string
		code int
	}{
		"paid": {"pm_card_visa_2", "succeeded: 1 charge", 0}, "declined": {"pm_card_chargeCustomerFail_2", "unknown_try", 4},
		"under way": {"pm_usBankAccount_success_2", "processing: 1 charge", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := debtors("mended", "good")
			o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: list[0].card, Customer: list[0].customer})
			o.emu.DetachPaymentMethod(list[0].card)
			o.imports(october, list)
			o.month(4)
			o.is("mended", "rejected payment_method_detached")
			backup := o.db.Snapshot(t)
			o.advance(time.Hour)
			o.orderAnew(list, c.card)
			o.month(0)
			o.advance(29 * time.Hour)
			o.db.RestoreSnapshot(t, backup)
			o.emu.ResetLog()
			list[0].card = "pm_card_visa_2"
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			o.must(c.code, "requeue", "--period", october, "--account", "mended", "--why", "a new card")
			o.month(c.code)
			o.posts(0)
			if n := len(o.emu.IntentsFor(keyOf("mended"))); n != 1 {
				t.Errorf("it has %d PaymentIntents", n)
			}
			o.must(0, "status", "--period", october)
			o.mustBeWhole()
		})
	}
}

// orderAnew gives the first account another card and orders a new try.
func (o *office) orderAnew(list []customer, card string) {
	o.t.Helper()
	list[0].card = card
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "requeue", "--period", october, "--account", list[0].id, "--why", "a new card").says(o.t, "requeued: 1 charge")
}

// The same where the account had another customer at Stripe when it was charged: the
// list of today's customer can't show the payment.
func TestANewTryIsNotOpenedBesideAPaymentOfAnotherCustomer(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"by the span", "by search", "by the customer's list"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := debtors("moved", "good")
			list[0].customer, list[0].card = "", ""
			o.imports(october, list)
			o.month(0)
			o.is("moved", "skipped no_customer")
			backup := o.db.Snapshot(t)
			list[0].customer = "cus_before"
			o.orderAnew(list, "pm_card_visa_before")
			o.month(0)
			o.db.RestoreSnapshot(t, backup)
			o.advance(29 * time.Hour)
			o.emu.ResetLog()
			if way != "by the span" {
				o.flood(1500, "cus_shop")
			}
			if way == "by the customer's list" {
				o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
			}
			list[0].customer, list[0].card = "cus_after", "pm_card_visa_after"
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			o.run("requeue", "--period", october, "--account", "moved", "--why", "it has a customer now")
			o.run("run", "--period", october)
			o.posts(0)
			o.is("moved", "succeeded")
			o.mustBeWhole()
		})
	}
}

// A look of an order that was overtaken opens no try: another order opened it
// meanwhile, it was sent, and its answer is lost.
func TestAnOrderThatWasOvertakenOpensNoSecondTry(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := debtors("mended", "good")
	o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: list[0].card, Customer: list[0].customer})
	o.emu.DetachPaymentMethod(list[0].card)
	o.imports(october, list)
	o.month(4)
	o.advance(time.Hour)
	o.flood(1500, "cus_shop") // so that it is looked up by itself, and chosen before
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Customer: list[0].customer, Times: 1})
	list[0].card = "pm_card_visa_new"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	first := o.start("requeue", "--period", october, "--account", "mended", "--why", "a new card")
	eventually(t, "the first order reads", func() bool { return o.emu.Held() == 1 })
	first.signal(syscall.SIGSTOP) // or it could still give a sign of life
	o.advance(time.Minute)
	o.orderAnew(list, "pm_card_visa_new")
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "the new try is paid", func() bool { return o.emu.Held() == 2 })
	p.kill()
	before := o.chargesText()
	o.emu.Release()
	first.signal(syscall.SIGCONT)
	if r := first.wait(); r.code != 75 || o.chargesText() != before {
		t.Errorf("the first order went on\n%s", r)
	}
	o.advance(25 * time.Hour)
	o.month(0)
	if n := len(o.emu.IntentsFor(keyOf("mended"))); n != 1 {
		t.Errorf("it was paid %d times", n)
	}
	o.mustBeWhole()
}

// backedUpRunning takes a backup under a process, which stands still meanwhile:
// Postgres copies a database that nobody is connected to.
func (o *office) backedUpRunning(p process) (backup string) {
	o.t.Helper()
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	eventually(o.t, "its sessions are gone", func() bool {
		return one[int](o, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'billing'`) == 0
	})
	return o.db.Snapshot(o.t)
}

// A backup that was made under a run is restored under the same run, whose claim
// then still matches. What it was sending by then, of an invoice that the restored
// ledger does not have, becomes a finding, and is not charged again when the invoice
// comes back with another amount.
func TestARunThatOutlivesARestoreToItselfForgetsNoPayment(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	o.imports(october, list)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(append(list, late))))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "a0003", Times: 1})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "the third is being charged", func() bool { return o.emu.Held() == 1 })
	backup := o.backedUpRunning(p)
	o.exec(`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		VALUES ('monthly-billing', '2026-10', 'late', 77.00, 'usd', 'the application', '')`)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "late", Times: 1})
	o.emu.Release()
	eventually(t, "the late invoice is being charged", func() bool { return len(o.emu.IntentsFor(keyOf("late"))) == 1 })
	p.signal(syscall.SIGSTOP) // or it would find no database at all for a moment
	o.db.RestoreSnapshot(t, backup)
	p.signal(syscall.SIGCONT)
	if got := one[string](o, `SELECT state || ' ' || attempt FROM billing.job_runs`); got != "claimed 1" {
		t.Fatalf("the restored claim is %s: the test shows nothing", got)
	}
	o.emu.Release()
	r := p.wait()
	if got := one[int](o, `SELECT count(*) FROM billing.findings WHERE kind = 'not_recorded' AND account_id = 'late'`); got != 1 {
		t.Errorf("%d findings about the payment that is in no ledger\n%s", got, r)
	}
	if got := o.states(october)["succeeded"]; got != 3 {
		t.Errorf("%d of 3 are paid in the restored ledger\n%s", got, r)
	}
	back := late
	back.amount = "70.00"
	o.exec(`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		VALUES ('monthly-billing', '2026-10', 'late', 70.00, 'usd', 'the application', '')`)
	if one[string](o, `SELECT state FROM billing.job_runs`) == "done" {
		o.must(0, "reopen", "--period", october, "--why", "it came back")
	}
	posts := o.emu.Posts()
	o.month(3).says(t, "older than Stripe")
	if n := o.emu.Posts() - posts; n != 0 || len(o.emu.IntentsFor(keyOf("late"))) != 1 {
		t.Errorf("%d POSTs, %d payments of the late invoice", n, len(o.emu.IntentsFor(keyOf("late"))))
	}
}
