package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// Findings are listed in every format, the oldest first, each with its age and what to
// type about it; what was typed works.
func TestFindingsAreListedWithWhatToType(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.must(0, "findings", "--period", "2026-09", "--kind", "orphan").says(t, "no findings, period 2026-09, kind orphan; --all lists")
	o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, opened_at)
		VALUES ('canceled', 'note', 'monthly-billing', '2026-09', 'a,0002', 'k', billing.now() - interval '40 days')`)
	o.advance(50 * time.Hour)
	text := o.must(0, "findings")
	text.says(t, "42d 2h", "2d 2h", "canceled (note)", "billing resolve --finding "+id+" --why W --as refund", "billing resolve --finding "+id+" --why W --as accept", ", 10.01 usd, customer cus_0001)", "1 finding needs a person")
	if older, newer := strings.Index(text.stdout, "canceled"), strings.Index(text.stdout, "duplicate"); older > newer {
		t.Errorf("the newer one comes first\n%s", text.stdout)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2}, {[]string{"--open"}, 2}, {[]string{"--period", october}, 1}, {[]string{"--kind", "duplicate"}, 1}, {[]string{"--severity", "note"}, 1},
		{[]string{"--severity", "act", "--kind", "canceled"}, 0}, {[]string{"--account", "a,0002"}, 1}, {[]string{"--job", "other"}, 0},
	} {
		rows, err := csv.NewReader(strings.NewReader(o.must(0, append([]string{"findings", "--format", "csv"}, c.args...)...).stdout)).ReadAll()
		lines := strings.Count(o.must(0, append([]string{"findings", "--format", "jsonl"}, c.args...)...).stdout, "\n")
		res := o.must(0, append([]string{"findings", "--json"}, c.args...)...).json(t)
		if err != nil || len(rows)-1 != c.want || lines != c.want || len(res.Findings) != c.want {
			t.Errorf("%v: %d in CSV, %d in JSON lines, %d in JSON, want %d", c.args, len(rows)-1, lines, len(res.Findings), c.want)
		}
		for _, row := range rows {
			if len(row) != len(findingColumns) {
				t.Errorf("%d columns: %v", len(row), row)
			}
		}
	}
	var line findingLineJSON
	if err := json.Unmarshal([]byte(o.must(0, "findings", "--kind", "duplicate", "--format", "jsonl").stdout), &line); err != nil ||
		line.PaymentIntent != second || line.AgeSeconds != 50*3600 && line.AgeSeconds/60 != 50*60 || line.ChargeState != "succeeded" {
		t.Errorf("%+v, %v", line, err)
	}
	o.resolveAs(0, id, "refund", "--yes")
	o.must(0, "findings", "--period", october).says(t, "no findings")
	o.must(0, "findings", "--period", october, "--all").says(t, "refunded by tester: agreed")
	for words, args := range map[string][]string{
		"want act or note": {"--severity", "bad"}, "want one of duplicate, not_as_asked": {"--kind", "dupe"}, "take one": {"--open", "--all"}, "want text, csv or jsonl": {"--format", "xml"},
		"both about stdout": {"--format", "csv", "--json"}, "2026-13": {"--period", "2026-13"},
	} {
		o.must(64, append([]string{"findings"}, args...)...).says(t, words)
	}
}

// Status shows what is open, how old the oldest of it is, and what to type about it.
func TestStatusShowsAgedItems(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(7)
	list[1].card, list[2].card, list[3].card = "pm_usBankAccount_success_2", "pm_card_authenticationRequired_3", "pm_card_visa_4"
	o.imports(october, list)
	o.meets(faults{"a0001": stripeemu.FaultRateLimit429, "a0004": stripeemu.FaultLoseRequest})
	o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 500, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	o.advance(time.Hour)
	o.must(0, "status", "--period", october).says(t, "pending", "1h 0m", "billing run --period 2026-10")
	o.advance(8 * 24 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.advance(3 * time.Hour)
	r := o.must(0, "status", "--period", october)
	for _, want := range [][]string{
		{"finding", "2", "3h 0m", "billing findings --period 2026-10"}, {"review", "1", "3h 0m", "a0001", "billing findings --period 2026-10"},
		{"held", "1", "3h 0m", "a0004", "billing release --period 2026-10 --account a0004 --why W"},
		{"action_required", "1", "8d 4h", "a0003", "billing show --period 2026-10 --account a0003"},
		{"processing", "1", "8d 4h", "a0002", "billing reconcile --period 2026-10"},
	} {
		if !hasRow(r.stdout, want...) {
			t.Errorf("no line has %v\n%s", want, r.stdout)
		}
	}
	details, err := json.Marshal(o.must(0, "status", "--period", october, "--json").json(t).Details)
	if err != nil || !strings.Contains(string(details), `"aged":[{"`) || strings.Count(string(details), `"age_seconds"`) != 5 {
		t.Errorf("%s, %v", details, err)
	}
}

// hasRow reports whether a line begins with the first of some words and has the others
// in their order.
func hasRow(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		rest, ok := strings.TrimSpace(line), strings.HasPrefix(strings.TrimSpace(line), words[0])
		for _, w := range words {
			_, after, there := strings.Cut(rest, w)
			rest, ok = after, ok && there
		}
		if ok {
			return true
		}
	}
	return false
}

// The rights that the documentation grants are enough to resolve, and finance can read
// the findings.
func TestTheGrantsAreEnoughToResolve(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(2, nil)
	first, second := o.finding("a0001"), o.finding("a0002")
	reader := *o
	reader.env = map[string]string{}
	for name, value := range o.env {
		reader.env[name] = value
	}
	o.as("billing_run")
	o.resolveAs(0, first, "accept")
	o.resolveAs(0, second, "refund", "--yes")
	reader.as("billing_read")
	reader.must(0, "findings", "--all").says(t, "accepted by tester")
	reader.must(0, "status", "--period", october)
}
