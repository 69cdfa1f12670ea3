package outbox

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// maxAnswer bounds what is read of one answer over HTTP.
	maxAnswer = 64 << 10
	// dialTimeout is for one connection, before anything is sent.
	dialTimeout = 10 * time.Second
)

// newTransport makes a connection for every request, so that net/http has no
// reason of its own to repeat one, and speaks HTTP/1 for the same reason.
func newTransport(dialer *net.Dialer) *http.Transport {
	dialer.Timeout = dialTimeout
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswer,
	}
}

// notFollowed hands a redirect back as it is: it may lead anywhere.
func notFollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// connected watches whether a request got as far as a connection. Without one
// nothing was sent; from there on anything may have been.
func connected(ctx context.Context) (context.Context, *atomic.Bool) {
	got := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	}), got
}

// certificateRefused reports whether the other side could not show who it is.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

// retryAfter reads the header of that name, in seconds or as a date; zero if
// there is none that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}

// digest is a short name of a dedupe key: 128 bits, safe in every header, and
// it tells a receiver nothing about accounts.
func digest(dedupeKey string) string {
	sum := sha256.Sum256([]byte(dedupeKey))
	return hex.EncodeToString(sum[:16])
}

// ConfigError says which setting is wrong and never repeats its value, which
// may be secret.
type ConfigError struct {
	Setting string
	Problem string
}

func (e *ConfigError) Error() string { return e.Setting + " " + e.Problem }
