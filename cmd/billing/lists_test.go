package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// chargesText is what the ledger says of each charge, without who looked and when.
func (o *office) chargesText() string {
	o.t.Helper()
	return one[string](o, `SELECT string_agg(concat_ws(' ', account_id, state, reason, try, sends, open_sends, window_opened_at, payment_intent), E'\n' ORDER BY account_id)
		FROM billing.charges WHERE period = $1`, october)
}

// ofKey is a PaymentIntent that answers to a charge's key, as asked; change it
// before it is added.
func (o *office) ofKey(account string) stripeemu.PaymentIntent {
	o.t.Helper()
	return stripeemu.PaymentIntent{
		Customer: one[string](o, `SELECT stripe_customer FROM billing.charges WHERE period = $1 AND account_id = $2`, october, account),
		Amount:   one[int64](o, `SELECT amount_minor FROM billing.charges WHERE period = $1 AND account_id = $2`, october, account),
		Currency: "usd", Metadata: map[string]string{
			"billing_key": keyOf(account), "billing_job": "monthly-billing", "billing_period": october, "billing_account": account, "billing_try": "1",
		},
	}
}

// eachWay runs a test with charges that are looked up by reading everybody's
// payments, and with such that are looked up one by one, with search and without.
func eachWay(t *testing.T, test func(t *testing.T, o *office, oneByOne func())) {
	for _, way := range []string{"by the span", "by search", "by the customer's list"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			test(t, o, func() {
				if way != "by the span" {
					o.flood(1500, "cus_shop") // more than a span is read for
				}
				if way == "by the customer's list" {
					o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
				}
			})
		})
	}
}

// badLists are the ways in which a list can lie, and what is said of it.
var badLists = []struct {
	name   string
	fault  stripeemu.Fault
	says   string
	ofSpan bool // whether it means anything to a list of everybody's payments
}{
	{"fails", stripeemu.Fault{Name: stripeemu.FaultListError, Page: 2}, "HTTP 500", true},
	{"is cut in a page", stripeemu.Fault{Name: stripeemu.FaultListCut, Page: 1}, "does not show a payment that the ledger knows", true},
	{"ends too early", stripeemu.Fault{Name: stripeemu.FaultListEnds, Page: 2}, "does not show a payment that the ledger knows", true},
	{"repeats a page", stripeemu.Fault{Name: stripeemu.FaultListRepeat, Page: 2}, "came twice", true},
	{"is empty and has more", stripeemu.Fault{Name: stripeemu.FaultListEmpty, Page: 2}, "an empty page says that there is more", true},
	{"forgets the customer", stripeemu.Fault{Name: stripeemu.FaultListForgetsCustomer, Page: 2}, "by its customer", false},
	{"forgets the time", stripeemu.Fault{Name: stripeemu.FaultListForgetsCreated}, "by its creation", true},
	{"forgets its filter", stripeemu.Fault{Name: stripeemu.FaultListForgetsFilter}, "not asked for", true},
	{"is of the other mode", stripeemu.Fault{Name: stripeemu.FaultOtherMode, Operation: stripeemu.OpList}, "livemode", true},
}

// concludesNothing looks under a fault, wants nothing concluded and the reason
// said, and then, without the fault, everything settled.
func (o *office) concludesNothing(fault stripeemu.Fault, says string) {
	o.t.Helper()
	id := o.emu.Inject(fault)
	before := o.chargesText()
	r := o.run("reconcile", "--period", october, "--on-absent", "charge")
	if r.code != 75 && r.code != 69 && (r.code != 78 || fault.Name != stripeemu.FaultOtherMode) {
		o.t.Errorf("want exit 75 or 69\n%s", r)
	}
	if after := o.chargesText(); strings.Count(after, "-gone pending") != strings.Count(before, "-gone pending") || windows(after) != windows(before) {
		o.t.Errorf("something was concluded from it:\n%s\n---\n%s\n%s", before, after, r)
	}
	if !strings.Contains(r.String(), says) {
		o.t.Errorf("it does not say %q\n%s", says, r)
	}
	if o.emu.RemoveFault(id) == 0 {
		o.t.Errorf("the fault was never met\n%s", r)
	}
	o.month(0)
	o.onePaymentEach()
}

