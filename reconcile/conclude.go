package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// finish decides everything that was not settled page by page. why is nil if the
// look was complete; else nothing is concluded from what it did not show.
func (s *spanLook) finish(ctx context.Context, why error) error {
	keys := slices.Sorted(maps.Keys(s.sets))
	for group := range slices.Chunk(keys, groupSize) {
		charges, err := ledger.ReadByKeys(ctx, s.r.pool, group)
		if err != nil {
			return err
		}
		var list []ledger.OpenCharge
		for _, key := range group {
			if c, known := charges[key]; known {
				list = append(list, c)
			}
		}
		if err := s.conclude(ctx, list, why); err != nil {
			return err
		}
	}
	if err := s.mustBeFresh(ctx); err != nil {
		return err
	}
	if s.only != nil {
		rest := slices.Collect(maps.Values(s.only))
		return s.concludeRest(ctx, rest, why)
	}
	return s.r.eachGroup(ctx, s.w, s.stripeAccount, func(group []ledger.OpenCharge) error { return s.concludeRest(ctx, group, why) })
}

// mustBeFresh returns errTooOld if what follows from silence could not be written
// in time any more, and can be asked again charge by charge.
func (s *spanLook) mustBeFresh(ctx context.Context) error {
	if s.only != nil || s.r.opts.DryRun {
		return nil
	}
	now, err := ledger.Now(ctx, s.r.pool)
	if err == nil && now.Sub(s.lookedAt) > ledger.MaxLookAge-timeToWrite {
		err = errTooOld
	}
	return err
}

// concludeRest decides charges that no page showed.
func (s *spanLook) concludeRest(ctx context.Context, group []ledger.OpenCharge, why error) error {
	rest := slices.DeleteFunc(group, func(c ledger.OpenCharge) bool { return s.sets[c.BillingKey] != nil || s.decided[c.BillingKey] })
	return s.conclude(ctx, rest, why)
}

func (s *spanLook) conclude(ctx context.Context, list []ledger.OpenCharge, why error) error {
	if len(list) == 0 {
		return nil
	}
	anew, err := s.r.decideAnew(ctx, s.w, list)
	if err != nil {
		return err
	}
	verdicts := make([]verdict, 0, len(list))
	for _, c := range list {
		e := evidence{intents: s.sets[c.BillingKey], lookedAt: s.lookedAt, customerGone: s.only != nil, unexplained: s.keyless.unexplained(&c)}
		if e.tries, err = s.triesOf(ctx, &c); err != nil {
			return err
		}
		v, err := s.decide(ctx, c, e, why)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, v.withRequeue(anew))
		s.r.step()
	}
	return s.r.apply(ctx, s.w, s.lookedAt, verdicts)
}

func (s *spanLook) decide(ctx context.Context, c ledger.OpenCharge, e evidence, why error) (verdict, error) {
	if err := s.r.addKnown(ctx, s.w, s.stripeAccount, &c, &e); err != nil {
		if isFatal(err) || ctx.Err() != nil {
			return verdict{}, err
		}
		return verdict{charge: c, outcome: OutcomeUnreadable, seen: err.Error(), done: "nothing"}, nil
	}
	switch {
	case why != nil && len(e.intents) > 0 && !slices.ContainsFunc(e.intents, isLive):
		// The list is not complete: what it leaves out may have been paid.
		return incomplete(c, why), nil
	case len(e.intents) > 0:
	case c.State == ledger.ChargeProcessing || c.State == ledger.ChargeActionRequired:
		// Older than the span, or its metadata was edited: its id is known.
		pi, _, err := s.r.finder.GetWithCharge(ctx, s.stripeAccount, c.PaymentIntent)
		s.r.calls.gets.Add(1)
		s.r.alive()
		if isFatal(err) || ctx.Err() != nil {
			return verdict{}, err
		}
		if err != nil {
			return verdict{charge: c, outcome: OutcomeUnreadable, seen: err.Error(), done: "nothing"}, nil //nolint:nilerr // the verdict says it
		}
		e.intents = []gateway.PaymentIntent{pi}
	case why != nil:
		return incomplete(c, why), nil
	}
	return s.stands(s.r.judgeNow().decide(c, e)), nil
}

// incomplete leaves a charge as it is: silence of a list that is not complete proves
// nothing.
func incomplete(c ledger.OpenCharge, why error) verdict {
	v := verdict{charge: c, outcome: OutcomeUnreadable, seen: why.Error(), done: "nothing"}
	if missing := (*notShownError)(nil); errors.As(why, &missing) {
		v.next = missing.next()
	}
	return v
}

// stands notes since when its second payments are known not to be given back, where the
// look shows that.
func (s *spanLook) stands(v verdict) verdict {
	for i := range v.findings {
		if f := &v.findings[i]; s.w.Rebuild && f.Kind == ledger.FindingDuplicate {
			f.StandsAt = s.lookedAt
		}
	}
	return v
}

// record brings payments into the ledger that it has no charge for: where
// something is billable, its charge is recorded now, by the look that shows the
// payment, or decided again if it was skipped; where nothing is, a person must look.
func (s *spanLook) record(ctx context.Context, ours []gateway.PaymentIntent, charges map[string]ledger.OpenCharge) error {
	missing := map[string]gateway.PaymentIntent{}
	var accounts []string
	for _, pi := range ours {
		// A charge that was skipped was never a request: the ledger is older than its
		// cause's mending.
		c, known := charges[pi.BillingKey]
		if known && (c.State != ledger.ChargeSkipped || c.WindowOpenedAt != nil) || missing[pi.BillingKey].ID != "" {
			continue
		}
		missing[pi.BillingKey] = pi
		if ledger.BillingKey(s.r.opts.Job, s.w.Period, pi.Account) == pi.BillingKey {
			accounts = append(accounts, pi.Account)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := s.r.recordMissing(ctx, s.w, accounts, s.lookedAt); err != nil {
		return err
	}
	now, err := ledger.ReadByKeys(ctx, s.r.pool, slices.Collect(maps.Keys(missing)))
	if err != nil {
		return err
	}
	maps.Copy(charges, now)
	for key, pi := range missing {
		if _, recorded := now[key]; !recorded {
			if err := s.r.reportUnrecorded(ctx, s.w, pi); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportUnrecorded opens a finding for a payment without an invoice.
func (r *Reconciler) reportUnrecorded(ctx context.Context, w Work, pi gateway.PaymentIntent) error {
	v := verdict{
		charge:  ledger.OpenCharge{AccountID: pi.Account, BillingKey: pi.BillingKey, Currency: pi.Currency},
		outcome: OutcomeNotRecorded, paymentIntent: pi.ID,
		seen: pi.Status + ", " + amountText(pi.Amount, pi.Currency), done: "nothing: no invoice says what it is for",
	}
	if r.opts.DryRun {
		v.done = "nothing: the ledger has no charge for it"
	}
	if isLive(pi) {
		v.findings = []ledger.Finding{{
			Kind: "not_recorded", Severity: ledger.SeverityAct, Job: r.opts.Job, Period: w.Period, AccountID: pi.Account,
			BillingKey: pi.BillingKey, PaymentIntent: pi.ID, Currency: pi.Currency,
			Expected: "a charge in the ledger", Seen: fmt.Sprintf("a payment, %s (%s, %d %s), and no charge", pi.ID, pi.Status, pi.Amount, pi.Currency),
		}}
	}
	return r.apply(ctx, w, time.Time{}, []verdict{v})
}
