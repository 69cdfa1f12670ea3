package main

import (
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/pgproxy"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/testdb"
)

// traffic counts the creates that Stripe is working on, by customer.
type traffic struct {
	mu   sync.Mutex
	now  map[string]int
	most map[string]int // at once
	all  int            // of any customer, now
	peak int
}

func newTraffic() *traffic { return &traffic{now: map[string]int{}, most: map[string]int{}} }

func customerOf(r *stripeemu.Request) string {
	form, _ := url.ParseQuery(r.Body)
	return form.Get("customer")
}

func (c *traffic) begin(r *stripeemu.Request) {
	if r.Method != "POST" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := customerOf(r)
	c.now[id]++
	c.all++
	c.most[id], c.peak = max(c.most[id], c.now[id]), max(c.peak, c.all)
}

func (c *traffic) end(r *stripeemu.Request) {
	if r.Method != "POST" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[customerOf(r)]--
	c.all--
}

// sharing makes two hundred accounts, of which the first thirty and no others have
// one customer.
func sharing() []customer {
	list := customers(200)
	for i := range 30 {
		list[i].customer = "cus_shared"
	}
	return list
}

// Accounts that share a customer at Stripe, which works on one request for it at a
// time, are charged one after the other, while the others go on beside them.
func TestChargesOfOneCustomerAreNotSentAtTheSameTime(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"unlimited": nil, "paced": {"--rate", "100"}, "few at once": {"--concurrency", "3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := newTraffic()
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 30 * time.Millisecond, OnRequest: seen.begin, OnAnswer: seen.end})
			o.imports(october, sharing())
			o.month(0, flags...)
			if seen.most["cus_shared"] != 1 {
				t.Errorf("%d creates of one customer were under way at once", seen.most["cus_shared"])
			}
			if seen.peak < 2 {
				t.Error("no two creates were under way at once: the others waited too")
			}
			if got := o.states(october)["succeeded"]; got != 200 || o.emu.Posts() != 200 {
				t.Errorf("%d of 200 succeeded, by %d POSTs", got, o.emu.Posts())
			}
			if n := one[int](o, `SELECT sum(sends) FROM billing.charges`); n != 200 {
				t.Errorf("%d sends counted for 200 POSTs", n)
			}
			o.mustBeWhole()
		})
	}
}

