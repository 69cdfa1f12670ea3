package ledger_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// put makes charges of a period that were sent a number of times and are in a
// state, whose windows opened 25 hours ago.
func (w importWorld) put(period ledger.Period, state ledger.ChargeState, sends int, accounts ...string) {
	w.t.Helper()
	_, err := w.Pool.Exec(w.t.Context(), `
		INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, reason, idempotency_key, body, body_sha256,
			stripe_customer, window_opened_at, sends, open_sends, last_sent_at, payment_intent, settled_at, recorded_by, created_at)
		SELECT 'monthly-billing', $1::text, a, k, 10, 'usd', 1000, $2::text, 'because', k, 'x', sha256('x'), 'cus_' || a, at, $3::int,
			CASE WHEN $2 IN ('pending', 'held') THEN $3 ELSE 0 END, CASE WHEN $3 > 0 THEN at + interval '1 hour' END,
			CASE WHEN $2 IN ('succeeded', 'processing', 'action_required') THEN 'pi_' || $1 || a END,
			CASE WHEN $2 NOT IN ('pending', 'skipped') THEN at + interval '2 hours' END, gen_random_uuid(), at
		FROM (SELECT a, 'monthly-billing/' || $1 || '/' || a AS k, billing.now() - interval '25 hours' AS at FROM unnest($4::text[]) a) rows`,
		period, state, sends, accounts)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w importWorld) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w importWorld) seen(account string) ledger.OpenCharge {
	w.t.Helper()
	key := keyOf(account)
	all, err := ledger.ReadByKeys(w.t.Context(), w.Pool, []string{key})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%s: %d charges, %v", key, len(all), err)
	}
	return all[key]
}

func keyOf(account string) string { return ledger.BillingKey(testJob, testPeriod, account) }

func (w importWorld) events(account string) []string {
	return value[[]string](w, `SELECT coalesce(array_agg(from_state || '>' || to_state || ' ' || cause || ' ' || person || ' ' || payment_intent ORDER BY id), '{}')
		FROM billing.charge_events WHERE account_id = $1`, account)
}

// foundPaid is a payment found for a charge as put made it.
func foundPaid(account string, change ...func(*ledger.Found)) ledger.Found {
	f := ledger.Found{BillingKey: keyOf(account), From: ledger.ChargePending, Try: 1, Sends: 1, State: ledger.ChargeSucceeded,
		PaymentIntent: "pi_" + account, StripeStatus: "succeeded", Minor: 1000, Detail: "found at Stripe"}
	for _, do := range change {
		do(&f)
	}
	return f
}

func (w importWorld) settleFound(list ...ledger.Found) []string {
	w.t.Helper()
	moved, err := ledger.SettleFound(w.t.Context(), w.Pool, ledger.Actor{Person: "anna"}, list)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(moved))
}

// What was found moves a charge only from the state and try that it was found for.
// That it was paid counts whatever was sent since; that it was not counts only
// while nothing was and nobody may send.
func TestFoundMovesOnlyWhatItWasFoundFor(t *testing.T) {
	w := newImportWorld(t)
	unpaid := func(f *ledger.Found) {
		f.Unpaid, f.State, f.Reason, f.StripeStatus = true, ledger.ChargeDeclined, "expired_card", "requires_payment_method"
	}
	for account, test := range map[string]struct {
		meanwhile string
		found     func(*ledger.Found)
		moves     bool
	}{
		"paid":               {"", nil, true},
		"unpaid":             {"", unpaid, true},
		"paid-sent":          {`sends = 2, open_sends = 2, lease_until = billing.now() + interval '1 minute'`, nil, true},
		"unpaid-sent":        {`sends = 2`, unpaid, false},
		"unpaid-leased":      {`lease_until = billing.now() + interval '1 minute'`, unpaid, false},
		"unpaid-lease-over":  {`lease_until = billing.now()`, unpaid, true},
		"another-state":      {"", func(f *ledger.Found) { f.From = ledger.ChargeHeld }, false},
		"another-try":        {"", func(f *ledger.Found) { f.Try = 2 }, false},
		"another-try-unpaid": {"", func(f *ledger.Found) { unpaid(f); f.Try = 2 }, false},
	} {
		w.put(testPeriod, ledger.ChargePending, 1, account)
		if test.meanwhile != "" {
			w.exec(`UPDATE billing.charges SET `+test.meanwhile+` WHERE account_id = $1`, account)
		}
		before := w.seen(account)
		f := foundPaid(account)
		if test.found != nil {
			test.found(&f)
		}
		moved, after := w.settleFound(f), w.seen(account)
		if !test.moves {
			if len(moved) > 0 || len(w.events(account)) > 0 || !cmp.Equal(before, after) {
				t.Errorf("%s: moved %v, %v\n%s", account, moved, w.events(account), cmp.Diff(before, after))
			}
			continue
		}
		want := []string{"pending>" + string(f.State) + " found anna pi_" + account}
		if !slices.Equal(moved, []string{keyOf(account)}) || after.State != f.State || after.Reason != f.Reason || after.PaymentIntent != "pi_"+account ||
			after.OpenSends != 0 || after.SettledAt == nil || after.Leased || !slices.Equal(w.events(account), want) {
			t.Errorf("%s: moved %v, is %+v, events %v", account, moved, after, w.events(account))
		}
		if again := w.settleFound(f); len(again) > 0 || len(w.events(account)) != 1 {
			t.Errorf("%s: the second time moved %v, events %v", account, again, w.events(account))
		}
	}
}

