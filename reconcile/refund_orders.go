package reconcile

import (
	"context"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// ordered are the refunds that were ever ordered of one payment, about whatever
// findings, at one moment.
type ordered struct {
	list []ledger.RefundOrder
	now  time.Time
}

func orderedOf(ctx context.Context, q ledger.Querier, payment string) (o ordered, err error) {
	if payment == "" {
		return o, nil
	}
	if o.now, err = ledger.Now(ctx, q); err != nil {
		return o, err
	}
	o.list, err = ledger.RefundsOf(ctx, q, payment)
	return o, err
}

// made are those refunds at Stripe that are known to come from an order.
func (o ordered) made() map[string]bool {
	set := map[string]bool{}
	for i := range o.list {
		if id := o.list[i].Refund; id != "" {
			set[id] = true
		}
	}
	return set
}

// underWay is an order that Stripe may still carry out, nil if there is none.
func (o ordered) underWay() *ledger.RefundOrder {
	for i := range o.list {
		if o.list[i].State == ledger.RefundPending {
			return &o.list[i]
		}
	}
	return o.unanswered()
}

// unanswered is an order that is never sent again, and that Stripe may still carry out.
func (o ordered) unanswered() *ledger.RefundOrder {
	for i := range o.list {
		if r := &o.list[i]; r.State == ledger.RefundHeld && r.DeadAt().After(o.now) {
			return r
		}
	}
	return nil
}

// notUnderWay refuses what a refund of the finding's payment, about whatever finding,
// could undo: nobody knows yet whether there is anything to decide about.
func (o ordered) notUnderWay(f *ledger.FindingState) error {
	r := o.underWay()
	switch {
	case r == nil:
		return nil
	case r.State == ledger.RefundHeld:
		return cannot("finding %d: a refund of %s about finding %d got no answer, and Stripe may still make it until %s; nothing was done",
			f.ID, r.PaymentIntent, r.FindingID, r.DeadAt().UTC().Format("2006-01-02 15:04 UTC"))
	}
	return cannot("finding %d: a refund of %s was ordered about finding %d, and its outcome is not known; nothing was done: billing resolve --finding %d --as refund --yes --why W goes on with it",
		f.ID, r.PaymentIntent, r.FindingID, r.FindingID)
}
