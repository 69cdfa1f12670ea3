package main

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A new try is made, and forgotten by a restore; 22 or 30 hours later it is ordered
// again. What the first one came to is found: it is settled, or a person must look.
func TestARetryThatARestoreForgotIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate  string // of the card at the second try
		state string
		code  int
	}{
		"paid":        {"pm_card_visa", "succeeded", 0},
		"under way":   {"pm_usBankAccount_success", "processing", 0},
		"declined":    {softCard, "declined insufficient_funds", 4},
		"answer lost": {"pm_card_visa", "succeeded", 0},
	} {
		for _, later := range []time.Duration{22 * time.Hour, 30 * time.Hour} {
			t.Run(name+later.String(), func(t *testing.T) {
				t.Parallel()
				o := newOffice(t)
				o.declinedOnes("poor")
				o.advance(time.Hour)
				backup := o.db.Snapshot(t)
				o.emu.UpdatePaymentMethod(softCard+"poor", c.fate)
				o.retry(0, "--all").says(t, "requeued: 1 charge")
				if name == "answer lost" {
					o.meets(faults{"poor": stripeemu.FaultLoseAnswer})
				} else {
					o.month(0)
				}
				o.advance(later)
				o.db.RestoreSnapshot(t, backup)
				o.topUp("poor")
				o.emu.ResetLog()
				o.retry(c.code, "--all")
				o.month(c.code)
				o.posts(0)
				o.is("poor", c.state)
				if n := len(o.emu.IntentsFor(keyOf("poor"))); n != 2 {
					t.Errorf("it has %d PaymentIntents", n)
				}
				o.mustBeWhole()
			})
		}
	}
}

// The answer of a cancel is lost, or Stripe never got it: what it is then is read
// again, and only when nothing is open is a try opened.
func TestACancelWithoutAnAnswerIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault stripeemu.Fault
		code  int
		left  string // the payments afterwards
	}{
		"answer lost":       {stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Times: 1}, 0, "canceled succeeded"},
		"request lost":      {stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Times: 1}, 0, "canceled succeeded"},
		"a 500, done":       {stripeemu.Fault{Name: stripeemu.FaultError500Done, Times: 1}, 0, "canceled succeeded"},
		"never arrives":     {stripeemu.Fault{Name: stripeemu.FaultLoseRequest}, 4, "requires_payment_method"},
		"the key may not":   {stripeemu.Fault{Name: stripeemu.FaultForbidden403}, 77, "requires_payment_method"},
		"always turned off": {stripeemu.Fault{Name: stripeemu.FaultRateLimit429}, 4, "requires_payment_method"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.declinedOnes("poor")
			o.topUp("poor")
			o.advance(time.Hour)
			c.fault.Operation = stripeemu.OpCancel
			o.emu.Inject(c.fault)
			o.retry(c.code, "--all")
			o.month(0)
			o.intents("poor", c.left)
			o.mustBeWhole()
		})
	}
}

// Two payments of the charge are open, and the customer pays the second, at any moment
// of the order and of the run after it: nobody pays twice, and it is found.
func TestTheCustomerMayPayAnOpenOneAtAnyMoment(t *testing.T) {
	t.Parallel()
	const moments = 16
	var reached atomic.Int64
	t.Cleanup(func() {
		if reached.Load() < moments/2 {
			t.Errorf("only %d moments came", reached.Load())
		}
	})
	for moment := range moments {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			t.Parallel()
			var pay func()
			var left atomic.Int64
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, OnRequest: func(*stripeemu.Request) {
				if left.Add(-1) == 0 {
					pay()
				}
			}})
			o.declinedOnes("poor")
			second := o.addIntent("poor", "requires_payment_method", 1000)
			o.topUp("poor")
			o.advance(time.Hour)
			paid := false
			pay = func() {
				reached.Add(1)
				paid = o.emu.CustomerPays(second) == nil // it may be cancelled by now
			}
			left.Store(int64(moment) + 1)
			o.retry(0, "--all")
			o.month(0)
			o.is("poor", "succeeded")
			if got, want := o.emu.Posts(), map[bool]int{true: 0, false: 1}[paid]; got != want {
				t.Errorf("the customer paid: %t, and %d POSTs", paid, got)
			}
			for _, pi := range o.emu.IntentsFor(keyOf("poor")) {
				if pi.Status != "succeeded" && pi.Status != "canceled" && !paid {
					t.Errorf("%s is left %s", pi.ID, pi.Status)
				}
			}
			o.mustBeWhole()
		})
	}
}

// Two orders at once, and an order beside a run, do what one after the other does: the
// second finds the period owned, and does nothing at Stripe.
func TestTwoRetriesAtOnceOpenOneTry(t *testing.T) {
	t.Parallel()
	for name, second := range map[string][]string{
		"retry-declined": {"retry-declined", "--period", october, "--all", "--why", "me too"},
		"run":            {"run", "--period", october, "--wait", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "1m"
			o.declinedOnes("poor")
			o.topUp("poor")
			o.advance(time.Hour)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpCancel, Times: 1})
			first := o.start("retry-declined", "--period", october, "--all", "--why", "first")
			eventually(t, "the first cancels", func() bool { return o.emu.Held() == 1 })
			o.must(75, second...)
			o.emu.Release()
			if r := first.wait(); r.code != 0 {
				t.Fatal(r)
			}
			o.month(0)
			o.must(64, "retry-declined", "--period", october, "--account", "poor", "--why", "late").says(t, "is succeeded, not declined")
			o.posts(1)
			o.intents("poor", "canceled succeeded")
			o.mustBeWhole()
		})
	}
}

// An order that stood still until its claim was lost cancels nothing that another one
// opened since, and opens nothing.
func TestARetryThatWasOvertakenDoesNothingMore(t *testing.T) {
	t.Parallel()
	for name, operation := range map[string]string{"at its look": stripeemu.OpList, "at its cancel": stripeemu.OpCancel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "1s"
			o.declinedOnes("poor")
			o.advance(time.Hour)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: operation, Times: 1})
			first := o.start("retry-declined", "--period", october, "--all", "--why", "first")
			eventually(t, "the first is held", func() bool { return o.emu.Held() == 1 })
			first.signal(syscall.SIGSTOP)
			o.advance(time.Minute)
			o.retry(0, "--all").says(t, "requeued: 1 charge")
			o.month(0)
			before := o.chargesText()
			o.emu.ResetLog()
			o.emu.Release()
			first.signal(syscall.SIGCONT)
			if r := first.wait(); r.code != 75 || o.chargesText() != before || o.emu.Count("POST *") != 0 {
				t.Errorf("the first went on\n%s", r)
			}
			o.intents("poor", "canceled requires_payment_method")
			o.mustBeWhole()
		})
	}
}

// An order that finds a run at work leaves it alone, and the run charges nobody twice.
func TestARetryBesideARunIsBusy(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1m"
	o.declinedOnes("poor", "other")
	o.advance(time.Hour)
	o.topUp("poor")
	o.retry(0, "--account", "poor")
	o.emu.ResetLog()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpCreate, Times: 1})
	run := o.start("run", "--period", october)
	eventually(t, "the run sends", func() bool { return o.emu.Held() == 1 })
	o.retry(75, "--all")
	if n := o.emu.Count("POST *"); n != 1 {
		t.Errorf("%d POSTs beside the run", n)
	}
	o.emu.Release()
	if r := run.wait(); r.code != 0 {
		t.Fatal(r)
	}
	o.intents("poor", "canceled succeeded")
	o.intents("other", "requires_payment_method")
	o.mustBeWhole()
}
