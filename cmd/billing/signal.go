package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is why a context ended when somebody sent a signal.
type interrupted struct{ sig syscall.Signal }

func (e interrupted) Error() string { return "stopped by " + e.sig.String() }

// withSignals ends the context at the first SIGINT, SIGTERM or SIGHUP, so that no
// new send starts and answers in flight are recorded. A second one exits at once.
// A reader of our output that went away is an error of writing, no reason to die.
func withSignals(parent context.Context, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		first, _ := (<-signals).(syscall.Signal)
		cancel(interrupted{first})
		second, _ := (<-signals).(syscall.Signal)
		exit(128 + int(second))
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}
