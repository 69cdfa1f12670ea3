//go:build unix

// Demo runs one whole month of a small company on this machine: a Postgres of its
// own, an emulated Stripe that misbehaves, the real program, a kill in the middle,
// and the mails. It ends with a table that says whether everybody was charged once.
//
//	go run ./cmd/demo
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// SIGPIPE too: `demo | head` must not leave servers behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
