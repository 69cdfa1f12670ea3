package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// maxUnknownKeys bounds what a look remembers of payments that the ledger
	// does not know. With one more, the ledger is older than Stripe whatever is
	// about to be recorded.
	maxUnknownKeys = 10_000
)

// look is one complete reading of Stripe, from the horizon on, for payments of
// this job and period that the ledger has no recorded charge for.
type look struct {
	// startedAt is Postgres's time before the first page was asked for.
	startedAt time.Time
	pages     int
	// unknown maps billing keys to the PaymentIntent that carries them.
	unknown map[string]string
	// closed are connected accounts that could not be read: nothing is recorded
	// to be sent there.
	closed map[string]bool
}

// windowOpensAt is when the window of what is recorded after this look opens: a
// request that left before the look may have been on its way for that long.
func (l *look) windowOpensAt() time.Time { return l.startedAt.Add(-ledger.RequestLife) }

// look reads the list of PaymentIntents to its last page. A page that fails ends
// it: half a look proves nothing.
func (r *Runner) look(ctx context.Context) (*look, error) {
	now, err := ledger.Now(ctx, r.pool)
	if err != nil {
		return nil, err
	}
	l := &look{startedAt: now, unknown: map[string]string{}, closed: map[string]bool{}}
	var accounts []string
	err = ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		accounts, err = ledger.StripeAccounts(ctx, tx, r.run.Job, r.run.Period)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, account := range accounts {
		if account != "" && !stripeAccount.MatchString(account) {
			continue // its rows are skipped
		}
		err := r.finder.List(ctx, gateway.ListQuery{
			StripeAccount: account,
			CreatedFrom:   r.run.Horizon(),
			EachPage: func(page []gateway.PaymentIntent, meta gateway.Meta) error {
				return r.lookAt(ctx, l, page, meta)
			},
		})
		if account != "" && isRefusedAccount(err) {
			r.log.Warn("a connected account can't be read; its charges are skipped", "stripe_account", account, "error", err)
			l.closed[account] = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for payments of %s at Stripe: %w", r.run.Period, err)
		}
	}
	r.log.Info("looked at Stripe", "period", r.run.Period, "from", r.run.Horizon().UTC(), "pages", l.pages, "unknown", len(l.unknown))
	if n := len(l.unknown); n > 0 {
		// Those of what is recorded now stop the run; the others are somebody else's.
		r.warnings = append(r.warnings, fmt.Sprintf("Stripe has %s of %s and %s that %s not in this ledger: does another ledger use this Stripe account?",
			plural(int64(n), "payment", "payments"), r.run.Job, r.run.Period, map[bool]string{true: "is", false: "are"}[n == 1]))
	}
	return l, nil
}

// isRefusedAccount reports that Stripe does not let the key at one connected
// account, which is that account's matter.
func isRefusedAccount(err error) bool {
	var e *gateway.Error
	return errors.As(err, &e) && (e.Kind == gateway.KindPermission || e.Kind == gateway.KindNotFound || e.Kind == gateway.KindRefused)
}

func (r *Runner) lookAt(ctx context.Context, l *look, page []gateway.PaymentIntent, meta gateway.Meta) error {
	l.pages++
	r.alive()
	r.opts.Progress(Progress{Phase: "look", Done: int64(l.pages)})
	if err := CheckClock(ctx, r.pool, meta.Date); err != nil {
		return err
	}
	ours := map[string]string{}
	for _, pi := range page {
		if pi.Livemode != r.opts.Livemode {
			return fmt.Errorf("PaymentIntent %s is of the other mode than the key", pi.ID)
		}
		if pi.Job == string(r.run.Job) && pi.Period == string(r.run.Period) && pi.BillingKey != "" {
			ours[pi.BillingKey] = pi.ID
		}
	}
	if len(ours) == 0 {
		return nil
	}
	keys := make([]string, 0, len(ours))
	for key := range ours {
		keys = append(keys, key)
	}
	known, err := ledger.KnownKeys(ctx, r.pool, keys)
	if err != nil {
		return err
	}
	for key, id := range ours {
		// A skipped charge was never sent, so a payment for it is as unknown as
		// one without a charge.
		if state, ok := known[key]; !ok || state == ledger.ChargeSkipped {
			l.unknown[key] = id
		}
		if len(l.unknown) > maxUnknownKeys {
			return olderThanStripe(r.run.Period, key, id, len(l.unknown))
		}
	}
	return nil
}

