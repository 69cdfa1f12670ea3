package sheet

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger/money"
)

// An amount is read as each decimal mark would have it; where only one can be meant, it
// proves which mark the file has.
func TestAmountsAreReadInOneWayOrInDoubt(t *testing.T) {
	for text, want := range map[string]struct {
		plain    string
		evidence byte
		doubt    bool
	}{
		"12": {"12", 0, false}, "12.50": {"12.50", '.', false}, "12,50": {"12.50", ',', false}, "1,234.50": {"1234.50", '.', false},
		"1.234,50": {"1234.50", ',', false}, "1.234.567": {"1234567", ',', false}, "1,234,567": {"1234567", '.', false},
		"1,234": {"1234", 0, true}, "1.234": {"1.234", 0, true}, "0,123": {"0.123", ',', false}, "0.123": {"0.123", '.', false},
		"1 234": {"1234", 0, false}, "1\u00a0234,5": {"1234.5", ',', false}, "1'234.50": {"1234.50", '.', false}, "1\u202f234": {"1234", 0, false},
		"-5": {"-5", 0, false}, "(5.00)": {"-5.00", '.', false}, "5.00-": {"-5.00", '.', false}, "\u22125.00": {"-5.00", '.', false},
		"$5.50": {"5.50", '.', false}, " $5.50": {"5.50", '.', false}, "-$5.50": {"-5.50", '.', false}, "$-5.50": {"-5.50", '.', false},
		"($5.50)": {"-5.50", '.', false}, "5,50 €": {"5.50", ',', false}, "EUR 5,50": {"5.50", ',', false}, "1234.567": {"1234.567", '.', false},
	} {
		r, err := read(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		plain, evidence, doubt, err := r.settle(0)
		if plain != want.plain || evidence != want.evidence || doubt != want.doubt || err != nil {
			t.Errorf("%q is %q, evidence %q, doubt %v, %v; want %+v", text, plain, evidence, doubt, err, want)
		}
	}
}

// What is no amount, or may have lost digits, is none (T21, T24).
func TestWhatIsNoAmount(t *testing.T) {
	for _, text := range []string{"", " ", "abc", "1e3", "1E+15", "1.23E+15", "1e20000000", ".5", "19.", ",5", "+5", "1..5", "1,2,3", "1,23,456.00", "12 34",
		"1.234.56", "1,234,56", "１0", "NaN", "Infinity", "0x10", "--5", "(-5)", "-5-", "5%", "$5€", "1\n2", "#REF!", strings.Repeat("1", 61), "5.0.0", "\xff1",
		"0,123.45", "1 234 56", "1 234'567"} {
		if r, err := read(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// A sign of another currency than the row's says that one of them is wrong.
func TestSignsOfCurrencies(t *testing.T) {
	for _, c := range []struct {
		sign, currency string
		fine           bool
	}{{"$", "usd", true}, {"$", "cad", true}, {"$", "eur", false}, {"€", "eur", true}, {"€", "usd", false}, {"USD", "usd", true}, {"usd", "eur", false},
		{"kr", "sek", true}, {"kr", "eur", false}, {"¥", "jpy", true}, {"x", "usd", false}, {"", "usd", true}} {
		if err := checkSign(c.sign, c.currency); (err == nil) != c.fine {
			t.Errorf("%s in %s: %v", c.sign, c.currency, err)
		}
	}
}

// However a program or a country writes an amount, it reads back as that amount.
func TestWrittenAmountsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(0, 999_999_999).Draw(t, "whole")
		cents := rapid.StringMatching(`[0-9]{2}`).Draw(t, "cents")
		marks := rapid.SampledFrom([][2]string{{".", ","}, {",", "."}, {".", "'"}, {",", "\u00a0"}, {".", ""}, {",", ""}}).Draw(t, "marks")
		digits := strings.TrimLeft(strings.Repeat("0", 9)+itoa(whole), "0")
		if digits == "" {
			digits = "0"
		}
		grouped := ""
		for i, d := range digits {
			if i > 0 && (len(digits)-i)%3 == 0 {
				grouped += marks[1]
			}
			grouped += string(d)
		}
		r, err := read(grouped + marks[0] + cents)
		if err != nil {
			t.Fatal(err)
		}
		plain, _, _, err := r.settle(marks[0][0])
		if err != nil || plain != digits+"."+cents {
			t.Fatalf("%s is %s, %v", grouped+marks[0]+cents, plain, err)
		}
	})
}

func itoa(n int64) string {
	if n == 0 {
		return ""
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// Whatever an amount is read as is a plain number that money takes, or longer than
// money takes, and reads back as itself; the quick way and the careful one agree.
func FuzzAmount(f *testing.F) {
	for _, text := range []string{"12.50", "1.234,50", "1,234", "$5", "(5.00)", "5-", "1'000", "1e5", "\u22121", "€ 1\u00a0234,50", "0.00", "-0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := read(text)
		if mark, ok := plainAmount(text); ok && (err != nil || r.point != text) {
			t.Fatalf("%q is plain (%q) and reads as %+v, %v", text, mark, r, err)
		}
		if err != nil {
			return
		}
		for _, plain := range []string{r.point, r.comma} {
			if plain == "" {
				continue
			}
			if strings.Trim(plain, "-.0123456789") != "" || strings.Count(plain, ".") > 1 || len(plain) > 70 {
				t.Fatalf("%q reads as %q", text, plain)
			}
			if _, err := money.Parse(plain); err != nil {
				continue
			}
			if again, err := read(plain); err != nil || again.point != plain {
				t.Fatalf("%q reads as %q, which reads as %+v, %v", text, plain, again, err)
			}
		}
	})
}
