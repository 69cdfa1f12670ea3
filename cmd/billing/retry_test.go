package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

const (
	day      = 24 * time.Hour
	softCard = "pm_card_visa_chargeDeclinedInsufficientFunds_"
)

// declinedOnes leaves a done October in which the charges of these accounts were
// declined for lack of money, and another was paid.
func (o *office) declinedOnes(ids ...string) []customer {
	o.t.Helper()
	list := debtors(append(ids, "good")...)
	for i := range ids {
		list[i].card = softCard + ids[i]
	}
	o.imports(october, list)
	o.month(0)
	if got := o.states(october); got["declined"] != len(ids) {
		o.t.Fatalf("declined are not %d: %v", len(ids), got)
	}
	o.emu.ResetLog()
	return list
}

// retry orders a new try for everything declined, or for what the words say.
func (o *office) retry(code int, args ...string) outcome {
	o.t.Helper()
	return o.must(code, append([]string{"retry-declined", "--period", october, "--why", "tried"}, args...)...)
}

// topUp lets a card pay from now on.
func (o *office) topUp(account string) { o.emu.UpdatePaymentMethod(softCard+account, "pm_card_visa") }

// intents are the statuses of an account's payments, the earliest first.
func (o *office) intents(account, want string) []stripeemu.PaymentIntent {
	o.t.Helper()
	list := o.emu.IntentsFor(keyOf(account))
	var got []string
	for _, pi := range list {
		got = append(got, pi.Status)
	}
	if strings.Join(got, " ") != want {
		o.t.Errorf("the payments of %s are %v, want %s", account, got, want)
	}
	return list
}

// A card without money is tried by the schedule, three and then five days later, each
// try under its own key, and pays on the third: three keys, one payment, and of what
// was declined nothing is left that could be paid.
func TestADeclineComesGoodOnTheThirdTry(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.declinedOnes("poor")
	for _, c := range []struct {
		after  time.Duration
		topUp  bool
		open   bool
		states string
	}{
		{2 * day, false, false, "requires_payment_method"},
		{day + time.Hour, false, true, "canceled requires_payment_method"},
		{4 * day, true, false, "canceled requires_payment_method"},
		{day + time.Hour, false, true, "canceled canceled succeeded"},
		{30 * day, false, false, "canceled canceled succeeded"},
	} {
		o.advance(c.after)
		if c.topUp {
			o.topUp("poor")
		}
		r := o.retry(0)
		if strings.Contains(r.stdout, "requeued: 1 charge") != c.open {
			t.Errorf("after %s a try was opened: %t\n%s", c.after, !c.open, r)
		}
		o.month(0)
		o.intents("poor", c.states)
	}
	o.is("poor", "succeeded")
	keys := map[string]bool{}
	for _, r := range o.emu.Requests() {
		if r.Method == "POST" && r.Path == "/v1/payment_intents" {
			keys[r.IdempotencyKey] = true
		}
	}
	if want := keyOf("poor"); len(keys) != 2 || !keys[want+"/r2"] || !keys[want+"/r3"] {
		t.Errorf("keys %v", keys)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charge_tries WHERE state = 'declined' AND payment_intent IS NOT NULL`); n != 2 {
		t.Errorf("%d closed tries", n)
	}
	o.must(0, "show", "--period", october, "--account", "poor").says(t, "declined → pending", "tried")
	o.mustBeWhole()
}

// The daily line of the documents charges whom it can: what a person must look at, and a
// try that no run has sent yet, keep nobody else from it. Nothing but a run sends such a
// try, and that is what to type.
func TestTheDailyLineChargesWhomItCan(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/retries.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(doc), "# cron, every day: whatever is due\n")
	line, _, _ := strings.Cut(after, "\n")
	first, second, both := strings.Cut(line, "; ")
	o := newOffice(t)
	if help := o.must(0, "retry-declined", "--help").stdout; !both || !strings.Contains(help, line) {
		t.Fatalf("the daily line %q is not what --help says", line)
	}
	o.declinedOnes("poor", "asked")
	o.addIntent("asked", "requires_action", 1000)
	o.topUp("poor")
	o.advance(4 * day)
	daily := strings.Fields(strings.TrimPrefix(first, "billing "))
	o.must(4, daily...).says(t, "requeued: 1 charge", "next: billing run --period 2026-10", "about to pay")
	o.must(75, daily...).says(t, "-> billing run --period 2026-10 before ")
	o.must(0, strings.Fields(strings.TrimPrefix(second, "billing "))...)
	o.posts(1)
	o.is("poor", "succeeded")
}
