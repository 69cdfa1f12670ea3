package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// Reasons for which a request does not leave the process.
var (
	errNotBuilt      = errors.New("the request could not be built")
	errNoPermit      = errors.New("a POST without a permit")
	errOnlyReads     = errors.New("this connection only reads")
	errPermitUsed    = errors.New("the permit was used before")
	errPermitExpired = errors.New("the permit has expired")
	errNotPermitted  = errors.New("the request is not the permitted one")
	errSealed        = errors.New("the request was given up before it was sent")
)

const (
	// maxAnswer bounds what is read of one answer: a page of 100 PaymentIntents
	// is about half a megabyte.
	maxAnswer = 32 << 20
	// readConns are kept free of sends.
	readConns = 8
)

// newTransport sets every limit by hand: a default would be a decision that
// nobody took.
func newTransport(maxConns int, life time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	// HTTP/2 would let one lost connection lose every answer in flight, and
	// repeats requests by rules of its own.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	conns := maxConns + readConns
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  life,
		IdleConnTimeout:        30 * time.Second,
		MaxConnsPerHost:        conns,
		MaxIdleConns:           conns,
		MaxIdleConnsPerHost:    conns,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		// A send fits into the buffer: whole, or not at all.
		WriteBufferSize: 16 << 10,
	}
}

// ticket is what one POST is allowed to be.
type ticket struct {
	path, key, stripeAccount string
	sha256                   [32]byte
	// check runs when the connection stands, and right before the bytes.
	check func() error
}

type exchangeKey struct{}

// exchange carries the ticket down to the transport and the reply back up,
// around stripe-go, which keeps neither.
type exchange struct {
	ticket *ticket
	used   atomic.Bool
	reply  Reply
}

// sendTransport lets through POSTs with a ticket, each exactly once.
type sendTransport struct {
	next   http.RoundTripper
	client *Client
}

// RoundTrip checks the request against its ticket and sends it without GetBody:
// net/http repeats a POST with an Idempotency-Key by itself when a reused
// connection dies, unless it cannot get the body again.
func (t *sendTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ex, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if ex == nil || ex.ticket == nil {
		return nil, errNoPermit
	}
	if ex.used.Swap(true) {
		return nil, errPermitUsed
	}
	body, err := readBody(req)
	if err == nil {
		err = ex.ticket.permits(req, body)
	}
	if err != nil {
		ex.reply = Reply{Err: err, NotSent: true}
		return nil, err
	}
	guarded := &guardedBody{check: ex.ticket.check, bytes: bytes.NewReader(body)}
	out := cleanClone(req.WithContext(httptrace.WithClientTrace(req.Context(), guarded.trace())))
	out.Body, out.GetBody, out.ContentLength = guarded, nil, int64(len(body))
	ex.reply = t.client.exchange(t.next, out)
	if ex.reply.NotSent = guarded.seal(); ex.reply.NotSent {
		ex.reply.Err = guarded.cause(ex.reply.Err)
	}
	return ex.reply.response(req)
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// permits compares every part of the request that decides what is charged, to
// whom, and whether Stripe knows it again.
func (t *ticket) permits(req *http.Request, body []byte) error {
	switch {
	case req.Method != http.MethodPost:
		return fmt.Errorf("%w: method %s", errNotPermitted, req.Method)
	case req.URL.Path != t.path || req.URL.RawQuery != "":
		return fmt.Errorf("%w: path", errNotPermitted)
	case !visible(t.key) || t.key == "" || !visible(t.stripeAccount):
		return fmt.Errorf("%w: a character that no header may have", errNotPermitted)
	case req.Header.Get("Idempotency-Key") != t.key:
		// stripe-go trims keys.
		return fmt.Errorf("%w: idempotency key", errNotPermitted)
	case req.Header.Get("Stripe-Account") != t.stripeAccount:
		return fmt.Errorf("%w: Stripe account", errNotPermitted)
	case sha256.Sum256(body) != t.sha256:
		return fmt.Errorf("%w: body", errNotPermitted)
	}
	return nil
}

// visible reports whether a text is ASCII without control characters.
func visible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// readTransport lets through GETs only.
type readTransport struct {
	next   http.RoundTripper
	client *Client
}

// RoundTrip sends a GET and keeps its reply.
func (t *readTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ex, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if ex == nil || req.Method != http.MethodGet {
		return nil, errOnlyReads
	}
	ex.used.Store(true)
	out := cleanClone(req)
	// stripe-go hands over an empty body, which would be sent in chunks.
	out.Body, out.GetBody, out.ContentLength = nil, nil, 0
	ex.reply = t.client.exchange(t.next, out)
	return ex.reply.response(req)
}

// cleanClone copies a request, and drops the header in which stripe-go tells
// Stripe the name of the machine (uname -a).
func cleanClone(req *http.Request) *http.Request {
	out := *req
	out.Header = req.Header.Clone()
	out.Header.Del("X-Stripe-Client-User-Agent")
	return &out
}

// exchange sends a request and reads the whole answer.
func (c *Client) exchange(next http.RoundTripper, req *http.Request) Reply {
	start := c.now()
	var conn net.Conn
	res, err := next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
	})))
	if err != nil {
		at := c.now()
		return Reply{Err: err, ReceivedAt: at, Latency: at.Sub(start)}
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusTooManyRequests {
		c.limited.Add(1)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errors.New("the answer is too long")
	}
	if err == nil && c.heard.before(res.Header.Get("Request-Id")) {
		// What comes next on this connection belongs to an earlier request too.
		err = errHeardBefore
		if conn != nil {
			_ = conn.Close()
		}
	}
	at := c.now()
	return Reply{
		Status: res.StatusCode, Header: res.Header, Body: body, Err: err, ReceivedAt: at, Latency: at.Sub(start),
	}
}