// Answers that are lost, and permits that end while a customer's earlier charge is
// still being worked on, change nothing of that.
func TestChargesOfOneCustomerWaitForAnAnswerThatIsLate(t *testing.T) {
	t.Parallel()
	seen := newTraffic()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, OnRequest: seen.begin, OnAnswer: seen.end})
	o.imports(october, sharing())
	// The work is done and the answer kept for longer than the permits of the rest.
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSlowExecution, Method: "POST", Account: "a0003", Times: 1})
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: "a0007", Times: 1})
	p := o.start("run", "--period", october)
	eventually(t, "everybody else is charged, and the permits of the chain are over", func() bool {
		return one[bool](o, `SELECT count(*) FILTER (WHERE state = 'succeeded' AND stripe_customer <> 'cus_shared') = 170
			AND count(*) FILTER (WHERE state = 'pending' AND lease_until > billing.now()) = 0 FROM billing.charges`)
	})
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE stripe_customer = 'cus_shared' AND state = 'succeeded'`); n != 2 {
		t.Errorf("%d charges of the customer are settled while the third is under way, want 2", n)
	}
	o.emu.Release()
	if r := p.wait(); r.code != 0 {
		t.Errorf("want exit 0\n%s", r)
	}
	if seen.most["cus_shared"] != 1 {
		t.Errorf("%d creates of one customer were under way at once", seen.most["cus_shared"])
	}
	if got := o.states(october)["succeeded"]; got != 200 || o.emu.Posts() != 201 {
		t.Errorf("%d of 200 succeeded, by %d POSTs; one answer was lost", got, o.emu.Posts())
	}
	o.mustBeWhole()
}

// A payment that waits for its customer is sent once, however often the period is
// run again: there is one PaymentIntent, and it is the one that the customer pays.
func TestAPaymentThatWaitsForItsCustomerIsSentOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(4)
	list[0].card, list[1].card, list[2].card = "pm_card_authenticationRequired_1", "pm_card_threeDSecure2Required_2", "pm_usBankAccount_unverified_3"
	o.imports(october, list)
	o.month(0)
	for range 2 {
		o.advance(26 * time.Hour) // Stripe has forgotten the keys
		o.must(0, "reopen", "--period", october, "--why", "test")
		o.month(0)
	}
	if o.emu.Posts() != 4 || o.emu.IntentCount() != 4 {
		t.Errorf("%d POSTs and %d PaymentIntents for 4 charges", o.emu.Posts(), o.emu.IntentCount())
	}
	for _, c := range list[:3] {
		intents := o.emu.IntentsFor(billingKey(c.id))
		kept := one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, c.id)
		if o.state(c.id) != "action_required" || len(intents) != 1 || intents[0].ID != kept {
			t.Errorf("account %s is %s by %s; Stripe has %d", c.id, o.state(c.id), kept, len(intents))
		}
	}
	o.mustBeWhole()
}

// What Stripe refuses because of a customer (deleted, or paying in another currency)
// costs that charge alone, is asked for once, and once more in the next month.
func TestARefusedCustomerIsAskedOnceAMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{})
	list := customers(5)
	for _, c := range list {
		o.seed(c)
	}
	o.emu.DeleteCustomer(list[1].customer)
	list[3].customer = "cus_euros"
	o.emu.AddCustomer(stripeemu.Customer{ID: "cus_euros", Currency: "eur"})
	o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: "pm_card_visa_euros", Customer: "cus_euros"})
	list[3].card = "pm_card_visa_euros"
	o.imports(october, list)
	o.month(4)
	for i, want := range []string{"succeeded", "rejected: resource_missing", "succeeded", "rejected: payment_method_currency_mismatch", "succeeded"} {
		if got := o.stateAndReason(list[i].id); got != want {
			t.Errorf("account %s is %s, want %s", list[i].id, got, want)
		}
	}
	o.advance(3 * time.Hour)
	o.month(4) // a person is needed, and nothing is asked again
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(4)
	if o.emu.Posts() != 5 {
		t.Errorf("%d POSTs for 5 charges", o.emu.Posts())
	}
	o.setNow(time.Date(2026, 12, 1, 0, 5, 0, 0, time.UTC))
	o.imports("2026-11", list)
	o.must(4, "run", "--period", "2026-11")
	if states := o.states("2026-11"); o.emu.Posts() != 10 || states["succeeded"] != 3 || states["rejected"] != 2 {
		t.Errorf("%d POSTs in two months of 5 charges; November is %v", o.emu.Posts(), states)
	}
	o.mustBeWhole()
}

// An installation of its own, such as a staging system, that was run on the same
// Stripe account stops the other: its payments are not taken for one's own, neither
// where they owe the same nor where they don't.
func TestAnotherInstallationOnTheSameStripeAccountIsNoticed(t *testing.T) {
	t.Parallel()
	for name, amount := range map[string]string{"the same amount": "1.00", "another amount": "80.00"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			mine := customers(7)
			mine[6].amount = amount
			o.imports(october, mine)
			staging := *o
			staging.db, staging.env = testdb.New(t), maps.Clone(o.env)
			staging.env["DATABASE_URL"] = staging.db.URL
			staging.db.SetOffset(o.db.Offset())
			theirs := customers(7)[6:]
			theirs[0].amount = "1.00"
			staging.imports(october, theirs)
			staging.month(0)
			if r := o.month(3); !strings.Contains(r.stderr, "--rebuild") {
				t.Errorf("it does not say what to type\n%s", r)
			}
			if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 0 || o.emu.Posts() != 1 {
				t.Errorf("%d charges recorded, %d POSTs; want none, and that of the other installation", n, o.emu.Posts())
			}
		})
	}
}

// An answer that Postgres can't take for a while belongs to a charge that is not sent
// again meanwhile, although its permit and its lease are over.
func TestAnAnswerThatWaitsToBeWrittenIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(60))
	p := o.proxied()
	p.Inject(pgproxy.Rule{Act: pgproxy.CutBefore, Touching: txAnswers, Times: 6})
	o.month(0, "--rate", "20", "--lease", "2s")
	if n := o.emu.Posts(); n != 60 {
		t.Errorf("%d POSTs for 60 charges", n)
	}
	o.mustBeWhole()
}
