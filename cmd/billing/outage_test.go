package main

import (
	"context"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// outageLasts is how long Stripe is away at least: some probes long, or three
// minutes under BILLING_PROOF.
func outageLasts() time.Duration {
	if os.Getenv("BILLING_PROOF") != "" {
		return 3 * time.Minute
	}
	return 0
}

// outageWatch follows from outside what a run does while Stripe is away: each
// claim of rows leaves its time on them.
type outageWatch struct {
	*office
	probes    int
	lastClaim time.Time
	stale     bool
}

// probed waits for the next claim that takes one row and no more, and wants the
// run to own the period all the while.
func (w *outageWatch) probed() {
	w.t.Helper()
	eventually(w.t, "the run tries one charge", func() bool {
		w.stale = w.stale || one[bool](w.office, `SELECT state <> 'claimed' OR heartbeat_at + lease <= billing.now() FROM billing.job_runs`)
		rows, _ := w.db.Pool.Query(context.Background(), `SELECT last_sent_at, count(*) FROM billing.charges
			WHERE last_sent_at > $1 GROUP BY last_sent_at ORDER BY last_sent_at`, w.lastClaim)
		type claim struct {
			At   time.Time
			Rows int
		}
		claims, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
		if err != nil {
			w.t.Fatal(err)
		}
		single := 0
		for _, c := range claims {
			w.lastClaim = c.At
			if c.Rows == 1 {
				single++
			} else if w.probes > 0 {
				w.t.Errorf("%d charges were claimed at once during the outage", c.Rows)
			}
		}
		w.probes += single
		return single > 0
	})
	if w.stale {
		w.t.Fatal("another run could have taken the period over: the run that waits shows no sign of life")
	}
}

// deadDoor takes the emulator's place: it lets everybody in and hangs up at once.
func (o *office) deadDoor() (remove func()) {
	o.t.Helper()
	door, err := net.Listen("tcp", strings.TrimPrefix(o.emu.URL(), "http://"))
	if err != nil {
		o.t.Fatal(err)
	}
	go func() {
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return func() { _ = door.Close() }
}

// Stripe that cannot be reached in the middle of a month is waited for: the run
// keeps its claim, tries one charge now and then, and finishes by itself.
func TestStripeOutOfReachIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"connection refused", "connection dies"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "3s" // shorter than the third pause
			o.imports(october, customers(300))
			p := o.start("run", "--period", october, "--rate", "100")
			eventually(t, "the month is under way", func() bool { return o.emu.Posts() > 40 })
			o.emu.Stop()
			remove := func() {}
			if name == "connection dies" {
				remove = o.deadDoor()
			}
			began, watch := time.Now(), outageWatch{office: o, lastClaim: one[time.Time](o, `SELECT max(last_sent_at) FROM billing.charges`)}
			for watch.probes < 3 || time.Since(began) < outageLasts() {
				watch.probed()
			}
			states := o.states(october)
			if states["pending"] == 0 || states["pending"]+states["succeeded"] != 300 {
				t.Errorf("during the outage: %v", states)
			}
			remove()
			if err := o.emu.Restart(); err != nil {
				t.Fatal(err)
			}
			if r := p.wait(); r.code != 0 {
				t.Errorf("want exit 0 after the outage\n%s", r)
			}
			o.mustHaveCharged(300)
			if got := one[int](o, `SELECT attempt FROM billing.job_runs`); got != 1 {
				t.Errorf("the month was done by attempt %d: the claim was lost", got)
			}
		})
	}
}

// mustHaveCharged wants n charges, all paid, once each.
func (o *office) mustHaveCharged(n int) {
	o.t.Helper()
	if states := o.states(october); !maps.Equal(states, map[string]int{"succeeded": n}) {
		o.t.Errorf("states %v, want %d succeeded", states, n)
	}
	if got := o.emu.IntentCount(); got != n {
		o.t.Errorf("%d PaymentIntents for %d debts", got, n)
	}
	o.mustHaveCountedSends()
	o.mustBeWhole()
}

