package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// differencesAtOnce are written together, and so are settlements.
	differencesAtOnce = 200
	// chargesPerLease are compared between two signs of life.
	chargesPerLease = 20_000
	// maxConfirmed bounds how many missing payments are looked for by their id. If
	// all of them are missing the others are believed to be.
	maxConfirmed = 100
)

// compare walks through both sides in the order of billing keys, as of one moment of
// the ledger, and notes what differs. Memory does not grow with the period.
func (a *auditor) compare(ctx context.Context) error {
	err := ledger.InReadTx(ctx, a.r.pool, func(tx pgx.Tx) error {
		if err := ledger.WholeSides(ctx, tx); err != nil {
			return err
		}
		lines, err := a.audit.InvoiceLines(ctx, tx)
		if err != nil {
			return err
		}
		a.sums.invoices(lines)
		charges, err := a.audit.Charges(ctx, tx)
		if err != nil {
			return err
		}
		payments, err := a.audit.Payments(ctx, tx)
		if err != nil {
			return err
		}
		return a.merge(ctx, charges, payments)
	})
	if err != nil {
		return err
	}
	return a.flush(ctx)
}

func (a *auditor) merge(ctx context.Context, charges *ledger.Cursor[ledger.AuditCharge], payments *ledger.Cursor[ledger.AuditPayment]) error {
	for {
		c, err := charges.Peek(ctx)
		if err != nil {
			return err
		}
		p, err := payments.Peek(ctx)
		if err != nil {
			return err
		}
		switch {
		case c == nil && p == nil:
			return nil
		case c == nil || p != nil && p.BillingKey < c.BillingKey:
			a.orphan(p)
			payments.Take()
		default:
			charge := *c
			charges.Take()
			set, err := setOf(ctx, payments, charge.BillingKey)
			if err != nil {
				return err
			}
			if err := a.one(ctx, &charge, set); err != nil {
				return err
			}
		}
		if err := a.flushIfDue(ctx); err != nil {
			return err
		}
	}
}

// setOf takes the payments of one key.
func setOf(ctx context.Context, payments *ledger.Cursor[ledger.AuditPayment], key string) (set []ledger.AuditPayment, err error) {
	for {
		p, err := payments.Peek(ctx)
		if err != nil {
			return nil, err
		}
		if p == nil || p.BillingKey != key {
			return set, nil
		}
		set = append(set, *p)
		payments.Take()
	}
}

// isKeyOf tells a billing key of a period by itself.
func isKeyOf(key string, job ledger.Job, period ledger.Period) bool {
	return strings.HasPrefix(key, ledger.BillingKey(job, period, ""))
}

// intentOf is the payment as the judge knows it.
func (a *auditor) intentOf(p *ledger.AuditPayment) gateway.PaymentIntent {
	return gateway.PaymentIntent{
		ID: p.PaymentIntent, Status: p.Status, Amount: p.Amount, AmountReceived: p.Received, Currency: p.Currency, Customer: p.StripeCustomer,
		Created: p.Created, Livemode: a.r.opts.Livemode, BillingKey: p.BillingKey, Job: string(p.Job), Period: string(p.Period), Account: p.AccountID,
		Try: p.Try, AmountRefundedMinor: p.Refunded, Disputed: p.Disputes > 0,
	}
}

// returned reports that all of it went back to the customer: nobody has anything of
// anybody's any more.
func returned(p *ledger.AuditPayment) bool { return p.Amount > 0 && p.Refunded >= p.Amount }

// orphan notes a payment for which the ledger has no charge.
func (a *auditor) orphan(p *ledger.AuditPayment) {
	a.sums.payment(ledger.FindingOrphan, p)
	pi := a.intentOf(p)
	if !isLive(pi) || returned(p) {
		return
	}
	c := ledger.OpenCharge{AccountID: p.AccountID, BillingKey: p.BillingKey, Currency: p.Currency}
	a.note(a.judge.finding(&c, ledger.FindingOrphan, pi, "a charge in the ledger", "a payment and no charge"))
}

