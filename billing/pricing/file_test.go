package pricing_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

var rules = pricing.Rules{
	Period:    func(text string) error { _, err := ledger.ParsePeriod(text); return err },
	AccountID: ledger.CheckAccountID,
}

const goodFile = `# what things cost
prices:
  - valid_from: 2026-11
    currency: eur
    metrics:
      api_calls: {unit_price: 0.0049, unit: call}
  - valid_from: 2026-10
    currency: USD
    base_fee: "20.00"
    accounts:
      acme: {base_fee: "100.00"}
      "0042": {base_fee: 0}
    metrics:
      api_calls: {unit_price: "0.0049", included: 1000, unit: call}
      storage: {unit_price: 0.00000000000000000001}
      traffic: {unit_price: 0.12345678901234567891, included: 123456789012345.67891}
`

// A file is read by the text of its numbers: none becomes a float on the way, an
// account id keeps its zeros, and what the ledger keeps reads back as the same list.
func TestAFileIsReadExactly(t *testing.T) {
	t.Parallel()
	lists, err := pricing.Parse("prices.yaml", []byte(goodFile), rules)
	if err != nil || len(lists) != 2 {
		t.Fatalf("%v, %v", lists, err)
	}
	l := lists[0]
	if l.ValidFrom != "2026-10" || l.Currency != "usd" || !l.BaseFeeOf("acme").Equal(dec("100")) || !l.BaseFeeOf("0042").IsZero() || !l.BaseFeeOf("else").Equal(dec("20")) {
		t.Errorf("got %+v", l)
	}
	const want = `{"valid_from":"2026-10","currency":"usd","base_fee":"20","accounts":{"0042":{"base_fee":"0"},"acme":{"base_fee":"100"}},` +
		`"metrics":{"api_calls":{"unit_price":"0.0049","included":"1000","unit":"call"},"storage":{"unit_price":"0.00000000000000000001","included":"0","unit":""},` +
		`"traffic":{"unit_price":"0.12345678901234567891","included":"123456789012345.67891","unit":""}}}`
	if got := l.Content(); got != want {
		t.Errorf("it is kept as\n%s\nwant\n%s", got, want)
	}
	for _, l := range lists {
		again, err := pricing.ReadContent(l.Content())
		if err != nil || again.Content() != l.Content() {
			t.Errorf("read back: %v, %s", err, again.Content())
		}
	}
	for _, spoiled := range []string{"", "{}", want + "{}", strings.Replace(want, "0.0049", "1e-400000000", 1), strings.Replace(want, `"unit"`, `"tiers"`, 1),
		strings.Replace(want, "usd", "xxx", 1)} {
		if _, err := pricing.ReadContent(spoiled); err == nil {
			t.Errorf("%s is read as a list", spoiled)
		}
	}
}

