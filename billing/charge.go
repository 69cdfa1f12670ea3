package billing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// maxBatch bounds one claim whatever the rate is.
	maxBatch = 1000
	// batchShare of a permit's life is what one batch takes to send, so that two
	// batches, one being sent and one claimed ahead, fit into it with room.
	batchShare = 6
	// longestWait is how long a run waits for rows that rest after a failure.
	// Those that rest longer are left to the next run.
	longestWait = 2 * time.Minute
	// claimPatience bounds one claim of rows.
	claimPatience = 30 * time.Second
	// outage pauses grow from the first to the last.
	firstOutagePause = time.Second
	lastOutagePause  = 30 * time.Second
)

// sender sends what is pending and inside its window.
type sender struct {
	r       *Runner
	limiter *gateway.Limiter
	trouble trouble
	rec     *recorder
	flying  sync.WaitGroup
	sent    atomic.Int64 // by this call of charge, for the speed
	inHand  *inHand
	only    []string // the billing keys that may be sent; nil is all
	paused  pauses

	// halted is ended, with the reason, by trouble that is not one account's.
	halted context.Context
	halt   context.CancelCauseFunc
}

// charge sends every pending charge that is inside its window, until nothing is
// left that this run may send. It returns why it had to stop before, or nil.
// Sends under way are waited for and their answers recorded in any case.
func (r *Runner) charge(ctx context.Context, only []string) error {
	halted, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	s := &sender{
		r: r, halted: halted, halt: halt, inHand: newInHand(), only: only, trouble: trouble{breaker: r.opts.Breaker},
		limiter: gateway.NewLimiter(gateway.LimiterConfig{Rate: r.opts.Rate, Concurrency: r.opts.Concurrency}),
	}
	s.rec = newRecorder(r, halt)
	// Answers are recorded also when the run was told to stop.
	go func() {
		defer s.rec.drain()
		defer r.recoverBug("recording answers", halt)
		s.rec.loop(context.WithoutCancel(ctx))
	}()
	go s.watchPauses(halted)
	err := s.countWork()
	if err == nil {
		err = s.sendAll()
	}
	s.flying.Wait()
	s.rec.close()
	if err == nil {
		err = context.Cause(halted)
	}
	return err
}

func (s *sender) sendAll() error {
	pause := firstOutagePause
	batch, err := s.claim(s.batchSize())
	for err == nil && context.Cause(s.halted) == nil {
		if reason, down := s.trouble.outage(); down {
			s.r.log.Warn("Stripe does not answer as it should; trying one charge at a time", "last", reason, "pause", pause)
			s.giveBack(batch)
			if batch, err = s.probe(pause); err == nil {
				pause = longer(pause)
			}
			continue
		}
		pause = firstOutagePause
		if len(batch) == 0 {
			var more bool
			if more, err = s.wait(); err != nil || !more {
				return err
			}
			batch, err = s.claim(s.batchSize())
			continue
		}
		batch, err = s.sendBatch(batch)
	}
	s.giveBack(batch)
	return err
}

// longer is the pause after one that ended with no better answer.
func longer(pause time.Duration) time.Duration { return min(2*pause, lastOutagePause) }

// countWork says how much there is to do, for whoever watches, and notes which
// customers an earlier owner of the period may still be sending for.
func (s *sender) countWork() error {
	q, err := s.queue()
	if err != nil {
		return err
	}
	s.r.total = s.r.sent.Load() + q.Sendable + q.Waiting
	return s.r.patiently(s.halted, "look for leases of an earlier run", func(ctx context.Context) error {
		asked := time.Now()
		leases, err := ledger.LeasesOfOthers(ctx, s.r.pool, s.r.run)
		s.inHand.leased(leases, asked)
		return err
	})
}

func (s *sender) queue() (q ledger.Queue, err error) {
	err = s.r.patiently(s.halted, "count the queue", func(ctx context.Context) (err error) {
		return ledger.InReadTx(ctx, s.r.pool, func(tx pgx.Tx) (err error) {
			q, err = ledger.ReadQueue(ctx, tx, s.r.run, s.r.opts.SendsPerRun, s.only)
			return err
		})
	})
	return q, err
}

// sendBatch sends one batch while the next is claimed.
func (s *sender) sendBatch(batch []claimed) ([]claimed, error) {
	type next struct {
		batch []claimed
		err   error
	}
	ahead := make(chan next, 1)
	started, before, size := time.Now(), s.sent.Load(), s.batchSize()
	go func() {
		defer s.r.recoverBug("claiming charges", s.halt)
		b, err := s.claim(size)
		ahead <- next{b, err}
	}()
	s.dispatch(batch)
	s.r.speed(s.sent.Load()-before, time.Since(started))
	n := <-ahead
	return n.batch, n.err
}

// batchSize is how many rows can be sent in a share of a permit's life, by the
// present rate or by what was measured, whichever is less.
func (s *sender) batchSize() int {
	speed := min(s.limiter.Rate(), s.r.measured)
	if s.r.measured == 0 {
		speed = min(s.limiter.Rate(), float64(4*s.limiter.Concurrency()))
	}
	n := int(speed * s.r.permit().Seconds() / batchShare)
	return min(maxBatch, max(n, 1))
}

