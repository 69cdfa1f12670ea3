package billing

import (
	"context"
	"errors"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// settle looks at Stripe for what is past its window. A look that Stripe did not
// answer concludes nothing, and is no reason not to charge what may be charged: the
// next run looks again.
func (r *Runner) settle(ctx context.Context, run *ledger.Run) error {
	if r.opts.Settle == nil {
		return nil
	}
	got, err := r.opts.Settle(ctx, run, r.alive)
	r.settled.Add(got.Settled)
	r.renewed += got.Renewed
	r.warnings = append(r.warnings, got.Warnings...)
	if err == nil || !passesByItself(err) || ctx.Err() != nil {
		return err
	}
	r.log.Warn("the look at Stripe failed; the next run looks again", "error", err)
	r.warnings = append(r.warnings, "what is past its window, or under way, could not be looked up: "+err.Error())
	return nil
}

// refresh asks about payments under way although the period is done.
func (r *Runner) refresh(ctx context.Context) error {
	if r.opts.Settle == nil {
		return nil
	}
	open, err := ledger.HasUnsettled(ctx, r.pool, r.opts.Job)
	if err != nil || !open {
		return err
	}
	if err := r.opts.Identify(ctx); err != nil {
		if !passesByItself(err) {
			return err
		}
		r.warnings = append(r.warnings, "payments under way could not be looked up: "+err.Error())
		return nil
	}
	return r.settle(ctx, nil)
}

// passesByItself reports that Stripe could not be asked, and may be later.
func passesByItself(err error) bool {
	var e *gateway.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case gateway.KindAuth, gateway.KindPermission, gateway.KindWrongMode:
		return false
	}
	return true
}
