package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// spanParts of a span are read at the same time, where it is long. Each may
	// cost a page that is not full, and a span ten more calls than its pages.
	spanParts = 9
	// pagesPerPart is how long a part must be to be worth one of its own.
	pagesPerPart = 20
	// pagesInHand are compared with the ledger while the next ones are read.
	pagesInHand = 8
	// timeToWrite is kept of ledger.MaxLookAge for writing what was concluded.
	timeToWrite = 5 * time.Minute
)

// errTooMany says that a span holds far more than was expected.
var errTooMany = errors.New("more payments than expected")

// errTooOld says that a span took so long to read that nothing can be concluded
// any more from what it did not show.
var errTooOld = errors.New("the reading took too long")

// spanLook is one complete reading of everybody's payments since the horizon.
// What was paid is settled page by page, whatever else the list holds: being paid
// is true by itself. Everything else is kept until the last page was read.
type spanLook struct {
	r             *Reconciler
	w             Work
	stripeAccount string
	lookedAt      time.Time
	budget        int64
	// only limits the look to these charges, by billing key; nil is all. Their
	// customers are gone.
	only map[string]ledger.OpenCharge
	// accounts are those of the work; nil is all.
	accounts map[string]bool

	mu       sync.Mutex
	pages    int64
	expected map[string]string                  // known payments not shown yet, and their customers
	sets     map[string][]gateway.PaymentIntent // by billing key, what is not paid
	decided  map[string]bool                    // billing keys that a dry run would have settled
	keyless  listed
}

// span looks charges up by reading everybody's payments once. Nothing is
// concluded from absence unless every page was read.
func (r *Reconciler) span(ctx context.Context, w Work, stripeAccount string, how way, only []ledger.OpenCharge) error {
	s := &spanLook{
		r: r, w: w, stripeAccount: stripeAccount, budget: how.budget,
		expected: map[string]string{}, sets: map[string][]gateway.PaymentIntent{}, decided: map[string]bool{},
	}
	for _, account := range w.Accounts {
		if s.accounts == nil {
			s.accounts = map[string]bool{}
		}
		s.accounts[account] = true
	}
	for _, c := range only {
		if s.only == nil {
			s.only = map[string]ledger.OpenCharge{}
		}
		s.only[c.BillingKey] = c
	}
	bounds, err := s.begin(ctx, how)
	if err != nil {
		return err
	}
	if err := s.read(ctx, bounds); err != nil {
		return err
	}
	if len(s.expected) == 0 {
		return s.finish(ctx, nil)
	}
	id := slices.Min(slices.Collect(maps.Keys(s.expected)))
	r.opts.Log.Warn("Stripe's list does not show a payment that the ledger knows; no absence is concluded from it", "payment_intent", id, "stripe_account", stripeAccount)
	return s.finish(ctx, &notShownError{paymentIntent: id, customer: s.expected[id], period: w.Period})
}

// begin notes the time, what must be shown, and how to divide the span.
func (s *spanLook) begin(ctx context.Context, how way) (bounds []time.Time, err error) {
	if s.lookedAt, err = ledger.Now(ctx, s.r.pool); err != nil {
		return nil, err
	}
	from := witnessesFrom(s.w.Horizon)
	err = ledger.InReadTx(ctx, s.r.pool, func(tx pgx.Tx) error {
		known, err := ledger.SpanWitnesses(ctx, tx, s.r.opts.Job, s.w.Period, s.stripeAccount, from, s.lookedAt)
		if err != nil {
			return err
		}
		for _, k := range known {
			s.expected[k.PaymentIntent] = k.StripeCustomer
		}
		if parts := min(spanParts, int(how.all/pagesPerPart)); parts > 1 {
			bounds, err = ledger.SpanBounds(ctx, tx, s.r.opts.Job, s.w.Period, s.stripeAccount, s.w.Horizon, parts)
		}
		return err
	})
	return bounds, err
}

// read lists all parts of the span. The last one has no end: what is created
// while it is read comes before its first page.
func (s *spanLook) read(ctx context.Context, bounds []time.Time) error {
	takes, takeCtx := errgroup.WithContext(ctx)
	takes.SetLimit(pagesInHand)
	reads, readCtx := errgroup.WithContext(takeCtx)
	from := s.w.Horizon
	for _, to := range append(bounds, time.Time{}) {
		q := gateway.ListQuery{StripeAccount: s.stripeAccount, CreatedFrom: from, CreatedTo: to, Charges: s.w.Rebuild,
			EachPage: func(page []gateway.PaymentIntent, meta gateway.Meta) error {
				if err := s.r.opts.CheckClock(readCtx, meta.Date); err != nil {
					return err
				}
				ours, err := s.page(page)
				if err == nil && len(ours) > 0 {
					takes.Go(func() error { return s.compare(takeCtx, ours) })
				}
				return err
			}}
		from = to
		reads.Go(func() error { return s.r.finder.List(readCtx, q) })
	}
	readErr := reads.Wait()
	if err := takes.Wait(); err != nil {
		return err // it ended the reads
	}
	return readErr
}

