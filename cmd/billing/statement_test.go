package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A statement has every month of an account and of no other, with what is open.
func TestStatement(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(3)
	for i, period := range []string{"2026-08", "2026-09", october} {
		o.setNow(time.Date(2026, time.Month(9+i), 1, 0, 5, 0, 0, time.UTC))
		list[0].card = []string{"pm_card_visa_a", "pm_card_visa_chargeDeclined_b", "pm_card_visa_chargeDeclined_c"}[i]
		o.imports(period, list)
		o.must(0, "run", "--period", period)
	}
	o.must(0, "void", "--period", october, "--account", "a0001", "--why", "test")
	r := o.must(0, "statement", "--account", "a0001")
	for _, want := range []string{"account a0001, monthly-billing\n", "2026-08", "2026-09", "2026-10", "void", " all "} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it does not say %q\n%s", want, r)
		}
	}
	if strings.Contains(r.stdout, "10.02") {
		t.Errorf("it has another account's money\n%s", r)
	}
	file := filepath.Join(t.TempDir(), "a0001.csv")
	o.must(0, "statement", "--account", "a0001", "--format", "csv", "--output", file)
	var got []string
	for _, m := range readCSV(t, folder(t, filepath.Dir(file))["a0001.csv"])[1:] {
		got = append(got, strings.Join([]string{m["account_id"], m["period"], m["state"], m["amount"], m["currency"], m["paid"], m["refunded"], m["open"]}, " "))
	}
	want := []string{
		"a0001 2026-08 succeeded 10.01 usd 10.01 0.00 0.00", "a0001 2026-09 declined 10.01 usd 0.00 0.00 10.01", "a0001 2026-10 void 10.01 usd 0.00 0.00 0.00",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if r := o.must(0, "statement", "--account", "a0001", "--json"); !strings.Contains(r.stdout, `"usd": "10.01"`) {
		t.Errorf("%s", r)
	}
	for says, args := range map[string][]string{
		"--account is missing": nil, "invoices and charges of account nobody": {"--account", "nobody"}, "want table or csv": {"--account", "a0001", "--format", "xlsx"},
	} {
		if r := o.must(64, append([]string{"statement"}, args...)...); !strings.Contains(r.stderr, says) {
			t.Errorf("%q: want %q\n%s", args, says, r)
		}
	}
	o.must(73, "statement", "--account", "a0001", "--output", "/nonexistent/x")
}

// A statement has the months that are invoiced and not charged yet, nothing of another
// job's account of the same id, and shows a dispute.
func TestAStatementHasInvoicedMonthsOfItsJobAlone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.imports("2026-09", customers(1))
	o.must(0, "run", "--period", "2026-09")
	list := customers(1)
	list[0].amount = "7.77"
	o.imports("2026-11", list)
	for _, period := range []string{"2026-08", "2026-09", "2026-11"} {
		file := o.file("other.csv", "account_id,amount,currency\na0001,99.99,usd\n")
		o.must(0, "import", "invoices", "--job", "other", "--period", period, "--file", file)
	}
	o.must(0, "run", "--job", "other", "--period", "2026-08")
	o.must(0, "run", "--job", "other", "--period", "2026-09")
	o.acts(o.emu.Dispute(one[string](o, `SELECT payment_intent FROM billing.charges WHERE job = 'monthly-billing'`)))
	o.must(0, "reconcile", "--audit", "--period", "2026-09")
	months := func(args ...string) (got []string) {
		r := o.must(0, append([]string{"statement", "--account", "a0001", "--format", "csv"}, args...)...)
		for _, m := range readCSV(t, r.stdout)[1:] {
			got = append(got, strings.Join([]string{m["period"], m["state"], m["amount"], m["currency"], m["paid"], m["open"], m["disputed"]}, " "))
		}
		return got
	}
	want := []string{"2026-09 succeeded 10.01 usd 10.01 0.00 true", "2026-11 invoiced 7.77 usd 0.00 7.77 false"}
	if diff := cmp.Diff(want, months()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want = []string{
		"2026-08 succeeded 99.99 usd 99.99 0.00 false", "2026-09 succeeded 99.99 usd 99.99 0.00 false", "2026-11 invoiced 99.99 usd 0.00 99.99 false",
	}
	if diff := cmp.Diff(want, months("--job", "other")); diff != "" {
		t.Errorf("the other job's (-want +got)\n%s", diff)
	}
	if r := o.must(0, "statement", "--account", "a0001"); strings.Count(r.stdout, "succeeded, disputed") != 1 || strings.Contains(r.stdout, "99.99") {
		t.Errorf("%s", r)
	}
}

// A statement is nothing of what exports are set to, and goes into no bucket.
func TestAStatementIgnoresTheSettingsOfExports(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.env["BILLING_FORMAT"], o.env["BILLING_OUTPUT"] = "jsonl", "s3://finance/close"
	if r := o.must(0, "statement", "--account", "a0001"); !strings.Contains(r.stdout, "10.01") {
		t.Errorf("%s", r)
	}
	if r := o.must(64, "statement", "--account", "a0001", "--output", "s3://finance/close"); !strings.Contains(r.stderr, "not into a bucket") {
		t.Errorf("%s", r)
	}
}
