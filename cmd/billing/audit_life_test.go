package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// What Stripe books days after the month, the next audit fills in: a bank debit has a
// fee only once it is settled. That it is paid by then is no finding.
func TestFeesThatComeLateAreFilledIn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(2)
	list[1].card = "pm_usBankAccount_success_2"
	o.imports(october, list)
	o.month(0)
	fee := func() int {
		return one[int](o, `SELECT coalesce(fee_minor, -1) FROM billing.charges WHERE account_id = 'a0002'`)
	}
	o.audits(0)
	if fee() != -1 {
		t.Errorf("a debit under way has a fee of %d", fee())
	}
	o.advance(4 * 24 * time.Hour)
	o.acts(o.emu.SettleDebit(o.payment("a0002"), true))
	a, _ := o.audits(0)
	if o.state("a0002") != "succeeded" || fee() != 59 || len(o.found()) != 0 {
		t.Errorf("it is %s with a fee of %d, and findings %v", o.state("a0002"), fee(), o.found())
	}
	if got := a.amounts("usd"); got["net"] != "18.85" { // 20.03 less 0.59 twice
		t.Errorf("the sums say %v", got)
	}
}

// Refunds and disputes are notes, beside their charges, and need a person only beyond
// a limit. A refund that fails is none any more, and its note closes by itself.
func TestRefundsAndDisputesAreNotes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.auditMonth(10, 0)
	o.acts(o.emu.Refund(o.payment("a0001"), 400))
	o.acts(o.emu.Refund(o.payment("a0001"), 100))
	o.acts(o.emu.Refund(o.payment("a0002"), 0))
	o.acts(o.emu.Dispute(o.payment("a0003")))
	o.audits(0)
	rows := readCSV(t, o.must(0, "export", "charges", "--period", october).stdout)
	for i, want := range []string{"5.00 2 false", "10.02 1 false", "0.00 0 true"} {
		if got := rows[i+1]["amount_refunded"] + " " + rows[i+1]["refunds"] + " " + rows[i+1]["disputed"]; got != want {
			t.Errorf("%s: %s, want %s", rows[i+1]["account_id"], got, want)
		}
	}
	o.audits(0, "--max-refunded", "0.2", "--max-disputed", "0.1")
	o.audits(4, "--max-refunded", "0.1")
	o.audits(0)
	o.acts(o.emu.FailRefunds(o.payment("a0002")))
	if a, _ := o.audits(0); a.Closed != 1 || a.amounts("usd")["refunded"] != "-5.00" {
		t.Errorf("%+v", a)
	}
	want := planted{"refunded": {"monthly-billing/2026-10/a0001": true}, "disputed": {"monthly-billing/2026-10/a0003": true}}
	if diff := cmp.Diff(want, o.found()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// What a person resolved stays resolved until something else is seen; what was given
// back in full is no difference any more.
func TestAFindingComesBackOnlyIfSomethingElseIsSeen(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(12, 5)
	o.plant(list, 1)
	o.audits(4)
	o.exec(`UPDATE billing.findings SET resolved_at = billing.now(), resolved_by = 'ann', resolution = 'accept', why = 'agreed' WHERE severity = 'act'`)
	if a, _ := o.audits(0); a.Opened != 0 {
		t.Errorf("%d findings came back", a.Opened)
	}
	second := one[string](o, `SELECT payment_intent FROM billing.findings WHERE kind = 'duplicate'`)
	o.exec(`UPDATE billing.findings SET seen = 'something else' WHERE kind = 'duplicate'`)
	if a, _ := o.audits(4); a.Opened != 1 {
		t.Errorf("%d findings came back", a.Opened)
	}
	o.acts(o.emu.Refund(second, 0))
	if a, _ := o.audits(0); a.Closed != 1 {
		t.Errorf("%d findings closed when the second payment was given back", a.Closed)
	}
}

// Invoices that are in no charge, and charges whose invoice changed, are lines of the
// sums: all three sides are explained.
func TestTheSumsExplainAllThreeSides(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(5)
	list[1].currency, list[1].amount = "eur", "20.00"
	list[2].card = ""
	list[3].card = "pm_card_chargeCustomerFail_4"
	o.ungated()
	o.imports(october, list)
	o.month(0)
	o.exec(`INSERT INTO billing.accounts (account_id, stripe_customer, payment_method) VALUES ('late', 'cus_late', 'pm_card_visa_late')`)
	o.exec(`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		VALUES ('monthly-billing', '2026-10', 'late', 7.50, 'usd', 'test', '')`)
	a, _ := o.audits(4)
	if diff := cmp.Diff(map[string]string{
		"invoiced": "47.63", "not recorded": "-7.50", "recorded": "40.13", "skipped": "-10.03", "declined": "-10.04",
		"paid in the ledger": "20.06", "paid at Stripe": "20.06", "fees": "-1.18", "net": "18.88",
	}, a.amounts("usd")); diff != "" {
		t.Errorf("usd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"invoiced": "20.00", "recorded": "20.00", "paid in the ledger": "20.00", "paid at Stripe": "20.00", "fees": "-0.88", "net": "19.12",
	}, a.amounts("eur")); diff != "" {
		t.Errorf("eur (-want +got):\n%s", diff)
	}
}

// An audit of a month that was never run finds what was paid for it nevertheless.
func TestAnAuditOfAMonthThatWasNeverRun(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	audit := func(code int, args ...string) outcome {
		return o.must(code, append([]string{"reconcile", "--audit", "--period"}, args...)...)
	}
	audit(64, october).says(t, "no month of the job monthly-billing")
	o.imports("2026-11", customers(1))
	if a, _ := o.audits(0); a.Compared != 0 || a.Payments != 0 {
		t.Errorf("%+v", a)
	}
	audit(0, "2025-11")
	audit(64, "2025-10").says(t, "neither invoices nor a run of monthly-billing for 2025-10")
	audit(64, "2026-12").says(t, "is --period right?")
	audit(64, october, "--job", "monthly").says(t, "no month of the job monthly")
	o.emu.AddIntent(stripeemu.PaymentIntent{Customer: "cus_1", Amount: 4900, Metadata: map[string]string{
		"billing_key": "monthly-billing/2026-10/4182", "billing_job": "monthly-billing", "billing_period": october, "billing_account": "4182"}})
	r := o.run("reconcile", "--period", october, "--audit")
	if len(o.found()["orphan"]) != 1 || r.code == 0 {
		t.Errorf("findings %v\n%s", o.found(), r)
	}
}

// What is ambiguous is refused, with what to type instead.
func TestAuditsThatAreRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1)) // so that nothing else is wrong
	for _, args := range []string{"", "--period 2026-10 --rebuild --why w", "--period 2026-10 --format csv", "--period 2026-10 --max-refunded 5", "--period 2026-13",
		"--period 2026-10 --why w", "--period 2026-10 --on-absent=charge"} {
		o.must(64, append([]string{"reconcile", "--audit"}, strings.Fields(args)...)...)
	}
	for _, args := range []string{"--payouts", "--max-refunded 0.02", "--max-disputed=0.02"} {
		o.must(64, append([]string{"reconcile"}, strings.Fields(args)...)...).says(t, "type --audit too")
	}
	if n := one[int](o, `SELECT count(*) FROM billing.audits`); n != 0 {
		t.Errorf("%d audits were begun", n)
	}
}

