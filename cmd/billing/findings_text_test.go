package main

import (
	"encoding/csv"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// Everywhere amounts are shown in major units, and what is in the database stays as it was
// seen: the next look compares with that.
func TestWhatWasSeenIsKeptInWholeNumbersAndShownInMajorUnits(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, _ := o.paidTwice()
	seen := "a second payment, " + second + " (succeeded, 1001 usd, customer cus_0001)"
	shown := strings.Replace(seen, "1001", "10.01", 1)
	for _, args := range []string{
		"findings", "findings --json", "findings --format csv", "findings --format jsonl", "status --period 2026-10", "status --period 2026-10 --json",
		"show --period 2026-10 --account a0001", "reconcile --audit --period 2026-10 --dry-run", "reconcile --audit --period 2026-10 --dry-run --json", "reconcile --audit --period 2026-10",
	} {
		r := o.run(strings.Fields(args)...)
		if !strings.Contains(r.stdout, shown) || strings.Contains(r.stdout, seen) {
			t.Errorf("billing %s: want %q\n%s", args, shown, r)
		}
	}
	if got := one[string](o, `SELECT seen FROM billing.findings`); got != seen {
		t.Errorf("the ledger has %q, want %q", got, seen)
	}
}

// Each finding has the amount that it is about: what was given back, or what the payment
// came to, or what was invoiced if that was in another currency or is not there. Where
// nobody knows it the cells are empty.
func TestFindingsHaveAmounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.plant(o.auditMonth(12, 5), 1)
	o.audits(4)
	o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency, seen)
		VALUES ('not_recorded', 'act', 'monthly-billing', $1, 'y', 'k', 'pi_y', 'usd', 'a payment, pi_y, and no charge')`, october)
	want := map[string]string{
		"late_paid": "10.01 1001", "amount_mismatch": "10.03 1003", "currency_mismatch": "10.03 1003", "wrong_customer": "10.04 1004", "canceled": "10.05 1005",
		"missing": "10.06 1006", "duplicate": "10.07 1007", "adjacent_double": "10.08 1008", "refunded": "5.00 500", "disputed": "10.10 1010", "orphan": "10.11 1011",
		"not_recorded": " ",
	}
	got, inJSON := map[string]string{}, map[string]string{}
	rows, err := csv.NewReader(strings.NewReader(o.must(0, "findings", "--format", "csv").stdout)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, row := range rows[1:] {
		got[row[column("kind")]] = row[column("amount")] + " " + row[column("amount_minor")]
	}
	for _, f := range o.findingLines() {
		if inJSON[f.Kind] = f.Amount + " "; f.AmountMinor != nil {
			inJSON[f.Kind] += strconv.FormatInt(*f.AmountMinor, 10)
		}
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(want, inJSON); diff != "" {
		t.Errorf("amounts (-want +got):\n%s", diff)
	}
	text := o.must(0, "findings").stdout
	for _, row := range [][]string{{"finding", "account", "amount", "currency", "payment"}, {"", "refunded (note)", "a0009", "5.00", "usd", "pi_", "5.00 of 10.09 usd were refunded"}} {
		if !hasRow(text, row...) {
			t.Errorf("no line has %v\n%s", row, text)
		}
	}
}

// What is shown as next can be typed as it stands: a shell takes what stands behind a # for
// a remark, an id with blanks and quotes stays one word, and no line is a usage error.
func TestWhatIsToTypeCanBeTyped(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := o.auditMonth(12, 5)
	odd := list[11]
	odd.id, odd.customer, odd.card = "it's $(x) #1", "cus_odd", "pm_card_authenticationRequired_odd"
	list = append(list, odd)
	o.imports(october, list)
	o.must(0, "reopen", "--period", october, "--why", "late")
	o.month(0)
	o.plant(list[:12], 1)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultOmit, PaymentIntent: one[string](o, `SELECT payment_intent FROM billing.charges WHERE account_id = $1`, odd.id)})
	o.advance(time.Hour)
	o.must(4, "reconcile", "--audit", "--period", october)
	var steps []string
	for _, f := range o.findingLines() {
		steps = append(steps, strings.Split(f.Next, "\n")...)
	}
	var status struct {
		Details statusJSON `json:"details"`
	}
	if err := json.Unmarshal([]byte(o.must(0, "status", "--period", october, "--json").stdout), &status); err != nil {
		t.Fatal(err)
	}
	for _, item := range status.Details.Aged {
		steps = append(steps, item.Next)
	}
	steps = append(steps, status.Details.Next...)
	if len(steps) < 20 || !strings.Contains(strings.Join(steps, "\n"), `--account 'it'\''s $(x) #1'`) {
		t.Errorf("%d steps: %q", len(steps), steps)
	}
	for _, step := range steps {
		if words := o.shells(step); words[0] != "billing" || strings.Contains(strings.Join(words, " "), "|") {
			t.Errorf("%q is %q", step, words)
		} else if r := o.run(o.filled(words[1:])...); r.code == 64 {
			t.Errorf("%s: %s", step, r)
		}
	}
}

