package reconcile

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// Whatever Stripe shows, a try is opened only by the second look, for a charge that is
// declined and may be tried again, when nothing of it is paid, under way, open, odd, of
// an unknown try, or may still be on its way; and the first look names everything that
// is open, whichever try it is of.
func TestATryIsOpenedOnlyWhenNothingElseCanTakeMoney(t *testing.T) {
	t.Parallel()
	opened := 0
	rapid.Check(t, func(t *rapid.T) {
		c, e := anyCharge(t), anyEvidence(t)
		if rapid.Bool().Draw(t, "nobody may still pay") { // else hardly a try would be opened
			e.intents, e.unexplained, c.Leased, c.OpenSends = slices.DeleteFunc(e.intents, isLive), "", false, 0
			c.WindowOpenedAt, c.LastSentAt = ago(100*time.Hour), nil
		}
		if c.State != ledger.ChargeSkipped && rapid.IntRange(0, 5).Draw(t, "declined") > 0 {
			c.State, c.PaymentIntent = ledger.ChargeDeclined, ""
		}
		ruling := Ruling{Try: c.Try - rapid.IntRange(0, 1).Draw(t, "older ruling"), Refused: rapid.SampledFrom([]string{"", "", "", "lost_card"}).Draw(t, "refused")}
		j := newJudge(func(j *judge) {
			j.act = rapid.SampledFrom([]Act{ActCancel, ActRetry}).Draw(t, "act")
			j.rulings = map[string]Ruling{c.AccountID: ruling}
		})
		v := j.decide(c, e)
		may := c.State == ledger.ChargeDeclined && ruling.Refused == "" && ruling.Try == c.Try && c.SendsDead(looked) && e.unexplained == ""
		var open []string
		for _, pi := range e.intents {
			if pi.Status != gateway.StatusCanceled && !isLive(pi) {
				open = append(open, pi.ID)
			}
			if isLive(pi) || pi.Try > c.Try {
				may = false
			}
		}
		switch {
		case v.absent != nil:
			t.Fatalf("absent: %+v", v)
		case (v.requeue || v.outcome == outcomeCleared) && !may:
			t.Fatalf("a try that must not be: %+v", v)
		case v.requeue && (j.act != ActRetry || len(open) > 0):
			t.Fatalf("a try beside an open payment: %+v", v)
		case v.outcome == outcomeCleared && (j.act != ActCancel || len(v.cancel) != len(open)):
			t.Fatalf("it cancels %v of %v", v.cancel, open)
		case v.outcome != outcomeCleared && len(v.cancel) > 0:
			t.Fatalf("it cancels what is not cleared: %+v", v)
		}
		if v.requeue || v.outcome == outcomeCleared {
			opened++
		}
		checkMove(t, &c, v)
	})
	if opened == 0 {
		t.Error("no try was ever opened: the test tries nothing")
	}
}

// What is open of every try is cancelled, what is cancelled already is not.
func TestEveryOpenPaymentOfAChargeIsCancelled(t *testing.T) {
	t.Parallel()
	c := attacked(ledger.ChargeDeclined)
	c.Try, c.PaymentIntent = 3, "pi_3"
	of := func(id string, try int, status string) gateway.PaymentIntent {
		return attackIntent(status, func(pi *gateway.PaymentIntent) { pi.ID, pi.Try, pi.Created = id, try, attackAt.Add(-time.Hour) })
	}
	j := attackJudge(ActCancel)
	j.rulings = map[string]Ruling{c.AccountID: {Try: 3}}
	c.LastSentAt = &[]time.Time{attackAt.Add(-time.Hour)}[0]
	v := j.decide(c, evidence{lookedAt: attackAt, intents: []gateway.PaymentIntent{
		of("pi_1", 1, gateway.StatusCanceled), of("pi_2", 2, gateway.StatusRequiresPaymentMethod),
		of("pi_3", 3, gateway.StatusRequiresPaymentMethod), of("pi_3b", 3, gateway.StatusRequiresConfirmation),
	}})
	var got []string
	for _, pi := range v.cancel {
		got = append(got, pi.ID)
	}
	slices.Sort(got)
	if v.outcome != outcomeCleared || !slices.Equal(got, []string{"pi_2", "pi_3", "pi_3b"}) {
		t.Errorf("%s cancels %v", v.outcome, got)
	}
}

// The second look opens a try for a charge whose payments are all cancelled; each single
// thing that is otherwise keeps it from that.
func TestEachThingThatKeepsATryFromBeingOpened(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ledger.OpenCharge, *evidence, *judge){
		"": func(*ledger.OpenCharge, *evidence, *judge) {},
		"open": func(_ *ledger.OpenCharge, e *evidence, _ *judge) {
			e.intents[0].Status = gateway.StatusRequiresPaymentMethod
		},
		"confirming":            func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.intents[0].Status = gateway.StatusRequiresAction },
		"under way":             func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.intents[0].Status = gateway.StatusProcessing },
		"paid":                  func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.intents[0].Status = gateway.StatusSucceeded },
		"unknown try":           func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.intents[0].Try = 2 },
		"another amount":        func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.intents[0].Amount = 999 },
		"cancelled by somebody": func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.cancelledByUs = nil },
		"unexplained":           func(_ *ledger.OpenCharge, e *evidence, _ *judge) { e.unexplained = "pi_9" },
		"leased":                func(c *ledger.OpenCharge, _ *evidence, _ *judge) { c.Leased = true },
		"just sent":             func(c *ledger.OpenCharge, _ *evidence, _ *judge) { c.LastSentAt = &attackAt },
		"no ruling":             func(_ *ledger.OpenCharge, _ *evidence, j *judge) { j.rulings = nil },
		"a rule": func(_ *ledger.OpenCharge, _ *evidence, j *judge) {
			j.rulings["a"] = Ruling{Try: 1, Refused: "lost_card"}
		},
		"another's order": func(_ *ledger.OpenCharge, _ *evidence, j *judge) { j.act = ActRequeue },
		"the first look":  func(_ *ledger.OpenCharge, _ *evidence, j *judge) { j.act = ActCancel },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, j := attacked(ledger.ChargeDeclined), attackJudge(ActRetry)
			c.PaymentIntent, j.rulings = "pi_1", map[string]Ruling{"a": {Try: 1}}
			e := evidence{lookedAt: attackAt, intents: []gateway.PaymentIntent{attackIntent(gateway.StatusCanceled, nil)}, cancelledByUs: []string{"pi_1"}}
			change(&c, &e, &j)
			if v := j.decide(c, e); v.requeue != (name == "") {
				t.Errorf("a try is opened: %t, %s %s", v.requeue, v.outcome, v.done)
			}
		})
	}
}
