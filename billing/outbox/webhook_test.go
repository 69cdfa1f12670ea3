package outbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

var (
	currentSecret  = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("c"), 32))
	previousSecret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("p"), 24))
	loopback       = prefixes("127.0.0.0/8")
)

func newReceiver(t *testing.T, secret string) *mailemu.Receiver {
	t.Helper()
	receiver, err := mailemu.StartReceiver(secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(receiver.Close)
	return receiver
}

func newWebhook(t *testing.T, cfg WebhookConfig) *Webhook {
	t.Helper()
	if cfg.Secrets == nil {
		cfg.Secrets = []string{currentSecret}
	}
	sender, err := NewWebhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

func newLocalWebhook(t *testing.T) *Webhook {
	t.Helper()
	return newWebhook(t, WebhookConfig{AllowHTTP: true, AllowNetworks: loopback})
}

func testEvent(endpoint string) Message {
	return Message{ID: 8, DedupeKey: testDedupeKey, Kind: "charge.succeeded", Destination: endpoint,
		Body: []byte("{\"amount\": \"12.50\",\n \"note\": \"<ä>\" }\n")}
}

// What a receiver answers, or does not, decides what is known; each try is one
// request, and no redirect is followed.
func TestWebhookSaysWhatIsKnown(t *testing.T) {
	for _, test := range []struct {
		fault   mailemu.Fault
		verdict Verdict
		reason  string
		after   time.Duration
	}{
		{"", Sent, "http_200", 0},
		{mailemu.FaultGarbage, Sent, "http_200", 0},
		{mailemu.FaultCut, Sent, "http_200", 0},
		{mailemu.FaultLoseAnswer, Unknown, "no_answer", 0},
		{mailemu.FaultUndone500, Temporary, "http_500", 0},
		{mailemu.FaultRate429, Temporary, "http_429", 7 * time.Second},
		{mailemu.FaultBusy503, Temporary, "http_503", 7 * time.Second},
		{mailemu.FaultRefused401, Permanent, "http_401", 0},
		{mailemu.FaultTeapot, Permanent, "http_418", 0},
		{mailemu.FaultGone410, Gone, "http_410", 0},
		{mailemu.FaultRedirect, Permanent, "http_302", 0},
	} {
		receiver, elsewhere := newReceiver(t, currentSecret), newReceiver(t, currentSecret)
		receiver.RedirectTo(elsewhere.URL())
		if test.fault != "" {
			receiver.Inject(test.fault, 1)
		}
		got := newLocalWebhook(t).Send(t.Context(), testEvent(receiver.URL()))
		wantOutcome(t, string(test.fault), got, test.verdict, test.reason)
		if got.RetryAfter != test.after {
			t.Errorf("%s: again after %s, want %s", test.fault, got.RetryAfter, test.after)
		}
		if n := len(receiver.Deliveries()); n != 1 {
			t.Errorf("%s: %d requests, want 1", test.fault, n)
		}
		if len(elsewhere.Deliveries()) != 0 {
			t.Errorf("%s: a redirect was followed", test.fault)
		}
	}
}

// A body that does not end is left after maxAnswer, long before the time limit.
func TestWebhookDoesNotReadForEver(t *testing.T) {
	receiver := newReceiver(t, currentSecret)
	receiver.Inject(mailemu.FaultEndless, 1)
	ctx, cancel := context.WithTimeout(t.Context(), webhookTimeout)
	defer cancel()
	wantOutcome(t, "endless", newLocalWebhook(t).Send(ctx, testEvent(receiver.URL())), Sent, "http_200")
	if ctx.Err() != nil {
		t.Error("the body was read until the time limit")
	}
}

// The statuses that the receiver does not give.
func TestWebhookAnswers(t *testing.T) {
	for status, want := range map[int]Verdict{
		201: Sent, 204: Sent, 299: Sent, 300: Permanent, 301: Permanent, 304: Permanent, 307: Permanent, 308: Permanent,
		400: Permanent, 401: Permanent, 403: Permanent, 404: Permanent, 405: Permanent, 413: Permanent, 422: Permanent, 451: Permanent,
		408: Temporary, 409: Temporary, 425: Temporary, 429: Temporary, 410: Gone,
		500: Temporary, 501: Temporary, 503: Temporary, 599: Temporary, 502: Unknown, 504: Unknown, 600: Permanent,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(status)
			if status != http.StatusNoContent && status != http.StatusNotModified {
				fmt.Fprintf(w, "<pre>Cannot\r\nPOST %s</pre>", r.RequestURI)
			}
		}))
		got := newLocalWebhook(t).Send(t.Context(), testEvent(server.URL+"/hooks/T0hidden0T?token=hid%2Fden%20t"))
		server.Close()
		wantOutcome(t, fmt.Sprint(status), got, want, fmt.Sprintf("http_%d", status))
		if wait := got.RetryAfter; (wait == 2*time.Minute) != (want == Temporary || want == Unknown) {
			t.Errorf("%d: again after %s", status, wait)
		}
		// What it says is kept for a person, and not the secret in the address.
		said := "<pre>Cannot POST /hooks/…?token=…</pre>"
		if want == Sent || status == http.StatusNotModified {
			said = ""
		}
		if got.Answer != said {
			t.Errorf("%d: the answer is kept as %q, want %q", status, got.Answer, said)
		}
	}
}

