package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// A declined charge is tried again in this order: the whole set of its payments is
// read; what is open is cancelled, of every try, each read again; the whole set is
// read a second time; and by this second look the next try is opened, within its
// window. A customer who pays the old one at any moment in between is found by the
// second look, or was cancelled before.

// Ruling says whether a declined charge may be tried again, by what the ledger knows.
type Ruling struct {
	// Try is the one that the ruling is about: the last.
	Try int
	// Refused says why not, "" if it may be. Until is when to ask again, zero if
	// time alone mends nothing; Next is what to type.
	Refused, Next string
	Until         time.Time
	// Named is a person's order about this charge alone.
	Named bool
}

// RetryPlan is which declined charges are to be looked at.
type RetryPlan struct {
	accounts []string
	rulings  map[string]Ruling
}

// Empty reports that there is nothing to ask Stripe about.
func (p RetryPlan) Empty() bool { return len(p.accounts) == 0 }

// retrying is what the two looks of a Retry share.
type retrying struct {
	rulings map[string]Ruling
	mu      sync.Mutex
	cleared []string // accounts of which nothing is open any more
}

// retries reports an act that is about declined charges.
func (a Act) retries() bool { return a == ActCancel || a == ActRetry }

// opensTry reports an act by which something new may be asked for, so that Stripe is
// looked at for every customer that the charge may be paid by.
func (a Act) opensTry() bool { return a == ActRequeue || a.retries() }

// PlanRetry asks the ledger alone which declined charges may be tried again, and
// reports those that may not. Charges that a person named are looked at in any case:
// the customer may have paid an old payment.
func (r *Reconciler) PlanRetry(ctx context.Context, w Work) (RetryPlan, Report, error) {
	r.report = Report{}
	plan := RetryPlan{rulings: map[string]Ruling{}}
	states := []ledger.ChargeState{ledger.ChargeDeclined}
	counts, err := ledger.CountInState(ctx, r.pool, r.opts.Job, w.Period, states, w.Accounts)
	if err != nil {
		return plan, r.report, err
	}
	w.Act = ActCancel
	for _, count := range counts {
		err := r.eachGroup(ctx, w, count.StripeAccount, func(group []ledger.OpenCharge) error {
			rulings, err := r.opts.Rule(ctx, r.pool, w.Period, group)
			if err != nil {
				return err
			}
			for _, c := range group {
				ruling := rulings[c.AccountID]
				plan.rulings[c.AccountID] = ruling
				if ruling.Refused == "" || w.Accounts != nil {
					plan.accounts = append(plan.accounts, c.AccountID)
					continue
				}
				v := notRetried(verdict{charge: c}, ruling)
				r.tally(&v)
				r.opts.Each(r.line(w, &v))
			}
			return nil
		})
		if err != nil {
			return plan, r.report, err
		}
	}
	return plan, r.report, nil
}

// Retry opens the next try of the planned charges that are still declined, and of
// which Stripe has nothing that is paid, under way, unknown, or still open. The work's
// run owns the period. Each charge is reported once.
func (r *Reconciler) Retry(ctx context.Context, w Work, plan RetryPlan) (Report, error) {
	r.retry.rulings, r.retry.cleared = plan.rulings, nil
	w.Act, w.Accounts = ActCancel, plan.accounts
	report, err := r.Look(ctx, w)
	if err != nil || len(r.retry.cleared) == 0 {
		return report, err
	}
	w.Act, w.Accounts = ActRetry, r.retry.cleared
	second, err := r.Look(ctx, w)
	return report.plus(second), err
}

// plus adds a second look at the same charges.
func (r Report) plus(second Report) Report {
	for o, n := range second.Counts {
		if r.Counts == nil {
			r.Counts = map[Outcome]int64{}
		}
		r.Counts[o] += n
	}
	r.Settled += second.Settled
	r.Renewed += second.Renewed
	r.Findings += second.Findings
	r.Calls.Searches += second.Calls.Searches
	r.Calls.Pages += second.Calls.Pages
	r.Calls.Gets += second.Calls.Gets
	if second.NextLook != nil {
		r.waitUntil(*second.NextLook)
	}
	return r
}

