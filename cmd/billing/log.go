package main

import (
	"context"
	"log/slog"

	"github.com/chargeonce/billing/ledger"
)

// runHandler adds to every line of JSON which run of which period wrote it, from the
// moment when the run owns the period. People at a terminal know.
type runHandler struct {
	slog.Handler
	a *app
}

// Handle writes one line.
func (h runHandler) Handle(ctx context.Context, line slog.Record) error {
	if run := h.a.run.Load(); run != nil {
		line = line.Clone()
		has := map[string]bool{}
		line.Attrs(func(attr slog.Attr) bool { has[attr.Key] = true; return true })
		for _, attr := range []slog.Attr{
			slog.String("period", string(run.Period)), slog.String("run_id", run.RunID.String()), slog.Int("attempt", run.Attempt),
		} {
			if !has[attr.Key] {
				line.AddAttrs(attr)
			}
		}
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs keeps the run on the lines of a derived logger.
func (h runHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return runHandler{h.Handler.WithAttrs(attrs), h.a}
}

// WithGroup keeps it too.
func (h runHandler) WithGroup(name string) slog.Handler {
	return runHandler{h.Handler.WithGroup(name), h.a}
}

// owns makes every line from now on say which run wrote it; nil ends that.
func (a *app) owns(run *ledger.Run) { a.run.Store(run) }
