package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// debtors are customers with these account ids, who pay 10 usd each.
func debtors(ids ...string) []customer {
	list := make([]customer, len(ids))
	for i, id := range ids {
		list[i] = customer{id: id, customer: fmt.Sprintf("cus_d%d", i), card: fmt.Sprintf("pm_card_visa_d%d", i), amount: "10.00", currency: "usd"}
	}
	return list
}

// faults are what the POSTs of some accounts meet.
type faults map[string]stripeemu.FaultKind

// meets runs October until each charge was sent and answered, or not, and
// interrupts the run.
func (o *office) meets(list faults) {
	o.t.Helper()
	for account, kind := range list {
		o.emu.Inject(stripeemu.Fault{Name: kind, Method: "POST", Account: account})
	}
	o.interrupted()
	o.emu.ClearFaults()
	o.emu.ResetLog()
}

// interrupted runs October until every charge was sent, and stops the run.
func (o *office) interrupted(args ...string) {
	o.t.Helper()
	before := one[int](o, `SELECT coalesce(sum(sends), 0) FROM billing.charges WHERE state = 'pending'`)
	p := o.start(append([]string{"run", "--period", october}, args...)...)
	eventually(o.t, "every charge was sent and its answer recorded", func() bool {
		return one[bool](o, `SELECT count(*) > 0 AND coalesce(bool_and(sends > 0 AND reason <> '' AND lease_until IS NULL) FILTER (WHERE state = 'pending'), true)
			AND coalesce(sum(sends) FILTER (WHERE state = 'pending'), 0) > $1 FROM billing.charges`, before)
	})
	p.signal(syscall.SIGTERM)
	if r := p.wait(); r.code != 128+int(syscall.SIGTERM) {
		o.t.Fatalf("the run was not interrupted\n%s", r)
	}
}

// is compares one charge's state and reason, such as "held absent".
func (o *office) is(account, want string) {
	o.t.Helper()
	if got := one[string](o, `SELECT trim(state || ' ' || reason) FROM billing.charges WHERE account_id = $1`, account); got != want {
		o.t.Errorf("account %s is %q, want %q", account, got, want)
	}
}

// posts wants a number of POSTs since the last count.
func (o *office) posts(want int) {
	o.t.Helper()
	if n := o.emu.Posts(); n != want {
		o.t.Errorf("%d POSTs, want %d", n, want)
	}
	o.emu.ResetLog()
}

// says wants words in what a command printed.
func (r outcome) says(t testing.TB, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.stdout+r.stderr, w) {
			t.Errorf("it does not say %q\n%s", w, r)
		}
	}
}