func (a *auditor) note(f ledger.Finding) { a.batch = append(a.batch, f) }

func (a *auditor) remark(c *ledger.AuditCharge, kind string, p *ledger.AuditPayment, expected, seen string) {
	f := a.judge.finding(&c.OpenCharge, kind, gateway.PaymentIntent{ID: p.PaymentIntent}, expected, "")
	f.Severity, f.Seen = ledger.SeverityNote, seen
	a.note(f)
}

// one compares a charge with all payments that carry its key.
func (a *auditor) one(ctx context.Context, c *ledger.AuditCharge, set []ledger.AuditPayment) error {
	a.since++
	if c.Moved || c.Sending {
		a.report.Moving++
	} else {
		a.report.Compared++
	}
	v := a.view(c, set)
	still := !c.Moved && !c.Sending
	switch {
	case c.State == ledger.ChargeSucceeded:
		return a.paidCharge(ctx, c, v)
	case len(v.paid) > 0 && still:
		a.lateCharge(c, v)
	case v.underWay() != nil && still && slices.Contains(sureOfNothing, c.State):
		a.lateUnderWay(c, v)
	default:
		a.sums.charge(c, string(c.State))
		for _, p := range v.paid {
			a.sums.payment("under way", p)
		}
		if alive := v.alive(); len(alive) > 1 {
			a.duplicates(c, alive[0].PaymentIntent, alive[1:])
		}
	}
	if c.PaymentIntent != "" && v.own == nil && still {
		return a.missing(ctx, c, string(c.State))
	}
	return nil
}

// seen is the set of one charge, sorted by what it can mean, the earliest first.
type seen struct {
	own        *ledger.AuditPayment // the ledger's
	paid, live []*ledger.AuditPayment
}

func (v seen) alive() []*ledger.AuditPayment { return slices.Concat(v.paid, v.live) }

// underWay is the first payment that Stripe makes without anybody's doing.
func (v seen) underWay() *ledger.AuditPayment {
	for _, p := range v.live {
		if p.Status == gateway.StatusProcessing {
			return p
		}
	}
	return nil
}

// besides are those that take money, without one.
func (v seen) besides(one *ledger.AuditPayment) []*ledger.AuditPayment {
	return slices.DeleteFunc(v.alive(), func(p *ledger.AuditPayment) bool { return p == one })
}

// view sorts a set, and notes what is not as asked, and what was cancelled.
func (a *auditor) view(c *ledger.AuditCharge, set []ledger.AuditPayment) (v seen) {
	tries := make([]ledger.TrySeen, len(c.Tries))
	for i, try := range c.Tries {
		tries[i] = ledger.TrySeen{AccountID: c.AccountID, Try: try, StripeCustomer: c.TryCustomers[i]}
	}
	for i := range set {
		p := &set[i]
		pi := a.intentOf(p)
		own := isOwn(&c.OpenCharge, pi)
		if own {
			v.own = p
		}
		live := isLive(pi)
		current := own || p.Try == c.Try
		if !live && (pi.Status == gateway.StatusCanceled || !current) {
			if current && c.State != ledger.ChargeSucceeded && pi.Status == gateway.StatusCanceled {
				a.remark(c, ledger.FindingCanceled, p, "a payment", "cancelled at Stripe")
			}
			continue // of an earlier try, it proves nothing about this one
		}
		if differs := a.judge.differs(&c.OpenCharge, pi, tries); differs != "" && (own || c.State != ledger.ChargeSucceeded || !live) {
			a.mismatch(c, p, pi, differs)
			if !own || c.State != ledger.ChargeSucceeded {
				a.sums.payment(mismatchKinds[differs], p)
			}
			continue
		}
		switch {
		case pi.Status == gateway.StatusSucceeded:
			v.paid = append(v.paid, p)
		case live:
			v.live = append(v.live, p)
		}
	}
	return v
}

var mismatchKinds = map[string]string{
	"amount": ledger.FindingAmountMismatch, "currency": ledger.FindingCurrencyMismatch, "customer": ledger.FindingWrongCustomer,
}

