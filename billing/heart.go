package billing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// heart keeps a claim fresh while work gets on, and only then: a process that
// hangs must lose its claim.
type heart struct {
	pool  *pgxpool.Pool
	run   ledger.Run
	lease time.Duration
	log   *slog.Logger

	progress atomic.Int64
	// busy is held by a transaction that holds the claim's row and renews the
	// heartbeat itself.
	busy sync.Mutex
}

// alive notes that work got on: rows written, a page read, an answer, or a wait
// that is meant.
func (h *heart) alive() { h.progress.Add(1) }

func (h *heart) pause()  { h.busy.Lock() }
func (h *heart) resume() { h.busy.Unlock() }

// beat renews the claim four times a lease until ctx ends, and calls lost when
// the claim belongs to somebody else.
func (h *heart) beat(ctx context.Context, lost func(error)) {
	tick := time.NewTicker(max(h.lease/4, 50*time.Millisecond))
	defer tick.Stop()
	seen := int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := h.progress.Load()
		if now == seen || !h.busy.TryLock() {
			continue
		}
		err := h.once(ctx)
		h.busy.Unlock()
		switch {
		case err == nil:
			seen = now
		case errors.Is(err, ledger.ErrClaimLost):
			lost(ledger.ErrClaimLost)
			return
		case ctx.Err() == nil:
			// Postgres is away for a moment; the lease is the bound.
			h.log.Warn("heartbeat failed", "error", err)
		}
	}
}

func (h *heart) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.lease/2)
	defer cancel()
	return ledger.InTx(ctx, h.pool, func(tx pgx.Tx) error { return h.run.Heartbeat(ctx, tx) })
}
