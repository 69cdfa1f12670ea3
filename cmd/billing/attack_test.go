package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// bankDebits are customers who pay from a bank account, which takes days.
func bankDebits(n int) []customer {
	list := customers(n)
	for i := range list {
		list[i].card = fmt.Sprintf("pm_usBankAccount_success_%d", i)
	}
	return list
}

// ourKey is the metadata of a PaymentIntent of October's.
func ourKey(account, try string) map[string]string {
	return map[string]string{"billing_key": keyOf(account), "billing_job": "monthly-billing", "billing_period": october, "billing_account": account, "billing_try": try}
}

// restoredBeforeRecord bills October, loses the ledger of it, and comes back later.
func (o *office) restoredBeforeRecord(list []customer, later time.Duration) {
	o.t.Helper()
	o.imports(october, list)
	backup := o.db.Snapshot(o.t)
	o.month(0)
	o.db.RestoreSnapshot(o.t, backup)
	o.advance(later)
	o.emu.ResetLog()
}

// A rebuild that Stripe's failure ends in the middle has recorded charges whose
// payments it has seen. They are not sent: no window opens on a look that found
// something.
func TestARebuildThatIsCutShortOpensNoWindow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for range 150 { // what else Stripe has since the horizon is read after it
		o.emu.AddIntent(stripeemu.PaymentIntent{Customer: "cus_shop", Amount: 500, Status: "canceled", Created: time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)})
	}
	o.restoredBeforeRecord(bankDebits(50), 30*time.Hour)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultListError, Operation: stripeemu.OpList, Page: 2})
	o.must(69, "reconcile", "--period", october, "--rebuild", "--why", "restored")
	if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 50 {
		t.Fatalf("%d of 50 were recorded before the failure", n)
	}
	o.emu.ClearFaults()
	o.run("run", "--period", october)
	if n := o.emu.Posts(); n != 0 {
		t.Errorf("%d POSTs for charges whose payments are under way", n)
	}
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "restored")
	o.month(0)
	if n := o.emu.IntentCount(); n != 200 {
		t.Errorf("%d PaymentIntents for 50 debts and 150 other sales", n)
	}
	o.mustBeWhole()
}

// A payment under a charge's key that is another customer's is not in any list of
// the charge's customer. Search shows it, and what search shows exists.
func TestWhatOnlySearchShowsIsNotAbsent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(300))
	o.meets(faults{"a0001": stripeemu.FaultRateLimit429})
	id := o.emu.AddIntent(stripeemu.PaymentIntent{
		Status: "succeeded", Amount: 1001, Currency: "usd", Customer: "cus_before",
		Metadata: ourKey("a0001", "2"),
	})
	o.advance(26 * time.Hour)
	o.emu.ResetLog()
	r := o.month(4)
	if o.emu.Count(stripeemu.OpSearch) == 0 {
		t.Fatal("it did not search")
	}
	o.posts(0)
	o.is("a0001", "review not_as_asked")
	if got := one[string](o, `SELECT payment_intent FROM billing.findings`); got != id {
		t.Errorf("the finding is about %q\n%s", got, r)
	}
}

// A connected account that was closed is that account's matter: a bank debit of
// last month that can't be read there does not keep this month from being charged.
func TestAClosedConnectedAccountDoesNotStopTheNextMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	list[0].card = "pm_usBankAccount_success_1"
	o.imports(october, list)
	o.exec(`UPDATE billing.accounts SET stripe_account = 'acct_b' WHERE account_id = 'a0001'`)
	o.month(0)
	o.is("a0001", "processing")
	o.setNow(time.Date(2026, 12, 1, 0, 5, 0, 0, time.UTC))
	o.behind(func(res *http.Response) error {
		if res.Request.Header.Get("Stripe-Account") == "acct_b" {
			res.StatusCode, res.Status = http.StatusForbidden, "403 Forbidden"
			res.Header.Del("Content-Length")
			res.ContentLength = -1
			res.Body = io.NopCloser(strings.NewReader(`{"error":{"type":"invalid_request_error","code":"account_invalid","message":"no access"}}`))
		}
		return nil
	})
	o.must(0, "import", "invoices", "--period", "2026-11", "--file", o.file("november.csv", invoicesCSV(list[1:])))
	o.must(0, "run", "--period", "2026-11", "--json").says(t, "1 charge of 2026-10 could not be looked up")
	if got := o.states("2026-11"); got["succeeded"] != 2 {
		t.Errorf("november: %v", got)
	}
}

