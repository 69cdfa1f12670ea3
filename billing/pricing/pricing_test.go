package pricing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger/money"
)

func dec(text string) decimal.Decimal { return decimal.RequireFromString(text) }

func perUnit(unitPrice, included string) pricing.Price {
	return pricing.PerUnit{UnitPrice: dec(unitPrice), Included: dec(included)}
}

// list is valid from October and has one price for every metric named.
func list(currency money.Currency, metrics map[string]pricing.Price) pricing.List {
	return pricing.List{ValidFrom: "2026-10", Currency: currency, Metrics: metrics}
}

func used(metric, quantity string) pricing.Usage {
	return pricing.Usage{Metric: metric, Quantity: dec(quantity)}
}

// mustPrice wants an invoice of this total, whose lines have these amounts.
func mustPrice(t *testing.T, a pricing.Account, total string, amounts ...string) pricing.Invoice {
	t.Helper()
	inv, err := a.Price()
	if err != nil {
		t.Fatal(err)
	}
	if !inv.Total.Equal(dec(total)) {
		t.Errorf("the total is %s, want %s", inv.Total, total)
	}
	var got []string
	for _, l := range inv.Lines {
		got = append(got, l.Amount.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(amounts) {
		t.Errorf("the lines come to %v, want %v", got, amounts)
	}
	return inv
}

// A month as it is worked out by hand: 20.00 base fee; 1,500 calls, of which 1,000 are
// included, at 0.0049 are 2.45; 0.5 GB at 0.09 are 0.045, which rounds to 0.05 or 0.04.
// 20 + 2.45 + 0.045 = 22.495, and half goes up.
func TestAMonthByHand(t *testing.T) {
	t.Parallel()
	l := list("usd", map[string]pricing.Price{"api_calls": perUnit("0.0049", "1000"), "storage": perUnit("0.09", "0")})
	l.BaseFee = dec("20")
	a := pricing.Account{ID: "acme", List: l, BaseFee: true, Usage: []pricing.Usage{used("storage", "0.5"), used("api_calls", "1500")}}
	inv := mustPrice(t, a, "22.5", "20", "2.45", "0.05")
	if inv.Lines[1].Metric != "api_calls" || !inv.Lines[1].Exact.Equal(dec("2.45")) {
		t.Errorf("the second line is %+v", inv.Lines[1])
	}
	// A fee of one's own counts instead, and a paused account owes none.
	a.List.Accounts = map[string]decimal.Decimal{"acme": dec("100")}
	mustPrice(t, a, "102.5", "100", "2.45", "0.05")
	a.BaseFee = false
	mustPrice(t, a, "2.5", "2.45", "0.05")
	a.Usage = nil
	mustPrice(t, a, "0")
}

// T19: 81 lines of 0.0449 come to 3.6369. Rounded one by one they would be 3.24.
func TestRoundedLinesAddUp(t *testing.T) {
	t.Parallel()
	prices, usage := map[string]pricing.Price{}, []pricing.Usage{}
	for i := range 81 {
		name := fmt.Sprintf("m%02d", i)
		prices[name] = perUnit("0.0449", "0")
		usage = append(usage, used(name, "1"))
	}
	inv, err := pricing.Account{List: list("usd", prices), Usage: usage}.Price()
	if err != nil {
		t.Fatal(err)
	}
	sum := decimal.Zero
	for _, l := range inv.Lines {
		sum = sum.Add(l.Amount)
	}
	if !inv.Total.Equal(dec("3.64")) || !sum.Equal(inv.Total) {
		t.Errorf("the total is %s and the lines add up to %s, want 3.64", inv.Total, sum)
	}
}

// T61: quantities of more than 15 digits keep all of them, and what Stripe can't charge
// at once is a problem of this account, not another amount.
func TestHugeQuantitiesAreExact(t *testing.T) {
	t.Parallel()
	for quantity, want := range map[string][2]string{
		"9007199254740993": {"900719925.4740993", "900719925.47"},
		"1000000000000000": {"100000000", "100000000"},
		"999999999999999":  {"99999999.9999999", "100000000"},
	} {
		a := pricing.Account{List: list("usd", map[string]pricing.Price{"m": perUnit("0.0000001", "0")}), Usage: []pricing.Usage{used("m", quantity)}}
		inv := mustPrice(t, a, want[1], want[1])
		if got := inv.Lines[0].Exact.String(); got != want[0] {
			t.Errorf("%s × 0.0000001 is exactly %s, want %s", quantity, got, want[0])
		}
	}
	a := pricing.Account{List: list("usd", map[string]pricing.Price{"m": perUnit("1", "0")}), Usage: []pricing.Usage{used("m", "10000000000")}}
	var problem *pricing.Problem
	if inv, err := a.Price(); !errors.As(err, &problem) || problem.Code != pricing.CodeTooLarge {
		t.Errorf("ten thousand million dollars: %v, %v", inv, err)
	}
}

// What rounds to is what Stripe charges in a currency: whole yen, hundredths of a
// dinar (its third digit must be 0), whole krónur.
func TestCurrenciesRoundToWhatCanBeCharged(t *testing.T) {
	t.Parallel()
	for currency, total := range map[money.Currency]string{"usd": "12.35", "jpy": "12", "kwd": "12.35", "isk": "12", "ugx": "12", "krw": "12"} {
		a := pricing.Account{List: list(currency, map[string]pricing.Price{"m": perUnit("1", "0")}), Usage: []pricing.Usage{used("m", "12.345")}}
		inv := mustPrice(t, a, total, total)
		if _, err := money.ToMinor(inv.Total, currency); err != nil {
			t.Error(err)
		}
	}
}

// T60: +100, −100 and −5 in one month are −5 net, a credit. Nothing is included in
// what was not used, so −5 is priced whole.
func TestANegativeNetIsACredit(t *testing.T) {
	t.Parallel()
	a := pricing.Account{List: list("usd", map[string]pricing.Price{"m": perUnit("2", "1000")}), Usage: []pricing.Usage{used("m", "-5")}}
	inv := mustPrice(t, a, "-10", "-10")
	minor, err := money.ToMinor(inv.Total, "usd")
	if err != nil || money.SkipReason(minor, "usd") != money.SkipCredit {
		t.Errorf("a total of %s is skipped as %q, %v", inv.Total, money.SkipReason(minor, "usd"), err)
	}
	// Charges and credits that nearly cancel keep their lines.
	a = pricing.Account{List: list("usd", map[string]pricing.Price{"up": perUnit("1", "0"), "down": perUnit("1", "0")}),
		Usage: []pricing.Usage{used("up", "1000"), used("down", "-999.996")}}
	mustPrice(t, a, "0", "-1000", "1000")
}

// Late usage costs what the month would have cost with it, less what it did: what was
// left of the included quantity is used first, and each late line sees the ones before.
func TestLateUsageIsPricedAsTheDifference(t *testing.T) {
	t.Parallel()
	l := list("usd", map[string]pricing.Price{"m": perUnit("0.10", "1000")})
	late := func(before, quantity string) pricing.Account {
		return pricing.Account{List: l, Late: []pricing.Late{{Metric: "m", FromPeriod: "2026-09", List: l, Before: dec(before), Quantity: dec(quantity)}}}
	}
	mustPrice(t, late("900", "50"), "0", "0")
	mustPrice(t, late("950", "80"), "3", "3")
	mustPrice(t, late("1030", "10"), "1", "1")
	mustPrice(t, late("1040", "-100"), "-4", "-4")
	mustPrice(t, late("-5", "10"), "0.5", "0.5")
	// Together they are what one count would have been: 1040 − 1000, at 0.10.
	other := late("0", "1")
	other.Late[0].List = list("eur", l.Metrics)
	var problem *pricing.Problem
	if _, err := other.Price(); !errors.As(err, &problem) || problem.Code != pricing.CodeOtherCurrency {
		t.Errorf("late usage in another currency: %v", err)
	}
}

// A metric that is not in the list is a problem that names it: nothing is free by
// omission.
func TestAMetricWithoutAPriceIsAProblem(t *testing.T) {
	t.Parallel()
	a := pricing.Account{List: list("usd", map[string]pricing.Price{"m": perUnit("1", "0")}), Usage: []pricing.Usage{used("m", "1"), used("other", "1")}}
	_, err := a.Price()
	var problem *pricing.Problem
	if !errors.As(err, &problem) || problem.Code != pricing.CodeNoPrice || problem.Msg != `"other" has no price in the list of usd that is valid from 2026-10` {
		t.Errorf("got %v", err)
	}
}
