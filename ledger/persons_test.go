package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

func (w importWorld) void(accounts ...string) []string {
	w.t.Helper()
	var moved map[string]bool
	w.mustIn(func(ctx context.Context, tx pgx.Tx) (err error) {
		moved, err = ledger.Void(ctx, tx, testJob, testPeriod, accounts, "anna", "sold")
		return err
	})
	return slices.Sorted(maps.Keys(moved))
}

// A person withdraws what was never sent, or is known not to be paid; nothing else.
func TestOnlyWhatTakesNoMoneyIsVoided(t *testing.T) {
	w := newImportWorld(t)
	var all []string
	for _, s := range ledger.ChargeStates {
		sends := 1
		if s == ledger.ChargeSkipped {
			sends = 0
		}
		w.put(testPeriod, s, sends, string(s))
		all = append(all, string(s))
	}
	w.put(testPeriod, ledger.ChargePending, 0, "unsent", "leased")
	w.exec(`UPDATE billing.charges SET lease_until = billing.now() + interval '20 seconds' WHERE account_id = 'leased'`)
	w.put("2026-09", ledger.ChargeHeld, 1, "other-period")
	got := w.void(append(all, "unsent", "leased", "other-period", "nobody")...)
	if want := []string{"declined", "held", "rejected", "skipped", "unsent"}; !slices.Equal(got, want) {
		t.Errorf("voided %v, want %v", got, want)
	}
	for _, account := range got {
		events, from := w.events(account), account
		if account == "unsent" {
			from = "pending"
		}
		if c := w.seen(account); c.State != ledger.ChargeVoid || !slices.Equal(events, []string{from + ">void person anna "}) {
			t.Errorf("%s is %s, events %v", account, c.State, events)
		}
	}
	if n := value[int](w, `SELECT count(*) FROM billing.charges WHERE state = 'void'`); n != 6 {
		t.Errorf("%d are void", n)
	}
	if again := w.void(got...); len(again) > 0 {
		t.Errorf("the second time %v", again)
	}
}

// requeueOf asks for a charge anew, for another amount of another customer.
func requeueOf(c ledger.OpenCharge) ledger.Requeue {
	body := "amount=1200&customer=cus_new"
	return ledger.Requeue{
		Seen: c, Billable: ledger.Billable{AccountID: c.AccountID, Amount: "12.00", Currency: "usd", StripeCustomer: "cus_new", Name: "New"},
		Decision: ledger.Decision{State: ledger.ChargePending, Currency: "usd", AmountMinor: 1200, BillingKey: c.BillingKey, Body: body, BodySHA256: sha256.Sum256([]byte(body))},
	}
}

func (w importWorld) requeue(run ledger.Run, q ledger.Requeue, lookedAt time.Time) (opened bool) {
	w.t.Helper()
	w.mustIn(func(ctx context.Context, tx pgx.Tx) (err error) {
		opened, err = run.Requeue(ctx, tx, q, "anna", "mended", lookedAt)
		return err
	})
	return opened
}

// A new try has a key of its own, begins without sends, and leaves the one before
// in the history as it was.
func TestRequeueClosesATryAndOpensTheNext(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.put(testPeriod, ledger.ChargeRejected, 3, "a")
	w.exec(`UPDATE billing.charges SET server_errors = 1, renewals = 1, request_id = 'req_1'`)
	lookedAt := w.Now()
	before := w.seen("a")
	if !w.requeue(run, requeueOf(before), lookedAt) {
		t.Fatal("no try was opened")
	}
	got := value[string](w, `SELECT concat_ws(' ', state, try, idempotency_key, body, amount, amount_minor, stripe_customer, name, sends, open_sends, server_errors,
		renewals, coalesce(payment_intent, '-'), coalesce(last_sent_at::text, '-'), coalesce(settled_at::text, '-'), request_id) FROM billing.charges`)
	if want := "pending 2 " + keyOf("a") + "/r2 amount=1200&customer=cus_new 12.00 1200 cus_new New 0 0 0 0 - - - "; got != want {
		t.Errorf("the charge is\n%s, want\n%s", got, want)
	}
	if c := w.seen("a"); !c.WindowOpenedAt.Equal(lookedAt.Add(-10 * time.Minute)) {
		t.Errorf("the window opened %s, the look at %s", c.WindowOpenedAt, lookedAt)
	}
	closed := value[string](w, `SELECT concat_ws(' ', try, idempotency_key, body, stripe_customer, sends, server_errors, renewals, state, reason, request_id)
		FROM billing.charge_tries WHERE window_opened_at = $1 AND last_sent_at = $2`, before.WindowOpenedAt, before.LastSentAt)
	if want := "1 " + keyOf("a") + " x cus_a 3 1 1 rejected because req_1"; closed != want {
		t.Errorf("the closed try is\n%s, want\n%s", closed, want)
	}
	if events := w.events("a"); !slices.Equal(events, []string{"rejected>pending person anna "}) {
		t.Errorf("events %v", events)
	}
	if w.requeue(run, requeueOf(before), lookedAt) {
		t.Error("the same look opened two tries")
	}
	tries, err := ledger.TriesOf(t.Context(), w.Pool, testJob, testPeriod, []string{"a", "b"})
	if want := (ledger.TrySeen{AccountID: "a", Try: 1, StripeCustomer: "cus_a"}); err != nil || len(tries) != 1 || tries[0] != want {
		t.Errorf("closed tries %+v, %v", tries, err)
	}
	if permits := w.permits(run, oneSend); len(permits) != 1 || permits[0].IdempotencyKey != keyOf("a")+"/r2" {
		t.Errorf("permits %+v", permits)
	}
}

