package money_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger/money"
)

func dec(t testing.TB, text string) decimal.Decimal {
	t.Helper()
	d, err := decimal.NewFromString(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The numbers that are sent are asserted as they stand on the wire: a round
// trip alone would pass with every factor wrong.
func TestToMinorSendsWhatStripeExpects(t *testing.T) {
	for _, test := range []struct {
		amount   string
		currency money.Currency
		want     int64
	}{
		{"12.34", "usd", 1234}, {"12.3", "usd", 1230}, {"12", "usd", 1200}, {"0.01", "eur", 1},
		{"80", "jpy", 80}, {"12000", "krw", 12000}, {"5", "vnd", 5}, {"1000", "clp", 1000}, {"100", "xof", 100},
		{"80.00", "jpy", 80}, {"7", "mga", 7},
		{"5", "ugx", 500}, {"1500", "isk", 150000}, {"1500.00", "isk", 150000}, {"1500.000", "isk", 150000},
		{"175.50", "huf", 17550}, {"20.01", "twd", 2001},
		{"1.230", "kwd", 1230}, {"1.23", "bhd", 1230}, {"5", "tnd", 5000},
		{"0", "usd", 0}, {"-0", "usd", 0}, {"-12.34", "usd", -1234}, {"0e30", "usd", 0},
		{"9999999999.99", "usd", 999_999_999_999}, {"-9999999999.99", "usd", -999_999_999_999},
		{"19.99000000000000000000", "usd", 1999}, {"1e3", "jpy", 1000},
		{"1.0000000000000000000000000000000000000000", "usd", 100},
	} {
		got, err := money.ToMinor(dec(t, test.amount), test.currency)
		if err != nil || got != test.want {
			t.Errorf("ToMinor(%s %s) = %d, %v; want %d", test.amount, test.currency, got, err, test.want)
		}
	}
}

// What Stripe cannot be sent exactly is refused by name, never rounded and
// never wrapped around.
func TestToMinorRefusesByName(t *testing.T) {
	for _, test := range []struct {
		amount   string
		currency money.Currency
		want     error
	}{
		{"80.50", "jpy", money.ErrFraction}, {"19.994", "usd", money.ErrFraction},
		{"0.01999999999999999872", "usd", money.ErrFraction}, {"1.2345", "kwd", money.ErrFraction},
		{"1e-400", "usd", money.ErrFraction}, {"1500.505", "isk", money.ErrFraction},
		{"1234567890123456789.123", "usd", money.ErrFraction},
		{"1500.50", "isk", money.ErrNotDivisible}, {"5.01", "ugx", money.ErrNotDivisible},
		{"1.234", "kwd", money.ErrNotDivisible},
		{"10000000000.00", "usd", money.ErrOverflow}, {"1000000000000", "jpy", money.ErrOverflow},
		{"-10000000000.00", "usd", money.ErrOverflow}, {"10000000000", "ugx", money.ErrOverflow},
		{"92233720368547758.07", "usd", money.ErrOverflow}, {"92233720368547758.08", "usd", money.ErrOverflow},
		{"184467440737095516.16", "usd", money.ErrOverflow}, {"1e400", "usd", money.ErrOverflow},
		{"12345678901234567890", "usd", money.ErrOverflow},
		{"1", "xxx", money.ErrUnknownCurrency}, {"1", "USD", money.ErrUnknownCurrency}, {"1", "", money.ErrUnknownCurrency},
	} {
		if got, err := money.ToMinor(dec(t, test.amount), test.currency); !errors.Is(err, test.want) || got != 0 {
			t.Errorf("ToMinor(%s %s) = %d, %v; want 0, %v", test.amount, test.currency, got, err, test.want)
		}
	}
}

// A number that is short as text and huge as a value costs nothing to refuse.
func TestToMinorRefusesHugeExponentsWithoutExpandingThem(t *testing.T) {
	for _, d := range []decimal.Decimal{
		decimal.New(1, 2_000_000_000), decimal.New(1, -2_000_000_000),
		decimal.NewFromBigInt(new(big.Int).Lsh(big.NewInt(1), 90), 2_000_000_000),
		decimal.NewFromBigInt(new(big.Int).Lsh(big.NewInt(1), 90), -2_000_000_000),
	} {
		if _, err := money.ToMinor(d, "usd"); err == nil || len(err.Error()) > 200 {
			t.Errorf("exponent %d: %v", d.Exponent(), err)
		}
	}
}

func TestParseCurrencyTakesAnyCaseAndOnlyStripesCurrencies(t *testing.T) {
	for text, want := range map[string]money.Currency{"usd": "usd", "USD": "usd", "Jpy": "jpy", "UGX": "ugx", "BYN": "byn"} {
		if got, err := money.ParseCurrency(text); err != nil || got != want {
			t.Errorf("ParseCurrency(%q) = %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "us", "usd ", " usd", "usdx", "xxx", "€", "KR\u212A", "btc", strings.Repeat("u", 10_000)} {
		if got, err := money.ParseCurrency(text); !errors.Is(err, money.ErrUnknownCurrency) || got != "" || len(err.Error()) > 200 {
			t.Errorf("ParseCurrency(%q) = %q, %v; want ErrUnknownCurrency", text, got, err)
		}
	}
}

func TestCurrenciesHaveStripesDigitsNotISOs(t *testing.T) {
	for c, want := range map[money.Currency][2]int32{
		"usd": {2, 2}, "jpy": {0, 0}, "mga": {0, 0}, "isk": {0, 2}, "ugx": {0, 2}, "kwd": {3, 3}, "huf": {2, 2}, "twd": {2, 2}, "clp": {0, 0},
	} {
		if got := [2]int32{c.Digits(), c.WireExponent()}; got != want {
			t.Errorf("%s: digits and wire exponent %v, want %v", c, got, want)
		}
	}
}

// 0.49 usd can never be charged; whether 0.32 gbp or 51 jpy can depends on the
// bank account, and is Stripe's to say.
func TestSkipReason(t *testing.T) {
	for _, test := range []struct {
		minor    int64
		currency money.Currency
		want     string
	}{
		{49, "usd", "below_minimum"}, {50, "usd", ""}, {32, "gbp", ""}, {29, "gbp", "below_minimum"},
		{51, "jpy", ""}, {49, "jpy", "below_minimum"}, {17499, "huf", "below_minimum"}, {17500, "huf", ""},
		{249, "dkk", "below_minimum"}, {0, "usd", "zero"}, {-1, "usd", "credit"}, {10, "kwd", ""}, {100, "isk", ""},
	} {
		if got := money.SkipReason(test.minor, test.currency); got != test.want {
			t.Errorf("SkipReason(%d %s) = %q, want %q", test.minor, test.currency, got, test.want)
		}
	}
}

func TestFormatNeverHidesADigit(t *testing.T) {
	for _, test := range []struct {
		amount   string
		currency money.Currency
		want     string
	}{
		{"12.3", "usd", "12.30"}, {"12.300", "usd", "12.30"}, {"80", "jpy", "80"}, {"80.00", "jpy", "80"},
		{"1500", "isk", "1500"}, {"1500.50", "isk", "1500.5"}, {"1.2", "kwd", "1.200"},
		{"19.995", "usd", "19.995"}, {"-0.5", "eur", "-0.50"}, {"0", "usd", "0.00"}, {"3", "xxx", "3.00"},
	} {
		if got := money.Format(dec(t, test.amount), test.currency); got != test.want {
			t.Errorf("Format(%s %s) = %q, want %q", test.amount, test.currency, got, test.want)
		}
	}
}

func TestParseTakesOnlyPlainNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "12": "12", "12.30": "12.3", "-0.01": "-0.01", "007.50": "7.5", "-0": "0",
		"999999999999999": "999999999999999", "0.01999999999999999872": "0.01999999999999999872",
		"999999999999999.99999999999999999999": "999999999999999.99999999999999999999",
	} {
		if got, err := money.Parse(text); err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", ".", "-.", ".5", "19.", "-.5", "+5", "1e3", "1E+15", "1e20000000", "1E-2000000", " 1", "1 ", "1,50",
		"1,234.50", "$5", "1.2.3", "--1", "1-", "0x10", "1_000", "NaN", "Infinity", "(1.00)", "\u22121", "\uff11", "1\x00",
		"1234567890123456", "0.123456789012345678901", strings.Repeat("9", 1_000_000),
	} {
		if got, err := money.Parse(text); !errors.Is(err, money.ErrSyntax) || !got.IsZero() || len(err.Error()) > 200 {
			t.Errorf("Parse(%.50q) = %s, %v; want ErrSyntax", text, got, err)
		}
	}
}

// 81 lines of 0.0449 come to 3.64, and the lines shown add up to that.
func TestAllocateAddsUp(t *testing.T) {
	lines := make([]decimal.Decimal, 81)
	for i := range lines {
		lines[i] = dec(t, "0.0449")
	}
	parts := money.Allocate(364, lines)
	if sum(parts) != 364 || parts[0] != 5 || parts[80] != 4 {
		t.Errorf("81 × 0.0449 = %v", parts)
	}
	for _, test := range []struct {
		total   int64
		weights string
		want    []int64
	}{
		{100, "1 1 1", []int64{34, 33, 33}}, {-100, "1 1 1", []int64{-33, -33, -34}},
		{700, "10.005 -3.005", []int64{1001, -301}}, {5, "0 0", []int64{3, 2}}, {7, "-1 -2", []int64{2, 5}},
		{0, "5 3", []int64{0, 0}}, {10, "0 1", []int64{0, 10}}, {1, "0.5 0.5", []int64{1, 0}},
	} {
		var weights []decimal.Decimal
		for _, w := range strings.Fields(test.weights) {
			weights = append(weights, dec(t, w))
		}
		got := money.Allocate(test.total, weights)
		if len(got) != len(test.want) || sum(got) != test.total {
			t.Fatalf("Allocate(%d, %s) = %v", test.total, test.weights, got)
		}
		for i := range got {
			if got[i] != test.want[i] {
				t.Errorf("Allocate(%d, %s) = %v, want %v", test.total, test.weights, got, test.want)
				break
			}
		}
	}
	if got := money.Allocate(5, nil); got != nil {
		t.Errorf("no weights: %v", got)
	}
}

// Whatever the weights, the parts add up, and no part is a whole unit away
// from its exact share.
func TestAllocateIsWithinOneUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(-money.MaxMinor, money.MaxMinor).Draw(t, "total")
		weights := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) decimal.Decimal {
			return decimal.New(rapid.Int64Range(0, 1e12).Draw(t, "coefficient"), rapid.Int32Range(-12, 3).Draw(t, "exponent"))
		}), 1, 50).Draw(t, "weights")
		parts := money.Allocate(total, weights)
		if sum(parts) != total {
			t.Fatalf("parts add up to %d, not %d", sum(parts), total)
		}
		all := decimal.Sum(weights[0], weights[1:]...)
		if all.IsZero() {
			return
		}
		for i, w := range weights {
			exact := new(big.Rat).Quo(new(big.Rat).Mul(new(big.Rat).SetInt64(total), w.Rat()), all.Rat())
			off := exact.Sub(exact, new(big.Rat).SetInt64(parts[i]))
			if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("part %d is %d, off by %s", i, parts[i], off.FloatString(3))
			}
		}
	})
}

func sum(parts []int64) (total int64) {
	for _, p := range parts {
		total += p
	}
	return total
}