// Every mistake is named with its place, its value, and what to type instead.
func TestMistakesNamePlaceAndRemedy(t *testing.T) {
	t.Parallel()
	list := func(lines string) string { return "prices:\n  - valid_from: 2026-10\n    currency: usd\n" + lines }
	metric := func(words string) string { return list("    metrics: {m: {" + words + "}}\n") }
	for file, want := range map[string]string{
		"":                                    `p.yaml is empty: want "prices:"`,
		"prices: []":                          `p.yaml:1:9: prices: want one or more lists`,
		"prices:\n\t- a: 1":                   `p.yaml:2: this is no YAML: found character that cannot start any token; indent with blanks`,
		"price:\n  - valid_from: 2026-10":     `p.yaml:1:1: the file "price": is not known here; there are prices`,
		"- valid_from: 2026-10":               `p.yaml:1:1: the file: want a mapping with prices`,
		"prices: [1]":                         `p.yaml:1:10: list "1": want a mapping with valid_from`,
		"prices: [{}]\n---\nprices: []":       `p.yaml has a second document`,
		"prices: [&a {}, *a]":                 `p.yaml:1:10: anchors, aliases and tags`,
		"prices: [{valid_from: !!str 2}]":     `p.yaml:1:23: anchors, aliases and tags`,
		"\xff":                                `p.yaml is not UTF-8`,
		list(""):                              `p.yaml:2:5: list: has no price`,
		list("    base_fees: 1\n"):            `p.yaml:4:5: list "base_fees": is not known here; there are valid_from, currency, base_fee, accounts, metrics`,
		list("    currency: eur\n"):           `p.yaml:4:5: list "currency": stands in line 3 already`,
		list("    base_fee: 20.005\n"):        `p.yaml:4:15: base_fee "20.005": usd is charged with 2 digits after the point: round it to 20.01`,
		list("    base_fee: 1e2\n"):           `p.yaml:4:15: base_fee "1e2": want plain digits`,
		list("    base_fee: -5\n"):            `p.yaml:4:15: base_fee "-5": is below zero`,
		list("    base_fee: 010\n"):           `p.yaml:4:15: base_fee "010": begins with a zero: want 10`,
		list("    base_fee: 10000000000\n"):   `p.yaml:4:15: base_fee "10000000000": is larger than Stripe charges at once`,
		list("    base_fee:\n"):               `p.yaml:4:14: base_fee "": want plain digits`,
		list("    accounts: {acme: 5}\n"):     `p.yaml:4:22: account "5": want a mapping with base_fee`,
		list("    accounts: {acme: {}}\n"):    `p.yaml:4:16: account "acme": has no base_fee`,
		list("    accounts: {' a': {}}\n"):    `p.yaml:4:16: accounts " a": is no account id`,
		list("    accounts: {[a]: {}}\n"):     `p.yaml:4:16: accounts: want a name here`,
		list("    metrics: {'': {}}\n"):       `p.yaml:4:15: metric "": is blank`,
		metric(""):                            `p.yaml:4:15: metric "m": has no unit_price`,
		metric("unit_price: 1,000.00"):        `p.yaml:4:33: metric "000.00": is not known here`,
		metric("unit_price: '1,000.00'"):      `p.yaml:4:31: unit_price "1,000.00": want plain digits`,
		metric("unit_price: $5"):              `p.yaml:4:31: unit_price "$5": want plain digits`,
		metric("unit_price: 0x10"):            `p.yaml:4:31: unit_price "0x10": want plain digits`,
		metric("unit_price: 1_000"):           `p.yaml:4:31: unit_price "1_000": want plain digits`,
		metric("unit_price: .5"):              `p.yaml:4:31: unit_price ".5": want plain digits`,
		metric("unit_price: .inf"):            `p.yaml:4:31: unit_price ".inf": want plain digits`,
		metric("unit_price: 1, included: -1"): `p.yaml:4:44: included "-1": is below zero`,
		metric("unit_price: 1, unit: ''"):     `p.yaml:4:40: unit "": is blank`,
		"prices:\n  - valid_from: 2026-10-01\n    currency: usd\n    base_fee: 1":                        `p.yaml:2:17: valid_from "2026-10-01": want a calendar month such as 2026-10`,
		"prices:\n  - valid_from: 2026-1\n    currency: usd\n    base_fee: 1":                            `p.yaml:2:17: valid_from "2026-1": want a calendar month`,
		"prices:\n  - currency: usd\n    base_fee: 1":                                                    `p.yaml:2:5: list: valid_from is missing`,
		"prices:\n  - valid_from: 2026-10\n    base_fee: 1":                                              `p.yaml:2:5: list: currency is missing`,
		"prices:\n  - valid_from: 2026-10\n    currency: dollars\n    base_fee: 1":                       `p.yaml:3:15: currency "dollars": want a three-letter code`,
		"prices:\n" + strings.Repeat("  - valid_from: 2026-10\n    currency: usd\n    base_fee: 1\n", 2): `p.yaml:5:17: valid_from "2026-10": the list of usd from 2026-10 stands in line 2 already`,
		"prices:\n  - {valid_from: 2026-10, currency: usd, metrics: {m: {unit_price: 1, unit: call}}}\n" +
			"  - {valid_from: 2026-11, currency: usd, metrics: {m: {unit_price: 1, unit: calls}}}": `p.yaml:3:77: unit "calls": "m" is counted in "call" in line 2`,
	} {
		_, err := pricing.Parse("p.yaml", []byte(file), rules)
		var mistakes *sheet.Mistakes
		if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", file, err, want)
		}
	}
}

// The first twenty mistakes are listed and the rest is counted, so that one import
// shows them all.
func TestTwentyMistakesAreListed(t *testing.T) {
	t.Parallel()
	file := "prices:\n  - valid_from: 2026-10\n    currency: usd\n    metrics:\n"
	for i := range 25 {
		file += fmt.Sprintf("      m%d: {unit_price: free}\n", i)
	}
	_, err := pricing.Parse("p.yaml", []byte(file), rules)
	if err == nil || strings.Count(err.Error(), "want plain digits") != 20 || !strings.Contains(err.Error(), "p.yaml has 25 mistakes") || !strings.Contains(err.Error(), "and 5 more") {
		t.Errorf("got %v", err)
	}
}

var placed = regexp.MustCompile(`^p\.yaml((:[0-9]+){0,2}: | is | has )`)

// Whatever a file holds: it is read as lists that the ledger can keep and read back,
// or refused with the place of each mistake.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{goodFile, "prices: [&a {}, *a]", "prices:\n  - <<: {a: 1}\n", "a: b: c", "? [a]\n: b", "prices: [{valid_from: 2026-10, currency: jpy, base_fee: 1e99999999}]",
		"prices: [{valid_from: 2026-10, currency: kwd, metrics: {m: {unit_price: 1}}}]", "%YAML 1.1\n---\nprices: {}", "\ufeffprices: ~", "prices: [[[[[["} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lists, err := pricing.Parse("p.yaml", data, rules)
		var mistakes *sheet.Mistakes
		if err != nil {
			if !errors.As(err, &mistakes) {
				t.Fatalf("%T: %v", err, err)
			}
			for _, m := range mistakes.List {
				if !placed.MatchString(m) {
					t.Errorf("a mistake without a place: %s", m)
				}
			}
			return
		}
		if len(lists) == 0 {
			t.Fatal("a file without lists is taken")
		}
		for _, l := range lists {
			again, err := pricing.ReadContent(l.Content())
			if err != nil || again.Content() != l.Content() {
				t.Errorf("%s does not read back: %v", l.Content(), err)
			}
		}
	})
}
