package reconcile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// RefundPlan is a refund as it would be made.
type RefundPlan struct {
	Finding ledger.FindingState
	Payment gateway.PaymentIntent
	// Minor is the amount in Stripe's unit of the payment's currency.
	Minor     int64
	Key, Body string
	// Stays is the payment that stands for the debt afterwards, if there is one.
	Stays string
	// Order is the refund that was ordered before and whose outcome is not known.
	Order *ledger.RefundOrder
	// Made is a refund that Stripe has already.
	Made *gateway.Refund

	try      int
	lookedAt time.Time
	// refunds were ordered of the payment before it was read.
	refunds ordered
}

// Amount is what is given back, in major units.
func (p *RefundPlan) Amount() string { return amountText(p.Minor, p.Payment.Currency) }

// Whole reports that nothing is left of the payment afterwards.
func (p *RefundPlan) Whole() bool {
	return p.Made == nil && p.Minor+p.Payment.AmountRefundedMinor >= p.Payment.Amount
}

// amountText writes minor units of a currency in major ones.
func amountText(minor int64, currency string) string {
	return money.FormatMinor(minor, money.Currency(currency)) + " " + currency
}

// PlanRefund looks at the finding's payment and decides what a refund of it would be:
// all that is left, or amount in major units. It changes nothing. The error is a
// *RefusedError where the payment is not to be given back.
func (r *Resolver) PlanRefund(ctx context.Context, id int64, amount string) (p RefundPlan, err error) {
	if p.lookedAt, err = ledger.Now(ctx, r.Pool); err != nil {
		return p, err
	}
	if p.Finding, err = ledger.ReadFinding(ctx, r.Pool, r.Job, id); err != nil {
		return p, err
	}
	f := &p.Finding
	last, err := ledger.LastRefund(ctx, r.Pool, id)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return p, err
	}
	if last.State == ledger.RefundPending {
		return r.planAgain(ctx, p, last, amount)
	}
	if err := mustBeOpen(f); err != nil {
		return p, err
	}
	if f.PaymentIntent == "" {
		return p, cannot("finding %d names no payment that could be given back; nothing was done", id)
	}
	if p.refunds, err = orderedOf(ctx, r.Pool, f.PaymentIntent); err != nil {
		return p, err
	}
	pi, err := r.payment(ctx, f)
	if err != nil {
		return p, err
	}
	p.Payment, p.try = *pi, last.Try+1
	if err := r.mayRefund(ctx, &p, amount); err != nil {
		return p, err
	}
	if p.Made, err = r.madeBefore(ctx, &p); err != nil {
		return p, err
	}
	if p.Made != nil {
		p.Minor = p.Made.Amount
		return p, nil
	}
	if o := p.refunds.unanswered(); o != nil {
		until := o.DeadAt()
		return p, &UndecidedError{fmt.Sprintf("finding %d: an earlier refund got no answer, and Stripe may still make it", id), &until}
	}
	if p.Minor, err = amountOf(f, pi, amount); err != nil {
		return p, err
	}
	p.Key = ledger.RefundKey(id, pi.ID, p.try)
	p.Body = gateway.RefundBody(gateway.RefundParams{
		PaymentIntent: pi.ID, Amount: p.Minor, Duplicate: f.Kind == kindDuplicate, FindingID: id, BillingKey: f.BillingKey,
	})
	return p, nil
}

// planAgain goes on with an order whose outcome is not known: as it is frozen.
func (r *Resolver) planAgain(ctx context.Context, p RefundPlan, last ledger.RefundOrder, amount string) (RefundPlan, error) {
	var err error
	if p.refunds, err = orderedOf(ctx, r.Pool, last.PaymentIntent); err != nil {
		return p, err
	}
	pi, err := r.read(ctx, &p.Finding, last.PaymentIntent)
	if err != nil {
		return p, err
	}
	p.Payment, p.Order, p.Minor, p.Key, p.Body, p.try = *pi, &last, last.AmountMinor, last.IdempotencyKey, last.Body, last.Try
	if amount == "" {
		return p, nil
	}
	if minor, err := amountOf(&p.Finding, pi, amount); err != nil || minor != last.AmountMinor {
		return p, cannot("finding %d: a refund of %s was ordered by %s, and its outcome is not known; nothing was done: the same command without --amount goes on with it", p.Finding.ID, p.Amount(), last.OrderedBy)
	}
	return p, nil
}

const kindDuplicate = "duplicate"

