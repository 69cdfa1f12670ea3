package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

func newResendPair(t *testing.T) (*mailemu.Resend, *Resend) {
	t.Helper()
	emulator, err := mailemu.StartResend()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emulator.Close)
	sender, err := NewResend(ResendConfig{APIKey: mailemu.ResendKey, Base: emulator.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return emulator, sender
}

// What Resend answers, or does not, decides between sent, again, never, nobody
// knows, and stop; each try is one request, and the number of mails is what the
// verdict allows.
func TestResendSaysWhatIsKnown(t *testing.T) {
	for _, test := range []struct {
		fault   mailemu.Fault
		verdict Verdict
		reason  string
		mails   int
		after   time.Duration
	}{
		{"", Sent, "http_200", 1, 0},
		{mailemu.FaultLoseRequest, Unknown, "no_answer", 0, 0},
		{mailemu.FaultLoseAnswer, Unknown, "no_answer", 1, 0},
		{mailemu.FaultGarbage, Unknown, "answer_unreadable", 1, 0},
		{mailemu.FaultCut, Unknown, "answer_unreadable", 1, 0},
		{mailemu.FaultUndone500, Unknown, "http_500", 0, 0},
		{mailemu.FaultDone500, Unknown, "http_500", 1, 0},
		{mailemu.FaultRate429, Temporary, "http_429", 0, 7 * time.Second},
		{mailemu.FaultQuota429, Temporary, "quota_exceeded", 0, 0},
		{mailemu.FaultInvalid422, Permanent, "http_422", 0, 0},
		{mailemu.FaultInFlight409, Unknown, "key_in_flight", 0, 0},
		{mailemu.FaultRefused401, Stop, "http_401", 0, 0},
	} {
		emulator, sender := newResendPair(t)
		if test.fault != "" {
			emulator.Inject(test.fault, 1)
		}
		got := sender.Send(t.Context(), testMail())
		wantOutcome(t, string(test.fault), got, test.verdict, test.reason)
		if got.RetryAfter != test.after || (got.ProviderID != "") != (test.verdict == Sent) {
			t.Errorf("%s: %+v", test.fault, got)
		}
		if calls, mails := len(emulator.Calls()), len(emulator.Mails()); calls != 1 || mails != test.mails {
			t.Errorf("%s: %d requests and %d mails, want 1 and %d", test.fault, calls, mails, test.mails)
		}
		// Whatever happened, the next try sends one mail in all.
		if test.verdict != Permanent && test.verdict != Stop {
			wantOutcome(t, string(test.fault)+", again", sender.Send(t.Context(), testMail()), Sent, "http_200")
			if n := emulator.PerKey()[testDedupeKey]; n != 1 {
				t.Errorf("%s: %d mails after the second try, want 1", test.fault, n)
			}
		}
	}
}

// The table of answers that the emulator does not give.
func TestResendAnswers(t *testing.T) {
	for _, test := range []struct {
		status  int
		body    string
		verdict Verdict
		reason  string
	}{
		{201, `{"id":"x"}`, Sent, "http_201"},
		{200, `{}`, Unknown, "answer_unreadable"},
		{204, ``, Unknown, "answer_unreadable"},
		{302, ``, Stop, "redirect"},
		{400, `{"name":"validation_error","message":"The to field"}`, Permanent, "http_400"},
		{400, `{"name":"validation_error","message":"API key is invalid"}`, Stop, "http_400"},
		{403, `{"name":"invalid_api_key"}`, Stop, "http_403"},
		{404, ``, Stop, "http_404"},
		{405, ``, Stop, "http_405"},
		{407, ``, Stop, "http_407"},
		{408, ``, Unknown, "http_408"},
		{409, `{"name":"invalid_idempotent_request"}`, Permanent, "key_used_otherwise"},
		{409, `<html>`, Unknown, "key_in_flight"},
		{413, ``, Permanent, "http_413"},
		{418, ``, Unknown, "http_418"},
		{451, `{"name":"security_error"}`, Permanent, "http_451"},
		{429, `{"name":"monthly_quota_exceeded"}`, Temporary, "quota_exceeded"},
		{502, `<html>`, Unknown, "http_502"},
		{503, ``, Unknown, "http_503"},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.status)
			fmt.Fprint(w, test.body)
		}))
		sender, err := NewResend(ResendConfig{APIKey: mailemu.ResendKey, Base: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, fmt.Sprint(test.status, test.body), sender.Send(t.Context(), testMail()), test.verdict, test.reason)
		server.Close()
		if requests != 1 {
			t.Errorf("%d: %d requests, want 1", test.status, requests)
		}
	}
}