// claimed is a permit with the process's clock of before it was asked for.
type claimed struct {
	ledger.Permit
	asked time.Time
}

func (s *sender) claim(rows int) ([]claimed, error) {
	var permits []ledger.Permit
	var asked time.Time
	err := s.r.patiently(s.halted, "claim charges", func(ctx context.Context) error {
		// A claim that was asked for is waited for: if its commit were not seen,
		// rows would count as sent that never were.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimPatience)
		defer cancel()
		asked = time.Now()
		return ledger.InQueueTx(ctx, s.r.pool, func(tx pgx.Tx) (err error) {
			permits, err = ledger.ClaimCharges(ctx, tx, s.r.run, ledger.ClaimLimits{
				Rows: rows, SendsPerRun: s.r.opts.SendsPerRun, Permit: s.r.permit(), UnderWay: s.inHand.customers(time.Now()), Only: s.only,
			})
			return err
		})
	})
	if err != nil || len(permits) == 0 {
		return nil, err
	}
	batch := make([]claimed, len(permits))
	for i, p := range permits {
		batch[i] = claimed{p, asked}
	}
	s.inHand.take(batch)
	s.r.alive()
	// A pause that did not see these permits is seen here: either way nothing is
	// sent after it.
	if err := s.readPauses(s.halted); err != nil {
		s.giveBack(batch)
		return nil, err
	}
	if err := s.r.clock.check(permits[0].ClaimedAt, asked); err != nil {
		s.giveBack(batch)
		return nil, err
	}
	return batch, nil
}

// deadline is when no byte of the send may leave any more.
func (c claimed) deadline() gateway.Deadline {
	return gateway.NewDeadline(c.asked, time.Duration(c.LifeMS*float64(time.Millisecond)))
}

// send puts one charge on the wire and hands its answer to the recorder. It is
// not cancelled when the run is told to stop: an answer under way is evidence.
func (s *sender) send(c claimed) {
	defer s.r.recoverBug("charging account "+c.AccountID, s.halt)
	ctx := context.WithoutCancel(s.halted)
	a := s.r.charger.Send(ctx, gateway.Permit{
		Key: c.IdempotencyKey, Body: c.Body, SHA256: [32]byte(c.BodySHA256), StripeAccount: c.StripeAccount,
		BillingKey: c.BillingKey, Try: c.Try, Amount: c.AmountMinor, Currency: c.Currency, Customer: c.StripeCustomer,
		Resend:   c.Sends > 1,
		Deadline: c.deadline(),
	})
	s.limiter.Observe(a)
	if err := s.trouble.observe(a); err != nil {
		s.halt(err)
	}
	if !a.NotSent {
		s.r.countSend()
		s.sent.Add(1)
	}
	s.rec.in <- received{answer: evidence(c.Permit, a), stripe: a.StripeDate, arrived: a.ReceivedAt, written: func() { s.inHand.drop(c) }}
}

// giveBack takes back permits that were not used: nothing was sent for them.
func (s *sender) giveBack(batch []claimed) {
	for _, c := range batch {
		s.rec.in <- received{answer: ledger.Answer{
			AccountID: c.AccountID, BillingKey: c.BillingKey, Try: c.Try, ClaimedAt: c.ClaimedAt, NotSent: true,
		}, written: func() { s.inHand.drop(c) }}
	}
}

// probe waits out a piece of an outage and then sends one charge.
func (s *sender) probe(pause time.Duration) ([]claimed, error) {
	s.settleDown()
	for left := pause; left > 0; left -= time.Second {
		s.r.alive()
		if err := sleep(s.halted, min(left, time.Second)); err != nil {
			return nil, err
		}
	}
	batch, err := s.claim(1)
	if err != nil || len(batch) == 0 {
		if err == nil {
			s.trouble.forget()
		}
		return batch, err
	}
	if batch = s.allowed(batch); len(batch) == 0 {
		return nil, nil
	}
	s.send(batch[0])
	s.settleDown()
	return nil, nil
}

// settleDown waits for the sends under way and for their answers to be written.
func (s *sender) settleDown() {
	s.flying.Wait()
	s.rec.flush()
}

// wait decides what to do when nothing can be claimed: false means that nothing
// is left for this run.
func (s *sender) wait() (bool, error) {
	s.settleDown()
	q, err := s.queue()
	if err != nil {
		return false, err
	}
	switch {
	case q.Sendable > 0:
		// They could not be claimed although they wait: is the claim ours?
		err := s.r.patiently(s.halted, "look at the claim", func(ctx context.Context) error {
			return ledger.InTx(ctx, s.r.pool, func(tx pgx.Tx) error { return s.r.run.Lock(ctx, tx) })
		})
		if err == nil {
			err = sleep(s.halted, 50*time.Millisecond)
		}
		return err == nil, err
	case q.NextAt == nil || q.NextAt.Sub(q.Now) > longestWait:
		return false, nil
	}
	s.r.alive()
	_ = sleep(s.halted, min(q.NextAt.Sub(q.Now)+10*time.Millisecond, time.Second))
	return true, nil
}
