package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// threeKinds are n customers whose answers are lost, n who are turned away by 429
// until the run's time is over, and n ordinary ones between them, so that Stripe
// does not look down.
func threeKinds(n int) []customer {
	list := customers(3 * n)
	for i := range list {
		list[i].id = fmt.Sprintf("a%04d-%s", i/3, []string{"lost", "good", "busy"}[i%3])
	}
	return list
}

// outageOf loses every answer to the lost ones, of every tenth before Stripe read
// it, turns the busy ones away, and runs until everybody was sent once.
func (o *office) outageOf(n int) {
	o.t.Helper()
	o.ungated()
	o.imports(october, threeKinds(n))
	o.chargesUnder(
		stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a???0-lost"},
		stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Account: "*-lost"},
		stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Account: "*-busy"})
	if sent := one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'pending' AND sends > 0 AND account_id LIKE '%-lost'`); sent != n {
		o.t.Fatalf("only %d of %d answers were lost", sent, n)
	}
}

// A thousand charges whose answers were lost and a thousand that Stripe turned
// away, a day later: one run settles what exists, charges what certainly does not,
// and leaves alone what Stripe may still complete until 72 hours are over.
func TestADayLaterARunSettlesWhatExistsAndChargesWhatDoesNot(t *testing.T) {
	t.Parallel()
	const n = 1000
	o := newOffice(t)
	o.outageOf(n)
	o.advance(26 * time.Hour)

	o.emu.ResetLog()
	r := o.month(75)
	if got := o.states(october); got["succeeded"] != 3*n-n/10 || got["pending"] != n/10 {
		t.Fatalf("after a day: %v\n%s", got, r)
	}
	if posts := o.emu.Posts(); posts != n {
		t.Errorf("%d POSTs for %d charges that certainly do not exist", posts, n)
	}
	if reads := o.emu.RequestCount() - o.emu.Posts(); reads > 3*n/100+20 {
		t.Errorf("%d reads for %d charges, most of them unknown", reads, 3*n)
	}
	if s := o.must(0, "status", "--period", october); !strings.Contains(s.stdout, "wait until 2026-11-04") {
		t.Errorf("status does not say when\n%s", s)
	}
	o.advance(47 * time.Hour)
	o.month(0)
	if got := o.states(october); got["succeeded"] != 3*n {
		t.Errorf("after three days: %v", got)
	}
	o.mustBeWhole()
}
