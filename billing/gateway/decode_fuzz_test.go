package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// oneWord answers every request with the same status and body, without a network.
type oneWord struct {
	status int
	body   string
}

func (w oneWord) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: w.status, Header: http.Header{"Date": {"Sun, 01 Nov 2026 00:05:00 GMT"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(w.body)),
	}, nil
}

// hearing is a Finder to which Stripe says one thing only.
func hearing(t *testing.T, status int, body string) *Finder {
	t.Helper()
	c := newTestClient(t, "http://127.0.0.1:1")
	c.reader = newBackend("http://127.0.0.1:1", &readTransport{next: oneWord{status, body}, client: c})
	return c.Finder()
}

// spelled is what a secret of Stripe's looks like, written down a second time.
var spelled = regexp.MustCompile(`\b[sr]k_(test|live)_[A-Za-z0-9]|_secret_[A-Za-z0-9]`)

// mustFail checks that an error is one that callers can decide by, short, fit for a
// log and without secrets. Codes are Stripe's words and not looked at.
func mustFail(t *testing.T, err error) *Error {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind == "" || failure.Doing == "" {
		t.Fatalf("an error of no kind: %v", err)
	}
	said := *failure
	said.Code = ""
	if text := said.Error(); spelled.MatchString(text) || len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		t.Errorf("%q", text)
	}
	return failure
}