// What Stripe turned away is charged a day later; what it may have read waits for
// 72 hours from the send, and everything that a person reads says until when.
func TestASendWithoutAnAnswerIsRenewedOnlyAfter72Hours(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("hung", "busy"))
	o.meets(faults{"hung": stripeemu.FaultLoseRequest, "busy": stripeemu.FaultRateLimit429})
	sent := one[time.Time](o, `SELECT last_sent_at FROM billing.charges WHERE account_id = 'hung'`)
	until := sent.Add(72 * time.Hour).UTC().Format("2006-01-02 15:04")
	o.advance(26 * time.Hour)
	o.month(75).says(t, "pending")
	o.is("busy", "succeeded")
	o.is("hung", "pending no_answer")
	o.posts(1)
	r := o.must(75, "reconcile", "--on-absent", "charge")
	r.says(t, "waiting: 1 charge", "nothing before "+until, "billing run --period 2026-10   # not before "+until, "the first of those that wait may be decided after "+until)
	o.must(0, "status", "--period", october).says(t, "wait until "+until, "next: billing run --period 2026-10   # not before "+until)

	o.setNow(sent.Add(72*time.Hour - time.Minute))
	o.month(75)
	o.posts(0)
	o.setNow(sent.Add(72*time.Hour + time.Second))
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// --absent-after moves the day, and less than one is asking for a second payment.
func TestAbsentAfterMovesTheDayAndIsNeverLessThanOne(t *testing.T) {
	t.Parallel()
	for after, at := range map[string]time.Duration{"24h": 24*time.Hour + time.Minute, "96h": 96*time.Hour + time.Minute} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, debtors("hung"))
			o.meets(faults{"hung": stripeemu.FaultLoseRequest})
			sent := one[time.Time](o, `SELECT last_sent_at FROM billing.charges`)
			o.setNow(sent.Add(at - 2*time.Minute))
			o.month(75, "--absent-after", after)
			o.must(0, "status", "--period", october, "--absent-after", after).says(t, "wait until "+sent.Add(at-time.Minute).UTC().Format("2006-01-02 15:04"))
			o.is("hung", "pending no_answer")
			o.setNow(sent.Add(at))
			before := o.ledgerText()
			for _, short := range []string{"23h59m", "0s", "-1h", "721h"} {
				o.month(64, "--absent-after", short)
				o.must(64, "reconcile", "--on-absent", "charge", "--absent-after", short)
				o.must(64, "status", "--period", october, "--absent-after", short)
			}
			if o.ledgerText() != before {
				t.Error("a refused command changed the ledger")
			}
			o.month(0, "--absent-after", after)
			o.posts(1)
			o.mustBeWhole()
		})
	}
}

// A renewed charge that is absent once more is not renewed for ever: something is
// wrong with it, and a person decides.
func TestASecondAbsenceOfOneTryIsHeld(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("busy"))
	o.meets(faults{"busy": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	o.meets(faults{"busy": stripeemu.FaultRateLimit429})
	o.is("busy", "pending rate_limit")
	o.advance(26 * time.Hour)
	o.month(4)
	o.is("busy", "held absent_again")
	o.posts(0)
}

// A person's look holds what is absent, a run's charges it, and each can be told
// to do as the other does.
func TestTheCommandHoldsAndTheRunChargesWhatIsAbsent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		is   string
	}{
		{"a person's default", []string{"reconcile", "--period", october}, 4, "held absent"},
		{"a person's choice", []string{"reconcile", "--period", october, "--on-absent", "charge"}, 75, "pending"},
		{"a run's default", []string{"run", "--period", october}, 0, "succeeded"},
		{"a run's choice", []string{"run", "--period", october, "--on-absent", "hold"}, 4, "held absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, debtors("busy"))
			o.meets(faults{"busy": stripeemu.FaultRateLimit429})
			o.advance(26 * time.Hour)
			o.must(64, append(c.args[:3:3], "--on-absent", "maybe")...)
			o.must(c.code, c.args...)
			o.is("busy", c.is)
		})
	}
}

// Stripe may complete by itself what it answered with a 5xx: no run charges it,
// however much later.
func TestAServerErrorOfStripeIsHeldAndNeverRenewedByARun(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("error"))
	o.meets(faults{"error": stripeemu.FaultError500Undone})
	o.advance(80 * time.Hour)
	o.month(4)
	o.is("error", "held server_error")
	o.month(4, "--on-absent", "charge", "--absent-after", "24h")
	o.must(4, "reconcile", "--on-absent", "charge").says(t, "unchanged: 1 charge", "a person decides")
	o.posts(0)
	o.must(0, "release", "--period", october, "--all", "--why", "Stripe says that it failed")
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// Whenever Stripe completes a 5xx, and however it dates the payment, it is found
// and nothing else is charged: by a run, or by the look of a person's order.
func TestWhatStripeCompletesByItselfIsFoundAndNeverPaidTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after     time.Duration
		backdated bool
		by        string
	}{
		{time.Hour, false, "run"}, {25 * time.Hour, false, "reconcile"}, {25 * time.Hour, true, "release"},
		{49 * time.Hour, false, "release"}, {49 * time.Hour, true, "reconcile"},
	} {
		t.Run(fmt.Sprintf("after %s, backdated %t, by %s", c.after, c.backdated, c.by), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, Unverified: stripeemu.Unverified{RollforwardBackdated: c.backdated}})
			o.imports(october, debtors("roll"))
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRollforward, Method: "POST", Delay: c.after})
			o.meets(nil)
			o.advance(24 * time.Hour)
			if c.by == "run" {
				o.month(0)
			} else {
				o.month(4)
				o.advance(c.after - 23*time.Hour)
				args := []string{c.by, "--period", october, "--why", "completed"}
				if c.by == "release" {
					args = append(args, "--all")
				}
				o.must(0, args...).says(t, "succeeded: 1 charge")
			}
			o.is("roll", "succeeded")
			o.month(0)
			o.posts(0)
			o.mustBeWhole()
		})
	}
}

