package money

import "github.com/shopspring/decimal"

// ChargeDigits is how many digits after the point an amount in major units may have
// for Stripe to charge it: 2 for usd, 0 for jpy, isk and ugx, 2 for kwd, whose third
// digit must be 0; 2 for an unknown currency. It is what a computed amount is rounded
// to.
func (c Currency) ChargeDigits() int32 {
	s := c.spec()
	digits := s.wire
	for step := s.step; step >= 10; step /= 10 {
		digits--
	}
	return digits
}

// Round rounds a computed amount in major units to what Stripe can charge in c, half
// away from zero: 0.005 usd is 0.01, -0.005 is -0.01, 1.015 kwd is 1.02. Amounts that
// people wrote down are never rounded: ToMinor refuses them.
func Round(amount decimal.Decimal, c Currency) decimal.Decimal {
	return amount.Round(c.ChargeDigits())
}
