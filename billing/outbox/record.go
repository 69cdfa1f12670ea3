package outbox

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

const (
	// The waits between the tries of one message: half a minute, doubled each time.
	firstWait, longestWait = 30 * time.Second, 6 * time.Hour
	// The rests of a receiver that fails.
	firstRest, longestRest = time.Second, 15 * time.Minute
	// recordPatience is how long the outcome of sends is kept while Postgres is away.
	// After it, they are unknown.
	recordPatience = time.Minute
)

// backOff is how long a message waits after its n-th try, from 1.
func backOff(n int) time.Duration { return doubled(firstWait, longestWait, n) }

// restFor is how long a receiver rests after the n-th failure in a row, from 1.
func restFor(n int) time.Duration { return doubled(firstRest, longestRest, n) }

// doubled has jitter, so that what failed together does not come back together.
func doubled(first, longest time.Duration, n int) time.Duration {
	d := first
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}
	d = min(d, longest)
	return d/2 + rand.N(d/2+1)
}

// record writes what a group came to, and how the receiver is, in one transaction. It
// does so whatever became of ctx: these messages were sent.
func (l *lane) record(ctx context.Context, tries []ledger.Try, rest time.Duration) error {
	slices.SortFunc(tries, func(a, b ledger.Try) int { return int(a.ID - b.ID) })
	hushed := l.tooFast.Load()
	if hushed {
		rest = max(rest, hushRest)
	}
	fails := l.fails() || rest > 0 && !hushed
	if fails {
		rest = max(rest, restFor(l.failuresSoFar()+1))
	}
	well := slices.ContainsFunc(tries, func(t ledger.Try) bool { return t.End == ledger.TrySent }) && rest == 0
	var done ledger.TriesRecorded
	err := whileAway(ctx, func(ctx context.Context) error {
		return ledger.InQueueTx(ctx, l.d.pool, func(tx pgx.Tx) (err error) {
			if done, err = ledger.RecordTries(ctx, tx, l.d.owner, l.d.options.GiveUp, tries); err != nil {
				return err
			}
			switch {
			case l.gone.Load():
				return ledger.StopLane(ctx, tx, l.name, "gone")
			case fails:
				return ledger.RestLane(ctx, tx, l.name, rest)
			case rest > 0:
				return ledger.PauseLane(ctx, tx, l.name, rest)
			case well && l.failuresSoFar() > 0:
				return ledger.LaneIsWell(ctx, tx, l.name)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.report.Sent += done.Sent
	l.report.Queued += done.Queued
	l.report.Dead += done.Dead
	l.report.Unknown += done.Unknown
	if well {
		l.sick = 0
	}
	l.mu.Unlock()
	if fails {
		l.failures.Store(max(l.failures.Load(), laneFailures))
		l.d.options.Log.Warn("the receiver is left alone for a while", "lane", l.name, "for", rest.Round(time.Second))
	}
	l.d.options.Progress(l.name, done)
	return nil
}

func (l *lane) failuresSoFar() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sick
}

// whileAway repeats do while Postgres can't be reached, and ends it after an interrupt
// only when that took too long.
func whileAway(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordPatience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil || !ledger.IsUnreachable(err) || !sleep(ctx, 500*time.Millisecond) {
			return err
		}
	}
}

// sleep reports false if the context ended it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
