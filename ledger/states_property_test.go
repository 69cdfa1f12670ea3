package ledger_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger"
)

// reachable are the states that a charge can come to from one, by any moves.
func reachable(from ...ledger.ChargeState) map[ledger.ChargeState]bool {
	seen, next := map[ledger.ChargeState]bool{}, from
	for len(next) > 0 {
		s := next[0]
		if next = next[1:]; seen[s] {
			continue
		}
		seen[s] = true
		for _, to := range ledger.ChargeStates {
			if ledger.MayMove(s, to) {
				next = append(next, to)
			}
		}
	}
	return seen
}

// Every state is one that a charge can come to from those in which it is recorded,
// and nothing leads away from money that was taken. From everywhere else a charge can
// come to be paid in one move, because paid wins.
func TestEveryStateIsReachedAndOnlyPaidIsFinal(t *testing.T) {
	t.Parallel()
	seen := reachable(ledger.ChargePending, ledger.ChargeSkipped)
	for _, s := range ledger.ChargeStates {
		if !seen[s] {
			t.Errorf("no charge ever comes to %s", s)
		}
		leads := slices.ContainsFunc(ledger.ChargeStates, func(to ledger.ChargeState) bool { return ledger.MayMove(s, to) })
		if leads != (s != ledger.ChargeSucceeded) {
			t.Errorf("%s leads on: %v", s, leads)
		}
		if s != ledger.ChargeSucceeded && !ledger.MayMove(s, ledger.ChargeSucceeded) {
			t.Errorf("what is %s and was paid can't be written down as paid", s)
		}
	}
}

// A charge gets back to pending, from where it may be sent, only out of states that
// prove that nobody is paying: never while money may be on its way or a person must
// look, and never once it is paid.
func TestNothingIsSentAgainWhileItMayBePaid(t *testing.T) {
	t.Parallel()
	for _, s := range ledger.ChargeStates {
		mayBePaid := slices.Contains([]ledger.ChargeState{
			ledger.ChargeSucceeded, ledger.ChargeProcessing, ledger.ChargeActionRequired, ledger.ChargeReview,
		}, s)
		if again := ledger.MayMove(s, ledger.ChargePending); again == mayBePaid {
			t.Errorf("%s may become pending: %v", s, again)
		}
	}
}

// What a person must look at gets back to pending only by way of held or void, where
// a person decides again.
func TestFromReviewOnlyAPersonLeadsBackToPending(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at, path := ledger.ChargeReview, []ledger.ChargeState{ledger.ChargeReview}
		for at != ledger.ChargePending && at != ledger.ChargeSucceeded && len(path) < 20 {
			at = rapid.SampledFrom(slices.DeleteFunc(slices.Clone(ledger.ChargeStates),
				func(to ledger.ChargeState) bool { return !ledger.MayMove(at, to) })).Draw(t, "to")
			path = append(path, at)
		}
		if at == ledger.ChargePending && !slices.Contains(path, ledger.ChargeHeld) && !slices.Contains(path, ledger.ChargeVoid) {
			t.Errorf("from review to pending without a person: %v", path)
		}
	})
}

// No move stands in the table twice, each says what it needs, and none is between
// states that do not exist.
func TestTheTableOfMovesIsPlain(t *testing.T) {
	t.Parallel()
	type move struct{ from, to ledger.ChargeState }
	seen := map[move]bool{}
	for _, tr := range ledger.Transitions {
		m := move{tr.From, tr.To}
		if seen[m] || tr.On == "" || !slices.Contains(ledger.ChargeStates, tr.From) || !slices.Contains(ledger.ChargeStates, tr.To) {
			t.Errorf("%+v", tr)
		}
		seen[m] = true
	}
}
