package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger/money"
)

// Text can't be run by a spreadsheet; everything else comes back byte for byte, with the
// digits of its currency and times in UTC.
func TestExportedRows(t *testing.T) {
	charge := row("monthly-billing", "2026-10", "-5", "=1+1", "monthly-billing/2026-10/-5", "1", "NULL", "succeeded", "", "-70", "usd", "-7000",
		"pi_1", "", "", "", "0", "f", "1", "2026-10-31 23:05:00.987654+00", "NULL", "NULL", "00000000-0000-4000-8000-000000000001", "req_1",
		"NULL", "NULL", "", "NULL", "0", "")
	for format, want := range map[string]string{
		"csv": strings.Join(Charges.Names(), ",") + "\n" +
			"monthly-billing,2026-10,-5,'=1+1,monthly-billing/2026-10/-5,1,,succeeded,,-70.00,usd,-7000,pi_1,,,,0.00,false,1," +
			"2026-10-31T23:05:00Z,,,00000000-0000-4000-8000-000000000001,req_1,,,,,0,\n",
		"jsonl": `{"job":"monthly-billing","period":"2026-10","account_id":"-5","name":"=1+1","billing_key":"monthly-billing/2026-10/-5",` +
			`"try":1,"idempotency_key":null,"state":"succeeded","reason":"","amount":"-70.00","currency":"usd","amount_minor":-7000,` +
			`"payment_intent":"pi_1","stripe_customer":"","stripe_account":"","decline_code":"","amount_refunded":"0.00","disputed":false,` +
			`"sends":1,"created_at":"2026-10-31T23:05:00Z","window_opened_at":null,"settled_at":null,` +
			`"run_id":"00000000-0000-4000-8000-000000000001","request_id":"req_1",` +
			`"fee":null,"net":null,"payout":"","available_on":null,"refunds":0,"balance_currency":""}` + "\n",
	} {
		if diff := cmp.Diff(want, string(encode(t, format, Charges, charge))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", format, diff)
		}
	}
	for name, want := range map[string]string{
		"": "", "+49": "'+49", "@a": "'@a", "\tq": "'\tq", "\rq": "'\rq", "-x": "'-x", "a=b": "a=b", "ä": "ä", " =1+1": "' =1+1",
		"＝1+1": "'＝1+1", "\u00a0@x": "'\u00a0@x", "\n=1": "'\n'=1",
		// A spreadsheet whose cells end at ; or tab sees no quotes around a part.
		"a;=1+1": "a;'=1+1", "a\t@b": "a\t'@b", "a; \"=1": "a; \"=1", "a;\"-1": "a;'\"-1", "a\n+1": "a\n'+1", "a;b=c": "a;b=c", "'=1": "'=1", "%0A-1": "'%0A-1", "|cmd": "'|cmd",
	} {
		if got := Disarm(name); got != want {
			t.Errorf("disarm %q: got %q, want %q", name, got, want)
		}
	}
}

// The same rows give the same bytes in every format.
func TestTheSameRowsAreTheSameBytes(t *testing.T) {
	r := row("a", "=x", "1", "10.5", "jpy", "t", "2026-11-01 00:05:00+00", "2026-10-31")
	for _, format := range Formats {
		if !bytes.Equal(encode(t, format, fixtureTable, r, r), encode(t, format, fixtureTable, r, r)) {
			t.Errorf("%s is not the same twice", format)
		}
	}
}

// texts are drawn from what is awkward in some format.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", " ", ",", `"`, "\n", "\r", "\\", ".", "=", "-", "\t", "ü", "\u00a0", "'", "<", "&", "\u2028", "_x0041_", "7",
		}), 0, 6).Draw(t, "parts"), "")
	})
}

// Ids come back byte for byte from CSV and JSON, read by others' readers.
func TestIdsComeBackByteForByte(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id, name := texts().Draw(rt, "id"), texts().Draw(rt, "name")
		r := row(id, name, "1", "-70", "usd", "f", "NULL", "NULL")
		text := encode(t, "csv", fixtureTable, r)
		var same bytes.Buffer
		w := csv.NewWriter(&same)
		if err := w.WriteAll([][]string{fixtureTable.Names(), {id, Disarm(name), "1", "-70.00", "usd", "false", "", ""}}); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(same.String(), string(text)); diff != "" {
			rt.Fatalf("encoding/csv would write: (-want +got)\n%s", diff)
		}
		var object map[string]any
		line := encode(t, "jsonl", fixtureTable, r)
		if err := json.Unmarshal(line, &object); err != nil || object["account_id"] != id || object["name"] != name {
			rt.Fatalf("JSON has %q, %q, %v, want %q, %q", object["account_id"], object["name"], err, id, name)
		}
	})
}

// Amounts are shown as money shows them, and sums are those of decimals, whatever
// Postgres writes.
func TestAmountsAndSumsAreThoseOfDecimals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sums, want := NewSummer(fixtureTable, "currency", "amount"), map[string]decimal.Decimal{}
		for range rapid.IntRange(1, 20).Draw(rt, "rows") {
			amount := decimal.New(rapid.Int64Range(-1e12, 1e12).Draw(rt, "mantissa"), rapid.Int32Range(-6, 3).Draw(rt, "exponent"))
			code := rapid.SampledFrom([]string{"usd", "jpy", "bhd", "xxx", "ugx"}).Draw(rt, "currency")
			text := amount.String()
			r := row("a", "", "1", text, code, "f", "NULL", "NULL")
			shown := text
			if c, err := money.ParseCurrency(code); err == nil {
				shown = money.Format(amount, c)
			}
			if got := newCells(fixtureTable).at(r, 3); string(got) != shown {
				rt.Fatalf("%s %s is shown as %s, want %s", text, code, got, shown)
			}
			sums.Add(r)
			want[code] = want[code].Add(amount)
		}
		for _, s := range sums.Amounts() {
			if got, err := decimal.NewFromString(s.Amount); err != nil || !got.Equal(want[s.Currency]) {
				rt.Fatalf("the sum in %s is %s, want %s", s.Currency, s.Amount, want[s.Currency])
			}
		}
	})
}

// What is no number is written as it is, and is in no sum.
func TestWhatIsNoNumberIsWrittenAsItIs(t *testing.T) {
	sums := NewSummer(fixtureTable, "currency", "amount")
	r := row("a", "", "1", "NaN", "usd", "f", "NULL", "NULL")
	sums.Add(r)
	if got := newCells(fixtureTable).at(r, 3); string(got) != "NaN" {
		t.Errorf("NaN is %s", got)
	}
	if diff := cmp.Diff([]Sum{{Currency: "usd", Rows: 1, Amount: "0.00"}}, sums.Amounts()); diff != "" {
		t.Error(diff)
	}
}
