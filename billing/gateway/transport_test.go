package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
)

// permit is a permit for the payment of intentText, good for half a minute.
func permit(now time.Time) Permit {
	body := Body(BodyParams{
		Amount: 1200, Currency: "usd", Customer: "cus_a", PaymentMethod: "pm_card_visa", Description: "October",
		BillingKey: asked.BillingKey, Job: "monthly-billing", Period: "2026-10", Account: "a", Try: 1,
	})
	return Permit{
		Key: asked.BillingKey, Body: body, SHA256: sha256.Sum256([]byte(body)), BillingKey: asked.BillingKey, Try: 1,
		Amount: 1200, Currency: "usd", Customer: "cus_a", Deadline: NewDeadline(now, 30*time.Second),
	}
}

// wire is a server that counts what reaches it.
type wire struct {
	*httptest.Server
	mu    sync.Mutex
	posts []*http.Request
}

func newWire(t *testing.T, handler http.HandlerFunc) *wire {
	w := &wire{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			w.mu.Lock()
			w.posts = append(w.posts, req)
			w.mu.Unlock()
		}
		handler(res, req)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.posts)
}

var answersPaid atomic.Int64

func answerPaid(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Request-Id", fmt.Sprintf("req_%d", answersPaid.Add(1)))
	_, _ = io.WriteString(w, paid)
}

// What leaves is the frozen body under its key, in one piece, without anything
// that stripe-go would like to tell about this machine.
func TestSendPutsTheFrozenRequestOnTheWire(t *testing.T) {
	var bodies []string
	server := newWire(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		answerPaid(w, r)
	})
	c := newTestClient(t, server.URL)
	p := permit(time.Now())
	p.StripeAccount = "acct_connected"
	for range 2 {
		if a := c.Charger().Send(t.Context(), p); a.Verdict != VerdictKnown || a.State != "succeeded" {
			t.Fatalf("%+v", a)
		}
	}
	for i, r := range server.posts {
		want := map[string]string{
			"Authorization": "Bearer " + testKey, "Idempotency-Key": p.Key, "Stripe-Account": "acct_connected",
			"Content-Type": "application/x-www-form-urlencoded", "Stripe-Version": stripe.APIVersion,
			"X-Stripe-Client-User-Agent": "", "X-Stripe-Client-Telemetry": "", "Accept-Encoding": "",
		}
		for name, value := range want {
			if got := r.Header.Get(name); got != value {
				t.Errorf("send %d: %s is %q, want %q", i, name, got, value)
			}
		}
		if bodies[i] != p.Body || r.ContentLength != int64(len(p.Body)) || len(r.TransferEncoding) != 0 || r.URL.String() != "/v1/payment_intents" || r.ProtoMajor != 1 {
			t.Errorf("send %d: %s %v %q", i, r.URL, r.TransferEncoding, bodies[i])
		}
	}
}

// silent accepts connections and reports what arrives on each until it ends.
func silent(t *testing.T) (address string, arrived <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	bytes := make(chan string, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			got, _ := io.ReadAll(conn)
			_ = conn.Close()
			bytes <- string(got)
		}
	}()
	return "http://" + listener.Addr().String(), bytes
}

// heldDialer makes connections only when the test lets it.
func heldDialer(c *Client) (dialing <-chan struct{}, letGo func()) {
	asked, release := make(chan struct{}, 10), make(chan struct{})
	dial := c.transport.DialContext
	c.transport.DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
		asked <- struct{}{}
		<-release
		return dial(context.Background(), network, address)
	}
	return asked, sync.OnceFunc(func() { close(release) })
}

// A permit that ends while the connection is made ends the request: the check
// runs after the connection stands and before the bytes. The clock moves by the
// wall alone, as when the machine was suspended for a day, and by both.
func TestNothingLeavesAfterTheDeadline(t *testing.T) {
	for name, later := range map[string]func(time.Time) time.Time{
		"process was slow":      func(t time.Time) time.Time { return t.Add(31 * time.Second) },
		"machine was suspended": func(t time.Time) time.Time { return onlyWall(t, 25*time.Hour) },
		"wall clock stood":      func(t time.Time) time.Time { return onlyMonotonic(t, 31*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			base, arrived := silent(t)
			c := newTestClient(t, base)
			start := time.Now()
			var clock atomic.Pointer[time.Time]
			clock.Store(&start)
			c.now = func() time.Time { return *clock.Load() }
			dialing, letGo := heldDialer(c)
			answer := make(chan Answer)
			go func() { answer <- c.Charger().Send(t.Context(), permit(start)) }()

			<-dialing
			moved := later(start)
			clock.Store(&moved)
			letGo()

			a := <-answer
			if a.Verdict != VerdictNotSent || a.Reason != ReasonPermitExpired || !a.NotSent || !a.NotExecuted {
				t.Errorf("%+v", a)
			}
			c.Close()
			if got := <-arrived; got != "" {
				t.Errorf("on the wire: %q", got)
			}
		})
	}
}

