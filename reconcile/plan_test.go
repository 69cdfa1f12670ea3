package reconcile

import (
	"testing"

	"pgregory.net/rapid"
)

// The way to look is chosen by counting calls: few charges one by one, many by
// reading everybody's payments once.
func TestTheWayIsChosenByCountingCalls(t *testing.T) {
	for _, test := range []struct {
		name string
		load workload
		// search is false where Stripe has none.
		search        bool
		span          bool
		oneByOne, all int64
		budgetOfASpan int64
	}{
		{name: "nothing", load: workload{}, search: true, all: 1, budgetOfASpan: 12},
		{name: "a few of many", load: workload{lookups: 10, sent: 20_000}, search: true, oneByOne: 6, all: 201, budgetOfASpan: 412},
		{name: "a thousand of twenty thousand", load: workload{lookups: 1000, sent: 21_000}, search: true, oneByOne: 600, all: 211, budgetOfASpan: 432},
		{name: "most", load: workload{lookups: 19_000, sent: 20_000}, search: true, span: true, oneByOne: 11_400, all: 201, budgetOfASpan: 412},
		{name: "ten of ten", load: workload{lookups: 10, sent: 10}, search: true, span: true, oneByOne: 6, all: 1, budgetOfASpan: 12},
		{name: "bank debits under way", load: workload{refreshes: 300, sent: 20_000}, search: true, span: true, oneByOne: 300, all: 201, budgetOfASpan: 412},
		{name: "a few bank debits", load: workload{refreshes: 200, sent: 20_000}, search: true, oneByOne: 200, all: 201, budgetOfASpan: 412},
		{name: "without search, a thousand", load: workload{lookups: 1000, sent: 21_000}, span: true, oneByOne: 1000, all: 211, budgetOfASpan: 432},
		{name: "without search, a few", load: workload{lookups: 100, sent: 21_000}, oneByOne: 100, all: 211, budgetOfASpan: 432},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.load.choose(test.search)
			want := way{span: test.span, oneByOne: test.oneByOne, all: test.all, budget: test.budgetOfASpan}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if free := got.unbounded(); !free.span || free.budget != 0 {
				t.Errorf("unbounded is %+v", free)
			}
		})
	}
}

// Whatever part of the unknown charges exists, the chosen way costs at most 0.2
// calls for each of these and 1.2 for each other; where most of a period is
// unknown, it reads it once.
func TestTheWayKeepsItsBoundForEveryMix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.Int64Range(0, 2_000_000).Draw(t, "known")
		n := rapid.Int64Range(0, 200_000).Draw(t, "unknown")
		missing := n * rapid.Int64Range(0, 100).Draw(t, "% missing") / 100
		found := n - missing
		w := workload{lookups: n, sent: known + n}.choose(true)
		cost := (n+9)/10 + missing
		if w.span {
			cost = w.all
		}
		// Ten more for the charges that do not fill a search.
		if bound := float64(found)*0.2 + float64(missing)*1.2 + 10; float64(cost) > bound {
			t.Fatalf("%d calls, at most %.0f: %+v", cost, bound, w)
		}
		if most := n > known; most && n > 100 && (!w.span || w.all > (known+n)/100+10) {
			t.Fatalf("most are unknown: %+v", w)
		}
	})
}