// page counts a page, and picks what it shows of our charges.
func (s *spanLook) page(page []gateway.PaymentIntent) (ours []gateway.PaymentIntent, err error) {
	s.r.calls.pages.Add(1)
	s.r.alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages++; s.budget > 0 && s.pages > s.budget {
		return nil, errTooMany
	}
	s.r.opts.Progress("look", s.pages, 0)
	for _, pi := range page {
		delete(s.expected, pi.ID)
		switch {
		case isKeyless(pi) && s.worthKeeping(pi):
			s.keyless.keyless = append(s.keyless.keyless, pi)
		case s.isOurs(pi):
			ours = append(ours, pi)
		}
	}
	return ours, nil
}

// compare takes what a page shows of our charges.
func (s *spanLook) compare(ctx context.Context, ours []gateway.PaymentIntent) error {
	keys := make([]string, len(ours))
	for i, pi := range ours {
		keys[i] = pi.BillingKey
	}
	charges, err := ledger.ReadByKeys(ctx, s.r.pool, keys)
	if err != nil {
		return err
	}
	if s.w.Rebuild {
		if err := s.record(ctx, ours, charges); err != nil {
			return err
		}
	}
	return s.take(ctx, ours, charges)
}

// isOurs goes by the key too: any other metadata may have been edited.
func (s *spanLook) isOurs(pi gateway.PaymentIntent) bool {
	return pi.BillingKey != "" && pi.Job == string(s.r.opts.Job) && pi.Period == string(s.w.Period) ||
		strings.HasPrefix(pi.BillingKey, ledger.BillingKey(s.r.opts.Job, s.w.Period, ""))
}

// maxKeyless bounds what is remembered of payments that carry no key of ours;
// they only ever make a charge wait for a person.
const maxKeyless = 100_000

func (s *spanLook) worthKeeping(pi gateway.PaymentIntent) bool {
	return pi.Customer != "" && len(s.keyless.keyless) < maxKeyless
}

// take settles what was paid and keeps the rest.
func (s *spanLook) take(ctx context.Context, ours []gateway.PaymentIntent, charges map[string]ledger.OpenCharge) error {
	byKey := map[string][]gateway.PaymentIntent{}
	for _, pi := range ours {
		byKey[pi.BillingKey] = append(byKey[pi.BillingKey], pi)
	}
	var paid []verdict
	for key, list := range byKey {
		c, known := charges[key]
		if !known || !s.wants(&c) || c.State == ledger.ChargeSucceeded && len(list) == 1 && isOwn(&c, list[0]) {
			continue
		}
		if slices.ContainsFunc(list, func(pi gateway.PaymentIntent) bool { return pi.Status == gateway.StatusSucceeded }) {
			tries, err := s.triesOf(ctx, &c)
			if err != nil {
				return err
			}
			v := s.stands(s.r.judge.decide(c, evidence{intents: list, lookedAt: s.lookedAt, tries: tries}))
			if v.outcome == OutcomeSucceeded || c.State == ledger.ChargeSucceeded {
				paid = append(paid, v)
				continue
			}
		}
		s.mu.Lock()
		s.sets[key] = append(s.sets[key], list...)
		s.mu.Unlock()
	}
	if err := s.settle(ctx, paid); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range paid {
		// Another page settled it at the same moment: is this a second payment?
		if key := v.charge.BillingKey; v.outcome == OutcomeMovedOn {
			s.sets[key] = append(s.sets[key], byKey[key]...)
		}
	}
	return nil
}

// triesOf is asked only for the few charges that have closed tries.
func (s *spanLook) triesOf(ctx context.Context, c *ledger.OpenCharge) ([]ledger.TrySeen, error) {
	if c.Try == 1 {
		return nil, nil
	}
	return ledger.TriesOf(ctx, s.r.pool, s.r.opts.Job, s.w.Period, []string{c.AccountID})
}

func (s *spanLook) settle(ctx context.Context, paid []verdict) error {
	for _, v := range paid {
		if s.r.opts.DryRun {
			s.mu.Lock()
			s.decided[v.charge.BillingKey] = true
			s.mu.Unlock()
		}
		s.r.step()
	}
	return s.r.apply(ctx, s.w, s.lookedAt, paid)
}

// wants reports whether this look is about a charge.
func (s *spanLook) wants(c *ledger.OpenCharge) bool {
	if s.only != nil {
		_, wanted := s.only[c.BillingKey]
		return wanted
	}
	if s.w.Act == ActSettle {
		return true
	}
	return slices.Contains(s.w.states(), c.State) && (s.accounts == nil || s.accounts[c.AccountID])
}