// Nothing that fails before there is a connection can have sent a mail; a
// certificate that does not fit stops the sender.
func TestResendNotReached(t *testing.T) {
	emulator, sender := newResendPair(t)
	emulator.Stop()
	wantOutcome(t, "refused", sender.Send(t.Context(), testMail()), Temporary, "not_connected")

	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	sender, err := NewResend(ResendConfig{APIKey: mailemu.ResendKey, Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "certificate", sender.Send(t.Context(), testMail()), Stop, "certificate_refused")
}

// A try that is given up after the request was sent is unknown, by the caller's
// end as by the time limit.
func TestResendGivenUp(t *testing.T) {
	emulator, sender := newResendPair(t)
	emulator.Inject(mailemu.FaultHang, 0)
	wantOutcome(t, "cancelled", sender.Send(cancelledOnceHeld(t, emulator.Held), testMail()), Unknown, "no_answer")
	sender.timeout = 50 * time.Millisecond
	wantOutcome(t, "time limit", sender.Send(t.Context(), testMail()), Unknown, "no_answer")
}

// Two tries of one message are the same bytes under the same key; after the
// key's life Resend sends a second mail, and other bytes under a key are refused.
func TestResendRepeatsTheSameBytes(t *testing.T) {
	emulator, sender := newResendPair(t)
	first := sender.Send(t.Context(), testMail())
	second := sender.Send(t.Context(), testMail())
	calls := emulator.Calls()
	if !bytes.Equal(calls[0].Body, calls[1].Body) || calls[0].Key != testDedupeKey || calls[1].Key != testDedupeKey {
		t.Errorf("the tries differ: %+v", calls)
	}
	if first.ProviderID == "" || first.ProviderID != second.ProviderID || len(emulator.Mails()) != 1 {
		t.Errorf("%+v, then %+v: %d mails, want one id and one mail", first, second, len(emulator.Mails()))
	}
	other := testMail()
	other.Email.Text += "!"
	wantOutcome(t, "other bytes", sender.Send(t.Context(), other), Permanent, "key_used_otherwise")
	emulator.SetOffset(ResendKeyLife - time.Minute)
	sender.Send(t.Context(), testMail())
	if n := len(emulator.Mails()); n != 1 {
		t.Errorf("%d mails within the life of the key, want 1", n)
	}
	emulator.SetOffset(ResendKeyLife)
	sender.Send(t.Context(), testMail())
	if n := len(emulator.Mails()); n != 2 {
		t.Errorf("%d mails after the life of the key, want 2: the emulator keeps keys too long", n)
	}
}

// Keys that Resend would refuse, or a header could not hold, are replaced by a
// name that is as stable.
func TestResendKeysFit(t *testing.T) {
	for _, key := range []string{strings.Repeat("a", 257), "a b", "a\r\nX-Evil: 1", "ä"} {
		if got := resendKey(key); got != digest(key) {
			t.Errorf("%q becomes %q", key, got)
		}
	}
	if longest := strings.Repeat("a", 256); resendKey(longest) != longest {
		t.Error("a key of 256 characters is not used as it is")
	}
}

// Mails that nobody could send are not tried.
func TestBadMailsAreNotSent(t *testing.T) {
	emulator, sender := newResendPair(t)
	for reason, spoil := range map[string]func(*Message){
		"no_email":      func(m *Message) { m.Email = nil },
		"bad_sender":    func(m *Message) { m.Email.From = "billing" },
		"bad_recipient": func(m *Message) { m.Email.To = "a@b.example, c@d.example" },
		"bad_reply_to":  func(m *Message) { m.Email.ReplyTo = "help\r\nBcc: x@y.example" },
		"empty":         func(m *Message) { m.Email.Text, m.Email.HTML = "", "" },
	} {
		m := testMail()
		spoil(&m)
		wantOutcome(t, reason, sender.Send(t.Context(), m), Permanent, reason)
	}
	if len(emulator.Calls()) != 0 {
		t.Error("a bad mail was sent")
	}
}

// What is wrong with the settings is said without the settings.
func TestNewResendRefuses(t *testing.T) {
	for name, cfg := range map[string]ResendConfig{
		"no key":              {},
		"another's key":       {APIKey: "sk_hidden"},
		"line break":          {APIKey: "re_hidden\n"},
		"HTTP to the world":   {APIKey: "re_hidden", Base: "http://api.example.com"},
		"password in the URL": {APIKey: "re_hidden", Base: "https://u:hidden@api.example.com"},
		"no URL":              {APIKey: "re_hidden", Base: "://hidden"},
	} {
		sender, err := NewResend(cfg)
		var config *ConfigError
		if sender != nil || !errors.As(err, &config) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that takes the connection and closes it may have read the request.
func TestResendConnectionClosed(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() {
		if c, err := socket.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	sender, err := NewResend(ResendConfig{APIKey: mailemu.ResendKey, Base: "http://" + socket.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, "closed", sender.Send(t.Context(), testMail()), Unknown, "no_answer")
}
