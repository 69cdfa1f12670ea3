package reconcile

import (
	"testing"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

var attackAt = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)

// attacked is a charge past its window, in a state.
func attacked(state ledger.ChargeState) ledger.OpenCharge {
	opened := attackAt.Add(-30 * time.Hour)
	return ledger.OpenCharge{
		AccountID: "a", BillingKey: "monthly-billing/2026-10/a", State: state, Try: 1, Amount: "10.00", Currency: "usd",
		AmountMinor: 1000, StripeCustomer: "cus_a", WindowOpenedAt: &opened, Sends: 1, LastSentAt: &opened,
	}
}

func attackIntent(status string, change func(*gateway.PaymentIntent)) gateway.PaymentIntent {
	pi := gateway.PaymentIntent{
		ID: "pi_1", Status: status, Amount: 1000, Currency: "usd", Customer: "cus_a", Created: attackAt.Add(-29 * time.Hour),
		BillingKey: "monthly-billing/2026-10/a", Job: "monthly-billing", Period: "2026-10", Account: "a", Try: 1,
	}
	if change != nil {
		change(&pi)
	}
	return pi
}

func attackJudge(act Act) judge {
	return judge{job: "monthly-billing", period: "2026-10", act: act, policy: PolicyCharge, absentAfter: ledger.DefaultAbsentAfter}
}

// A skipped charge knows what was invoiced: another amount does not pay for it.
func TestASkippedChargeIsNotPaidByAnotherAmount(t *testing.T) {
	c := attacked(ledger.ChargeSkipped)
	c.WindowOpenedAt, c.LastSentAt, c.AmountMinor, c.Sends = nil, nil, 0, 0
	for amount, want := range map[int64]Outcome{1000: OutcomeSucceeded, 900: OutcomeUnchanged} {
		pi := attackIntent(gateway.StatusSucceeded, func(pi *gateway.PaymentIntent) { pi.Amount = amount })
		v := attackJudge(ActSettle).decide(c, evidence{intents: []gateway.PaymentIntent{pi}, lookedAt: attackAt})
		if v.outcome != want || (len(v.findings) > 0) != (want == OutcomeUnchanged) {
			t.Errorf("paid %d of 1000: %s, findings %v", amount, v.outcome, v.findings)
		}
	}
}

// What a person withdrew or somebody settled during the look of a release or a
// requeue is neither renewed nor given a new try.
func TestAnOrderLeavesAloneWhatChangedDuringTheLook(t *testing.T) {
	orders := map[Act][]ledger.ChargeState{
		ActRelease: {ledger.ChargeHeld},
		ActRequeue: {ledger.ChargeSkipped, ledger.ChargeRejected, ledger.ChargeVoid},
	}
	sets := map[string][]gateway.PaymentIntent{
		"nothing":         nil,
		"never attempted": {attackIntent(gateway.StatusRequiresConfirmation, nil)},
		"canceled":        {attackIntent(gateway.StatusCanceled, nil)},
	}
	for act, states := range orders {
		allowed := map[ledger.ChargeState]bool{}
		for _, s := range states {
			allowed[s] = true
		}
		for _, state := range ledger.ChargeStates {
			if allowed[state] {
				continue
			}
			for name, set := range sets {
				v := attackJudge(act).decide(attacked(state), evidence{intents: set, lookedAt: attackAt})
				if v.requeue || v.absent != nil && v.absent.To == ledger.ChargePending && state != ledger.ChargePending {
					t.Errorf("act %d, %s, %s: %s %+v", act, state, name, v.outcome, v.absent)
				}
			}
		}
	}
}

// A charge that waits for a person's review is not moved by what proves nothing.
func TestReviewIsLeftToAPerson(t *testing.T) {
	set := []gateway.PaymentIntent{attackIntent(gateway.StatusRequiresConfirmation, nil)}
	v := attackJudge(ActSettle).decide(attacked(ledger.ChargeReview), evidence{intents: set, lookedAt: attackAt})
	if v.absent != nil || v.found != nil {
		t.Errorf("review became %s", v.outcome)
	}
}

// A payment whose key somebody wrote over is as unexplained as one without.
func TestAPaymentWithAScribbledKeyIsUnexplained(t *testing.T) {
	c := attacked(ledger.ChargePending)
	for _, key := range []string{"", "4182", "paid"} {
		var l listed
		l.add(attackIntent(gateway.StatusSucceeded, func(pi *gateway.PaymentIntent) { pi.BillingKey = key }))
		if l.unexplained(&c) == "" {
			t.Errorf("key %q explains it", key)
		}
	}
}
