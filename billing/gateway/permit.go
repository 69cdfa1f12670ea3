package gateway

import "time"

// Permit is the right to put one POST on the wire, given by a committed claim
// in the ledger. The caller hands each permit to Send once.
type Permit struct {
	// Key is the idempotency key, Body the frozen request, SHA256 its hash.
	Key    string
	Body   string
	SHA256 [32]byte
	// StripeAccount is a connected account, empty for one's own.
	StripeAccount string
	// BillingKey, Amount (in Stripe's unit), Currency and Customer are what the
	// PaymentIntent that comes back must carry.
	BillingKey string
	Try        int
	Amount     int64
	Currency   string
	Customer   string
	// Resend says that this try was sent before: an answer that is not a success
	// is then read again by id, because the customer may have acted in between.
	Resend bool
	// Deadline is when the permit ends; no byte of the body leaves after it.
	Deadline Deadline
}

func (p Permit) asked(livemode bool) Asked {
	return Asked{
		BillingKey: p.BillingKey, Amount: p.Amount, Currency: p.Currency, Customer: p.Customer, Livemode: livemode,
	}
}

// clockSlack is how far the wall clock may step back, as time servers do it,
// before a deadline is taken to have passed.
const clockSlack = 2 * time.Second

// Deadline is a moment by two clocks: the monotonic one, which no correction
// moves, and the wall clock, which goes on while the machine is suspended. It
// has passed as soon as either says so. The zero Deadline has passed.
type Deadline struct {
	start time.Time
	life  time.Duration
}

// NewDeadline is d after start, which must have been read with time.Now()
// before the database was asked for the permit.
func NewDeadline(start time.Time, d time.Duration) Deadline {
	return Deadline{start: start, life: d}
}

// Expired reports whether the deadline has passed at now, a reading of
// time.Now(). A wall clock that stands more than two seconds before the start
// was set back, and proves nothing any more: that counts as passed.
func (d Deadline) Expired(now time.Time) bool {
	return d.Remaining(now) <= 0
}

// Remaining is how long the permit is still good for, by the clock that leaves
// less; 0 if it has passed.
func (d Deadline) Remaining(now time.Time) time.Duration {
	if d.start.IsZero() {
		return 0
	}
	// Round(0) strips the monotonic reading, so that Sub compares wall clocks.
	wall := now.Round(0).Sub(d.start.Round(0))
	if wall < -clockSlack {
		return 0
	}
	monotonic := now.Sub(d.start)
	return max(0, d.life-max(wall, monotonic))
}
