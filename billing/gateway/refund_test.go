package gateway

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

// The body of a refund is the same text for ever: a key is only ever sent with the same
// bytes.
func TestRefundBodyIsFrozen(t *testing.T) {
	t.Parallel()
	got := RefundBody(RefundParams{PaymentIntent: "pi_2", Amount: 1001, Duplicate: true, FindingID: 7, BillingKey: "job/2026-10/a b"})
	if want := "payment_intent=pi_2&amount=1001&reason=duplicate&metadata[billing_finding]=7&metadata[billing_key]=job%2F2026-10%2Fa+b"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := RefundBody(RefundParams{PaymentIntent: "pi_2", Amount: 1, FindingID: 7}); got != "payment_intent=pi_2&amount=1&metadata[billing_finding]=7" {
		t.Error(got)
	}
}

// Every answer of Stripe's to a refund, and what it is worth: what is not proven is
// unknown.
func TestWhatAnswersToARefundMean(t *testing.T) {
	t.Parallel()
	made := func(id, payment, amount, currency, finding, status string) string {
		return `{"id":"` + id + `","object":"refund","status":"` + status + `","payment_intent":"` + payment + `","amount":` + amount +
			`,"currency":"` + currency + `","metadata":{"billing_finding":"` + finding + `"}}`
	}
	refusal := func(kind, code, param, message string) string {
		return `{"error":{"type":"` + kind + `","code":"` + code + `","param":"` + param + `","message":"` + message + `"}}`
	}
	const invalid = "invalid_request_error"
	right := made("re_1", "pi_2", "1001", "usd", "7", "succeeded")
	for name, c := range map[string]struct {
		reply       Reply
		verdict     Verdict
		reason      string
		notExecuted bool
	}{
		"made":              {refundReply(200, right), VerdictKnown, "", false},
		"pending":           {refundReply(200, made("re_1", "pi_2", "1001", "usd", "7", "pending")), VerdictKnown, "", false},
		"failed at once":    {refundReply(200, made("re_1", "pi_2", "1001", "usd", "7", "failed")), VerdictKnown, "", false},
		"of another amount": {refundReply(200, made("re_1", "pi_2", "1000", "usd", "7", "succeeded")), VerdictUnknown, ReasonNotAsAsked, false},
		"of another":        {refundReply(200, made("re_1", "pi_1", "1001", "usd", "7", "succeeded")), VerdictUnknown, ReasonNotAsAsked, false},
		"in other money":    {refundReply(200, made("re_1", "pi_2", "1001", "eur", "7", "succeeded")), VerdictUnknown, ReasonNotAsAsked, false},
		"not about it":      {refundReply(200, made("re_1", "pi_2", "1001", "usd", "8", "succeeded")), VerdictUnknown, ReasonNotAsAsked, false},
		"replayed":          {refundReplayed(200, right), VerdictUnknown, ReasonNotReread, false},
		"an empty object":   {refundReply(200, `{}`), VerdictUnknown, ReasonUnreadable, false},
		"a page":            {refundReply(200, `<html>`), VerdictUnknown, ReasonUnreadable, false},
		"a redirect":        {refundReply(307, ``), VerdictUnknown, ReasonUnexpected, false},
		"given back before": {refundReply(400, refusal(invalid, "charge_already_refunded", "", "x")), VerdictUnknown, ReasonAlreadyRefunded, true},
		"disputed":          {refundReply(400, refusal(invalid, "charge_disputed", "", "x")), VerdictRefused, "charge_disputed", true},
		"too much":          {refundReply(400, refusal(invalid, "", "amount", "x")), VerdictRefused, "invalid_amount", true},
		"no such payment":   {refundReply(404, refusal(invalid, "resource_missing", "payment_intent", "x")), VerdictRefused, "resource_missing", true},
		"refused, replayed": {refundReplayed(400, refusal(invalid, "charge_disputed", "", "x")), VerdictUnknown, "charge_disputed", false},
		"another mode":      {refundReply(404, refusal(invalid, "resource_missing", "", "a similar object exists in live mode")), VerdictStop, ReasonWrongMode, true},
		"a new code":        {refundReply(400, refusal(invalid, "new_code", "", "x")), VerdictUnknown, "new_code", false},
		"not Stripe's":      {refundReply(400, `bad request`), VerdictUnknown, ReasonUnexpected, false},
		"key used":          {refundReply(400, refusal("idempotency_error", "", "", "x")), VerdictUnknown, ReasonIdempotency, false},
		"in use":            {refundReply(409, refusal(invalid, "idempotency_key_in_use", "", "x")), VerdictUnknown, "idempotency_key_in_use", false},
		"too many":          {refundReply(429, refusal(invalid, "rate_limit", "", "x")), VerdictUnknown, "rate_limit", true},
		"a proxy's 429":     {refundReply(429, `slow down`), VerdictUnknown, ReasonRateLimited, false},
		"a 500":             {refundReply(500, refusal("api_error", "", "", "x")), VerdictUnknown, ReasonServerError, false},
		"a 502":             {refundReply(502, `<html>`), VerdictUnknown, ReasonServerError, false},
		"a wrong key":       {refundReply(401, refusal(invalid, "", "", "x")), VerdictStop, ReasonUnauthorized, true},
		"no right":          {refundReply(403, refusal(invalid, "", "", "x")), VerdictStop, ReasonForbidden, true},
		"cut short":         {Reply{Status: 200, Err: errors.New("EOF")}, VerdictUnknown, ReasonUnreadable, false},
		"no answer":         {Reply{Err: errors.New("EOF")}, VerdictUnknown, ReasonNoAnswer, false},
		"stopped":           {Reply{Err: context.Canceled}, VerdictUnknown, ReasonInterrupted, false},
		"never sent":        {Reply{Err: errPermitExpired, NotSent: true}, VerdictNotSent, ReasonPermitExpired, true},
	} {
		permit := RefundPermit{PaymentIntent: "pi_2", Amount: 1001, Currency: "usd", FindingID: 7}
		a := RefundOutcome(permit, c.reply)
		if a.Verdict != c.verdict || a.Reason != c.reason || a.NotExecuted != c.notExecuted {
			t.Errorf("%s: %s %q not executed %t; want %s %q %t", name, a.Verdict, a.Reason, a.NotExecuted, c.verdict, c.reason, c.notExecuted)
		}
		permit.Resend = true
		if again := RefundOutcome(permit, c.reply); again.Verdict == VerdictRefused {
			t.Errorf("%s: a refusal is believed after a send that may have been executed", name)
		}
	}
}

func refundReply(status int, body string) Reply {
	return Reply{Status: status, Header: http.Header{"Request-Id": {"req_1"}}, Body: []byte(body)}
}

func refundReplayed(status int, body string) Reply {
	r := refundReply(status, body)
	r.Header.Set("Idempotent-Replayed", "true")
	return r
}
