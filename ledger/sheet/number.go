package sheet

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A spreadsheet that takes an id or a large amount for a number writes it like this,
// and the digits behind are lost. 219E01BE is an id.
var spreadsheetNumber = regexp.MustCompile(`^[-+]?[0-9]+([.,][0-9]+)?[eE][+-]?[0-9]+$`)

// IsSpreadsheetNumber reports whether a text looks like a number that a spreadsheet
// rewrote, such as 1.23E+15. Without a sign behind the E it may be an id, 219E01.
func IsSpreadsheetNumber(text string) bool {
	return len(text) <= 40 && strings.ContainsAny(text, "eE") && strings.ContainsAny(text, "+-") && spreadsheetNumber.MatchString(text)
}

// reading is what an amount may say, as plain digits with a point. Empty means that it
// can't be read so.
type reading struct {
	point, comma string // with '.' and with ',' as the decimal mark
	sign         string // the currency that stands beside it, as written
}

// errWritten says why a text is no amount.
type errWritten string

func (e errWritten) Error() string { return string(e) }

const (
	errNoAmount errWritten = "want plain digits and a point, such as 1234.50"
	errExponent errWritten = "was rewritten by a spreadsheet, and its last digits may be lost: format the column as a number with 2 decimals and export again"
	errPlus     errWritten = "want plain digits and a point, such as 1234.50, without a +"
	errSheet    errWritten = "is a spreadsheet's error: mend its formula and export again"
)

// read takes an amount apart. It only looks at the text: nothing is computed from it.
func read(text string) (reading, error) {
	body := strings.TrimFunc(text, unicode.IsSpace)
	switch {
	case len(body) > 60 || body == "" || !utf8.ValidString(body):
		return reading{}, errNoAmount
	case body[0] == '#':
		return reading{}, errSheet
	case strings.ContainsAny(body, "eE") && spreadsheetNumber.MatchString(body):
		return reading{}, errExponent
	}
	body, sign, negative, err := strip(body)
	if err != nil {
		return reading{}, err
	}
	r := reading{point: readAs(body, '.', ','), comma: readAs(body, ',', '.'), sign: sign}
	if r.point == "" && r.comma == "" {
		return reading{}, errNoAmount
	}
	if negative {
		r.point, r.comma = negated(r.point), negated(r.comma)
	}
	return r, nil
}

func negated(plain string) string {
	if plain == "" {
		return ""
	}
	return "-" + plain
}

// strip takes the currency and the minus away: -$5.00, $-5.00, 5.00 €, (5.00), 5.00-.
// Accountants write what they owe in parentheses.
func strip(body string) (rest, sign string, negative bool, err error) {
	minus := func(found bool) {
		if found && negative {
			err = errNoAmount
		}
		negative = negative || found
	}
	cut := func(s string, prefix bool) string {
		for _, m := range []string{"-", "\u2212"} {
			if prefix && strings.HasPrefix(s, m) {
				minus(true)
				return strings.TrimLeftFunc(strings.TrimPrefix(s, m), unicode.IsSpace)
			}
			if !prefix && strings.HasSuffix(s, m) {
				minus(true)
				return strings.TrimRightFunc(strings.TrimSuffix(s, m), unicode.IsSpace)
			}
		}
		return s
	}
	if strings.HasPrefix(body, "(") && strings.HasSuffix(body, ")") {
		minus(true)
		body = strings.TrimFunc(body[1:len(body)-1], unicode.IsSpace)
	}
	body = cut(body, true)
	if n := len(body) - len(strings.TrimLeftFunc(body, isSign)); n > 0 {
		sign, body = body[:n], strings.TrimLeftFunc(body[n:], unicode.IsSpace)
		body = cut(body, true)
	}
	body = cut(body, false)
	if n := len(strings.TrimRightFunc(body, isSign)); n < len(body) {
		if sign != "" {
			return "", "", false, errNoAmount
		}
		sign, body = body[n:], strings.TrimRightFunc(body[:n], unicode.IsSpace)
		body = cut(body, false)
	}
	if strings.ContainsRune(body, '+') {
		err = errPlus
	}
	return body, sign, negative, err
}

// isSign is a letter or a sign that may be part of a currency.
func isSign(r rune) bool { return unicode.IsLetter(r) || unicode.Is(unicode.Sc, r) }