// somethingToRecord reports whether any billable row has no charge, or would be
// decided otherwise than it was when it was skipped.
func (r *Runner) somethingToRecord(ctx context.Context) (bool, error) {
	d := decider{job: r.run.Job, period: r.run.Period, bare: true}
	err := ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) error {
		return ledger.EachUnrecorded(ctx, tx, r.run.Job, r.run.Period, func(rows []ledger.Billable) error {
			for i := range rows {
				if !rows[i].Skipped {
					return errEnough
				}
				if dec, _ := d.decide(&rows[i]); dec.Reason != rows[i].SkippedFor {
					return errEnough
				}
			}
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

// record looks at Stripe and then, in one transaction, decides and records every
// billable row that has no charge yet. If anything speaks against it nothing is
// recorded, and no window has opened.
func (r *Runner) record(ctx context.Context) error {
	l, err := r.look(ctx)
	if err != nil {
		return err
	}
	// The record transaction holds the claim's row, so the heartbeat would only
	// wait for it; it is renewed as its last statement.
	r.heart.pause()
	defer r.heart.resume()
	var recorded int64
	err = ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		recorded, err = r.recordIn(ctx, tx, l)
		return err
	})
	if err != nil {
		return fmt.Errorf("record period %s: %w", r.run.Period, err)
	}
	r.recorded += recorded
	r.log.Info("recorded", "period", r.run.Period, "charges", recorded, "window_ends", l.windowOpensAt().Add(ledger.Window).UTC())
	return nil
}

func (r *Runner) recordIn(ctx context.Context, tx pgx.Tx, l *look) (int64, error) {
	if err := ledger.BoundIdle(ctx, tx, r.opts.Lease); err != nil {
		return 0, err
	}
	if err := r.run.Lock(ctx, tx); err != nil {
		return 0, err
	}
	staging, err := ledger.NewStaging(ctx, tx)
	if err != nil {
		return 0, err
	}
	p := newPlanner(r.run.Job, r.run.Period)
	var decided []ledger.Decision
	err = ledger.EachUnrecorded(ctx, tx, r.run.Job, r.run.Period, func(rows []ledger.Billable) error {
		decided = decided[:0]
		for i := range rows {
			dec, err := p.add(&rows[i])
			if err != nil {
				return err
			}
			// What stays skipped is not charged, whatever Stripe has for it, and a rebuild
			// would not decide it otherwise.
			stays := rows[i].Skipped && dec.State == ledger.ChargeSkipped
			if id, there := l.unknown[dec.BillingKey]; there && !stays {
				return olderThanStripe(r.run.Period, dec.BillingKey, id, len(l.unknown))
			}
			if l.closed[rows[i].StripeAccount] && dec.State == ledger.ChargePending {
				dec = p.skip(dec, SkipBadStripeAccount)
			}
			decided = append(decided, dec)
		}
		r.opts.Progress(Progress{Phase: "record", Done: p.rows})
		return staging.Add(ctx, rows, decided)
	})
	if err != nil {
		return 0, err
	}
	recorded, err := staging.Record(ctx, r.run, l.windowOpensAt())
	if err != nil {
		return 0, err
	}
	if err := r.gate(ctx, tx); err != nil {
		return 0, err
	}
	return recorded, r.run.Heartbeat(ctx, tx)
}

func olderThanStripe(period ledger.Period, key, paymentIntent string, n int) error {
	return &StoppedError{
		Gate: "ledger_older_than_stripe",
		Msg: fmt.Sprintf("Stripe has payments of %s that this ledger does not know (%d, such as %s for %s): "+
			"the ledger is older than Stripe, after a restored backup or with a second environment on the same account",
			period, n, paymentIntent, key),
		Hint: fmt.Sprintf("nothing was recorded or sent. If a second environment uses this account and job, give it an account of its own. "+
			"If this ledger was restored, bring it up to what Stripe shows first: "+
			"billing reconcile --period %s --rebuild --why \"restored\"; see docs/runbook.md", period),
	}
}
