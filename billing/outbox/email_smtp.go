package outbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
	smtpclient "github.com/wneessen/go-mail/smtp"
)

// SMTPConfig says which server takes the mails.
type SMTPConfig struct {
	// URL is smtp://user:password@host:587, which must offer STARTTLS unless the
	// host is the loopback or ?tls=none is said, or smtps://user:password@host:465.
	// User and password may be missing.
	URL string
	// RootCAs replace those of the machine.
	RootCAs *x509.CertPool
	// Timeout is for a whole try; default 30 s.
	Timeout time.Duration
}

// SMTP sends mails to a mail server. The server knows no idempotency keys: what
// is Unknown can only be told apart by the Message-ID, which is the same in
// every try.
type SMTP struct {
	host, user, password string
	port                 int
	direct               bool // TLS from the first byte
	policy               mail.TLSPolicy
	tls                  *tls.Config
	timeout              time.Duration
}

// NewSMTP makes a sender, or a *ConfigError that does not repeat the password.
func NewSMTP(cfg SMTPConfig) (*SMTP, error) {
	wrong := func(problem string) error { return &ConfigError{"SMTP_URL", problem} }
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return nil, wrong("must be like smtp://user:password@host:587 or smtps://user:password@host:465")
	}
	s := &SMTP{host: u.Hostname(), port: 587, direct: u.Scheme == "smtps", policy: mail.TLSMandatory, timeout: cfg.Timeout}
	if s.direct {
		s.port = 465
	}
	if u.Port() != "" {
		if s.port, err = strconv.Atoi(u.Port()); err != nil || s.port < 1 || s.port > 65535 {
			return nil, wrong("has a port that is none")
		}
	}
	if s.timeout == 0 {
		s.timeout = emailTimeout
	}
	s.user = u.User.Username()
	s.password, _ = u.User.Password()
	if (s.user == "") != (s.password == "") {
		return nil, wrong("must hold both a user and a password, or neither")
	}
	if isLoopback(s.host) {
		s.policy = mail.TLSOpportunistic
	}
	switch query := u.Query(); {
	case len(query) == 0:
	case len(query) == 1 && query.Get("tls") == "none" && !s.direct:
		s.policy = mail.NoTLS
		if s.user != "" && !isLoopback(s.host) {
			return nil, wrong("would send the password in the clear: leave out tls=none")
		}
	default:
		return nil, wrong("may hold ?tls=none after smtp://, and nothing else")
	}
	s.tls = &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs}
	return s, nil
}

// Check logs in as Send does, and hands nothing over: Sent if that is possible.
func (s *SMTP) Check(ctx context.Context) Outcome {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, session, failure := s.connect(ctx)
	if session == nil {
		return failure
	}
	_ = session.Quit() // that it was reached is known
	return Outcome{Verdict: Sent, Reason: "smtp_221"}
}

// connect comes as far as a mail can be spoken of. The connection ends with ctx.
func (s *SMTP) connect(ctx context.Context) (*mail.Client, *smtpclient.Client, Outcome) {
	client, err := mail.NewClient(s.host, s.options(func(conn net.Conn) {
		// The connection ends with the try, whichever step that is at. It is closed
		// and not ended with QUIT: within DATA go-mail would put the final dot before
		// QUIT, and the server take half a mail for a whole one.
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	})...)
	if err != nil {
		return nil, nil, Outcome{Verdict: Stop, Reason: "not_configured"}
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return nil, nil, greeted(err)
	}
	return client, session, Outcome{}
}

// Send hands one mail over on a connection of its own.
func (s *SMTP) Send(ctx context.Context, m Message) Outcome {
	if reason := badEmail(m); reason != "" {
		return Outcome{Verdict: Permanent, Reason: reason}
	}
	msg, err := compose(m)
	if err != nil {
		return Outcome{Verdict: Permanent, Reason: "not_composed"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	client, session, failure := s.connect(ctx)
	if session == nil {
		return failure
	}
	if err := client.SendWithSMTPClient(session, msg); err != nil {
		o := refused(err)
		o.Answer = beginning(serverSaid(err), []string{s.password})
		return o
	}
	_ = session.Quit() // the mail is delivered by now
	return Outcome{Verdict: Sent, Reason: "smtp_250"}
}

// options give a client for one mail: go-mail's is not safe for several at once.
func (s *SMTP) options(dialed func(net.Conn)) []mail.Option {
	options := []mail.Option{
		mail.WithPort(s.port), mail.WithTimeout(s.timeout), mail.WithTLSPolicy(s.policy), mail.WithTLSConfig(s.tls),
		// After the mail is taken nothing is asked that could fail.
		mail.WithoutNoop(), mail.WithoutRset(),
		mail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.dial(ctx, network, address)
			if err == nil {
				dialed(conn)
			}
			return conn, err
		}),
	}
	if s.direct {
		options = append(options, mail.WithSSL())
	}
	if s.user != "" {
		options = append(options, mail.WithUsername(s.user), mail.WithPassword(s.password), mail.WithOpportunisticSMTPAuth(
			mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthSCRAMSHA1, mail.SMTPAuthPlain, mail.SMTPAuthLogin, mail.SMTPAuthCramMD5))
	}
	return options
}

