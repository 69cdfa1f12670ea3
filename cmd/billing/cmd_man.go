package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

const manHelp = `Prints the manual page, with every command, flag and exit code.

Example:
   billing man | man -l -
   billing man > /usr/local/share/man/man1/billing.1

Exit codes: 0 printed   64 usage   74 it can't be written`

func (a *app) manCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "man", Usage: "print the manual page", Description: manHelp,
	}, func(_ context.Context, a *app, c *cli.Context) (*result, error) {
		return nil, a.emit(manPage(c))
	})
}

// exitMeanings is the list of exit codes for the manual page.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "done: nothing left to do, nobody needed"},
	{exitStopped, "stopped by a limit, a gate, a missing close or approval, or a pause; a person must decide"},
	{exitNeedsPerson, "finished, and something needs a person"},
	{exitUsage, "usage: a flag or a setting"},
	{exitBadInput, "bad data in a file or a view"},
	{exitUnreachable, "Postgres or Stripe could not be reached: run again"},
	{exitBug, "a bug: report it"},
	{exitCannotCreate, "a file could not be created"},
	{exitIOError, "a file could not be read or written"},
	{exitUnknown, "another run is at work, or outcomes are not known yet: run again"},
	{exitNoPermission, "Stripe refused the key, or Postgres the role"},
	{exitBadConfig, "configuration"},
	{130, "interrupted; 143 when terminated: run again"},
}

// manPage is the manual page in the language of man(7).
func manPage(c *cli.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH BILLING 1 \"\" %s \"User Commands\"\n", roffQuote("billing "+version))
	fmt.Fprintf(&b, ".SH NAME\nbilling \\- %s\n", roff(c.App.Usage))
	b.WriteString(".SH SYNOPSIS\n.B billing\n.I command\n[\\fIflags\\fR]\n.SH COMMANDS\n")
	eachCommand(c.App.Commands, "billing", func(path string, cmd *cli.Command) {
		fmt.Fprintf(&b, ".SS %s\n%s.\n.PP\n.nf\n", roffQuote(path), roff(cmd.Usage))
		for _, line := range strings.Split(strings.TrimRight(cmd.Description, "\n"), "\n") {
			b.WriteString(roff(line) + "\n")
		}
		b.WriteString(".fi\n")
		for _, f := range cmd.VisibleFlags() {
			if isCommon(f) || f.Names()[0] == "help" {
				continue
			}
			roffFlag(&b, f)
		}
	})
	b.WriteString(".SH FLAGS OF EVERY COMMAND\n")
	for _, f := range commonFlags() {
		roffFlag(&b, f)
	}
	b.WriteString(".SH ENVIRONMENT\nA flag counts before its variable, and that before the default. Secrets may stand in the file that NAME_FILE names.\n")
	for _, s := range settingsOf(c) {
		if s.Flag == "" && !strings.HasPrefix(s.Name, "PG") { // those depend on what is set
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(s.Name), roff("default: "+orNone(s.Default)))
		}
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.code, roff(e.meaning))
	}
	return b.String()
}

func isCommon(f cli.Flag) bool {
	for _, common := range commonFlags() {
		if common.Names()[0] == f.Names()[0] {
			return true
		}
	}
	return false
}

// roffFlag is one flag with its variable and default.
func roffFlag(b *strings.Builder, f cli.Flag) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	name := "--" + f.Names()[0]
	for _, alias := range f.Names()[1:] {
		name += ", -" + alias
	}
	text := doc.GetUsage()
	if value := doc.GetValue(); doc.TakesValue() && value != "" {
		text += " (" + value + ")"
	}
	if env := doc.GetEnvVars(); len(env) > 0 {
		text += "; " + env[0]
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roff(text))
}

// roff makes text of a line: no character of it is an order.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "…", "...", "→", "->").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func roffQuote(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
