package money_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger/money"
)

// everyCurrency finds those that the package knows by asking for every code there
// can be, so that none is forgotten here.
func everyCurrency(t *testing.T) (all []money.Currency) {
	t.Helper()
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			for c := 'a'; c <= 'z'; c++ {
				if code := money.Currency([]rune{a, b, c}); code.Known() {
					all = append(all, code)
				}
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("only %d currencies", len(all))
	}
	return all
}

// sendable draws an amount in a currency's unit that Stripe takes.
func sendable(t *rapid.T, c money.Currency, name string) int64 {
	_, step := rules(c)
	return rapid.Int64Range(-money.MaxMinor/step, money.MaxMinor/step).Draw(t, name) * step
}

// rules are Stripe's of every currency, written down a second time: how many of its
// units are one of the major, and what must divide an amount.
func rules(c money.Currency) (factor, step int64) {
	switch c {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		return 1, 1
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 1000, 10
	case "isk", "ugx":
		return 100, 100
	default:
		return 100, 1
	}
}

// In every currency, what Stripe can be sent comes back from decimal, from text and
// from its display as the same whole number.
func TestEveryAmountOfEveryCurrencyComesBack(t *testing.T) {
	t.Parallel()
	for _, c := range everyCurrency(t) {
		rapid.Check(t, func(t *rapid.T) {
			minor := sendable(t, c, "minor")
			amount := money.FromMinor(minor, c)
			factor, _ := rules(c)
			if amount.Rat().Cmp(big.NewRat(minor, factor)) != 0 {
				t.Fatalf("%d %s is shown as %s", minor, c, amount)
			}
			for _, text := range []string{amount.String(), money.Format(amount, c), amount.String() + fraction(amount) + "000"} {
				parsed, err := money.Parse(text)
				if err != nil {
					t.Fatalf("%d %s as %q: %v", minor, c, text, err)
				}
				if back, err := money.ToMinor(parsed, c); err != nil || back != minor {
					t.Fatalf("%d %s as %q came back as %d, %v", minor, c, text, back, err)
				}
			}
		})
	}
}

// fraction is the point that a whole number lacks.
func fraction(amount decimal.Decimal) string {
	if amount.Exponent() < 0 && !amount.IsInteger() {
		return ""
	}
	return "."
}

// Sums of amounts are the same whether they are made before or after the conversion:
// no cent comes or goes between the invoices and what Stripe is sent.
func TestSumsAreTheSameOnBothSides(t *testing.T) {
	t.Parallel()
	all := everyCurrency(t)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(all).Draw(t, "currency")
		var minors int64
		majors := decimal.Zero
		for i := range rapid.IntRange(1, 30).Draw(t, "amounts") {
			minor := sendable(t, c, fmt.Sprint(i)) / 100
			_, step := rules(c)
			minor -= minor % step
			minors, majors = minors+minor, majors.Add(money.FromMinor(minor, c))
		}
		got, err := money.ToMinor(majors, c)
		if over := minors > money.MaxMinor || minors < -money.MaxMinor; over != errors.Is(err, money.ErrOverflow) || !over && (err != nil || got != minors) {
			t.Errorf("%d %s in all came to %d, %v", minors, c, got, err)
		}
	})
}

// An amount that is off what Stripe can be sent by any fraction is refused by name and
// never rounded, in every currency.
func TestNothingIsRoundedUnnoticed(t *testing.T) {
	t.Parallel()
	for _, c := range everyCurrency(t) {
		rapid.Check(t, func(t *rapid.T) {
			factor, step := rules(c)
			places := rapid.Int32Range(1, 17).Draw(t, "places")
			off := decimal.New(rapid.Int64Range(1, pow(10, min(places, 9))-1).Draw(t, "off"), -places) // within (0, 1)
			whole := rapid.Int64Range(-money.MaxMinor/step+1, money.MaxMinor/step-1).Draw(t, "whole") * step
			amount := decimal.NewFromInt(whole).Add(off.Mul(decimal.NewFromInt(step))).Shift(-digitsOf(factor))
			got, err := money.ToMinor(amount, c)
			want := money.ErrFraction
			if off.Mul(decimal.NewFromInt(step)).IsInteger() {
				want = money.ErrNotDivisible
			}
			if !errors.Is(err, want) || got != 0 {
				t.Fatalf("%s %s became %d, %v; want %v", amount, c, got, err, want)
			}
		})
	}
}

// digitsOf is how many digits a power of ten shifts by.
func digitsOf(factor int64) (n int32) {
	for ; factor > 1; factor /= 10 {
		n++
	}
	return n
}

func pow(base, exponent int32) int64 {
	n := int64(1)
	for range exponent {
		n *= int64(base)
	}
	return n
}

// What is shown of an amount is the amount, and a currency's digits are its own.
func TestWhatIsShownIsTheAmount(t *testing.T) {
	t.Parallel()
	all := everyCurrency(t)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(all).Draw(t, "currency")
		amount := decimal.New(rapid.Int64().Draw(t, "coefficient"), rapid.Int32Range(-25, 4).Draw(t, "exponent"))
		shown, err := decimal.NewFromString(money.Format(amount, c))
		if err != nil || !shown.Equal(amount) {
			t.Errorf("%s %s is shown as %s, %v", amount, c, money.Format(amount, c), err)
		}
	})
}