// mayRetry lets a declined charge be tried again if nothing that it was ever asked
// with can still take money. The first look names what is to be cancelled; the second
// opens the try, and nothing may be open any more.
func (j judge) mayRetry(v verdict, s sorted, e evidence) verdict {
	c := &v.charge
	ruling, ruled := j.rulings[c.AccountID]
	v.seen = "declined: " + c.Reason
	switch {
	case c.State != ledger.ChargeDeclined || !ruled || ruling.Try != c.Try:
		v.outcome, v.done = OutcomeMovedOn, "nothing: it changed during the look"
	case ruling.Refused != "":
		return notRetried(v, ruling)
	case !ruling.Named && cancelledByOthers(s.unpaid, e):
		return notRetried(v, Ruling{Refused: "somebody cancelled it at Stripe; was it paid another way?", Next: "name it with --account to try it again"})
	case e.unexplained != "":
		v.outcome, v.paymentIntent = OutcomeRefused, e.unexplained
		v.seen, v.done = "a payment of the same amount without our key", "nothing: is it the payment of this charge?"
	case c.WindowOpenedAt == nil || !c.SendsDead(e.lookedAt):
		until := e.lookedAt.Add(ledger.RequestDead)
		v.outcome, v.until, v.done = OutcomeWaiting, &until, "nothing: a request may still be on its way"
	case j.act == ActCancel:
		v.outcome, v.cancel = outcomeCleared, s.open
	case len(s.open) > 0:
		v.outcome, v.paymentIntent = OutcomeRefused, s.open[0].ID
		v.seen, v.done = s.open[0].Status, "nothing: the customer could still pay this one"
	default:
		v.outcome, v.requeue, v.done = OutcomeRequeued, true, fmt.Sprintf("try %d: the next run sends it", c.NextTry())
	}
	return v
}

// cancelledByOthers reports that somebody cancelled a payment of the current try.
func cancelledByOthers(current []gateway.PaymentIntent, e evidence) bool {
	return slices.ContainsFunc(current, func(pi gateway.PaymentIntent) bool {
		return pi.Status == gateway.StatusCanceled && !slices.Contains(e.cancelledByUs, pi.ID)
	})
}

// outcomeCleared is between the two looks, and never reported.
const outcomeCleared Outcome = "cleared"

// notRetried says why, and what would mend it.
func notRetried(v verdict, ruling Ruling) verdict {
	v.outcome, v.next = OutcomeNotRetried, ruling.Next
	v.seen, v.done, v.paymentIntent = "declined: "+v.charge.Reason, "nothing: "+ruling.Refused, v.charge.PaymentIntent
	if !ruling.Until.IsZero() {
		v.done += ", until " + ruling.Until.UTC().Format("2006-01-02 15:04 UTC")
	}
	return v
}

// declinedAndLive settles by what is paid or under way. What waits for the customer
// is the customer's: neither cancelled nor tried beside it.
func (j judge) declinedAndLive(v verdict, live []gateway.PaymentIntent) verdict {
	if v = j.alive(v, live); v.outcome == OutcomeUnchanged {
		v.outcome, v.done = OutcomeRefused, "nothing: the customer is about to pay this one"
	}
	return v
}

// addKnown reads by their ids the payments of a charge that the ledger knows and the
// lists did not show under its key: somebody may have edited that. One that can't be
// read leaves the charge as it is.
func (r *Reconciler) addKnown(ctx context.Context, w Work, stripeAccount string, c *ledger.OpenCharge, e *evidence) error {
	if !w.Act.retries() {
		return nil
	}
	known := append(slices.Clone(e.tries), ledger.TrySeen{Try: c.Try, PaymentIntent: c.PaymentIntent})
	for _, t := range known {
		if t.PaymentIntent == "" || slices.ContainsFunc(e.intents, func(pi gateway.PaymentIntent) bool { return pi.ID == t.PaymentIntent }) {
			continue
		}
		pi, _, err := r.finder.GetWithCharge(ctx, stripeAccount, t.PaymentIntent)
		r.calls.gets.Add(1)
		r.alive()
		if failure := (*gateway.Error)(nil); errors.As(err, &failure) && failure.Kind == gateway.KindNotFound {
			return fmt.Errorf("%w: %s", errNotShown, t.PaymentIntent)
		}
		if err != nil {
			return err
		}
		pi.BillingKey, pi.Try = c.BillingKey, t.Try
		e.intents = append(slices.Clip(e.intents), pi)
	}
	return r.addCancelled(ctx, e)
}