// listed counts the objects of a page, and reports whether it is the last one.
func listed(t *testing.T, body string) (n int) {
	t.Helper()
	var page struct {
		Data    []json.RawMessage `json:"data"`
		HasMore *bool             `json:"has_more"`
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.HasMore == nil || *page.HasMore {
		t.Fatalf("a list was complete that is none: %v\n%s", err, body)
	}
	return len(page.Data)
}

func page(objects ...string) string {
	return `{"object":"list","has_more":false,"url":"/v1/x","data":[` + strings.Join(objects, ",") + `]}`
}

// addPages adds lists of an object as Stripe sends them and as it never does.
func addPages(f *testing.F, object string) {
	for _, body := range []string{
		page(object), page(), page(object, object), page(object + `,` + strings.Replace(object, `_1"`, `_2"`, 1)),
		strings.Replace(page(object), "false", "true", 1), `{"data":[` + object + `]}`, `{"has_more":false}`, `{"data":null,"has_more":false}`,
		`{"data":[null],"has_more":false}`, `{"data":[{}],"has_more":false}`, object, "", "null", "[]", "{}", "<html>", page(object)[:40],
		page(strings.ReplaceAll(object, `"usd"`, `""`)), page(strings.ReplaceAll(object, `"currency"`, `"x"`)),
		page(strings.ReplaceAll(object, `_1"`, `_1_secret_XYZ"`)), page(strings.ReplaceAll(object, `1200`, `1e30`)), page(strings.ReplaceAll(object, `1200`, `null`)),
	} {
		f.Add(body)
	}
}

// Whatever one PaymentIntent is read as, it is the one that was asked for, whole and
// of the key's mode, it is read the same way again, and only Stripe's own words make
// it mean something.
func FuzzReadIntent(f *testing.F) {
	for _, status := range []string{"succeeded", "processing", "requires_action", "requires_capture", "requires_payment_method", "requires_confirmation", "canceled", "half_paid"} {
		f.Add(intentText(status, `"latest_charge":"ch_1"`))
		f.Add(intentText(status, `"latest_charge":null,"last_payment_error":{"type":"card_error","code":"card_declined","decline_code":"expired_card"}`))
	}
	f.Add(intentText("succeeded", `"latest_charge":{"id":"ch_1","amount_refunded":5,"disputed":true,"outcome":{"advice_code":"try_again_later"}}`))
	f.Add(strings.Replace(paid, `"livemode":false`, `"livemode":true`, 1))
	f.Add(strings.ReplaceAll(paid, `pi_1`, `pi_1_secret_XYZ`))
	f.Fuzz(func(t *testing.T, body string) {
		pi, _, err := hearing(t, http.StatusOK, body).GetWithCharge(t.Context(), "", "pi_1")
		if err != nil {
			mustFail(t, err)
			return
		}
		if pi.ID != "pi_1" || pi.Livemode || pi.Status == "" || pi.Currency == "" {
			t.Errorf("believed %+v", pi)
		}
		state, _, known := StateOf(pi)
		if known != slices.Contains(ledger.ChargeStates, state) || known && strings.HasPrefix(pi.Status, "half") {
			t.Errorf("%s is %q, %v", pi.Status, state, known)
		}
		if (state == ledger.ChargeSucceeded) != (pi.Status == StatusSucceeded) {
			t.Errorf("%s is %s", pi.Status, state)
		}
		if again := decodeIntent(t, written(t, pi)); again.Differs(Asked{pi.BillingKey, pi.Amount, pi.Currency, pi.Customer, pi.Livemode}) != "" ||
			again.Try != pi.Try || again.Account != pi.Account || !again.Created.Equal(pi.Created) || again.LatestCharge != pi.LatestCharge {
			t.Errorf("read again: %+v\nwas %+v", again, pi)
		}
	})
}

// written is a PaymentIntent as Stripe would send it.
func written(t *testing.T, pi PaymentIntent) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"id": pi.ID, "object": "payment_intent", "status": pi.Status, "amount": pi.Amount, "amount_received": pi.AmountReceived, "currency": pi.Currency,
		"customer": pi.Customer, "created": pi.Created.Unix(), "livemode": pi.Livemode, "metadata": pi.Metadata, "latest_charge": pi.LatestCharge,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A list is complete only if it says so; then every object of it was given, once, of
// the key's mode and from the time that was asked for.
func FuzzListPage(f *testing.F) {
	addPages(f, paid)
	f.Fuzz(func(t *testing.T, body string) {
		seen, from := map[string]bool{}, time.Unix(1793491500, 0)
		err := hearing(t, http.StatusOK, body).List(t.Context(), ListQuery{CreatedFrom: from, EachPage: func(page []PaymentIntent, _ Meta) error {
			for _, pi := range page {
				if seen[pi.ID] || pi.Livemode || pi.Created.Before(from) || !strings.HasPrefix(pi.ID, "pi_") {
					t.Errorf("listed %+v", pi)
				}
				seen[pi.ID] = true
			}
			return nil
		}})
		if err != nil {
			mustFail(t, err)
		} else if n := listed(t, body); n != len(seen) {
			t.Errorf("%d of %d objects", len(seen), n)
		}
	})
}

const (
	refundText = `{"id":"re_1","object":"refund","status":"succeeded","amount":1200,"currency":"usd","created":1793491500,"payment_intent":"pi_1",
		"metadata":{"billing_finding":"7"},"balance_transaction":{"id":"txn_1","amount":-1200,"currency":"usd","fee":0,"net":-1200,"available_on":1793491500}}`
	payoutText  = `{"id":"po_1","object":"payout","status":"paid","amount":1200,"currency":"usd","created":1793491500,"automatic":true}`
	balanceText = `{"id":"txn_1","object":"balance_transaction","type":"charge","amount":1200,"currency":"usd","fee":0,"net":1200,"created":1793491500,
		"available_on":1793491500,"source":{"id":"ch_1","object":"charge","payment_intent":"pi_1"}}`
)

// The refunds of a payment are all of it or none: each whole, once, and of this
// payment; and the list of everybody's refunds is no less strict.
func FuzzRefunds(f *testing.F) {
	addPages(f, refundText)
	f.Fuzz(func(t *testing.T, body string) {
		finder := hearing(t, http.StatusOK, body)
		list, err := finder.RefundsOf(t.Context(), "", "pi_1")
		switch {
		case err != nil && list != nil:
			t.Errorf("%d refunds of a list that failed", len(list))
		case err != nil:
			mustFail(t, err)
		case listed(t, body) != len(list):
			t.Errorf("%d of %d refunds", len(list), listed(t, body))
		}
		for i, r := range list {
			if r.ID == "" || r.Status == "" || r.Currency == "" || r.PaymentIntent != "pi_1" || slices.IndexFunc(list, func(o Refund) bool { return o.ID == r.ID }) != i {
				t.Errorf("believed %+v", r)
			}
		}
		var all []Return
		err = finder.Refunds(t.Context(), Span{}, func(page []Return, _ Meta) error { all = append(all, page...); return nil })
		if err != nil {
			mustFail(t, err)
		} else if listed(t, body) != len(all) {
			t.Errorf("%d of %d refunds", len(all), listed(t, body))
		}
	})
}

// Payouts are whole objects, each once.
func FuzzPayouts(f *testing.F) {
	addPages(f, payoutText)
	f.Fuzz(func(t *testing.T, body string) {
		seen := map[string]bool{}
		err := hearing(t, http.StatusOK, body).Payouts(t.Context(), Span{}, func(page []Payout, _ Meta) error {
			for _, p := range page {
				if seen[p.ID] || p.ID == "" || p.Currency == "" || len(p.ID) > 200 || len(p.Status) > longestCode {
					t.Errorf("believed %+v", p)
				}
				seen[p.ID] = true
			}
			return nil
		})
		if err != nil {
			mustFail(t, err)
		} else if n := listed(t, body); n != len(seen) {
			t.Errorf("%d of %d payouts", len(seen), n)
		}
	})
}

// A payment is said to be in a payout only if all that is in it comes to its amount.
func FuzzBalanceTransactions(f *testing.F) {
	addPages(f, balanceText)
	f.Add(page(balanceText, `{"id":"txn_2","type":"payout","amount":-1200,"currency":"usd","net":-1200}`))
	f.Add(page(strings.Replace(balanceText, `"net":1200`, `"net":1199`, 1)))
	f.Fuzz(func(t *testing.T, body string) {
		intents, err := hearing(t, http.StatusOK, body).PaidOut(t.Context(), "", Payout{ID: "po_1", Amount: 1200, Currency: "usd"}, func(Meta) error { return nil })
		if err != nil {
			if mustFail(t, err); intents != nil && errors.Is(err, errNotWhole) {
				t.Errorf("%v of a list that is not whole", intents)
			}
			return
		}
		var page struct {
			Data []struct {
				Type string
				Net  int64
			}
		}
		if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&page); err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, b := range page.Data {
			if b.Type != "payout" {
				sum += b.Net
			}
		}
		if listed(t, body); sum != 1200 || len(intents) > len(page.Data) {
			t.Errorf("%v by what comes to %d", intents, sum)
		}
	})
}