// What failed before a connection was not sent; what is given up after it may
// have been. A receiver that shows a wrong certificate is not spoken to.
func TestWebhookNotReached(t *testing.T) {
	receiver := newReceiver(t, currentSecret)
	sender := newLocalWebhook(t)
	receiver.Inject(mailemu.FaultHang, 0)
	wantOutcome(t, "cancelled", sender.Send(cancelledOnceHeld(t, receiver.Held), testEvent(receiver.URL())), Unknown, "no_answer")
	sender.cfg.Timeout = 50 * time.Millisecond
	wantOutcome(t, "time limit", sender.Send(t.Context(), testEvent(receiver.URL())), Unknown, "no_answer")
	receiver.Stop()
	wantOutcome(t, "down", sender.Send(t.Context(), testEvent(receiver.URL())), Temporary, "not_connected")

	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	wantOutcome(t, "certificate", newLocalWebhook(t).Send(t.Context(), testEvent(server.URL)), Temporary, "certificate_refused")
}

// A repetition has the same id and the same body, and its own time and
// signature: the receiver knows it again and can still refuse old requests.
func TestWebhookRepeatsTheSameBytes(t *testing.T) {
	receiver := newReceiver(t, currentSecret)
	sender := newLocalWebhook(t)
	at := time.Now().Add(-time.Minute)
	sender.cfg.Now = func() time.Time { return at }
	event := testEvent(receiver.URL())
	sender.Send(t.Context(), event)
	at = at.Add(time.Minute)
	sender.Send(t.Context(), event)
	d := receiver.Deliveries()
	if len(d) != 2 || !d[0].Verified || !d[1].Verified || d[0].ID != d[1].ID || d[0].ID != WebhookID(testDedupeKey) {
		t.Fatalf("%+v, want two verified requests of one id", d)
	}
	if !bytes.Equal(d[0].Body, event.Body) || !bytes.Equal(d[1].Body, event.Body) {
		t.Errorf("bodies %q and %q, want %q", d[0].Body, d[1].Body, event.Body)
	}
	first, second := d[0].Header.Get("webhook-timestamp"), d[1].Header.Get("webhook-timestamp")
	if second != fmt.Sprint(at.Unix()) || first == second {
		t.Errorf("times %s and %s, want each try's own", first, second)
	}
	if got := d[0].Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %s", got)
	}
}

