package reconcile

import (
	"sync/atomic"

	"github.com/chargeonce/billing/billing/gateway"
)

const (
	// groupSize is how many charges are looked up together: few enough that the
	// verdicts are fresh when they are written.
	groupSize = 200
	// slack is how many pages more than expected a reading of everybody's
	// payments may take before it is given up.
	slack = 10
)

// way is how to look, and what it was chosen by, in calls.
type way struct {
	// span reads everybody's payments since the horizon once. Else each charge is
	// searched for, and what search does not show is listed by customer.
	span          bool
	oneByOne, all int64
	// budget is the most pages that a span may take, 0 for no limit.
	budget int64
}

func (w way) String() string {
	if w.span {
		return "read every payment since the horizon once"
	}
	return "search, then list by customer"
}

func (w way) unbounded() way {
	w.span, w.budget = true, 0
	return w
}

// choose compares calls. One by one, a search finds ten charges at once, and what
// it does not find costs a list each. How much that will be nobody knows, so
// everything is read only where that costs at most twice the searches alone: then
// it is never much dearer, and often far cheaper.
func (c workload) choose(search bool) way {
	w := way{oneByOne: c.lookups + c.refreshes, all: c.sent/100 + 1}
	w.span = w.all < w.oneByOne
	if search {
		searches := (c.lookups + gateway.MaxSearchKeys - 1) / gateway.MaxSearchKeys
		w.oneByOne = searches + (c.lookups+1)/2 + c.refreshes
		w.span = w.all <= 2*searches+c.refreshes
	}
	w.budget = 2*w.all + slack
	return w
}

// Calls counts what was asked of Stripe, retries of the same question not
// included.
type Calls struct{ Searches, Pages, Gets int64 }

// All is the sum.
func (c Calls) All() int64 { return c.Searches + c.Pages + c.Gets }

type calls struct{ searches, pages, gets atomic.Int64 }

func (c *calls) reset() { c.searches.Store(0); c.pages.Store(0); c.gets.Store(0) }

func (c *calls) count() Calls { return Calls{c.searches.Load(), c.pages.Load(), c.gets.Load()} }
