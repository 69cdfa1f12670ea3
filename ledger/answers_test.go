package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/ledger"
)

// answer is what came back for a permit.
func answer(p ledger.Permit, state ledger.ChargeState, paymentIntent string) ledger.Answer {
	return ledger.Answer{AccountID: p.AccountID, BillingKey: p.BillingKey, Try: p.Try, ClaimedAt: p.ClaimedAt, State: state, PaymentIntent: paymentIntent, RequestID: "req_" + p.AccountID}
}

func paid(p ledger.Permit, paymentIntent string) ledger.Answer {
	a := answer(p, ledger.ChargeSucceeded, paymentIntent)
	a.StripeStatus = "succeeded"
	return a
}

// unknown proves nothing; notExecuted proves that this send did nothing.
func unknown(p ledger.Permit) ledger.Answer {
	a := answer(p, "", "")
	a.Reason = "no_answer"
	return a
}

func notExecuted(p ledger.Permit) ledger.Answer {
	a := unknown(p)
	a.Reason, a.NotExecuted = "rate_limit", true
	return a
}

func rejected(p ledger.Permit) ledger.Answer {
	a := answer(p, ledger.ChargeRejected, "")
	a.Reason, a.NotExecuted = "resource_missing", true
	return a
}

// answersWorld is a run with charges under way.
type answersWorld struct {
	importWorld
	run     ledger.Run
	permits map[string]ledger.Permit
}

func newAnswersWorld(t *testing.T, accounts ...string) answersWorld {
	w := answersWorld{importWorld: newImportWorld(t), permits: map[string]ledger.Permit{}}
	w.run = w.claim()
	w.pending(w.run, accounts...)
	w.send()
	return w
}

// send claims every row that may be sent again.
func (w answersWorld) send() {
	w.t.Helper()
	for _, p := range w.importWorld.permits(w.run, oneSend) {
		w.permits[p.AccountID] = p
	}
}

