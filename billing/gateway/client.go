// Package gateway is the only user of Stripe's API in this program. It sends a
// charge exactly once for each permit, reads PaymentIntents back completely or
// not at all, and turns every answer into evidence about a charge.
//
// A Charger sends, a Finder reads and cannot write, a Canceller cancels. All of
// them come from one Client, which knows the key's mode.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v82"
	"golang.org/x/time/rate"
)

const (
	// DefaultRequestLife is the longest that one request may live, its re-reads
	// included. Ten minutes, the margin of every window, is ten times as long.
	DefaultRequestLife = 60 * time.Second
	// DefaultReadRate is Stripe's own default limit for one endpoint, a second.
	DefaultReadRate = 25
	// DefaultMaxConns is the most connections to Stripe for sends.
	DefaultMaxConns = 256

	// searchRate stays under Stripe's 20 a second over all search endpoints.
	searchRate = 18
	realBase   = stripe.APIURL
)

// Config says how to reach Stripe.
type Config struct {
	// SecretKey is a secret (sk_) or restricted (rk_) key. Its mode decides
	// whether real money moves.
	SecretKey string
	// APIBase is another address than https://api.stripe.com, for an emulator.
	APIBase string
	// Live must be true for a live key (BILLING_LIVE=true).
	Live bool
	// MaxConns is the most connections for sends: at least the concurrency.
	// 0 is DefaultMaxConns.
	MaxConns int
	// Logger gets request ids and idempotency keys, never a secret. nil logs
	// nothing.
	Logger *slog.Logger
	// RequestLife bounds one request; 0 is DefaultRequestLife.
	RequestLife time.Duration
	// ReadRate is the most reads a second; 0 is DefaultReadRate, below 0 is
	// unlimited.
	ReadRate float64
}

// ConfigError says what is wrong with a Config and never repeats the key.
// Nothing was sent. A command ends with exit code 78.
type ConfigError struct {
	// Setting is the environment variable to look at.
	Setting string
	Problem string
}

func (e *ConfigError) Error() string { return e.Setting + ": " + e.Problem }

// Client holds the connections to Stripe. It may be used by any number of
// goroutines.
type Client struct {
	key      string
	livemode bool
	life     time.Duration
	log      *slog.Logger

	transport *http.Transport
	sender    stripe.Backend
	reader    stripe.Backend

	// limited counts answers 429.
	limited atomic.Int64

	reads    *rate.Limiter
	searches *rate.Limiter
	heard    heard

	// now is the process's clock, with its monotonic reading.
	now func() time.Time
	// firstPause is the first pause between two reads of the same thing.
	firstPause time.Duration
}

