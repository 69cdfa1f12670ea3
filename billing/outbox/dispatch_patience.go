package outbox

import (
	"context"
	"time"
)

const (
	// hushRest is how long a receiver is left alone that says "too fast" and not for how long.
	hushRest = time.Second
	// longestHush is the longest such rest that a process waits out by itself.
	longestHush = 30 * time.Second
	// maxHushes is how often in a row it does. After that, "too fast" is a failure like others.
	maxHushes = 5
	// lockedPause is how long what is due and locked by somebody else is left to them, and
	// maxLocked how often in a row: a minute in all.
	lockedPause, maxLocked = 500 * time.Millisecond, 120
)

// waits sleeps until something is due, if that is soon enough. A rest for being too fast
// is no reason to end: the next process would be as fast.
func (l *lane) waits(ctx context.Context, due time.Duration, until time.Time) bool {
	if time.Now().Add(due).After(until) && !(l.tooFast.Load() && due <= longestHush) {
		return false
	}
	return sleep(ctx, due)
}

// hushed notes that the receiver finds it too fast. It reports false if that was so too
// often in a row.
func (l *lane) hushed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hushes >= maxHushes {
		return false
	}
	l.tooFast.Store(true)
	return true
}

// spares counts a refusal that may be the receiver's fault, and reports whether its
// message lives: the first few in a row are taken for what they say.
func (l *lane) spares() bool {
	l.failures.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away++
	return l.away > laneFailures || l.sick > 0
}

// took notes that the receiver has taken a message.
func (l *lane) took() {
	l.failures.Store(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.hushes = 0, 0
}
