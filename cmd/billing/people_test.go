package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// heldOnes leaves a done October in which these accounts are held and one is paid.
func (o *office) heldOnes(ids ...string) {
	o.t.Helper()
	o.imports(october, debtors(append(ids, "good")...))
	list := faults{}
	for _, id := range ids {
		// Ids are globs to the emulator.
		list[strings.NewReplacer("*", "?", "[", "?").Replace(id)] = stripeemu.FaultRateLimit429
	}
	o.meets(list)
	o.advance(26 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.emu.ResetLog()
	if got := o.states(october); got["held"] != len(ids) {
		o.t.Fatalf("held are not %d: %v", len(ids), got)
	}
}

// runState is that of October's run.
func (o *office) runState() string {
	o.t.Helper()
	return one[string](o, `SELECT state FROM billing.job_runs WHERE period = $1`, october)
}

// A person lets held charges go, one, several or all; the next run charges those
// and no others, once, and the history says who let them go and why.
func TestReleasedChargesAreChargedOnceByTheNextRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		n    int
	}{
		"one":     {[]string{"--account", "b"}, 1},
		"several": {[]string{"--account", "a", "--account", "c"}, 2},
		"all":     {[]string{"--all"}, 3},
		"twice":   {[]string{"--account", "b", "--account", "b"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.heldOnes("a", "b", "c")
			if got := o.runState(); got != "done" {
				t.Fatalf("the period is %s", got)
			}
			o.must(0, append([]string{"release", "--period", october, "--why", "the bank was asked", "--by", "ann"}, c.args...)...).says(t, "renewed: ", "next: billing run --period 2026-10")
			o.must(0, "status", "--period", october).says(t, "by ann: the bank was asked")
			code := 4
			if c.n == 3 {
				code = 0
			}
			o.month(code)
			o.month(code)
			o.posts(c.n)
			if got := o.states(october); got["succeeded"] != c.n+1 || got["held"] != 3-c.n {
				t.Errorf("states %v", got)
			}
			if n := one[int](o, `SELECT count(*) FROM billing.charge_events WHERE from_state = 'held' AND to_state = 'pending' AND person = 'ann'`); n != c.n {
				t.Errorf("%d events name the person", n)
			}
			if name != "several" {
				o.must(0, "show", "--period", october, "--account", "b").says(t, "held → pending", "ann", "the bank was asked")
			}
			o.mustBeWhole()
		})
	}
}

// A held charge that was paid meanwhile is settled by the order, not charged.
func TestAReleaseSettlesWhatWasPaidMeanwhile(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.heldOnes("a", "b")
	o.addIntent("a", "succeeded", 1000)
	o.must(0, "release", "--period", october, "--all", "--why", "both").says(t, "succeeded: 1 charge", "renewed: 1 charge")
	o.is("a", "succeeded")
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// What is not paid and not under way can be withdrawn, with a reason; what may be
// paid can't, and then nothing of the order is done.
func TestVoidWithdrawsOnlyWhatCannotBePaid(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := debtors("skipped", "rejected", "declined", "held", "unsent", "hung", "good")
	list[0].card, list[4].card, list[2].card = "", "", "pm_card_chargeCustomerFail_1"
	o.emu.AddCustomer(stripeemu.Customer{ID: list[1].customer, Deleted: true})
	o.imports(october, list)
	o.meets(faults{"held": stripeemu.FaultError500Undone, "hung": stripeemu.FaultLoseRequest})
	o.advance(26 * time.Hour)
	o.month(75)
	list[4].card = "pm_card_visa_4"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "requeue", "--period", october, "--account", "unsent", "--why", "a card")
	for account, want := range map[string]string{
		"skipped": "skipped no_payment_method", "rejected": "rejected resource_missing", "declined": "declined generic_decline",
		"held": "held server_error", "unsent": "pending", "hung": "pending no_answer", "good": "succeeded",
	} {
		o.is(account, want)
	}
	rows := o.everything()
	void := func(code int, accounts ...string) outcome {
		t.Helper()
		args := []string{"void", "--period", october, "--why", "paid by transfer", "--by", "ann"}
		for _, a := range accounts {
			args = append(args, "--account", a)
		}
		return o.must(code, args...)
	}
	void(64, "held", "good").says(t, "account good", "is succeeded", "nothing was done")
	void(64, "held", "skipped", "hung").says(t, "account hung", "was sent: its outcome must be known first")
	void(64, "held", "nobody").says(t, "account nobody has no charge")
	if o.everything() != rows {
		t.Error("a refused void changed the ledger")
	}
	before := o.rowsAndSequences()
	ones := []string{"skipped", "rejected", "declined", "held", "unsent"}
	o.env["BILLING_DRY_RUN"] = "true"
	void(0, ones...).says(t, "5 charges would be withdrawn", "nothing was changed")
	void(64, "held", "good").says(t, "account good", "is succeeded")
	void(64, "hung").says(t, "was sent")
	delete(o.env, "BILLING_DRY_RUN")
	if o.rowsAndSequences() != before {
		t.Error("a dry void changed the database")
	}
	void(0, ones...).says(t, "5 charges of 2026-10 withdrawn")
	if got := o.states(october); got["void"] != 5 {
		t.Errorf("states %v", got)
	}
	void(64, "held").says(t, "is void")
	o.must(0, "show", "--period", october, "--account", "held").says(t, "held → void", "ann", "paid by transfer")
	o.advance(60 * time.Hour)
	o.month(0)
	o.posts(1)
	o.mustBeWhole()
}