func TestAnExpiredPermitDoesNotEvenDial(t *testing.T) {
	c := newTestClient(t, "http://127.0.0.1:1")
	c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}
	if a := c.Charger().Send(t.Context(), permit(time.Now().Add(-time.Minute))); a.Reason != ReasonPermitExpired || !a.NotSent {
		t.Errorf("%+v", a)
	}
}

// A send that was given up while it waited for a connection is not sent later,
// when the connection stands at last.
func TestAGivenUpSendStaysUnsent(t *testing.T) {
	base, arrived := silent(t)
	c := newTestClient(t, base)
	dialing, letGo := heldDialer(c)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan Answer)
	go func() { answer <- c.Charger().Send(ctx, permit(time.Now())) }()
	<-dialing
	cancel()
	if a := <-answer; a.Verdict != VerdictNotSent || a.Reason != ReasonInterrupted {
		t.Errorf("%+v", a)
	}
	// The connection is made for nobody and closed unused.
	c.transport.DisableKeepAlives = true
	letGo()
	if got := <-arrived; got != "" {
		t.Errorf("on the wire: %q", got)
	}
}

// net/http repeats a POST with an Idempotency-Key by itself when a reused
// connection dies after the request was read; ours arrives once.
func TestAReusedConnectionThatDiesGetsThePostOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var posts, connections atomic.Int32
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			answerFirst(conn, &posts)
		}
	}()
	c := newTestClient(t, "http://"+listener.Addr().String())
	if a := c.Charger().Send(t.Context(), permit(time.Now())); a.State != "succeeded" {
		t.Fatalf("first send: %+v", a)
	}
	a := c.Charger().Send(t.Context(), permit(time.Now()))
	if a.Verdict != VerdictUnknown || a.NotSent || a.NotExecuted {
		t.Errorf("second send: %+v", a)
	}
	_ = listener.Close()
	<-served
	if posts.Load() != 2 || connections.Load() != 1 {
		t.Errorf("%d POSTs on %d connections for two sends", posts.Load(), connections.Load())
	}
}

// answerFirst answers the first request of a connection and closes it after
// reading the second.
func answerFirst(conn net.Conn, posts *atomic.Int32) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		posts.Add(1)
		if n > 0 {
			return
		}
		res := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(paid)), Body: io.NopCloser(strings.NewReader(paid))}
		_ = res.Write(conn)
	}
}

// A redirect is not followed: the key and the body go to nobody else.
func TestARedirectIsAnUnknownAnswer(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := newWire(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != intentsPath {
				t.Errorf("%d was followed to %s", status, r.URL)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		})
		c := newTestClient(t, server.URL)
		if a := c.Charger().Send(t.Context(), permit(time.Now())); a.Verdict != VerdictUnknown || a.Reason != ReasonRedirected || a.NotExecuted {
			t.Errorf("%d: %+v", status, a)
		}
		if server.count() != 1 {
			t.Errorf("%d: %d POSTs", status, server.count())
		}
	}
}

func TestNoConnectionIsProofThatNothingWasSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	c := newTestClient(t, "http://"+address)
	if a := c.Charger().Send(t.Context(), permit(time.Now())); a.Verdict != VerdictNotSent || a.Reason != ReasonNoConnection || !a.NotSent || !a.NotExecuted {
		t.Errorf("%+v", a)
	}
}

// A send whose wait is interrupted after the bytes left may have been executed.
func TestAnInterruptedWaitIsUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := newWire(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	c := newTestClient(t, server.URL)
	if a := c.Charger().Send(ctx, permit(time.Now())); a.Verdict != VerdictUnknown || a.Reason != ReasonInterrupted || a.NotSent || a.NotExecuted {
		t.Errorf("%+v", a)
	}
}

// HTTP/2 would repeat requests by rules of its own; TLS is no way into it.
func TestSendSpeaksHTTP1OverTLS(t *testing.T) {
	protocols := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocols <- r.Proto
		answerPaid(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := newTestClient(t, server.URL)
	c.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	if a := c.Charger().Send(t.Context(), permit(time.Now())); a.State != "succeeded" {
		t.Fatalf("%+v", a)
	}
	if got := <-protocols; got != "HTTP/1.1" {
		t.Errorf("spoke %s", got)
	}
}

// The permit is checked a second time where the body is read: if it ends after
// the connection was handed over, a header may have left, and no more.
func TestNoBodyLeavesAfterTheDeadline(t *testing.T) {
	base, arrived := silent(t)
	c := newTestClient(t, base)
	p, checks := permit(time.Now()), 0
	reply := c.post(t.Context(), p.Body, &ticket{path: intentsPath, key: p.Key, sha256: p.SHA256, check: func() error {
		if checks++; checks > 1 {
			return errPermitExpired
		}
		return nil
	}})
	if a := Outcome(asked, reply); a.Verdict != VerdictNotSent || a.Reason != ReasonPermitExpired || checks != 2 {
		t.Errorf("%d checks, %+v", checks, a)
	}
	c.Close()
	if got := <-arrived; strings.Contains(got, "amount") {
		t.Errorf("on the wire: %q", got)
	}
}
