package reconcile

import (
	"fmt"
	"slices"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// withoutDisowned leaves out the payments of which a person said that they are not this
// charge's, as long as they look as they did then: else no release could ever charge it.
// One that is exactly as asked is never left out, unless it pays for another charge.
func (j judge) withoutDisowned(c *ledger.OpenCharge, s sorted, e evidence) sorted {
	if len(j.disowned) == 0 {
		return s
	}
	s.odd = slices.DeleteFunc(s.odd, func(pi gateway.PaymentIntent) bool { return j.isDisowned(j.notAsAsked(c, pi, e)) })
	s.strange = slices.DeleteFunc(s.strange, func(pi gateway.PaymentIntent) bool { return j.isDisowned(j.unknownTry(c, pi)) })
	taken := func(pi gateway.PaymentIntent) bool {
		return j.disowned[ledger.Disowned{Kind: "payment_intent_taken", BillingKey: c.BillingKey, PaymentIntent: pi.ID, Seen: ledger.SeenTaken}]
	}
	s.paid, s.live = slices.DeleteFunc(s.paid, taken), slices.DeleteFunc(s.live, taken)
	return s
}

func (j judge) isDisowned(f ledger.Finding) bool {
	return j.disowned[ledger.Disowned{Kind: f.Kind, BillingKey: f.BillingKey, PaymentIntent: f.PaymentIntent, Seen: f.Seen}]
}

func (j judge) notAsAsked(c *ledger.OpenCharge, pi gateway.PaymentIntent, e evidence) ledger.Finding {
	return j.finding(c, "not_as_asked", pi, asked(c), "a PaymentIntent with our key and another "+j.differs(c, pi, e.tries))
}

func (j judge) unknownTry(c *ledger.OpenCharge, pi gateway.PaymentIntent) ledger.Finding {
	return j.finding(c, "unknown_try", pi, fmt.Sprintf("no try after %d", c.Try), fmt.Sprintf("try %d", pi.Try))
}
