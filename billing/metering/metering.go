// Package metering counts usage: what arrived in billing.usage_events since the last time goes
// into the days of billing.daily_usage. The rules are in package ledger, next to their
// SQL; here is the order of steps, each a transaction of its own.
package metering

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

const (
	// DefaultFuture is how long after it was received an event may have occurred:
	// clocks differ.
	DefaultFuture = time.Hour
	// DefaultAncient is how long before it was received an event may have occurred.
	DefaultAncient = 400 * 24 * time.Hour
	// chunkEvents is about how many events of a range are counted in one transaction. Days
	// are never cut, so that none is read for two of them.
	chunkEvents = 2_000_000
)

// Meter counts the usage of one job.
type Meter struct {
	Pool  *pgxpool.Pool
	Range ledger.MeterRange
	// Chunk, if above zero, is another size of a step than the default, in events.
	Chunk int64
}

// Result is what a meter did, also one that was broken off.
type Result struct {
	ledger.Judged
	// Rows are the events that arrived and that this meter looked at: counted, set aside, or carried.
	Rows int64
	// Finished says that the range of a meter that was broken off had to be finished first. What
	// that one had set aside is among SetAside, and not among Rows.
	Finished bool
	// CountedDays and CountedEvents are what this meter counted. Another one may have
	// counted a part of its range.
	CountedDays, CountedEvents int64
	Watermark                  ledger.Watermark
}

// Run finishes the range under work if there is one, takes what arrived since, and counts
// it. Broken off anywhere, the next one goes on where it stopped. Two at once do the
// work of one: each step locks the watermark. It returns a *ledger.ZoneError or a
// *ledger.ClusterError where counting would be wrong.
func (m Meter) Run(ctx context.Context) (done Result, err error) {
	taken := false
	var target *uint64 // the end of the range that this meter took, or has told of
	var events int64   // of the range, for the progress
	for {
		step, err := m.step(ctx, taken, target)
		if err != nil {
			return done, err
		}
		done.Watermark, target = step.after, cmp.Or(step.after.TargetXID, target)
		switch {
		case step.judged != nil:
			before := done.SetAside // of the range that was finished first
			taken, done.Judged, events = true, *step.judged, step.judged.Events
			done.Rows += done.Judged.Repeats + done.SetAsideTotal()
			for _, c := range done.Carried {
				done.Rows += c.Count
			}
			done.addSetAside(before)
		case step.counted != nil:
			done.Finished = done.Finished || !taken
			done.CountedDays += step.counted.Days
			done.CountedEvents += step.counted.Events
			done.Rows += step.counted.Events
			for _, c := range step.counted.SetAside {
				done.Rows += c.Count
			}
			done.addSetAside(step.found)
			done.addSetAside(step.counted.SetAside)
			events = max(events, step.counted.Done+step.counted.Left)
			m.tell(events-step.counted.Left, events)
		default:
			return done, nil
		}
	}
}

func (m Meter) tell(done, total int64) {
	if m.Range.Progress != nil {
		m.Range.Progress("count", done, total)
	}
}

// step is what one transaction did: it took a range, counted some days, or had nothing to do.
type step struct {
	judged  *ledger.Judged
	counted *ledger.CountedDays
	// found is what another meter had set aside of its range. It may have been killed before
	// it could say so.
	found []ledger.ReasonCount
	after ledger.Watermark
}

func (m Meter) step(ctx context.Context, taken bool, target *uint64) (s step, err error) {
	err = ledger.InTx(ctx, m.Pool, func(tx pgx.Tx) error {
		s = step{}
		// Before the transaction writes anything: what was received until now is of
		// transactions that are older than this one.
		at, err := ledger.Now(ctx, tx)
		if err != nil {
			return err
		}
		w, err := ledger.TakeWatermark(ctx, tx, m.Range.MeterTerms)
		if err != nil {
			return err
		}
		switch {
		case w.Unfinished():
			if target == nil || *target != *w.TargetXID {
				if s.found, err = ledger.SetAsideOfRange(ctx, tx, w); err != nil {
					return err
				}
			}
			counted, err := ledger.CountDays(ctx, tx, w, m.Range.MeterTerms, m.chunk())
			if err != nil {
				return err
			}
			s.counted = &counted
		case !taken:
			judged, err := ledger.TakeRange(ctx, tx, w, at, m.Range)
			if err != nil {
				return err
			}
			s.judged = &judged
		}
		s.after, err = ledger.ReadWatermark(ctx, tx, m.Range.Job)
		return err
	})
	return s, err
}

func (m Meter) chunk() int64 {
	if m.Chunk > 0 {
		return m.Chunk
	}
	return chunkEvents
}

// errTried takes back what a try did.
var errTried = errors.New("taken back")

// Try is Run without its effect: it says what would be set aside, carried and counted. The
// range of a meter that was broken off is left to Run, and nothing can be said then.
func (m Meter) Try(ctx context.Context) (done Result, err error) {
	m.Range.JudgeAll = true
	err = ledger.InTx(ctx, m.Pool, func(tx pgx.Tx) error {
		done = Result{}
		at, err := ledger.Now(ctx, tx)
		if err != nil {
			return err
		}
		if done.Watermark, err = ledger.TakeWatermark(ctx, tx, m.Range.MeterTerms); err != nil {
			return err
		}
		if done.Finished = done.Watermark.Unfinished(); !done.Finished {
			if done.Judged, err = ledger.TakeRange(ctx, tx, done.Watermark, at, m.Range); err != nil {
				return err
			}
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		err = nil
	}
	return done, err
}

// addSetAside adds what was set aside elsewhere than where the range was taken.
func (r *Result) addSetAside(list []ledger.ReasonCount) {
	for _, c := range list {
		i := slices.IndexFunc(r.SetAside, func(s ledger.ReasonCount) bool { return s.Reason == c.Reason })
		if i < 0 {
			r.SetAside = append(r.SetAside, c)
		} else {
			r.SetAside[i].Count += c.Count
		}
	}
}

// SetAsideTotal is how many events were newly set aside for people to decide about.
func (r Result) SetAsideTotal() (n int64) {
	for _, c := range r.SetAside {
		n += c.Count
	}
	return n
}

// Reasons are the reasons of what was set aside, in the order in which they are judged.
func (r Result) Reasons() []ledger.ReasonCount {
	list := slices.Clone(r.SetAside)
	slices.SortFunc(list, func(a, b ledger.ReasonCount) int {
		if d := slices.Index(ledger.UsageReasons, a.Reason) - slices.Index(ledger.UsageReasons, b.Reason); d != 0 {
			return d
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	return list
}
