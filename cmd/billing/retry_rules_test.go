package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// What the bank refuses for good waits for another card: neither the schedule nor a
// person's order tries the same one again, and Stripe is not even asked by a schedule.
func TestAHardDeclineWaitsForANewCard(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{
		"lost_card": "pm_card_visa_chargeDeclinedLostCard_h", "fraudulent": "pm_card_chargeDeclinedFraudulent_h",
		"expired_card": "pm_card_chargeDeclinedExpiredCard_h", "highest_risk_level": "pm_card_radarBlock_h",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := debtors("hard", "good")
			list[0].card = card
			o.imports(october, list)
			o.month(0)
			o.advance(10 * day)
			o.emu.ResetLog()
			for _, c := range []struct {
				code int
				args []string
			}{{0, nil}, {0, []string{"--all"}}, {4, []string{"--account", "hard"}}} {
				o.retry(c.code, c.args...).says(t, "not_retried: 1 charge", name, "another card")
			}
			o.posts(0)
			o.intents("hard", "requires_payment_method")
			list[0].card = "pm_card_visa_new"
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			o.retry(0).says(t, "requeued: 1 charge")
			o.month(0)
			o.intents("hard", "canceled succeeded")
			if body := one[string](o, `SELECT body FROM billing.charges WHERE account_id = 'hard'`); !containsAll(body, "payment_method=pm_card_visa_new&", "[billing_try]=2") {
				t.Errorf("the new try asks %s", body)
			}
			o.mustBeWhole()
		})
	}
}

// Nothing is tried again while anything about it is not known, or somebody may still
// pay it; what is found paid or under way is settled instead.
func TestNothingIsRetriedWhileAnythingIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(o *office)
		code   int
		says   string
		state  string
	}{
		"just sent":       {func(o *office) { o.advance(-time.Hour) }, 75, "may still be on its way", "declined insufficient_funds"},
		"paid":            {func(o *office) { _ = o.emu.CustomerPays(o.emu.IntentsFor(keyOf("poor"))[0].ID) }, 0, "succeeded: 1 charge", "succeeded"},
		"under way":       {func(o *office) { o.addIntent("poor", "processing", 1000) }, 0, "processing: 1 charge", "processing"},
		"being confirmed": {func(o *office) { o.addIntent("poor", "requires_action", 1000) }, 4, "about to pay", "declined insufficient_funds"},
		"an unknown try": {func(o *office) {
			pi := o.ofKey("poor")
			pi.Status, pi.Metadata["billing_try"] = "canceled", "5"
			o.emu.AddIntent(pi)
		}, 4, "of try 5, which the ledger does not know", "declined insufficient_funds"},
		"another amount": {func(o *office) { o.addIntent("poor", "requires_payment_method", 999) }, 4, "not as asked", "declined insufficient_funds"},
		"its payment not shown": {func(o *office) {
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultOmit, Account: "poor"})
		}, 75, "does not show", "declined insufficient_funds"},
		"paused": {func(o *office) { o.must(0, "pause", "--account", "poor", "--why", "a dispute") }, 4, "paused", "declined insufficient_funds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.declinedOnes("poor")
			o.advance(time.Hour + time.Minute)
			c.before(o)
			o.emu.ResetLog()
			o.retry(c.code, "--account", "poor").says(t, c.says)
			o.posts(0)
			o.is("poor", c.state)
			if n := one[int](o, `SELECT try FROM billing.charges WHERE account_id = 'poor'`); n != 1 {
				t.Errorf("try %d was opened", n)
			}
			o.mustBeWhole()
		})
	}
}

// A payment whose key somebody edited is known by its id, and cancelled all the same.
func TestAnOpenPaymentIsCancelledWhateverItsMetadataSays(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.declinedOnes("poor")
	first := o.emu.IntentsFor(keyOf("poor"))[0].ID
	if err := o.emu.EditMetadata(first, map[string]string{"billing_key": "", "billing_try": ""}); err != nil {
		t.Fatal(err)
	}
	o.topUp("poor")
	o.advance(time.Hour)
	o.retry(0, "--all").says(t, "requeued: 1 charge")
	if pi, _ := o.emu.Intent(first); pi.Status != "canceled" {
		t.Errorf("the old one is %s", pi.Status)
	}
	o.month(0)
	o.is("poor", "succeeded")
	o.mustBeWhole()
}

