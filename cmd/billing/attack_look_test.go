package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A reconciler whose page was read before another renewed the charge, sent it and
// lost the answer, with its process, changes nothing; a day later, when Stripe has
// forgotten the key, the payment is found.
func TestAPageThatWasReadBeforeAnothersSendRenewsNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	o.imports(october, debtors("busy", "good"))
	o.meets(faults{"busy": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	o.flood(1500, "cus_shop") // so that it is looked up by itself, and chosen before
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Customer: "cus_d0", Times: 1})
	first := o.start("reconcile", "--period", october, "--on-absent", "charge")
	eventually(t, "the first has read its page", func() bool { return o.emu.Held() == 1 })
	o.advance(5 * time.Minute) // its claim is stale, and its verdict young enough
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	second := o.start("run", "--period", october)
	eventually(t, "another has charged it", func() bool { return o.emu.Held() == 2 })
	second.kill()
	o.advance(5 * time.Minute)
	before := o.chargesText()
	o.emu.Release()
	if r := first.wait(); r.code != 75 || o.chargesText() != before {
		t.Errorf("the first one went on\n%s", r)
	}
	o.advance(24*time.Hour + 15*time.Minute)
	o.emu.ResetLog()
	o.month(0)
	o.posts(0)
	o.mustBeWhole()
}

// A charge whose window ends while the list is read may have been sent after its
// page was: a request that left at the last moment arrives then. The list's silence
// is about the moment at which it began.
func TestAWindowThatEndsWhileTheListIsReadIsNotDead(t *testing.T) {
	t.Parallel()
	var held atomic.Bool
	read, gate := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(gate) })
	defer letGo()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, OnAnswer: func(r *stripeemu.Request) {
		if r.Method == http.MethodGet && r.Path == "/v1/payment_intents" && held.CompareAndSwap(true, false) {
			close(read)
			<-gate
		}
	}})
	o.imports(october, debtors("last", "good"))
	o.meets(faults{"last": stripeemu.FaultRateLimit429})
	ends := one[time.Time](o, `SELECT window_opened_at + interval '23 hours' FROM billing.charges WHERE account_id = 'last'`)
	o.setNow(ends.Add(-time.Minute))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "the last send is on its way", func() bool { return o.emu.Held() == 1 })
	p.kill()
	o.setNow(ends.Add(2 * time.Minute))
	o.env["BILLING_LEASE"] = "1h"
	held.Store(true)
	looks := o.start("reconcile", "--period", october)
	<-read
	o.emu.Release()
	eventually(t, "the last send arrives", func() bool { return len(o.emu.IntentsFor(keyOf("last"))) == 1 })
	before := o.chargesText()
	o.setNow(ends.Add(20 * time.Minute))
	letGo()
	if r := looks.wait(); r.code != 75 || o.chargesText() != before {
		t.Errorf("it concluded something\n%s", r)
	}
	o.emu.ResetLog()
	o.month(0)
	o.posts(0)
	o.mustBeWhole()
}

// A cancelled PaymentIntent of the try before is no decline of this one, whose
// request is still on its way.
func TestACancelledTryIsNoDeclineOfTheNext(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := debtors("again", "good")
	list[0].card = "pm_card_chargeCustomerFail_1"
	o.imports(october, list)
	o.month(0)
	o.is("again", "declined generic_decline")
	o.acts(o.emu.CancelIntent(o.payment("again"), "abandoned"))
	o.must(0, "void", "--period", october, "--account", "again", "--why", "another card")
	o.advance(time.Hour)
	o.orderAnew(list, "pm_card_visa_again")
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "try 2 is on its way", func() bool { return o.emu.Held() == 1 })
	p.kill()
	for _, later := range []time.Duration{time.Minute, 20 * time.Minute, 22 * time.Hour} {
		o.advance(later)
		o.must(75, "reconcile", "--period", october)
		if got := o.state("again"); got != "pending" {
			t.Fatalf("it is %s %s after its send", got, later)
		}
		o.advance(-later)
	}
	o.emu.Release()
	eventually(t, "it arrives", func() bool { return len(o.emu.IntentsFor(keyOf("again"))) == 2 })
	o.must(0, "reconcile", "--period", october).says(t, "succeeded: 1 charge")
	o.must(64, "requeue", "--period", october, "--account", "again", "--why", "x").says(t, "is succeeded")
	o.mustBeWhole()
}

