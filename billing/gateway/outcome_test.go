package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chargeonce/billing/ledger"
)

func reply(status int, body string, headers ...string) Reply {
	r := Reply{Status: status, Body: []byte(body), Header: http.Header{}}
	r.Header.Set("Request-Id", "req_1")
	r.Header.Set("Original-Request", "req_1")
	r.Header.Set("Date", "Sun, 01 Nov 2026 00:05:00 GMT")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func lost(err error) Reply { return Reply{Err: err} }

func errorText(kind, code, more string) string {
	return `{"error":{"type":"` + kind + `","code":"` + code + `","message":"m"` + more + `}}`
}

var (
	paid     = intentText("succeeded", `"latest_charge":"ch_1"`)
	declined = `{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds","advice_code":"try_again_later",
		"message":"Your card has insufficient funds.","payment_intent":` + intentText("requires_payment_method",
		`"latest_charge":"ch_1","last_payment_error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}`) + `}}`
	replayed = []string{"Idempotent-Replayed", "true", "Request-Id", "req_2"}
)

// outcomes has every row of the table of answers. The flags are n NotExecuted,
// s NotSent, 5 ServerError, r Replayed.
var outcomes = []struct {
	name    string
	reply   Reply
	verdict Verdict
	state   ledger.ChargeState
	reason  string
	flags   string
}{
	{"200 as asked", reply(200, paid), VerdictKnown, ledger.ChargeSucceeded, "", ""},
	{"200 replayed", reply(200, paid, replayed...), VerdictKnown, ledger.ChargeSucceeded, "", "r"},
	{"replayed by the request ids alone", reply(200, paid, "Request-Id", "req_2"), VerdictKnown, ledger.ChargeSucceeded, "", "r"},
	{"402 card error", reply(402, declined), VerdictKnown, ledger.ChargeDeclined, "insufficient_funds", ""},
	{"402 authentication", reply(402, `{"error":{"type":"card_error","code":"authentication_required","payment_intent":`+
		intentText("requires_payment_method", `"latest_charge":null`)+`}}`), VerdictKnown, ledger.ChargeActionRequired, "authentication_required", ""},
	{"402 without a PaymentIntent", reply(402, errorText("card_error", "expired_card", "")), VerdictKnown, ledger.ChargeDeclined, "expired_card", ""},
	{"402 without a PaymentIntent, replayed", reply(402, errorText("card_error", "expired_card", ""), replayed...), VerdictUnknown, "", ReasonNotReread, "r"},
	{"402 whose PaymentIntent is paid", reply(402, `{"error":{"type":"card_error","code":"card_declined","payment_intent":`+paid+`}}`), VerdictUnknown, "", ReasonContradiction, ""},
	{"402 of another payment", reply(402, strings.ReplaceAll(declined, "2026-10/a", "2026-10/b")), VerdictUnknown, "", "not_as_asked: billing_key", ""},
	{"402 that is no card error", reply(402, errorText("invalid_request_error", "", "")), VerdictUnknown, "", ReasonUnexpected, ""},
	{"402 in HTML", reply(402, "<html>"), VerdictUnknown, "", ReasonUnexpected, ""},

	{"400 no such customer", reply(400, errorText("invalid_request_error", "resource_missing", `,"param":"customer"`)), VerdictRefused, "", "resource_missing", "n"},
	{"404 no such customer", reply(404, errorText("invalid_request_error", "resource_missing", "")), VerdictRefused, "", "resource_missing", "n"},
	{"400 too small", reply(400, errorText("invalid_request_error", "amount_too_small", "")), VerdictRefused, "", "amount_too_small", "n"},
	{"400 invalid currency", reply(400, `{"error":{"type":"invalid_request_error","message":"Invalid currency: zzz","param":"currency"}}`), VerdictRefused, "", "invalid_currency", "n"},
	{"400 card not attached", reply(400, `{"error":{"type":"invalid_request_error","message":"m","param":"payment_method"}}`), VerdictRefused, "", "invalid_payment_method", "n"},
	{"400 card detached", reply(400, `{"error":{"type":"invalid_request_error","message":"… It may not be used again."}}`), VerdictRefused, "", "payment_method_detached", "n"},
	{"400 listed, replayed", reply(400, errorText("invalid_request_error", "amount_too_small", ""), replayed...), VerdictUnknown, "", "amount_too_small", "r"},
	{"400 listed, with a PaymentIntent", reply(400, errorText("invalid_request_error", "amount_too_small", `,"payment_intent":`+paid)), VerdictUnknown, "", "amount_too_small", ""},
	{"400 not listed", reply(400, errorText("invalid_request_error", "new_code_of_2027", "")), VerdictUnknown, "", "new_code_of_2027", ""},
	{"400 without a code", reply(400, errorText("invalid_request_error", "", "")), VerdictUnknown, "", ReasonUnexpected, ""},
	{"400 in HTML", reply(400, "<html>"), VerdictUnknown, "", ReasonUnexpected, ""},
	{"404 in HTML", reply(404, "<html>"), VerdictUnknown, "", ReasonUnexpected, ""},
	{"404 wrong address", reply(404, errorText("invalid_request_error", "", "")), VerdictUnknown, "", ReasonUnexpected, ""},
	{"400 idempotency_error", reply(400, errorText("idempotency_error", "", "")), VerdictUnknown, "", ReasonIdempotency, ""},
	{"400 of the other mode", reply(400, `{"error":{"type":"invalid_request_error","code":"resource_missing",
			"message":"No such customer: 'cus_a'; a similar object exists in live mode, but a test mode key was used to make this request."}}`), VerdictStop, "", ReasonWrongMode, "n"},

	{"409 in use", reply(409, errorText("invalid_request_error", "idempotency_key_in_use", "")), VerdictUnknown, "", "idempotency_key_in_use", ""},
	{"409 in HTML", reply(409, "<html>"), VerdictUnknown, "", ReasonConflict, ""},
	{"429 rate", reply(429, errorText("invalid_request_error", "rate_limit", "")), VerdictUnknown, "", "rate_limit", "n"},
	{"429 lock", reply(429, errorText("invalid_request_error", "lock_timeout", "")), VerdictUnknown, "", "lock_timeout", "n"},
	{"429 of something in between", reply(429, "slow down"), VerdictUnknown, "", ReasonRateLimited, ""},
	{"500 of Stripe", reply(500, errorText("api_error", "", "")), VerdictUnknown, "", ReasonServerError, "5"},
	{"500 replayed", reply(500, errorText("api_error", "", ""), replayed...), VerdictUnknown, "", ReasonServerError, "5r"},
	{"500 of Stripe, cut short", Reply{Status: 500, Header: reply(500, "").Header, Err: io.ErrUnexpectedEOF}, VerdictUnknown, "", ReasonUnreadable, "5"},
	{"502 of a proxy", reply(502, "<html>Bad Gateway</html>", "Request-Id", ""), VerdictUnknown, "", ReasonServerError, ""},
	{"503 of Stripe", reply(503, errorText("api_error", "", ""), "Request-Id", ""), VerdictUnknown, "", ReasonServerError, "5"},
	{"424", reply(424, errorText("api_error", "", "")), VerdictUnknown, "", ReasonUnexpected, ""},

	{"401", reply(401, errorText("invalid_request_error", "", "")), VerdictStop, "", ReasonUnauthorized, "n"},
	{"403", reply(403, errorText("invalid_request_error", "", "")), VerdictStop, "", ReasonForbidden, "n"},
	{"403 for the connected account", reply(403, errorText("invalid_request_error", "account_invalid", "")), VerdictRefused, "", "account_invalid", "n"},
	{"403 of a proxy", reply(403, "<html>"), VerdictStop, "", ReasonForbidden, ""},
	{"200 of the other mode", reply(200, strings.ReplaceAll(paid, `"livemode":false`, `"livemode":true`)), VerdictStop, "", ReasonWrongMode, ""},

	{"200 {}", reply(200, "{}"), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 null", reply(200, "null"), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 in HTML", reply(200, "<html>ok</html>"), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 cut, no error", reply(200, paid[:34]), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 cut, with error", Reply{Status: 200, Body: []byte(paid), Header: http.Header{}, Err: io.ErrUnexpectedEOF}, VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 another object", reply(200, strings.ReplaceAll(paid, "pi_1", "ch_1")), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 without a status", reply(200, strings.ReplaceAll(paid, `"status":"succeeded",`, "")), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 without an amount", reply(200, strings.ReplaceAll(paid, `"amount":1200,`, "")), VerdictUnknown, "", ReasonUnreadable, ""},
	{"200 new status", reply(200, strings.ReplaceAll(paid, `"succeeded"`, `"half_paid"`)), VerdictUnknown, "", ReasonNotAttempted, ""},
	{"200 wrong amount", reply(200, strings.ReplaceAll(paid, "1200", "1201")), VerdictUnknown, "", "not_as_asked: amount", ""},
	{"200 wrong currency", reply(200, strings.ReplaceAll(paid, `"usd"`, `"eur"`)), VerdictUnknown, "", "not_as_asked: currency", ""},
	{"200 wrong customer", reply(200, strings.ReplaceAll(paid, "cus_a", "cus_b")), VerdictUnknown, "", "not_as_asked: customer", ""},
	{"200 wrong key", reply(200, strings.ReplaceAll(paid, "2026-10/a", "2026-10/A")), VerdictUnknown, "", "not_as_asked: billing_key", ""},
	{"204", reply(204, ""), VerdictUnknown, "", ReasonUnexpected, ""},
	{"202", reply(202, paid), VerdictUnknown, "", ReasonUnexpected, ""},
	{"307", reply(307, "", "Location", "/elsewhere"), VerdictUnknown, "", ReasonRedirected, ""},

	{"reset", lost(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), VerdictUnknown, "", ReasonNoAnswer, ""},
	{"closed", lost(io.EOF), VerdictUnknown, "", ReasonNoAnswer, ""},
	{"timed out", lost(context.DeadlineExceeded), VerdictUnknown, "", ReasonTimeout, ""},
	{"interrupted", lost(context.Canceled), VerdictUnknown, "", ReasonInterrupted, ""},
	{"nothing at all", Reply{}, VerdictUnknown, "", ReasonNoAnswer, ""},
	{"no connection", Reply{Err: syscall.ECONNREFUSED, NotSent: true}, VerdictNotSent, "", ReasonNoConnection, "ns"},
	{"permit expired", Reply{Err: errPermitExpired, NotSent: true}, VerdictNotSent, "", ReasonPermitExpired, "ns"},
	{"not the permitted request", Reply{Err: errNotPermitted, NotSent: true}, VerdictNotSent, "", ReasonNotPermitted, "ns"},
	{"interrupted before it was sent", Reply{Err: context.Canceled, NotSent: true}, VerdictNotSent, "", ReasonInterrupted, "ns"},
}

// Every kind of answer is worth exactly what the table says, and no more.
func TestOutcome(t *testing.T) {
	for _, test := range outcomes {
		t.Run(test.name, func(t *testing.T) {
			a := Outcome(asked, test.reply)
			if a.Verdict != test.verdict || a.State != test.state || a.Reason != test.reason || flags(a) != test.flags {
				t.Errorf("got %s %q %q flags %q, want %s %q %q %q", a.Verdict, a.State, a.Reason, flags(a), test.verdict, test.state, test.reason, test.flags)
			}
		})
	}
}

func flags(a Answer) (text string) {
	for _, f := range []struct {
		set  bool
		name string
	}{{a.NotExecuted, "n"}, {a.NotSent, "s"}, {a.ServerError, "5"}, {a.Replayed, "r"}} {
		if f.set {
			text += f.name
		}
	}
	return text
}

func TestOutcomeKeepsWhatFinanceAsksFor(t *testing.T) {
	a := Outcome(asked, reply(402, declined))
	if a.PaymentIntent != "pi_1" || a.StripeStatus != "requires_payment_method" || a.Code != "card_declined" ||
		a.DeclineCode != "insufficient_funds" || a.AdviceCode != "try_again_later" || a.RequestID != "req_1" || a.HTTPStatus != 402 ||
		!a.StripeDate.Equal(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC)) {
		t.Errorf("%+v", a)
	}
}

// Stripe's sentences quote what they were sent; keys and client secrets go no
// further than here, nor what a database would refuse.
func TestTextsAreFitForTheLedger(t *testing.T) {
	const text = "Invalid API Key provided: sk_live_51Habc; intent pi_1_secret_XYZ9; Authorization: Bearer rk_test_9"
	a := Outcome(asked, reply(401, `{"error":{"type":"invalid_request_error","message":"`+text+`"}}`))
	failure := &Error{Doing: "read", Kind: KindAuth, Message: redact(text), Err: errors.New(text)}
	if got := Outcome(asked, reply(400, errorText("x\u0000y", strings.Repeat("日", 200), ""))); strings.ContainsRune(got.Message+got.Code, 0) || !utf8.ValidString(got.Code) || len(got.Code) > 100 {
		t.Errorf("a text that no database takes: %+v", got)
	}
	for _, secret := range []string{"51Habc", "XYZ9", "rk_test_9"} {
		if strings.Contains(a.Message, secret) || strings.Contains(failure.Error(), secret) {
			t.Errorf("%s in %q or %q", secret, a.Message, failure.Error())
		}
	}
}

// Whatever comes back, a state is only ever believed with an id and as asked.
func FuzzOutcome(f *testing.F) {
	for _, test := range outcomes {
		f.Add(test.reply.Status, string(test.reply.Body), test.reply.Header.Get("Idempotent-Replayed"))
	}
	f.Fuzz(func(t *testing.T, status int, body, replayed string) {
		a := Outcome(asked, reply(status, body, "Idempotent-Replayed", replayed))
		if (a.State != "") != (a.Verdict == VerdictKnown) || a.Verdict == "" || a.Verdict == VerdictNotSent {
			t.Errorf("%+v", a)
		}
		if a.State != "" && status != 402 && (status != 200 || !strings.HasPrefix(a.PaymentIntent, "pi_")) {
			t.Errorf("believed a %d: %+v", status, a)
		}
		if a.State == ledger.ChargeSucceeded && status != 200 {
			t.Errorf("paid by a %d: %+v", status, a)
		}
		if a.NotExecuted && (a.Replayed || status < 400) {
			t.Errorf("not executed by a %d: %+v", status, a)
		}
	})
}