// An answer that failed proves nothing but what Stripe's own words say: a customer is
// gone by Stripe's 404 alone or by being marked deleted, and a refund that was refused
// was refused by a word of the list, not in a replay.
func FuzzErrorBody(f *testing.F) {
	for _, test := range outcomes {
		f.Add(test.reply.Status, string(test.reply.Body), test.reply.Header.Get("Idempotent-Replayed") == "true")
	}
	const gone = `{"error":{"type":"invalid_request_error","code":"resource_missing","message":"No such customer: cus_a; sk_live_51Habc; pi_1_secret_XYZ"}}`
	f.Add(404, gone, false)
	f.Add(404, `{"error":{}}`, false)
	f.Add(200, `{"id":"cus_a","deleted":true}`, false)
	f.Add(200, refundText, false)
	f.Add(400, `{"error":{"type":"invalid_request_error","code":"charge_already_refunded"}}`, false)
	f.Fuzz(func(t *testing.T, status int, body string, replayed bool) {
		e, isStripes := stripeError([]byte(body))
		exists, err := hearing(t, status, body).CustomerExists(t.Context(), "", "cus_a")
		switch {
		case err != nil:
			if mustFail(t, err); exists {
				t.Errorf("a customer by an error: %v", err)
			}
		case exists && status != 200, !exists && status == 404 && !isStripes, !exists && status != 404 && status != 200:
			t.Errorf("a customer exists (%v) by a %d: %s", exists, status, body)
		}
		again := ""
		if replayed {
			again = "true"
		}
		p := RefundPermit{PaymentIntent: "pi_1", Amount: 1200, Currency: "usd", FindingID: 7}
		a := RefundOutcome(p, reply(status, body, "Idempotent-Replayed", again))
		switch {
		case spelled.MatchString(a.Message):
			t.Errorf("%q", a.Message)
		case a.Verdict == VerdictKnown && (status != 200 || replayed || a.Refund.PaymentIntent != "pi_1" || a.Refund.Amount != 1200 || a.Refund.ID == ""):
			t.Errorf("known by a %d: %+v", status, a)
		case a.Verdict == VerdictRefused && (!isStripes || replayed || e.Code == ReasonAlreadyRefunded || status != 400 && status != 404):
			t.Errorf("refused by a %d: %+v", status, a)
		case a.NotExecuted && (replayed || !isStripes):
			t.Errorf("not executed by a %d: %+v", status, a)
		}
	})
}
