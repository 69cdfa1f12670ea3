package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
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

// What show --json has of a charge are the columns of the export, in the same order.
func TestShowHasTheColumnsOfTheExport(t *testing.T) {
	text, err := json.Marshal(chargeJSONL{})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, column := range export.Charges.Names() {
		i := strings.Index(string(text)[at:], `"`+column+`":`)
		if i < 0 {
			t.Fatalf("column %s is missing or in another place in JSON", column)
		}
		at += i
	}
	if n := strings.Count(string(text), `":`); n != len(export.Charges.Columns) {
		t.Errorf("JSON has %d columns, the export %d", n, len(export.Charges.Columns))
	}
}
