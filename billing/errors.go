package billing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// StoppedError says that a limit, a guard or a gate stopped the run; a person
// must look before it goes on (exit 3).
type StoppedError struct {
	// Gate names what stopped it, such as not_closed.
	Gate string
	Msg  string
	Hint string
}

func (e *StoppedError) Error() string { return e.Msg }

// ClockError says that Postgres's clock and Stripe's do not agree, so that no
// window can be trusted (exit 78).
type ClockError struct{ Postgres, Stripe time.Time }

func (e *ClockError) Error() string {
	if e.Stripe.IsZero() {
		return "Stripe's answer has no Date, so its clock can't be compared with Postgres's"
	}
	return fmt.Sprintf("the clocks differ by %s: Postgres says %s, Stripe says %s; %s is allowed",
		e.Postgres.Sub(e.Stripe).Abs().Round(time.Second), e.Postgres.UTC().Format(time.RFC3339),
		e.Stripe.UTC().Format(time.RFC3339), maxClockDifference)
}

// AuthError says that Stripe refused the key in the middle of a run (exit 77).
// The charges that it was for are still pending.
type AuthError struct {
	Status    int
	RequestID string
}

func (e *AuthError) Error() string {
	what := "refused the key"
	if e.Status == 403 {
		what = "says that the key may not do this"
	}
	return fmt.Sprintf("Stripe %s (HTTP %d, request %s); nothing is lost, every unsent charge is still pending", what, e.Status, e.RequestID)
}

// Hint says what to check.
func (e *AuthError) Hint() string {
	return "check STRIPE_SECRET_KEY: was it rolled, restricted or revoked? Then run again"
}

// UnsettledError says that the period is not finished and that running it again
// goes on with it (exit 75).
type UnsettledError struct {
	// Pending charges inside their window have no known outcome yet; 0 if
	// something else is left to do.
	Pending int64
	Until   *time.Time
	// Past says that they are past their window, so that only a look at Stripe
	// tells; LookAt is when the next one may decide, nil for at once.
	Past   bool
	LookAt *time.Time
	// Left says what else is left to do, where it is not the period.
	Left string
	// Type is the command that goes on with it, "" for the same one again.
	Type string
}

func (e *UnsettledError) Error() string {
	if e.Pending == 0 {
		return cmp.Or(e.Left, "the period is not finished")
	}
	if e.Past {
		return plural(e.Pending, "charge is past its window, and its outcome is", "charges are past their window, and their outcomes are") + " not known yet"
	}
	return plural(e.Pending, "charge is still pending: its outcome is", "charges are still pending: their outcomes are") + " not known yet"
}

// Hint says what to do.
func (e *UnsettledError) Hint() string {
	what := cmp.Or(e.Type, "run the same command again")
	switch {
	case e.LookAt != nil:
		return what + " after " + e.LookAt.UTC().Format("2006-01-02 15:04 UTC")
	case e.Until != nil:
		return what + " before " + e.Until.UTC().Format("2006-01-02 15:04 UTC")
	}
	return what
}

// PersonError says that the period needs somebody, and for what (exit 4).
type PersonError struct {
	Msg  string
	Hint string
	// Code names a cause of its own for --json; empty is needs_person.
	Code string
}

func (e *PersonError) Error() string { return e.Msg }