// Between the end of a window and fifteen minutes later its last request may
// still be on its way: nobody renews or holds it.
func TestAWindowThatHasJustEndedIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("busy"))
	o.meets(faults{"busy": stripeemu.FaultRateLimit429})
	opened := one[time.Time](o, `SELECT window_opened_at FROM billing.charges`)
	for _, minutes := range []int{-1, 1, 14} {
		o.setNow(opened.Add(23*time.Hour + time.Duration(minutes)*time.Minute))
		o.must(75, "reconcile", "--period", october).says(t, "in_window: 1 charge", "a run may still send it")
		o.must(75, "reconcile", "--period", october, "--on-absent", "charge").says(t, "in_window: 1 charge")
		o.is("busy", "pending rate_limit")
		if got := one[time.Time](o, `SELECT window_opened_at FROM billing.charges`); !got.Equal(opened) {
			t.Fatalf("the window was renewed %d minutes after its end", minutes)
		}
	}
	o.month(75)
	o.posts(0)
	o.setNow(opened.Add(23*time.Hour + 15*time.Minute + time.Second))
	o.must(4, "reconcile", "--period", october)
	o.is("busy", "held absent")
}

// A PaymentIntent is listed before its confirm has ended, and looks like a decline
// until then.
func TestAConfirmUnderWayIsNotADecline(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("slow"))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSlowExecution, Method: "POST", Times: 1})
	p := o.start("run", "--period", october)
	if err := o.emu.WaitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	p.kill()
	for _, later := range []time.Duration{0, 10 * time.Second, 14 * time.Minute} {
		o.advance(later)
		o.must(75, "reconcile", "--period", october).says(t, "requires_", "may still be on its way")
		if got := o.state("slow"); got != "pending" {
			t.Fatalf("it is %s after %s", got, later)
		}
		o.advance(-later)
	}
	o.emu.Release()
	eventually(t, "Stripe confirmed it", func() bool {
		pi := o.emu.IntentsFor("monthly-billing/2026-10/slow")
		return len(pi) == 1 && pi[0].Status == "succeeded"
	})
	o.must(0, "reconcile", "--period", october).says(t, "succeeded: 1 charge")
	o.mustBeWhole()
}

// A PaymentIntent that nobody ever tried to confirm is neither a decline nor an
// absence; a person may have it charged, once.
func TestAPaymentIntentThatWasNeverAttemptedIsHeld(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("busy"))
	o.meets(faults{"busy": stripeemu.FaultRateLimit429})
	o.addIntent("busy", "requires_payment_method", 1000)
	o.advance(26 * time.Hour)
	o.month(4)
	o.is("busy", "held not_attempted")
	o.must(0, "release", "--period", october, "--account", "busy", "--why", "it never left")
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// addIntent puts a PaymentIntent at Stripe that is as asked for but for the amount,
// made now.
func (o *office) addIntent(account, status string, amount int64) string {
	o.t.Helper()
	key := one[string](o, `SELECT billing_key FROM billing.charges WHERE account_id = $1`, account)
	return o.emu.AddIntent(stripeemu.PaymentIntent{
		Status: status, Amount: amount, Currency: "usd",
		Customer: one[string](o, `SELECT stripe_customer FROM billing.charges WHERE account_id = $1`, account),
		Metadata: map[string]string{
			"billing_key": key, "billing_job": "monthly-billing", "billing_period": october,
			"billing_account": account, "billing_try": one[string](o, `SELECT try::text FROM billing.charges WHERE account_id = $1`, account),
		},
	})
}

