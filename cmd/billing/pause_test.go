package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// charged are the accounts of the POSTs, in the order in which they arrived.
func (o *office) charged() (accounts []string) {
	o.t.Helper()
	for _, q := range o.emu.Requests() {
		if q.Method == "POST" {
			accounts = append(accounts, q.Account)
		}
	}
	return accounts
}

// The kill switch: when `pause --all` has returned, not one POST arrives any more,
// although a run is at work. The run says so and ends with 3; status says what to
// type; resumed, the next run ends the month.
func TestNothingIsSentOnceAPauseHasReturned(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"at a pace":    {"--rate", "100"},
		"at full tilt": {"--rate", "0", "--concurrency", "8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 20 * time.Millisecond})
			o.env["BILLING_LEASE"] = "30s"
			list := customers(1500)
			for i := range list {
				list[i].customer = fmt.Sprintf("cus_%d", i/3) // chains of three
			}
			o.imports(october, list)
			p := o.start(append([]string{"run", "--period", october, "--json"}, args...)...)
			eventually(t, "sends are under way", func() bool { return o.emu.Posts() > 20 })
			o.must(0, "pause", "--all", "--why", "wrong prices?")
			sent := o.emu.Posts()
			r := p.wait()
			res := r.json(t)
			if n := o.emu.Posts(); n != sent || sent >= 1500 {
				t.Errorf("%d POSTs when pause returned, %d when the run had ended", sent, n)
			}
			paused := one[time.Time](o, `SELECT max(paused_at) FROM billing.pauses`)
			for _, q := range o.emu.Requests() {
				// It obeys; it does not only send what it has claimed.
				if after := q.At.Sub(paused); q.Method == "POST" && after > 5*time.Second {
					t.Fatalf("a POST %s after the pause", after)
				}
			}
			if r.code != 3 || res.Error.Code != "paused" || res.Sent == 0 || res.Sent != int64(sent) {
				t.Errorf("the run says %d sent of %d\n%s", res.Sent, sent, r)
			}
			s := o.must(0, "status", "--period", october)
			if !strings.Contains(s.stdout, "everything since") || !strings.Contains(s.stdout, "wrong prices?") || !strings.Contains(s.stdout, "next: billing resume --all") {
				t.Errorf("status does not say so\n%s", s)
			}
			if r := o.month(3, "--json").json(t); r.Error.Code != "paused" || r.Sent != 0 || o.emu.Posts() != sent {
				t.Errorf("a run while all is paused: %+v", r.Error)
			}
			o.must(0, "resume", "--all")
			o.month(0)
			o.mustBeWhole()
		})
	}
}

// One paused account is left out, and everybody else is charged; the run ends with
// 3 until it is resumed.
func TestAPausedAccountIsLeftOut(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(30))
	o.must(0, "pause", "--account", "a0007", "--why", "a dispute")
	if r := o.month(3, "--canary", "30", "--canary-failures", "0", "--json").json(t); r.Error.Code != "paused" || r.Sent != 29 {
		t.Errorf("%+v", r)
	}
	if got := o.states(october); got["succeeded"] != 29 || o.state("a0007") != "pending" {
		t.Errorf("%v", got)
	}
	var s struct{ Details statusJSON }
	if err := json.Unmarshal([]byte(o.must(0, "status", "--period", october, "--json").stdout), &s); err != nil {
		t.Fatal(err)
	}
	if d := s.Details; d.Paused != 1 || len(d.Pauses) != 1 || d.Pauses[0].AccountID != "a0007" || d.Next[0] != "billing resume --account a0007" {
		t.Errorf("status: %+v", d)
	}
	o.must(0, "resume", "--account", "a0007")
	o.month(0)
	o.mustBeWhole()
}

// A pause before the run keeps it from beginning: nothing is claimed, and Stripe is
// not asked anything.
func TestARunDoesNotBeginWhileAllIsPaused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.must(0, "pause", "--all", "--why", "not yet")
	if r := o.must(0, "pause", "--all", "--why", "again"); !strings.Contains(r.stderr, "was paused before") {
		t.Errorf("%s", r)
	}
	if r := o.month(3); !strings.Contains(r.stderr, "billing resume --all") || o.emu.RequestCount() != 0 || one[int](o, `SELECT count(*) FROM billing.job_runs`) != 0 {
		t.Errorf("%d requests\n%s", o.emu.RequestCount(), r)
	}
	if r := o.must(0, "preview", "--period", october); !strings.Contains(r.stdout, "everything since 2026-11-01") {
		t.Errorf("preview does not say that nothing would be sent\n%s", r)
	}
	o.must(0, "resume", "--all")
	o.month(0)
	o.mustBeWhole()
}

