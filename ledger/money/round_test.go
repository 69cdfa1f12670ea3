package money_test

import (
	"testing"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// What is rounded can be charged, half goes away from zero, and a currency's own step
// counts: the trials' cents (T18), the whole units of isk and ugx, the last digit of kwd.
func TestRound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount   string
		currency money.Currency
		want     string
	}{
		{"0.01999999999999999872", "usd", "0.02"}, {"0.005", "usd", "0.01"}, {"-0.005", "usd", "-0.01"},
		{"0.0049999999", "usd", "0"}, {"19.994", "usd", "19.99"}, {"19.995", "usd", "20"}, {"1.999", "usd", "2"},
		{"0.5", "jpy", "1"}, {"-0.5", "jpy", "-1"}, {"80.49", "jpy", "80"},
		{"1.015", "kwd", "1.02"}, {"1.0149", "kwd", "1.01"}, {"-1.015", "kwd", "-1.02"},
		{"4.5", "isk", "5"}, {"4.4999", "ugx", "4"},
	} {
		got := money.Round(decimal.RequireFromString(c.amount), c.currency)
		if !got.Equal(decimal.RequireFromString(c.want)) {
			t.Errorf("%s %s is rounded to %s, want %s", c.amount, c.currency, got, c.want)
		}
		if _, err := money.ToMinor(got, c.currency); err != nil {
			t.Errorf("%s %s is rounded to what can't be charged: %v", c.amount, c.currency, err)
		}
	}
}
