package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/pgproxy"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// doneWithPending counts the periods that are done and have a pending charge.
const doneWithPending = `SELECT count(*) FROM billing.job_runs r WHERE r.state = 'done'
	AND EXISTS (SELECT FROM billing.charges c WHERE c.job = r.job AND c.period = r.period AND c.state = 'pending')`

// A person who lets a charge go while a run finishes its period, or just before a
// run begins: whichever commits first, the period is not done with a pending charge,
// and the charge is sent once.
func TestAReleaseBesideARunNeverLeavesADonePeriodPending(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second []string
		touching      string
		code          int // of the second
	}{
		"finish first":  {[]string{"run"}, []string{"release", "--all", "--why", "x"}, txFinish, 75},
		"release first": {[]string{"release", "--all", "--why", "x"}, []string{"run", "--wait", "0s"}, "renewals = c.renewals", 75},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "20s"
			o.heldOnes("a")
			o.must(0, "reopen", "--period", october, "--why", "test")
			direct, p := o.env["DATABASE_URL"], o.proxied()
			p.Inject(pgproxy.Rule{Act: pgproxy.HoldBefore, Touching: c.touching, Times: 1})
			first := o.start(append(c.first, "--period", october)...)
			eventually(t, "the first is about to commit", func() bool { return p.Held() == 1 })
			o.env["DATABASE_URL"] = direct
			o.must(c.code, append(c.second, "--period", october)...)
			if n := one[int](o, doneWithPending); n != 0 {
				t.Error("the period is done with a pending charge")
			}
			p.Release()
			first.wait()
			if n := one[int](o, doneWithPending); n != 0 {
				t.Error("the period is done with a pending charge")
			}
			o.run(append(c.second, "--period", october)...)
			o.run("release", "--period", october, "--all", "--why", "x")
			o.month(0)
			o.posts(1)
			o.mustBeWhole()
		})
	}
}

// A charge that a run before may still send is waited for at the end, and then sent:
// the period does not end as failed for it.
func TestARunOutlivesThePermitsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.meets(faults{"a0002": stripeemu.FaultRateLimit429})
	o.exec(`UPDATE billing.charges SET lease_owner = gen_random_uuid(), lease_until = billing.now() + interval '2 seconds' WHERE account_id = 'a0002'`)
	until := one[time.Time](o, `SELECT lease_until FROM billing.charges WHERE account_id = 'a0002'`)
	o.month(0)
	for _, r := range o.emu.Requests() {
		if r.Method == "POST" && r.At.Before(until.Add(-time.Second)) {
			t.Errorf("a POST left while another process could send it, %s before", until.Sub(r.At))
		}
	}
	o.posts(1)
	o.mustBeWhole()
}

// A view of one's own that owes another amount than was recorded is named by every
// later run; what was paid stays.
func TestAnAmountThatChangesAfterItWasRecordedIsNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ownView()
	o.owes("a", "10.00", "usd", "cus_a", "pm_a")
	o.owes("b", "10.00", "usd", "cus_b", "pm_b")
	o.month(0)
	o.exec(`UPDATE public.owed SET amount = 12 WHERE account_id = 'b'`)
	for range 2 {
		o.month(4).says(t, "another amount")
	}
	if n := o.emu.Posts(); n != 2 {
		t.Errorf("%d POSTs", n)
	}
	o.mustBeWhole()
}

