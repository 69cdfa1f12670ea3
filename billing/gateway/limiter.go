package gateway

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// MinConcurrency and MaxConcurrency bound the automatic concurrency.
	MinConcurrency = 4
	// MaxConcurrency is also the most that --concurrency takes.
	MaxConcurrency = 256

	// climbSteps is how many good answers bring the rate back from nothing.
	climbSteps = 1000
	// lowestRate is where halving ends, a second.
	lowestRate = 1
	// firstLatency is assumed until the first answer: charges take 0.5 to 2 s.
	firstLatency = time.Second
	// latencyWeight is how much one answer moves the measured latency.
	latencyWeight = 0.1
)

// LimiterConfig says how fast to send.
type LimiterConfig struct {
	// Rate is the most sends a second; 0 is unlimited, and then nothing is
	// halved either.
	Rate float64
	// Concurrency is the most sends in flight; 0 lets it follow the latency.
	Concurrency int
}

// Limiter paces sends: a rate that halves when Stripe answers 429 and climbs
// back with every answer that is none, and a number of sends in flight that
// follows the latency, so that slow answers do not lower the rate.
type Limiter struct {
	full float64
	pace *rate.Limiter
	// turn lets one caller at a time wait for the pace: places that were handed
	// out before a 429 would otherwise be used at the old rate.
	turn     chan struct{}
	inFlight *gate
	auto     bool

	mu      sync.Mutex
	now     float64
	latency time.Duration
	lastCut time.Time
}

// NewLimiter makes a Limiter. At up to 100 a second no two sends are closer
// than the rate says; above that, 10 ms of sends may come at once, because
// timers are no finer.
func NewLimiter(cfg LimiterConfig) *Limiter {
	l := &Limiter{
		full: cfg.Rate, now: cfg.Rate, turn: make(chan struct{}, 1), auto: cfg.Concurrency <= 0, latency: firstLatency,
	}
	if cfg.Rate <= 0 || math.IsInf(cfg.Rate, 1) {
		l.full, l.now = math.Inf(1), math.Inf(1)
	}
	l.pace = rate.NewLimiter(rate.Limit(l.now), burst(l.full))
	l.inFlight = newGate(max(cfg.Concurrency, 1))
	if l.auto {
		l.inFlight.resize(l.wanted())
	}
	return l
}

func burst(perSecond float64) int {
	if math.IsInf(perSecond, 1) {
		return 1
	}
	return max(1, int(perSecond/100))
}

// Rate is the present rate, a second; +Inf if unlimited.
func (l *Limiter) Rate() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Concurrency is how many sends may be in flight now.
func (l *Limiter) Concurrency() int { return l.inFlight.size() }

// Wait returns when the next send may go, or with the context's error.
func (l *Limiter) Wait(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.pace.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Acquire takes a place among the sends in flight, or returns the context's
// error. Release gives it back.
func (l *Limiter) Acquire(ctx context.Context) error { return l.inFlight.acquire(ctx) }

// Release gives back a place taken by Acquire.
func (l *Limiter) Release() { l.inFlight.release() }

// Observe learns from an answer. Answers to requests that left before the last
// halving do not halve again: they are of the same burst.
func (l *Limiter) Observe(a Answer) {
	if a.HTTPStatus == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case math.IsInf(l.full, 1):
	case a.Code == "lock_timeout":
		// One object is busy: nothing about the rate.
	case a.HTTPStatus == http.StatusTooManyRequests:
		if a.ReceivedAt.Add(-a.Latency).Before(l.lastCut) {
			return
		}
		l.lastCut = a.ReceivedAt
		l.setRate(max(l.now/2, min(lowestRate, l.full)))
	case a.HTTPStatus < 500 && l.now < l.full:
		l.setRate(min(l.now+l.full/climbSteps, l.full))
	}
	l.observeLatency(a)
}

func (l *Limiter) setRate(perSecond float64) {
	l.now = perSecond
	l.pace.SetLimit(rate.Limit(perSecond))
}

// observeLatency follows the latency of answers that did work; a refusal at
// the door is quicker and would leave too few sends in flight.
func (l *Limiter) observeLatency(a Answer) {
	if !l.auto || a.Latency <= 0 || a.HTTPStatus == http.StatusTooManyRequests {
		return
	}
	l.latency += time.Duration(latencyWeight * float64(a.Latency-l.latency))
	l.inFlight.resize(l.wanted())
}

// wanted is Little's law with a factor of two to spare. It goes by the full
// rate, so that the way back up is open.
func (l *Limiter) wanted() int {
	sends := l.full * l.latency.Seconds() * 2
	if math.IsInf(l.full, 1) || sends >= MaxConcurrency {
		return MaxConcurrency
	}
	return max(MinConcurrency, int(math.Ceil(sends)))
}

// gate lets a number of holders in that may change at any time.
type gate struct {
	mu      sync.Mutex
	limit   int
	inside  int
	waiting []chan struct{}
}

func newGate(limit int) *gate { return &gate{limit: limit} }

func (g *gate) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

func (g *gate) resize(limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = limit
	g.admit()
}

func (g *gate) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	if g.inside < g.limit && len(g.waiting) == 0 {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return g.leave(ctx, turn)
	}
}

// leave takes a waiter out of the queue; one that was let in at the same moment
// gives its place to the next.
func (g *gate) leave(ctx context.Context, turn chan struct{}) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.waiting {
		if other == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	g.inside--
	g.admit()
	return ctx.Err()
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit lets in as many as there is room for, in the order in which they came.
func (g *gate) admit() {
	for g.inside < g.limit && len(g.waiting) > 0 {
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
		g.inside++
	}
}
