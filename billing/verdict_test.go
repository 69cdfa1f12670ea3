package billing

import (
	"errors"
	"testing"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// Every state of the ledger has one verdict, and only a done period in which
// nobody is needed has none.
func TestVerdictOfEveryState(t *testing.T) {
	t.Parallel()
	sum := func(state ledger.ChargeState, reason string) ledger.Summary {
		return ledger.Summary{Sums: []ledger.StateSum{{State: state, Reason: reason, Currency: "usd", Count: 1}}}
	}
	with := func(change func(*ledger.Summary)) ledger.Summary {
		s := sum(ledger.ChargeSucceeded, "")
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		state   ledger.RunState
		summary ledger.Summary
		want    string
	}{
		"paid":                      {ledger.RunDone, sum(ledger.ChargeSucceeded, ""), ""},
		"nothing at all":            {ledger.RunDone, ledger.Summary{}, ""},
		"a debit under way":         {ledger.RunDone, sum(ledger.ChargeProcessing, ""), ""},
		"the customer must act":     {ledger.RunDone, sum(ledger.ChargeActionRequired, ""), ""},
		"declined":                  {ledger.RunDone, sum(ledger.ChargeDeclined, ""), ""},
		"void":                      {ledger.RunDone, sum(ledger.ChargeVoid, ""), ""},
		"skipped":                   {ledger.RunDone, sum(ledger.ChargeSkipped, SkipNoPaymentMethod), ""},
		"skipped, unusable":         {ledger.RunDone, sum(ledger.ChargeSkipped, SkipBadAmount), "person"},
		"rejected":                  {ledger.RunDone, sum(ledger.ChargeRejected, "x"), "person"},
		"review":                    {ledger.RunDone, sum(ledger.ChargeReview, "x"), "person"},
		"held":                      {ledger.RunDone, sum(ledger.ChargeHeld, "x"), "person"},
		"a finding":                 {ledger.RunDone, with(func(s *ledger.Summary) { s.FindingsToAct = 1 }), "person"},
		"late invoice":              {ledger.RunDone, with(func(s *ledger.Summary) { s.Unrecorded = 1 }), "person"},
		"changed invoice":           {ledger.RunDone, with(func(s *ledger.Summary) { s.Changed = 1 }), "person"},
		"two rows for one account":  {ledger.RunDone, with(func(s *ledger.Summary) { s.Duplicates = 1 }), "input"},
		"pending inside":            {ledger.RunFailed, sum(ledger.ChargePending, ""), "unsettled"},
		"pending past":              {ledger.RunFailed, with(func(s *ledger.Summary) { *s = sum(ledger.ChargePending, ""); s.Expired = 1 }), "unsettled"},
		"paid but not finished":     {ledger.RunFailed, sum(ledger.ChargeSucceeded, ""), "unsettled"},
		"not recorded":              {ledger.RunFailed, ledger.Summary{Unrecorded: 5}, "unsettled"},
		"rejected and not finished": {ledger.RunFailed, sum(ledger.ChargeRejected, "x"), "person"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := kindOf(Verdict("2026-10", c.state, c.summary)); got != c.want {
				t.Errorf("verdict %q, want %q", got, c.want)
			}
		})
	}
}

func kindOf(err error) string {
	var person *PersonError
	var unsettled *UnsettledError
	var input *InputError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &person):
		return "person"
	case errors.As(err, &unsettled):
		return "unsettled"
	case errors.As(err, &input):
		return "input"
	}
	return err.Error()
}

func known() gateway.Answer { return gateway.Answer{Verdict: gateway.VerdictKnown, HTTPStatus: 200} }
func refusal() gateway.Answer {
	return gateway.Answer{Verdict: gateway.VerdictRefused, HTTPStatus: 400}
}
func lost() gateway.Answer { return gateway.Answer{Verdict: gateway.VerdictUnknown} }

// A run stops when its first twenty sends are all refused, or five in a hundred
// of the last four hundred; single refusals are the accounts' matter.
func TestRefusalsThatLookLikeAWrongAccount(t *testing.T) {
	t.Parallel()
	send := func(n int, answer func(i int) gateway.Answer) (int, error) {
		tr := &trouble{}
		for i := range n {
			if err := tr.observe(answer(i)); err != nil {
				return i + 1, err
			}
		}
		return n, nil
	}
	if n, err := send(100, func(int) gateway.Answer { return refusal() }); n != 20 || err == nil {
		t.Errorf("all refused: stopped after %d, %v", n, err)
	}
	every := func(k int) func(int) gateway.Answer {
		return func(i int) gateway.Answer {
			if i%k == k-1 {
				return refusal()
			}
			return known()
		}
	}
	if n, err := send(5000, every(25)); err != nil {
		t.Errorf("4 in a hundred refused: stopped after %d, %v", n, err)
	}
	if n, err := send(5000, every(20)); n != 400 || err == nil {
		t.Errorf("5 in a hundred refused: stopped after %d, %v", n, err)
	}
}

// Twenty answers in a row that prove nothing are an outage; one that does ends
// it. 429 and permits that ended here are none.
func TestWhatIsAnOutage(t *testing.T) {
	t.Parallel()
	tr := &trouble{}
	feed := func(n int, a gateway.Answer) bool {
		for range n {
			if err := tr.observe(a); err != nil {
				t.Fatal(err)
			}
		}
		_, down := tr.outage()
		return down
	}
	if feed(19, lost()) {
		t.Error("19 lost answers are an outage already")
	}
	if feed(100, gateway.Answer{Verdict: gateway.VerdictUnknown, HTTPStatus: 429}) {
		t.Error("429 counts as an outage")
	}
	if feed(100, gateway.Answer{Verdict: gateway.VerdictNotSent, NotSent: true, Reason: gateway.ReasonPermitExpired}) {
		t.Error("permits that ended count as an outage")
	}
	if feed(100, gateway.Answer{Verdict: gateway.VerdictUnknown, HTTPStatus: 500, Replayed: true}) {
		t.Error("old failures that are replayed count as an outage")
	}
	if !feed(1, lost()) {
		t.Error("20 lost answers are no outage")
	}
	if feed(1, known()) {
		t.Error("an answer does not end the outage")
	}
}

// Postgres's clock has jumped only if it moved otherwise than both of this
// process's clocks, as far as two minutes allow.
func TestAClockThatJumps(t *testing.T) {
	t.Parallel()
	here := time.Now()
	c := clock{postgres: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), here: here}
	later := here.Add(time.Hour)
	for moved, want := range map[time.Duration]bool{
		time.Hour: false, time.Hour + time.Minute: false, time.Hour - time.Minute: false,
		time.Hour + 3*time.Minute: true, -time.Hour: true, 25 * time.Hour: true,
	} {
		if got := c.check(c.postgres.Add(moved), later) != nil; got != want {
			t.Errorf("after an hour here and %s there: jumped is %v", moved, got)
		}
	}
	// Suspended for a day: the monotonic clock stood still, the wall clock agrees
	// with Postgres.
	wall := here.Round(0).Add(25 * time.Hour)
	if err := c.check(c.postgres.Add(25*time.Hour), wall); err != nil {
		t.Errorf("a suspended machine: %v", err)
	}
}
