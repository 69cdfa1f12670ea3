package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// recordedOnly leaves a period whose charges are recorded and not sent.
func (o *office) recordedOnly() {
	o.t.Helper()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHang, Method: "POST"})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(o.t, "a send is on its way", func() bool { return o.emu.Posts() > 0 })
	p.kill()
	// What it had asked of Postgres may still be carried out.
	eventually(o.t, "Postgres noticed that it is gone", func() bool {
		return one[int](o, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'billing'`) == 0
	})
	o.emu.ClearFaults()
	o.emu.ResetLog()
}

// Nothing is sent once 23 hours have passed since the window opened.
func TestNothingIsSentAfterTheWindow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(20))
	o.recordedOnly()
	o.advance(23 * time.Hour)
	r := o.month(75)
	if n := o.emu.Posts(); n != 0 {
		t.Errorf("%d POSTs after the window", n)
	}
	if !strings.Contains(r.stderr, "past their window") {
		t.Errorf("it does not say why\n%s", r)
	}
	if got := o.states(october)["pending"]; got != 20 {
		t.Errorf("%d of 20 are pending", got)
	}
}

// A run that starts ten seconds before the window ends and meets slow answers
// lets no POST leave after it.
func TestASlowRunStopsSendingWhenTheWindowEnds(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 300 * time.Millisecond})
	o.imports(october, customers(300))
	o.recordedOnly()
	before := one[int](o, `SELECT sum(sends) FROM billing.charges`)
	ends := one[time.Time](o, `SELECT max(window_opened_at) + interval '23 hours' FROM billing.charges`)
	o.setNow(ends.Add(-10 * time.Second))
	o.month(75, "--concurrency", "4", "--lease", "1m")
	posts := 0
	for _, r := range o.emu.Requests() {
		if r.Method != "POST" {
			continue
		}
		if posts++; !r.At.Before(ends) {
			t.Errorf("a POST arrived %s after the window", r.At.Sub(ends))
		}
	}
	if posts == 0 || o.states(october)["pending"] == 0 {
		t.Fatalf("%d POSTs, %d pending: the test did not straddle the end of the window", posts, o.states(october)["pending"])
	}
	if sends := one[int](o, `SELECT sum(sends) FROM billing.charges`) - before; sends != posts {
		t.Errorf("%d sends counted, %d POSTs on the wire", sends, posts)
	}
	o.mustBeWhole()
}

// The window of a charge is counted from ten minutes before the look that
// preceded its recording.
func TestAWindowOpensTenMinutesBeforeTheLook(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	began := o.db.Now()
	o.month(0)
	opened := one[time.Time](o, `SELECT min(window_opened_at) FROM billing.charges`)
	if d := opened.Sub(began.Add(-10 * time.Minute)); d < 0 || d > 30*time.Second {
		t.Errorf("the window opened %s after ten minutes before the run began", d)
	}
	looked := false
	for _, r := range o.emu.Requests() {
		if r.Method == "GET" && strings.HasPrefix(r.Path, "/v1/payment_intents") {
			looked = true
		} else if r.Method == "POST" && !looked {
			t.Fatal("a POST left before the list was read")
		}
	}
}

// A ledger restored from a backup made before record, after the month was
// charged, stops: Stripe knows payments that it does not.
func TestALedgerOlderThanStripeStops(t *testing.T) {
	t.Parallel()
	for _, later := range []time.Duration{3 * time.Hour, 30 * time.Hour} {
		t.Run(later.String(), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(150))
			backup := o.db.Snapshot(t)
			o.month(0)
			o.db.RestoreSnapshot(t, backup)
			o.advance(later)
			o.emu.ResetLog()
			r := o.month(3)
			if !strings.Contains(r.stderr, "billing reconcile --period 2026-10 --rebuild") {
				t.Errorf("it does not say what to type\n%s", r)
			}
			if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 0 || o.emu.Posts() != 0 {
				t.Errorf("%d charges were recorded and %d POSTs sent", n, o.emu.Posts())
			}
		})
	}
}

// A backup made after record and restored inside the window leads to replays of
// the same keys, never to second payments; after the window everything is found.
func TestALedgerRestoredFromAfterRecordChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(50))
	o.recordedOnly()
	backup := o.db.Snapshot(t)
	o.month(0)
	o.db.RestoreSnapshot(t, backup)
	o.advance(3 * time.Hour)
	o.month(0)
	o.mustBeWhole()
	if n := o.emu.IntentCount(); n != 50 {
		t.Errorf("%d PaymentIntents for 50 debts", n)
	}

	o.db.RestoreSnapshot(t, backup)
	o.advance(27 * time.Hour)
	o.emu.ResetLog()
	o.month(0)
	if o.emu.Posts() != 0 {
		t.Errorf("%d POSTs past the window", o.emu.Posts())
	}
	o.mustBeWhole()
}

// When Postgres's clock and Stripe's differ by an hour, no window can be
// trusted: nothing is sent.
func TestDifferingClocksSendNothing(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "just too much": 130 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.setNow(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC))
			o.imports(october, customers(3))
			o.db.SetOffset(o.db.Offset() + off)
			r := o.month(78)
			if o.emu.Posts() != 0 || !strings.Contains(r.stderr, "clocks differ") {
				t.Errorf("%d POSTs\n%s", o.emu.Posts(), r)
			}
			o.db.SetOffset(o.emu.Offset())
			o.month(0)
			o.mustBeWhole()
		})
	}
}

// A run with nothing left to record takes no look, and still compares the clocks
// before its first send: here Stripe has forgotten the key that it would repeat.
func TestDifferingClocksSendNothingOfARecordedPeriod(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST"})
	p := o.start("run", "--period", october)
	eventually(t, "both were charged and their answers lost", func() bool { return o.emu.IntentCount() == 2 })
	p.kill()
	o.emu.ClearFaults()
	posts := o.emu.Posts()
	o.emu.SetOffset(o.emu.Offset() + 24*time.Hour + 30*time.Minute)
	o.month(78)
	if got := o.emu.Posts() - posts; got != 0 {
		t.Errorf("%d POSTs although the clocks differ", got)
	}
	o.db.SetOffset(o.emu.Offset())
	o.month(0)
	o.mustBeWhole()
	if got := o.emu.Posts() - posts; got != 0 {
		t.Errorf("%d POSTs for charges that were found", got)
	}
}

// A clock that jumps in the middle of a run stops it after a bounded number of
// sends.
func TestAClockThatJumpsDuringARunStopsIt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(500))
	p := o.start("run", "--period", october, "--rate", "100")
	eventually(t, "a few were sent", func() bool { return o.emu.Posts() > 10 })
	o.db.SetOffset(o.db.Offset() - 2*time.Hour)
	if r := p.wait(); r.code != 78 {
		t.Errorf("want exit 78\n%s", r)
	}
	if n := o.emu.Posts(); n > 250 {
		t.Errorf("%d POSTs: it went on", n)
	}
	o.mustBeWhole()
}
