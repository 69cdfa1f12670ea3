package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// RefusedError says why a person's order about a finding can't be done. Nothing was
// changed.
type RefusedError struct{ Msg string }

func (e *RefusedError) Error() string { return e.Msg }

func cannot(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// UndecidedError says that what became of a refund is not known yet: the same order
// goes on with it.
type UndecidedError struct {
	Msg string
	// Until is when it can be decided at the earliest, nil for at once.
	Until *time.Time
}

func (e *UndecidedError) Error() string { return e.Msg }

// OpenError says that a finding stays open and what for.
type OpenError struct{ Msg, Hint string }

func (e *OpenError) Error() string { return e.Msg }

// Resolver does what a person says about findings. Its Finder and Refunder may be nil
// where NeedsStripe says so.
type Resolver struct {
	Pool     *pgxpool.Pool
	Finder   *gateway.Finder
	Refunder *gateway.Refunder
	Job      ledger.Job
	// Person and Why are kept with everything that is done.
	Person, Why string
	// DryRun says what would be done.
	DryRun bool
	// Outbox tells what is changed; nil tells nobody.
	Outbox *ledger.Outbox
	Log    *slog.Logger
}

// NeedsStripe reports whether resolving a finding asks for its payment.
func NeedsStripe(f ledger.FindingState, as ledger.Resolution) bool {
	switch as {
	case ledger.ResolutionRefunded:
		return true
	case ledger.ResolutionAccepted, ledger.ResolutionReleased, ledger.ResolutionVoided:
		return f.Open() && f.InReview() && f.PaymentIntent != ""
	}
	return false
}

// look is what a resolution rests on: the payment, nil where it does not count, and how
// many of its refunds the ledger knew before that was read.
type look struct {
	payment *gateway.PaymentIntent
	refunds int
}

// Resolve accepts, releases or voids findings, all of them or none, and says what was
// done about each. The error is a *RefusedError where that can't be; of two people at
// once one is refused.
func (r *Resolver) Resolve(ctx context.Context, ids []int64, as ledger.Resolution) (done []string, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	looks := map[int64]look{}
	for _, id := range ids {
		f, err := ledger.ReadFinding(ctx, r.Pool, r.Job, id)
		if err != nil {
			return nil, err
		}
		refunds, err := orderedOf(ctx, r.Pool, f.PaymentIntent)
		if err != nil {
			return nil, err
		}
		seen := look{refunds: len(refunds.made())}
		if NeedsStripe(f, as) {
			if seen.payment, err = r.payment(ctx, &f); err != nil {
				return nil, err
			}
		}
		if err := mayResolve(&f, as, refunds, seen.payment); err != nil {
			return nil, err
		}
		looks[id] = seen
		done = append(done, saysResolved(&f, as, seen.payment))
	}
	if r.DryRun {
		return done, nil
	}
	err = ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		for _, id := range ids {
			if err := r.resolve(ctx, tx, id, as, looks[id]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, ledger.ErrPaymentIntentTaken) {
		return nil, cannot("the payment came to pay for another charge meanwhile; nothing was done: look again")
	}
	return done, err
}

// payment reads the payment of a finding with what of it was given back.
func (r *Resolver) payment(ctx context.Context, f *ledger.FindingState) (*gateway.PaymentIntent, error) {
	return r.read(ctx, f, f.PaymentIntent)
}

func (r *Resolver) read(ctx context.Context, f *ledger.FindingState, id string) (*gateway.PaymentIntent, error) {
	pi, _, err := r.Finder.GetWithCharge(ctx, f.StripeAccount, id)
	if failure := (*gateway.Error)(nil); errors.As(err, &failure) && failure.Kind == gateway.KindNotFound {
		return nil, cannot("finding %d: Stripe has no payment %s; nothing was done", f.ID, id)
	}
	if err != nil {
		return nil, err
	}
	return &pi, nil
}

// resolve does it under the locks, if everything is still as it was when the payment
// was read.
func (r *Resolver) resolve(ctx context.Context, tx pgx.Tx, id int64, as ledger.Resolution, seen look) error {
	f, err := ledger.LockFinding(ctx, tx, r.Job, id)
	if err != nil {
		return err
	}
	refunds, err := orderedOf(ctx, tx, f.PaymentIntent)
	if err != nil {
		return err
	}
	pi := seen.payment
	if NeedsStripe(f, as) && (pi == nil || len(refunds.made()) != seen.refunds) {
		return cannot("finding %d changed meanwhile; nothing was done: look again", id)
	}
	if err := mayResolve(&f, as, refunds, pi); err != nil {
		return err
	}
	detail := "closed as it is"
	if f.InReview() {
		end := reviewEnd(&f, as, pi)
		end.Person, end.Outbox, detail = r.Person, r.Outbox, end.Detail
		end.Detail = r.Why + " (" + end.Detail + ")"
		moved, err := f.EndReview(ctx, tx, end)
		if err != nil {
			return err
		}
		if !moved {
			return cannot("finding %d: its charge changed meanwhile; nothing was done: look again", id)
		}
	}
	return f.Resolve(ctx, tx, ledger.Resolved{As: as, Person: r.Person, Why: r.Why, Detail: detail})
}

// reviewEnd is where a resolution moves a charge that is in review.
func reviewEnd(f *ledger.FindingState, as ledger.Resolution, pi *gateway.PaymentIntent) ledger.ReviewEnd {
	end := ledger.ReviewEnd{PaymentIntent: f.PaymentIntent}
	switch as {
	case ledger.ResolutionAccepted:
		end.To, end.Status, end.RefundedMinor, end.Disputed = ledger.ChargeSucceeded, pi.Status, pi.AmountRefundedMinor, pi.Disputed
		end.Detail = fmt.Sprintf("accepted: %s paid %s by customer %s for %s %s", pi.ID, amountText(pi.Amount, pi.Currency), pi.Customer, f.ChargeAmount, f.Currency)
	case ledger.ResolutionReleased:
		end.To, end.Reason, end.Detail = ledger.ChargeHeld, "not_its_payment", "a payment that is not this charge's: "+orNothing(f.PaymentIntent)
	default:
		end.To, end.Detail = ledger.ChargeVoid, "withdrawn in review"
	}
	return end
}

func orNothing(id string) string {
	if id == "" {
		return "none was found"
	}
	return id
}

// mayResolve refuses what can't be, by the finding, what was ordered of its payment, and
// the payment, which is nil where it does not count.
func mayResolve(f *ledger.FindingState, as ledger.Resolution, refunds ordered, pi *gateway.PaymentIntent) error {
	if err := mustBeOpen(f); err != nil {
		return err
	}
	if err := refunds.notUnderWay(f); err != nil {
		return err
	}
	if as == ledger.ResolutionAccepted && !f.InReview() {
		return nil
	}
	if !f.InReview() {
		return cannot("finding %d: it put no charge into review%s; nothing was done. It can be accepted, or its payment refunded", f.ID, standsText(f))
	}
	switch {
	case as == ledger.ResolutionAccepted:
		return mayAccept(f, pi)
	case pi != nil && pi.Status != gateway.StatusSucceeded && pi.Status != gateway.StatusCanceled:
		return cannot("finding %d: %s is %s, so that it may still be paid; nothing was done: cancel it at Stripe first", f.ID, pi.ID, pi.Status)
	}
	return nil
}

// mustBeOpen refuses what somebody resolved before, and says who.
func mustBeOpen(f *ledger.FindingState) error {
	if f.Open() {
		return nil
	}
	text := fmt.Sprintf("finding %d was resolved before: %s by %s at %s, because: %s", f.ID, f.Resolution, f.ResolvedBy, f.ResolvedAt.UTC().Format("2006-01-02 15:04 UTC"), f.Why)
	if f.OrderedRefund != "" {
		text += "; refund " + f.OrderedRefund
	}
	return cannot("%s; nothing was done", text)
}

func standsText(f *ledger.FindingState) string {
	if f.ChargeState == "" {
		return " (there is no charge for it)"
	}
	return fmt.Sprintf(" (the charge of account %s is %s)", f.AccountID, f.ChargeState)
}

// mayAccept takes a payment for a debt's only if it is paid, was not given back, and
// is no other debt's.
func mayAccept(f *ledger.FindingState, pi *gateway.PaymentIntent) error {
	switch {
	case f.PaymentIntent == "":
		return cannot("finding %d: there is no payment to accept; nothing was done: --as release holds the charge, --as void withdraws it", f.ID)
	case f.PaysFor != "":
		return cannot("finding %d: %s pays for the charge of account %s for %s, and for one debt only; nothing was done", f.ID, f.PaymentIntent, f.PaysFor, f.PaysForPeriod)
	case pi.Status != gateway.StatusSucceeded:
		return cannot("finding %d: %s is %s, not paid; nothing was done: --as release holds the charge, --as void withdraws it", f.ID, pi.ID, pi.Status)
	case pi.AmountRefundedMinor >= pi.Amount:
		return cannot("finding %d: %s was given back; nothing was done: --as release holds the charge, --as void withdraws it", f.ID, pi.ID)
	}
	return nil
}

// saysResolved is what a resolution comes to, for people.
func saysResolved(f *ledger.FindingState, as ledger.Resolution, pi *gateway.PaymentIntent) string {
	text := fmt.Sprintf("finding %d, %s of account %s for %s: %s", f.ID, f.Kind, f.AccountID, f.Period, as)
	if !f.InReview() {
		return text
	}
	end := reviewEnd(f, as, pi)
	return fmt.Sprintf("%s; its charge is %s (%s)", text, end.To, end.Detail)
}
