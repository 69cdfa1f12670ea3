package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/resend/resend-go/v3"
)

// ResendBase is where Resend listens.
const ResendBase = "https://api.resend.com/"

// maxResendKey is the longest idempotency key that Resend takes.
const maxResendKey = 256

// ResendConfig says whose mails they are.
type ResendConfig struct {
	APIKey string
	// Base is an address to send to instead of ResendBase; with plain HTTP only
	// on the loopback.
	Base string
	// Timeout is for a whole try; default 30 s.
	Timeout time.Duration
}

// Resend sends mails over the API of resend.com.
type Resend struct {
	client  *resend.Client
	key     string
	timeout time.Duration
}

// NewResend makes a sender, or a *ConfigError that does not repeat the key.
func NewResend(cfg ResendConfig) (*Resend, error) {
	if !strings.HasPrefix(cfg.APIKey, "re_") || strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &ConfigError{"RESEND_API_KEY", "must begin with re_ and have no blanks"}
	}
	if cfg.Base == "" {
		cfg.Base = ResendBase
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = emailTimeout
	}
	base, err := url.Parse(strings.TrimSuffix(cfg.Base, "/") + "/")
	if err != nil || base.Host == "" || base.User != nil || base.Scheme != "https" && (base.Scheme != "http" || !isLoopback(base.Hostname())) {
		return nil, &ConfigError{"RESEND_BASE", "must be like " + ResendBase}
	}
	transport := newTransport(&net.Dialer{})
	transport.Proxy = http.ProxyFromEnvironment
	client := resend.NewCustomClient(&http.Client{Transport: resendTransport{transport}, CheckRedirect: notFollowed}, cfg.APIKey)
	client.BaseURL = base // resend-go has one from the environment
	return &Resend{client: client, key: cfg.APIKey, timeout: cfg.Timeout}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Send posts a mail under its idempotency key: Resend sends one mail per key
// for ResendKeyLife, and answers to a repetition what it answered first.
func (r *Resend) Send(ctx context.Context, m Message) Outcome {
	if reason := badEmail(m); reason != "" {
		return Outcome{Verdict: Permanent, Reason: reason}
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	ctx, got := connected(ctx)
	answer := new(resendAnswer)
	// What is sent is part of the key's meaning. A new field here, or a new
	// resend-go, makes Resend refuse the keys that are under way.
	res, err := r.client.Emails.SendWithOptions(context.WithValue(ctx, resendAnswerKey{}, answer), &resend.SendEmailRequest{
		From: m.Email.From, To: []string{m.Email.To}, ReplyTo: m.Email.ReplyTo,
		Subject: m.Email.Subject, Text: m.Email.Text, Html: m.Email.HTML,
	}, &resend.SendEmailOptions{IdempotencyKey: resendKey(m.DedupeKey)})
	switch {
	case certificateRefused(answer.err):
		return Outcome{Verdict: Stop, Reason: "certificate_refused"}
	case answer.status == 0 && !got.Load():
		return Outcome{Verdict: Temporary, Reason: "not_connected"}
	case answer.status == 0:
		return Outcome{Verdict: Unknown, Reason: "no_answer"}
	case answer.status < 200 || answer.status > 299:
		o := answer.refusal()
		o.Answer = beginning(answer.text, []string{r.key})
		return o
	case err != nil || res.Id == "":
		return Outcome{Verdict: Unknown, Reason: "answer_unreadable"}
	}
	return Outcome{Verdict: Sent, Reason: "http_" + strconv.Itoa(answer.status), ProviderID: res.Id}
}

// resendKey is the dedupe key itself, so that an operator finds it at Resend,
// unless it is too long or no text for a header.
func resendKey(dedupeKey string) string {
	if len(dedupeKey) > maxResendKey || strings.ContainsFunc(dedupeKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return digest(dedupeKey)
	}
	return dedupeKey
}

type resendAnswerKey struct{}

// resendAnswer is what resend-go does not keep: it makes a text of every error.
type resendAnswer struct {
	status  int // zero without an answer
	err     error
	name    string // Resend's name of the error
	message string // only compared
	text    string // as it came
	after   time.Duration
}

// resendTransport sends each request once and keeps the answer.
type resendTransport struct{ next http.RoundTripper }

var errTwice = errors.New("a request was to be sent twice")

// RoundTrip gives the body a length, and net/http no way to read it again.
func (t resendTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, ok := req.Context().Value(resendAnswerKey{}).(*resendAnswer)
	if !ok || answer.status != 0 || answer.err != nil {
		return nil, errTwice
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.Body, out.GetBody, out.ContentLength = io.NopCloser(bytes.NewReader(body)), nil, int64(len(body))
	res, err := t.next.RoundTrip(out)
	if err != nil {
		answer.err = err
		return nil, err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	answer.keep(res, content)
	if err != nil {
		return nil, err // of a success: its id is not known
	}
	res.Body = io.NopCloser(bytes.NewReader(content))
	return res, nil
}

func (a *resendAnswer) keep(res *http.Response, content []byte) {
	a.status, a.after = res.StatusCode, retryAfter(res.Header, time.Now())
	a.text = string(content[:min(len(content), readAnswer)])
	var said struct{ Name, Message string }
	if json.Unmarshal(content, &said) == nil {
		a.name, a.message = said.Name, said.Message
	}
}

// refusal is the table of https://resend.com/docs/api-reference/errors. What it
// does not know may have been sent.
func (a *resendAnswer) refusal() Outcome {
	o := Outcome{Verdict: Unknown, Reason: "http_" + strconv.Itoa(a.status), RetryAfter: a.after}
	switch a.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnavailableForLegalReasons:
		o.Verdict = Permanent
		if a.message == "API key is invalid" { // a 400 too, and no message is to blame for it
			o.Verdict = Stop
		}
	case http.StatusConflict:
		o.Verdict, o.Reason = Unknown, "key_in_flight"
		if a.name == "invalid_idempotent_request" {
			// Another mail went under this key. Ours never will, and whether the
			// other was ours in an older form is for a person to see.
			o.Verdict, o.Reason = Permanent, "key_used_otherwise"
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired:
		o.Verdict = Stop
	case http.StatusTooManyRequests:
		o.Verdict, o.TooFast = Temporary, true
		if strings.HasSuffix(a.name, "_quota_exceeded") {
			o.Reason, o.TooFast = "quota_exceeded", false // of a day or a month: no pause helps
		}
	default:
		if a.status >= 300 && a.status < 400 {
			o.Verdict, o.Reason = Stop, "redirect"
		}
	}
	return o
}
