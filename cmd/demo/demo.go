//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/mailemu"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/world"
)

// options are the demo's flags.
type options struct {
	billing string
	rate    int
	keep    bool
}

// run is the whole demo. It returns 0 only if everybody was charged once, all
// sides agree, and a further run sent nothing.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.billing, "billing", "", "`path` of a built program; default: build it from this checkout")
	flags.IntVar(&o.rate, "rate", 100, "requests a second to Stripe")
	flags.BoolVar(&o.keep, "keep", false, "leave Postgres and the emulator running at the end, until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 64
	}
	colourFor(stdout)
	began := time.Now()
	equal, err := play(ctx, o, stdout)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "demo: stopped; nothing is left running")
		return 130
	case err != nil:
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return 1
	case !equal:
		fmt.Fprintf(stdout, "\n%s after %s\n", bad("The sides differ"), took(began))
		return 1
	}
	fmt.Fprintf(stdout, "\n%s, in %s.\n", good("Everybody was charged once and all sides agree"), took(began))
	return 0
}

// demo is one run of the show.
type demo struct {
	options
	out     io.Writer
	world   world.World
	stripe  *stripeemu.Server
	resend  *mailemu.Resend
	wire    *tripwire
	program *program
	db      *pgx.Conn
}

// play sets the stage, runs the month and compares.
func play(ctx context.Context, o options, out io.Writer) (equal bool, err error) {
	d := &demo{options: o, out: out, world: world.Small(), wire: &tripwire{}}
	dir, err := os.MkdirTemp("", "billing-demo-")
	if err != nil {
		return false, fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	began := time.Now()
	pg, err := startPostgres(ctx, out)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pg.stop()) }()
	d.say("Postgres: %s, %s", pg.about, took(began))

	began = time.Now()
	if d.stripe, err = startStripe(d.world, d.wire); err != nil {
		return false, err
	}
	defer d.stripe.Close()
	if d.resend, err = mailemu.StartResend(); err != nil {
		return false, err
	}
	defer d.resend.Close()
	d.say("Stripe: an emulator at %s that knows %d customers, %s", d.stripe.URL(), len(d.world.Customers()), took(began))

	if err := d.prepareProgram(ctx, dir, pg.url); err != nil {
		return false, err
	}
	if d.db, err = pgx.Connect(ctx, pg.url); err != nil {
		return false, fmt.Errorf("connect to the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, d.db.Close(context.WithoutCancel(ctx))) }()

	if err = d.month(ctx); err == nil {
		equal, err = d.compare(ctx)
	}
	if o.keep && ctx.Err() == nil {
		d.wait(ctx, pg.url, err)
	}
	return equal, err
}

// prepareProgram builds the program unless one is named, and writes its files.
func (d *demo) prepareProgram(ctx context.Context, dir, databaseURL string) (err error) {
	began := time.Now()
	path := d.billing
	if path == "" {
		if path, err = build(ctx, dir); err != nil {
			return err
		}
		d.say("Program: go build ./cmd/billing, %s", took(began))
	} else if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	for name, content := range map[string][]byte{
		"accounts.csv": d.world.AccountsCSV(),
		"invoices.csv": d.world.ImportedInvoicesCSV(),
		"prices.yaml":  d.world.PricesYAML(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("write the company's files: %w", err)
		}
	}
	env := append(childEnv(), "DATABASE_URL="+databaseURL, "STRIPE_SECRET_KEY="+stripeemu.DefaultKey, "STRIPE_API_BASE="+d.stripe.URL(), ancientUsage)
	d.program = &program{path: path, dir: dir, out: d.out, env: append(env, mailEnv(d.resend)...)}
	return nil
}

// month runs the commands of a month: files in, usage counted and invoiced, a preview, a
// run that is killed in the middle, a run that finishes it, one more that must do
// nothing, and the mails.
func (d *demo) month(ctx context.Context) error {
	for _, args := range [][]string{
		{"migrate"},
		{"import", "accounts", "--file", "accounts.csv"},
		{"import", "invoices", "--period", world.Period, "--file", "invoices.csv", "--open"},
		{"import", "prices", "--file", "prices.yaml"},
	} {
		if err := d.program.mustRun(ctx, args...); err != nil {
			return err
		}
	}
	if err := d.usage(ctx); err != nil {
		return err
	}
	if err := d.program.mustRun(ctx, "preview", "--period", world.Period); err != nil {
		return err
	}
	report := misbehave(d.stripe, d.world)
	if err := d.killedRun(ctx); err != nil {
		return err
	}
	if err := d.finishingRuns(ctx); err != nil {
		return err
	}
	d.note("on the way: " + report())
	if err := d.idleRun(ctx); err != nil {
		return err
	}
	return d.mails(ctx)
}

// runArgs is the command that cron types each month.
func (d *demo) runArgs() []string {
	return []string{"run", "--period", world.Period, "--yes", "--lease", "2s", "--rate", fmt.Sprint(d.rate)}
}

// killAfter is the charge at which the first run dies. None of the accounts that
// Stripe refuses is under way then; see spareRefused.
const killAfter = 600

// killedRun starts the month and kills it with SIGKILL once Stripe has worked on
// a charge and before the program gets to know.
func (d *demo) killedRun(ctx context.Context) error {
	tripped := make(chan struct{})
	d.wire.set(killAfter, func() { close(tripped) })
	c, err := d.program.start(ctx, sentences, d.runArgs())
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	killed := make(chan error, 1)
	go func() {
		select {
		case <-tripped:
			killed <- c.kill()
		case <-ended:
			killed <- nil
		}
	}()
	code, err := c.wait()
	close(ended)
	if err := errors.Join(err, <-killed, ctx.Err()); err != nil {
		return err
	}
	if code != -1 {
		return fmt.Errorf("the first run ended with exit code %d before charge %d, at which it was to be killed", code, killAfter)
	}
	var known int
	const sqlKnown = `SELECT count(*) FROM billing.report_charges WHERE state IN ('succeeded', 'processing')`
	if err := d.db.QueryRow(ctx, sqlKnown).Scan(&known); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	d.note(fmt.Sprintf("killed in the middle: Stripe has %d payments, the ledger knows of %d", len(payments(d.stripe)), known))
	return nil
}

const (
	// exitAgain says: outcomes are still unknown, run again.
	exitAgain = 75
	// exitNeedsPerson says: all is done, but somebody must mend the five
	// charges that Stripe rejected. The company is made so.
	exitNeedsPerson = 4
)

// finishingRuns runs the month until nothing is unknown any more. Once is
// enough as a rule: the second run waits out the dead one's lease and repeats
// what was in doubt.
func (d *demo) finishingRuns(ctx context.Context) error {
	const most = 3
	for range most {
		code, err := d.program.brief(ctx, d.runArgs()...)
		if err != nil {
			return err
		}
		if code != exitAgain {
			return wantNeedsPerson(code)
		}
	}
	return fmt.Errorf("outcomes are still unknown after %d runs", most)
}

// idleRun runs the finished month once more: no charge may leave, and the exit
// code must be the same.
func (d *demo) idleRun(ctx context.Context) error {
	before := d.stripe.Posts()
	code, err := d.program.brief(ctx, d.runArgs()...)
	if err != nil {
		return err
	}
	if sent := d.stripe.Posts() - before; sent != 0 {
		return fmt.Errorf("the run of a finished month sent %d charges", sent)
	}
	d.note("not one request to charge, and the same exit code")
	return wantNeedsPerson(code)
}

func wantNeedsPerson(code int) error {
	if code != exitNeedsPerson {
		return fmt.Errorf("billing run: exit code %d, want %d: Stripe rejected some charges and a person must mend them", code, exitNeedsPerson)
	}
	return nil
}

// wait keeps the stage up for a look around, also after a failure.
func (d *demo) wait(ctx context.Context, databaseURL string, failed error) {
	if failed != nil {
		d.say("\n%s", bad(failed.Error()))
	}
	d.say("\nLeft running until Ctrl-C. To look around in another terminal:\n"+
		"  export DATABASE_URL='%s'\n  export STRIPE_SECRET_KEY=%s STRIPE_API_BASE=%s",
		databaseURL, stripeemu.DefaultKey, d.stripe.URL())
	<-ctx.Done()
}

// compare prints the table of all witnesses and says whether they agree.
func (d *demo) compare(ctx context.Context) (equal bool, err error) {
	w := witnesses{hand: byHand(), stripe: stripeSide(d.stripe)}
	if w.invoices, err = read(ctx, d.db, sqlInvoiceSums); err != nil {
		return false, err
	}
	if w.ledger, err = read(ctx, d.db, sqlLedgerSums); err != nil {
		return false, err
	}
	d.say("")
	equal = w.print(d.out)
	once, err := d.compareKeys(ctx)
	return equal && once, err
}

// compareKeys holds the ledger's paid charges against Stripe's payments one by
// one: each has exactly one, and there are no others.
func (d *demo) compareKeys(ctx context.Context) (once bool, err error) {
	const sqlPaid = `
		SELECT billing_key FROM billing.report_charges
		WHERE period = $1 AND state IN ('succeeded', 'processing')`
	rows, err := d.db.Query(ctx, sqlPaid, world.Period)
	if err != nil {
		return false, fmt.Errorf("read the paid charges: %w", err)
	}
	paid, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("read the paid charges: %w", err)
	}
	found, total := payments(d.stripe), 0
	for _, n := range found {
		total += n
	}
	once = total == len(paid)
	for _, key := range paid {
		once = once && found[key] == 1
	}
	verdict := good("yes")
	if !once {
		verdict = bad("NO")
	}
	d.say("one payment per billing key: %s (%d payments at Stripe for %d paid charges, after %d POSTs)",
		verdict, total, len(paid), d.stripe.Posts())
	return once, nil
}

// note says something about the command above it.
func (d *demo) note(text string) {
	d.say("  %s", aside(text))
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}