// A key that was used for something else, and no payment: nothing is sent any
// more until a person has looked.
func TestAnIdempotencyErrorWithoutAPaymentIsReview(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("used"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.emu.URL()+"/v1/payment_intents", strings.NewReader("amount=700&currency=usd"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_emulator")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", "monthly-billing/2026-10/used")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Fatalf("create: HTTP %d", res.StatusCode)
	}
	o.meets(nil)
	o.advance(80 * time.Hour)
	o.month(4)
	o.is("used", "review idempotency_error")
	o.posts(0)
	o.must(0, "status", "--period", october).says(t, "the key was used with another request")
	o.must(4, "reconcile", "--period", october, "--on-absent", "charge")
	o.posts(0)
}

// looksAndWaits starts a reconcile that has chosen its charges, and that Stripe
// lets wait for its first page.
func (o *office) looksAndWaits(kind stripeemu.FaultKind, args ...string) process {
	o.t.Helper()
	o.emu.Inject(stripeemu.Fault{Name: kind, Operation: stripeemu.OpList, Times: 1})
	p := o.start(append([]string{"reconcile", "--period", october}, args...)...)
	if err := o.emu.WaitHeld(o.t.Context(), 1); err != nil {
		o.t.Fatal(err)
	}
	return p
}

// A reconciler that was suspended for two hours in the middle of its look, while
// another renewed, sent and lost the answer, changes nothing when it wakes up,
// whether it reads everybody's payments or, with many others, one customer's.
func TestAReconcilerSuspendedForTwoHoursNeverExtendsAWindowTwice(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 450} {
		for _, policy := range []string{"charge", "hold"} {
			t.Run(fmt.Sprintf("%d others, %s", others, policy), func(t *testing.T) {
				t.Parallel()
				o := newOffice(t)
				o.imports(october, append(debtors("busy"), customers(others)...))
				o.meets(faults{"busy": stripeemu.FaultRateLimit429})
				o.advance(26 * time.Hour)
				first := o.looksAndWaits(stripeemu.FaultLate, "--on-absent", policy)
				first.signal(syscall.SIGSTOP)
				o.advance(2 * time.Hour)
				o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST"})
				o.interrupted()
				o.is("busy", "pending no_answer")
				before := o.ledgerText()
				o.emu.Release()
				first.signal(syscall.SIGCONT)
				if r := first.wait(); r.code != 75 || o.ledgerText() != before {
					t.Errorf("the first one went on: %s", r)
				}
				if n := one[int](o, `SELECT renewals FROM billing.charges WHERE account_id = 'busy'`); n != 1 {
					t.Errorf("%d renewals", n)
				}
				o.emu.ClearFaults()
				o.month(0)
				o.mustBeWhole()
			})
		}
	}
}

