package reconcile

import (
	"context"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// A ledger that was restored from a backup does not know its last sends. A payment
// for a charge that was never sent, or only in vain, as far as it knows, gives that
// away. Then each of its charges may have been sent until its window ended, and waits
// as what got no answer does. So those without an open send are decided last.

// putOff is an absent charge without an open send, with the time of its look.
type putOff struct {
	verdict  verdict
	lookedAt time.Time
}

// noteRestored looks for payments that the ledger can't know of.
func (r *Reconciler) noteRestored(verdicts []verdict, lookedAt time.Time) {
	for _, v := range verdicts {
		if v.found != nil && v.found.State != ledger.ChargeReview && v.charge.State == ledger.ChargePending && v.charge.OpenSends == 0 {
			r.restored.CompareAndSwap(nil, &lookedAt)
		}
	}
}

// judgeNow knows what the look has found so far.
func (r *Reconciler) judgeNow() judge {
	j := r.judge
	j.restored = r.restored.Load()
	return j
}

// putOff takes a verdict that must wait for the end of the look.
func (r *Reconciler) putOff(lookedAt time.Time, v verdict) bool {
	if v.absent == nil || v.charge.OpenSends > 0 || r.judge.act != ActSettle {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.absent = append(r.absent, putOff{v, lookedAt})
	return true
}

// applyPutOff decides them again, with everything that was found.
func (r *Reconciler) applyPutOff(ctx context.Context, w Work) error {
	list := r.absent
	r.absent = nil
	for len(list) > 0 {
		lookedAt := list[0].lookedAt
		var group []verdict
		for len(list) > 0 && list[0].lookedAt.Equal(lookedAt) {
			group = append(group, r.again(list[0]))
			list = list[1:]
		}
		if err := r.apply(ctx, w, lookedAt, group); err != nil {
			return err
		}
	}
	return nil
}

// again takes a renewal back where the ledger turned out to be restored.
func (r *Reconciler) again(p putOff) verdict {
	if r.restored.Load() == nil || p.verdict.absent.To != ledger.ChargePending {
		return p.verdict
	}
	return r.judgeNow().missing(verdict{charge: p.verdict.charge, outcome: OutcomeUnchanged}, evidence{lookedAt: p.lookedAt})
}