func (w answersWorld) record(answers ...ledger.Answer) ledger.Recorded {
	w.t.Helper()
	rec, err := ledger.RecordAnswers(w.t.Context(), w.Pool, w.run, answers)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// charge is what answers may change of a row.
func (w answersWorld) charge(account string) string {
	w.t.Helper()
	return value[string](w.importWorld, `SELECT concat_ws(' ', state, reason, payment_intent, 'sends', sends, 'open', open_sends)
		FROM billing.charges WHERE account_id = $1`, account)
}

// events are the moves of a row.
func (w answersWorld) events(account string) string {
	w.t.Helper()
	return value[string](w.importWorld, `SELECT coalesce(string_agg(concat_ws(' ', try, from_state || '>' || to_state, cause, NULLIF(payment_intent, '')), ', ' ORDER BY id), '')
		FROM billing.charge_events WHERE account_id = $1`, account)
}

// move changes a state as somebody else did, with its event.
func (w answersWorld) move(account string, to ledger.ChargeState) {
	w.t.Helper()
	_, err := w.Pool.Exec(w.t.Context(), `WITH e AS (INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
			SELECT job, period, account_id, try, state, $2, 'person', 'anna' FROM billing.charges WHERE account_id = $1 RETURNING id)
		UPDATE billing.charges SET state = $2, last_event = e.id,
			payment_intent = CASE WHEN $2 IN ('processing', 'action_required') THEN 'pi_' || account_id END FROM e WHERE account_id = $1`, account, to)
	if err != nil {
		w.t.Fatal(err)
	}
}

// An answer that proves a state settles the charge, with its event and evidence;
// no send of its key is open any more.
func TestAnAnswerSettlesACharge(t *testing.T) {
	w := newAnswersWorld(t, "a", "b", "c", "d", "e")
	decline := answer(w.permits["d"], ledger.ChargeDeclined, "pi_d")
	decline.Reason, decline.DeclineCode, decline.AdviceCode = "card_declined", "insufficient_funds", "try_again_later"
	rec := w.record(paid(w.permits["a"], "pi_a"), answer(w.permits["b"], ledger.ChargeProcessing, "pi_b"),
		answer(w.permits["c"], ledger.ChargeActionRequired, "pi_c"), decline, rejected(w.permits["e"]))
	if rec.Unknown != 0 || rec.Late != 0 || rec.Findings != 0 || rec.Now.IsZero() || len(rec.Settled) != 5 {
		t.Errorf("recorded %+v", rec)
	}
	for account, want := range map[string][2]string{
		"a": {"succeeded pi_a", "pi_a"}, "b": {"processing pi_b", "pi_b"}, "c": {"action_required pi_c", "pi_c"},
		"d": {"declined card_declined pi_d", "pi_d"}, "e": {"rejected resource_missing", ""},
	} {
		got := value[string](w.importWorld, `SELECT concat_ws(' ', state, NULLIF(reason, ''), payment_intent) FROM billing.charges WHERE account_id = $1
			AND settled_at IS NOT NULL AND lease_until IS NULL AND open_sends = 0 AND request_id = 'req_' || account_id`, account)
		if got != want[0] {
			t.Errorf("%s is %q, want %q", account, got, want[0])
		}
		n := value[int](w.importWorld, `SELECT count(*) FROM billing.charge_events e JOIN billing.charges c ON c.last_event = e.id WHERE c.account_id = $1
			AND e.from_state = 'pending' AND e.to_state = c.state AND e.cause = 'answer' AND e.run_id = $2 AND e.payment_intent = $3
			AND e.request_id = c.request_id AND e.at = c.settled_at`, account, w.run.RunID, want[1])
		if n != 1 {
			t.Errorf("%s has no event that says why", account)
		}
	}
	if got := value[string](w.importWorld, `SELECT decline_code || ' ' || advice_code FROM billing.charges WHERE account_id = 'd'`); got != "insufficient_funds try_again_later" {
		t.Errorf("the decline is kept as %q", got)
	}
}

// Paid wins: evidence of a payment settles a charge in whatever state it is by
// then, and says so in the history.
func TestALatePaymentWinsOverEveryState(t *testing.T) {
	states := []ledger.ChargeState{ledger.ChargeProcessing, ledger.ChargeActionRequired, ledger.ChargeDeclined,
		ledger.ChargeRejected, ledger.ChargeReview, ledger.ChargeHeld, ledger.ChargeVoid}
	var ids []string
	for _, s := range states {
		ids = append(ids, string(s))
	}
	w := newAnswersWorld(t, ids...)
	for _, s := range states {
		w.move(string(s), s)
		// What is under way has a payment already, which is the one that is paid.
		rec := w.record(paid(w.permits[string(s)], "pi_"+string(s)))
		if rec.Late != 1 || rec.Settled[ledger.ChargeSucceeded] != 1 || rec.Findings != 0 {
			t.Errorf("%s: recorded %+v", s, rec)
		}
		if got, want := w.events(string(s)), fmt.Sprintf("1 pending>%s person, 1 %s>succeeded answer pi_%s", s, s, s); got != want {
			t.Errorf("%s: events %q, want %q", s, got, want)
		}
	}
}

// An answer that is late and proves no payment changes nothing.
func TestALateAnswerWithoutAPaymentChangesNothing(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	w.record(paid(w.permits["a"], "pi_a"))
	w.move("b", ledger.ChargeHeld)
	before := value[string](w.importWorld, `SELECT string_agg(c::text, E'\n' ORDER BY account_id) FROM billing.charges c`)
	for _, id := range []string{"a", "b"} {
		p := w.permits[id]
		rec := w.record(answer(p, ledger.ChargeDeclined, "pi_x"))
		rec2 := w.record(unknown(p))
		rec3 := w.record(rejected(p))
		if rec.Late+rec2.Late+rec3.Late != 3 || len(rec.Settled)+len(rec2.Settled)+len(rec3.Settled) != 0 {
			t.Errorf("%s: recorded %+v, %+v, %+v", id, rec, rec2, rec3)
		}
	}
	if diff := cmp.Diff(before, value[string](w.importWorld, `SELECT string_agg(c::text, E'\n' ORDER BY account_id) FROM billing.charges c`)); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}

// A second, different payment for one debt is a finding that needs a person; the
// same payment again is none.
func TestASecondPaymentIsAFinding(t *testing.T) {
	w := newAnswersWorld(t, "a")
	w.record(paid(w.permits["a"], "pi_1"))
	for range 2 {
		if rec := w.record(paid(w.permits["a"], "pi_1")); rec.Findings != 0 || len(rec.Settled) != 0 {
			t.Errorf("the same payment again: %+v", rec)
		}
	}
	if rec := w.record(paid(w.permits["a"], "pi_2")); rec.Findings != 1 || len(rec.Settled) != 0 {
		t.Errorf("another payment: %+v, want a finding", rec)
	}
	if rec := w.record(paid(w.permits["a"], "pi_2")); rec.Findings != 0 {
		t.Errorf("the other payment again: %+v, want no further finding", rec)
	}
	list, err := ledger.OpenFindings(t.Context(), w.Pool, testJob, testPeriod)
	if err != nil || len(list) != 1 || list[0].Kind != "duplicate" || list[0].Severity != ledger.SeverityAct ||
		list[0].PaymentIntent != "pi_2" || list[0].AccountID != "a" || list[0].Currency != "usd" {
		t.Errorf("findings %+v, %v", list, err)
	}
	if got := w.charge("a"); got != "succeeded  pi_1 sends 1 open 0" {
		t.Errorf("the charge is %q", got)
	}
}

// A payment beside another that is under way is a finding too: both may be paid.
func TestAPaymentBesideOneUnderWayIsAFinding(t *testing.T) {
	w := newAnswersWorld(t, "a")
	w.record(answer(w.permits["a"], ledger.ChargeProcessing, "pi_1"))
	if rec := w.record(paid(w.permits["a"], "pi_2")); rec.Findings != 1 || rec.Settled[ledger.ChargeSucceeded] != 1 {
		t.Errorf("recorded %+v, want it paid and a finding", rec)
	}
}

// A group whose commit was not seen is written again, and counts nothing the
// second time: a send that is open stays open.
func TestAnswersThatAreWrittenTwiceCountOnce(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	notSent := unknown(w.permits["b"])
	notSent.NotSent, notSent.NotExecuted = true, true
	w.record(notSent)
	w.record(notSent)
	if got := w.charge("b"); got != "pending  sends 0 open 0" {
		t.Errorf("a permit that was given back twice: %q", got)
	}
	w.record(unknown(w.permits["a"])) // may have been executed
	w.send()
	limited := notExecuted(w.permits["a"])
	w.record(limited)
	w.record(limited)
	if got := w.charge("a"); got != "pending rate_limit sends 2 open 1" {
		t.Errorf("after a lost answer, and a 429 that was written twice: %q", got)
	}
	w.send()
	w.record(rejected(w.permits["a"]))
	if got := w.charge("a"); got != "pending resource_missing sends 3 open 1" {
		t.Errorf("after a refusal beside the open send: %q", got)
	}
}

// Two answers for one charge in one group are both evidence, in either order.
func TestTwoAnswersForOneChargeInOneGroup(t *testing.T) {
	w := newAnswersWorld(t, "a", "b", "c", "d")
	decline := func(id string) ledger.Answer { return answer(w.permits[id], ledger.ChargeDeclined, "pi_"+id) }
	rec := w.record(decline("a"), paid(w.permits["a"], "pi_a"), paid(w.permits["b"], "pi_b"), decline("b"),
		paid(w.permits["c"], "pi_c"), paid(w.permits["c"], "pi_c"), paid(w.permits["d"], "pi_d"), paid(w.permits["d"], "pi_other"))
	for _, id := range []string{"a", "b", "c", "d"} {
		if got, want := w.charge(id), "succeeded  pi_"+id+" sends 1 open 0"; got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if rec.Findings != 1 {
		t.Errorf("recorded %+v; want a finding for the second payment of d alone", rec)
	}
}

// openTry closes the present try of a declined charge and opens the next.
func (w answersWorld) openTry(account string) {
	w.t.Helper()
	for _, sql := range []string{
		`INSERT INTO billing.charge_tries (job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer,
			window_opened_at, sends, open_sends, server_errors, last_sent_at, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id, settled_at)
		SELECT job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer,
			window_opened_at, sends, open_sends, server_errors, last_sent_at, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id, settled_at
		FROM billing.charges WHERE account_id = $1`,
		`WITH e AS (INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
			SELECT job, period, account_id, try + 1, state, 'pending', 'person', 'anna' FROM billing.charges WHERE account_id = $1 RETURNING id)
		UPDATE billing.charges SET state = 'pending', reason = '', try = try + 1, idempotency_key = billing_key || '/r' || (try + 1), payment_intent = NULL,
			settled_at = NULL, sends = 0, open_sends = 0, run_sends = 0, last_event = e.id FROM e WHERE account_id = $1`,
	} {
		if _, err := w.Pool.Exec(w.t.Context(), sql, account); err != nil {
			w.t.Fatal(err)
		}
	}
}

// An answer to a try that was closed settles nothing of the present one, unless
// it was paid: then the debt is paid, and what the present try pays is a finding.
func TestAnAnswerToAClosedTry(t *testing.T) {
	w := newAnswersWorld(t, "a")
	first := w.permits["a"]
	w.record(answer(first, ledger.ChargeDeclined, "pi_1"))
	w.openTry("a")
	w.send()
	second := w.permits["a"]
	if second.Try != 2 || second.IdempotencyKey != ledger.TryKey(first.BillingKey, 2) {
		t.Fatalf("the second try is %+v", second)
	}
	for _, late := range []ledger.Answer{answer(first, ledger.ChargeDeclined, "pi_1"), rejected(first), notExecuted(first)} {
		if rec := w.record(late); rec.Late != 1 {
			t.Errorf("%+v: recorded %+v", late, rec)
		}
		if got := w.charge("a"); got != "pending  sends 1 open 1" {
			t.Errorf("after a late %s of the first try the charge is %q", late.State, got)
		}
	}
	w.record(paid(first, "pi_1"))
	if got := w.events("a"); got != "1 pending>declined answer pi_1, 2 declined>pending person, 1 pending>succeeded answer pi_1" {
		t.Errorf("events %q", got)
	}
	if rec := w.record(paid(second, "pi_2")); rec.Findings != 1 {
		t.Errorf("the second try was paid too: %+v, want a finding", rec)
	}
}

// A PaymentIntent that pays for another debt proves nothing for this one, and
// does not cost the others of its group their answer.
func TestOneBadAnswerDoesNotCostTheOthersTheirs(t *testing.T) {
	w := newAnswersWorld(t, "a", "b", "c", "d", "e")
	w.record(paid(w.permits["a"], "pi_a"))
	rec := w.record(paid(w.permits["b"], "pi_b"), paid(w.permits["c"], "pi_a"), answer(w.permits["d"], ledger.ChargeDeclined, "pi_d"), unknown(w.permits["e"]))
	if rec.Settled[ledger.ChargeSucceeded] != 1 || rec.Settled[ledger.ChargeDeclined] != 1 || rec.Unknown != 2 || rec.Findings != 1 {
		t.Errorf("recorded %+v", rec)
	}
	for account, want := range map[string]string{
		"b": "succeeded  pi_b sends 1 open 0", "c": "pending payment_intent_taken sends 1 open 1",
		"d": "declined  pi_d sends 1 open 0", "e": "pending no_answer sends 1 open 1",
	} {
		if got := w.charge(account); got != want {
			t.Errorf("%s is %q, want %q", account, got, want)
		}
	}
	list, err := ledger.OpenFindings(t.Context(), w.Pool, testJob, testPeriod)
	if err != nil || len(list) != 1 || list[0].Kind != "payment_intent_taken" || list[0].AccountID != "c" || list[0].PaymentIntent != "pi_a" {
		t.Errorf("findings %+v, %v", list, err)
	}
}

// Two answers of one group with the same PaymentIntent: one debt has it.
func TestOnePaymentIntentPaysOneDebtOfAGroup(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	rec := w.record(paid(w.permits["a"], "pi_same"), paid(w.permits["b"], "pi_same"))
	if rec.Settled[ledger.ChargeSucceeded] != 1 || rec.Unknown != 1 || rec.Findings != 1 {
		t.Errorf("recorded %+v", rec)
	}
	if n := value[int](w.importWorld, `SELECT count(*) FROM billing.charges WHERE payment_intent = 'pi_same'`); n != 1 {
		t.Errorf("%d charges are paid by it", n)
	}
}

// A refusal rejects a charge only if no other send of it may have been executed.
func TestARefusalCountsOnlyWithoutAnotherOpenSend(t *testing.T) {
	w := newAnswersWorld(t, "open", "closed")
	w.record(unknown(w.permits["open"]), notExecuted(w.permits["closed"]))
	w.send()
	w.record(rejected(w.permits["open"]), rejected(w.permits["closed"]))
	if got := w.charge("closed"); got != "rejected resource_missing sends 2 open 0" {
		t.Errorf("after a 429 and a refusal the charge is %q", got)
	}
	if got := w.charge("open"); got != "pending resource_missing sends 2 open 1" {
		t.Errorf("after a lost answer and a refusal the charge is %q", got)
	}
	w.record(paid(w.permits["open"], "pi_open"))
	if got := w.charge("open"); got != "succeeded  pi_open sends 2 open 0" {
		t.Errorf("when the lost answer turns up the charge is %q", got)
	}
}

// What proves nothing is counted: sends that may have been executed stay open,
// those that never left are taken back, and the row rests.
func TestUnknownAnswersAreCounted(t *testing.T) {
	w := newAnswersWorld(t, "lost", "limited", "notsent", "broken")
	resting := notExecuted(w.permits["limited"])
	resting.Wait = time.Minute
	notSent := unknown(w.permits["notsent"])
	notSent.Reason, notSent.NotSent, notSent.NotExecuted = "permit_expired", true, true
	broken := unknown(w.permits["broken"])
	broken.Reason, broken.ServerError = "server_error", true
	rec := w.record(unknown(w.permits["lost"]), resting, notSent, broken)
	if rec.Unknown != 3 || rec.Late != 0 || len(rec.Settled) != 0 {
		t.Errorf("recorded %+v", rec)
	}
	for account, want := range map[string]string{
		"lost": "pending no_answer sends 1 open 1", "limited": "pending rate_limit sends 1 open 0",
		"notsent": "pending  sends 0 open 0", "broken": "pending server_error sends 1 open 1",
	} {
		if got := w.charge(account); got != want {
			t.Errorf("%s is %q, want %q", account, got, want)
		}
	}
	if n := value[int](w.importWorld, `SELECT server_errors FROM billing.charges WHERE account_id = 'broken'`); n != 1 {
		t.Errorf("%d server errors are counted", n)
	}
	w.send()
	if w.permits["limited"].Sends != 1 || w.permits["lost"].Sends != 2 || w.permits["notsent"].Sends != 1 || w.permits["notsent"].RunSends != 1 {
		t.Errorf("sent again were %+v", w.permits)
	}
	w.Advance(61 * time.Second)
	w.mustIn(w.run.Heartbeat)
	w.send()
	if w.permits["limited"].Sends != 2 || w.permits["limited"].RunSends != 1 {
		t.Errorf("after its rest: %+v", w.permits["limited"])
	}
}

// An answer that an old owner brings does not free a row that a new owner is
// sending.
func TestAnOldOwnersAnswerLeavesTheLeaseOfTheNewOne(t *testing.T) {
	w := newAnswersWorld(t, "a")
	old, first := w.run, w.permits["a"]
	w.Advance(testLease + time.Second)
	w.run = w.claim()
	w.send()
	if _, err := ledger.RecordAnswers(t.Context(), w.Pool, old, []ledger.Answer{unknown(first)}); err != nil {
		t.Fatal(err)
	}
	if leased, err := ledger.HasLeases(t.Context(), w.Pool, testJob, testPeriod); err != nil || !leased {
		t.Errorf("leased: %v, %v; want it as it was", leased, err)
	}
	if got := w.charge("a"); got != "pending  sends 2 open 2" {
		t.Errorf("the charge is %q", got)
	}
}

// Whichever of two answers is written first, paid wins.
func TestRacingAnswersEndPaid(t *testing.T) {
	ids := accounts(30)
	w := newAnswersWorld(t, ids...)
	together(2*len(ids), func(i int) {
		p := w.permits[ids[i/2]]
		a := paid(p, "pi_"+p.AccountID)
		if i%2 == 0 {
			a = answer(p, ledger.ChargeDeclined, "pi_"+p.AccountID)
		}
		if _, err := ledger.RecordAnswers(t.Context(), w.Pool, w.run, []ledger.Answer{a}); err != nil {
			t.Error(err)
		}
	})
	if n := value[int](w.importWorld, `SELECT count(*) FROM billing.charges WHERE state = 'succeeded'`); n != len(ids) {
		t.Errorf("%d of %d charges are paid", n, len(ids))
	}
	if n := value[int](w.importWorld, `SELECT count(*) FROM billing.findings`); n != 0 {
		t.Errorf("%d findings", n)
	}
}