// isGroup is what stands between thousands and is never a decimal mark.
func isGroup(r rune) bool { return r == '\'' || r == '\u2019' || unicode.Is(unicode.Zs, r) }

// readAs reads digits where decimal ends the whole part and group, a blank or an
// apostrophe may stand between its thousands. It returns "" for what is not written so.
func readAs(body string, decimal, group rune) string {
	var plain strings.Builder
	var separator rune
	digits, groups, leading := 0, 0, false // digits since the last separator
	for i, r := range body {
		switch {
		case r >= '0' && r <= '9':
			if i == 0 {
				leading = r == '0'
			}
			digits++
			plain.WriteRune(r)
		case r == decimal:
			fraction := body[i+1:]
			if digits == 0 || groups > 0 && digits != 3 || !allDigits(fraction) {
				return ""
			}
			return plain.String() + "." + fraction
		case r == group || isGroup(r):
			first := groups == 0
			if digits == 0 || first && (digits > 3 || leading) || !first && (digits != 3 || r != separator) {
				return ""
			}
			separator, digits = r, 0
			groups++
		default:
			return ""
		}
	}
	if digits == 0 || groups > 0 && digits != 3 {
		return ""
	}
	return plain.String()
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// signs are what stands for a currency beside an amount, besides its code.
var signs = map[string][]string{
	"$":   {"usd", "cad", "aud", "nzd", "sgd", "hkd", "twd", "mxn", "clp", "cop", "ars", "bsd", "bbd", "bzd", "fjd", "jmd", "ttd", "xcd", "uyu"},
	"us$": {"usd"}, "c$": {"cad"}, "ca$": {"cad"}, "a$": {"aud"}, "au$": {"aud"}, "nz$": {"nzd"}, "s$": {"sgd"}, "hk$": {"hkd"},
	"nt$": {"twd"}, "mx$": {"mxn"}, "r$": {"brl"}, "€": {"eur"}, "£": {"gbp", "egp", "gip", "fkp", "shp", "lbp"}, "¥": {"jpy", "cny"},
	"円": {"jpy"}, "元": {"cny"}, "₩": {"krw"}, "₹": {"inr"}, "rs": {"inr", "pkr", "lkr", "npr", "mur"}, "kr": {"sek", "nok", "dkk", "isk"},
	"fr": {"chf"}, "sfr": {"chf"}, "zł": {"pln"}, "kč": {"czk"}, "ft": {"huf"}, "₪": {"ils"}, "₺": {"try"}, "฿": {"thb"}, "₫": {"vnd"},
	"₱": {"php"}, "₦": {"ngn"}, "₴": {"uah"}, "lei": {"ron"}, "rm": {"myr"}, "rp": {"idr"}, "r": {"zar"}, "₽": {"rub"}, "₡": {"crc"},
}

// checkSign refuses an amount whose sign is of another currency than its row's.
func checkSign(sign, currency string) error {
	if sign == "" || currency == "" || strings.EqualFold(sign, currency) || slices.Contains(signs[strings.ToLower(sign)], currency) {
		return nil
	}
	if _, known := signs[strings.ToLower(sign)]; !known && !(len(sign) == 3 && allLetters(sign)) {
		return errNoAmount
	}
	return fmt.Errorf("has the sign %s, and the currency of the row is %s: correct one of them", sign, currency)
}

func allLetters(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > 'z' || !unicode.IsLetter(r) }) < 0
}

// settle says what an amount is, as far as the file has shown how it writes decimals.
// evidence is the mark that this amount proves; doubt says that the other mark would
// make it another amount.
func (r reading) settle(mark byte) (plain string, evidence byte, doubt bool, err error) {
	switch {
	case r.point == r.comma:
		return r.point, 0, false, nil
	case r.comma == "":
		evidence, plain = '.', r.point
	case r.point == "":
		evidence, plain = ',', r.comma
	case mark == ',':
		return r.comma, 0, false, nil
	default:
		return r.point, 0, mark == 0, nil
	}
	if mark != 0 && mark != evidence {
		return "", 0, false, errOtherMark
	}
	return plain, evidence, false, nil
}

var errOtherMark = errors.New("is written with the other decimal mark")