// windows are the lines of charges that may be renewed or held.
func windows(charges string) string {
	var list []string
	for line := range strings.Lines(charges) {
		if strings.Contains(line, "-gone ") {
			list = append(list, line)
		}
	}
	return strings.Join(list, "")
}

// turnedAway never reach Stripe, which says so: nothing stands against renewing them
// but a list that does not show them.
var turnedAway = []stripeemu.Fault{
	{Name: stripeemu.FaultLoseAnswer, Account: "*-here"},
	{Name: stripeemu.FaultRateLimit429, Account: "*-gone"},
}

// Nothing is concluded from a list of everybody's payments that is not complete.
func TestABadListOfEverybodyProvesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range badLists {
		if !tt.ofSpan {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.emu.AddIntent(stripeemu.PaymentIntent{Customer: "cus_0001", Created: time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)})
			o.unanswered(withFate(60, fates(6, 6)...), turnedAway...)
			o.advance(26 * time.Hour)
			o.flood(250, "cus_shop")
			o.concludesNothing(tt.fault, tt.says)
		})
	}
}

// The same for the list of one customer, whose older payment vouches for it.
func TestABadListOfACustomerProvesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range badLists {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := withFate(110, "here", "gone")
			for _, c := range []int{0, 55} {
				o.emu.AddIntent(stripeemu.PaymentIntent{Customer: list[c].customer, Created: time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)})
			}
			o.september(list)
			o.unanswered(list, turnedAway...)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
			o.advance(26 * time.Hour)
			o.flood(250, list[0].customer)
			o.flood(250, list[55].customer)
			tt.fault.Customer = "cus_00*"
			o.concludesNothing(tt.fault, tt.says)
		})
	}
}

// A list that leaves out one payment, which the ledger knows, may leave out others.
func TestAListWithoutAKnownPaymentProvesNothing(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"of everybody", "of a customer"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := withFate(110, "here", "gone")
			if way == "of everybody" {
				list = withFate(110, fates(12, 12)...)
			}
			o.september(list)
			o.unanswered(list, turnedAway...)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
			o.advance(26 * time.Hour)
			known := one[string](o, `SELECT payment_intent FROM billing.charges WHERE period = '2026-09' AND account_id LIKE '%-gone' LIMIT 1`)
			says := "does not show a payment that the ledger knows"
			if way == "of everybody" {
				known = one[string](o, `SELECT payment_intent FROM billing.charges WHERE period = $1 AND state = 'succeeded' LIMIT 1`, october)
				says = "Stripe's list does not show " + known + " of customer " + one[string](o, `SELECT stripe_customer FROM billing.charges WHERE payment_intent = $1`, known)
			}
			o.concludesNothing(stripeemu.Fault{Name: stripeemu.FaultOmit, PaymentIntent: known}, says)
		})
	}
}

// sets are what Stripe can have under one key, and what they come to.
var sets = []struct {
	account  string
	statuses []string
	state    string
	findings string
}{
	{"declined-paid", []string{"requires_payment_method", "succeeded"}, "succeeded", ""},
	{"paid-paid", []string{"succeeded", "succeeded"}, "succeeded", "duplicate"},
	{"cancelled-processing", []string{"canceled", "processing"}, "processing", ""},
	{"declined-cancelled", []string{"requires_payment_method", "canceled"}, "declined", ""},
	{"action-declined", []string{"requires_action", "requires_payment_method"}, "action_required", ""},
	{"processing-paid", []string{"processing", "succeeded"}, "succeeded", "duplicate"},
	{"three", []string{"canceled", "requires_payment_method", "succeeded"}, "succeeded", ""},
	{"wrong-paid", []string{"wrong", "succeeded"}, "succeeded", "not_as_asked"},
}