// Nothing but the run's own deadline ends the wait: a run whose time runs out in an
// outage leaves what is open pending, and the next one finishes.
func TestAnOutageLongerThanTheRunIsTheNextRunsMatter(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(300))
	o.recordedOnly()
	p := o.start("run", "--period", october, "--rate", "100", "--timeout", "10s")
	eventually(t, "the month is under way", func() bool { return o.emu.Posts() > 40 })
	o.emu.Stop()
	r := p.wait()
	if r.code != 75 {
		t.Errorf("want exit 75 when its time ran out\n%s", r)
	}
	states := o.states(october)
	if states["succeeded"] == 0 || states["pending"] == 0 || states["pending"]+states["succeeded"] != 300 {
		t.Errorf("states %v, want some succeeded and the others pending", states)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE lease_until IS NOT NULL AND lease_owner = (SELECT run_id FROM billing.job_runs)`); n != 0 {
		t.Errorf("%d charges are still leased: what was not sent was not given back", n)
	}
	o.must(69, "run", "--period", october) // Stripe cannot even be asked whose key it is
	if err := o.emu.Restart(); err != nil {
		t.Fatal(err)
	}
	o.month(0)
	o.mustHaveCharged(300)
}

// A proxy that answers every send with a web page, as 200 or as 502, whether it let
// the request through or not, changes nothing, however many runs meet it: nobody
// is declined, and when it is mended one run charges everybody once.
func TestAnHourOfWebPagesChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(60))
	o.recordedOnly()
	pages := func(method string) {
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHTML200, Method: method, Every: 2})
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHTML502, Method: method, WithoutWork: true})
	}
	pages("POST")
	nothing := map[string]int{"pending": 60}
	for run := range 6 {
		r := o.month(75, "--timeout", "3s")
		if states := o.states(october); !maps.Equal(states, nothing) {
			t.Fatalf("after run %d: %v\n%s", run+1, states, r)
		}
		o.advance(10 * time.Minute)
	}
	o.emu.ClearFaults()
	pages("")
	o.month(69) // the reads meet it too
	if n := one[int](o, `SELECT (SELECT count(*) FROM billing.charge_events) + (SELECT count(*) FROM billing.findings)
		+ (SELECT count(*) FROM billing.charges WHERE state <> 'pending' OR server_errors > 0)`); n != 0 {
		t.Errorf("%d changes by answers that were not Stripe's", n)
	}
	if o.emu.IntentCount() == 0 || o.emu.Posts() < 60 {
		t.Fatalf("%d payments behind %d POSTs: the proxy let none through, the test shows little", o.emu.IntentCount(), o.emu.Posts())
	}
	o.emu.ClearFaults()
	o.month(0)
	o.mustHaveCharged(60)
}

// Stripe that turns most sends away, for its rate or for a busy customer, is asked
// again until every charge is made; no such answer counts against a charge.
func TestAStormOf429EndsWithEverybodyCharged(t *testing.T) {
	t.Parallel()
	for name, storm := range map[string]struct {
		limit stripeemu.RateLimit
		fault float64
	}{
		"a limit far below the rate": {limit: stripeemu.RateLimit{PerEndpoint: 20}},
		"busy half of the time":      {fault: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, RateLimit: storm.limit})
			o.imports(october, customers(200))
			if storm.fault > 0 {
				o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLockTimeout429, Method: "POST", Probability: storm.fault})
			}
			o.month(0, "--rate", "200")
			turnedAway := 0
			for _, r := range o.emu.Requests() {
				if r.Method == "POST" && r.Status == 429 {
					turnedAway++
				}
			}
			if turnedAway == 0 || o.emu.Posts() != 200+turnedAway {
				t.Errorf("%d of %d POSTs were turned away; want some, and one other answer for each charge", turnedAway, o.emu.Posts())
			}
			if sends := one[int](o, `SELECT sum(sends) FROM billing.charges`); sends != o.emu.Posts() {
				t.Errorf("%d sends counted, %d POSTs on the wire", sends, o.emu.Posts())
			}
			o.mustHaveCharged(200)
		})
	}
}

// Charges whose every send fails go to the back of the queue: everybody else is
// charged before they are sent again, and they alone are left.
func TestChargesThatAlwaysFailGoToTheBack(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(100))
	poison := map[string]int{"a0001": 0, "a0002": 0} // their sends
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Account: "a0001"})
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHTML502, WithoutWork: true, Method: "POST", Account: "a0002"})
	// At this pace their rest is over long before the queue is.
	o.month(75, "--rate", "20")
	others := map[string]bool{}
	for _, r := range o.emu.Requests() {
		if r.Method != "POST" {
			continue
		}
		if _, fails := poison[r.Account]; !fails {
			others[r.Account] = true
		} else if poison[r.Account]++; poison[r.Account] == 2 && len(others) != 98 {
			t.Errorf("account %s was sent again when %d of 98 others had been sent", r.Account, len(others))
		}
	}
	for account, sends := range poison {
		if sends < 2 || o.state(account) != "pending" {
			t.Errorf("account %s was sent %d times and is %s; want it tried again and pending", account, sends, o.state(account))
		}
	}
	if states := o.states(october); !maps.Equal(states, map[string]int{"succeeded": 98, "pending": 2}) {
		t.Errorf("states %v, want the two alone pending", states)
	}
	o.emu.ClearFaults()
	o.month(0)
	o.mustHaveCharged(100)
}

// A key that is refused while other sends are under way stops the run where it is:
// their answers are recorded, and no send begins after the refusal was read.
func TestNoSendBeginsAfterTheKeyWasRefused(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]stripeemu.FaultKind{"401": stripeemu.FaultUnauthorized401, "403": stripeemu.FaultForbidden403} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const refused, inFlight = "a0040", 8
			var o *office
			var once sync.Once
			o = newOffice(t, stripeemu.Config{AnyCustomer: true, OnRequest: func(r *stripeemu.Request) {
				if r.Account == refused {
					once.Do(func() { _ = o.emu.WaitHeld(t.Context(), inFlight-1) })
				}
			}})
			o.imports(october, customers(300))
			o.emu.Inject(stripeemu.Fault{Name: fault, Method: "POST", Account: refused})
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "a004?"})
			p := o.start("run", "--period", october, "--concurrency", "8")
			eventually(t, "the refusal is read and recorded", func() bool {
				return one[int](o, `SELECT count(*) FROM billing.charges WHERE account_id = $1 AND reason IN ('unauthorized', 'forbidden')`, refused) == 1
			})
			o.emu.Release()
			if r := p.wait(); r.code != 77 {
				t.Errorf("want exit 77\n%s", r)
			}
			if got := o.emu.Posts(); got != 39+inFlight {
				t.Errorf("%d POSTs; want the 39 before, and the %d that were under way", got, inFlight)
			}
			if states := o.states(october); states["succeeded"] != 39+inFlight-1 || states["pending"] != 300-39-inFlight+1 {
				t.Errorf("states %v; want all %d answers recorded, and the others pending", states, 39+inFlight-1)
			}
			o.emu.ClearFaults()
			o.month(0)
			o.mustHaveCharged(300)
		})
	}
}
