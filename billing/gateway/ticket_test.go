package gateway

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
)

// Only what the permit says goes out.
func TestARequestThatIsNotPermittedIsNotSent(t *testing.T) {
	server := newWire(t, answerPaid)
	c := newTestClient(t, server.URL)
	for name, change := range map[string]func(*Permit){
		"another body":             func(p *Permit) { p.Body += "&amount=9" },
		"another hash":             func(p *Permit) { p.SHA256[0]++ },
		"no key":                   func(p *Permit) { p.Key = "" },
		"a key that is trimmed":    func(p *Permit) { p.Key += " " },
		"a key that is too long":   func(p *Permit) { p.Key = string(make([]byte, 300)) },
		"a key with a line break":  func(p *Permit) { p.Key = "a\nb" },
		"an account that is not":   func(p *Permit) { p.StripeAccount = "acct_1 " },
		"an account of two lines":  func(p *Permit) { p.StripeAccount = "acct_1\nX: y" },
		"no deadline":              func(p *Permit) { p.Deadline = Deadline{} },
		"a deadline in the future": func(p *Permit) { p.Deadline = NewDeadline(time.Now().Add(time.Hour), time.Hour) },
	} {
		p := permit(time.Now())
		change(&p)
		if a := c.Charger().Send(t.Context(), p); a.Verdict != VerdictNotSent || !a.NotExecuted || a.Reason == ReasonNoConnection {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if server.count() != 0 {
		t.Errorf("%d POSTs", server.count())
	}
}

// The connections themselves refuse what nobody permitted.
func TestTransportsRefuseOtherMethods(t *testing.T) {
	server := newWire(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) })
	c := newTestClient(t, server.URL)
	for name, try := range map[string]func() error{
		"POST without a permit": func() error {
			return c.sender.CallRaw(http.MethodPost, intentsPath, testKey, []byte("amount=1"), &stripe.Params{}, &discard{})
		},
		"GET as a send": func() error {
			return c.sender.CallRaw(http.MethodGet, intentsPath, testKey, nil, &stripe.Params{}, &discard{})
		},
		"POST as a read": func() error {
			params := &stripe.Params{Context: context.WithValue(t.Context(), exchangeKey{}, &exchange{})}
			return c.reader.CallRaw(http.MethodPost, intentsPath, testKey, []byte("amount=1"), params, &discard{})
		},
		"DELETE as a read": func() error {
			params := &stripe.Params{Context: context.WithValue(t.Context(), exchangeKey{}, &exchange{})}
			return c.reader.CallRaw(http.MethodDelete, "/v1/customers/cus_a", testKey, nil, params, &discard{})
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s went through", name)
		}
	}
}

// One permit is one request, also for code that uses its context twice.
func TestAPermitIsUsedOnce(t *testing.T) {
	server := newWire(t, answerPaid)
	c := newTestClient(t, server.URL)
	p := permit(time.Now())
	ex := &exchange{ticket: &ticket{path: intentsPath, key: p.Key, sha256: p.SHA256, check: func() error { return nil }}}
	params := &stripe.Params{Context: context.WithValue(t.Context(), exchangeKey{}, ex), IdempotencyKey: &p.Key}
	first := c.sender.CallRaw(http.MethodPost, intentsPath, testKey, []byte(p.Body), params, &discard{})
	second := c.sender.CallRaw(http.MethodPost, intentsPath, testKey, []byte(p.Body), params, &discard{})
	if first != nil || !errors.Is(second, errPermitUsed) || server.count() != 1 {
		t.Errorf("first %v, second %v, %d POSTs", first, second, server.count())
	}
}
