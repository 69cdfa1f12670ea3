package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// Wherever a period stands, status says what to type next.
func TestStatusSaysWhatToTypeNext(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 10, 0, 0, time.UTC)
	run := func(state ledger.RunState, stale time.Time) *ledger.Run {
		return &ledger.Run{State: state, Attempt: 1, Owner: "host-a", HeartbeatAt: now.Add(-time.Minute), StaleAt: stale, FinishedAt: &now}
	}
	late, early := now.Add(time.Minute), now.Add(-time.Minute)
	closed := &ledger.PeriodClose{ClosedBy: "anna", ClosedAt: early, Invoices: 2}
	sums := func(state ledger.ChargeState) ledger.Summary {
		return ledger.Summary{Sums: []ledger.StateSum{{State: state, Currency: "usd", Count: 2}}}
	}
	unrecorded, pending := sums(ledger.ChargeSucceeded), sums(ledger.ChargePending)
	unrecorded.Unrecorded, pending.NextWindowEnds = 1, &late
	for name, c := range map[string]struct {
		s       standing
		outcome string
		next    string
		shows   string
	}{
		"nothing there":       {standing{needsClose: true}, "open", "billing import invoices --period 2026-10 --file F", "never"},
		"invoices, open":      {standing{needsClose: true, summary: ledger.Summary{Unrecorded: 2}}, "open", "billing close --period 2026-10", "2 are not in the ledger yet"},
		"closed":              {standing{needsClose: true, closed: closed, summary: ledger.Summary{Unrecorded: 2}}, "open", "billing preview --period 2026-10", "by anna: 2 invoices"},
		"a view of their own": {standing{summary: ledger.Summary{Unrecorded: 2}}, "open", "billing preview --period 2026-10", "not needed"},
		"at work":             {standing{run: run(ledger.RunClaimed, late), summary: pending}, "busy", "nothing: it goes on by itself", "alive 1m0s ago"},
		"gone silent":         {standing{run: run(ledger.RunClaimed, early), summary: pending}, "unknown", "billing run --period 2026-10", "the next run takes over"},
		"pending":             {standing{run: run(ledger.RunFailed, early), summary: pending}, "unknown", "billing run --period 2026-10", "2 inside the window, which ends at 2026-11-01 00:11:00 UTC"},
		"stopped by a gate":   {standing{run: run(ledger.RunFailed, early), summary: ledger.Summary{Unrecorded: 2}}, "open", "billing run --period 2026-10", "failed: attempt 1 by host-a"},
		"done":                {standing{run: run(ledger.RunDone, early), summary: sums(ledger.ChargeSucceeded)}, "done", "nothing", "done: attempt 1"},
		"late invoice":        {standing{run: run(ledger.RunDone, early), summary: unrecorded}, "needs_person", "billing reopen --period 2026-10 --why \"late invoice\"", "1 is not in the ledger"},
		"rejected":            {standing{run: run(ledger.RunDone, early), summary: sums(ledger.ChargeRejected)}, "needs_person", "billing export charges --period 2026-10", "rejected"},
	} {
		c.s.job, c.s.period, c.s.now = "monthly-billing", "2026-10", now
		if got := c.s.outcome(); got != c.outcome {
			t.Errorf("%s: outcome %s, want %s", name, got, c.outcome)
		}
		if got := c.s.next()[0]; !strings.HasPrefix(got, c.next) {
			t.Errorf("%s: next %q, want %q", name, got, c.next)
		}
		if text := c.s.text(&app{}); !strings.Contains(text, c.shows) || !strings.Contains(text, "next: "+c.next) {
			t.Errorf("%s: want %q in\n%s", name, c.shows, text)
		}
	}
}
