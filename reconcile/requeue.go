package reconcile

import (
	"fmt"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// mayRequeue opens a new try only if nothing of the earlier ones can still take
// money.
func (j judge) mayRequeue(v verdict, s sorted, e evidence) verdict {
	c := &v.charge
	v.seen = "nothing"
	maybe := j.mayStillBeDone(c, e)
	switch {
	case c.State != ledger.ChargeSkipped && c.State != ledger.ChargeRejected && c.State != ledger.ChargeVoid:
		v.outcome, v.done = OutcomeMovedOn, "nothing: it changed during the look"
	case len(s.open) > 0:
		v.outcome, v.paymentIntent = OutcomeRefused, s.open[0].ID
		v.seen, v.done = s.open[0].Status, "nothing: the customer could still pay this one"
	case e.unexplained != "":
		v.outcome, v.paymentIntent = OutcomeRefused, e.unexplained
		v.seen, v.done = "a payment of the same amount without our key", "nothing: is it the payment of this charge?"
	case c.WindowOpenedAt != nil && (!c.SendsDead(e.lookedAt) || c.OpenSends > 0 && !c.WindowDead(e.lookedAt)):
		v.outcome, v.done = OutcomeWaiting, "nothing: a request may still be on its way"
		until := e.lookedAt.Add(ledger.RequestDead)
		v.until = &until
	case maybe != nil:
		// Under its own key it would be sent again at the earliest then, too.
		v.outcome, v.until = OutcomeWaiting, maybe
		v.done = "nothing before " + maybe.UTC().Format("2006-01-02 15:04 UTC") + ": a send had no answer, and Stripe may still complete it"
	default:
		v.outcome, v.requeue, v.done = OutcomeRequeued, true, fmt.Sprintf("try %d: the next run sends it", c.NextTry())
	}
	return v
}

// mayStillBeDone is until when a send without an answer may be completed by Stripe, nil
// if there is none, or it is over.
func (j judge) mayStillBeDone(c *ledger.OpenCharge, e evidence) *time.Time {
	sent := j.lastOpenSend(c)
	if sent == nil || !sent.Add(j.absentAfter).After(e.lookedAt) {
		return nil
	}
	until := sent.Add(j.absentAfter)
	return &until
}

// withRequeue adds what a new try asks for, if there is something to ask for.
func (v verdict) withRequeue(anew map[string]ledger.Requeue) verdict {
	if !v.requeue {
		return v
	}
	q, there := anew[v.charge.AccountID]
	switch {
	case !there:
		v.outcome, v.requeue, v.done = OutcomeRefused, false, "nothing: it has no invoice any more"
	case q.Billable.StripeAccount != v.charge.StripeAccount:
		// The look was at the other one; the look of a run is at all of them.
		v.outcome, v.requeue, v.done = OutcomeRefused, false, "nothing: its connected account is another one now; reopen the period and run it"
	case q.Decision.State != ledger.ChargePending:
		v.outcome, v.requeue, v.done = OutcomeRefused, false, "nothing: it would be skipped again: "+q.Decision.Reason
	default:
		v.anew = q
	}
	return v
}