// Charges in another state are other commands' matter, and what was asked for in words
// that mean nothing is refused before anything is done.
func TestRetryRefusesWhatItIsNotFor(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := debtors("asked", "rejected", "skipped", "poor")
	list[0].card, list[2].card, list[3].card = "pm_card_authenticationRequired_a", "", softCard+"poor"
	o.emu.AddCustomer(stripeemu.Customer{ID: list[1].customer, Deleted: true})
	o.imports(october, list)
	o.month(4)
	o.advance(4 * day)
	rows := o.everything()
	for _, account := range []string{"asked", "rejected", "skipped"} {
		o.retry(64, "--account", account).says(t, "not declined")
	}
	o.must(64, "retry-declined", "--period", october, "--all").says(t, "--why")
	o.retry(64, "--all", "--account", "poor").says(t, "take one")
	o.retry(64, "--schedule", "3d,soon").says(t, "--schedule")
	o.retry(64, "--schedule", "1d,1d,1d,1d,1d,1d,1d,1d").says(t, "8 times in all")
	o.retry(0, "--dry-run").says(t, "requeued: 1 charge", "try 2, when 1 open ones are cancelled")
	if o.everything() != rows {
		t.Error("something was changed")
	}
	if res := o.retry(0, "--json", "--dry-run").json(t); res.Command != "retry-declined" || res.ExitCode != 0 || res.Period != october {
		t.Errorf("%+v", res)
	}
	o.intents("poor", "requires_payment_method")
}

// No debt is tried more than eight times, whoever orders it.
func TestADebtIsTriedEightTimesAtMost(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.declinedOnes("poor")
	for try := 2; try <= 8; try++ {
		o.advance(5 * day)
		o.retry(0, "--all").says(t, "requeued: 1 charge")
		o.month(0)
	}
	o.advance(40 * day)
	o.topUp("poor")
	o.retry(4, "--account", "poor").says(t, "tried 8 times")
	if n := len(o.emu.IntentsFor(keyOf("poor"))); n != 8 {
		t.Errorf("%d payments", n)
	}
	o.mustBeWhole()
}

// One card that two jobs charge is tried no more than the card networks allow in any
// thirty days, over two months of daily orders, the months' own first tries included.
func TestACardIsNotTriedMoreThanTheNetworksAllow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.env["BILLING_RETRY_SCHEDULE"] = "1d,1d,1d,1d,1d,1d,1d"
	list := debtors("poor")
	list[0].card = softCard + "poor"
	limited := false
	for i, period := range []string{"2027-01", "2027-02"} {
		o.setNow(time.Date(2027, time.Month(i+2), 1, 0, 5, 0, 0, time.UTC))
		jobs := []string{"monthly-billing", "add-ons"}
		for _, job := range jobs {
			o.env["BILLING_JOB"] = job
			o.imports(period, list)
			o.must(0, "run", "--period", period)
		}
		for range 9 {
			o.advance(day + time.Minute)
			for _, job := range jobs {
				o.env["BILLING_JOB"] = job
				r := o.must(0, "retry-declined", "--period", period, "--why", "schedule")
				limited = limited || containsAll(r.stdout, "card networks")
				o.must(0, "run", "--period", period)
			}
		}
	}
	var at []time.Time
	for _, pi := range o.emu.PaymentIntents() {
		at = append(at, pi.Created)
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		if i >= 15 && at[i].Sub(at[i-15]) < 30*day {
			t.Errorf("16 tries from %s to %s", at[i-15], at[i])
		}
	}
	if len(at) < 25 || !limited {
		t.Errorf("%d tries, limited: %t", len(at), limited)
	}
}

func containsAll(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// A try that one command opened counts for the next one, also before a run sends it: the
// networks' limit is the card's, not the command's.
func TestATryThatIsNotSentYetCounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := debtors("aa", "bb", "good")
	list[0].card, list[1].card = softCard+"shared", softCard+"shared"
	o.imports(october, list)
	o.month(0)
	for range 5 {
		o.advance(2 * day)
		o.retry(0, "--all")
		o.month(0)
	}
	o.advance(2 * day)
	o.retry(0, "--account", "aa").says(t, "requeued: 1 charge")
	o.retry(75, "--account", "bb").says(t, "not_retried: 1 charge", "card networks")
}

// A payment that somebody cancelled at Stripe after the decline may have been paid
// another way: it is tried again by name alone, whatever the cancel gave as its reason.
func TestAPaymentThatSomebodyCancelledIsTriedAgainByName(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"abandoned", "requested_by_customer"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.declinedOnes("poor", "other")
			o.advance(4 * day)
			o.acts(o.emu.CancelIntent(o.emu.IntentsFor(keyOf("poor"))[0].ID, reason))
			for range 2 {
				o.retry(0, "--all", "--dry-run").says(t, "somebody cancelled it at Stripe")
			}
			o.retry(0).says(t, "not_retried: 1 charge", "requeued: 1 charge", "somebody cancelled it at Stripe", "--account")
			o.month(0)
			o.intents("poor", "canceled")
			o.intents("other", "canceled requires_payment_method")
			// What this program cancelled itself keeps nothing back.
			o.advance(6 * day)
			o.retry(0).says(t, "not_retried: 1 charge", "requeued: 1 charge")
			o.retry(0, "--account", "poor").says(t, "requeued: 1 charge")
			o.mustBeWhole()
		})
	}
}