// What was never a request gets its first try, under the billing key.
func TestRequeueOpensTheFirstTryOfWhatWasNeverARequest(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.exec(`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, state, reason, recorded_by, created_at)
		VALUES ('monthly-billing', '2026-10', 'a', $1, 10, 'usd', 'skipped', 'paused', gen_random_uuid(), billing.now())`, keyOf("a"))
	if !w.requeue(run, requeueOf(w.seen("a")), w.Now()) {
		t.Fatal("no try was opened")
	}
	got := value[string](w, `SELECT concat_ws(' ', state, try, idempotency_key, (SELECT count(*) FROM billing.charge_tries)) FROM billing.charges`)
	if want := "pending 1 " + keyOf("a") + " 0"; got != want {
		t.Errorf("the charge is %q, want %q", got, want)
	}
}

// A charge that is not what the look saw, or an old look, opens nothing and closes
// nothing, so that the next look can.
func TestRequeueOfWhatChangedLeavesNothingBehind(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.put(testPeriod, ledger.ChargeRejected, 1, "a")
	for name, test := range map[string]struct {
		change func(*ledger.OpenCharge)
		age    time.Duration
	}{
		"old look":       {func(*ledger.OpenCharge) {}, ledger.MaxLookAge + time.Second},
		"another state":  {func(c *ledger.OpenCharge) { c.State = ledger.ChargeVoid }, 0},
		"another send":   {func(c *ledger.OpenCharge) { c.Sends = 0 }, 0},
		"another window": {func(c *ledger.OpenCharge) { later := c.WindowOpenedAt.Add(time.Second); c.WindowOpenedAt = &later }, 0},
		"another try":    {func(c *ledger.OpenCharge) { c.Try = 2 }, 0},
	} {
		c := w.seen("a")
		test.change(&c)
		if w.requeue(run, requeueOf(c), w.Now().Add(-test.age)) || value[int](w, `SELECT count(*) FROM billing.charge_tries`) > 0 || len(w.events("a")) > 0 {
			t.Errorf("%s: something was left", name)
		}
	}
	if !w.requeue(run, requeueOf(w.seen("a")), w.Now()) {
		t.Error("the next look opened no try")
	}
}

func pin(w importWorld, id ledger.Identity) error {
	return w.in(func(ctx context.Context, tx pgx.Tx) error { return ledger.PinIdentity(ctx, tx, id) })
}

// A ledger belongs to one Stripe account and mode as soon as it has a charge; until
// then a mistake can be mended.
func TestTheLedgerKnowsItsStripeAccount(t *testing.T) {
	w := newImportWorld(t)
	own := ledger.Identity{AccountID: "acct_1", PinnedBy: "anna"}
	other, live := ledger.Identity{AccountID: "acct_2"}, ledger.Identity{AccountID: "acct_1", Livemode: true}
	if err := ledger.CheckIdentity(t.Context(), w.Pool, own); err != nil {
		t.Errorf("nobody's ledger: %v", err)
	}
	for _, id := range []ledger.Identity{other, own} {
		if err := pin(w, id); err != nil {
			t.Fatalf("without charges: %v", err)
		}
	}
	w.put(testPeriod, ledger.ChargePending, 0, "a")
	for _, id := range []ledger.Identity{other, live} {
		var mismatch *ledger.IdentityError
		if err := ledger.CheckIdentity(t.Context(), w.Pool, id); !errors.As(err, &mismatch) || mismatch.Pinned.AccountID != "acct_1" || mismatch.Given.Livemode != id.Livemode {
			t.Errorf("check %+v: %v", id, err)
		}
		if err := pin(w, id); !errors.As(err, &mismatch) {
			t.Errorf("pin %+v: %v", id, err)
		}
	}
	if err := ledger.CheckIdentity(t.Context(), w.Pool, own); err != nil {
		t.Errorf("its own: %v", err)
	}
	if err := pin(w, own); err != nil {
		t.Errorf("its own, again: %v", err)
	}
}