// mayRefund refuses to give back what is not there, and what would leave a debt
// without the payment that stands for it.
func (r *Resolver) mayRefund(ctx context.Context, p *RefundPlan, amount string) error {
	f, pi := &p.Finding, &p.Payment
	switch {
	case pi.Status != gateway.StatusSucceeded:
		return cannot("finding %d: %s is %s: there is nothing to give back; nothing was done", f.ID, pi.ID, pi.Status)
	case f.PaysFor != "" && f.Kind == kindDuplicate:
		return cannot("finding %d: %s is the payment that the charge of account %s stands on, not the second one; nothing was done", f.ID, pi.ID, f.PaysFor)
	case f.PaysFor != "" && amount == "":
		return cannot("finding %d: %s is the payment of account %s for %s; nothing was done: type with --amount how much of it to give back", f.ID, pi.ID, f.PaysFor, f.PaysForPeriod)
	case f.Kind == kindDuplicate && f.ChargeState != ledger.ChargeSucceeded:
		return cannot("finding %d: the charge of account %s is %s, so that no other payment stands for it yet; nothing was done: billing reconcile --period %s", f.ID, f.AccountID, orNone(f.ChargeState), f.Period)
	case f.PaysFor != "" || f.ChargeState != ledger.ChargeSucceeded || f.ChargePayment == "":
		return nil
	}
	other, err := r.read(ctx, f, f.ChargePayment)
	if err != nil {
		return err
	}
	if other.Status != gateway.StatusSucceeded || other.AmountRefundedMinor >= other.Amount {
		return cannot("finding %d: the other payment, %s, is %s, and %s of %s were given back: with this one the debt would not be paid at all; nothing was done", f.ID, other.ID, other.Status,
			amountText(other.AmountRefundedMinor, other.Currency), amountText(other.Amount, other.Currency))
	}
	if other.Disputed {
		return cannot("finding %d: the customer's bank disputes the other payment, %s: with this one given back the debt may not be paid at all; nothing was done", f.ID, other.ID)
	}
	p.Stays = other.ID
	return r.mustStay(ctx, r.Pool, f.ID, p.Stays)
}

// mustStay refuses while a refund of the payment that stands for the debt is under way.
func (r *Resolver) mustStay(ctx context.Context, q ledger.Querier, id int64, stays string) error {
	if stays == "" {
		return nil
	}
	refunds, err := orderedOf(ctx, q, stays)
	if err != nil {
		return err
	}
	if o := refunds.underWay(); o != nil {
		return cannot("finding %d: a refund of the other payment, %s, is under way about finding %d: with this one the debt may not be paid at all; nothing was done", id, stays, o.FindingID)
	}
	return nil
}

func orNone(s ledger.ChargeState) string {
	if s == "" {
		return "not in the ledger"
	}
	return string(s)
}

// amountOf is the amount to give back in Stripe's unit.
func amountOf(f *ledger.FindingState, pi *gateway.PaymentIntent, amount string) (int64, error) {
	left := pi.Amount - pi.AmountRefundedMinor
	if amount == "" {
		return left, nil
	}
	d, err := money.Parse(amount)
	if err != nil {
		return 0, cannot("--amount %v; nothing was done", err)
	}
	minor, err := money.ToMinor(d, money.Currency(pi.Currency))
	if err != nil {
		return 0, cannot("--amount: %v; nothing was done", err)
	}
	if minor < 1 || minor > left {
		c := money.Currency(pi.Currency)
		return 0, cannot("finding %d: --amount %s: of %s there are %s %s to give back; nothing was done", f.ID, amount, pi.ID, money.FormatMinor(left, c), c)
	}
	return minor, nil
}

// madeBefore finds a refund that Stripe has and the finding does not: ordered about it
// before a backup was restored, or, where nothing is left, by anybody.
func (r *Resolver) madeBefore(ctx context.Context, p *RefundPlan) (*gateway.Refund, error) {
	refunds, err := r.Finder.RefundsOf(ctx, p.Finding.StripeAccount, p.Payment.ID)
	if err != nil {
		return nil, err
	}
	noted, err := ledger.NotedRefunds(ctx, r.Pool, p.Finding.ID)
	if err != nil {
		return nil, err
	}
	known := p.refunds.made()
	at := -1
	for i, x := range refunds {
		if x.FindingID != p.Finding.ID || known[x.ID] {
			continue
		}
		p.try++ // the forgotten order's key is used
		if at < 0 && x.GivesBack() && !slices.Contains(noted, x.ID) {
			at = i
		}
	}
	if at < 0 && givenBack(p.Payment) {
		if at = slices.IndexFunc(refunds, gateway.Refund.GivesBack); at < 0 {
			return nil, cannot("finding %d: %s was given back already; nothing was done: --as accept closes the finding", p.Finding.ID, p.Payment.ID)
		}
	}
	if at < 0 {
		return nil, nil
	}
	return &refunds[at], nil
}

