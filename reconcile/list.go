package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

var (
	// errGone says that Stripe has no such customer any more, so that a list of
	// its payments proves nothing.
	errGone = errors.New("Stripe does not have the customer any more")
	// errNotAllowed says that the key may not read customers.
	errNotAllowed = errors.New("the key may not read customers, so it can't be told whether this one still exists")
	// errNotShown says that a list does not show a payment that the ledger knows.
	errNotShown = errors.New("Stripe's list does not show a payment that the ledger knows; nothing is concluded from it")
)

// isGone tells a customer that can't be listed.
func isGone(err error) bool {
	var e *gateway.Error
	return errors.Is(err, errGone) ||
		errors.As(err, &e) && (e.Kind == gateway.KindNotFound || e.Kind == gateway.KindRefused) && (e.Param == "customer" || e.Code == "resource_missing")
}

// listed is what complete lists showed.
type listed struct {
	// keys are the billing keys that are asked for.
	keys  map[string]bool
	byKey map[string][]gateway.PaymentIntent
	// keyless are live payments without a key of ours.
	keyless []gateway.PaymentIntent
	ids     map[string]bool
	count   int64
}

// mustShow makes sure that a list shows what the ledger knows to be in it.
func (l *listed) mustShow(known []string) error {
	for _, id := range known {
		if !l.ids[id] {
			return fmt.Errorf("%w: %s", errNotShown, id)
		}
	}
	return nil
}

// unexplained is a live payment of the charge's customer, amount and currency that
// carries no key: one whose metadata was edited looks like that.
func (l *listed) unexplained(c *ledger.OpenCharge) string {
	for _, pi := range l.keyless {
		if pi.Customer == c.StripeCustomer && pi.Amount == c.AmountMinor && pi.Currency == c.Currency &&
			(c.LastSentAt != nil && c.WindowOpenedAt != nil && !pi.Created.Before(*c.WindowOpenedAt)) {
			return pi.ID
		}
	}
	return ""
}

// isKeyless reports a live payment whose key says nothing: it has none, or somebody
// wrote something else there.
func isKeyless(pi gateway.PaymentIntent) bool {
	return strings.Count(pi.BillingKey, "/") < 2 && isLive(pi)
}

func (l *listed) add(pi gateway.PaymentIntent) {
	l.count++
	if l.ids == nil {
		l.ids = map[string]bool{}
	}
	l.ids[pi.ID] = true
	switch {
	case l.keys[pi.BillingKey]:
		l.byKey[pi.BillingKey] = append(l.byKey[pi.BillingKey], pi)
	case isKeyless(pi):
		l.keyless = append(l.keyless, pi)
	}
}

// listCustomer reads every payment of a customer since the horizon. Without an
// error the list was complete.
func (r *Reconciler) listCustomer(ctx context.Context, w Work, stripeAccount, customer string, into *listed) error {
	return r.finder.List(ctx, gateway.ListQuery{
		StripeAccount: stripeAccount, Customer: customer, CreatedFrom: w.Horizon,
		EachPage: func(page []gateway.PaymentIntent, meta gateway.Meta) error {
			r.calls.pages.Add(1)
			r.alive()
			if err := r.opts.CheckClock(ctx, meta.Date); err != nil {
				return err
			}
			for _, pi := range page {
				into.add(pi)
			}
			return nil
		},
	})
}

// customerExists returns errGone if Stripe does not have the customer any more.
func (r *Reconciler) customerExists(ctx context.Context, stripeAccount, customer string) error {
	exists, err := r.finder.CustomerExists(ctx, stripeAccount, customer)
	r.alive()
	var e *gateway.Error
	switch {
	case errors.As(err, &e) && e.Kind == gateway.KindPermission:
		return fmt.Errorf("%w: %s", errNotAllowed, customer)
	case err == nil && !exists:
		return errGone
	}
	return err
}

// unreadable leaves charges as they are because Stripe could not be asked about
// them; it returns the error if it is not theirs alone.
func (g *lookup) unreadable(ctx context.Context, list []int, err error) error {
	if isFatal(err) || ctx.Err() != nil {
		return err
	}
	for _, i := range list {
		g.set(i, verdict{charge: g.charges[i], outcome: OutcomeUnreadable, seen: err.Error(), done: "nothing"})
	}
	if isOfOne(err) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed += len(list); g.failed >= maxUnreadable {
		return errors.Join(errDown, err)
	}
	return nil
}

// isOfOne reports what Stripe answered well and what only means nothing for the
// charges that it was asked about.
func isOfOne(err error) bool {
	return errors.Is(err, errNotShown) || errors.Is(err, errNotAllowed) || errors.Is(err, errGone)
}

// isForbidden reports that the key may not do this one thing.
func isForbidden(err error) bool {
	var e *gateway.Error
	return errors.As(err, &e) && e.Kind == gateway.KindPermission
}

// isFatal reports trouble that is not one charge's.
func isFatal(err error) bool {
	var e *gateway.Error
	if isOfOne(err) {
		return false
	}
	if !errors.As(err, &e) {
		return err != nil
	}
	return e.Kind == gateway.KindAuth || e.Kind == gateway.KindPermission || e.Kind == gateway.KindWrongMode
}

// notShownError is errNotShown with the payment, which one missing payment of a paid
// charge makes true for a whole period.
type notShownError struct {
	paymentIntent, customer string
	period                  ledger.Period
}

func (e *notShownError) Error() string {
	return fmt.Sprintf("Stripe's list does not show %s of customer %s, which the ledger knows; nothing is concluded from it", e.paymentIntent, e.customer)
}

func (e *notShownError) Unwrap() error { return errNotShown }

// next finds out whether the payment is gone, and of which account it was.
func (e *notShownError) next() string {
	return fmt.Sprintf("billing reconcile --period %s --audit\nbilling findings --period %s --kind missing", e.period, e.period)
}