// addCancelled reads which of those that are cancelled were so by this program.
func (r *Reconciler) addCancelled(ctx context.Context, e *evidence) (err error) {
	var cancelled []string
	for _, pi := range e.intents {
		if pi.Status == gateway.StatusCanceled {
			cancelled = append(cancelled, pi.ID)
		}
	}
	if len(cancelled) > 0 {
		e.cancelledByUs, err = ledger.OrderedCancels(ctx, r.pool, cancelled)
	}
	return err
}

// cancelsAtOnce bounds the cancels under way; the gateway keeps the rate.
const cancelsAtOnce = 8

// cancelOpen cancels what is open, while the claim is ours: a process that stood
// still may find another's try there.
func (r *Reconciler) cancelOpen(ctx context.Context, w Work, verdicts []verdict) error {
	cancels, cancelCtx := errgroup.WithContext(ctx)
	cancels.SetLimit(cancelsAtOnce)
	for i := range verdicts {
		if v := &verdicts[i]; v.outcome == outcomeCleared && len(v.cancel) > 0 {
			cancels.Go(func() error { return r.cancelAll(cancelCtx, w, v) })
		}
	}
	return cancels.Wait()
}

func (r *Reconciler) cancelAll(ctx context.Context, w Work, v *verdict) error {
	for _, pi := range v.cancel {
		deadline := gateway.NewDeadline(time.Now(), gateway.CancelLife)
		if err := r.orderCancel(ctx, w, v.charge.AccountID, pi.ID); err != nil {
			return err
		}
		now, err := r.opts.Cancel(ctx, v.charge.StripeAccount, pi, deadline)
		r.calls.gets.Add(1)
		r.alive()
		switch {
		case isFatal(err) || ctx.Err() != nil:
			return err
		case err != nil:
			v.outcome, v.paymentIntent, v.seen, v.done = OutcomeUnreadable, pi.ID, err.Error(), "nothing"
			return nil //nolint:nilerr // it is this charge's, and told in its line
		case now.Status == pi.Status:
			v.outcome, v.paymentIntent = OutcomeRefused, pi.ID
			v.seen, v.done = now.Status, "nothing: Stripe did not cancel this one, which the customer could still pay"
			return nil
		}
		// Whatever else it is now, the second look decides by it.
	}
	return nil
}

// orderCancel writes it down before Stripe is asked; ErrClaimLost if another process
// owns the period by now.
func (r *Reconciler) orderCancel(ctx context.Context, w Work, accountID, paymentIntent string) error {
	if w.Run == nil {
		return ledger.ErrClaimLost
	}
	return ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error { return w.Run.OrderCancel(ctx, tx, accountID, paymentIntent) })
}

// clear keeps the accounts of which nothing is open any more for the second look, and
// returns the verdicts on the others. A dry run says what would be done.
func (r *Reconciler) clear(verdicts []verdict) (rest []verdict) {
	r.retry.mu.Lock()
	defer r.retry.mu.Unlock()
	for _, v := range verdicts {
		switch {
		case v.outcome != outcomeCleared:
			rest = append(rest, v)
		case r.opts.DryRun:
			v.outcome, v.done = OutcomeRequeued, fmt.Sprintf("try %d, when %d open ones are cancelled", v.charge.NextTry(), len(v.cancel))
			rest = append(rest, v)
		default:
			r.retry.cleared = append(r.retry.cleared, v.charge.AccountID)
		}
	}
	return rest
}