// Refund does what was planned, and says what was done. An *UndecidedError means that the
// same order goes on with it, an *OpenError that the finding stays open, a *RefusedError
// that nothing was done.
func (r *Resolver) Refund(ctx context.Context, p RefundPlan) (string, error) {
	if p.Made != nil {
		return r.made(ctx, &p, *p.Made, nil)
	}
	if p.Order == nil {
		if err := r.order(ctx, &p); err != nil {
			return "", err
		}
	} else if done, ended, err := r.lookAgain(ctx, &p); ended || err != nil {
		return done, err
	}
	return r.send(ctx, &p)
}

// order records the refund before anything is sent, if everything is as it was planned.
func (r *Resolver) order(ctx context.Context, p *RefundPlan) error {
	hash := sha256.Sum256([]byte(p.Body))
	err := ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		f, err := ledger.LockFinding(ctx, tx, r.Job, p.Finding.ID)
		if err != nil {
			return err
		}
		if err := mustBeAsPlanned(&f, &p.Finding); err != nil {
			return err
		}
		if err := r.mustStay(ctx, tx, f.ID, p.Stays); err != nil {
			return err
		}
		now, err := orderedOf(ctx, tx, p.Payment.ID)
		if err != nil {
			return err
		}
		if len(now.made()) != len(p.refunds.made()) || now.unanswered() != nil {
			return cannot("finding %d: %s was being refunded about another finding meanwhile; nothing was done: look again", f.ID, p.Payment.ID)
		}
		return f.OrderRefund(ctx, tx, ledger.RefundOrder{
			Try: p.try, Body: p.Body, BodySHA256: hash[:], StripeAccount: f.StripeAccount, PaymentIntent: p.Payment.ID,
			AmountMinor: p.Minor, Currency: p.Payment.Currency, OrderedBy: r.Person, Why: r.Why,
		}, p.lookedAt)
	})
	if errors.Is(err, ledger.ErrRefundUnderWay) {
		return cannot("finding %d: %s is being refunded about another finding; nothing was done", p.Finding.ID, p.Payment.ID)
	}
	if err != nil {
		return err
	}
	last, err := ledger.LastRefund(ctx, r.Pool, p.Finding.ID)
	p.Order = &last
	return err
}

// mustBeAsPlanned refuses what somebody changed since the look.
func mustBeAsPlanned(now, planned *ledger.FindingState) error {
	if err := mustBeOpen(now); err != nil {
		return err
	}
	if now.ChargeState != planned.ChargeState || now.ChargePayment != planned.ChargePayment || now.PaysFor != planned.PaysFor ||
		now.PaymentIntent != planned.PaymentIntent || now.OrderTry != planned.OrderTry || now.Order != planned.Order {
		return cannot("finding %d changed meanwhile; nothing was done: look again", now.ID)
	}
	return nil
}

// lookAgain asks Stripe what became of an order that was sent, or may not be sent any
// more, and ends it if that tells.
func (r *Resolver) lookAgain(ctx context.Context, p *RefundPlan) (done string, ended bool, err error) {
	o := p.Order
	past := !p.lookedAt.Before(o.WindowEnds())
	if o.Sends == 0 && !past {
		return "", false, nil
	}
	refunds, err := r.Finder.RefundsOf(ctx, p.Finding.StripeAccount, p.Payment.ID)
	if err != nil {
		return "", true, err
	}
	known := p.refunds.made()
	if at := slices.IndexFunc(refunds, func(x gateway.Refund) bool {
		return !known[x.ID] && x.FindingID == o.FindingID && x.Amount == o.AmountMinor
	}); at >= 0 {
		done, err = r.known(ctx, p, refunds[at], "")
		return done, true, err
	}
	if at := slices.IndexFunc(refunds, gateway.Refund.GivesBack); at >= 0 && givenBack(p.Payment) {
		done, err = r.made(ctx, p, refunds[at], &ledger.RefundResult{State: ledger.RefundRefused, Reason: gateway.ReasonAlreadyRefunded, Detail: "it was given back by " + refunds[at].ID})
		return done, true, err
	}
	if !past {
		return "", false, nil
	}
	if dead := o.WindowEnds().Add(ledger.RequestDead); dead.After(p.lookedAt) {
		return "", true, &UndecidedError{fmt.Sprintf("finding %d: the refund's 23 hours are over, and a request may still be on its way", o.FindingID), &dead}
	}
	return "", true, r.end(ctx, p, ledger.RefundResult{State: ledger.RefundHeld, Reason: "absent", Detail: "Stripe shows no such refund, and its key may not be sent any more"},
		"Stripe shows no refund of "+p.Payment.ID+", and its key may not be sent any more")
}