// A payment of a charge that was never a request gives it the amount that was paid.
func TestFoundSettlesWhatWasNeverARequest(t *testing.T) {
	w := newImportWorld(t)
	w.exec(`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, state, reason, recorded_by, created_at)
		VALUES ('monthly-billing', '2026-10', 'a', $1, 10, 'usd', 'skipped', 'paused', gen_random_uuid(), billing.now())`, keyOf("a"))
	w.settleFound(foundPaid("a", func(f *ledger.Found) {
		f.From, f.Sends, f.Minor, f.RefundedMinor, f.Disputed = ledger.ChargeSkipped, 0, 900, 100, true
	}))
	got := value[string](w, `SELECT concat_ws(' ', state, reason, amount_minor, amount_refunded_minor, disputed, payment_intent) FROM billing.charges`)
	if got != "succeeded  900 100 t pi_a" {
		t.Errorf("the charge is %q", got)
	}
}

// A PaymentIntent that pays for another charge is a finding and review, and the
// others of its group don't wait for it.
func TestATakenPaymentIntentIsAFinding(t *testing.T) {
	w := newImportWorld(t)
	w.put(testPeriod, ledger.ChargePending, 1, "a", "b", "c", "d")
	w.settleFound(foundPaid("a"))
	stolen := func(id string) func(*ledger.Found) { return func(f *ledger.Found) { f.PaymentIntent = id } }
	got := w.settleFound(foundPaid("b", stolen("pi_a")), foundPaid("c"), foundPaid("d", stolen("pi_c")))
	if want := []string{keyOf("c")}; !slices.Equal(got, want) {
		t.Errorf("moved %v, want %v", got, want)
	}
	for account, paymentIntent := range map[string]string{"b": "pi_a", "d": "pi_c"} {
		if c := w.seen(account); c.State != ledger.ChargeReview || c.PaymentIntent != "" || len(w.events(account)) != 1 {
			t.Errorf("%s is %+v", account, c)
		}
		if !value[bool](w, `SELECT EXISTS (SELECT FROM billing.findings WHERE kind = 'payment_intent_taken' AND severity = 'act' AND period = '2026-10'
			AND account_id = $1 AND billing_key = $2 AND payment_intent = $3)`, account, keyOf(account), paymentIntent) {
			t.Errorf("no finding on %s", account)
		}
	}
}

func absent(c ledger.OpenCharge, to ledger.ChargeState) ledger.Absent {
	return ledger.Absent{BillingKey: c.BillingKey, From: c.State, Try: c.Try, Sends: c.Sends, WindowOpenedAt: *c.WindowOpenedAt, To: to, Detail: "nothing"}
}

func (w importWorld) settleAbsent(run ledger.Run, lookedAt time.Time, list ...ledger.Absent) (moved map[string]bool, err error) {
	err = ledger.InQueueTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		moved, err = run.SettleAbsent(w.t.Context(), tx, "", lookedAt, list)
		return err
	})
	return moved, err
}

// A renewal opens a window ten minutes before the look, under the same key, and
// forgets the sends that are proven to have come to nothing. What is held keeps them.
func TestAbsentIsRenewedOrHeld(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.put(testPeriod, ledger.ChargePending, 2, "renewed", "held", "review")
	w.put(testPeriod, ledger.ChargeHeld, 2, "released")
	lookedAt := w.Now()
	renew, hold, look, release := w.seen("renewed"), w.seen("held"), w.seen("review"), w.seen("released")
	moved, err := w.settleAbsent(run, lookedAt, absent(renew, ledger.ChargePending), absent(hold, ledger.ChargeHeld),
		absent(look, ledger.ChargeReview), absent(release, ledger.ChargePending))
	if err != nil || len(moved) != 4 {
		t.Fatal(moved, err)
	}
	for account, want := range map[string]string{
		"renewed": "pending 1 0 2 1", "held": "held 0 2 2 1", "review": "review 0 2 2 1", "released": "pending 1 0 2 1",
	} {
		got := value[string](w, `SELECT concat_ws(' ', state, renewals, open_sends, sends, try) FROM billing.charges WHERE account_id = $1`, account)
		c := w.seen(account)
		opened := map[string]ledger.OpenCharge{"held": hold, "review": look}[account].WindowOpenedAt
		if c.State == ledger.ChargePending {
			tenMinutesBefore := lookedAt.Add(-10 * time.Minute)
			opened = &tenMinutesBefore
		}
		if got != want || !c.WindowOpenedAt.Equal(*opened) || (c.SettledAt == nil) != (c.State == ledger.ChargePending) || c.Leased {
			t.Errorf("%s is %q, want %q; its window opened %s, want %s", account, got, want, c.WindowOpenedAt, opened)
		}
	}
	if got := w.events("held"); !slices.Equal(got, []string{"pending>held absent  "}) {
		t.Errorf("events %v", got)
	}
	// Another reconciler that saw the same, and was suspended meanwhile.
	if again, err := w.settleAbsent(run, lookedAt, absent(renew, ledger.ChargePending)); err != nil || len(again) > 0 {
		t.Errorf("renewed twice: %v, %v", again, err)
	}
	if got := w.permits(run, oneSend); len(got) != 2 || got[0].Try != 1 {
		t.Errorf("permits for what was renewed: %+v", got)
	}
}

