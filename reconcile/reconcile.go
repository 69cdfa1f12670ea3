// Package reconcile finds out from Stripe what became of charges whose outcome the
// ledger does not know. It only reads from Stripe. It settles a charge on a
// PaymentIntent that matches in everything, and believes that there is none only
// from a complete list, when no request can be on its way any more.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// Policy is what becomes of a charge that Stripe was proven to have no payment for.
type Policy string

const (
	// PolicyCharge renews it, so that the next run sends it, where that is safe
	// without a person. It is what a run does.
	PolicyCharge Policy = "charge"
	// PolicyHold leaves it to a person. It is what the command does.
	PolicyHold Policy = "hold"
)

// Act is what a look is for.
type Act int

const (
	// ActSettle settles what is open.
	ActSettle Act = iota
	// ActRelease renews held charges on a person's word.
	ActRelease
	// ActRequeue opens a new try for skipped, rejected and void charges.
	ActRequeue
	// ActCancel cancels what is open of declined charges that may be tried again; see
	// Retry.
	ActCancel
	// ActRetry opens their next try, by a look of its own.
	ActRetry
)

// Options is everything that a Reconciler depends on besides the ledger and
// Stripe.
type Options struct {
	Job ledger.Job
	// Livemode is the key's mode, in which every payment must be.
	Livemode bool
	OnAbsent Policy
	// AbsentAfter is how long after a send without an answer a charge may be
	// renewed without a person; 0 is ledger.DefaultAbsentAfter.
	AbsentAfter time.Duration
	// NoSearch lists at once: Stripe has no search in India.
	NoSearch bool
	// DryRun decides everything and changes nothing.
	DryRun bool
	// Person and Why are kept with what a person ordered.
	Person, Why string
	// Outbox tells what is changed; nil tells nobody.
	Outbox *ledger.Outbox
	// Decide tells what some accounts are to be asked for today, in a new try; a
	// row whose decision is not pending can't be charged. For what opens tries.
	Decide func(ctx context.Context, q ledger.Querier, period ledger.Period, list []ledger.OpenCharge) ([]ledger.Requeue, error)
	// Rule tells which declined charges may be tried again, by account; for PlanRetry.
	Rule func(ctx context.Context, q ledger.Querier, period ledger.Period, list []ledger.OpenCharge) (map[string]Ruling, error)
	// Cancel cancels a PaymentIntent and returns what it is then; for Retry.
	Cancel func(ctx context.Context, stripeAccount string, pi gateway.PaymentIntent, deadline gateway.Deadline) (gateway.PaymentIntent, error)
	// Record records the billable rows of some accounts, for Rebuild.
	Record func(ctx context.Context, tx pgx.Tx, run ledger.Run, accounts []string, windowOpensAt time.Time) (int64, error)
	// CheckClock compares Postgres's clock with the Date of an answer; an error ends
	// the look, because no window can be trusted.
	CheckClock func(ctx context.Context, stripe time.Time) error
	// Alive is told that work gets on, Progress how far, Each what became of each
	// charge; Each is called by one goroutine at a time.
	Alive    func()
	Progress func(phase string, done, total int64)
	Each     func(Line)
	Log      *slog.Logger
}

// Work is one look at a period.
type Work struct {
	Period ledger.Period
	// Horizon is the earliest moment at which a payment for it can exist.
	Horizon time.Time
	// Run owns the period; nil if nobody does, and then nothing that needs the
	// claim is done: charges that are absent stay as they are.
	Run *ledger.Run
	Act Act
	// Pending looks at pending charges past their window, with Inside also at
	// those inside it that were sent. Unsettled refreshes processing and
	// action_required. Held looks at held ones too, whether they were paid.
	Pending, Inside, Unsettled, Held bool
	// Accounts limits what a person ordered; nil is all. States are those that
	// ActRequeue takes.
	Accounts []string
	States   []ledger.ChargeState
	// Rebuild brings a restored ledger up to what Stripe shows: everything of the
	// period is read once and compared.
	Rebuild bool
}

// Reconciler looks at Stripe for charges of one job. It is used for one piece of
// work at a time.
type Reconciler struct {
	pool   *pgxpool.Pool
	finder *gateway.Finder
	opts   Options
	judge  judge

	mu     sync.Mutex // guards report and what Each writes
	report Report
	calls  calls
	// restored is when a payment was first found for a charge that was never sent, or
	// only in vain, as far as the ledger knows; nil while there is none.
	restored atomic.Pointer[time.Time]
	// noSearch is set where Stripe has no search, and once one failed.
	noSearch atomic.Bool
	retry    retrying
	// absent are never-sent charges that wait for the end of the look.
	absent []putOff
	total  int64
}

