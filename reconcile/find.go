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
	readsAtOnce = 16
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
	if readErr != nil {
		return nil, readErr
	}
	return later, r.applyPutOff(ctx, w)
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
	requeues      map[string]ledger.Requeue   // by account, for what opens tries

	mu       sync.Mutex
	verdicts []verdict
	hits     map[int][]string // PaymentIntents that search showed for a charge and that did not settle it
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
	if g.w.Act.opensTry() && g.r.noSearch.Load() {
		g.isGone(open)
		open = nil
	}
	if err := g.listAll(ctx, open); err != nil {
		return err
	}
	verdicts := slices.DeleteFunc(g.verdicts, func(v verdict) bool { return v.outcome == "" || g.r.putOff(g.lookedAt, v) })
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
	for i := range g.charges {
		if g.isSearched(&g.charges[i]) {
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

// isSearched reports whether search may show more of a charge than the lists of its
// customers. A restored ledger has forgotten whose customer an account was when its
// next try was made; so a new try is opened only beside a search, or else a list of
// everybody's payments.
func (g *lookup) isSearched(c *ledger.OpenCharge) bool {
	if g.r.noSearch.Load() || g.w.Rebuild {
		return false
	}
	return g.w.Act.opensTry() || c.PaymentIntent == "" && c.WindowOpenedAt != nil
}

func (g *lookup) searchTen(ctx context.Context, ten []int) (left []int, err error) {
	keys := make([]string, len(ten))
	for n, i := range ten {
		keys[n] = g.charges[i].BillingKey
	}
	hits, err := g.r.finder.Search(ctx, g.stripeAccount, keys)
	g.r.calls.searches.Add(1)
	g.r.alive()
	if isFatal(err) && !isForbidden(err) || ctx.Err() != nil {
		return ten, err
	}
	if err != nil {
		g.r.noSearch.Store(true) // for the rest of this look
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
		g.hit(i, mine)
	}
	return left, nil
}

// hit notes what search showed: it exists, whether or not a list shows it too.
func (g *lookup) hit(i int, list []gateway.PaymentIntent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hits == nil {
		g.hits = map[int][]string{}
	}
	for _, pi := range list {
		g.hits[i] = append(g.hits[i], pi.ID)
	}
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
	verdicts, err := g.judgeByList(ctx, same)
	if isGone(err) {
		g.isGone(same)
		return nil
	}
	if err != nil {
		return g.unreadable(ctx, same, err)
	}
	for n, i := range same {
		g.set(i, verdicts[n])
	}
	return nil
}

func (g *lookup) judgeByList(ctx context.Context, same []int) (verdicts []verdict, err error) {
	seen := listed{keys: map[string]bool{}, byKey: map[string][]gateway.PaymentIntent{}}
	for _, i := range same {
		seen.keys[g.charges[i].BillingKey] = true
	}
	var silent []string // customers of whom nothing at all was shown
	for _, customer := range g.customersOf(&g.charges[same[0]]) {
		before := seen.count
		if err := g.r.listCustomer(ctx, g.w, g.stripeAccount, customer, &seen); err != nil {
			return nil, err
		}
		if err := seen.mustShow(g.witnesses[customer]); err != nil {
			return nil, g.orGone(ctx, err, customer, seen.count == before)
		}
		if seen.count == before {
			silent = append(silent, customer)
		}
	}
	for _, i := range same {
		if err := g.addHits(ctx, i, &seen); err != nil {
			return nil, err
		}
		c := g.charges[i]
		e := evidence{intents: seen.byKey[c.BillingKey], lookedAt: g.lookedAt, tries: g.tries[c.AccountID], unexplained: seen.unexplained(&c)}
		if err := g.r.addKnown(ctx, g.w, g.stripeAccount, &c, &e); err != nil {
			return nil, err
		}
		verdicts = append(verdicts, g.r.judge.decide(c, e).withRequeue(g.requeues))
	}
	return verdicts, g.mustExist(ctx, silent, verdicts)
}

// addHits reads again by its id what search showed and the lists did not: one of
// another customer, or older than the horizon, is a reason not to charge.
func (g *lookup) addHits(ctx context.Context, i int, seen *listed) error {
	for _, id := range g.hits[i] {
		if seen.ids[id] {
			continue
		}
		pi, _, err := g.r.finder.GetWithCharge(ctx, g.stripeAccount, id)
		g.r.calls.gets.Add(1)
		g.r.alive()
		if err != nil {
			return err
		}
		seen.add(pi)
	}
	return nil
}

// orGone tells a list that hides payments from a deleted customer's, often empty.
func (g *lookup) orGone(ctx context.Context, err error, customer string, silent bool) error {
	if silent {
		g.r.calls.gets.Add(1)
		if gone := g.r.customerExists(ctx, g.stripeAccount, customer); isGone(gone) {
			return gone
		}
	}
	return err
}

// mustExist asks whether customers whose lists were empty are still there, where a
// person's order was going to be carried out on nothing but this silence. A look of
// the program's own need not ask: what it renews is sent to the same customer, and
// the refusal of one that is gone is not believed then.
func (g *lookup) mustExist(ctx context.Context, silent []string, verdicts []verdict) error {
	ordered := func(v verdict) bool {
		return v.charge.OpenSends > 0 && (v.requeue || v.absent != nil && g.w.Act == ActRelease)
	}
	if !slices.ContainsFunc(verdicts, ordered) {
		return nil
	}
	for _, customer := range silent {
		g.r.calls.gets.Add(1)
		if err := g.r.customerExists(ctx, g.stripeAccount, customer); err != nil {
			return err
		}
	}
	return nil
}
