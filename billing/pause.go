package billing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// pauseEvery is how often a run that is sending asks whether somebody paused it.
// Claims ask by themselves.
const pauseEvery = 250 * time.Millisecond

// pauses are the accounts that must not be sent, "" for all.
type pauses struct {
	now atomic.Pointer[map[string]bool]
	// reading is held while they are read and stored, so that an older reading never
	// takes the place of a newer one.
	reading sync.Mutex
}

func (p *pauses) has(account string) bool {
	set := p.now.Load()
	return set != nil && ((*set)[""] || (*set)[account])
}

// read reads them anew.
func (p *pauses) read(ctx context.Context, q ledger.Querier, job ledger.Job) error {
	p.reading.Lock()
	defer p.reading.Unlock()
	list, err := ledger.OpenPauses(ctx, q, job)
	if err != nil {
		return err
	}
	set := make(map[string]bool, len(list))
	for _, one := range list {
		set[one.AccountID] = true
	}
	p.now.Store(&set)
	return nil
}

// watchPauses keeps the pauses fresh for what is claimed and not sent yet.
func (s *sender) watchPauses(ctx context.Context) {
	defer s.r.recoverBug("watching for pauses", s.halt)
	for sleep(ctx, pauseEvery) == nil {
		_ = s.paused.read(ctx, s.r.pool, s.r.run.Job) // the next claim reads them patiently
	}
}

func (s *sender) readPauses(ctx context.Context) error {
	return s.r.patiently(ctx, "look for pauses", func(ctx context.Context) error {
		return s.paused.read(ctx, s.r.pool, s.r.run.Job)
	})
}

// allowed gives back what somebody paused, and returns the rest of a chain.
func (s *sender) allowed(chain []claimed) []claimed {
	kept := chain[:0:0]
	for _, c := range chain {
		if s.paused.has(c.AccountID) {
			s.giveBack([]claimed{c})
		} else {
			kept = append(kept, c)
		}
	}
	return kept
}
