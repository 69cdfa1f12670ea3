package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// groupsAtOnce groups are looked up at the same time, so that one can list
	// while another searches.
	groupsAtOnce = 4
	// readsAtOnce bounds the requests of one group; the gateway keeps the rate.
	readsAtOnce = 8
	// maxUnreadable is how many charges in a row may be unreadable before it is
	// Stripe as a whole.
	maxUnreadable = 20
)

// errDown says that Stripe as a whole does not answer.
var errDown = errors.New("Stripe does not answer")

// scattered looks charges up one by one: search first, ten keys a query, then
// lists by customer for what the search did not settle. It returns the charges
// whose customers Stripe does not have any more.
func (r *Reconciler) scattered(ctx context.Context, w Work, stripeAccount string) (later []ledger.OpenCharge, err error) {
	var mu sync.Mutex
	groups, groupCtx := errgroup.WithContext(ctx)
	groups.SetLimit(groupsAtOnce)
	readErr := r.eachGroup(ctx, w, stripeAccount, func(group []ledger.OpenCharge) error {
		if groupCtx.Err() != nil {
			return groupCtx.Err()
		}
		groups.Go(func() error {
			g := &lookup{r: r, w: w, stripeAccount: stripeAccount, charges: group, verdicts: make([]verdict, len(group))}
			if err := g.do(groupCtx); err != nil {
				return err
			}
			mu.Lock()
			later = append(later, g.gone...)
			mu.Unlock()
			return nil
		})
		return nil
	})
	if err := groups.Wait(); err != nil {
		return nil, err
	}
	return later, readErr
}

// lookup is one group of charges being looked up.
type lookup struct {
	r             *Reconciler
	w             Work
	stripeAccount string
	charges       []ledger.OpenCharge
	lookedAt      time.Time
	tries         map[string][]ledger.TrySeen // by account
	witnesses     map[string][]string         // PaymentIntents by customer
	requeues      map[string]ledger.Requeue   // by account, for ActRequeue

	mu       sync.Mutex
	verdicts []verdict
	gone     []ledger.OpenCharge
	failed   int
}

func (g *lookup) do(ctx context.Context) (err error) {
	// The charges were chosen; from here on everything that Stripe shows is newer.
	if g.lookedAt, err = ledger.Now(ctx, g.r.pool); err != nil {
		return err
	}
	if err := g.readLedger(ctx); err != nil {
		return err
	}
	open, err := g.search(ctx)
	if err != nil {
		return err
	}
	if err := g.listAll(ctx, open); err != nil {
		return err
	}
	verdicts := slices.DeleteFunc(g.verdicts, func(v verdict) bool { return v.outcome == "" })
	return g.r.apply(ctx, g.w, g.lookedAt, verdicts)
}

// readLedger reads what the ledger knows besides the charges.
func (g *lookup) readLedger(ctx context.Context) error {
	accounts := make([]string, len(g.charges))
	for i, c := range g.charges {
		accounts[i] = c.AccountID
	}
	tries, err := ledger.TriesOf(ctx, g.r.pool, g.r.opts.Job, g.w.Period, accounts)
	if err != nil {
		return err
	}
	g.tries = map[string][]ledger.TrySeen{}
	for _, t := range tries {
		g.tries[t.AccountID] = append(g.tries[t.AccountID], t)
	}
	known, err := ledger.Witnesses(ctx, g.r.pool, g.r.opts.Job, g.w.Period, g.stripeAccount, accounts, witnessesFrom(g.w.Horizon), g.lookedAt)
	if err != nil {
		return err
	}
	g.witnesses = map[string][]string{}
	for _, k := range known {
		g.witnesses[k.StripeCustomer] = append(g.witnesses[k.StripeCustomer], k.PaymentIntent)
	}
	g.requeues, err = g.r.decideAnew(ctx, g.w, g.charges)
	return err
}

// witnessesFrom is a window later than the horizon: a payment that was found by a
// later send of its key is older than that send.
func witnessesFrom(horizon time.Time) time.Time { return horizon.Add(ledger.Window) }

// search settles what it shows to be paid and returns the indexes of the rest. Its
// silence proves nothing, and its failure only means to list instead.
func (g *lookup) search(ctx context.Context) (open []int, err error) {
	var keys []int
	for i, c := range g.charges {
		if c.PaymentIntent == "" && c.WindowOpenedAt != nil && !g.r.opts.NoSearch && !g.w.Rebuild {
			keys = append(keys, i)
		} else {
			open = append(open, i)
		}
	}
	reads, readCtx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for ten := range slices.Chunk(keys, gateway.MaxSearchKeys) {
		reads.Go(func() error {
			left, err := g.searchTen(readCtx, ten)
			g.mu.Lock()
			defer g.mu.Unlock()
			open = append(open, left...)
			return err
		})
	}
	return open, reads.Wait()
}

