// Command billing charges customers once a month through Stripe.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // a container made from scratch has no zone files
)

// version is set by the Makefile.
var version = "development"

func main() {
	ctx, stop := withSignals(context.Background(), os.Exit)
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
