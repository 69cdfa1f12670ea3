package money

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/shopspring/decimal"
)

// MaxMinor is the largest amount of a card charge in Stripe's unit: twelve
// digits (docs.stripe.com/currencies).
const MaxMinor int64 = 999_999_999_999

// Reasons why an amount cannot be sent as it is. They are wrapped with the
// amount and the currency; compare with errors.Is. Each means that the invoice
// is wrong: amounts are never rounded on the way to Stripe.
var (
	// ErrFraction: the amount has more digits than Stripe's unit.
	ErrFraction = errors.New("amount has a fraction of the smallest unit")
	// ErrNotDivisible: Stripe's unit could express the amount, but Stripe does
	// not take it: ISK and UGX in whole units only, three-decimal currencies
	// with a last digit of 0.
	ErrNotDivisible = errors.New("amount is not a multiple of what Stripe takes")
	// ErrOverflow: the amount is beyond MaxMinor, above or below zero.
	ErrOverflow = errors.New("amount is larger than Stripe takes")
)

// Reasons for which an amount is recorded but never sent.
const (
	SkipZero         = "zero"
	SkipCredit       = "credit"
	SkipBelowMinimum = "below_minimum"
)

// ToMinor returns an amount in major units as the whole number that Stripe is
// sent: 12.34 usd is 1234, 80 jpy is 80, 5 ugx is 500. Zero and negative
// amounts are converted too, so that they can be recorded. The error wraps
// ErrFraction, ErrNotDivisible, ErrOverflow or ErrUnknownCurrency.
func ToMinor(amount decimal.Decimal, c Currency) (int64, error) {
	s, known := specs[c]
	if !known {
		return 0, fmt.Errorf("%q: %w", shorten(string(c)), ErrUnknownCurrency)
	}
	minor, err := scale(amount, s.wire)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", describe(amount), c, err)
	}
	if minor%s.step != 0 {
		return 0, fmt.Errorf("%s %s: %w (%d)", describe(amount), c, ErrNotDivisible, s.step)
	}
	return minor, nil
}

// FromMinor returns Stripe's whole number as an amount in major units, exactly.
func FromMinor(minor int64, c Currency) decimal.Decimal {
	return decimal.New(minor, -c.spec().wire)
}

// Format writes an amount in major units with the digits of its currency:
// "12.30", "80". An amount that has more digits than its currency is written
// out in full, because a rounded figure would hide why it cannot be charged.
func Format(amount decimal.Decimal, c Currency) string {
	if expansive(amount) {
		return describe(amount)
	}
	digits := c.spec().digits
	if exponent := amount.Exponent(); exponent < -digits && !amount.Equal(amount.Truncate(digits)) {
		return amount.String()
	}
	return amount.StringFixed(digits)
}

// FormatMinor is Format of an amount in Stripe's unit.
func FormatMinor(minor int64, c Currency) string { return Format(FromMinor(minor, c), c) }

// SkipReason says why an amount in Stripe's unit is recorded but not charged:
// SkipZero, SkipCredit (below zero), SkipBelowMinimum; "" if it can be charged.
func SkipReason(minor int64, c Currency) string {
	switch minimum, known := Minimum(c); {
	case minor == 0:
		return SkipZero
	case minor < 0:
		return SkipCredit
	case known && minor < minimum:
		return SkipBelowMinimum
	default:
		return ""
	}
}

// mostDigits is the longest coefficient that surely fits an int64.
const mostDigits = 18

var pow10 = [mostDigits + 1]int64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
}

// scale returns amount × 10^exponent if that is a whole number within MaxMinor.
// Almost every amount has a coefficient that fits an int64, and then nothing
// is allocated.
func scale(amount decimal.Decimal, exponent int32) (int64, error) {
	digits := amount.NumDigits()
	if digits > mostDigits {
		return scaleBig(amount, exponent)
	}
	coefficient := amount.CoefficientInt64()
	shift := int64(amount.Exponent()) + int64(exponent)
	switch {
	case coefficient == 0:
		return 0, nil
	case shift < -mostDigits:
		return 0, ErrFraction
	case shift < 0:
		if coefficient%pow10[-shift] != 0 {
			return 0, ErrFraction
		}
		coefficient /= pow10[-shift]
	case int64(digits)+shift > mostDigits:
		return 0, ErrOverflow
	default:
		coefficient *= pow10[shift]
	}
	if coefficient > MaxMinor || coefficient < -MaxMinor {
		return 0, ErrOverflow
	}
	return coefficient, nil
}

// scaleBig is scale for coefficients over 18 digits, which only an amount with
// many trailing zeros can survive. The exponents are bounded before any power
// is computed: 10^20000000 would take seconds.
func scaleBig(amount decimal.Decimal, exponent int32) (int64, error) {
	shift := int64(amount.Exponent()) + int64(exponent)
	if shift >= 0 {
		return 0, ErrOverflow
	}
	// A coefficient of n digits is not divisible by 10^n.
	if -shift >= int64(amount.NumDigits()) {
		return 0, ErrFraction
	}
	divisor := new(big.Int).Exp(big.NewInt(10), big.NewInt(-shift), nil)
	quotient, rest := new(big.Int).QuoRem(amount.Coefficient(), divisor, new(big.Int))
	if rest.Sign() != 0 {
		return 0, ErrFraction
	}
	if !quotient.IsInt64() || quotient.CmpAbs(big.NewInt(MaxMinor)) > 0 {
		return 0, ErrOverflow
	}
	return quotient.Int64(), nil
}

// expansive reports whether an amount takes so many digits to write down that
// it cannot be money, but can be meant to exhaust memory.
func expansive(amount decimal.Decimal) bool {
	const most = 100
	e := amount.Exponent()
	return e > most || e < -most || amount.NumDigits() > most
}

// describe writes an amount for a message; an expansive one is not expanded.
func describe(amount decimal.Decimal) string {
	if expansive(amount) {
		return fmt.Sprintf("(a number of %d digits with exponent %d)", amount.NumDigits(), amount.Exponent())
	}
	return amount.String()
}
