package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// A card that two accounts share and that never pays is tried as often as people may
// order it, month after month: no thirty days see more tries of it at Stripe than the
// card networks allow, each month's own first try is always made, and no debt is tried
// more than eight times. Under BILLING_PROOF for a year.
func TestMonthsOfDeclinesStayWithinTheNetworksLimit(t *testing.T) {
	t.Parallel()
	months := 1
	if os.Getenv("BILLING_PROOF") != "" {
		months = 12
	}
	o := newOffice(t)
	o.ungated()
	list := debtors("one", "two")
	for i := range list {
		list[i].card, list[i].customer = softCard+"shared", "cus_shared"
	}
	refused := false
	for m, period := 0, ledger.Period(october); m < months; m, period = m+1, period.Next() {
		ends := period.Next().Start(time.UTC)
		o.advance(ends.Add(time.Hour).Sub(o.emu.Now()))
		o.imports(string(period), list)
		o.must(0, "run", "--period", string(period))
		for next := period.Next().Next().Start(time.UTC); o.emu.Now().Add(3 * day).Before(next); {
			o.advance(day + 12*time.Hour)
			for _, p := range []ledger.Period{period.Previous(), period} {
				if string(p) < october {
					continue
				}
				r := o.must(0, "retry-declined", "--period", string(p), "--all", "--why", "please")
				refused = refused || strings.Contains(r.stdout, "card networks")
				if strings.Contains(r.stdout, "requeued: ") {
					o.must(0, "run", "--period", string(p))
				}
			}
		}
	}
	o.mustKeepTheNetworksLimit(months)
	if !refused {
		t.Error("the limit was never reached: the test shows nothing")
	}
}

func (o *office) mustKeepTheNetworksLimit(months int) {
	o.t.Helper()
	tries := o.emu.PaymentIntents()
	slices.SortFunc(tries, func(a, b stripeemu.PaymentIntent) int { return a.Created.Compare(b.Created) })
	of := map[string]int{}
	for i, pi := range tries {
		of[pi.Metadata["billing_key"]]++
		if i >= 15 && pi.Created.Sub(tries[i-15].Created) < 30*day {
			o.t.Errorf("16 tries from %s to %s", tries[i-15].Created, pi.Created)
		}
	}
	if len(of) != 2*months {
		o.t.Errorf("%d debts were tried, want %d", len(of), 2*months)
	}
	for key, n := range of {
		if n > 8 {
			o.t.Errorf("%s was tried %d times", key, n)
		}
	}
}
