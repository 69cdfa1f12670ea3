package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// send puts one POST on the wire, if the order may be sent and nobody else is sending it.
func (r *Resolver) send(ctx context.Context, p *RefundPlan) (string, error) {
	o, start := p.Order, time.Now()
	var life time.Duration
	var resend, ok bool
	err := ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) (err error) {
		life, resend, ok, err = o.Claim(ctx, tx)
		return err
	})
	if err != nil {
		return "", err
	}
	if !ok {
		return "", &UndecidedError{Msg: fmt.Sprintf("finding %d: somebody else is sending the refund, or it was settled meanwhile", o.FindingID)}
	}
	permit := gateway.RefundPermit{
		Key: o.IdempotencyKey, Body: o.Body, SHA256: [32]byte(o.BodySHA256), StripeAccount: o.StripeAccount, PaymentIntent: o.PaymentIntent,
		Amount: o.AmountMinor, Currency: o.Currency, FindingID: o.FindingID, Resend: resend, Deadline: gateway.NewDeadline(start, life),
	}
	a := r.Refunder.Send(ctx, permit)
	// What is known now must be written, whoever wants to stop.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return r.answered(after, p, a)
}

// answered records what an answer proves.
func (r *Resolver) answered(ctx context.Context, p *RefundPlan, a gateway.RefundAnswer) (string, error) {
	switch a.Verdict {
	case gateway.VerdictKnown:
		return r.known(ctx, p, a.Refund, a.RequestID)
	case gateway.VerdictRefused:
		return "", r.end(ctx, p, ledger.RefundResult{State: ledger.RefundRefused, Reason: a.Reason, RequestID: a.RequestID, Detail: a.Message},
			fmt.Sprintf("Stripe refuses the refund (%s): %s", a.Reason, a.Message))
	}
	err := ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		return p.Order.CountUnknown(ctx, tx, a.Reason, a.RequestID, a.NotExecuted)
	})
	switch {
	case err != nil:
		return "", err
	case a.Verdict == gateway.VerdictStop:
		return "", stopError(p, a)
	case a.Reason == gateway.ReasonAlreadyRefunded, a.Reason == gateway.ReasonNotReread:
		return r.reread(ctx, p, a)
	}
	return "", r.unknown(p, a.Reason)
}

func (r *Resolver) unknown(p *RefundPlan, reason string) error {
	return &UndecidedError{Msg: fmt.Sprintf("finding %d: what became of the refund of %s is not known (%s)", p.Order.FindingID, p.Payment.ID, reason)}
}

// reread looks for the refund that an answer speaks of.
func (r *Resolver) reread(ctx context.Context, p *RefundPlan, a gateway.RefundAnswer) (string, error) {
	pi, err := r.read(ctx, &p.Finding, p.Payment.ID)
	if err != nil {
		return "", err
	}
	p.Payment = *pi
	sent := *p.Order
	sent.Sends++
	again := *p
	again.Order = &sent
	done, ended, err := r.lookAgain(ctx, &again)
	if ended || err != nil {
		return done, err
	}
	return "", r.unknown(p, a.Reason)
}

func stopError(p *RefundPlan, a gateway.RefundAnswer) error {
	kind := map[string]gateway.Kind{
		gateway.ReasonUnauthorized: gateway.KindAuth, gateway.ReasonForbidden: gateway.KindPermission, gateway.ReasonWrongMode: gateway.KindWrongMode,
	}[a.Reason]
	return &gateway.Error{Doing: "refund " + p.Payment.ID, Kind: kind, Status: a.HTTPStatus, RequestID: a.RequestID, Message: a.Message}
}

// known records a refund that Stripe has, by its status.
func (r *Resolver) known(ctx context.Context, p *RefundPlan, refund gateway.Refund, requestID string) (string, error) {
	if refund.GivesBack() {
		return r.made(ctx, p, refund, &ledger.RefundResult{State: ledger.RefundMade, Refund: refund.ID, Status: refund.Status, RequestID: requestID})
	}
	return "", r.end(ctx, p, ledger.RefundResult{State: ledger.RefundRefused, Reason: "refund_" + refund.Status, Refund: refund.ID, Status: refund.Status, RequestID: requestID},
		fmt.Sprintf("refund %s is %s: the money is not on its way back", refund.ID, refund.Status))
}