// While a secret is replaced, receivers that know either one verify.
func TestWebhookSignsWithTwoSecrets(t *testing.T) {
	sender := newWebhook(t, WebhookConfig{Secrets: []string{currentSecret, previousSecret}, AllowHTTP: true, AllowNetworks: loopback})
	for _, secret := range []string{currentSecret, previousSecret} {
		receiver := newReceiver(t, secret)
		wantOutcome(t, "rotation", sender.Send(t.Context(), testEvent(receiver.URL())), Sent, "http_200")
		if d := receiver.Deliveries(); len(d) != 1 || !d[0].Verified {
			t.Errorf("%+v, want one verified request", d)
		}
	}
	receiver := newReceiver(t, "whsec_"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 24)))
	sender.Send(t.Context(), testEvent(receiver.URL()))
	if receiver.Deliveries()[0].Verified {
		t.Error("a third secret verifies: the receiver verifies anything")
	}
}

// The vector that the reference implementations share.
func TestWebhookKnownVector(t *testing.T) {
	signers, err := signersOf([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	sender := &Webhook{signers: signers, cfg: WebhookConfig{Now: func() time.Time { return time.Unix(1614265330, 0) }}}
	m := Message{Destination: "https://receiver.example/", Body: []byte(`{"test": 2432232314}`)}
	got, err := sender.signatures("msg_p5jXN8AQM9LWM0D4loKWxJek", sender.cfg.Now(), m.Body)
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", got)
	verifier, err := standardwebhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.VerifyIgnoringTimestamp(m.Body, header); err != nil {
		t.Error(err)
	}
}

// Addresses that are not public are not dialled, in whatever clothes they come.
func TestOnlyPublicAddresses(t *testing.T) {
	for _, refused := range []string{
		"127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1",
	} {
		if mayDial(netip.MustParseAddr(refused), nil) {
			t.Errorf("%s may be dialled", refused)
		}
	}
	for _, public := range []string{"1.1.1.1", "172.32.0.1", "100.128.0.1", "::ffff:1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"} {
		if !mayDial(netip.MustParseAddr(public), nil) {
			t.Errorf("%s may not be dialled", public)
		}
	}
	allowed := prefixes("10.0.0.0/8")
	for ip, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "11.1.2.3": true, "192.168.1.1": false, "169.254.169.254": false} {
		if mayDial(netip.MustParseAddr(ip), allowed) != want {
			t.Errorf("with 10.0.0.0/8 allowed, %s: want %t", ip, want)
		}
	}
}

// The guard looks at what is dialled: names that resolve to this machine, and
// ways to write its address that look like none, do not get past it. A proxy would
// resolve names behind it.
func TestWebhookReachesNothingInside(t *testing.T) {
	receiver := newReceiver(t, currentSecret)
	_, port, _ := strings.Cut(strings.TrimPrefix(receiver.URL(), "http://"), ":")
	sender := newWebhook(t, WebhookConfig{AllowHTTP: true})
	if transport, ok := sender.client.Transport.(*http.Transport); !ok || transport.Proxy != nil {
		t.Error("webhooks go by way of a proxy")
	}
	for _, host := range []string{"127.0.0.1", "localhost", "127.0.0.2", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[::1]"} {
		got := sender.Send(t.Context(), testEvent("http://"+host+":"+port+"/"))
		wantOutcome(t, host, got, Temporary, "address_refused")
	}
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1"} {
		if got := sender.Send(t.Context(), testEvent("http://"+host+":"+port+"/")); got.Verdict != Temporary {
			t.Errorf("%s: %+v", host, got)
		}
	}
	// A redirect from an allowed place leads nowhere either.
	inside := newWebhook(t, WebhookConfig{AllowHTTP: true, AllowNetworks: prefixes("127.0.0.1/32")})
	receiver.RedirectTo("http://127.0.0.2:" + port + "/")
	receiver.Inject(mailemu.FaultRedirect, 1)
	wantOutcome(t, "redirect", inside.Send(t.Context(), testEvent(receiver.URL())), Permanent, "http_302")
	if n := len(receiver.Deliveries()); n != 1 {
		t.Errorf("%d requests came, want the one to the allowed address", n)
	}
}

