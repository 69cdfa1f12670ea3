// Command stripeemu runs the Stripe emulator of fixtures/stripeemu as a process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// keyList collects a flag that may be given several times.
type keyList []string

func (k *keyList) String() string     { return strings.Join(*k, ",") }
func (k *keyList) Set(s string) error { *k = append(*k, s); return nil }

// run serves until ctx is over. It returns 0 when stopped, 64 for a mistake on
// the command line, and 1 when it could not start.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	var cfg stripeemu.Config
	flags := flag.NewFlagSet("stripeemu", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:12111", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&cfg.AccountID, "account", stripeemu.DefaultAccount, "account `id`")
	flags.Var((*keyList)(&cfg.Keys), "key", "secret `key` to accept, repeatable (default "+stripeemu.DefaultKey+")")
	flags.Var((*keyList)(&cfg.RestrictedReadOnlyKeys), "read-only-key", "restricted `key` that may only read, repeatable")
	flags.BoolVar(&cfg.AnyCustomer, "any-customer", false, "accept customers and payment methods that were not seeded")
	flags.DurationVar(&cfg.Latency, "latency", 0, "how long each POST takes")
	flags.IntVar(&cfg.LogLimit, "log-limit", 0, "requests to remember; 0 is all, -1 none")
	seed := flags.String("seed", "", "JSON `file` with customers and payment_methods")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 64
	}
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintf(stderr, "stripeemu: unexpected argument %q\n", flags.Arg(0))
		return 64
	}
	if err := serve(ctx, cfg, *addr, *seed, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "stripeemu:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, cfg stripeemu.Config, addr, seed string, stderr io.Writer) error {
	// Another process makes other ids, so that a ledger which outlives this one
	// never meets an id twice.
	cfg.Seed = uint64(time.Now().UnixNano())
	s := stripeemu.New(cfg)
	defer s.Close()
	if seed != "" {
		f, err := os.Open(seed)
		if err != nil {
			return fmt.Errorf("open the seed: %w", err)
		}
		err = s.Load(f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	url, err := s.StartAt(addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stderr, "stripeemu: listening on %s (controls: %s/_emulator/)\n", url, url)
	<-ctx.Done()
	return nil
}