func (s *SMTP) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if s.direct {
		return (&tls.Dialer{NetDialer: dialer, Config: s.tls}).DialContext(ctx, network, address)
	}
	return dialer.DialContext(ctx, network, address)
}

// compose makes the same bytes of the same message every time: go-mail would
// take the hour, a random Message-ID and random boundaries.
func compose(m Message) (*mail.Msg, error) {
	e, name := m.Email, digest(m.DedupeKey)
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithBoundary("part_"+name))
	for _, err := range []error{msg.From(e.From), msg.To(e.To)} {
		if err != nil {
			return nil, err
		}
	}
	if e.ReplyTo != "" {
		if err := msg.ReplyTo(e.ReplyTo); err != nil {
			return nil, err
		}
	}
	msg.SetMessageIDWithValue(name + "@" + domain(e.From))
	msg.SetDateWithValue(m.Created.UTC())
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // no holiday notices, RFC 3834
	msg.Subject(e.Subject)
	switch {
	case e.HTML == "":
		msg.SetBodyString(mail.TypeTextPlain, e.Text)
	case e.Text == "":
		msg.SetBodyString(mail.TypeTextHTML, e.HTML)
	default:
		msg.SetBodyString(mail.TypeTextPlain, e.Text)
		msg.AddAlternativeString(mail.TypeTextHTML, e.HTML)
	}
	return msg, nil
}

// greeted is for what fails before the mail is spoken of: it says nothing about
// the mail.
func greeted(err error) Outcome {
	var reply *textproto.Error
	var network net.Error
	switch {
	case errors.As(err, &reply) && reply.Code >= 500:
		return Outcome{Verdict: Stop, Reason: "login_" + strconv.Itoa(reply.Code)}
	case errors.As(err, &reply):
		return Outcome{Verdict: Temporary, Reason: "login_" + strconv.Itoa(reply.Code)}
	case certificateRefused(err):
		return Outcome{Verdict: Stop, Reason: "certificate_refused"}
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled):
		return Outcome{Verdict: Temporary, Reason: "not_connected"}
	case errors.Is(err, smtpclient.ErrUnencrypted):
		return Outcome{Verdict: Stop, Reason: "not_encrypted"}
	}
	// No STARTTLS, no way to log in that both know, no TLS where it should be.
	return Outcome{Verdict: Stop, Reason: "server_lacks_tls_or_login"}
}

// serverSaid is the answer in an error of go-mail's, which stands between its reason and
// the recipient.
func serverSaid(err error) string {
	var failure *mail.SendError
	if !errors.As(err, &failure) || failure.ErrorCode() == 0 {
		return ""
	}
	_, said, _ := strings.Cut(failure.Error(), ": ")
	said, _, _ = strings.Cut(said, ", affected ")
	return said
}

// refused is for what fails once the server was told about the mail. Only the
// final dot makes it a mail: before it nothing is delivered, after it without an
// answer nobody knows.
func refused(err error) Outcome {
	var failure *mail.SendError
	if !errors.As(err, &failure) {
		return Outcome{Verdict: Unknown, Reason: "no_answer"}
	}
	code, atEnd := failure.ErrorCode(), failure.Reason == mail.ErrSMTPDataClose
	o := Outcome{Verdict: Temporary, Reason: "smtp_" + strconv.Itoa(code)}
	switch {
	case code == 0 && atEnd:
		return Outcome{Verdict: Unknown, Reason: "no_answer"}
	case code == 0:
		return Outcome{Verdict: Temporary, Reason: "connection_lost"}
	case code == 530, code == 534, code == 535, code == 538:
		o.Verdict = Stop // to log in is needed, or not enough
	case code >= 500 && failure.Reason == mail.ErrSMTPMailFrom && code != 552:
		o.Verdict = Stop // we may not send as this sender
	case code >= 500:
		o.Verdict = Permanent
	}
	return o
}