func (g *lookup) searchTen(ctx context.Context, ten []int) (left []int, err error) {
	keys := make([]string, len(ten))
	for n, i := range ten {
		keys[n] = g.charges[i].BillingKey
	}
	hits, err := g.r.finder.Search(ctx, g.stripeAccount, keys)
	g.r.calls.searches.Add(1)
	g.r.alive()
	if isFatal(err) || ctx.Err() != nil {
		return ten, err
	}
	if err != nil {
		g.r.opts.Log.Debug("search failed; listing instead", "error", err)
		return ten, nil
	}
	for _, i := range ten {
		mine := slices.DeleteFunc(slices.Clone(hits), func(pi gateway.PaymentIntent) bool { return pi.BillingKey != g.charges[i].BillingKey })
		e := evidence{intents: mine, lookedAt: g.lookedAt, tries: g.tries[g.charges[i].AccountID]}
		if len(mine) == 1 && mine[0].Status == gateway.StatusSucceeded && mine[0].Try == g.charges[i].Try {
			if v := g.r.judge.decide(g.charges[i], e); v.outcome == OutcomeSucceeded {
				g.set(i, v)
				continue
			}
		}
		left = append(left, i)
	}
	return left, nil
}

func (g *lookup) set(i int, v verdict) {
	g.mu.Lock()
	g.verdicts[i] = v
	g.mu.Unlock()
	g.r.step()
}

// listAll lists the payments of the customers behind some of the charges, and
// reads again by its id what has one.
func (g *lookup) listAll(ctx context.Context, open []int) error {
	byCustomer := map[string][]int{}
	reads, readCtx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for _, i := range open {
		c := &g.charges[i]
		if c.State == ledger.ChargeProcessing || c.State == ledger.ChargeActionRequired {
			reads.Go(func() error { return g.refresh(readCtx, i) })
			continue
		}
		// A charge of several tries may have been asked of several customers; it
		// is looked up by itself.
		customers := g.customersOf(c)
		if len(customers) == 0 {
			g.isGone([]int{i})
			continue
		}
		key := strings.Join(customers, "\x00")
		byCustomer[key] = append(byCustomer[key], i)
	}
	for _, same := range byCustomer {
		reads.Go(func() error { return g.list(readCtx, same) })
	}
	return reads.Wait()
}

// customersOf are those that any try of the charge was asked of.
func (g *lookup) customersOf(c *ledger.OpenCharge) (list []string) {
	if c.StripeCustomer != "" {
		list = append(list, c.StripeCustomer)
	}
	more := []string{g.requeues[c.AccountID].Billable.StripeCustomer}
	for _, t := range g.tries[c.AccountID] {
		more = append(more, t.StripeCustomer)
	}
	for _, customer := range more {
		if customer != "" && !slices.Contains(list, customer) {
			list = append(list, customer)
		}
	}
	return list
}

// isGone leaves charges to a list of everybody's payments.
func (g *lookup) isGone(list []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range list {
		g.gone = append(g.gone, g.charges[i])
	}
}

// refresh reads a PaymentIntent by its id.
func (g *lookup) refresh(ctx context.Context, i int) error {
	c := g.charges[i]
	pi, _, err := g.r.finder.GetWithCharge(ctx, g.stripeAccount, c.PaymentIntent)
	g.r.calls.gets.Add(1)
	g.r.alive()
	if err != nil {
		return g.unreadable(ctx, []int{i}, err)
	}
	g.set(i, g.r.judge.decide(c, evidence{intents: []gateway.PaymentIntent{pi}, lookedAt: g.lookedAt, tries: g.tries[c.AccountID]}))
	return nil
}

// list decides charges of the same customers by complete lists of these.
func (g *lookup) list(ctx context.Context, same []int) error {
	customers := g.customersOf(&g.charges[same[0]])
	seen := listed{keys: map[string]bool{}, byKey: map[string][]gateway.PaymentIntent{}}
	for _, i := range same {
		seen.keys[g.charges[i].BillingKey] = true
	}
	for _, customer := range customers {
		err := g.r.listCustomer(ctx, g.w, g.stripeAccount, customer, &seen)
		if err == nil {
			err = seen.mustShow(g.witnesses[customer])
		}
		if err == nil {
			err = g.mustExist(ctx, same, customer, &seen)
		}
		if isGone(err) {
			g.isGone(same)
			return nil
		}
		if err != nil {
			return g.unreadable(ctx, same, err)
		}
	}
	for _, i := range same {
		c := g.charges[i]
		v := g.r.judge.decide(c, evidence{
			intents: seen.byKey[c.BillingKey], lookedAt: g.lookedAt, tries: g.tries[c.AccountID], unexplained: seen.unexplained(&c),
		})
		g.set(i, v.withRequeue(g.requeues))
	}
	return nil
}

// mustExist asks whether a customer whose list was empty is still there, where
// something hangs on it: nothing but the list's silence speaks for absence.
func (g *lookup) mustExist(ctx context.Context, same []int, customer string, seen *listed) error {
	if seen.count > 0 || len(g.witnesses[customer]) > 0 {
		return nil
	}
	for _, i := range same {
		if c := &g.charges[i]; c.OpenSends > 0 && c.WindowDead(g.lookedAt) {
			g.r.calls.gets.Add(1)
			return g.r.customerExists(ctx, g.stripeAccount, customer)
		}
	}
	return nil
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed += len(list); g.failed >= maxUnreadable {
		return errors.Join(errDown, err)
	}
	return nil
}

// isFatal reports trouble that is not one charge's.
func isFatal(err error) bool {
	var e *gateway.Error
	if errors.Is(err, errNotShown) || errors.Is(err, errNotAllowed) || errors.Is(err, errGone) {
		return false
	}
	if !errors.As(err, &e) {
		return err != nil
	}
	return e.Kind == gateway.KindAuth || e.Kind == gateway.KindPermission || e.Kind == gateway.KindWrongMode
}
