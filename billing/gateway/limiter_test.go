package gateway

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pass counts how many sends go through the limiter in d, sent by n senders
// that take a while for each.
func pass(t *testing.T, l *Limiter, n int, d, each time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var sent atomic.Int64
	var senders sync.WaitGroup
	for range n {
		senders.Go(func() {
			for l.Acquire(ctx) == nil {
				if l.Wait(ctx) == nil {
					sent.Add(1)
					time.Sleep(each)
				}
				l.Release()
			}
		})
	}
	senders.Wait()
	return int(sent.Load())
}

// The configured rate is what comes out, to one percent, whatever the latency.
func TestLimiterKeepsTheRate(t *testing.T) {
	for _, test := range []struct {
		rate    float64
		latency time.Duration
		span    time.Duration
	}{
		{25, 300 * time.Millisecond, time.Minute}, {25, 3 * time.Second, time.Minute},
		{100, 2 * time.Millisecond, 20 * time.Second}, {100, time.Second, 20 * time.Second},
		{20_000, time.Millisecond, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := NewLimiter(LimiterConfig{Rate: test.rate, Concurrency: 400})
			want := test.rate * test.span.Seconds()
			if got := pass(t, l, 400, test.span, test.latency); math.Abs(float64(got)-want) > want/100 {
				t.Errorf("%v/s at %v: %d sends in %v, want %.0f", test.rate, test.latency, got, test.span, want)
			}
		})
	}
}

// No second has more sends than Stripe's limit allows, also after a pause.
func TestLimiterNeverBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{Rate: 25})
		time.Sleep(time.Hour)
		var last time.Time
		for range 50 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now := time.Now(); !last.IsZero() && now.Sub(last) < 39*time.Millisecond {
				t.Fatalf("two sends within %v", now.Sub(last))
			} else {
				last = now
			}
		}
	})
}

func answered(status int, code string, latency time.Duration) Answer {
	return Answer{HTTPStatus: status, Code: code, ReceivedAt: time.Now(), Latency: latency}
}

// A 429 halves the rate, once for all requests that were under way; good
// answers bring it back; it never falls to nothing.
func TestLimiterHalvesAndClimbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{Rate: 100})
		time.Sleep(time.Second)
		for range 20 {
			l.Observe(answered(429, "rate_limit", 100*time.Millisecond))
		}
		if l.Rate() != 50 {
			t.Fatalf("rate %v after one burst of 429, want 50", l.Rate())
		}
		time.Sleep(time.Second)
		l.Observe(answered(429, "lock_timeout", 100*time.Millisecond))
		if l.Rate() != 50 {
			t.Fatalf("rate %v after a lock timeout, which is about one object", l.Rate())
		}
		for range 501 {
			l.Observe(answered(200, "", 100*time.Millisecond))
		}
		if l.Rate() != 100 {
			t.Fatalf("rate %v after 501 good answers, want 100", l.Rate())
		}
		for range 100 {
			time.Sleep(time.Second)
			l.Observe(answered(429, "rate_limit", 100*time.Millisecond))
		}
		if l.Rate() != lowestRate {
			t.Fatalf("rate %v after 429 without end", l.Rate())
		}
	})
}

// After a halving no send goes at the old rate, however many were waiting.
func TestLimiterSlowsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{Rate: 100, Concurrency: 200})
		done := make(chan int)
		go func() { done <- pass(t, l, 200, 11*time.Second, time.Second) }()
		time.Sleep(time.Second)
		l.Observe(answered(429, "rate_limit", time.Millisecond))
		if sent := <-done; sent < 595 || sent > 605 {
			t.Errorf("%d sends in 1 s at 100/s and 10 s at 50/s", sent)
		}
	})
}

func TestLimiterWithoutARate(t *testing.T) {
	for _, rate := range []float64{0, math.Inf(1)} {
		l := NewLimiter(LimiterConfig{Rate: rate})
		l.Observe(answered(429, "rate_limit", time.Millisecond))
		for range 1000 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !math.IsInf(l.Rate(), 1) || l.Concurrency() != MaxConcurrency {
			t.Errorf("rate %v, concurrency %d", l.Rate(), l.Concurrency())
		}
	}
}

// The number in flight follows the latency, so that slow answers do not lower
// the rate, within its bounds.
func TestConcurrencyFollowsTheLatency(t *testing.T) {
	for _, test := range []struct {
		rate    float64
		latency time.Duration
		want    int
	}{
		{25, 200 * time.Millisecond, 10}, {25, 2 * time.Second, 100}, {25, time.Millisecond, MinConcurrency},
		{100, 30 * time.Second, MaxConcurrency}, {1, 100 * time.Millisecond, MinConcurrency},
	} {
		l := NewLimiter(LimiterConfig{Rate: test.rate})
		for range 200 {
			l.Observe(answered(200, "", test.latency))
		}
		if got := l.Concurrency(); got < test.want || got > test.want+1 {
			t.Errorf("%v/s at %v: %d in flight, want %d", test.rate, test.latency, got, test.want)
		}
	}
	l := NewLimiter(LimiterConfig{Rate: 25, Concurrency: 3})
	l.Observe(answered(200, "", time.Minute))
	if l.Concurrency() != 3 {
		t.Errorf("a fixed concurrency became %d", l.Concurrency())
	}
}

// However the limit moves and whoever gives up, no place is lost or doubled.
func TestGateCountsItsHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4)
		var inside, most atomic.Int64
		var holders sync.WaitGroup
		for i := range 300 {
			holders.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7+1)*time.Second)
				defer cancel()
				if g.acquire(ctx) != nil {
					return
				}
				now := inside.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
				inside.Add(-1)
				g.release()
			})
		}
		time.Sleep(time.Second)
		g.resize(9)
		holders.Wait()
		if most.Load() > 9 || g.inside != 0 || len(g.waiting) != 0 {
			t.Errorf("most %d, inside %d, waiting %d", most.Load(), g.inside, len(g.waiting))
		}
		g.resize(1)
		if err := g.acquire(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkLimiterAt20000(b *testing.B) {
	l := NewLimiter(LimiterConfig{Rate: 20_000})
	b.SetParallelism(32)
	b.RunParallel(func(next *testing.PB) {
		for next.Next() {
			if l.Acquire(b.Context()) != nil || l.Wait(b.Context()) != nil {
				return
			}
			l.Observe(Answer{HTTPStatus: 200, Latency: time.Millisecond, ReceivedAt: time.Now()})
			l.Release()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}
