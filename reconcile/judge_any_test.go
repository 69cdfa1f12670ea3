package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// anyCharge is a charge in any state that the ledger allows.
func anyCharge(t *rapid.T) ledger.OpenCharge {
	c := lost()
	c.State = rapid.SampledFrom(ledger.ChargeStates).Draw(t, "state")
	if c.State == ledger.ChargeSkipped {
		neverAsked(&c)
		return c
	}
	c.Try = rapid.IntRange(1, 3).Draw(t, "try")
	c.WindowOpenedAt = ago(time.Duration(rapid.IntRange(0, 200).Draw(t, "hours since the window opened")) * time.Hour)
	c.Sends = rapid.IntRange(0, 3).Draw(t, "sends")
	c.OpenSends = rapid.IntRange(0, c.Sends).Draw(t, "open sends")
	c.ServerErrors = rapid.IntRange(0, c.Sends).Draw(t, "server errors")
	c.Renewals = rapid.IntRange(0, 2).Draw(t, "renewals")
	c.Leased = rapid.Bool().Draw(t, "leased")
	c.LastSentAt = nil
	if c.Sends > 0 {
		since := looked.Sub(*c.WindowOpenedAt)
		c.LastSentAt = ago(time.Duration(rapid.Int64Range(0, int64(since)).Draw(t, "since the last send")))
	}
	switch c.State {
	case ledger.ChargeSucceeded, ledger.ChargeProcessing, ledger.ChargeActionRequired:
		c.PaymentIntent = "pi_own"
	}
	return c
}

// anyIntent is a PaymentIntent that may be the charge's.
func anyIntent(t *rapid.T, id string) gateway.PaymentIntent {
	return intent(id, rapid.SampledFrom([]string{
		gateway.StatusSucceeded, gateway.StatusProcessing, gateway.StatusRequiresAction, gateway.StatusRequiresCapture,
		gateway.StatusRequiresPaymentMethod, gateway.StatusRequiresConfirmation, gateway.StatusCanceled, "requires_blessing",
	}).Draw(t, "status"), func(pi *gateway.PaymentIntent) {
		pi.Try = rapid.IntRange(0, 4).Draw(t, "of try")
		pi.Created = *ago(time.Duration(rapid.IntRange(0, 4000).Draw(t, "minutes old")) * time.Minute)
		if rapid.IntRange(0, 4).Draw(t, "differs") == 0 {
			pi.Amount = 5000
		}
		if pi.Status == gateway.StatusRequiresPaymentMethod && rapid.Bool().Draw(t, "refused") {
			pi.DeclineCode = "insufficient_funds"
		}
	})
}

func anySet(t *rapid.T) (list []gateway.PaymentIntent) {
	ids := []string{"own", "b", "c", "d"}
	for _, id := range ids[:rapid.IntRange(0, len(ids)).Draw(t, "PaymentIntents")] {
		list = append(list, anyIntent(t, id))
	}
	return list
}

func anyJudge(t *rapid.T) judge {
	return newJudge(func(j *judge) {
		j.act = rapid.SampledFrom([]Act{ActSettle, ActRelease, ActRequeue}).Draw(t, "act")
		j.policy = rapid.SampledFrom([]Policy{PolicyCharge, PolicyHold}).Draw(t, "policy")
		j.absentAfter = time.Duration(rapid.IntRange(1, 100).Draw(t, "absent after")) * time.Hour
	})
}

func anyEvidence(t *rapid.T) evidence {
	e := evidence{intents: anySet(t), lookedAt: looked, customerGone: rapid.IntRange(0, 9).Draw(t, "gone") == 0}
	if rapid.IntRange(0, 9).Draw(t, "unexplained") == 0 {
		e.unexplained = "pi_9"
	}
	return e
}

var whole = cmp.AllowUnexported(verdict{})

