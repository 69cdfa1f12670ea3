package main

import (
	"strings"
	"testing"
	"time"

	fixture "github.com/chargeonce/billing/fixtures/office"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// bodiesByKey collects what was sent under each idempotency key.
func (o *office) bodiesByKey() map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, r := range o.emu.Requests() {
		if r.Method != "POST" {
			continue
		}
		if out[r.IdempotencyKey] == nil {
			out[r.IdempotencyKey] = map[string]int{}
		}
		out[r.IdempotencyKey][r.Body]++
	}
	return out
}

// T01: a card that changes between a lost answer and the retry changes nothing:
// the retry is the stored request, byte for byte, and gets the first answer.
func TestARetryIsTheStoredRequestWhateverTheCardIsNow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(20)
	o.imports(october, list)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: "a0007"})
	o.month(75)
	o.emu.ClearFaults()
	list[6].card = "pm_card_visa_other"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.advance(2 * time.Hour)
	o.month(0)
	bodies := o.bodiesByKey()["monthly-billing/2026-10/a0007"]
	if len(bodies) != 1 {
		t.Fatalf("%d different bodies under one key", len(bodies))
	}
	for body, n := range bodies {
		if n < 2 || !strings.Contains(body, "payment_method=pm_card_visa_0007") {
			t.Errorf("sent %d times: %s", n, body)
		}
	}
	o.mustBeWhole()
}

// T02: a build whose code asks Stripe for something more sends what the older
// build stored.
func TestANewBuildSendsWhatTheOldOneStored(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(20))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST"})
	p := o.start("run", "--period", october, "--concurrency", "2")
	eventually(t, "half of it was sent", func() bool { return o.emu.Posts() >= 10 })
	p.kill()
	o.emu.ClearFaults()

	newer := fixture.BuildChanged(t, fixture.Change{
		File: "billing/gateway/body.go", Old: `"&confirm=true&off_session=true"`,
		New: `"&confirm=true&off_session=true&statement_descriptor_suffix=NEWER"`,
	})
	if r := o.startProgram(newer, "run", "--period", october).wait(); r.code != 0 {
		t.Fatal(r)
	}
	for key, bodies := range o.bodiesByKey() {
		if len(bodies) != 1 {
			t.Errorf("%s: %d different bodies", key, len(bodies))
		}
	}
	for _, r := range o.emu.Requests() {
		if r.Method == "POST" && r.Worked == 400 {
			t.Errorf("Stripe refused a retry: %s", r.Body)
		}
	}
	// The newer build does ask for more where it decides itself.
	o.setNow(time.Date(2026, 12, 1, 0, 5, 0, 0, time.UTC))
	o.ungated()
	o.imports("2026-11", customers(1))
	if r := o.startProgram(newer, "run", "--period", "2026-11").wait(); r.code != 0 {
		t.Fatal(r)
	}
	if got := one[string](o, `SELECT body FROM billing.charges WHERE period = '2026-11'`); !strings.Contains(got, "statement_descriptor_suffix=NEWER") {
		t.Errorf("the newer build is not newer: %s", got)
	}
	o.mustBeWhole()
}

// A create whose answer was lost, followed by a refusal of the same request,
// may still have been executed: the charge stays pending.
func TestARefusalAfterALostAnswerProvesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	// The first send is kept back by a proxy; the second is refused because the
	// card was detached meanwhile.
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST", Account: "a0002", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "the first send is on its way", func() bool { return o.emu.Held() == 1 })
	p.kill()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRefuseResend400, Method: "POST", Account: "a0002"})
	o.month(75)
	refused := 0
	for _, r := range o.emu.Requests() {
		if r.Account == "a0002" && r.Status == 400 {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("the second send was not refused; the test shows nothing")
	}
	if got := o.state("a0002"); got != "pending" {
		t.Errorf("the charge is %s after a refusal that says nothing about the first send", got)
	}
	o.emu.ClearFaults()
	o.emu.Release()
	eventually(t, "the first send arrives and pays", func() bool { return len(o.emu.IntentsFor("monthly-billing/2026-10/a0002")) == 1 })
	o.month(0)
	o.mustBeWhole()
}

// A key that Stripe refuses in the middle of a run stops it at once. Nothing is
// lost, and the refusal says what to check.
func TestARefusedKeyStopsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]stripeemu.FaultKind{"401": stripeemu.FaultUnauthorized401, "403": stripeemu.FaultForbidden403} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(300))
			o.emu.Inject(stripeemu.Fault{Name: fault, Method: "POST", Skip: 2})
			r := o.month(77, "--concurrency", "8")
			if n := o.emu.Posts(); n > 2+8+1 {
				t.Errorf("%d POSTs after the key was refused on the third", n)
			}
			if !strings.Contains(r.stderr, "STRIPE_SECRET_KEY") {
				t.Errorf("it does not say what to check\n%s", r)
			}
			if got := o.states(october); got["succeeded"] != 2 || got["pending"] != 298 {
				t.Errorf("states %v; want 2 succeeded and 298 pending", got)
			}
			o.emu.ClearFaults()
			o.month(0)
			o.mustBeWhole()
		})
	}
}

