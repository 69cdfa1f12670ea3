package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// evidence is what a look saw of one charge.
type evidence struct {
	// intents carry the charge's billing key, in any order.
	intents []gateway.PaymentIntent
	// lookedAt is Postgres's time before the first page was asked for.
	lookedAt time.Time
	// tries are the closed ones of the charge.
	tries []ledger.TrySeen
	// unexplained is a live PaymentIntent of the same customer, amount and currency
	// that carries no key of ours: somebody may have edited it.
	unexplained string
	// cancelledByUs are those that this program asked to be cancelled.
	cancelledByUs []string
	// customerGone says that Stripe has no such customer any more.
	customerGone bool
}

// verdict is what the evidence means for a charge, and what to do about it.
type verdict struct {
	charge  ledger.OpenCharge
	outcome Outcome
	found   *ledger.Found
	absent  *ledger.Absent
	// requeue opens a new try; anew is what it asks for.
	requeue bool
	anew    ledger.Requeue
	// cancel are PaymentIntents that must be cancelled before.
	cancel        []gateway.PaymentIntent
	findings      []ledger.Finding
	until         *time.Time
	paymentIntent string
	seen, done    string
	next          string // what to type, where the outcome does not say it
}

// judge decides. It has no clock and reads nothing.
type judge struct {
	job         ledger.Job
	period      ledger.Period
	livemode    bool
	act         Act
	policy      Policy
	absentAfter time.Duration
	// rulings say which declined charges may be tried again, by account.
	rulings map[string]Ruling
	// restored says that the ledger forgot sends, and when that was first seen: what
	// was not sent, or only in vain, as far as it knows, may have been sent until its
	// window ended, or, without a window, until it was restored.
	restored *time.Time
	// disowned are payments that a person resolved as not their charge's.
	disowned map[ledger.Disowned]bool
}

// sorted are the PaymentIntents of one billing key, by what they can prove.
type sorted struct {
	paid, live []gateway.PaymentIntent
	// odd ones are not as asked; strange ones are of a try that the ledger does
	// not know.
	odd, strange []gateway.PaymentIntent
	// unpaid ones are of the current try.
	unpaid []gateway.PaymentIntent
	// open ones, of any try, can still be paid by the customer.
	open []gateway.PaymentIntent
}

// decide looks at the whole set, whatever its order: what was paid counts, then
// what may still be paid, then what is wrong, then what was refused, and only when
// there is nothing of the current try, its absence.
func (j judge) decide(c ledger.OpenCharge, e evidence) verdict {
	v := verdict{charge: c, outcome: OutcomeUnchanged}
	s := j.withoutDisowned(&c, j.sort(&c, e), e)
	for _, pi := range s.odd {
		v.findings = append(v.findings, j.notAsAsked(&c, pi, e))
	}
	switch {
	case len(s.paid) > 0:
		return j.alive(v, append(s.paid, s.live...))
	case len(s.live) > 0 && j.act.retries():
		return j.declinedAndLive(v, s.live)
	case len(s.live) > 0:
		return j.alive(v, s.live)
	case len(s.odd) > 0:
		return j.review(v, s.odd[0], "not_as_asked", "it is not as asked: another "+j.differs(&c, s.odd[0], e.tries))
	case len(s.strange) > 0:
		pi := s.strange[0]
		v.findings = append(v.findings, j.unknownTry(&c, pi))
		return j.review(v, pi, "unknown_try", fmt.Sprintf("of try %d, which the ledger does not know", pi.Try))
	case j.act == ActRequeue:
		return j.mayRequeue(v, s, e)
	case j.act.retries():
		return j.mayRetry(v, s, e)
	case len(s.unpaid) > 0:
		return j.unpaid(v, s.unpaid, e)
	}
	return j.missing(v, e)
}

