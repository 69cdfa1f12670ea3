package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// payoutBefore is how long before the money is said to be available its payout
	// may be made; payoutAfter how long after: Stripe pays out once a month at least.
	payoutBefore = 3 * 24 * time.Hour
	payoutAfter  = 40 * 24 * time.Hour
)

// PayoutReport is what a look at the payouts came to.
type PayoutReport struct {
	// Read are the automatic payouts whose contents were read, ByHand those that
	// somebody ordered, of which nobody can say what is in them.
	Read, ByHand int64
	// Found charges are in one of them; Open ones are in none that was read, though
	// their money is available.
	Found, Open int64
	Calls       int64
}

// Payouts finds out which payouts the period's money is in, and writes it beside the
// charges. An audit must have written before when the money is available. What was
// found before an error is kept, and not looked for again. Nothing else depends on it.
func (r *Reconciler) Payouts(ctx context.Context, period ledger.Period) (report PayoutReport, err error) {
	wanted, err := ledger.NotPaidOut(ctx, r.pool, r.opts.Job, period)
	if err != nil {
		return report, err
	}
	for _, w := range wanted {
		if err := r.payoutsOf(ctx, period, w, &report); err != nil {
			return report, err
		}
	}
	if wanted, err = ledger.NotPaidOut(ctx, r.pool, r.opts.Job, period); err != nil {
		return report, err
	}
	for _, w := range wanted {
		report.Open += w.Charges
	}
	return report, nil
}

// payoutsOf reads the payouts that the money of one balance can be in, from the first,
// until all of it is found.
func (r *Reconciler) payoutsOf(ctx context.Context, period ledger.Period, w ledger.Unpaidout, report *PayoutReport) error {
	var payouts []gateway.Payout
	span := gateway.Span{StripeAccount: w.StripeAccount, CreatedFrom: w.From.Add(-payoutBefore), CreatedTo: w.To.Add(payoutAfter)}
	alive := func(meta gateway.Meta) error {
		report.Calls++
		r.opts.Progress("payouts", report.Calls, report.Calls)
		r.alive()
		return r.opts.CheckClock(ctx, meta.Date)
	}
	err := r.finder.Payouts(ctx, span, func(page []gateway.Payout, meta gateway.Meta) error {
		for _, p := range page {
			isOurs := p.Currency == w.Currency && p.Status != "failed" && p.Status != "canceled"
			switch {
			case isOurs && p.Automatic:
				payouts = append(payouts, p)
			case isOurs:
				report.ByHand++
			}
		}
		return alive(meta)
	})
	if err != nil {
		return err
	}
	slices.Reverse(payouts)
	left := w.Charges
	for _, p := range payouts {
		if left <= 0 {
			break
		}
		intents, err := r.finder.PaidOut(ctx, w.StripeAccount, p, alive)
		if err != nil {
			return err
		}
		found, err := r.recordPayout(ctx, period, p.ID, intents)
		if err != nil {
			return err
		}
		report.Read++
		report.Found += found
		left -= found
	}
	return nil
}

// recordPayout writes in parts small enough that no run waits for them.
func (r *Reconciler) recordPayout(ctx context.Context, period ledger.Period, payout string, intents []string) (found int64, err error) {
	if r.opts.DryRun {
		return 0, nil
	}
	for part := range slices.Chunk(intents, moneyRows) {
		var n int64
		err := ledger.InQueueTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			n, err = ledger.RecordPayout(ctx, tx, payout, part, r.opts.Job, period)
			return err
		})
		if err != nil {
			return found, err
		}
		found += n
	}
	return found, nil
}