// New wires a Reconciler.
func New(pool *pgxpool.Pool, finder *gateway.Finder, opts Options) *Reconciler {
	if opts.CheckClock == nil {
		opts.CheckClock = func(context.Context, time.Time) error { return nil }
	}
	if opts.Alive == nil {
		opts.Alive = func() {}
	}
	if opts.Progress == nil {
		opts.Progress = func(string, int64, int64) {}
	}
	if opts.Each == nil {
		opts.Each = func(Line) {}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.AbsentAfter <= 0 {
		opts.AbsentAfter = ledger.DefaultAbsentAfter
	}
	return &Reconciler{pool: pool, finder: finder, opts: opts}
}

// Look does one piece of work. It may be repeated at any time. The report is
// filled also when an error ends it; errors of single charges are in the report.
func (r *Reconciler) Look(ctx context.Context, w Work) (Report, error) {
	r.report, r.total, r.absent = Report{}, 0, nil
	r.calls.reset()
	r.noSearch.Store(r.opts.NoSearch)
	r.judge = judge{
		job: r.opts.Job, period: w.Period, livemode: r.opts.Livemode, act: w.Act, policy: r.opts.OnAbsent,
		absentAfter: r.opts.AbsentAfter, rulings: r.retry.rulings,
	}
	var err error
	if r.judge.disowned, err = ledger.ReadDisowned(ctx, r.pool, r.opts.Job, w.Period); err != nil {
		return r.report, err
	}
	err = r.look(ctx, w)
	if err == nil && !r.opts.DryRun && w.Act == ActSettle {
		err = ledger.InTx(ctx, r.pool, func(tx pgx.Tx) error {
			if err := ledger.NoteLongProcessing(ctx, tx, r.opts.Job, w.Period); err != nil {
				return err
			}
			return ledger.ResolveRecorded(ctx, tx, r.opts.Job, w.Period)
		})
	}
	r.report.Calls = r.calls.count()
	return r.report, err
}

func (r *Reconciler) look(ctx context.Context, w Work) error {
	counts, err := r.count(ctx, w)
	if err != nil {
		return err
	}
	for _, c := range counts {
		r.report.Looked += c.lookups + c.refreshes
	}
	if r.total = r.report.Looked; r.total > 0 {
		restored, err := ledger.RestoredBefore(ctx, r.pool, r.opts.Job, w.Period)
		if err != nil {
			return err
		}
		r.restored.Store(restored)
	}
	for _, c := range counts {
		err := r.lookAt(ctx, w, c)
		if c.stripeAccount != "" && !w.Rebuild && isRefused(err) {
			err = r.leave(ctx, w, c.stripeAccount, err)
		}
		if err != nil {
			return fmt.Errorf("look for payments of %s at Stripe: %w", w.Period, err)
		}
	}
	return nil
}

// isRefused reports that Stripe does not let the key at what was asked for; at a
// connected account that is the account's matter.
func isRefused(err error) bool {
	var e *gateway.Error
	return errors.As(err, &e) && e.Kind == gateway.KindPermission
}

// leave reports the charges of a connected account that can't be read: one that
// was closed must not keep all others from being charged.
func (r *Reconciler) leave(ctx context.Context, w Work, stripeAccount string, why error) error {
	r.opts.Log.Warn("a connected account can't be read; its charges stay as they are", "stripe_account", stripeAccount, "error", why)
	return r.eachGroup(ctx, w, stripeAccount, func(group []ledger.OpenCharge) error {
		verdicts := make([]verdict, len(group))
		for i, c := range group {
			verdicts[i] = verdict{charge: c, outcome: OutcomeUnreadable, seen: why.Error(), done: "nothing"}
		}
		return r.apply(ctx, w, time.Time{}, verdicts)
	})
}

// lookAt looks at the charges of one Stripe account, in the way that costs fewer
// calls.
func (r *Reconciler) lookAt(ctx context.Context, w Work, c workload) error {
	way := c.choose(!r.opts.NoSearch)
	if w.Rebuild {
		way.span, way.budget = true, 0
	}
	if c.lookups+c.refreshes > 0 || w.Rebuild {
		r.opts.Log.Debug("the way to look", "period", w.Period, "stripe_account", c.stripeAccount, "way", way.String(),
			"charges", c.lookups+c.refreshes, "calls_one_by_one", way.oneByOne, "calls_all", way.all)
	}
	if way.span {
		err := r.span(ctx, w, c.stripeAccount, way, nil)
		if !errors.Is(err, errTooMany) && !errors.Is(err, errTooOld) {
			return err
		}
		r.opts.Log.Debug("Stripe has far more payments than this ledger's; looking one by one", "because", err, "pages_at_most", way.budget)
	}
	later, err := r.scattered(ctx, w, c.stripeAccount)
	if err != nil || len(later) == 0 {
		return err
	}
	// Customers that are gone can't be listed; a list of everybody shows their
	// payments.
	r.opts.Log.Debug("reading everybody's payments for charges whose customers are gone", "charges", len(later))
	return r.span(ctx, w, c.stripeAccount, way.unbounded(), later)
}

// workload is how much there is to do at one Stripe account.
type workload struct {
	stripeAccount string
	// lookups may be anywhere, refreshes have a PaymentIntent whose id is known.
	lookups, refreshes int64
	// sent is about how many PaymentIntents the span has.
	sent int64
}

func (r *Reconciler) count(ctx context.Context, w Work) (loads []workload, err error) {
	err = ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) error {
		byAccount := map[string]*workload{}
		at := func(account string) *workload {
			if byAccount[account] == nil {
				byAccount[account] = &workload{stripeAccount: account}
			}
			return byAccount[account]
		}
		if err := r.countCharges(ctx, tx, w, at); err != nil {
			return err
		}
		if len(byAccount) == 0 {
			return nil
		}
		sent, err := ledger.CountSent(ctx, tx, r.opts.Job, w.Period)
		for _, load := range byAccount {
			load.sent = sent
			loads = append(loads, *load)
		}
		return err
	})
	return loads, err
}

