//go:build unix

package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
)

// allAgree is a month in which every witness says what was worked out by hand.
func allAgree() witnesses {
	stripe := side{}
	for l, s := range byHand() {
		if atStripe(l.state) {
			stripe[l] = s
		}
	}
	return witnesses{hand: byHand(), invoices: byHand(), ledger: byHand(), stripe: stripe}
}

// The table is green for the expected month, and for nothing else: a payment
// too many, a cent too few, an invoice that no charge accounts for, and money
// at Stripe for a charge that says it was skipped all turn it red.
func TestTableSeesDifferences(t *testing.T) {
	text.DisableColors()
	paid, skipped := line{ledger.ChargeSucceeded, "usd"}, line{ledger.ChargeSkipped, "usd"}
	cent := decimal.RequireFromString("0.01")
	for name, spoil := range map[string]func(w witnesses){
		"":                       func(witnesses) {},
		"a payment too many":     func(w witnesses) { w.stripe.add(paid, 1, cent) },
		"a cent too few":         func(w witnesses) { w.ledger.add(paid, 0, cent.Neg()) },
		"a charge too few":       func(w witnesses) { w.ledger.add(paid, -1, decimal.Zero) },
		"a lost invoice":         func(w witnesses) { w.invoices.add(line{unrecorded, "usd"}, 1, cent) },
		"a payment for skipped":  func(w witnesses) { w.stripe.add(skipped, 1, cent) },
		"a line nobody expected": func(w witnesses) { w.stripe.add(line{ledger.ChargeSucceeded, "gbp"}, 1, cent) },
		"a whole side missing":   func(w witnesses) { maps.DeleteFunc(w.stripe, func(line, sum) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := allAgree()
			spoil(w)
			var out bytes.Buffer
			equal := w.print(&out)
			if want := name == ""; equal != want || strings.Contains(out.String(), "DIFFERS") == want {
				t.Errorf("equal = %v, want %v, for:\n%s", equal, want, out.String())
			}
		})
	}
}