// A proof of absence is worth nothing once the charge is not what it was when the
// look began, or the look is old, or the window was not dead at its beginning.
func TestAbsenceProvesNothingOfWhatChanged(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	for account, test := range map[string]struct {
		meanwhile string
		change    func(*ledger.Absent)
		age       time.Duration
	}{
		"sent":          {meanwhile: `sends = 2`},
		"leased":        {meanwhile: `lease_until = billing.now() + interval '1 second'`},
		"another-state": {change: func(a *ledger.Absent) { a.From = ledger.ChargeHeld }},
		"another-try":   {change: func(a *ledger.Absent) { a.Try = 2 }},
		"renewed":       {change: func(a *ledger.Absent) { a.WindowOpenedAt = a.WindowOpenedAt.Add(-time.Hour) }},
		"old-look":      {age: ledger.MaxLookAge + time.Second},
		"not-dead":      {age: 25*time.Hour - ledger.Window - ledger.RequestDead + time.Second},
	} {
		w.put(testPeriod, ledger.ChargePending, 1, account)
		a := absent(w.seen(account), ledger.ChargePending)
		if test.meanwhile != "" {
			w.exec(`UPDATE billing.charges SET `+test.meanwhile+` WHERE account_id = $1`, account)
		}
		if test.change != nil {
			test.change(&a)
		}
		moved, err := w.settleAbsent(run, w.Now().Add(-test.age), a)
		if err != nil || len(moved) > 0 || len(w.events(account)) > 0 {
			t.Errorf("%s: moved %v, %v, events %v", account, moved, err, w.events(account))
		}
	}
	// Not too old, and dead to the second.
	w.put(testPeriod, ledger.ChargePending, 1, "in-time")
	c := w.seen("in-time")
	if moved, err := w.settleAbsent(run, w.Now().Add(-ledger.MaxLookAge+time.Minute), absent(c, ledger.ChargePending)); err != nil || len(moved) != 1 {
		t.Errorf("in time: %v, %v", moved, err)
	}
}

// A charge whose outcome is known is not absent, whatever somebody says.
func TestAbsenceNeverMovesWhatIsDecided(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	for _, s := range []ledger.ChargeState{ledger.ChargeDeclined, ledger.ChargeRejected, ledger.ChargeVoid, ledger.ChargeReview, ledger.ChargeSucceeded} {
		w.put(testPeriod, s, 1, string(s))
		if moved, err := w.settleAbsent(run, w.Now(), absent(w.seen(string(s)), ledger.ChargePending)); err != nil || len(moved) > 0 {
			t.Errorf("%s: moved %v, %v", s, moved, err)
		}
	}
}

// Without the claim nothing is renewed, held, or given a new try.
func TestAbsenceNeedsTheClaim(t *testing.T) {
	w := newImportWorld(t)
	old := w.claim()
	w.Advance(2 * time.Hour)
	w.claim()
	w.put(testPeriod, ledger.ChargePending, 1, "a")
	w.put(testPeriod, ledger.ChargeRejected, 1, "b")
	for _, to := range []ledger.ChargeState{ledger.ChargePending, ledger.ChargeHeld} {
		if _, err := w.settleAbsent(old, w.Now(), absent(w.seen("a"), to)); !errors.Is(err, ledger.ErrClaimLost) {
			t.Errorf("%s: %v, want ErrClaimLost", to, err)
		}
	}
	err := w.in(func(ctx context.Context, tx pgx.Tx) error {
		_, err := old.Requeue(ctx, tx, requeueOf(w.seen("b")), "anna", "mended", w.Now())
		return err
	})
	if !errors.Is(err, ledger.ErrClaimLost) {
		t.Errorf("requeue: %v, want ErrClaimLost", err)
	}
	if n := value[int](w, `SELECT count(*) FROM billing.charge_events`); n != 0 {
		t.Errorf("%d events", n)
	}
	stranger := ledger.Run{Job: testJob, Period: testPeriod, RunID: uuid.New(), Attempt: 2}
	if _, err := w.settleAbsent(stranger, w.Now(), absent(w.seen("a"), ledger.ChargeHeld)); !errors.Is(err, ledger.ErrClaimLost) {
		t.Errorf("a stranger: %v, want ErrClaimLost", err)
	}
}