func (r *Reconciler) countCharges(ctx context.Context, tx pgx.Tx, w Work, at func(string) *workload) error {
	if w.Pending || w.Unsettled {
		open, err := ledger.CountOpen(ctx, tx, r.opts.Job, w.Period)
		if err != nil {
			return err
		}
		for _, c := range open {
			load := at(c.StripeAccount)
			if w.Pending {
				load.lookups += c.Past
			}
			if w.Inside {
				load.lookups += c.Inside
			}
			if w.Unsettled {
				load.refreshes += c.Unsettled
			}
		}
	}
	if states := w.states(); len(states) > 0 {
		more, err := ledger.CountInState(ctx, tx, r.opts.Job, w.Period, states, w.Accounts)
		if err != nil {
			return err
		}
		for _, c := range more {
			at(c.StripeAccount).lookups += c.Past
		}
	}
	if w.Rebuild {
		accounts, err := ledger.StripeAccounts(ctx, tx, r.opts.Job, w.Period)
		if err != nil {
			return err
		}
		at("")
		for _, account := range accounts {
			at(account)
		}
	}
	return nil
}

// states are those that are read by their state.
func (w Work) states() []ledger.ChargeState {
	switch {
	case w.Act == ActRelease, w.Held && w.Act == ActSettle:
		return []ledger.ChargeState{ledger.ChargeHeld}
	case w.Act.retries():
		return []ledger.ChargeState{ledger.ChargeDeclined}
	case w.Act == ActRequeue:
		return w.States
	}
	return nil
}

// eachGroup reads the charges to look at in groups, in an order that holds while
// they are being settled.
func (r *Reconciler) eachGroup(ctx context.Context, w Work, stripeAccount string, do func([]ledger.OpenCharge) error) error {
	base := ledger.OpenQuery{Job: r.opts.Job, Period: w.Period, StripeAccount: stripeAccount, Rows: groupSize, Accounts: w.Accounts}
	// Pending ones come last: what they are moved to would be read once more.
	var queries []ledger.OpenQuery
	if w.Unsettled {
		q := base
		q.Unsettled = true
		queries = append(queries, q)
	}
	if states := w.states(); len(states) > 0 {
		q := base
		q.States = states
		queries = append(queries, q)
	}
	if w.Pending {
		q := base
		q.Pending, q.Inside = true, w.Inside
		queries = append(queries, q)
	}
	for _, q := range queries {
		for {
			group, err := ledger.ReadOpen(ctx, r.pool, q)
			if err != nil {
				return err
			}
			if len(group) == 0 {
				break
			}
			last := group[len(group)-1]
			q.After = &last
			if err := do(group); err != nil {
				return err
			}
		}
	}
	return nil
}