// What search shows of a key need not be all: the payment is younger than what
// search knows, and the decline before it is not its end.
func TestADeclineThatSearchShowsIsNotTheWholeSet(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(60))
	o.meets(faults{"a0002": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	o.flood(1500, "cus_shop")
	o.emu.SetSearchLag(time.Hour)
	declined, paid := o.ofKey("a0002"), o.ofKey("a0002")
	declined.Status, declined.ErrorCode, declined.Created = "requires_payment_method", "card_declined", o.emu.Now().Add(-5*time.Hour)
	paid.Created = o.emu.Now().Add(-20 * time.Minute)
	o.emu.AddIntent(declined)
	id := o.emu.AddIntent(paid)
	o.month(0)
	if o.emu.Count(stripeemu.OpSearch) == 0 {
		t.Fatal("it did not search: the test shows nothing")
	}
	if got := o.payment("a0002"); got != id || o.state("a0002") != "succeeded" {
		t.Errorf("it is %s by %s, paid by %s", o.state("a0002"), got, id)
	}
	o.mustBeWhole()
}

// A 500 that nobody read is a lost answer: Stripe may still complete the payment by
// itself. Whenever it does within 72 hours, the payment is found and there is no other.
func TestA500ThatNobodyReadIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{10 * time.Minute, 25 * time.Hour, 49 * time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, debtors("roll", "good"))
			o.behind(func(res *http.Response) error {
				if res.StatusCode == http.StatusInternalServerError {
					panic(http.ErrAbortHandler) // the connection ends without a byte
				}
				return nil
			})
			sent := o.emu.Now()
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRollforward, Method: "POST", Account: "roll", Delay: after})
			o.interrupted()
			o.is("roll", "pending no_answer")
			if n := one[int](o, `SELECT server_errors FROM billing.charges WHERE account_id = 'roll'`); n != 0 {
				t.Fatalf("%d of its 500s were read: the test shows nothing", n)
			}
			o.emu.ResetLog()
			for now := sent.Add(24 * time.Hour); now.Before(sent.Add(after + 15*time.Minute)); now = now.Add(24 * time.Hour) {
				o.setNow(now)
				o.month(75, "--on-absent", "charge").says(t, "again after 2026-11-04")
			}
			o.setNow(sent.Add(max(after+time.Hour, 24*time.Hour)))
			o.month(0)
			o.is("roll", "succeeded")
			o.posts(0)
			o.mustBeWhole()
		})
	}
}

// A refusal of a second send, as 400 or as 404, says nothing about the first, which
// arrives later. It is never charged under another key meanwhile.
func TestARefusedSecondSendIsNotRequeued(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "1s"
			o.imports(october, debtors("kept", "good"))
			o.behind(func(res *http.Response) error {
				if res.StatusCode == http.StatusBadRequest {
					res.StatusCode = status
				}
				return nil
			})
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Account: "kept", Times: 1})
			p := o.start("run", "--period", october)
			eventually(t, "the first send is on its way", func() bool { return o.emu.Held() == 1 })
			p.kill()
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRefuseResend400, Method: "POST", Account: "kept"})
			o.month(75)
			o.is("kept", "pending resource_missing")
			for _, order := range []string{"requeue", "void", "release"} {
				o.must(64, order, "--period", october, "--account", "kept", "--why", "the card is mended").says(t, "pending")
			}
			o.emu.ClearFaults()
			o.emu.Release()
			eventually(t, "the first send arrives", func() bool { return len(o.emu.IntentsFor(keyOf("kept"))) == 1 })
			o.advance(2 * time.Hour)
			o.month(0)
			o.is("kept", "succeeded")
			o.mustBeWhole()
		})
	}
}