// Endpoints that no try could make good are not tried, and the complaint does
// not repeat the URL.
func TestWebhookEndpoints(t *testing.T) {
	strict := newWebhook(t, WebhookConfig{})
	for endpoint, reason := range map[string]string{
		"":                                "endpoint_malformed",
		"hidden":                          "endpoint_malformed",
		"https://":                        "endpoint_malformed",
		"https://u:hidden@h.example/":     "endpoint_malformed",
		"https:hidden":                    "endpoint_malformed",
		"https://h.example/#hidden":       "endpoint_malformed",
		"https://h.example/\nhidden":      "endpoint_malformed",
		"https://h%FFx.example/hidden":    "endpoint_host",
		"https://h%C3%A4.example/hidden":  "endpoint_host",
		"https://hä.example/hidden":       "endpoint_host",
		"https://h_x.example/hidden":      "endpoint_host",
		"https://h..example/hidden":       "endpoint_host",
		"https://.example/hidden":         "endpoint_host",
		"https://-h.example/hidden":       "endpoint_host",
		"https://h-.example/hidden":       "endpoint_host",
		"https://[fe80::1%25eth0]/hidden": "endpoint_host",
		"https://" + strings.Repeat("h", 64) + ".example/hidden":         "endpoint_host",
		"https://" + strings.Repeat("h23456789.", 26) + "example/hidden": "endpoint_host",
		"http://h.example/hidden":                                        "endpoint_not_https",
		"file://h.example/hidden":                                        "endpoint_not_https",
	} {
		wantOutcome(t, endpoint, strict.Send(t.Context(), testEvent(endpoint)), Permanent, reason)
		var config *ConfigError
		if err := strict.CheckEndpoint(endpoint); !errors.As(err, &config) || config.Setting != "WEBHOOK_URL" || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, inside := range []string{"https://127.0.0.1/hidden", "https://[::1]:8443/hidden", "https://169.254.169.254/hidden", "https://10.1.2.3"} {
		if err := strict.CheckEndpoint(inside); err == nil || !strings.Contains(err.Error(), "BILLING_WEBHOOK_ALLOW") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", inside, err)
		}
	}
	if err := newLocalWebhook(t).CheckEndpoint("http://127.0.0.1/"); err != nil {
		t.Error(err)
	}
	for _, fine := range []string{"https://h.example/hooks?x=1", "https://xn--h-0fa.example/", "https://h-1.H.example.:8443/", "https://1.1.1.1/", "https://[2606:4700::1111]:8443/"} {
		if err := strict.CheckEndpoint(fine); err != nil {
			t.Error(fine, err)
		}
	}
}

// Secrets that would sign badly are refused, and not repeated.
func TestNewWebhookRefuses(t *testing.T) {
	for name, secrets := range map[string][]string{
		"none":          {},
		"three":         {currentSecret, currentSecret, currentSecret},
		"no prefix":     {strings.TrimPrefix(currentSecret, "whsec_")},
		"too short":     {"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))},
		"too long":      {"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))},
		"not base64":    {"whsec_" + strings.Repeat("hidden-_", 5)},
		"one of two":    {currentSecret, "hidden"},
		"a line break":  {currentSecret + "\n "},
		"another's key": {"sk_live_hidden"},
	} {
		sender, err := NewWebhook(WebhookConfig{Secrets: secrets})
		var config *ConfigError
		if sender != nil || !errors.As(err, &config) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")) {
				t.Errorf("%s: the error repeats the secret", name)
			}
		}
	}
}

// Retry-After is believed in both forms, within bounds.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-7": 0, "soon": 0, "99999999": MaxRetryAfter, "99999999999999999999": 0,
		"Sun, 01 Nov 2026 06:02:00 GMT": 2 * time.Minute, "Sun, 01 Nov 2026 05:00:00 GMT": 0, "Tue, 01 Dec 2026 06:00:00 GMT": MaxRetryAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
