package reconcile

import (
	"time"

	"github.com/chargeonce/billing/ledger"
)

// Outcome is what a look came to for one charge.
type Outcome string

// The outcomes, in the order in which reports print them. The first ones are the
// states that a charge was moved to.
const (
	OutcomeSucceeded      Outcome = "succeeded"
	OutcomeProcessing     Outcome = "processing"
	OutcomeActionRequired Outcome = "action_required"
	OutcomeDeclined       Outcome = "declined"
	OutcomeReview         Outcome = "review"
	// OutcomeRenewed: absent, and the next run sends it.
	OutcomeRenewed Outcome = "renewed"
	// OutcomeRequeued: it has a new try, which the next run sends.
	OutcomeRequeued Outcome = "requeued"
	// OutcomeHeld: absent, and a person decides.
	OutcomeHeld Outcome = "held"
	// OutcomeWaiting: absent so far, and Stripe may still complete it.
	OutcomeWaiting Outcome = "waiting"
	// OutcomeInWindow: not found, and it may still be sent by a run.
	OutcomeInWindow Outcome = "in_window"
	// OutcomeUnchanged: Stripe shows what the ledger says.
	OutcomeUnchanged Outcome = "unchanged"
	// OutcomeBusy: absent, but another run owns the period.
	OutcomeBusy Outcome = "busy"
	// OutcomeMovedOn: somebody else settled it during the look.
	OutcomeMovedOn Outcome = "moved_on"
	// OutcomeUnreadable: Stripe could not be asked about it.
	OutcomeUnreadable Outcome = "unreadable"
	// OutcomeRefused: what was ordered can't be done to it.
	OutcomeRefused Outcome = "refused"
	// OutcomeNotRetried: declined, and by the rules not to be tried again, or not yet.
	OutcomeNotRetried Outcome = "not_retried"
	// OutcomeNotRecorded: a payment for which the ledger has no charge.
	OutcomeNotRecorded Outcome = "not_recorded"
)

// Outcomes lists them all.
var Outcomes = []Outcome{
	OutcomeSucceeded, OutcomeProcessing, OutcomeActionRequired, OutcomeDeclined, OutcomeReview, OutcomeRenewed, OutcomeRequeued,
	OutcomeHeld, OutcomeWaiting, OutcomeInWindow, OutcomeUnchanged, OutcomeBusy, OutcomeMovedOn, OutcomeUnreadable, OutcomeRefused,
	OutcomeNotRetried, OutcomeNotRecorded,
}

// Line is what became of one charge, for people.
type Line struct {
	Outcome    Outcome
	Period     ledger.Period
	AccountID  string
	BillingKey string
	// Amount is in major units, as invoiced.
	Amount, Currency string
	PaymentIntent    string
	Found, Done      string
	// Next is what to type; empty if there is nothing to do.
	Next string
}

// Report is what a look came to.
type Report struct {
	// Looked is how many charges were looked at.
	Looked int64
	Counts map[Outcome]int64
	// Settled charges left pending, Renewed ones got a new window or try.
	Settled, Renewed int64
	// Recorded charges were not in the ledger before a rebuild.
	Recorded int64
	// Findings were opened.
	Findings int64
	// NextLook is when the first of the waiting charges may be decided.
	NextLook *time.Time
	Calls    Calls

	stepped int64
}

func (r *Report) add(o Outcome) {
	if r.Counts == nil {
		r.Counts = map[Outcome]int64{}
	}
	r.Counts[o]++
}

func (r *Report) waitUntil(t time.Time) {
	if r.NextLook == nil || t.Before(*r.NextLook) {
		r.NextLook = &t
	}
}
