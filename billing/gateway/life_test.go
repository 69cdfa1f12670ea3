package gateway

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// shortLived is a client whose requests live for a moment.
func shortLived(t *testing.T, base string) *Client {
	t.Helper()
	c, err := New(Config{SecretKey: testKey, APIBase: base, ReadRate: -1, RequestLife: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A request that nobody answers ends with its life, and may have been executed.
func TestAnAnswerThatNeverComesIsUnknown(t *testing.T) {
	emu, _ := newEmulator(t, stripeemu.Config{})
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHang, Method: "POST", Times: 1})
	c := shortLived(t, emu.URL())
	a := c.Charger().Send(t.Context(), permitFor("a", "pm_card_visa"))
	if a.Verdict != VerdictUnknown || a.Reason != ReasonTimeout || a.NotSent || a.NotExecuted || a.State != "" {
		t.Errorf("%+v", a)
	}
	if emu.Posts() != 1 || emu.IntentCount() != 0 {
		t.Errorf("%d POSTs, %d PaymentIntents", emu.Posts(), emu.IntentCount())
	}
}

// A payment whose answer comes after the request's life is unknown, and found by
// the next send under the same key.
func TestAnAnswerAfterTheRequestsLifeIsUnknown(t *testing.T) {
	emu, _ := newEmulator(t, stripeemu.Config{})
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	c := shortLived(t, emu.URL())
	p := permitFor("a", "pm_card_visa")
	if a := c.Charger().Send(t.Context(), p); a.Verdict != VerdictUnknown || a.Reason != ReasonTimeout || a.NotExecuted {
		t.Errorf("%+v", a)
	}
	emu.Release()
	p.Resend = true
	a := newTestClient(t, emu.URL()).Charger().Send(t.Context(), p)
	if a.Verdict != VerdictKnown || a.State != "succeeded" || !a.Replayed || emu.IntentCount() != 1 {
		t.Errorf("%+v, %d PaymentIntents", a, emu.IntentCount())
	}
}

// A server that takes its time over the TLS handshake gets no byte of the request:
// that is proof that nothing was sent.
func TestASlowTLSHandshakeSendsNothing(t *testing.T) {
	base, arrived := silent(t)
	c := shortLived(t, "https"+base[len("http"):])
	a := c.Charger().Send(t.Context(), permitFor("a", "pm_card_visa"))
	if a.Verdict != VerdictNotSent || a.Reason != ReasonNoConnection || !a.NotSent || !a.NotExecuted {
		t.Errorf("%+v", a)
	}
	c.Close()
	if got := <-arrived; len(got) == 0 || got[0] != 22 { // a TLS handshake record: the greeting
		t.Errorf("on the wire: %q, want the greeting of TLS and no more", got)
	}
}

// A handshake that fails, by a certificate that nobody knows, sends nothing either.
func TestAnUnknownCertificateSendsNothing(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s arrived", r.Method, r.URL)
		answerPaid(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	a := newTestClient(t, server.URL).Charger().Send(t.Context(), permitFor("a", "pm_card_visa"))
	if a.Verdict != VerdictNotSent || a.Reason != ReasonNoConnection || !a.NotSent || !a.NotExecuted {
		t.Errorf("%+v", a)
	}
}