// A key of another Stripe account or mode neither charges nor proves anything.
func TestAnotherStripeAccountOrModeIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(5))
	o.recordedOnly()
	o.setNow(o.db.Now())

	other := newOffice(t, stripeemu.Config{AccountID: "acct_other", AnyCustomer: true})
	o.env["STRIPE_API_BASE"] = other.env["STRIPE_API_BASE"]
	other.emu.SetOffset(o.emu.Offset())
	r := o.month(78)
	if !strings.Contains(r.stderr, "acct_other") || other.emu.Posts() != 0 {
		t.Errorf("%d POSTs to the other account\n%s", other.emu.Posts(), r)
	}

	live := newOffice(t, stripeemu.Config{Keys: []string{"sk_live_x"}, AnyCustomer: true})
	o.env["STRIPE_API_BASE"] = live.env["STRIPE_API_BASE"]
	o.env["STRIPE_SECRET_KEY"] = "sk_live_x"
	o.month(78) // a live key without BILLING_LIVE
	o.env["BILLING_LIVE"] = "true"
	o.month(78) // a live key to another address than Stripe's
	if live.emu.RequestCount() != 0 {
		t.Error("a live key left the machine")
	}
	if got := o.states(october)["pending"]; got != 5 {
		t.Errorf("%d of 5 are still pending", got)
	}
}

// Two names for the key that differ, a key that is none, and a file that is not
// there are told before anything is asked of Stripe.
func TestAKeyThatCannotWorkIsToldFirst(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.env["STRIPE_API_KEY"] = "sk_test_other"
	o.month(78)
	delete(o.env, "STRIPE_API_KEY")
	o.env["STRIPE_SECRET_KEY"] = "pk_test_x"
	o.month(78)
	delete(o.env, "STRIPE_SECRET_KEY")
	o.month(78)
	o.env["STRIPE_SECRET_KEY_FILE"] = "/nonexistent/key"
	o.month(78)
	o.env["STRIPE_SECRET_KEY_FILE"] = o.file("key", "sk_test_emulator\n")
	o.month(0)
	o.env["STRIPE_SECRET_KEY_FILE"] = o.file("key", "sk_test_wrong\n")
	o.must(0, "reopen", "--period", october, "--why", "test")
	r := o.month(77)
	if strings.Contains(r.stdout+r.stderr, "sk_test_wrong") {
		t.Errorf("the key is printed\n%s", r)
	}
}

// Answers of every kind that prove nothing leave the charge pending, count each
// send, and are found out by the next sends under the same key.
func TestSendsCountedAreThePOSTsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, kind := range []stripeemu.FaultKind{
		stripeemu.FaultLoseRequest, stripeemu.FaultLoseAnswer, stripeemu.FaultCutBody, stripeemu.FaultEmptyObject,
		stripeemu.FaultHTML502, stripeemu.FaultHTML200, stripeemu.FaultRedirect307, stripeemu.FaultInUse409, stripeemu.FaultRateLimit429,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(60))
			// Every sixth charge meets it once, so connections are reused between.
			for i := 5; i < 60; i += 6 {
				o.emu.Inject(stripeemu.Fault{Name: kind, Method: "POST", Account: customers(60)[i].id, Times: 1})
			}
			o.month(0, "--concurrency", "3")
			if sends, posts := one[int](o, `SELECT sum(sends) FROM billing.charges`), o.emu.Posts(); sends != posts || posts != 70 {
				t.Errorf("%d sends counted, %d POSTs on the wire, want 70 of both", sends, posts)
			}
			for key, bodies := range o.bodiesByKey() {
				if len(bodies) != 1 {
					t.Errorf("%s: %d different bodies", key, len(bodies))
				}
			}
			o.mustBeWhole()
		})
	}
}

// T05: a declined charge is not sent again by itself, neither soon nor after
// Stripe forgot the key.
func TestADeclineIsNotSentAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(2)
	list[0].card = "pm_card_chargeCustomerFail_1"
	o.imports(october, list)
	o.month(0)
	for range 2 {
		o.advance(26 * time.Hour)
		o.must(0, "reopen", "--period", october, "--why", "test")
		o.month(0)
	}
	if o.emu.Posts() != 2 || o.state("a0001") != "declined" {
		t.Errorf("%d POSTs for 2 charges, the decline is now %s", o.emu.Posts(), o.state("a0001"))
	}
	if got := one[string](o, `SELECT decline_code FROM billing.charges WHERE account_id = 'a0001'`); got == "" {
		t.Error("the decline code is not kept")
	}
}

// Twenty refusals from the start look like a wrong account: the run stops
// instead of marking a million charges.
func TestRefusalsFromTheStartStopTheRun(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{})
	o.imports(october, customers(500))
	r := o.month(3, "--concurrency", "1")
	if n := o.emu.Posts(); n > 25 {
		t.Errorf("%d POSTs before it stopped", n)
	}
	if !strings.Contains(r.stderr, "STRIPE_API_BASE") {
		t.Errorf("it does not say what to check\n%s", r)
	}
}

// An outage of Stripe is waited for, one charge at a time, and the month is
// finished by itself.
func TestAnOutageIsWaitedFor(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(120))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Skip: 30, Times: 24}) // twenty show the outage
	p := o.start("run", "--period", october, "--concurrency", "4")
	if r := p.wait(); r.code != 0 {
		t.Errorf("want exit 0 after the outage\n%s", r)
	}
	if got := o.states(october)["succeeded"]; got != 120 {
		t.Errorf("%d of 120 succeeded", got)
	}
	o.mustBeWhole()
}
