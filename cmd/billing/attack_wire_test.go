package main

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// dyingConnections puts a server before Stripe that answers the first POST of each
// connection, and closes it when Stripe has carried out the second. It returns how
// many POSTs it has read.
func (o *office) dyingConnections() (posts *atomic.Int64) {
	o.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = listener.Close() })
	posts = &atomic.Int64{}
	to := strings.TrimPrefix(o.env["STRIPE_API_BASE"], "http://")
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerOnePost(conn, to, posts)
		}
	}()
	o.env["STRIPE_API_BASE"] = "http://" + listener.Addr().String()
	return posts
}

func answerOnePost(conn net.Conn, to string, posts *atomic.Int64) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for n := 0; ; {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if req.Method == http.MethodPost {
			posts.Add(1)
			n++
		}
		req.URL.Scheme, req.URL.Host, req.RequestURI = "http", to, ""
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return
		}
		if n < 2 {
			err = res.Write(conn)
		} else {
			_, _ = io.Copy(io.Discard, res.Body)
		}
		if _ = res.Body.Close(); err != nil || n == 2 {
			return
		}
	}
}

// A connection that was used before, and dies when the request was read, loses an
// answer and brings no second request that nobody counted: net/http would send one.
func TestAConnectionThatDiesUnderASendRepeatsNothingByItself(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	posts := o.dyingConnections()
	o.month(0, "--concurrency", "1")
	sends := one[int](o, `SELECT sum(sends) FROM billing.charges`)
	if n := int(posts.Load()); n != sends || n != 3 {
		t.Errorf("%d POSTs on the wire and %d sends counted, want 3 of both", n, sends)
	}
	o.mustBeWhole()
}

// The new host of a database that failed over is two hours slow: by its clock the
// window is open, and by Stripe's the key is forgotten.
func TestASlowClockAfterAFailoverSendsNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, debtors("lost", "good"))
	o.meets(faults{"lost": stripeemu.FaultLoseAnswer})
	o.db.SetOffset(o.db.Offset() + 22*time.Hour + 30*time.Minute)
	o.emu.SetOffset(o.emu.Offset() + 24*time.Hour + 30*time.Minute)
	if !one[bool](o, `SELECT bool_and(billing.now() < window_opened_at + interval '23 hours') FROM billing.charges`) {
		t.Fatal("the window is over: the test shows nothing")
	}
	o.month(78).says(t, "clocks differ")
	o.posts(0)
	o.db.SetOffset(o.emu.Offset())
	o.month(0)
	o.posts(0)
	o.mustBeWhole()
}

// A database whose clock is a day ahead records nothing, so that no window of
// two days opens; and a window that lies in the future all the same is not open.
func TestAClockThatWasADayAheadOpensNoWindow(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.db.SetOffset(o.db.Offset() + 24*time.Hour)
	o.month(78).says(t, "clocks differ")
	if n := one[int](o, `SELECT count(*) FROM billing.charges`); n != 0 {
		t.Errorf("%d charges were recorded by a clock that is a day ahead", n)
	}
	o.db.SetOffset(o.emu.Offset())
	o.meets(faults{"*": stripeemu.FaultRateLimit429})
	o.advance(-24 * time.Hour) // as if they had been recorded by such a clock
	o.month(75, "--early")
	o.posts(0)
	o.advance(24 * time.Hour)
	o.month(0)
	o.mustBeWhole()
}

// A key of Stripe's that is rolled between a lost answer and its repetition changes
// nothing of the request: Stripe knows the idempotency key as the account's.
func TestARolledKeyRepeatsTheRequestAsItWas(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, Keys: []string{"sk_test_old", "sk_test_new"}})
	o.env["STRIPE_SECRET_KEY"] = "sk_test_old"
	list := customers(3)
	o.imports(october, list)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST", Account: "a0002"})
	o.interrupted()
	o.emu.ClearFaults()
	o.emu.RevokeKey("sk_test_old")
	o.advance(time.Hour)
	o.env["STRIPE_SECRET_KEY"] = "sk_test_new"
	o.month(0)
	o.mustHaveOneKeyEach(list)
	o.mustHaveCountedSends()
	o.mustBeWhole()
}

