package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
)

// Money stands right-aligned with the digits of its currency, states in the order
// of reports, and every currency has its sum.
func TestSumsTable(t *testing.T) {
	usd := func(state ledger.ChargeState, reason string, count int64, amount string) ledger.StateSum {
		return ledger.StateSum{State: state, Reason: reason, Currency: "usd", Count: count, Amount: decimal.RequireFromString(amount)}
	}
	a := &app{}
	got := a.sumsTable([]ledger.StateSum{
		usd(ledger.ChargeDeclined, "", 12, "120"), usd(ledger.ChargeSkipped, "zero", 3, "0"),
		usd(ledger.ChargeSucceeded, "", 4781, "123456.7"),
		{State: ledger.ChargeSucceeded, Currency: "jpy", Count: 1, Amount: decimal.RequireFromString("80")},
	})
	want := strings.TrimPrefix(`
 state      reason  currency  charges     amount
─────────────────────────────────────────────────
 succeeded          usd          4781  123456.70
 succeeded          jpy             1         80
 declined           usd            12     120.00
 skipped    zero    usd             3       0.00
─────────────────────────────────────────────────
 all                jpy             1         80
 all                usd          4796  123576.70`, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Wide characters keep their columns, and nothing in a name can move the cursor.
func TestTableShowsNamesFromOutside(t *testing.T) {
	a := &app{}
	tab := a.newTable(table.Row{"name", "amount"}, 2)
	tab.AppendRow(table.Row{clean("株式会社"), "12.00"})
	tab.AppendRow(table.Row{clean("a\x1b[2Jb\n\u202e"), "3.00"})
	want := strings.TrimPrefix(`
 name               amount
───────────────────────────
 株式会社            12.00
 a\x1b[2Jb\n\u202e    3.00`, "\n")
	if diff := cmp.Diff(want, tab.Render()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A name can't be run by a spreadsheet; everything else comes back byte for byte.
func TestExportedRows(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 5, 0, 0, time.FixedZone("", 3600))
	minor, intent := int64(-7000), "pi_1"
	charge := ledger.ReportCharge{
		Job: "monthly-billing", Period: "2026-10", AccountID: "-5", Name: "=1+1", BillingKey: "monthly-billing/2026-10/-5", Try: 1,
		State: ledger.ChargeSucceeded, Amount: "-70", Currency: "usd", AmountMinor: &minor, PaymentIntent: &intent,
		AmountRefunded: "0", Sends: 1, CreatedAt: at, RunID: uuid.MustParse("00000000-0000-4000-8000-000000000001"), RequestID: "req_1",
	}
	for format, want := range map[string]string{
		"csv": strings.Join(chargeColumns, ",") + "\n" +
			"monthly-billing,2026-10,-5,'=1+1,monthly-billing/2026-10/-5,1,,succeeded,,-70.00,usd,-7000,pi_1,,,,0.00,false,1," +
			"2026-10-31T23:05:00Z,,,00000000-0000-4000-8000-000000000001,req_1,,,,,0,\n",
		"jsonl": `{"job":"monthly-billing","period":"2026-10","account_id":"-5","name":"=1+1","billing_key":"monthly-billing/2026-10/-5",` +
			`"try":1,"idempotency_key":null,"state":"succeeded","reason":"","amount":"-70.00","currency":"usd","amount_minor":-7000,` +
			`"payment_intent":"pi_1","stripe_customer":"","stripe_account":"","decline_code":"","amount_refunded":"0.00","disputed":false,` +
			`"sends":1,"created_at":"2026-10-31T23:05:00Z","window_opened_at":null,"settled_at":null,` +
			`"run_id":"00000000-0000-4000-8000-000000000001","request_id":"req_1",` +
			`"fee":null,"net":null,"payout":"","available_on":null,"refunds":0,"balance_currency":""}` + "\n",
	} {
		var b bytes.Buffer
		w, err := chargeWriters[format](&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.write(charge); err != nil {
			t.Fatal(err)
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", format, diff)
		}
	}
	for name, want := range map[string]string{"": "", "+49": "'+49", "@a": "'@a", "\tq": "'\tq", "\rq": "'\rq", "-x": "'-x", "a=b": "a=b", "ä": "ä"} {
		if got := disarm(name); got != want {
			t.Errorf("disarm %q: got %q, want %q", name, got, want)
		}
	}
}

// Both formats have the columns of report_charges in the same order.
func TestExportedColumnsAreTheSameInBothFormats(t *testing.T) {
	text, err := json.Marshal(chargeJSONL{})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, column := range chargeColumns {
		i := strings.Index(string(text)[at:], `"`+column+`":`)
		if i < 0 {
			t.Fatalf("column %s is missing or in another place in JSON", column)
		}
		at += i
	}
	if n := strings.Count(string(text), `":`); n != len(chargeColumns) {
		t.Errorf("JSON has %d columns, CSV %d", n, len(chargeColumns))
	}
}