// What needs a person in a done period is said by every run of it, with the same
// code, and no run changes it.
func TestADonePeriodThatNeedsSomebodySaysSoEachTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave func(o *office)
		code  int
	}{
		"held": {func(o *office) { o.heldOnes("a") }, 4},
		"review": {func(o *office) {
			o.imports(october, debtors("a", "good"))
			o.meets(faults{"a": stripeemu.FaultRateLimit429})
			o.addIntent("a", "succeeded", 999)
			o.advance(26 * time.Hour)
			o.run("run", "--period", october)
		}, 4},
		"a finding alone": {func(o *office) {
			o.imports(october, debtors("a", "good"))
			o.month(0)
			o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key)
				VALUES ('duplicate', 'act', 'monthly-billing', '2026-10', 'a', 'monthly-billing/2026-10/a')`)
		}, 4},
		"void": {func(o *office) {
			o.heldOnes("a")
			o.must(0, "void", "--period", october, "--account", "a", "--why", "x")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			c.leave(o)
			before := o.ledgerText()
			for range 2 {
				o.month(c.code)
			}
			if diff := cmp.Diff(before, o.ledgerText()); diff != "" {
				t.Errorf("a run changed the ledger:\n%s", diff)
			}
		})
	}
}

// endings of a payment that Stripe can answer a create with.
var fatesAtStripe = []string{
	"visa", "chargeCustomerFail", "visa_chargeDeclinedInsufficientFunds", "visa_chargeDeclinedLostCard", "chargeDeclinedExpiredCard",
	"chargeDeclinedProcessingError", "chargeDeclinedFraudulent", "radarBlock", "authenticationRequired", "threeDSecure2Required", "in",
}

// rowsOfFates is what the ledger says of each fate.
func (o *office) rowsOfFates() string {
	o.t.Helper()
	return one[string](o, `SELECT string_agg(concat_ws(' ', account_id, state, reason, stripe_status, decline_code, advice_code, amount_minor,
		payment_intent IS NOT NULL), E'\n' ORDER BY account_id) FROM billing.charges`)
}

// The same payment leaves the same row, on whichever way the ledger comes to know of
// it: by the answer, by a second one after the first was lost, by either list, by
// search, or by its id.
func TestTheSamePaymentLeavesTheSameRowOnEveryWay(t *testing.T) {
	t.Parallel()
	list := debtors(append(fatesAtStripe, "debit", "unverified")...)
	for i, fate := range fatesAtStripe {
		list[i].card = fmt.Sprintf("pm_card_%s_%d", fate, i)
	}
	list[len(list)-2].card, list[len(list)-1].card = "pm_usBankAccount_success_1", "pm_usBankAccount_unverified_1"
	var mu sync.Mutex
	rows := map[string]string{}
	ways := []string{"the answer", "a second answer", "the list of all", "the customer's list", "search"}
	t.Run("ways", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way, func(t *testing.T) {
				o := newOffice(t)
				o.ungated()
				o.imports(october, list)
				o.learns(way)
				got := o.rowsOfFates()
				o.month(0) // by its id, what is under way
				if diff := cmp.Diff(got, o.rowsOfFates()); diff != "" {
					t.Errorf("read again by its id, another row:\n%s", diff)
				}
				o.mustBeWhole()
				mu.Lock()
				rows[way] = got
				mu.Unlock()
			})
		}
	})
	for _, way := range ways[1:] {
		if diff := cmp.Diff(rows[ways[0]], rows[way]); diff != "" {
			t.Errorf("by %s another row than by the answer:\n%s", way, diff)
		}
	}
	if n := strings.Count(rows[ways[0]], "\n") + 1; n != len(list) {
		t.Errorf("%d of %d have a row", n, len(list))
	}
}

// learns runs October so that the ledger comes to know what became of it on one way.
func (o *office) learns(way string) {
	o.t.Helper()
	switch way {
	case "the answer":
	case "a second answer":
		for _, account := range append(fatesAtStripe, "debit", "unverified") {
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: account, Times: 1})
		}
	default:
		o.meets(faults{"*": stripeemu.FaultLoseAnswer})
		o.advance(23*time.Hour + 30*time.Minute)
		if way != "the list of all" {
			o.flood(1500, "cus_shop")
		}
		if way == "the customer's list" {
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
		}
		defer o.posts(0)
	}
	o.month(0)
}

// A decline whose answer was lost is told again after the customer has paid that
// very payment: it is read again, and paid.
func TestADeclineThatIsToldAgainAfterTheCustomerPaidIsPaid(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := debtors("shopper", "good")
	list[0].card = "pm_card_authenticationRequired_1"
	o.imports(october, list)
	o.meets(faults{"shopper": stripeemu.FaultLoseAnswer})
	o.acts(o.emu.CustomerPays(o.emu.IntentsFor(keyOf("shopper"))[0].ID))
	o.advance(2 * time.Hour)
	o.month(0)
	o.posts(1)
	o.is("shopper", "succeeded")
	o.mustBeWhole()
}

// Stripe may keep a 500 for longer than a day. A charge that a person lets go
// meets it again, and ends with a person again, not in runs without end.
func TestAServerErrorThatIsKeptForLongEndsWithAPerson(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, KeyLife: 60 * time.Hour})
	o.imports(october, debtors("error", "good"))
	o.meets(faults{"error": stripeemu.FaultError500Undone})
	for range 2 {
		o.advance(24 * time.Hour)
		o.month(4)
		o.is("error", "held server_error")
		o.must(0, "release", "--period", october, "--all", "--why", "Stripe says that it failed")
		o.run("run", "--period", october)
	}
	if n := len(o.emu.IntentsFor(keyOf("error"))); n > 1 {
		t.Errorf("it was paid %d times", n)
	}
	o.mustBeWhole()
}

// A look that takes longer than the lease, page by page, and a record that does, in
// one statement, keep the period: one that waits does not take it over.
func TestLongStepsKeepTheClaim(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]func(o *office){
		"pages": func(o *office) {
			o.flood(550, "cus_shop")
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Delay: 500 * time.Millisecond})
		},
		"record": func(o *office) {
			o.exec(`CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.9); RETURN NEW; END $$`)
			o.exec(`CREATE TRIGGER slowly BEFORE INSERT ON billing.charges FOR EACH ROW EXECUTE FUNCTION public.slowly()`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(4))
			slow(o)
			first := o.start("run", "--period", october)
			eventually(t, "the first owns the period", func() bool { return one[int](o, `SELECT count(*) FROM billing.job_runs`) == 1 })
			second := o.start("run", "--period", october)
			if a, b := first.wait(), second.wait(); a.code != 0 || b.code != 0 {
				t.Errorf("want exit 0 from both\n%s\n%s", a, b)
			}
			if n := one[int](o, `SELECT attempt FROM billing.job_runs`); n != 1 {
				t.Errorf("attempt %d ended it: the claim was taken over", n)
			}
			o.mustBeWhole()
		})
	}
}

// A job of Kubernetes that somebody made by hand has no time in its name, or one of
// 1970: no month is derived from it.
func TestAJobMadeByHandNamesNoMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	for _, name := range []string{"billing-manual-1", "billing-00000001", "billing-29891525x", "billing-28891525"} {
		o.env["BILLING_K8S_JOB_NAME"] = name
		o.must(64, "run").says(t, name, "--period")
	}
	o.posts(0)
	o.env["BILLING_K8S_JOB_NAME"] = "billing-29891525" // five past midnight on 1 November
	if r := o.must(0, "run", "--json").json(t); r.Period != october {
		t.Errorf("the scheduled job charged %s", r.Period)
	}
	o.mustBeWhole()
}