// What is set for a whole host breaks no command of it: a format that a command does not
// have is its default, limits of an audit are for the audits, and nothing that is done
// once is taken from there.
func TestASettingOfTheHostBreaksNoReconcile(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	for name, value := range map[string]string{
		"BILLING_FORMAT": "jsonl", "BILLING_MAX_REFUNDED": "0.02", "BILLING_ON_ABSENT": "hold", "BILLING_AUDIT": "true", "BILLING_PAYOUTS": "true",
	} {
		o.env[name] = value
	}
	o.must(0, "reconcile", "--period", october).says(t, "1 charge looked at")
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "restored")
	o.must(0, "retry-declined", "--period", october, "--why", "schedule")
	o.env["BILLING_FORMAT"] = "csv"
	o.must(0, "reconcile", "--period", october, "--audit").says(t, "0 differences; compared: 1 charge")
	o.must(64, "reconcile", "--period", october, "--format", "jsonl").says(t, `--format "jsonl": want table or csv`)
}

// Payments of a connected account are read there.
func TestAnAuditReadsConnectedAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.must(0, "import", "accounts", "--file", o.file("a.csv", "account_id,stripe_customer,payment_method,currency,stripe_account\n"+
		"a1,cus_1,pm_card_visa_1,usd,\na2,cus_2,pm_card_visa_2,usd,acct_other\n"))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("i.csv", "account_id,amount,currency\na1,10.00,usd\na2,20.00,usd\n"))
	o.month(0)
	a, _ := o.audits(0)
	if a.Payments != 2 || a.amounts("usd")["paid at Stripe"] != "30.00" || fmt.Sprint(a.Differences) != "map[]" {
		t.Errorf("%+v", a)
	}
}