func (j judge) sort(c *ledger.OpenCharge, e evidence) (s sorted) {
	intents := slices.Clone(e.intents)
	slices.SortFunc(intents, func(a, b gateway.PaymentIntent) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	for _, pi := range intents {
		if pi.BillingKey != c.BillingKey && !isOwn(c, pi) {
			continue
		}
		live := isLive(pi)
		if !live && pi.Status != gateway.StatusCanceled {
			s.open = append(s.open, pi)
		}
		switch {
		case !live && pi.Try > 0 && pi.Try < c.Try:
			// What became of an earlier try proves nothing about this one.
		case j.differs(c, pi, e.tries) != "":
			s.odd = append(s.odd, pi)
		case pi.Status == gateway.StatusSucceeded:
			s.paid = append(s.paid, pi)
		case live:
			s.live = append(s.live, pi)
		case pi.Try != c.Try || c.WindowOpenedAt == nil:
			s.strange = append(s.strange, pi)
		default:
			s.unpaid = append(s.unpaid, pi)
		}
	}
	return s
}

// isOwn reports the PaymentIntent that the ledger has for the charge already.
func isOwn(c *ledger.OpenCharge, pi gateway.PaymentIntent) bool {
	return c.PaymentIntent != "" && pi.ID == c.PaymentIntent
}

// isLive reports that money moved, moves, or moves as soon as somebody agrees.
func isLive(pi gateway.PaymentIntent) bool {
	switch pi.Status {
	case gateway.StatusSucceeded, gateway.StatusProcessing, gateway.StatusRequiresCapture, gateway.StatusRequiresAction:
		return true
	}
	return false
}

// differs names the first thing in which a PaymentIntent is not what the charge
// asked for. A closed try may have been another customer's.
func (j judge) differs(c *ledger.OpenCharge, pi gateway.PaymentIntent, tries []ledger.TrySeen) string {
	want := gateway.Asked{BillingKey: c.BillingKey, Amount: c.AmountMinor, Currency: c.Currency, Customer: c.StripeCustomer, Livemode: j.livemode}
	if isOwn(c, pi) {
		// Its id is known; metadata can be edited.
		want.BillingKey = pi.BillingKey
	}
	if c.WindowOpenedAt == nil {
		// It was never a request: the ledger knows only what was invoiced.
		want.Amount, want.Customer = invoiced(c, pi.Amount), pi.Customer
	}
	for _, t := range tries {
		if t.Try == pi.Try && pi.Try < c.Try {
			want.Customer = t.StripeCustomer
		}
	}
	return pi.Differs(want)
}

func asked(c *ledger.OpenCharge) string {
	return fmt.Sprintf("%s %s for customer %s", c.Amount, c.Currency, c.StripeCustomer)
}

func (j judge) finding(c *ledger.OpenCharge, kind string, pi gateway.PaymentIntent, expected, seen string) ledger.Finding {
	if pi.ID != "" {
		seen = fmt.Sprintf("%s (%s, %d %s, customer %s)", seen, pi.Status, pi.Amount, pi.Currency, pi.Customer)
	}
	return ledger.Finding{
		Kind: kind, Severity: ledger.SeverityAct, Job: j.job, Period: j.period, AccountID: c.AccountID, BillingKey: c.BillingKey,
		PaymentIntent: pi.ID, Currency: c.Currency, Expected: expected, Seen: seen,
	}
}

// alive settles by the first of the live ones, which is the earliest that was
// paid if any was. Whatever else moves money is a duplicate.
func (j judge) alive(v verdict, live []gateway.PaymentIntent) verdict {
	if v.charge.State == ledger.ChargeSucceeded {
		return j.paidBefore(v, live)
	}
	live = withoutReturned(live)
	if own := slices.IndexFunc(live, func(pi gateway.PaymentIntent) bool { return isOwn(&v.charge, pi) && pi.Status == live[0].Status }); own > 0 {
		live[0], live[own] = live[own], live[0]
	}
	first := live[0]
	for _, pi := range live[1:] {
		if !givenBack(pi) {
			v.findings = append(v.findings, j.finding(&v.charge, "duplicate", pi, "one payment, "+first.ID, "a second payment, "+pi.ID))
		}
	}
	v.paymentIntent = first.ID
	state, reason, _ := gateway.StateOf(first)
	if v.charge.State == state && (v.charge.PaymentIntent == "" || isOwn(&v.charge, first)) {
		v.seen, v.done = first.Status, "as before"
		return v
	}
	return j.settle(v, first, state, reason, false)
}

// paidBefore looks at a charge that is paid: any other payment is a duplicate.
func (j judge) paidBefore(v verdict, live []gateway.PaymentIntent) verdict {
	v.seen, v.done, v.paymentIntent = "paid", "as before", v.charge.PaymentIntent
	for _, pi := range live {
		if !isOwn(&v.charge, pi) && !givenBack(pi) {
			v.findings = append(v.findings, j.finding(&v.charge, "duplicate", pi, "one payment, "+v.charge.PaymentIntent, "a second payment, "+pi.ID))
			v.seen, v.done = "a second payment", "see the finding"
		}
	}
	return v
}

// settle moves the charge, if it may move there at all.
func (j judge) settle(v verdict, pi gateway.PaymentIntent, state ledger.ChargeState, reason string, unpaid bool) verdict {
	v.seen, v.paymentIntent = seenText(pi, reason), pi.ID
	if !ledger.MayMove(v.charge.State, state) {
		v.done = "as before"
		return v
	}
	v.outcome, v.done = Outcome(state), "settled"
	v.found = &ledger.Found{
		BillingKey: v.charge.BillingKey, From: v.charge.State, Try: v.charge.Try, Sends: v.charge.Sends, Unpaid: unpaid,
		State: state, Reason: reason, PaymentIntent: pi.ID, StripeStatus: pi.Status, Minor: pi.Amount,
		RefundedMinor: pi.AmountRefundedMinor, Disputed: pi.Disputed, Detail: "found at Stripe",
	}
	if state == ledger.ChargeDeclined || state == ledger.ChargeActionRequired {
		v.found.DeclineCode, v.found.AdviceCode = pi.DeclineCode, pi.AdviceCode
	}
	if pi.Try != 0 && pi.Try != v.charge.Try {
		v.found.Detail = fmt.Sprintf("found at Stripe, of try %d", pi.Try)
	}
	return v
}

// withoutReturned leaves out what was given back whole, where another one stands: the
// debt is paid by that one.
func withoutReturned(live []gateway.PaymentIntent) []gateway.PaymentIntent {
	standing := slices.DeleteFunc(slices.Clone(live), givenBack)
	if len(standing) == 0 {
		return live
	}
	return standing
}

func seenText(pi gateway.PaymentIntent, reason string) string {
	if reason != "" && reason != pi.Status {
		return pi.Status + ", " + reason
	}
	return pi.Status
}

func (j judge) review(v verdict, pi gateway.PaymentIntent, reason, text string) verdict {
	v.seen, v.paymentIntent = pi.Status+"; "+text, pi.ID
	if !ledger.MayMove(v.charge.State, ledger.ChargeReview) {
		v.done = "as before; see the finding"
		if j.act != ActSettle {
			v.outcome = OutcomeRefused
		}
		return v
	}
	v = j.settle(v, pi, ledger.ChargeReview, reason, false)
	v.seen, v.done = pi.Status+"; "+text, "never sent again until a person decides"
	return v
}

// unpaid decides by what the current try's PaymentIntents came to. One that is
// seen before its confirm has ended looks like a decline and is none.
func (j judge) unpaid(v verdict, list []gateway.PaymentIntent, e evidence) verdict {
	last := list[len(list)-1]
	v.seen, v.paymentIntent = seenText(last, ""), last.ID
	for _, pi := range list {
		if !isOwn(&v.charge, pi) && (pi.Created.Add(ledger.RequestDead).After(e.lookedAt) || !v.charge.SendsDead(e.lookedAt)) {
			until := e.lookedAt.Add(ledger.RequestDead)
			v.outcome, v.until, v.done = OutcomeWaiting, &until, "nothing: a request may still be on its way"
			return v
		}
	}
	for _, pi := range slices.Backward(list) {
		if state, reason, known := gateway.StateOf(pi); known {
			if state == v.charge.State {
				v.seen, v.done = seenText(pi, reason), "as before"
				return v
			}
			return j.settle(v, pi, state, reason, true)
		}
	}
	// It was created and nobody ever tried to take the money: neither a decline
	// nor an absence.
	if j.act == ActRelease {
		return j.missing(v, e)
	}
	v.seen = last.Status + ", never attempted"
	return j.hold(v, "not_attempted", e)
}

// missing decides what to do about a charge that a complete look did not find.
func (j judge) missing(v verdict, e evidence) verdict {
	c := &v.charge
	v.seen = "nothing"
	switch {
	case c.State != ledger.ChargePending && c.State != ledger.ChargeHeld:
		// Its outcome is known, and silence is no evidence against it.
		v.done = "as before"
		return v
	case !c.WindowDead(e.lookedAt):
		v.outcome, v.done = OutcomeInWindow, "nothing: a run may still send it"
		if c.WindowOpenedAt != nil && !c.Leased {
			until := c.WindowOpenedAt.Add(ledger.Window + ledger.RequestDead)
			v.until = &until
			if c.State == ledger.ChargeHeld {
				v.done = "nothing before " + until.UTC().Format("2006-01-02 15:04 UTC") + ": Stripe may still carry out what was sent"
			}
		}
		return v
	case e.customerGone:
		return j.hold(v, "customer_gone", e)
	case e.unexplained != "":
		v.seen, v.paymentIntent = "nothing; but a payment of the same amount without our key", e.unexplained
		return j.hold(v, "unexplained_payment", e)
	case j.act == ActRelease:
		return j.renew(v, "released")
	case c.State == ledger.ChargeHeld:
		v.done = "as before: a person decides"
		return v
	case c.Reason == gateway.ReasonIdempotency:
		v.findings = append(v.findings, j.finding(c, "idempotency_error", gateway.PaymentIntent{},
			"a payment under key "+c.BillingKey, "the key was used with another request, and there is no payment"))
		return j.absent(v, ledger.ChargeReview, OutcomeReview, gateway.ReasonIdempotency, "never sent again until a person decides")
	case c.ServerErrors > 0:
		return j.hold(v, gateway.ReasonServerError, e)
	case c.Renewals > 0:
		return j.hold(v, "absent_again", e)
	case j.policy != PolicyCharge:
		return j.hold(v, "absent", e)
	}
	if until := j.mayStillBeDone(c, e); until != nil {
		v.outcome, v.until, v.done = OutcomeWaiting, until, "nothing before "+until.UTC().Format("2006-01-02 15:04 UTC")
		return v
	}
	return j.renew(v, "absent")
}

// lastOpenSend is when a send without an answer was made at the latest, nil if there
// is none.
func (j judge) lastOpenSend(c *ledger.OpenCharge) *time.Time {
	switch {
	case c.OpenSends > 0:
		return c.LastSentAt
	case j.restored != nil && c.WindowOpenedAt == nil:
		return j.restored
	case j.restored != nil:
		ended := c.WindowOpenedAt.Add(ledger.Window)
		return &ended
	}
	return nil
}

func (j judge) renew(v verdict, reason string) verdict {
	return j.absent(v, ledger.ChargePending, OutcomeRenewed, "", "renewed: the next run sends it ("+reason+")")
}

// hold leaves the decision to a person.
func (j judge) hold(v verdict, reason string, e evidence) verdict {
	if v.charge.State != ledger.ChargePending {
		v.done = "as before: " + reason
		if j.act == ActRelease {
			v.outcome = OutcomeRefused
		}
		return v
	}
	if !v.charge.WindowDead(e.lookedAt) {
		v.outcome, v.done = OutcomeInWindow, "nothing: a run may still send it"
		return v
	}
	return j.absent(v, ledger.ChargeHeld, OutcomeHeld, reason, "held: "+reason)
}

func (j judge) absent(v verdict, to ledger.ChargeState, outcome Outcome, reason, done string) verdict {
	v.outcome, v.done = outcome, done
	v.absent = &ledger.Absent{
		BillingKey: v.charge.BillingKey, From: v.charge.State, Try: v.charge.Try, Sends: v.charge.Sends,
		WindowOpenedAt: *v.charge.WindowOpenedAt, To: to, Reason: reason, Detail: "Stripe has no payment: " + done,
	}
	return v
}
