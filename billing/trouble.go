package billing

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/chargeonce/billing/billing/gateway"
)

const (
	// firstRefusals in a row from the start look like a wrong address, account
	// or customer list.
	firstRefusals = 20
	// refusalSpan and refusalShare: so many refusals among the last sends do too.
	refusalSpan  = 400
	refusalShare = 20 // 5 %
	// outageAfter unknown answers in a row mean that Stripe or the way to it is
	// down; then one charge at a time is tried, with growing pauses.
	outageAfter = 20
	// breakerSpan sends are what the circuit breaker looks back on.
	breakerSpan = 200
	// DefaultBreaker is the share of them that may be unknown or refused.
	DefaultBreaker = 0.5
)

// trouble watches the answers of a run for what is not the matter of one
// account.
type trouble struct {
	// breaker is the share of the last sends that may be unknown or refused, 0 for
	// any.
	breaker float64

	mu       sync.Mutex
	failures recent // unknown or refused
	refusals recent
	unknown  int // in a row
	lastSeen string
}

// observe returns the error that must stop the run, if the answer is one too
// many.
func (t *trouble) observe(a gateway.Answer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Verdict == gateway.VerdictStop {
		if a.Reason == gateway.ReasonWrongMode {
			return &gateway.ConfigError{Setting: "STRIPE_SECRET_KEY", Problem: "the key is of the other mode than the customers of this ledger"}
		}
		return &AuthError{Status: a.HTTPStatus, RequestID: a.RequestID}
	}
	// The pace answers to 429; an old 5xx that is replayed, and what this process
	// did not let out, say nothing of Stripe as it is now.
	switch {
	case a.HTTPStatus == http.StatusTooManyRequests, a.Replayed && a.HTTPStatus >= 500, a.Reason == gateway.ReasonPermitExpired, a.Reason == gateway.ReasonNotPermitted:
		return nil
	}
	unknown := a.Verdict == gateway.VerdictUnknown || a.Verdict == gateway.VerdictNotSent
	if unknown && t.unknown >= outageAfter {
		// One charge at a time is tried: that Stripe is down is known.
		t.lastSeen = a.Reason
		return nil
	}
	if err := t.countFailure(unknown || a.Verdict == gateway.VerdictRefused, a.Reason); err != nil {
		return err
	}
	if unknown {
		t.unknown++
		t.lastSeen = a.Reason
		return nil
	}
	t.unknown = 0
	return t.countRefusal(a.Verdict == gateway.VerdictRefused, a.Reason)
}

// countFailure is the circuit breaker: too many of the last sends came to nothing.
func (t *trouble) countFailure(failed bool, reason string) error {
	t.failures.add(failed, breakerSpan)
	n := t.failures.n
	if !failed || t.breaker <= 0 || t.failures.all < breakerSpan || float64(n) <= t.breaker*breakerSpan {
		return nil
	}
	return &StoppedError{
		Gate: "breaker",
		Msg:  fmt.Sprintf("%d of the last %d sends were refused or got no answer that proves anything, the last one %q", n, breakerSpan, reason),
		Hint: "nothing is lost: look at Stripe's status and at the log, then run again; --breaker moves the limit",
	}
}

func (t *trouble) countRefusal(refused bool, reason string) error {
	t.refusals.add(refused, refusalSpan)
	n, all := t.refusals.n, t.refusals.all
	if !refused || !(n == all && all >= firstRefusals || all >= refusalSpan && n >= refusalShare) {
		return nil
	}
	return &StoppedError{
		Gate: "refusals",
		Msg:  fmt.Sprintf("Stripe refused %d of the last %d charges, the last one as %q: that looks like a wrong account, address or customer list", n, min(all, refusalSpan), reason),
		Hint: "check STRIPE_SECRET_KEY, STRIPE_API_BASE and the customer ids; refused charges are rejected and listed by billing status",
	}
}

// recent counts what happened among the last few sends.
type recent struct {
	last []bool
	n    int // those that happened, among the last
	all  int // sends, from the first
}

// add notes one more send, of which the last span count.
func (r *recent) add(happened bool, span int) {
	if len(r.last) < span {
		r.last = append(r.last, happened)
	} else {
		slot := r.all % span
		if r.last[slot] {
			r.n--
		}
		r.last[slot] = happened
	}
	r.all++
	if happened {
		r.n++
	}
}

// outage reports whether Stripe seems to be down, and by what sign.
func (t *trouble) outage() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastSeen, t.unknown >= outageAfter
}

// forget starts the count anew: nothing is left to try.
func (t *trouble) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown = 0
}
