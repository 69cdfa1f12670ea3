package billing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// RetryRules puts the rules of Dunning to the declined charges of a job. Charges that
// share a card are counted together, over all calls.
type RetryRules struct {
	job     ledger.Job
	dunning Dunning
	planned map[string][]ledger.CardTry // by payment method
}

// NewRetryRules starts counting.
func NewRetryRules(job ledger.Job, d Dunning) *RetryRules {
	return &RetryRules{job: job, dunning: d, planned: map[string][]ledger.CardTry{}}
}

// Refused says which of some declined charges may not be tried again, and why, by
// account; those that may are left out, and counted as tried.
func (r *RetryRules) Refused(ctx context.Context, q ledger.Querier, period ledger.Period, list []ledger.OpenCharge) (map[string]Refusal, error) {
	now, err := ledger.Now(ctx, q)
	if err != nil {
		return nil, err
	}
	anew, err := DecideAnew(ctx, q, r.job, period, list)
	if err != nil {
		return nil, err
	}
	accounts, methods := make([]string, len(list)), make([]string, 0, len(anew))
	today := make(map[string]ledger.Requeue, len(anew))
	for i := range list {
		accounts[i] = list[i].AccountID
	}
	for _, a := range anew {
		today[a.Seen.AccountID] = a
		methods = append(methods, a.Billable.PaymentMethod)
	}
	declines, err := ledger.Declines(ctx, q, r.job, period, accounts)
	if err != nil {
		return nil, err
	}
	tries, err := ledger.CardTries(ctx, q, methods, NetworkSpan)
	if err != nil {
		return nil, err
	}
	paused, err := pausedAccounts(ctx, q, r.job)
	if err != nil {
		return nil, err
	}
	f := retryFacts{now: now, tries: tries, paused: paused}
	refused := map[string]Refusal{}
	for i := range list {
		a, owes := today[list[i].AccountID]
		if refusal, ok := r.refuse(f, &list[i], a, owes, declines[list[i].AccountID]); !ok {
			refused[list[i].AccountID] = refusal
		}
	}
	return refused, nil
}

// pausedAccounts are those that somebody paused, "" for all.
func pausedAccounts(ctx context.Context, q ledger.Querier, job ledger.Job) (map[string]bool, error) {
	pauses, err := ledger.OpenPauses(ctx, q, job)
	paused := make(map[string]bool, len(pauses))
	for _, p := range pauses {
		paused[p.AccountID] = true
	}
	return paused, err
}

// retryFacts is what the ledger says of the charges of one call.
type retryFacts struct {
	now    time.Time
	tries  map[string][]ledger.CardTry // by payment method
	paused map[string]bool
}

func (r *RetryRules) refuse(f retryFacts, c *ledger.OpenCharge, a ledger.Requeue, owes bool, d ledger.Decline) (Refusal, bool) {
	switch {
	case !owes:
		return Refusal{Why: "it has no invoice any more", Next: "billing void"}, false
	case d.Try != c.Try:
		return Refusal{Why: "it changed meanwhile"}, false
	case f.paused[""] || f.paused[c.AccountID]:
		return Refusal{Why: "somebody paused it", Next: "billing resume"}, false
	case a.Decision.State != ledger.ChargePending:
		return Refusal{Why: "it could not be charged: " + a.Decision.Reason, Next: "mend the account"}, false
	case a.Decision.AmountMinor != c.AmountMinor || a.Decision.Currency != c.Currency:
		return Refusal{Why: fmt.Sprintf("it owes %s %s now, and %s %s was declined", a.Billable.Amount, a.Billable.Currency, c.Amount, c.Currency),
			Next: "billing void, then billing requeue"}, false
	}
	method := a.Billable.PaymentMethod
	refusal, ok := r.dunning.Refuse(DeclinedCharge{
		Job: r.job, AccountID: c.AccountID, Try: c.Try, Asked: d.PaymentMethod, Today: method, Reason: d.Reason, DeclineCode: d.DeclineCode, AdviceCode: d.AdviceCode,
		SettledAt: d.SettledAt, Card: slices.Concat(f.tries[method], r.planned[method]),
	}, f.now)
	if ok {
		r.planned[method] = append(r.planned[method], ledger.CardTry{PaymentMethod: method, Job: r.job, AccountID: c.AccountID, At: f.now})
	}
	return refusal, ok
}
