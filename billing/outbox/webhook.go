package outbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	// webhookTimeout is for a whole try, as Standard Webhooks advises (15 to 30 s).
	webhookTimeout = 15 * time.Second
	// maxSecrets are one, and a second one while it is replaced.
	maxSecrets = 2
)

// WebhookConfig says how webhooks are signed and where they may go.
type WebhookConfig struct {
	// Secrets sign every request, the current one first: "whsec_" and the base64
	// of 24 to 64 bytes. With two of them a receiver may know either.
	Secrets []string
	// AllowNetworks are networks that are not public and may be sent to all the
	// same, such as the operator's own.
	AllowNetworks []netip.Prefix
	// AllowHTTP allows endpoints without TLS.
	AllowHTTP bool
	// Now is the clock of webhook-timestamp; default time.Now.
	Now func() time.Time
	// Timeout is for a whole try; default 15 s.
	Timeout time.Duration
}

// Webhook sends to endpoints in the manner of Standard Webhooks
// (https://www.standardwebhooks.com): one id per message, a time and signatures
// per try.
type Webhook struct {
	cfg     WebhookConfig
	signers []*standardwebhooks.Webhook
	client  *http.Client
}

// NewWebhook makes a sender, or a *ConfigError that does not repeat a secret.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = webhookTimeout
	}
	signers, err := signersOf(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	// No proxy: it would resolve the name by itself, behind the guard.
	transport := newTransport(&net.Dialer{Control: guard(cfg.AllowNetworks)})
	return &Webhook{cfg: cfg, signers: signers, client: &http.Client{Transport: transport, CheckRedirect: notFollowed}}, nil
}

func signersOf(secrets []string) ([]*standardwebhooks.Webhook, error) {
	wrong := func(problem string) error { return &ConfigError{"WEBHOOK_SECRET", problem} }
	if len(secrets) == 0 || len(secrets) > maxSecrets {
		return nil, wrong("must hold one secret, or two while one is replaced")
	}
	var signers []*standardwebhooks.Webhook
	for _, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, "whsec_")
		if length := base64Length(encoded); !ok || length < 24 || length > 64 {
			return nil, wrong(`must be "whsec_" and the base64 of 24 to 64 bytes`)
		}
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return nil, wrong("is not valid base64 after whsec_")
		}
		signers = append(signers, signer)
	}
	return signers, nil
}

// base64Length is how many bytes a padded base64 text stands for.
func base64Length(text string) int {
	return len(text)/4*3 - strings.Count(text, "=")
}

// WebhookID is the webhook-id of a message: the same in every try.
func WebhookID(dedupeKey string) string { return "msg_" + digest(dedupeKey) }

// Send posts the body as it is. A receiver that says that it is busy or broken is
// tried again; whatever else it says but yes is Permanent, and a person sees it.
func (w *Webhook) Send(ctx context.Context, m Message) Outcome {
	if reason := badEndpoint(m.Destination, w.cfg.AllowHTTP); reason != "" {
		return Outcome{Verdict: Permanent, Reason: reason}
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	ctx, got := connected(ctx)
	req, err := w.request(ctx, m)
	if err != nil {
		return Outcome{Verdict: Permanent, Reason: "request_not_built"}
	}
	res, err := w.client.Do(req)
	switch {
	case errors.Is(err, errAddressRefused):
		return Outcome{Verdict: Temporary, Reason: "address_refused"}
	case certificateRefused(err):
		return Outcome{Verdict: Temporary, Reason: "certificate_refused"}
	case err != nil && !got.Load():
		return Outcome{Verdict: Temporary, Reason: "not_connected"}
	case err != nil:
		return Outcome{Verdict: Unknown, Reason: "no_answer"}
	}
	defer res.Body.Close()
	// The status is the answer, also where the rest does not come: that is read for people,
	// and for the receiver, who may be writing it still.
	said, _ := io.ReadAll(io.LimitReader(res.Body, readAnswer))
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer-readAnswer))
	o := w.outcome(res)
	if o.Verdict != Sent {
		o.Answer = beginning(string(said), secretParts(m.Destination))
	}
	return o
}

func (w *Webhook) request(ctx context.Context, m Message) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Destination, bytes.NewReader(m.Body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // net/http cannot send it twice
	id, at := WebhookID(m.DedupeKey), w.cfg.Now()
	signatures, err := w.signatures(id, at, m.Body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "chargeonce-billing")
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signatures)
	return req, nil
}

// signatures are one per secret, joined by a blank.
func (w *Webhook) signatures(id string, at time.Time, body []byte) (string, error) {
	var all []string
	for _, signer := range w.signers {
		signature, err := signer.Sign(id, at, body)
		if err != nil {
			return "", err
		}
		all = append(all, signature)
	}
	return strings.Join(all, " "), nil
}

// busy are the refusals that are about the moment, and not about the message.
var busy = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

// elsewhere are the refusals, beside redirects, that a proxy gives for a receiver that is
// replaced or set up wrongly.
var elsewhere = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed}

func (w *Webhook) outcome(res *http.Response) Outcome {
	o := Outcome{Verdict: Permanent, Reason: "http_" + strconv.Itoa(res.StatusCode)}
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		o.Verdict = Sent
		return o
	case code == http.StatusGone:
		o.Verdict = Gone
		return o
	case code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		o.Verdict = Unknown // a proxy does not know what became of it
	case code >= 500 && code < 600, slices.Contains(busy, code):
		o.Verdict, o.TooFast = Temporary, code == http.StatusTooManyRequests
	default:
		// A redirect leads anywhere; the rest says that these bytes are not wanted.
		o.TurnedAway = code >= 300 && code < 400 || slices.Contains(elsewhere, code)
		return o
	}
	o.RetryAfter = retryAfter(res.Header, w.cfg.Now())
	return o
}