// New checks the configuration and makes a Client; it sends nothing. The error
// is a *ConfigError.
func New(cfg Config) (*Client, error) {
	livemode, err := keyMode(cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	base, err := checkBase(cfg.APIBase)
	if err != nil {
		return nil, err
	}
	if livemode && !cfg.Live {
		return nil, &ConfigError{"BILLING_LIVE", "the Stripe key is a live key: set BILLING_LIVE=true to move real money"}
	}
	if livemode && base != realBase {
		return nil, &ConfigError{"STRIPE_API_BASE", "a live key is only ever sent to " + realBase}
	}
	c := &Client{
		key: cfg.SecretKey, livemode: livemode, life: cfg.RequestLife, log: cfg.Logger,
		now: time.Now, firstPause: 500 * time.Millisecond,
	}
	if c.life <= 0 {
		c.life = DefaultRequestLife
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.reads, c.searches = readLimiters(cfg.ReadRate)
	maxConns := cfg.MaxConns
	if maxConns <= 0 {
		maxConns = DefaultMaxConns
	}
	c.transport = newTransport(maxConns, c.life)
	c.sender = newBackend(base, &sendTransport{next: c.transport, client: c})
	c.reader = newBackend(base, &readTransport{next: c.transport, client: c})
	return c, nil
}

// Livemode reports whether the key moves real money.
func (c *Client) Livemode() bool { return c.livemode }

// RateLimited is how often Stripe answered 429 so far, to sends and to reads.
func (c *Client) RateLimited() int64 { return c.limited.Load() }

// Mode is "live" or "test", for display.
func (c *Client) Mode() string {
	if c.livemode {
		return "live"
	}
	return "test"
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Charger returns what sends charges.
func (c *Client) Charger() *Charger { return &Charger{client: c, finder: c.Finder()} }

// Finder returns what reads and cannot write.
func (c *Client) Finder() *Finder { return &Finder{client: c} }

// Canceller returns what cancels open PaymentIntents.
func (c *Client) Canceller() *Canceller { return &Canceller{client: c, finder: c.Finder()} }

// newBackend makes a stripe-go backend without retries, telemetry or logging:
// each of them would act, or speak, behind the ledger's back.
func newBackend(base string, transport http.RoundTripper) stripe.Backend {
	return stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(base),
		EnableTelemetry:   stripe.Bool(false),
		MaxNetworkRetries: stripe.Int64(0),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		HTTPClient: &http.Client{
			Transport: transport,
			// A redirect is an answer that nobody can explain, never a reason to
			// send the key and the body somewhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
}

func readLimiters(perSecond float64) (reads, searches *rate.Limiter) {
	if perSecond < 0 {
		return rate.NewLimiter(rate.Inf, 1), rate.NewLimiter(rate.Inf, 1)
	}
	if perSecond == 0 {
		perSecond = DefaultReadRate
	}
	return rate.NewLimiter(rate.Limit(perSecond), 1), rate.NewLimiter(rate.Limit(min(perSecond, searchRate)), 1)
}

// keyMode tells live from test, and refuses what is not a secret key.
func keyMode(key string) (livemode bool, err error) {
	const setting = "STRIPE_SECRET_KEY"
	if key == "" {
		return false, &ConfigError{setting, "no Stripe key is set"}
	}
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return false, &ConfigError{setting, "the key has a blank, a line break or another character that no key has"}
		}
	}
	for _, kind := range []string{"sk", "rk"} {
		switch {
		case strings.HasPrefix(key, kind+"_live_"):
			return true, nil
		case strings.HasPrefix(key, kind+"_test_"):
			return false, nil
		}
	}
	if strings.HasPrefix(key, "pk_") {
		return false, &ConfigError{setting, "this is a publishable key (pk_); a secret (sk_) or restricted (rk_) key is needed"}
	}
	return false, &ConfigError{setting, "not a Stripe key: it must start with sk_test_, sk_live_, rk_test_ or rk_live_"}
}

// checkBase returns the address that requests go to, without a path.
func checkBase(base string) (string, error) {
	const setting = "STRIPE_API_BASE"
	if base == "" {
		return realBase, nil
	}
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "", &ConfigError{setting, "must look like http://127.0.0.1:12111"}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", &ConfigError{setting, "must have no user, query or fragment"}
	case strings.TrimRight(u.Path, "/") != "" && strings.TrimRight(u.Path, "/") != "/v1":
		return "", &ConfigError{setting, fmt.Sprintf("must have no path, but has %q", u.Path)}
	}
	return u.Scheme + "://" + u.Host, nil
}

// call makes one request through stripe-go and returns what came back on the
// wire. stripe-go's own error is dropped on purpose: its text contains the
// client secret, and it knows less than the reply.
func (c *Client) call(ctx context.Context, backend stripe.Backend, r request) Reply {
	ex := &exchange{ticket: r.ticket}
	params := &stripe.Params{Context: context.WithValue(ctx, exchangeKey{}, ex)}
	if r.stripeAccount != "" {
		params.StripeAccount = stripe.String(r.stripeAccount)
	}
	if r.ticket != nil {
		params.IdempotencyKey = stripe.String(r.ticket.key)
	}
	// CallRaw, not RawRequest: the latter of v82.5.1 dereferences the missing
	// response when the connection fails.
	_ = backend.CallRaw(r.method, r.path, c.key, []byte(r.body), params, &discard{})
	if !ex.used.Load() {
		return Reply{Err: errNotBuilt}
	}
	return ex.reply
}

// request is what call puts on the wire.
type request struct {
	method, path, body, stripeAccount string
	// ticket is what a POST is allowed to be; nil for a GET.
	ticket *ticket
}

// discard takes no part of an answer: the gateway reads the reply itself.
type discard struct{}

func (*discard) SetLastResponse(*stripe.APIResponse) {}

func (*discard) UnmarshalJSON([]byte) error { return nil }
