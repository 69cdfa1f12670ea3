package money_test

import (
	"errors"
	"math/big"
	"regexp"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// factor is the wire factor and step of a currency, written down a second time.
func factor(c money.Currency) (factor, step int64) {
	switch c {
	case "jpy", "krw":
		return 1, 1
	case "isk", "ugx":
		return 100, 100
	case "kwd":
		return 1000, 10
	default:
		return 100, 1
	}
}

// ToMinor agrees with exact arithmetic on every decimal, and what it accepts
// comes back as the same amount.
func FuzzToMinor(f *testing.F) {
	f.Add(int64(1234), []byte{}, int32(-2), uint8(0))
	f.Add(int64(150050), []byte{}, int32(-2), uint8(3))
	f.Add(int64(0), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff"), int32(-3), uint8(0))
	f.Add(int64(-1), []byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, int32(-20), uint8(4))
	f.Add(int64(999_999_999_999), []byte{}, int32(-2), uint8(1))
	currencies := []money.Currency{"usd", "jpy", "krw", "isk", "kwd", "ugx"}
	f.Fuzz(func(t *testing.T, small int64, large []byte, exponent int32, which uint8) {
		// Larger exponents have a test of their own; here they would only slow math/big down.
		exponent %= 60
		coefficient := big.NewInt(small)
		if len(large) > 0 && len(large) < 40 {
			coefficient = new(big.Int).SetBytes(large)
		}
		amount := decimal.NewFromBigInt(coefficient, exponent)
		c := currencies[int(which)%len(currencies)]
		got, err := money.ToMinor(amount, c)
		check(t, amount, c, got, err)
	})
}

func check(t *testing.T, amount decimal.Decimal, c money.Currency, got int64, err error) {
	t.Helper()
	by, step := factor(c)
	exact := new(big.Rat).Mul(amount.Rat(), new(big.Rat).SetInt64(by))
	limit := new(big.Rat).SetInt64(money.MaxMinor)
	divisible := exact.IsInt() && new(big.Int).Mod(exact.Num(), big.NewInt(step)).Sign() == 0
	tooLarge := new(big.Rat).Abs(exact).Cmp(limit) > 0
	switch {
	case err == nil:
		if !divisible || tooLarge || exact.Num().Int64() != got {
			t.Fatalf("%s %s became %d, exactly %s", amount, c, got, exact.FloatString(5))
		}
		if back := money.FromMinor(got, c); !back.Equal(amount) {
			t.Fatalf("%s %s came back as %s", amount, c, back)
		}
	case errors.Is(err, money.ErrFraction):
		// Too many digits are a fraction or, beyond 18 digits, also too large.
		if exact.IsInt() {
			t.Fatalf("%s %s has no fraction: %v", amount, c, err)
		}
	case errors.Is(err, money.ErrNotDivisible):
		if divisible || tooLarge {
			t.Fatalf("%s %s: %v", amount, c, err)
		}
	case errors.Is(err, money.ErrOverflow):
		if !tooLarge {
			t.Fatalf("%s %s is not too large: %v", amount, c, err)
		}
	default:
		t.Fatalf("%s %s: %v", amount, c, err)
	}
}

var plain = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,20})?$`)

// Parse takes exactly the plain numbers, and reads each as math/big does.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"12.34", "-0.01", "1e3", ".5", "19.", "+5", "", "-", "1.2.3", "999999999999999.99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := money.Parse(text)
		if (err == nil) != plain.MatchString(text) {
			t.Fatalf("Parse(%q) = %s, %v", text, got, err)
		}
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(text)
		if !ok || got.Rat().Cmp(want) != 0 {
			t.Fatalf("Parse(%q) = %s, want %s", text, got, want)
		}
	})
}

func BenchmarkParseAndToMinor(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		amount, err := money.Parse("1234.56")
		if err != nil {
			b.Fatal(err)
		}
		if minor, err := money.ToMinor(amount, "usd"); err != nil || minor != 123456 {
			b.Fatal(minor, err)
		}
	}
}