// Verdict is what the ledger of a period means after a command: nil when it is
// done and nobody is needed. It looks at nothing else, so that the same ledger
// always gives the same exit code.
func Verdict(period ledger.Period, state ledger.RunState, s ledger.Summary) error {
	inside := s.Count(ledger.ChargePending) - s.Expired
	switch {
	case s.Duplicates > 0:
		return &InputError{fmt.Sprintf("billing.billable has %s for period %s: one account has one invoice a period",
			plural(s.Duplicates, "row too many", "rows too many"), period)}
	case s.Paused > 0:
		return &StoppedError{
			Gate: "paused",
			Msg:  plural(s.Paused, "charge is", "charges are") + fmt.Sprintf(" pending in %s and not sent, because somebody paused it", period),
			Hint: fmt.Sprintf("billing status --period %s names them; billing resume lets them be sent", period),
		}
	case inside > 0:
		return &UnsettledError{Pending: inside, Until: s.NextWindowEnds}
	case s.Expired > 0:
		return &UnsettledError{Pending: s.Expired, Past: true, LookAt: s.NextLook(ledger.DefaultAbsentAfter)}
	case state != ledger.RunDone && s.Unrecorded > 0:
		return &UnsettledError{}
	case s.Unrecorded > 0:
		return &PersonError{
			Msg:  plural(s.Unrecorded, "invoice is", "invoices are") + fmt.Sprintf(" not in the ledger of %s: it was recorded before", period),
			Hint: fmt.Sprintf("billing reopen --period %s --why \"late invoices\" && billing run --period %s", period, period),
		}
	case s.Changed > 0:
		return &PersonError{
			Msg:  plural(s.Changed, "invoice has", "invoices have") + fmt.Sprintf(" another amount or currency than was recorded for %s", period),
			Hint: "the recorded amount is what was charged; put the difference on the next period",
		}
	}
	if err := needs(period, s); err != nil || state == ledger.RunDone {
		return err
	}
	return &UnsettledError{}
}

// verdict is Verdict, and fewer charges than were expected need a person too.
func (r *Runner) verdict(state ledger.RunState, s ledger.Summary) error {
	if err := Verdict(r.opts.Period, state, s); err != nil {
		return err
	}
	if n := s.Settled(); n < r.opts.ExpectMin {
		return &PersonError{
			Code: "too_few",
			Msg: fmt.Sprintf("period %s is done with %s, and at least %d were expected",
				r.opts.Period, plural(n, "settled charge", "settled charges"), r.opts.ExpectMin),
			Hint: fmt.Sprintf("are invoices missing? billing status --period %s; then reopen it for late ones, or lower --expect-min", r.opts.Period),
		}
	}
	return nil
}

func needs(period ledger.Period, s ledger.Summary) error {
	unusable := int64(0)
	for _, sum := range s.Sums {
		if sum.State == ledger.ChargeSkipped && isUnusable(sum.Reason) {
			unusable += sum.Count
		}
	}
	for _, need := range []struct {
		n    int64
		what string
	}{
		{s.Count(ledger.ChargeReview), plural(s.Count(ledger.ChargeReview), "charge needs", "charges need") + " review"},
		{s.FindingsToAct, plural(s.FindingsToAct, "finding is", "findings are") + " open"},
		{s.Count(ledger.ChargeRejected), plural(s.Count(ledger.ChargeRejected), "charge was", "charges were") + " rejected by Stripe: what it refused must be mended"},
		{s.Count(ledger.ChargeHeld), plural(s.Count(ledger.ChargeHeld), "charge is", "charges are") + " held"},
		{unusable, plural(unusable, "charge was", "charges were") + " skipped because the invoice can't be used"},
	} {
		if need.n > 0 {
			return &PersonError{Msg: fmt.Sprintf("period %s: %s", period, need.what), Hint: fmt.Sprintf("billing status --period %s", period)}
		}
	}
	return nil
}

// isUnusable reports skip reasons that are mistakes in the data, which nobody
// would notice if the month ended with 0.
func isUnusable(reason string) bool {
	switch reason {
	case SkipBadAccountID, SkipBadAmount, SkipBadCurrency, SkipBadStripeAccount:
		return true
	}
	return false
}

// skippedWarnings name what was skipped because somebody forgot something.
func skippedWarnings(s ledger.Summary) (list []string) {
	for _, sum := range s.Sums {
		if sum.State == ledger.ChargeSkipped && slices.Contains(ledger.MendableReasons, sum.Reason) {
			list = append(list, plural(sum.Count, "charge was", "charges were")+" skipped: "+sum.Reason+" ("+sum.Currency+")")
		}
	}
	return list
}

// plural writes a number with what there is one or more of.
func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
