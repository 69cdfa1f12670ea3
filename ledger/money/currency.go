// Package money holds the rules by which amounts of money reach Stripe: which
// currencies exist, how many digits they have there, what the smallest and
// largest charge is, and how a decimal amount becomes the whole number that is
// sent. It does no I/O and reads no clock.
//
// The tables are Stripe's (docs.stripe.com/currencies), not those of ISO 4217:
// the two disagree on MGA, ISK and UGX, and a charge in the wrong unit is a
// hundred times too large or too small.
package money

import (
	"errors"
	"fmt"
	"strings"
)

// Currency is a three-letter currency code in lower case, as Stripe writes it
// ("usd"). A value that did not come from ParseCurrency may be unknown; the
// functions of this package then say so, they never guess its digits.
type Currency string

// ErrUnknownCurrency says that Stripe does not charge in this currency.
var ErrUnknownCurrency = errors.New("currency that Stripe does not charge in")

// spec is what Stripe's pages say about one currency.
type spec struct {
	// digits are shown after the point of an amount in major units.
	digits int32
	// wire is the power of ten between a major unit and the unit that is sent.
	// It differs from digits for ISK and UGX: whole units, sent times 100.
	wire int32
	// step divides every amount that may be sent.
	step int64
	// minimum is the smallest charge in wire units, 0 where none is published.
	minimum int64
}

// specs has every currency that Stripe charges in.
var specs = buildSpecs()

const (
	twoDecimals = "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn bzd " +
		"cad cdf chf cny cop crc cve czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd hnl htg huf " +
		"idr ils inr jmd kes kgs khr kyd kzt lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop mur mvr mwk mxn myr mzn " +
		"nad ngn nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd scr sek sgd shp sle sos srd std " +
		"szl thb tjs top try ttd twd tzs uah usd uyu uzs wst xcd xcg yer zar zmw"
	zeroDecimals  = "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf"
	threeDecimals = "bhd jod kwd omr tnd"
	wholeTimes100 = "isk ugx"
)

// minimums are Stripe's smallest charges, in wire units. Stripe applies them to
// the settlement currency, after conversion, so that a charge in another
// currency than one's bank account may still be refused as too small.
var minimums = map[Currency]int64{
	"aed": 200, "ars": 50, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "cop": 50, "czk": 1500, "dkk": 250,
	"eur": 50, "gbp": 30, "hkd": 400, "huf": 17500, "idr": 50, "ils": 50, "inr": 50, "jpy": 50, "krw": 50,
	"mxn": 1000, "myr": 200, "nok": 300, "nzd": 50, "php": 50, "pln": 200, "ron": 200, "rub": 50, "sek": 300,
	"sgd": 50, "thb": 1000, "usd": 50, "zar": 50,
}

func buildSpecs() map[Currency]spec {
	all := make(map[Currency]spec, 160)
	add := func(codes string, s spec) {
		for _, code := range strings.Fields(codes) {
			s.minimum = minimums[Currency(code)]
			all[Currency(code)] = s
		}
	}
	add(twoDecimals, spec{digits: 2, wire: 2, step: 1})
	add(zeroDecimals, spec{digits: 0, wire: 0, step: 1})
	add(threeDecimals, spec{digits: 3, wire: 3, step: 10})
	add(wholeTimes100, spec{digits: 0, wire: 2, step: 100})
	return all
}

// ParseCurrency takes a three-letter code in any case, as it stands in files
// and tables, and returns it as Stripe writes it. Blanks are not trimmed. The
// error is ErrUnknownCurrency for a code that Stripe does not charge in.
func ParseCurrency(text string) (Currency, error) {
	if _, known := specs[Currency(text)]; known {
		return Currency(text), nil
	}
	// Longer texts need no folding, and must not be echoed whole.
	if len(text) != 3 {
		return "", fmt.Errorf("%q: %w", shorten(text), ErrUnknownCurrency)
	}
	c := Currency(strings.ToLower(text))
	if _, known := specs[c]; !known {
		return "", fmt.Errorf("%q: %w", text, ErrUnknownCurrency)
	}
	return c, nil
}

// Known reports whether Stripe charges in c.
func (c Currency) Known() bool {
	_, known := specs[c]
	return known
}

// Digits is how many digits an amount in major units shows after the point: 0,
// 2 or 3; 2 for an unknown currency.
func (c Currency) Digits() int32 { return c.spec().digits }

// WireExponent is the power of ten between a major unit and Stripe's unit: 0, 2
// or 3; 2 for an unknown currency. It is 2 for ISK and UGX, whose Digits are 0.
func (c Currency) WireExponent() int32 { return c.spec().wire }

// Minimum is the smallest amount that Stripe charges in c, in Stripe's unit.
// known is false where Stripe publishes none: then Stripe alone decides, and
// answers amount_too_small.
func Minimum(c Currency) (minor int64, known bool) {
	minimum := c.spec().minimum
	return minimum, minimum > 0
}

// spec treats an unknown currency as one of two decimals, for display only:
// ToMinor refuses it.
func (c Currency) spec() spec {
	if s, known := specs[c]; known {
		return s
	}
	return spec{digits: 2, wire: 2, step: 1}
}

// shorten keeps messages about hostile input readable.
func shorten(text string) string {
	const longest = 40
	if len(text) <= longest {
		return text
	}
	return text[:longest] + "…"
}
