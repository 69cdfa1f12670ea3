package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// logLine is one line of JSON on stderr.
type logLine map[string]any

// logLines reads the lines of the log; what is said to people stands between them.
func (r outcome) logLines(t *testing.T) (list []logLine) {
	t.Helper()
	for _, text := range strings.Split(r.stderr, "\n") {
		if !strings.HasPrefix(text, "{") {
			continue
		}
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("a line is no JSON: %v\n%s", err, text)
		}
		list = append(list, line)
	}
	return list
}

// Every line of a run says which run and attempt wrote it, and a charge that was
// not paid has a line with the keys by which it is found in the ledger and in
// Stripe's dashboard, and without anything of the customer's.
func TestLogLinesSayWhichRunAndWhichCharge(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(4)
	list[1].card = "pm_card_chargeDeclined"
	accounts := "account_id,stripe_customer,payment_method,currency,email,name\n"
	for _, c := range list {
		accounts += c.id + "," + c.customer + "," + c.card + ",usd," + c.id + "@customer.example,Name of " + c.id + "\n"
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accounts))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoicesCSV(list)))
	r := o.month(0)
	run := one[string](o, `SELECT run_id::text FROM billing.job_runs`)
	lines, claimed, declined := r.logLines(t), false, logLine(nil)
	for _, line := range lines {
		if claimed = claimed || line["msg"] == "claimed"; claimed {
			if line["run_id"] != run || line["attempt"] != 1.0 || line["period"] != october {
				t.Errorf("which run wrote %v?", line)
			}
		}
		if line["state"] == "declined" {
			declined = line
		}
	}
	key := "monthly-billing/2026-10/a0002"
	if declined == nil || declined["billing_key"] != key || declined["request_id"] != one[string](o, `SELECT request_id FROM billing.charges WHERE state = 'declined'`) {
		t.Errorf("the declined charge: %v\n%s", declined, r)
	}
	if strings.Contains(r.stderr, "a0001") {
		t.Errorf("a charge that was paid has a line of its own\n%s", r)
	}
	loud := o.run("run", "--period", october, "--verbose").stderr + r.stderr
	for _, never := range []string{"@customer.example", "Name of", "_secret_", "sk_test", "pm_card"} {
		if strings.Contains(loud, never) {
			t.Errorf("%q stands in the log\n%s", never, loud)
		}
	}
	if len(lines) < 4 {
		t.Errorf("only %d lines", len(lines))
	}
}

// What a run in trouble says about a charge has its keys too, and with --verbose so
// has every send.
func TestVerboseLogsEverySend(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	r := o.month(0, "--verbose")
	sends := 0
	for _, line := range r.logLines(t) {
		if line["msg"] != "send" {
			continue
		}
		sends++
		for _, name := range []string{"billing_key", "request_id", "try", "payment_intent", "run_id", "attempt"} {
			if line[name] == nil || line[name] == "" {
				t.Errorf("%s is missing in %v", name, line)
			}
		}
	}
	if sends != 3 {
		t.Errorf("%d sends are logged, want 3", sends)
	}
}