// addSet puts a set of PaymentIntents under one key, an hour after the other.
func (o *office) addSet(account string, statuses []string) {
	o.t.Helper()
	for i, status := range statuses {
		pi := o.ofKey(account)
		pi.Created, pi.Status = o.emu.Now().Add(time.Duration(i-len(statuses))*time.Hour), status
		switch status {
		case "requires_payment_method":
			pi.ErrorCode, pi.DeclineCode = "card_declined", "insufficient_funds"
		case "wrong":
			pi.Status, pi.Amount = "succeeded", pi.Amount+1
		}
		o.emu.AddIntent(pi)
	}
}

// The whole set under a key decides, in whatever order Stripe has it, and however
// it is read: what was paid, by the earliest payment; else what may still be paid;
// else what was refused.
func TestTheWholeSetDecidesInAnyOrder(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := customers(80)
		for i, s := range sets {
			list[10*i].id, list[10*i+5].id = s.account+"-gone", s.account+"-back-gone"
		}
		o.unanswered(list, lostAnswers...)
		o.advance(26 * time.Hour)
		for _, s := range sets {
			o.addSet(s.account+"-gone", s.statuses)
			back := slices.Clone(s.statuses)
			slices.Reverse(back)
			o.addSet(s.account+"-back-gone", back)
		}
		oneByOne()
		r := o.must(4, "reconcile", "--period", october)
		for _, s := range sets {
			for _, account := range []string{s.account + "-gone", s.account + "-back-gone"} {
				findings := one[string](o, `SELECT coalesce(string_agg(kind, ' '), '') FROM billing.findings WHERE account_id = $1`, account)
				if got := o.state(account); got != s.state || findings != s.findings {
					t.Errorf("%s: %s with %q, want %s with %q\n%s", account, got, findings, s.state, s.findings, r)
				}
			}
		}
		first := o.emu.IntentsFor(keyOf("paid-paid-gone"))[0].ID
		if got := one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = 'paid-paid-gone'`); got != first {
			t.Errorf("it was settled by %s and not by the earliest, %s", got, first)
		}
		if before := o.chargesText(); o.must(4, "reconcile", "--period", october).code != 4 || o.chargesText() != before {
			t.Error("a second look changed something")
		}
		if o.emu.Posts() > 0 {
			t.Errorf("%d POSTs", o.emu.Posts())
		}
	})
}

// A payment under our key that is not as asked is for a person: never settled,
// never sent again, and the difference is named.
func TestAMatchByKeyThatDiffersIsForAPerson(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := customers(60)
		differ := map[string]func(*stripeemu.PaymentIntent){
			"amount":   func(pi *stripeemu.PaymentIntent) { pi.Amount++ },
			"currency": func(pi *stripeemu.PaymentIntent) { pi.Currency = "eur" },
			"customer": func(pi *stripeemu.PaymentIntent) { pi.Customer = "cus_somebody" },
		}
		for i, what := range []string{"amount", "currency", "customer"} {
			list[20*i].id = what + "-gone"
		}
		o.unanswered(list, turnedAway...)
		o.advance(26 * time.Hour)
		for what, change := range differ {
			pi := o.ofKey(what + "-gone")
			change(&pi)
			o.emu.AddIntent(pi)
		}
		oneByOne()
		r := o.run("run", "--period", october)
		for what := range differ {
			state := o.state(what + "-gone")
			if what == "customer" && strings.HasSuffix(t.Name(), "list") {
				continue // only the list of that other customer shows it
			}
			found := one[string](o, `SELECT coalesce(string_agg(kind || ' ' || seen, ' '), '') FROM billing.findings WHERE account_id = $1`, what+"-gone")
			if state != "review" || !strings.Contains(found, "not_as_asked a PaymentIntent with our key and another "+what) {
				t.Errorf("another %s: %s, findings %q\n%s", what, state, found, r)
			}
			if o.month(4); len(o.emu.IntentsFor(keyOf(what+"-gone"))) != 1 {
				t.Errorf("another %s: it was sent again", what)
			}
		}
	})
}

// A payment whose metadata somebody removed can't be told from another; its charge
// is not charged again, and a person is shown the payment.
func TestAPaymentWithoutItsMetadataIsNotTakenForAbsence(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := withFate(60, "here")
		list[30].card = "pm_usBankAccount_success"
		o.unanswered(list, lostAnswers...)
		stripped := map[string]string{"billing_key": "", "billing_job": "", "billing_period": "", "billing_account": "", "billing_try": ""}
		account, debit := o.accountsLike("-here")[0], list[30].id
		paid := o.emu.IntentsFor(keyOf(account))[0].ID
		bank := one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, debit)
		for _, id := range []string{paid, bank} {
			if err := o.emu.EditMetadata(id, stripped); err != nil {
				t.Fatal(err)
			}
		}
		o.advance(100 * time.Hour)
		oneByOne()
		r := o.month(4)
		if state := o.stateAndReason(account); state != "held: unexplained_payment" {
			t.Errorf("%s\n%s", state, r)
		}
		if got := o.run("reconcile", "--period", october); !strings.Contains(got.stdout, paid) {
			t.Errorf("it does not name the payment\n%s", got)
		}
		if err := o.emu.SettleDebit(bank, true); err != nil {
			t.Fatal(err)
		}
		if o.month(4); o.state(debit) != "succeeded" {
			t.Errorf("the debit whose id is known is %s", o.state(debit))
		}
		if o.emu.Posts() > 0 {
			t.Errorf("%d POSTs", o.emu.Posts())
		}
	})
}

// T40: a customer that Stripe does not have any more, or never had. What was paid is
// found among everybody's payments; the rest is held, and never taken for absent.
func TestACustomerThatIsGoneIsNoAbsence(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "empty", "shows"} {
		t.Run("list "+answer, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, Unverified: stripeemu.Unverified{DeletedCustomerList: answer}})
			list := customers(60)
			list[0].id, list[20].id, list[40].id = "deleted-here", "deleted-gone", "never-gone"
			list[40].customer = "nobody_1"
			o.september(list[:20])
			o.unanswered(list, lostAnswers...)
			o.emu.DeleteCustomer(list[0].customer)
			o.emu.DeleteCustomer(list[20].customer)
			o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
			o.advance(100 * time.Hour)
			o.flood(1500, "cus_shop")
			gone := "held: customer_gone"
			if answer != "" {
				// Its list says nothing, so it is sent once more. Stripe's refusal of a
				// customer that is gone does not make it a charge that was never paid.
				o.month(75)
				if got := o.stateAndReason("deleted-gone"); got != "pending: resource_missing" {
					t.Errorf("deleted-gone: %s after it was refused", got)
				}
				o.advance(25 * time.Hour)
				gone = "held: absent_again"
			}
			r := o.month(4)
			for account, want := range map[string]string{"deleted-here": "succeeded", "deleted-gone": gone, "never-gone": "held: customer_gone"} {
				if got := o.stateAndReason(account); got != want {
					t.Errorf("%s: %s, want %s\n%s", account, got, want, r)
				}
			}
			if n := len(o.emu.IntentsFor(keyOf("deleted-here"))) + len(o.emu.IntentsFor(keyOf("deleted-gone"))); n != 1 {
				t.Errorf("%d payments for the two, want the one that was there", n)
			}
		})
	}
}

// T41: with the key of another account or mode nothing is looked up at all, and with
// a key that may not read something, what it may not is said.
func TestTheWrongKeyProvesNothing(t *testing.T) {
	t.Parallel()
	const reads = "GET payment_intents"
	other := newOffice(t, stripeemu.Config{AnyCustomer: true, AccountID: "acct_other"})
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedKeys: map[string][]string{
		"rk_test_nothing":   {"GET account"},
		"rk_test_noaccount": {reads + "*"},
	}})
	o.unanswered(withFate(60, "here", "gone"), lostAnswers...)
	o.advance(100 * time.Hour)
	o.flood(1500, "cus_shop")
	other.emu.SetOffset(o.emu.Offset())
	right := o.env
	for _, tt := range []struct {
		name string
		env  map[string]string
		code int
		says string
	}{
		{"another account", map[string]string{"STRIPE_API_BASE": other.env["STRIPE_API_BASE"]}, 78, "this ledger belongs to Stripe account acct_emulator (test mode), the key is of acct_other"},
		{"another mode", map[string]string{"STRIPE_SECRET_KEY": "sk_live_emulator"}, 78, "live"},
		{"no reading", map[string]string{"STRIPE_SECRET_KEY": "rk_test_nothing"}, 77, "permission"},
		{"no account", map[string]string{"STRIPE_SECRET_KEY": "rk_test_noaccount"}, 77, "ask Stripe whose key this is"},
		{"no such key", map[string]string{"STRIPE_SECRET_KEY": "sk_test_unknown"}, 77, "auth"},
	} {
		o.env = map[string]string{}
		for _, env := range []map[string]string{right, tt.env} {
			for name, value := range env {
				o.env[name] = value
			}
		}
		r := o.run("reconcile", "--period", october, "--on-absent", "charge")
		if r.code != tt.code || !strings.Contains(r.String(), tt.says) {
			t.Errorf("%s: want exit %d and %q\n%s", tt.name, tt.code, tt.says, r)
		}
		if got := o.state(o.accountsLike("-gone")[0]); got != "pending" || one[int](o, `SELECT sum(renewals) FROM billing.charges`) != 0 {
			t.Errorf("%s: something was concluded\n%s", tt.name, r)
		}
	}
	if o.emu.Posts()+other.emu.Posts() > 0 {
		t.Error("something was sent")
	}
}

// A read-only restricted key is enough to reconcile; nothing is sent.
func TestAReadOnlyKeyIsEnoughToReconcile(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedReadOnlyKeys: []string{"rk_test_reader"}})
	o.unanswered(withFate(60, "here", "gone"), lostAnswers...)
	o.advance(100 * time.Hour)
	o.flood(1500, "cus_shop")
	o.env["STRIPE_SECRET_KEY"] = "rk_test_reader"
	o.must(75, "reconcile", "--period", october, "--on-absent", "charge")
	if got := o.states(october); got["succeeded"] != 59 || one[int](o, `SELECT sum(renewals) FROM billing.charges`) != 1 {
		t.Errorf("%v", got)
	}
	if o.emu.Posts() != 0 || o.emu.Count("POST *") != 0 {
		t.Errorf("%d POSTs", o.emu.Posts())
	}
}

// Charges of connected accounts are looked up there, and only there.
func TestChargesOfConnectedAccountsAreLookedUpInTheirs(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 20} { // one by one, and by the span
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := withFate(120, fates(n/2, n/2)...)
			text := "account_id,stripe_customer,payment_method,currency,stripe_account\n"
			for i, c := range list {
				text += fmt.Sprintf("%s,%s,%s,usd,%s\n", c.id, c.customer, c.card, []string{"acct_one", "acct_two", ""}[3*i/len(list)])
			}
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", text))
			o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoicesCSV(list)))
			o.chargesUnder(lostAnswers...)
			o.advance(26 * time.Hour)
			if n == 2 {
				o.flood(1500, "cus_shop", "acct_one")
				o.flood(1500, "cus_shop", "acct_two")
			}
			r := o.must(75, "reconcile", "--period", october, "--on-absent", "charge")
			if got := o.states(october); got["succeeded"] != 120-n/2 || got["pending"] != n/2 {
				t.Fatalf("%v\n%s", got, r)
			}
			o.advance(48 * time.Hour)
			o.month(0)
			for _, c := range list {
				if list := o.emu.IntentsFor(keyOf(c.id)); len(list) != 1 {
					t.Errorf("%s has %d payments", c.id, len(list))
				}
			}
		})
	}
}

// T35: a bank debit is under way for days, is no success and is never sent again;
// then it fails, or is paid.
func TestADebitThatFailsDaysLaterIsDeclined(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(10)
	list[0].card, list[1].card = "pm_usBankAccount_success_1", "pm_usBankAccount_success_2"
	o.imports(october, list)
	o.month(0)
	if got := o.states(october); got["processing"] != 2 {
		t.Fatalf("%v", got)
	}
	o.emu.ResetLog()
	o.advance(24 * time.Hour)
	o.must(0, "reconcile")
	o.advance(72 * time.Hour)
	for i, ok := range []bool{false, true} {
		if err := o.emu.SettleDebit(o.emu.IntentsFor(keyOf(list[i].id))[0].ID, ok); err != nil {
			t.Fatal(err)
		}
	}
	o.advance(24 * time.Hour)
	o.must(0, "reconcile")
	if a, b := o.state(list[0].id), o.state(list[1].id); a != "declined" || b != "succeeded" {
		t.Errorf("the debit that failed is %s, the other %s", a, b)
	}
	if o.month(0); o.emu.Posts() > 0 {
		t.Errorf("%d POSTs", o.emu.Posts())
	}
}

// T38: what was refunded or disputed was charged; it is never charged again.
func TestARefundedPaymentIsFoundAsCharged(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := customers(60)
		for i, id := range []string{"all-here", "part-here", "disputed-here"} {
			list[20*i].id = id
		}
		o.unanswered(list, lostAnswers...)
		id := func(account string) string { return o.emu.IntentsFor(keyOf(account))[0].ID }
		for _, err := range []error{o.emu.Refund(id("all-here"), 0), o.emu.Refund(id("part-here"), 300), o.emu.Dispute(id("disputed-here"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		o.advance(26 * time.Hour)
		oneByOne()
		o.month(0)
		if got := o.states(october); got["succeeded"] != 60 || o.emu.Posts() > 0 {
			t.Errorf("%v, %d POSTs", got, o.emu.Posts())
		}
	})
}

// T39: a payment pays one debt. One that pays for another charge already does not
// settle a second, and is a finding.
func TestAPaymentOfAnotherChargeSettlesNothing(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := customers(60)
		list[30].id, list[30].customer, list[30].amount = "second-gone", list[31].customer, list[31].amount
		o.unanswered(list, lostAnswers...)
		first := o.emu.IntentsFor(keyOf(list[31].id))[0].ID
		if err := o.emu.EditMetadata(first, map[string]string{"billing_key": keyOf("second-gone"), "billing_account": "second-gone"}); err != nil {
			t.Fatal(err)
		}
		o.advance(26 * time.Hour)
		oneByOne()
		r := o.run("reconcile", "--period", october)
		if got := o.stateAndReason("second-gone"); got != "review: payment_intent_taken" {
			t.Errorf("%s\n%s", got, r)
		}
		if got := one[string](o, `SELECT coalesce(string_agg(kind, ' '), '') FROM billing.findings WHERE account_id = 'second-gone'`); got != "payment_intent_taken" {
			t.Errorf("findings %q\n%s", got, r)
		}
	})
}

// T46: the filter stands on every page that is asked for.
func TestEveryPageIsAskedForWithItsFilter(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, o *office, oneByOne func()) {
		list := withFate(60, "here", "gone")
		o.unanswered(list, lostAnswers...)
		o.advance(26 * time.Hour)
		o.flood(150, list[30].customer)
		oneByOne()
		o.must(75, "reconcile", "--period", october, "--on-absent", "charge")
		second := 0 // pages of the customer's list that are not the first
		for _, r := range o.emu.Requests() {
			if r.Method != "GET" || r.Path != "/v1/payment_intents" {
				continue
			}
			if !strings.Contains(r.Query, "created[gte]=") {
				t.Errorf("a page without its filter: %s", r.Query)
			}
			if strings.Contains(r.Query, "starting_after=") && strings.Contains(r.Query, "customer="+list[30].customer) {
				second++
			}
		}
		if second == 0 && !strings.HasSuffix(t.Name(), "span") {
			t.Error("the second page of the customer's list was asked for without the customer")
		}
	})
}