// findingLines are the open findings, as billing findings has them.
func (o *office) findingLines() (list []findingLineJSON) {
	o.t.Helper()
	for line := range strings.Lines(o.must(0, "findings", "--format", "jsonl").stdout) {
		var f findingLineJSON
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			o.t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

// shells are the words that a shell makes of a line.
func (o *office) shells(line string) []string {
	o.t.Helper()
	out, err := exec.Command("sh", "-c", `billing() { printf '%s\n' billing "$@"; }; `+line).CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// filled writes what people fill in. Nothing is changed, so that what comes later can be
// typed too.
func (o *office) filled(words []string) []string {
	for i, word := range words {
		switch {
		case word == "W":
			words[i] = "agreed"
		case word == "A" && words[i-1] == "--amount":
			words[i] = "1.00"
		case word == "A":
			words[i] = "a0001"
		case strings.HasSuffix(word, ".csv"):
			words[i] = filepath.Join(o.t.TempDir(), word)
		}
	}
	if words[0] == "resolve" || words[0] == "reconcile" || words[0] == "retry-declined" {
		words = append(words, "--dry-run")
	}
	return words
}

// Why the bank declined, and what Stripe advises, are in status and in what a run says: one
// line for each reason.
func TestTheReasonsOfDeclinesAreInStatus(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(7)
	for i, card := range []string{"pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_visa_chargeDeclinedLostCard", "pm_card_visa_chargeDeclinedVelocityLimitExceeded"} {
		list[i].card = card
	}
	list[4].card, list[5].amount = "pm_card_authenticationRequired_5", "-3.00"
	o.imports(october, list)
	ran := o.month(0)
	for _, r := range []outcome{ran, o.must(0, "status", "--period", october)} {
		for _, row := range [][]string{
			{"declined", "insufficient_funds, try_again_later", "usd", "2", "20.03"}, {"declined", "lost_card, do_not_try_again", "usd", "1", "10.03"},
			{"declined", "card_velocity_exceeded ", "usd", "1", "10.04"}, {"action_required", "authentication_required", "usd", "1", "10.05"}, {"all", "usd", "7", "57.22"},
		} {
			if !hasRow(r.stdout, row...) {
				t.Errorf("no line has %v\n%s", row, r)
			}
		}
	}
	minor := func(n int64) *int64 { return &n }
	want := []chargeJSON{
		{State: "succeeded", Currency: "usd", Count: 1, Amount: "10.07", AmountMinor: minor(1007)},
		{State: "action_required", Reason: "authentication_required", Currency: "usd", Count: 1, Amount: "10.05", AmountMinor: minor(1005)},
		{State: "declined", Reason: "card_velocity_exceeded", Currency: "usd", Count: 1, Amount: "10.04", AmountMinor: minor(1004)},
		{State: "declined", Reason: "insufficient_funds", AdviceCode: "try_again_later", Currency: "usd", Count: 2, Amount: "20.03", AmountMinor: minor(2003)},
		{State: "declined", Reason: "lost_card", AdviceCode: "do_not_try_again", Currency: "usd", Count: 1, Amount: "10.03", AmountMinor: minor(1003)},
		// What was skipped is no amount in minor units, which is not the same as nothing.
		{State: "skipped", Reason: "credit", Currency: "usd", Count: 1, Amount: "-3.00"},
	}
	r := o.must(0, "status", "--period", october, "--json")
	if diff := cmp.Diff(want, r.json(t).Charges); diff != "" || !strings.Contains(r.stdout, `"amount_minor": null`) {
		t.Errorf("charges (-want +got):\n%s%s", diff, r)
	}
}

// A format that is set for the whole host and that an export does not have is refused: a
// file in another one than was meant is noticed too late.
func TestAnExportRefusesAFormatThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	o.month(0)
	o.env["BILLING_FORMAT"] = "table"
	export := []string{"export", "charges", "--period", october}
	o.must(64, export...).says(t, `BILLING_FORMAT is "table"`, "type --format csv, or another")
	for format, begins := range map[string]string{"csv": "job,period,", "jsonl": `{"job":`} {
		if r := o.must(0, append(export, "--format", format)...); !strings.HasPrefix(r.stdout, begins) {
			t.Errorf("--format %s: %s", format, r)
		}
	}
	o.must(64, append(export, "--format", "table")...).says(t, `--format "table": want csv, jsonl, xlsx`)
}
