package billing

import (
	"context"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// maxClockDifference is how far Postgres's clock and Stripe's may be apart.
const maxClockDifference = 2 * time.Minute

// CheckClock compares Postgres's clock with Stripe's Date header, read just now;
// a *ClockError if they differ by more than two minutes. Every run does it before
// its first send: a window that is measured by a wrong clock is none.
func CheckClock(ctx context.Context, q ledger.Querier, stripe time.Time) error {
	if stripe.IsZero() {
		return &ClockError{}
	}
	now, err := ledger.Now(ctx, q)
	if err != nil {
		return err
	}
	if now.Sub(stripe).Abs() > maxClockDifference {
		return &ClockError{Postgres: now, Stripe: stripe}
	}
	return nil
}

// clock is a reading of Postgres's clock and of this process's at one moment,
// taken when Postgres and Stripe had just agreed.
type clock struct{ postgres, here time.Time }

func (r *Runner) setClock(ctx context.Context) (err error) {
	r.clock.here = time.Now()
	r.clock.postgres, err = ledger.Now(ctx, r.pool)
	return err
}

// check returns a *ClockError if Postgres's clock has moved otherwise than this
// process's. It has not if either of the process's readings agrees: the monotonic
// one stands still while the machine is suspended, the wall clock may be set.
func (c clock) check(postgres, now time.Time) error {
	passed := postgres.Sub(c.postgres)
	monotonic, wall := now.Sub(c.here), now.Round(0).Sub(c.here.Round(0))
	if (passed-monotonic).Abs() > maxClockDifference && (passed-wall).Abs() > maxClockDifference {
		return &ClockError{Postgres: postgres, Stripe: c.postgres.Add(monotonic)}
	}
	return nil
}
