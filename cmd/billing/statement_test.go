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
		"--account is missing": nil, "charges of account nobody": {"--account", "nobody"}, "want table or csv": {"--account", "a0001", "--format", "xlsx"},
	} {
		if r := o.must(64, append([]string{"statement"}, args...)...); !strings.Contains(r.stderr, says) {
			t.Errorf("%q: want %q\n%s", args, says, r)
		}
	}
	o.must(73, "statement", "--account", "a0001", "--output", "/nonexistent/x")
}