// What is not paused can't be resumed, and what is half right is not done by half.
func TestAPauseThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.must(0, "pause", "--account", "a1", "--why", "x")
	for _, bad := range [][]string{
		{"resume", "--all"}, {"resume", "--account", "a1", "--account", "a2"}, {"resume"}, {"pause", "--why", "x"}, {"pause", "--all"},
		{"pause", "--all", "--account", "a1", "--why", "x"},
	} {
		o.must(64, bad...)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.pauses WHERE resumed_at IS NULL`); n != 1 {
		t.Errorf("%d pauses are open, want that of a1", n)
	}
	o.must(0, "resume", "--account", "a1")
}

// A process that was killed with permits in its hand may have a request on its way:
// pause waits until the last of them has ended.
func TestAPauseOutwaitsThePermitsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(20))
	o.recordedOnly()
	const leased = `SELECT count(*) FROM billing.charges WHERE lease_until > billing.now()`
	if one[int](o, leased) == 0 {
		t.Fatal("the killed process held no permit")
	}
	o.must(0, "pause", "--all", "--why", "test")
	if n := one[int](o, leased); n != 0 {
		t.Errorf("pause returned while %d charges might be sent", n)
	}
	o.must(0, "resume", "--all")
	o.month(0)
	o.mustBeWhole()
}

// currencies are customers who pay in three of them, from small to large.
func inThreeCurrencies(n int) []customer {
	list := customers(n)
	for i := range list {
		list[i].currency = []string{"usd", "usd", "usd", "eur", "jpy"}[i%5]
		list[i].amount = fmt.Sprint(60 + (i*37)%n)
	}
	return list
}

// A canary goes first: the first POSTs are the picked ones, of every currency, the
// small and the large, and what they come to is printed before. It went well, so the
// run goes on by itself.
func TestACanaryGoesFirst(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := inThreeCurrencies(200)
	o.imports(october, list)
	r := o.month(0, "--canary", "10")
	amounts, sums, least, most := map[string]customer{}, map[string]int{}, 1000, 0
	for _, c := range list {
		amounts[c.id] = c
	}
	order := o.charged()
	if len(order) != 200 {
		t.Fatalf("%d POSTs", len(order))
	}
	for _, account := range order[:10] {
		var n int
		_, _ = fmt.Sscan(amounts[account].amount, &n)
		sums[amounts[account].currency] += n
		least, most = min(least, n), max(most, n)
	}
	want := fmt.Sprintf("%d.00 eur, %d jpy, %d.00 usd", sums["eur"], sums["jpy"], sums["usd"])
	if !strings.Contains(r.stderr, `"at_risk":"`+want+`"`) || len(sums) != 3 {
		t.Errorf("the first ten come to %s\n%s", want, r)
	}
	if least > 65 || most < 200 {
		t.Errorf("the first ten are from %d to %d, all are from 60 to 259", least, most)
	}
	o.mustBeWhole()
}

// A canary that goes badly stops the run with 3, whether its charges were declined,
// refused or got no answer; nobody else is sent, and a run without it goes on.
func TestABadCanaryStopsTheRun(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(o *office, list []customer){
		"declined": func(_ *office, list []customer) {
			for i := range list {
				if i%2 == 0 {
					list[i].card = fmt.Sprintf("pm_card_chargeCustomerFail_%d", i)
				}
			}
		},
		"refused": func(_ *office, list []customer) {
			for i := range list {
				list[i].customer = "" // see below
			}
		},
		"unknown": func(o *office, _ []customer) {
			o.spoil(stripeemu.FaultError500Undone, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := customers(60)
			o := newOffice(t, stripeemu.Config{AnyCustomer: name != "refused"})
			spoil(o, list)
			if name == "refused" {
				list = customers(60) // none of whom this Stripe knows
			}
			o.imports(october, list)
			r := o.month(3, "--canary", "10", "--json")
			res := r.json(t)
			accounts := slices.Compact(slices.Sorted(slices.Values(o.charged())))
			if res.Error.Code != "canary" || len(accounts) != 10 || res.Sent == 0 {
				t.Errorf("%d accounts were sent\n%s", len(accounts), r)
			}
			if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'pending' AND sends = 0`); n != 50 {
				t.Errorf("%d of 50 others are as they were", n)
			}
			if !strings.Contains(res.Error.Message, "of the first 10 charges") || !strings.Contains(res.Error.Hint, "without --canary") {
				t.Errorf("%+v", res.Error)
			}
			if name == "declined" {
				o.month(0)
			}
			o.mustBeWhole()
		})
	}
}

// spoil makes the POSTs of so many in ten accounts fail.
func (o *office) spoil(name stripeemu.FaultKind, ofTen int) {
	for digit := range ofTen {
		o.emu.Inject(stripeemu.Fault{Name: name, Method: "POST", Account: fmt.Sprintf("*%d", digit)})
	}
}

// The circuit breaker: when more than half of the last 200 sends come to nothing, the
// run stops with 3, the rest unsent; once it is over the next run ends the month.
func TestTheBreakerStopsARunThatComesToNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(400))
	o.spoil(stripeemu.FaultLoseAnswer, 6)
	r := o.month(3, "--concurrency", "8", "--json")
	if e := r.json(t).Error; e.Code != "breaker" || !strings.Contains(e.Message, "of the last 200 sends") {
		t.Errorf("%s", r)
	}
	if posts := o.emu.Posts(); posts < 200 || posts > 250 {
		t.Errorf("%d POSTs until it stopped", posts)
	}
	o.emu.ClearFaults()
	o.month(0)
	o.mustBeWhole()
}

// A Stripe that is down altogether is waited for and not stopped by the breaker.
func TestTheBreakerWaitsOutATotalOutage(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_BREAKER"] = "0.1" // an outage is seen after 20 sends, which is not more
	o.imports(october, customers(400))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Skip: 250})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "it tries one charge at a time", func() bool { return o.emu.Posts() >= 272 })
	o.emu.ClearFaults()
	if r := p.wait(); r.code != 0 {
		t.Errorf("%s", r)
	}
	o.mustBeWhole()
}
