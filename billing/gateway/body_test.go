package gateway

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var golden = BodyParams{
	Amount: 4900, Currency: "usd", Customer: "cus_4182", PaymentMethod: "pm_card_visa",
	Description: "October 2026 – Müller & Söhne", BillingKey: "monthly-billing/2026-10/acct%20A", Job: "monthly-billing",
	Period: "2026-10", Account: "acct A", Try: 2,
}

// The body is frozen in the ledger and compared by Stripe: a build that writes
// another one would turn every repeated request into an error.
func TestBodyIsGolden(t *testing.T) {
	const want = "amount=4900&currency=usd&customer=cus_4182&payment_method=pm_card_visa&confirm=true&off_session=true" +
		"&automatic_payment_methods[enabled]=true&automatic_payment_methods[allow_redirects]=never" +
		"&description=October+2026+%E2%80%93+M%C3%BCller+%26+S%C3%B6hne" +
		"&metadata[billing_key]=monthly-billing%2F2026-10%2Facct%2520A&metadata[billing_job]=monthly-billing" +
		"&metadata[billing_period]=2026-10&metadata[billing_account]=acct+A&metadata[billing_try]=2"
	if got := Body(golden); got != want {
		t.Errorf("body is\n%s\nwant\n%s", got, want)
	}
}

// Stripe refuses an empty description.
func TestBodyLeavesOutAnEmptyDescription(t *testing.T) {
	p := golden
	p.Description = ""
	if got := Body(p); strings.Contains(got, "description") {
		t.Error(got)
	}
}

func TestBodyCutsTheDescriptionByCharacters(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
	}{
		{strings.Repeat("x", 1000), 1000}, {strings.Repeat("x", 1001), 1000}, {strings.Repeat("日", 1000), 1000},
		{strings.Repeat("日", 1001), 1000}, {"a\xffb", 3}, {strings.Repeat("日", 400) + "\xff", 401},
	} {
		p := golden
		p.Description = test.text
		got := parse(t, Body(p)).Get("description")
		if n := utf8.RuneCountInString(got); n != test.want || !utf8.ValidString(got) {
			t.Errorf("%d characters became %d, valid %t", utf8.RuneCountInString(test.text), n, utf8.ValidString(got))
		}
	}
}

// Whatever the texts, Stripe reads back exactly what was meant, and no value
// can add a parameter.
func TestBodyDecodesToWhatWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		p := BodyParams{
			Amount: rapid.Int64().Draw(t, "amount"), Currency: text.Draw(t, "currency"), Customer: text.Draw(t, "customer"),
			PaymentMethod: text.Draw(t, "payment method"), Description: "d" + text.Draw(t, "description"),
			BillingKey: text.Draw(t, "key"), Job: text.Draw(t, "job"), Period: text.Draw(t, "period"),
			Account: text.Draw(t, "account"), Try: rapid.IntRange(1, 99).Draw(t, "try"),
		}
		values := parse(t, Body(p))
		if len(values) != 14 {
			t.Fatalf("%d parameters: %v", len(values), values)
		}
		for name, want := range map[string]string{
			"currency": p.Currency, "customer": p.Customer, "payment_method": p.PaymentMethod,
			"metadata[billing_key]": p.BillingKey, "metadata[billing_account]": p.Account, "confirm": "true", "off_session": "true",
		} {
			if got := values[name]; len(got) != 1 || got[0] != want {
				t.Fatalf("%s = %q, want %q", name, got, want)
			}
		}
	})
}

func parse(t interface{ Fatal(...any) }, body string) url.Values {
	values, err := url.ParseQuery(body)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func BenchmarkAppendBody(b *testing.B) {
	b.ReportAllocs()
	var buffer []byte
	for b.Loop() {
		buffer = AppendBody(buffer[:0], golden)
	}
}