// end closes an order that gave nothing back; the finding stays open.
func (r *Resolver) end(ctx context.Context, p *RefundPlan, result ledger.RefundResult, msg string) error {
	result.Person, result.Why = r.Person, r.Why
	err := ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		_, err := p.Order.Settle(ctx, tx, result)
		return err
	})
	if err != nil {
		return err
	}
	id := p.Finding.ID
	return &OpenError{
		Msg:  fmt.Sprintf("finding %d stays open: %s", id, msg),
		Hint: fmt.Sprintf("look at %s in Stripe's dashboard; billing resolve --finding %d --as refund --yes orders it anew, under another key", p.Payment.ID, id),
	}
}

// made records that a refund gives the money back, and what that makes of the order, nil
// if there is none. What was given back is read from the payment again.
func (r *Resolver) made(ctx context.Context, p *RefundPlan, refund gateway.Refund, order *ledger.RefundResult) (done string, err error) {
	pi, err := r.read(ctx, &p.Finding, p.Payment.ID)
	if err != nil {
		return "", err
	}
	by := ledger.Resolved{As: ledger.ResolutionRefunded, Person: r.Person, Why: r.Why, Refund: refund.ID,
		Detail: fmt.Sprintf("%s of %s, %s", amountText(refund.Amount, refund.Currency), pi.ID, refund.Status)}
	if order != nil {
		order.Person, order.Why, by.RequestID = r.Person, r.Why, order.RequestID
	}
	stays := false
	err = ledger.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		f, err := ledger.LockFinding(ctx, tx, r.Job, p.Finding.ID)
		if err != nil {
			return err
		}
		if order == nil {
			if err := mustBeAsPlanned(&f, &p.Finding); err != nil {
				return err
			}
		} else {
			first, err := p.Order.Settle(ctx, tx, *order)
			if err != nil || !first {
				return err
			}
		}
		back := ledger.GivenBack{PaymentIntent: pi.ID, Currency: pi.Currency, RefundedMinor: pi.AmountRefundedMinor, Disputed: pi.Disputed}
		if err := ledger.NoteRefunded(ctx, tx, r.Outbox, back); err != nil {
			return err
		}
		stays, err = r.resolveMade(ctx, tx, &f, by, *pi)
		return err
	})
	done = fmt.Sprintf("finding %d: %s of payment %s given back, refund %s (%s)", p.Finding.ID, amountText(refund.Amount, refund.Currency), pi.ID, refund.ID, refund.Status)
	if stays {
		done += fmt.Sprintf("; %s are left of it, and the finding stays open", amountText(pi.Amount-pi.AmountRefundedMinor, pi.Currency))
	}
	return done, err
}

// resolveMade closes the finding, or reports that it stays open. A charge in review is
// held once its payment is given back whole; before that a person may still accept the
// rest. Of a payment too many the rest is still too many.
func (r *Resolver) resolveMade(ctx context.Context, tx pgx.Tx, f *ledger.FindingState, by ledger.Resolved, pi gateway.PaymentIntent) (stays bool, err error) {
	if stays = f.Open() && (f.InReview() || f.TooMany()) && !givenBack(pi); stays || !f.Open() {
		return stays, f.NoteRefund(ctx, tx, by)
	}
	if f.InReview() {
		_, err := f.EndReview(ctx, tx, ledger.ReviewEnd{
			Outbox: r.Outbox,
			To:     ledger.ChargeHeld, Reason: "payment_refunded", PaymentIntent: pi.ID, Person: r.Person, RequestID: by.RequestID,
			Detail: r.Why + " (given back: " + by.Refund + ")",
		})
		if err != nil {
			return false, err
		}
	}
	return false, f.Resolve(ctx, tx, by)
}
