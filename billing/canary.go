package billing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Bounds of a canary: more than these shares of its charges, and the run stops.
const (
	DefaultCanaryDeclines = 0.3
	DefaultCanaryFailures = 0.1
)

// canary sends a few charges, spread over currencies and amounts, before all
// others, and stops the run if they went badly.
func (r *Runner) canary(ctx context.Context) error {
	if r.opts.Canary <= 0 || r.canaryDone {
		return nil
	}
	var list []ledger.CanaryCharge
	err := r.patiently(ctx, "pick a canary", func(ctx context.Context) error {
		return ledger.InReadTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			list, err = ledger.PickCanary(ctx, tx, r.run, r.opts.Canary)
			return err
		})
	})
	if err != nil || len(list) == 0 {
		return err
	}
	keys := make([]string, len(list))
	for i, c := range list {
		keys[i] = c.BillingKey
	}
	r.log.Warn("canary: sending a few charges first", "charges", len(list), "at_risk", atRisk(list))
	if err := r.charge(ctx, keys); err != nil {
		return err
	}
	r.canaryDone = true
	var states map[ledger.ChargeState]int
	err = r.patiently(ctx, "look at the canary", func(ctx context.Context) (err error) {
		states, err = ledger.StatesOf(ctx, r.pool, keys)
		return err
	})
	if err != nil {
		return err
	}
	return r.judgeCanary(len(list), states)
}

// atRisk is what a canary may charge, by currency.
func atRisk(list []ledger.CanaryCharge) string {
	sums := map[string]int64{}
	for _, c := range list {
		sums[c.Currency] += c.AmountMinor
	}
	var parts []string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, moneyOf(sums[currency], money.Currency(currency)))
	}
	return strings.Join(parts, ", ")
}

func (r *Runner) judgeCanary(sent int, states map[ledger.ChargeState]int) error {
	declined := states[ledger.ChargeDeclined] + states[ledger.ChargeActionRequired]
	failed := states[ledger.ChargeRejected] + states[ledger.ChargePending] + states[ledger.ChargeReview]
	r.log.Info("canary: answered", "charges", sent, "paid", states[ledger.ChargeSucceeded]+states[ledger.ChargeProcessing], "declined", declined, "refused_or_unknown", failed)
	if float64(declined) <= r.opts.CanaryDeclines*float64(sent) && float64(failed) <= r.opts.CanaryFailures*float64(sent) {
		return nil
	}
	return &StoppedError{
		Gate: "canary",
		Msg: fmt.Sprintf("of the first %d charges %d were declined or wait for the customer, and %d were refused or have no known outcome; %.0f %% and %.0f %% are allowed",
			sent, declined, failed, 100*r.opts.CanaryDeclines, 100*r.opts.CanaryFailures),
		Hint: fmt.Sprintf("the others were not sent; look: billing status --period %s; to go on: billing run --period %s without --canary", r.run.Period, r.run.Period),
	}
}
