package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/chargeonce/billing/ledger"
)

// app is what every command works with: the streams and how to write on them.
type app struct {
	in       io.Reader
	out, err io.Writer
	outTTY   bool
	errTTY   bool
	args     []string // as typed
	json     bool
	quiet    bool
	log      *slog.Logger
	meter    atomic.Pointer[meter]
	// run is what this process owns, for its log lines.
	run atomic.Pointer[ledger.Run]
}

// action is the work of one command. It returns what --json prints and the error
// that decides the exit code; either may be nil.
type action func(ctx context.Context, a *app, c *cli.Context) (*result, error)

// run is the whole program. It returns the exit code, whatever happens.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	a := &app{in: stdin, out: stdout, err: stderr, outTTY: isTTY(stdout), errTTY: isTTY(stderr), args: args}
	a.log = slog.New(slog.NewTextHandler(stderr, nil))
	// Nothing of ours logs by the default logger; net/http does, the beginning of an
	// answer that nobody asked for, and a client secret may be in it.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "billing: a bug: %v\n%s", p, debug.Stack())
			code = exitBug
		}
	}()
	program := &cli.App{
		Name:            "billing",
		Usage:           "charge customers once a month through Stripe, and never twice",
		Version:         version,
		Reader:          stdin,
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		// An account id may have a comma.
		DisableSliceFlagSeparator: true,
		Commands:                  a.commands(&code),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("there is no command %q; billing --help lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return usageError{err} },
		// urfave/cli would exit by itself; exit codes are decided in one place.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	if err := program.RunContext(ctx, args); err != nil {
		return a.end(nil, err, "")
	}
	return code
}

// command completes a command: common flags, refusal of positional arguments,
// and one place where results and errors are written.
func (a *app) command(code *int, cmd *cli.Command, do action) *cli.Command {
	cmd.Flags = append(cmd.Flags, commonFlags()...)
	cmd.HideHelpCommand = true
	cmd.OnUsageError = badFlag
	cmd.Action = func(c *cli.Context) error {
		if err := a.setUp(c); err != nil {
			return err
		}
		name := strings.TrimPrefix(c.Command.HelpName, "billing ")
		// A flag behind a positional argument would be swallowed silently.
		if c.Args().Present() {
			return usagef("unexpected argument %q: everything is a flag here; see billing %s --help", c.Args().First(), name)
		}
		res, err := do(c.Context, a, c)
		*code = a.end(res, endedBy(c.Context, err), name)
		return nil
	}
	return cmd
}

// badFlag says what is wrong with a flag, and for one that does not exist which may
// be meant.
func badFlag(c *cli.Context, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return usageError{err}
	}
	help := strings.TrimSpace(c.Command.HelpName) + " --help lists them"
	var names []string
	for _, f := range c.Command.Flags {
		names = append(names, f.Names()[0])
	}
	if near := nearest(name, names); near != "" {
		return usagef("there is no flag --%s; is --%s meant? %s", name, near, help)
	}
	return usagef("there is no flag --%s; %s", name, help)
}

// endedBy is the signal that ended a command, if one did: what broke off says only
// that its context ended.
func endedBy(ctx context.Context, err error) error {
	var signal interrupted
	if err != nil && errors.As(context.Cause(ctx), &signal) {
		return signal
	}
	return err
}

func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "job", Usage: "what is being billed", Value: "monthly-billing", EnvVars: []string{"BILLING_JOB"}},
		&cli.StringFlag{Name: "database-url", Usage: "Postgres; better in the environment, where ps does not show it", EnvVars: []string{"DATABASE_URL"}},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object on stdout", EnvVars: []string{"BILLING_JSON"}},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress, only warnings", EnvVars: []string{"BILLING_QUIET"}},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log more", EnvVars: []string{"BILLING_VERBOSE"}},
		&cli.StringFlag{Name: "log-format", Usage: "auto, text or json", Value: "auto", EnvVars: []string{"BILLING_LOG_FORMAT"}},
	}
}

// setUp reads the common flags.
func (a *app) setUp(c *cli.Context) error {
	a.json, a.quiet = c.Bool("json"), c.Bool("quiet")
	level := slog.LevelInfo
	switch {
	case c.Bool("verbose"):
		level = slog.LevelDebug
	case a.quiet:
		level = slog.LevelWarn
	}
	switch format := c.String("log-format"); {
	case format == "json" || format == "auto" && !a.errTTY:
		a.log = slog.New(runHandler{slog.NewJSONHandler(logWriter{a}, &slog.HandlerOptions{Level: level}), a})
	case format == "text" || format == "auto":
		a.log = slog.New(tint.NewTextHandler(logWriter{a}, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !a.colour()}))
	default:
		return usagef("--log-format %q: want auto, text or json", format)
	}
	return nil
}

// colour reports whether stderr may be coloured.
func (a *app) colour() bool {
	return a.errTTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// progress reports whether a bar may be drawn on stderr.
func (a *app) progress() bool {
	return a.errTTY && !a.quiet && os.Getenv("CI") == "" && os.Getenv("TERM") != "dumb"
}

func isTTY(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// end writes what a command came to and returns the exit code.
func (a *app) end(res *result, err error, command string) int {
	f := classify(err)
	if res == nil {
		res = &result{}
	}
	if f.code != exitOK {
		res.ExitCode, res.Outcome = f.code, f.outcome
	}
	if err != nil && f.code != exitOK {
		res.Error = &errorJSON{Code: f.name, Message: err.Error(), Hint: f.hint}
	}
	if a.json {
		res.Command = command
		if writeErr := res.write(a.out); writeErr != nil && res.ExitCode == exitOK {
			fmt.Fprintln(a.err, "billing:", writeErr)
			return exitIOError
		}
		return res.ExitCode
	}
	// Who pipes into head has seen enough, and wants no message.
	if err != nil && f.name != readerGone {
		fmt.Fprintln(a.err, "billing:", err)
		if f.hint != "" {
			fmt.Fprintln(a.err, "  ->", f.hint)
		}
	}
	return res.ExitCode
}
