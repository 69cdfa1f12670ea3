package pricing_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger/money"
)

// units are the smallest amounts that can be charged, written down a second time.
var units = map[money.Currency]string{"usd": "0.01", "eur": "0.01", "jpy": "1", "krw": "1", "kwd": "0.01", "isk": "1", "ugx": "1"}

func number(t *rapid.T, name string, low, high int64) decimal.Decimal {
	return decimal.New(rapid.Int64Range(low, high).Draw(t, name), -rapid.Int32Range(0, 9).Draw(t, name+" digits"))
}

// account draws a month with every kind of line.
func account(t *rapid.T) pricing.Account {
	currency := rapid.SampledFrom([]money.Currency{"usd", "eur", "jpy", "krw", "kwd", "isk", "ugx"}).Draw(t, "currency")
	draw := func(from string) pricing.List {
		l := pricing.List{ValidFrom: from, Currency: currency, BaseFee: money.Round(number(t, "fee", 0, 99999), currency), Metrics: map[string]pricing.Price{}}
		for i := range 6 {
			l.Metrics[fmt.Sprint("m", i)] = pricing.PerUnit{UnitPrice: number(t, "price", 0, 9_999_999), Included: number(t, "included", 0, 99_999)}
		}
		return l
	}
	a := pricing.Account{ID: "acme", List: draw("2026-10"), BaseFee: rapid.Bool().Draw(t, "active")}
	for i := range rapid.IntRange(0, 6).Draw(t, "metrics") {
		a.Usage = append(a.Usage, pricing.Usage{Metric: fmt.Sprint("m", i), Quantity: number(t, "quantity", -99_999, 999_999)})
	}
	was := draw("2026-09")
	for i := range rapid.IntRange(0, 3).Draw(t, "late") {
		a.Late = append(a.Late, pricing.Late{Metric: fmt.Sprint("m", i), FromPeriod: "2026-09", List: was,
			Before: number(t, "before", -999, 99_999), Quantity: number(t, "late quantity", -999, 99_999)})
	}
	return a
}

// rat is a decimal in another arithmetic than the one under test.
func rat(d decimal.Decimal) *big.Rat { r, _ := new(big.Rat).SetString(d.String()); return r }

// cost is the rule of prices in that arithmetic.
func cost(price pricing.Price, quantity *big.Rat) *big.Rat {
	terms := price.Terms()
	billed := new(big.Rat).Set(quantity)
	if billed.Sign() > 0 {
		billed.Sub(billed, rat(terms.Included))
		if billed.Sign() < 0 {
			billed.SetInt64(0)
		}
	}
	return billed.Mul(billed, rat(terms.UnitPrice))
}

// exactly is what an account owes before anything is rounded.
func exactly(a pricing.Account) *big.Rat {
	sum := new(big.Rat)
	if a.BaseFee {
		sum.Add(sum, rat(a.List.BaseFee))
	}
	for _, u := range a.Usage {
		sum.Add(sum, cost(a.List.Metrics[u.Metric], rat(u.Quantity)))
	}
	for _, l := range a.Late {
		price := l.List.Metrics[l.Metric]
		sum.Add(sum, cost(price, new(big.Rat).Add(rat(l.Before), rat(l.Quantity))))
		sum.Sub(sum, cost(price, rat(l.Before)))
	}
	return sum
}

// rounded is half away from zero, in whole units.
func rounded(amount, unit *big.Rat) *big.Rat {
	n := new(big.Rat).Quo(amount, unit)
	n.Abs(n).Add(n, big.NewRat(1, 2))
	whole := new(big.Rat).SetInt(new(big.Int).Quo(n.Num(), n.Denom()))
	if amount.Sign() < 0 {
		whole.Neg(whole)
	}
	return whole.Mul(whole, unit)
}

// The total is the exact sum rounded once; the lines add up to it; each is less than a
// unit from its exact amount, a whole one exactly it; and the total can be charged.
func TestLinesAddUpToTheExactSumRoundedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := account(t)
		inv, err := a.Price()
		var problem *pricing.Problem
		if errors.As(err, &problem) && problem.Code == pricing.CodeTooLarge {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		unit := rat(dec(units[a.List.Currency]))
		if want := rounded(exactly(a), unit); rat(inv.Total).Cmp(want) != 0 {
			t.Fatalf("the total is %s, want %s", inv.Total, want.FloatString(4))
		}
		if _, err := money.ToMinor(inv.Total, a.List.Currency); err != nil {
			t.Fatal(err)
		}
		sum := decimal.Zero
		for _, l := range inv.Lines {
			sum = sum.Add(l.Amount)
			off := new(big.Rat).Sub(rat(l.Amount), rat(l.Exact))
			if off.Abs(off).Cmp(unit) >= 0 {
				t.Fatalf("%s %s is shown as %s: a unit off", l.Exact, a.List.Currency, l.Amount)
			}
			if share := new(big.Rat).Quo(rat(l.Amount), unit); !share.IsInt() {
				t.Fatalf("%s is no whole number of units of %s", l.Amount, a.List.Currency)
			}
			if new(big.Rat).Quo(rat(l.Exact), unit).IsInt() && !l.Amount.Equal(l.Exact) {
				t.Fatalf("%s was whole and is shown as %s", l.Exact, l.Amount)
			}
		}
		if !sum.Equal(inv.Total) {
			t.Fatalf("the lines add up to %s, the total is %s", sum, inv.Total)
		}
	})
}

// Late usage in any number of portions costs exactly what it would have cost in time.
func TestLatePortionsCostWhatTheWholeWouldHave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := pricing.PerUnit{UnitPrice: number(t, "price", 0, 99_999), Included: number(t, "included", 0, 9_999)}
		l := pricing.List{ValidFrom: "2026-09", Currency: "usd", Metrics: map[string]pricing.Price{"m": price}}
		before := number(t, "in time", 0, 9_999)
		paid := price.Cost(before)
		for range rapid.IntRange(1, 5).Draw(t, "portions") {
			quantity := number(t, "portion", -999, 9_999)
			inv, err := pricing.Account{List: l, Late: []pricing.Late{{Metric: "m", FromPeriod: "2026-09", List: l, Before: before, Quantity: quantity}}}.Price()
			if err != nil {
				t.Fatal(err)
			}
			before, paid = before.Add(quantity), paid.Add(inv.Lines[0].Exact)
		}
		if want := price.Cost(before); !paid.Equal(want) {
			t.Fatalf("in portions %s, at once %s", paid, want)
		}
	})
}