// A key that may not read customers is enough for a run, and carries out no order of
// a person that hangs on a customer's silence: that is neither an outage nor a bug.
func TestAKeyWithoutCustomersIsNoBug(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedKeys: map[string][]string{"rk_test_1": {"* payment_intents*", "GET account"}}})
	o.imports(october, customers(25))
	o.meets(faults{"a*": stripeemu.FaultLoseRequest})
	o.advance(74 * time.Hour)
	o.flood(1400, "cus_shop") // so that the charges are looked up one by one
	o.must(4, "reconcile", "--period", october)
	o.env["STRIPE_SECRET_KEY"] = "rk_test_1"
	o.must(75, "release", "--period", october, "--all", "--why", "test").says(t, "unreadable: 25 charges", "may not read customers")
	if got := o.states(october)["held"]; got != 25 {
		t.Errorf("%d of 25 are held", got)
	}
}

// A list that does not show what the ledger knows proves no decline: what else it
// leaves out may have been paid.
func TestAListThatLeavesOutWhatIsKnownDeclinesNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(30)
	list[1].card = "pm_card_chargeCustomerFail_2"
	o.imports(october, list)
	o.meets(faults{"a0002": stripeemu.FaultLoseAnswer})
	paid := o.emu.AddIntent(stripeemu.PaymentIntent{Status: "succeeded", Amount: 1002, Currency: "usd", Customer: "cus_0002", Metadata: ourKey("a0002", "1")})
	o.advance(26 * time.Hour)
	known := one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = 'a0003'`)
	for _, id := range []string{paid, known} {
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultOmit, PaymentIntent: id})
	}
	o.month(75)
	o.is("a0002", "pending no_answer")
	o.emu.ClearFaults()
	o.month(0)
	o.is("a0002", "succeeded")
}

// The key is what a payment is known by: other metadata that somebody edited hides
// it from nobody.
func TestAPaymentIsKnownByItsKeyWhateverElseWasEdited(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.meets(faults{"a0002": stripeemu.FaultLoseAnswer})
	id := o.emu.IntentsFor(keyOf("a0002"))[0].ID
	if err := o.emu.EditMetadata(id, map[string]string{"billing_period": "October", "billing_job": ""}); err != nil {
		t.Fatal(err)
	}
	o.advance(74 * time.Hour)
	o.month(0)
	o.posts(0)
	o.is("a0002", "succeeded")
	o.mustBeWhole()
}

// Reading everything may take longer than a look is believed. What it did not show
// is then asked one by one, so that the next run does not begin all over again.
func TestALongReadingEndsWithALookAtEach(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.meets(faults{"a0002": stripeemu.FaultRateLimit429})
	o.advance(26 * time.Hour)
	o.env["BILLING_LEASE"] = "1h"
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Times: 1})
	p := o.start("reconcile", "--on-absent", "charge")
	eventually(t, "the page is read", func() bool { return o.emu.Held() == 1 })
	o.advance(31 * time.Minute)
	o.emu.Release()
	p.wait().says(t, "1 renewed")
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// A PaymentIntent that pays for one charge and carries the key of another pays for
// the first: the other needs a person, and does not stay unknown for ever.
func TestAPaymentThatIsTakenIsReview(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(2)
	list[1].customer, list[1].amount = list[0].customer, list[0].amount
	o.imports(october, list)
	o.meets(faults{"a0002": stripeemu.FaultLoseRequest})
	id := o.emu.IntentsFor(keyOf("a0001"))[0].ID
	if err := o.emu.EditMetadata(id, map[string]string{"billing_key": keyOf("a0002")}); err != nil {
		t.Fatal(err)
	}
	o.advance(26 * time.Hour)
	o.month(4)
	o.is("a0002", "review payment_intent_taken")
	o.posts(0)
	o.month(4)
}