// asking are the commands that ask Stripe about October.
var asking = [][]string{
	{"run"}, {"reconcile", "--on-absent", "charge"}, {"reconcile", "--rebuild", "--why", "x"},
	{"release", "--all", "--why", "x"}, {"requeue", "--all", "--why", "x"},
}

// Whatever command asks Stripe: with the key of another account or mode, with a live
// key at another address, or by clocks that differ, it ends before it concludes
// anything from the answer. The ledger is as before.
func TestNoCommandBelievesAnotherStripe(t *testing.T) {
	t.Parallel()
	other := newOffice(t, stripeemu.Config{AnyCustomer: true, AccountID: "acct_other"})
	o := newOffice(t)
	list := debtors("hung", "error", "rejected", "good")
	o.emu.AddCustomer(stripeemu.Customer{ID: list[2].customer, Deleted: true})
	o.imports(october, list)
	o.meets(faults{"hung": stripeemu.FaultLoseRequest, "error": stripeemu.FaultError500Undone})
	o.advance(80 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.exec(`UPDATE billing.job_runs SET state = 'failed'`)
	other.emu.SetOffset(o.emu.Offset())
	o.emu.ResetLog()
	right := o.env
	for _, wrong := range []struct {
		name, says string
		make, undo func()
	}{
		{"another account", "acct_other", func() { o.env["STRIPE_API_BASE"] = other.env["STRIPE_API_BASE"] }, nil},
		{"another mode", "(live mode)", func() { o.exec(`UPDATE billing.stripe_identity SET livemode = true`) },
			func() { o.exec(`UPDATE billing.stripe_identity SET livemode = false`) }},
		{"a live key", "BILLING_LIVE", func() { o.env["STRIPE_SECRET_KEY"] = "sk_live_x" }, nil},
		{"a live key at another address", "live", func() { o.env["STRIPE_SECRET_KEY"], o.env["BILLING_LIVE"] = "sk_live_x", "true" }, nil},
		{"a database that is slow", "clocks differ", func() { o.db.SetOffset(o.emu.Offset() - 2*time.Hour) }, func() { o.db.SetOffset(o.emu.Offset()) }},
		{"a database that is ahead", "clocks differ", func() { o.db.SetOffset(o.emu.Offset() + 24*time.Hour) }, func() { o.db.SetOffset(o.emu.Offset()) }},
		{"a Stripe that is behind", "clocks differ", func() { o.emu.SetDateOffset(-time.Hour) }, func() { o.emu.SetDateOffset(0) }},
		{"an answer without a time", "Date", func() {
			o.behind(func(res *http.Response) error { res.Header.Set("Date", "today"); return nil })
		}, nil},
	} {
		o.env = maps.Clone(right)
		wrong.make()
		before := o.ledgerText()
		for _, command := range asking {
			r := o.must(78, append(append([]string{}, command...), "--period", october)...)
			if r.says(t, wrong.says); o.ledgerText() != before {
				t.Fatalf("%s: %v changed the ledger\n%s", wrong.name, command, r)
			}
		}
		if wrong.undo != nil {
			wrong.undo()
		}
	}
	o.env = right
	o.posts(0)
	other.posts(0)
	o.month(4, "--on-absent", "charge")
	o.mustBeWhole()
}

// A month that was charged with a test key, by an address or a key that was left
// over, is not done for a live key: no money has moved.
func TestAMonthOfTheOtherModeIsNotDone(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	delete(o.env, "STRIPE_API_BASE") // nothing is asked of Stripe: the key says its mode
	o.env["STRIPE_SECRET_KEY"], o.env["BILLING_LIVE"] = "sk_live_x", "true"
	o.month(78).says(t, "this ledger belongs to Stripe account acct_emulator (test mode)", "live mode")
}