// A look that was overtaken concludes nothing from what it did not see: neither
// when it is old, nor when the period is another's, nor when the charge is not as
// it was when it was chosen.
func TestAnOvertakenLookConcludesNothing(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(o *office, first process){
		"it is older than 30 minutes": func(o *office, _ process) { o.advance(31 * time.Minute) },
		"another owns the period, and died": func(o *office, first process) {
			first.signal(syscall.SIGSTOP) // or it could still give a sign of life
			defer first.signal(syscall.SIGCONT)
			o.advance(time.Minute)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHang, Operation: "GET payment_intents*"})
			attempt := one[int](o, `SELECT attempt FROM billing.job_runs`)
			second := o.start("reconcile", "--period", october)
			eventually(o.t, "the second one owns the period", func() bool { return one[int](o, `SELECT attempt FROM billing.job_runs`) > attempt })
			second.kill()
		},
		"it was sent": func(o *office, _ process) {
			o.exec(`UPDATE billing.charges SET sends = sends + 1 WHERE account_id = 'busy'`)
		},
		"it may be sent right now": func(o *office, _ process) {
			o.exec(`UPDATE billing.charges SET lease_until = billing.now() + interval '10 minutes' WHERE account_id = 'busy'`)
		},
		"nothing; for the proof": func(*office, process) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			// So many others that this one is looked up by itself.
			o.imports(october, append(debtors("busy"), customers(450)...))
			o.meets(faults{"busy": stripeemu.FaultRateLimit429})
			o.advance(26 * time.Hour)
			p := o.looksAndWaits(stripeemu.FaultLate, "--on-absent", "charge")
			const window = `SELECT window_opened_at FROM billing.charges WHERE account_id = 'busy'`
			opened := one[time.Time](o, window)
			overtake(o, p)
			o.emu.Release()
			r := p.wait()
			moved := one[time.Time](o, window).Sub(opened) > time.Hour
			if proof := strings.HasPrefix(name, "nothing"); moved != proof || r.code != 75 {
				t.Errorf("the window moved: %t\n%s", moved, r)
			}
		})
	}
}

// A reconciler that is killed in the middle leaves every charge either as it was
// or settled with its event; the next one does the rest.
func TestAKilledReconcilerLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(250))
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: 10})
	p := o.start("run", "--period", october, "--concurrency", "240")
	eventually(t, "all were charged", func() bool { return o.emu.IntentCount() > 200 })
	p.kill()
	o.emu.ClearFaults()
	o.emu.Release()
	o.advance(26 * time.Hour)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Page: 2, Times: 1})
	p = o.start("reconcile", "--period", october)
	if err := o.emu.WaitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first page is in the ledger", func() bool {
		return one[int](o, `SELECT count(*) FROM billing.charge_events WHERE cause = 'found'`) > 50
	})
	p.kill()
	o.emu.Release()
	if got := o.states(october); got["pending"] == 0 || got["held"] != 0 {
		t.Fatalf("it was not killed in the middle: %v", got)
	}
	o.mustBeWhole()
	o.advance(time.Minute)
	o.run("reconcile", "--period", october, "--on-absent", "hold")
	o.mustBeWhole()
	if got := o.states(october); got["pending"] != 0 || got["succeeded"] != o.emu.IntentCount() {
		t.Errorf("%v for %d payments", got, o.emu.IntentCount())
	}
}

// A reconcile beside a run that is at work settles what it finds, leaves what is
// absent to the run, says so, and does not disturb it.
func TestAReconcileBesideARunLeavesAbsencesToIt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "10m"
	o.imports(october, debtors("late", "busy"))
	o.meets(faults{"late": stripeemu.FaultLoseAnswer, "busy": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Times: 1})
	p := o.start("run", "--period", october)
	if err := o.emu.WaitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	run := one[string](o, `SELECT run_id || ' ' || attempt FROM billing.job_runs`)
	r := o.must(75, "reconcile", "--period", october)
	r.says(t, "warning: ", "what Stripe does not show is left to it", "succeeded: 1 charge", "busy: 1 charge", "another run owns the period")
	o.is("late", "succeeded")
	o.is("busy", "pending rate_limit")
	if got := one[string](o, `SELECT run_id || ' ' || attempt FROM billing.job_runs`); got != run {
		t.Errorf("the claim is %s, and was %s", got, run)
	}
	o.must(64, "release", "--period", october, "--account", "busy", "--why", "x").says(t, "is pending, not held")
	o.emu.Release()
	if r := p.wait(); r.code != 0 {
		t.Errorf("the run was disturbed\n%s", r)
	}
	o.is("busy", "succeeded")
	o.mustBeWhole()
}