func (a *auditor) mismatch(c *ledger.AuditCharge, p *ledger.AuditPayment, pi gateway.PaymentIntent, differs string) {
	if returned(p) || c.Moved {
		return
	}
	a.note(a.judge.finding(&c.OpenCharge, mismatchKinds[differs], pi, asked(&c.OpenCharge), "another "+differs))
}

// paidCharge compares a charge that the ledger says is paid.
func (a *auditor) paidCharge(ctx context.Context, c *ledger.AuditCharge, v seen) error {
	a.sums.charge(c, "")
	a.duplicates(c, c.PaymentIntent, v.besides(v.own))
	for _, p := range v.paid {
		if p != v.own {
			a.sums.payment(ledger.FindingDuplicate, p)
		}
	}
	switch {
	case v.own == nil && c.Moved:
		a.sums.unpaid(c, "under way")
	case v.own == nil:
		return a.missing(ctx, c, "paid")
	case v.own.Status != gateway.StatusSucceeded:
		a.sums.unpaid(c, ledger.FindingMissing)
		pi := a.intentOf(v.own)
		a.note(a.judge.finding(&c.OpenCharge, ledger.FindingMissing, pi, "paid by "+c.PaymentIntent, "it is not paid"))
	default:
		a.sums.own(c, v.own)
		a.paid++
		a.goneBack(c, v.own)
	}
	return nil
}

// goneBack notes what was refunded or disputed of a payment.
func (a *auditor) goneBack(c *ledger.AuditCharge, p *ledger.AuditPayment) {
	if p.Refunded > 0 {
		a.given++
		a.remark(c, ledger.FindingRefunded, p, "nothing given back", fmt.Sprintf("%d of %d %s were refunded", p.Refunded, p.Amount, p.Currency))
	}
	if p.Disputes > 0 {
		a.disputedCharges++
		a.remark(c, ledger.FindingDisputed, p, "nothing disputed", "the customer's bank disputes it")
	}
}

func (a *auditor) duplicates(c *ledger.AuditCharge, first string, others []*ledger.AuditPayment) {
	for _, p := range others {
		if (c.Moved || c.Sending) && p.Status != gateway.StatusSucceeded && p.Status != gateway.StatusProcessing {
			continue // it may have been cancelled since it was read
		}
		if !returned(p) {
			a.note(a.judge.finding(&c.OpenCharge, ledger.FindingDuplicate, a.intentOf(p), "one payment, "+first, "a second payment, "+p.PaymentIntent))
		}
	}
}

// missing notes a payment that the ledger names and the list does not show, after
// asking for it by its id: if it is there after all, the list was not complete.
func (a *auditor) missing(ctx context.Context, c *ledger.AuditCharge, what string) error {
	if c.State == ledger.ChargeSucceeded {
		a.sums.unpaid(c, ledger.FindingMissing)
	}
	if a.confirmed < maxConfirmed {
		a.confirmed++
		_, _, err := a.r.finder.Get(ctx, c.StripeAccount, c.PaymentIntent)
		a.r.alive()
		var e *gateway.Error
		switch {
		case err == nil:
			return &gateway.Error{Doing: "read all payments", Kind: gateway.KindBadAnswer, Message: "Stripe's list does not show " + c.PaymentIntent + ", which it has; no difference is believed", Err: errNotShown}
		case !errors.As(err, &e) || e.Kind != gateway.KindNotFound && !strings.HasPrefix(e.Message, "not a PaymentIntent id"):
			return err
		}
	}
	f := a.judge.finding(&c.OpenCharge, ledger.FindingMissing, gateway.PaymentIntent{}, what+" by "+c.PaymentIntent, "Stripe has no such payment")
	f.PaymentIntent = c.PaymentIntent
	a.note(f)
	return nil
}

// flushIfDue writes what has gathered, and gives a sign of life.
func (a *auditor) flushIfDue(ctx context.Context) error {
	if len(a.batch)+len(a.late) < differencesAtOnce && a.since < chargesPerLease {
		return nil
	}
	return a.flush(ctx)
}