// response gives stripe-go what it expects of a transport.
func (r *Reply) response(req *http.Request) (*http.Response, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	return &http.Response{
		Status: http.StatusText(r.Status), StatusCode: r.Status, Header: r.Header, Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(r.Body)), ContentLength: int64(len(r.Body)),
	}, nil
}

// States of a guardedBody.
const (
	bodyHeld int32 = iota
	bodyReleased
	bodySealed
)

// guardedBody hands out its bytes once, and only if the permit is still good at
// that moment. net/http asks for the body when it has a connection, right after
// it wrote the header; so the permit is checked when the connection stands, and
// again at the first Read. A header alone can do nothing. Until the first Read,
// seal makes sure that there never is one: that proves that a failed request
// was not sent.
type guardedBody struct {
	state   atomic.Int32
	check   func() error
	bytes   *bytes.Reader
	refused atomic.Pointer[error]
}

// trace closes the connection, instead of using it, once the permit has ended.
func (b *guardedBody) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !b.good() {
			_ = info.Conn.Close()
		}
	}}
}

// good reports whether the permit has not ended; if it has, nothing is read.
func (b *guardedBody) good() bool {
	err := b.check()
	if err != nil && b.seal() {
		b.refused.Store(&err)
	}
	return err == nil
}

// Read gives the bytes if the permit is good.
func (b *guardedBody) Read(p []byte) (int, error) {
	if b.state.Load() == bodyHeld && b.good() {
		b.state.CompareAndSwap(bodyHeld, bodyReleased)
	}
	if b.state.Load() != bodyReleased {
		return 0, b.cause(errSealed)
	}
	return b.bytes.Read(p)
}

// Close does nothing: the bytes are in memory.
func (b *guardedBody) Close() error { return nil }

// seal stops any later Read, and reports whether there was none.
func (b *guardedBody) seal() bool {
	return b.state.CompareAndSwap(bodyHeld, bodySealed) || b.state.Load() == bodySealed
}

// cause is why the permit was refused, or else the error given.
func (b *guardedBody) cause(otherwise error) error {
	if refused := b.refused.Load(); refused != nil {
		return *refused
	}
	return otherwise
}
