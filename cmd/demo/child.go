//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// program is the real billing binary, run as a child process, as cron would.
type program struct {
	path string
	dir  string // where it runs, and where its logs go
	env  []string
	out  io.Writer
}

// shown says whether a line of a command's output is worth showing.
type shown func(line string) bool

func everything(string) bool { return true }

// sentences leaves out tables: what a run charged is in the closing table too.
func sentences(line string) bool {
	return line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "─")
}

// build compiles the program from this checkout into dir.
func build(ctx context.Context, dir string) (path string, err error) {
	path = filepath.Join(dir, "billing")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/chargeonce/billing/cmd/billing")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program (or name a built one with --billing PATH): %w\n%s", err, output)
	}
	return path, nil
}

// run runs one command to its end, shows what it prints, and returns its exit
// code. The error is set only if it could not be run at all.
func (p *program) run(ctx context.Context, args ...string) (code int, err error) {
	return p.runShowing(ctx, everything, args)
}

// brief is run without the tables.
func (p *program) brief(ctx context.Context, args ...string) (code int, err error) {
	return p.runShowing(ctx, sentences, args)
}

func (p *program) runShowing(ctx context.Context, show shown, args []string) (code int, err error) {
	c, err := p.start(ctx, show, args)
	if err != nil {
		return 0, err
	}
	return c.wait()
}

// mustRun is run for commands of which anything but exit code 0 ends the demo.
func (p *program) mustRun(ctx context.Context, args ...string) error {
	code, err := p.run(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("billing %s: exit code %d", args[0], code)
	}
	return err
}

// child is one running command.
type child struct {
	cmd     *exec.Cmd
	out     io.Writer
	began   time.Time
	stderr  bytes.Buffer
	printed chan struct{} // closed when all of stdout has been shown
}

// start starts a command and shows the line that a person would type.
func (p *program) start(ctx context.Context, show shown, args []string) (*child, error) {
	fmt.Fprintf(p.out, "\n%s\n", command("$ billing "+strings.Join(args, " ")))
	c := &child{out: p.out, began: time.Now(), printed: make(chan struct{})}
	c.cmd = exec.CommandContext(ctx, p.path, args...)
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = p.dir, p.env, &c.stderr
	// On Ctrl-C the program may finish what is in flight, as under cron: it gets
	// one signal from here, and none from the terminal.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 10 * time.Second
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start billing: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start billing: %w", err)
	}
	go func() {
		defer close(c.printed)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if show(lines.Text()) {
				fmt.Fprintf(c.out, "  %s\n", lines.Text())
			}
		}
	}()
	return c, nil
}

// wait waits for the end and says how it ended and after how long. A killed
// process has exit code -1.
func (c *child) wait() (code int, err error) {
	<-c.printed
	err = c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("run billing: %w", err)
	}
	state := c.cmd.ProcessState
	code = state.ExitCode()
	c.showMessages()
	fmt.Fprintf(c.out, "  %s\n", aside(fmt.Sprintf("%s, %s", state, took(c.began))))
	return code, nil
}

// showMessages shows what the program said to people on stderr, and leaves out
// its log, which is JSON when no terminal is there to read it.
func (c *child) showMessages() {
	for line := range strings.Lines(c.stderr.String()) {
		if !strings.HasPrefix(line, "{") {
			fmt.Fprintf(c.out, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// kill ends the process at once, as the kernel's out-of-memory killer would.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill billing: %w", err)
	}
	return nil
}

// took says how long ago a moment was.
func took(began time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(began).Seconds())
}

// childEnv is this process's environment without what would configure the
// program or Postgres otherwise than the demo means to.
func childEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "BILLING_") || strings.HasPrefix(name, "STRIPE_") ||
			strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "DATABASE_URL")
	})
}