// The order of the list never matters, and neither does what belongs to others.
func TestTheVerdictIsOfTheSetAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, c, e := anyJudge(t), anyCharge(t), anyEvidence(t)
		want := j.decide(c, e)
		again := e
		again.intents = rapid.Permutation(e.intents).Draw(t, "order")
		if diff := cmp.Diff(want, j.decide(c, again), whole); diff != "" {
			t.Fatalf("another order, another verdict:\n%s", diff)
		}
		foreign := paid("foreign", func(pi *gateway.PaymentIntent) {
			pi.BillingKey = rapid.SampledFrom([]string{"", "monthly-billing/2026-10/A", testKey + "/r2", "monthly-billing/2026-09/a"}).Draw(t, "key")
		})
		again.intents = append([]gateway.PaymentIntent{foreign}, e.intents...)
		if diff := cmp.Diff(want, j.decide(c, again), whole); diff != "" {
			t.Fatalf("another's payment, another verdict:\n%s", diff)
		}
	})
}

// What holds of every verdict, whatever was seen of whatever charge.
func TestEveryVerdictIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, c, e := anyJudge(t), anyCharge(t), anyEvidence(t)
		v := j.decide(c, e)
		matches := func(pi gateway.PaymentIntent) bool { return j.differs(&c, pi, nil) == "" }
		isPaid, live, unknownTry := false, false, false
		for _, pi := range e.intents {
			isPaid = isPaid || pi.Status == gateway.StatusSucceeded && matches(pi)
			live = live || isLive(pi)
			unknownTry = unknownTry || pi.Try > c.Try
		}
		renewed := v.absent != nil && v.absent.To == ledger.ChargePending
		settledAs := func(s ledger.ChargeState) bool { return v.found != nil && v.found.State == s }
		switch {
		case isPaid && !settledAs(succeeded) && c.State != succeeded:
			t.Fatalf("paid, and %+v", v)
		case settledAs(succeeded) && !isPaid:
			t.Fatalf("not paid, and %+v", v)
		case (live || unknownTry) && (v.absent != nil || v.requeue):
			t.Fatalf("a live one, or one of an unknown try, and %+v", v)
		case v.absent != nil && (c.State != pending && c.State != held || !c.WindowDead(looked)):
			t.Fatalf("absent, though decided or inside its window: %+v", v)
		case settledAs(declined) && v.paymentIntent != c.PaymentIntent && !c.SendsDead(looked):
			t.Fatalf("declined while a send may be under way: %+v", v)
		case renewed && j.act != ActRelease && c.OpenSends > 0 && c.LastSentAt.Add(j.absentAfter).After(looked):
			t.Fatalf("renewed too early: %+v", v)
		case renewed && j.act != ActRelease && (c.ServerErrors > 0 || c.Renewals > 0 || j.policy == PolicyHold):
			t.Fatalf("renewed without the person that it needs: %+v", v)
		case v.requeue && j.act != ActRequeue:
			t.Fatalf("a new try that nobody ordered: %+v", v)
		case v.found != nil && (v.absent != nil || v.requeue), v.absent != nil && v.requeue:
			t.Fatalf("two verdicts at once: %+v", v)
		}
		checkMove(t, &c, v)
	})
}

// checkMove makes sure that the ledger can carry a verdict out, and that it names
// the charge as it was seen.
func checkMove(t *rapid.T, c *ledger.OpenCharge, v verdict) {
	if f := v.found; f != nil && (!ledger.MayMove(f.From, f.State) || f.From != c.State || f.Try != c.Try || f.Sends != c.Sends || f.BillingKey != c.BillingKey) {
		t.Fatalf("a move that is none: %+v", f)
	}
	if a := v.absent; a != nil && (!ledger.MayMove(a.From, a.To) || a.From != c.State || a.Try != c.Try || a.Sends != c.Sends || !a.WindowOpenedAt.Equal(*c.WindowOpenedAt)) {
		t.Fatalf("a move that is none: %+v", a)
	}
}