// A withdrawn invoice is free again: it is corrected by an import and charged by a
// requeue, as a second try with a body and a key of its own.
func TestAVoidedInvoiceIsCorrectedAndChargedAnew(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.heldOnes("a")
	list := debtors("a", "good")
	list[0].amount = "12.34"
	file := o.file("invoices.csv", invoicesCSV(list))
	o.must(65, "import", "invoices", "--period", october, "--replace", "--file", file).says(t, "next period")
	o.must(0, "void", "--period", october, "--account", "a", "--why", "wrong amount")
	o.month(0)
	o.must(0, "import", "invoices", "--period", october, "--replace", "--file", file)
	o.must(0, "requeue", "--period", october, "--account", "a", "--why", "corrected").says(t, "requeued: 1 charge", "try 2", "next: billing run")
	o.month(0)
	o.posts(1)
	o.is("a", "succeeded")
	if got := one[string](o, `SELECT concat_ws(' ', try, idempotency_key, amount_minor) FROM billing.charges WHERE account_id = 'a'`); got != "2 monthly-billing/2026-10/a/r2 1234" {
		t.Errorf("the charge is %q", got)
	}
	body, err := url.ParseQuery(one[string](o, `SELECT body FROM billing.charges WHERE account_id = 'a'`))
	if err != nil || body.Get("amount") != "1234" || body.Get("metadata[billing_try]") != "2" || body.Get("metadata[billing_key]") != "monthly-billing/2026-10/a" {
		t.Errorf("the body is %v: %v", body, err)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charge_tries WHERE account_id = 'a' AND try = 1 AND body LIKE '%amount=1000%'`); n != 1 {
		t.Errorf("%d closed tries", n)
	}
	o.must(0, "show", "--period", october, "--account", "a").says(t, "void → pending", "earlier tries", "corrected")
	o.mustBeWhole()
}

// A charge whose cause is mended is charged after all: a card that came late, or
// another customer; by name, or all that can mend.
func TestRequeueChargesWhatWasMended(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"by name": {"--account", "nocard", "--account", "wrong"}, "all": {"--all"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := debtors("nocard", "wrong", "zero", "good")
			list[0].card, list[2].amount = "", "0"
			o.emu.AddCustomer(stripeemu.Customer{ID: list[1].customer, Deleted: true})
			o.imports(october, list)
			o.month(4)
			o.is("wrong", "rejected resource_missing")
			o.emu.ResetLog()
			list[0].card, list[1].customer = "pm_card_visa_0", "cus_right"
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			order := append([]string{"requeue", "--period", october, "--why", "mended"}, args...)
			o.must(75, append(order, "--dry-run")...).says(t, "a request may still be on its way", "billing requeue --period 2026-10 --account wrong --why W   # not before ")
			o.advance(20 * time.Minute)
			before := o.rowsAndSequences()
			o.must(0, append(order, "--dry-run")...).says(t, "requeued: 2 charges", "nothing was changed (dry run)")
			if o.rowsAndSequences() != before {
				t.Error("a dry run changed the database")
			}
			o.must(0, order...).says(t, "requeued: 2 charges")
			o.month(0)
			o.posts(2)
			o.is("nocard", "succeeded")
			o.is("wrong", "succeeded")
			o.is("zero", "skipped zero")
			if got := one[string](o, `SELECT string_agg(concat_ws(' ', account_id, try, stripe_customer), ', ' ORDER BY 1) FROM billing.charges WHERE try > 1 OR account_id = 'nocard'`); got != "nocard 1 cus_d0, wrong 2 cus_right" {
				t.Errorf("tries: %s", got)
			}
			o.must(0, "show", "--period", october, "--account", "wrong").says(t, "rejected → pending", "tester", "mended")
			o.mustBeWhole()
		})
	}
}

// A requeue is refused where it would be skipped again, or where the customer
// could still pay what is there; what is paid is settled instead.
func TestRequeueRefusesWhatIsNotMendedOrCouldStillBePaid(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := debtors("nocard", "open", "paid", "good")
	list[0].card = ""
	o.emu.AddCustomer(stripeemu.Customer{ID: list[1].customer, Deleted: true})
	o.emu.AddCustomer(stripeemu.Customer{ID: list[2].customer, Deleted: true})
	o.imports(october, list)
	o.month(4)
	o.emu.ResetLog()
	list[1].customer, list[2].customer = "cus_right", "cus_right2"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.addIntent("open", "requires_payment_method", 1000)
	o.addIntent("paid", "succeeded", 1000)
	o.advance(time.Hour)
	charges := `SELECT string_agg(c::text, E'\n' ORDER BY account_id) FROM billing.charges c WHERE account_id <> 'paid'`
	before := one[string](o, charges)
	o.must(4, "requeue", "--period", october, "--account", "nocard", "--why", "x").says(t, "refused: 1 charge", "it would be skipped again: no_payment_method")
	o.must(4, "requeue", "--period", october, "--account", "open", "--why", "x").says(t, "refused: 1 charge", "the customer could still pay this one")
	o.must(0, "requeue", "--period", october, "--account", "paid", "--why", "x").says(t, "succeeded: 1 charge")
	if got := one[string](o, charges); got != before {
		t.Errorf("a refused charge changed:\n%s\nbefore:\n%s", got, before)
	}
	if got := o.runState(); got != "done" {
		t.Errorf("the period is %s", got)
	}
	o.month(4)
	o.posts(0)
	o.mustBeWhole()
}

// An order that is wrong in any way is one clear error, and changes nothing.
func TestAWrongOrderIsOneErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.heldOnes("a", "b")
	before := o.rowsAndSequences()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"release", "--account", "a"}, "--why is missing"},
		{[]string{"release", "--account", "a", "--why", "  "}, "--why is missing"},
		{[]string{"release", "--why", "x"}, "--account is missing"},
		{[]string{"release", "--all", "--account", "a", "--why", "x"}, "take one"},
		{[]string{"release", "--account", "nobody", "--why", "x"}, "account nobody has no charge"},
		{[]string{"release", "--account", "a", "--account", "nobody", "--why", "x"}, "account nobody has no charge"},
		{[]string{"release", "--account", "a", "--account", "good", "--why", "x"}, "account good for 2026-10 is succeeded, not held; nothing was done"},
		{[]string{"release", "--account", "a,b", "--why", "x"}, "account a,b has no charge"},
		{[]string{"release", "--account", `a'; "`, "--why", "x"}, `account a'; " has no charge`},
		{[]string{"release", "--account", "", "--why", "x"}, "account"},
		{[]string{"requeue", "--account", "a", "--why", "x"}, "is held, not skipped or rejected or void"},
		{[]string{"requeue", "--account", "good", "--why", "x"}, "is succeeded, not"},
		{[]string{"requeue", "--all", "--why", "x"}, "has no charge that is skipped or rejected"},
		{[]string{"requeue", "--all"}, "--why is missing"},
		{[]string{"void", "--account", "a"}, "--why is missing"},
		{[]string{"void", "--why", "x"}, "--account is missing"},
		{[]string{"void", "--account", "a,b", "--why", "x"}, "account a,b has no charge"},
	} {
		r := o.must(64, append([]string{c.args[0], "--period", october}, c.args[1:]...)...)
		r.says(t, c.says)
		if n := strings.Count(r.stderr, "billing: "); n != 1 || r.stdout != "" {
			t.Errorf("billing %q: %d errors\n%s", c.args, n, r)
		}
	}
	for _, command := range []string{"release", "requeue", "void"} {
		o.must(64, command, "--period", "2026-09", "--account", "a", "--why", "x")
		o.must(64, command, "--account", "a", "--why", "x")
	}
	o.must(0, "release", "--period", october, "--all", "--why", "x", "--dry-run").says(t, "renewed: 2 charges", "nothing was changed (dry run)")
	if got := o.rowsAndSequences(); got != before {
		t.Errorf("the database changed:\n%s\nbefore:\n%s", got, before)
	}
	o.posts(0)
}

// Account ids may have commas, quotes and what a shell takes apart: an order is
// about exactly these, and what a report says to type can be typed.
func TestOrdersTakeAccountIdsAsTheyAre(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ids := []string{"a,b", "o'neil $(x)", "a", "b"}
	o.heldOnes(ids...)
	o.must(4, "reconcile", "--period", october).says(t, "--account 'a,b' --why W", `--account 'o'\''neil $(x)' --why W`, "--account a --why W")
	o.must(0, "release", "--period", october, "--account", "a,b", "--account", "o'neil $(x)", "--why", "x").says(t, "renewed: 2 charges")
	for account, want := range map[string]string{"a,b": "pending", "o'neil $(x)": "pending", "a": "held", "b": "held"} {
		if got := o.state(account); got != want {
			t.Errorf("account %s is %s, want %s", account, got, want)
		}
	}
	o.must(0, "void", "--period", october, "--account", "a", "--account", "b", "--why", "x")
	o.month(0)
	o.posts(2)
	o.mustBeWhole()
}
