package money

import (
	"errors"
	"fmt"

	"github.com/shopspring/decimal"
)

// Bounds of an amount or a quantity in text, in digits.
const (
	// MaxWholeDigits is the most that Parse takes before the point.
	MaxWholeDigits = 15
	// MaxFractionDigits is the most that Parse takes after the point.
	MaxFractionDigits = 20
)

// ErrSyntax says that a text is not a plain number.
var ErrSyntax = errors.New("not a plain number like 1234.50")

// Parse reads a number written the plain way: an optional '-', 1 to 15 digits,
// and optionally a point with 1 to 20 digits. No '+', exponent, blank, comma,
// currency sign, ".5" or "19.": each of these is a sign of a spreadsheet or of
// another country's format, where guessing moves money. Refusal costs nothing:
// the text is checked before anything is computed from it (1e20000000 is
// a short text and a long calculation). The error wraps ErrSyntax.
func Parse(text string) (decimal.Decimal, error) {
	digits, negative := text, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	whole, fraction, ok := count(digits)
	if !ok {
		return decimal.Decimal{}, fmt.Errorf("%q: %w", shorten(text), ErrSyntax)
	}
	if whole > MaxWholeDigits || fraction > MaxFractionDigits {
		return decimal.Decimal{}, fmt.Errorf("%q: %w (at most %d digits before and %d after the point)",
			shorten(text), ErrSyntax, MaxWholeDigits, MaxFractionDigits)
	}
	if whole+fraction > mostDigits {
		return decimal.NewFromString(text)
	}
	var value int64
	for i := range len(digits) {
		if digits[i] != '.' {
			value = value*10 + int64(digits[i]-'0')
		}
	}
	if negative {
		value = -value
	}
	return decimal.New(value, -int32(fraction)), nil
}

// count returns the digits before and after the point of an unsigned number.
// ok is false if the text has anything else in it, or a side without digits.
func count(text string) (whole, fraction int, ok bool) {
	point := -1
	for i := range len(text) {
		switch b := text[i]; {
		case b >= '0' && b <= '9':
		case b == '.' && point < 0:
			point = i
		default:
			return 0, 0, false
		}
	}
	if point < 0 {
		return len(text), 0, len(text) > 0
	}
	whole, fraction = point, len(text)-point-1
	return whole, fraction, whole > 0 && fraction > 0
}
