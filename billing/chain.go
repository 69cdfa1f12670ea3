package billing

import (
	"sync"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// longestChain is how many charges of one customer are claimed at a time. They
// go one after the other, and a charge takes up to two seconds at Stripe: these
// are sent within the time that a batch takes.
const longestChain = 5

// inHand is whose charges are claimed and not yet answered or given back. Stripe
// does one thing at a time to a customer and answers 429 (lock_timeout) to the
// rest, so such a customer is left out of the next claims. That also keeps a
// charge whose permit has ended from being sent beside its own first send.
type inHand struct {
	mu     sync.Mutex
	rows   map[ledger.StripeCustomer]int
	others map[ledger.StripeCustomer]time.Time // whom an earlier owner may still send for, and until when
}

func newInHand() *inHand {
	return &inHand{rows: map[ledger.StripeCustomer]int{}, others: map[ledger.StripeCustomer]time.Time{}}
}

// leased notes whom an earlier owner may still send for.
func (h *inHand) leased(leases []ledger.Lease, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range leases {
		h.others[l.Customer] = now.Add(l.Left)
	}
}

func (h *inHand) take(batch []claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range batch {
		h.rows[c.customer()]++
	}
}

func (h *inHand) drop(c claimed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	customer := c.customer()
	if h.rows[customer]--; h.rows[customer] <= 0 {
		delete(h.rows, customer)
	}
}

// customers are those that the next claim leaves out.
func (h *inHand) customers(now time.Time) []ledger.StripeCustomer {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]ledger.StripeCustomer, 0, len(h.rows)+len(h.others))
	for c := range h.rows {
		list = append(list, c)
	}
	for c, until := range h.others {
		if now.After(until) {
			delete(h.others, c)
		} else {
			list = append(list, c)
		}
	}
	return list
}

func (c claimed) customer() ledger.StripeCustomer {
	return ledger.StripeCustomer{Account: c.StripeAccount, ID: c.Permit.StripeCustomer}
}

// chains divides a batch by customer, in the order in which they come first.
// What would make a chain too long to be sent in time is surplus.
func chains(batch []claimed) (list [][]claimed, surplus []claimed) {
	place := map[ledger.StripeCustomer]int{}
	for _, c := range batch {
		i, known := place[c.customer()]
		switch {
		case !known:
			place[c.customer()] = len(list)
			list = append(list, []claimed{c})
		case len(list[i]) < longestChain:
			list[i] = append(list[i], c)
		default:
			surplus = append(surplus, c)
		}
	}
	return list, surplus
}

// dispatch starts the chains of a batch at the pace of the limiter. What may not
// be sent any more is given back.
func (s *sender) dispatch(batch []claimed) {
	list, surplus := chains(batch)
	s.giveBack(surplus)
	for i, chain := range list {
		if chain = s.allowed(chain); len(chain) == 0 {
			continue
		}
		if !s.admit(chain[0]) {
			for _, rest := range list[i:] {
				s.giveBack(rest)
			}
			return
		}
		s.flying.Add(1)
		go func() {
			defer s.flying.Done()
			s.sendChain(chain)
		}()
	}
}

// admit waits until a charge may be sent, and takes a place among the sends in
// flight. It reports false if the charge may not be sent any more.
func (s *sender) admit(c claimed) bool {
	// A permit that has ended must not use up the pace of those that have not.
	if _, down := s.trouble.outage(); down || c.deadline().Expired(time.Now()) || s.limiter.Wait(s.halted) != nil {
		return false
	}
	if s.limiter.Acquire(s.halted) != nil {
		return false
	}
	// A place that came free with the answer that halted the run is none.
	if s.halted.Err() != nil {
		s.limiter.Release()
		return false
	}
	return true
}

// sendChain sends charges of one customer, each when the answer to the one
// before has come. The first was admitted already.
func (s *sender) sendChain(chain []claimed) {
	for i, c := range chain {
		if i > 0 && !s.admit(c) {
			s.giveBack(chain[i:])
			return
		}
		if s.paused.has(c.AccountID) {
			s.giveBack(chain[i : i+1])
			s.limiter.Release()
			continue
		}
		s.send(c)
		s.limiter.Release()
	}
}
