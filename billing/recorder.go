package billing

import (
	"context"
	"net/http"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// answerGroup and answerDelay bound a group of answers that is written in
	// one transaction: many commits a second would cost more than the sends.
	answerGroup = 250
	answerDelay = 40 * time.Millisecond
	// recordPatience is how long a group of answers is kept while Postgres is
	// away. Answers are evidence: they are worth waiting for.
	recordPatience = 2 * time.Minute
)

// received is one answer on its way to the ledger, or a request to flush.
type received struct {
	answer  ledger.Answer
	stripe  time.Time // Stripe's Date, zero if there was none
	arrived time.Time
	// written is called when the ledger has the answer: until then the row looks as
	// if it could be sent again.
	written func()
	flushed chan<- struct{}
}

// recorder writes answers in groups. It goes on after the run was stopped or
// its claim was lost, until its channel is closed.
type recorder struct {
	r     *Runner
	in    chan received
	done  chan struct{}
	onErr func(error)
}

func newRecorder(r *Runner, onErr func(error)) *recorder {
	return &recorder{r: r, in: make(chan received, 2*answerGroup), done: make(chan struct{}), onErr: onErr}
}

// flush returns when everything that was handed in before is written.
func (rec *recorder) flush() {
	flushed := make(chan struct{})
	rec.in <- received{flushed: flushed}
	<-flushed
}

func (rec *recorder) close() {
	close(rec.in)
	<-rec.done
}

// drain takes what is still handed in after the loop broke off, so that nobody
// waits for it; those answers are found out again by the next run.
func (rec *recorder) drain() {
	defer close(rec.done)
	for next := range rec.in {
		if next.flushed != nil {
			close(next.flushed)
		}
	}
}

func (rec *recorder) loop(ctx context.Context) {
	var group []received
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case next, open := <-rec.in:
			if !open {
				rec.write(ctx, group)
				return
			}
			if next.flushed != nil {
				rec.write(ctx, group)
				group = group[:0]
				close(next.flushed)
				continue
			}
			if group = append(group, next); len(group) == 1 {
				timer.Reset(answerDelay)
			}
			if len(group) < answerGroup {
				continue
			}
		case <-timer.C:
		}
		rec.write(ctx, group)
		group = group[:0]
	}
}

func (rec *recorder) write(ctx context.Context, group []received) {
	if len(group) == 0 {
		return
	}
	answers := make([]ledger.Answer, len(group))
	for i, g := range group {
		answers[i] = g.answer
	}
	recorded, err := rec.persist(ctx, answers)
	if err != nil {
		rec.r.log.Error("answers could not be recorded; the next run finds them out again", "answers", len(answers), "error", err)
		rec.onErr(err)
	}
	for _, g := range group {
		if g.written != nil {
			g.written()
		}
	}
	for _, n := range recorded.Settled {
		rec.r.settled.Add(n)
	}
	rec.r.alive()
	rec.compareClocks(recorded.Now, group)
}

// persist writes a group and repeats it while Postgres is away. A commit whose
// outcome was not seen is repeated too: the second time it changes nothing. Each
// attempt is bounded: a host that vanished without a word must not keep the
// answers for ever.
func (rec *recorder) persist(ctx context.Context, answers []ledger.Answer) (recorded ledger.Recorded, err error) {
	err = rec.r.whileAway(ctx, recordPatience, "record answers", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, claimPatience)
		defer cancel()
		recorded, err = ledger.RecordAnswers(ctx, rec.r.pool, rec.r.run, answers)
		return err
	})
	return recorded, err
}

// compareClocks holds Postgres's time against the Date of the newest answer of
// the group. A clock that jumped would move every window.
func (rec *recorder) compareClocks(now time.Time, group []received) {
	var newest received
	for _, g := range group {
		if !g.stripe.IsZero() {
			newest = g
		}
	}
	if newest.stripe.IsZero() || now.IsZero() {
		return
	}
	then := now.Add(-time.Since(newest.arrived))
	if then.Sub(newest.stripe).Abs() > maxClockDifference {
		rec.onErr(&ClockError{Postgres: then, Stripe: newest.stripe})
	}
}

// evidence turns the gateway's answer into the ledger's words.
func evidence(p ledger.Permit, a gateway.Answer) ledger.Answer {
	out := ledger.Answer{
		AccountID: p.AccountID, BillingKey: p.BillingKey, Try: p.Try, ClaimedAt: p.ClaimedAt, Reason: a.Reason, RequestID: a.RequestID,
		NotExecuted: a.NotExecuted, NotSent: a.NotSent, ServerError: a.ServerError,
		Wait: waitAfter(p, a),
	}
	switch a.Verdict {
	case gateway.VerdictKnown:
		out.State, out.PaymentIntent, out.StripeStatus = a.State, a.PaymentIntent, a.StripeStatus
		out.DeclineCode, out.AdviceCode = a.DeclineCode, a.AdviceCode
		out.RefundedMinor, out.Disputed = a.AmountRefundedMinor, a.Disputed
	case gateway.VerdictRefused:
		if !isGoneAfterRenewal(p, a) {
			out.State = ledger.ChargeRejected
		}
	}
	return out
}

// isGoneAfterRenewal reports a customer that Stripe does not have any more, where a
// look had found no payment: that look may have seen nothing for the same reason.
// The charge stays pending; the next look holds it.
func isGoneAfterRenewal(p ledger.Permit, a gateway.Answer) bool {
	return p.Renewals > 0 && a.Code == "resource_missing"
}

// waitAfter is how long a charge rests after an answer that proves nothing.
func waitAfter(p ledger.Permit, a gateway.Answer) time.Duration {
	switch {
	case a.Reason == gateway.ReasonNotPermitted:
		// The stored request is not the one that was claimed: a person must look.
		return time.Hour
	case a.NotSent, a.Verdict == gateway.VerdictKnown:
		return 0
	case a.Verdict == gateway.VerdictRefused:
		// It stays pending only if an earlier send may still be on its way, and
		// asking again soon would be refused again.
		return time.Hour
	case a.HTTPStatus >= 500 && a.Replayed:
		// A stored 5xx is replayed for a day: asking again tells nothing.
		return time.Hour
	case a.Reason == gateway.ReasonIdempotency:
		// The key was used with other parameters: only a look-up can tell.
		return time.Hour
	case a.PaymentIntent != "" && (a.HTTPStatus == http.StatusBadRequest || a.HTTPStatus == http.StatusNotFound):
		// Stripe refused after it had made a PaymentIntent, and does not keep such
		// an answer under the key: each further send would leave one more behind.
		return time.Hour
	case a.HTTPStatus == http.StatusTooManyRequests:
		return jitter(2 * time.Second)
	}
	return jitter(time.Second << min(p.RunSends-1, 5))
}
