package outbox

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

// testTLS is a certificate for 127.0.0.1 and who trusts it.
func testTLS(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return &tls.Config{Certificates: server.TLS.Certificates}, pool
}

func startSMTP(t *testing.T, cfg mailemu.SMTPConfig) *mailemu.SMTP {
	t.Helper()
	server, err := mailemu.StartSMTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

func newSMTP(t *testing.T, cfg SMTPConfig) *SMTP {
	t.Helper()
	sender, err := NewSMTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

var withLogin = mailemu.SMTPConfig{User: "billing", Password: "hidden"}

// The step at which a mail server refuses, or is lost, and its code decide what
// is known.
func TestSMTPSaysWhatIsKnown(t *testing.T) {
	for _, test := range []struct {
		fault   mailemu.Fault
		verdict Verdict
		reason  string
		mails   int
	}{
		{"", Sent, "smtp_250", 1},
		{mailemu.FaultLater450, Temporary, "smtp_450", 0},
		{mailemu.FaultNobody550, Permanent, "smtp_550", 0},
		{mailemu.FaultSender550, Stop, "smtp_550", 0},
		{mailemu.FaultFull452, Temporary, "smtp_452", 0},
		{mailemu.FaultSpam554, Permanent, "smtp_554", 0},
		{mailemu.FaultDropOnMail, Temporary, "connection_lost", 0},
		{mailemu.FaultDropAfterDot, Unknown, "no_answer", 1},
		{mailemu.FaultLogin530, Stop, "smtp_530", 0},
		{mailemu.FaultLogin454, Temporary, "login_454", 0},
		{mailemu.FaultLoginRefused, Stop, "login_535", 0},
	} {
		server := startSMTP(t, withLogin)
		if test.fault != "" {
			server.Inject(test.fault, 1)
		}
		sender := newSMTP(t, SMTPConfig{URL: server.URL()})
		wantOutcome(t, string(test.fault), sender.Send(t.Context(), testMail()), test.verdict, test.reason)
		if n := len(server.Mails()); n != test.mails {
			t.Errorf("%s: %d mails, want %d", test.fault, n, test.mails)
		}
	}
}

// A connection that is lost while the mail is written, before the final dot, has
// delivered nothing. The mail is too big for the buffers of the connection, so
// that the loss is seen while writing.
func TestSMTPLostInData(t *testing.T) {
	server := startSMTP(t, withLogin)
	server.Inject(mailemu.FaultDropInData, 1)
	big := testMail()
	big.Email.Text = strings.Repeat("0123456789012345678901234567890123456789012345678901234567890\r\n", 250_000)
	sender := newSMTP(t, SMTPConfig{URL: server.URL()})
	wantOutcome(t, "lost", sender.Send(t.Context(), big), Temporary, "connection_lost")
	if len(server.Mails()) != 0 {
		t.Error("half a mail was taken for a whole one")
	}
}

// A try that is given up after the final dot is unknown, and ends in time.
func TestSMTPGivenUp(t *testing.T) {
	server := startSMTP(t, withLogin)
	server.Inject(mailemu.FaultHang, 0)
	sender := newSMTP(t, SMTPConfig{URL: server.URL()})
	wantOutcome(t, "cancelled", sender.Send(cancelledOnceHeld(t, server.Held), testMail()), Unknown, "no_answer")
	sender.timeout = 300 * time.Millisecond
	wantOutcome(t, "time limit", sender.Send(t.Context(), testMail()), Unknown, "no_answer")
}

// A server that does not greet holds nobody for longer than the time limit, and
// nothing was sent to it.
func TestSMTPSilentServer(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	sender := newSMTP(t, SMTPConfig{URL: "smtp://" + socket.Addr().String(), Timeout: 50 * time.Millisecond})
	wantOutcome(t, "silent", sender.Send(t.Context(), testMail()), Temporary, "not_connected")
	_ = socket.Close()
	wantOutcome(t, "refused", sender.Send(t.Context(), testMail()), Temporary, "not_connected")
}

// A greeting of the server that is a refusal concerns us and not the mail.
func TestSMTPUnwelcome(t *testing.T) {
	for greeting, want := range map[string]Outcome{
		"554 go away\r\n":          {Verdict: Stop, Reason: "login_554"},
		"421 too many at once\r\n": {Verdict: Temporary, Reason: "login_421"},
	} {
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := socket.Accept(); err == nil {
				_, _ = io.WriteString(c, greeting)
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}()
		sender := newSMTP(t, SMTPConfig{URL: "smtp://" + socket.Addr().String()})
		wantOutcome(t, greeting, sender.Send(t.Context(), testMail()), want.Verdict, want.Reason)
		_ = socket.Close()
	}
}

// Two tries of one message are the same bytes: the receiver's mail program shows
// one mail if the first came through after all.
func TestSMTPRepeatsTheSameBytes(t *testing.T) {
	server := startSMTP(t, withLogin)
	sender := newSMTP(t, SMTPConfig{URL: server.URL()})
	sender.Send(t.Context(), testMail())
	sender.Send(t.Context(), testMail())
	other := testMail()
	other.DedupeKey += "/2"
	sender.Send(t.Context(), other)
	mails := server.Mails()
	if len(mails) != 3 {
		t.Fatalf("%d mails, want 3", len(mails))
	}
	if !bytes.Equal(mails[0].Raw, mails[1].Raw) {
		t.Errorf("the tries differ:\n%s\n%s", mails[0].Raw, mails[1].Raw)
	}
	first, err := mail.ReadMessage(bytes.NewReader(mails[0].Raw))
	if err != nil {
		t.Fatal(err)
	}
	third, err := mail.ReadMessage(bytes.NewReader(mails[2].Raw))
	if err != nil {
		t.Fatal(err)
	}
	if id := first.Header.Get("Message-ID"); id == third.Header.Get("Message-ID") || id != "<"+digest(testDedupeKey)+"@company.example>" {
		t.Errorf("Message-ID %s, and of another message %s", id, third.Header.Get("Message-ID"))
	}
	if date := first.Header.Get("Date"); date != "Sun, 01 Nov 2026 06:00:00 +0000" {
		t.Errorf("Date %s, want when the message was recorded", date)
	}
	if len(first.Header["Bcc"]) != 0 || mails[0].To != "ada@customer.example" || mails[0].From != "billing@company.example" {
		t.Errorf("from %s to %s, Bcc %q", mails[0].From, mails[0].To, first.Header["Bcc"])
	}
}

// Passwords and mails travel in TLS, with a certificate that fits, or not at all
// unless it is to this machine or was asked for.
func TestSMTPEncrypts(t *testing.T) {
	cert, trusted := testTLS(t)
	starttls := startSMTP(t, mailemu.SMTPConfig{User: "billing", Password: "hidden", TLS: cert})
	direct := startSMTP(t, mailemu.SMTPConfig{User: "billing", Password: "hidden", TLS: cert, Direct: true})
	plain := startSMTP(t, withLogin)
	for name, test := range map[string]struct {
		url     string
		roots   *x509.CertPool
		verdict Verdict
		reason  string
	}{
		"STARTTLS":                {starttls.URL(), trusted, Sent, "smtp_250"},
		"TLS from the first byte": {direct.URL(), trusted, Sent, "smtp_250"},
		"STARTTLS, not trusted":   {starttls.URL(), nil, Stop, "certificate_refused"},
		"TLS, not trusted":        {direct.URL(), nil, Stop, "certificate_refused"},
		"TLS to a plain server":   {strings.Replace(plain.URL(), "smtp:", "smtps:", 1), trusted, Stop, "server_lacks_tls_or_login"},
		"plain, said so":          {plain.URL() + "?tls=none", nil, Sent, "smtp_250"},
	} {
		sender := newSMTP(t, SMTPConfig{URL: test.url, RootCAs: test.roots})
		wantOutcome(t, name, sender.Send(t.Context(), testMail()), test.verdict, test.reason)
	}
	// As to a server that is not this machine: STARTTLS is no longer a choice.
	sender := newSMTP(t, SMTPConfig{URL: plain.URL()})
	far := newSMTP(t, SMTPConfig{URL: "smtp://mail.example.com"})
	sender.policy = far.policy
	wantOutcome(t, "no STARTTLS", sender.Send(t.Context(), testMail()), Stop, "server_lacks_tls_or_login")
}

// A server that wants a login and is not given one refuses us, not the mail.
func TestSMTPWithoutLogin(t *testing.T) {
	server := startSMTP(t, withLogin)
	sender := newSMTP(t, SMTPConfig{URL: strings.Replace(server.URL(), "billing:hidden@", "", 1)})
	wantOutcome(t, "no login", sender.Send(t.Context(), testMail()), Stop, "smtp_530")
}

// What is wrong with the settings is said without the settings.
func TestNewSMTPRefuses(t *testing.T) {
	for name, url := range map[string]string{
		"nothing":                   "",
		"another scheme":            "http://u:hidden@h",
		"no host":                   "smtp://u:hidden@",
		"not a URL":                 "smtp://u:hidden@h:port",
		"no such port":              "smtp://u:hidden@h:70000",
		"password without user":     "smtp://:hidden@h",
		"user without password":     "smtp://hidden@h",
		"password in the clear":     "smtp://u:hidden@h?tls=none",
		"smtps without TLS":         "smtps://u:hidden@h?tls=none",
		"a parameter that is none":  "smtp://u:hidden@h?skip_verify=1",
		"a path":                    "smtp://u:hidden@h/inbox",
		"a control character in it": "smtp://u:hidden@h\n",
	} {
		sender, err := NewSMTP(SMTPConfig{URL: url})
		var config *ConfigError
		if sender != nil || !errors.As(err, &config) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
