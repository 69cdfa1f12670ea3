package reconcile

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// sureOfNothing are the states in which the ledger said that nobody paid. That what
// was under way or unknown is paid now is no difference, only news.
var sureOfNothing = []ledger.ChargeState{
	ledger.ChargeDeclined, ledger.ChargeRejected, ledger.ChargeSkipped, ledger.ChargeHeld, ledger.ChargeVoid, ledger.ChargeReview,
}

// lateCharge settles a charge that turned out to be paid: paid wins.
func (a *auditor) lateCharge(c *ledger.AuditCharge, v seen) {
	first := v.paid[0]
	if i := slices.IndexFunc(v.paid, func(p *ledger.AuditPayment) bool { return !returned(p) }); i > 0 {
		first = v.paid[i]
	}
	if v.own != nil && slices.Contains(v.paid, v.own) && !returned(v.own) {
		first = v.own
	}
	a.duplicates(c, first.PaymentIntent, v.besides(first))
	for _, p := range v.paid {
		if p != first {
			a.sums.payment(ledger.FindingDuplicate, p)
		}
	}
	verdict := verdict{charge: c.OpenCharge}
	if slices.Contains(sureOfNothing, c.State) {
		verdict.findings = []ledger.Finding{a.judge.finding(&c.OpenCharge, ledger.FindingLatePaid, a.intentOf(first), "not paid: "+string(c.State), "paid")}
	}
	verdict = a.judge.settle(verdict, a.intentOf(first), ledger.ChargeSucceeded, "", false)
	a.late = append(a.late, verdict)
	a.paid++
	a.goneBack(c, first)
	if a.r.opts.DryRun {
		a.sums.charge(c, string(c.State))
		a.sums.payment("paid late", first)
		return
	}
	a.sums.charge(c, "")
	a.sums.own(c, first)
}

// lateUnderWay settles a charge of which the ledger said that nobody pays, while Stripe
// is taking the money.
func (a *auditor) lateUnderWay(c *ledger.AuditCharge, v seen) {
	first := v.underWay()
	a.duplicates(c, first.PaymentIntent, v.besides(first))
	verdict := verdict{charge: c.OpenCharge, findings: []ledger.Finding{
		a.judge.finding(&c.OpenCharge, ledger.FindingLatePaid, a.intentOf(first), "not paid: "+string(c.State), "a payment is under way"),
	}}
	verdict = a.judge.settle(verdict, a.intentOf(first), ledger.ChargeProcessing, "", false)
	a.late = append(a.late, verdict)
	state := c.State
	if verdict.found != nil && !a.r.opts.DryRun {
		state = verdict.found.State
	}
	a.sums.charge(c, string(state))
}

// flush settles what turned out to be paid. Its finding comes first: once it is
// settled nothing shows any more that it was late.
func (a *auditor) flush(ctx context.Context) error {
	for _, v := range a.late {
		a.batch = append(a.batch, v.findings...)
	}
	batch := a.batch
	a.batch, a.since = nil, 0
	err := a.write(ctx, 0, func(ctx context.Context, tx pgx.Tx) error { return a.audit.NoteDifferences(ctx, tx, batch) })
	if err != nil || a.r.opts.DryRun {
		a.late = nil
		return err
	}
	late := a.late
	a.late = nil
	return a.settleLate(ctx, late)
}

func (a *auditor) settleLate(ctx context.Context, late []verdict) error {
	var found []ledger.Found
	var opened int64
	err := a.write(ctx, 0, func(ctx context.Context, tx pgx.Tx) (err error) {
		opened, err = openFindings(ctx, tx, late)
		return err
	})
	a.report.Opened += opened
	for _, v := range late {
		if v.found != nil {
			found = append(found, *v.found)
		}
	}
	if err != nil || len(found) == 0 {
		return err
	}
	moved, err := ledger.SettleFound(ctx, a.r.pool, a.r.actor(Work{}), found)
	a.report.Settled += int64(len(moved))
	return err
}
