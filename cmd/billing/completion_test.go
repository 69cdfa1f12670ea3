package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// runs is what the program prints, without an office.
func runs(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatalf("billing %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// The script of each shell is one that the shell takes, and names every command and
// flag. bash is everywhere; the others are asked where they are.
func TestCompletionScriptsAreTakenByTheirShells(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := runs(t, "completion", shell)
		file := filepath.Join(t.TempDir(), "billing."+shell)
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if path, err := exec.LookPath(shell); err == nil {
			if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s does not take it: %v\n%s", shell, err, out)
			}
		} else if shell == "bash" {
			t.Fatal("bash is missing: install it")
		}
		for _, words := range []string{"import accounts", "run", "reconcile", "completion fish", "doctor", "export charges"} {
			if !strings.Contains(script, "' "+words+"'") {
				t.Errorf("%s: the place behind %q is missing", shell, words)
			}
		}
		for _, flag := range []string{"max-total", "on-absent", "canary", "log-format"} {
			if !strings.Contains(script, flag) {
				t.Errorf("%s: --%s is missing", shell, flag)
			}
		}
	}
}

// In bash TAB gives the commands, the flags of the command that was typed, and the
// values of a flag where they are known.
func TestBashCompletesWhatWasTyped(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"october.csv", "a name with blanks.csv"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := runs(t, "completion", "bash")
	for typed, want := range map[string][]string{
		"imp":                              {"import"},
		"re":                               {"reconcile", "release", "requeue", "retry-declined", "resolve", "resume", "reopen"},
		"import |":                         {"--help", "accounts", "invoices", "prices", "usage"},
		"import invoices --re":             {"--replace"},
		"import invoices --file oct":       {"october.csv"},
		"import invoices --file a":         {"a name with blanks.csv"},
		"export charges --format |":        {"csv", "jsonl", "table", "xlsx"},
		"reconcile --on-absent h":          {"hold"},
		"run --period |":                   nil,
		"run --period 2026-10 --max-char":  {"--max-charge", "--max-charges"},
		"void --account run --wh":          {"--why"},
		"completion |":                     {"--help", "bash", "zsh", "fish"},
		"--v":                              {"--version"},
		"show --account import --database": {"--database-url"},
	} {
		words := strings.Fields(typed)
		if last := len(words) - 1; words[last] == "|" {
			words[last] = ""
		}
		line := "'" + strings.Join(append([]string{"billing"}, words...), "' '") + "'"
		cmd := exec.Command("bash", "-c", script+"\nCOMP_WORDS=("+line+")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_billing\nprintf '%s\\n' \"${COMPREPLY[@]}\"")
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", typed, err, out)
		}
		var got []string
		if text := strings.TrimSpace(string(out)); text != "" {
			got = strings.Split(text, "\n")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("billing %s:\n%s", typed, diff)
		}
	}
}

// The manual page has every command, flag, variable and exit code, and groff takes it.
func TestTheManualPageHasEverything(t *testing.T) {
	t.Parallel()
	page := runs(t, "man")
	a := &app{}
	var code int
	eachCommand(a.commands(&code), "billing", func(path string, cmd *cli.Command) {
		if !strings.Contains(page, ".SS "+roffQuote(path)+"\n") {
			t.Errorf("%s is missing", path)
		}
		for _, f := range cmd.Flags {
			if !strings.Contains(page, ".B "+roff("--"+f.Names()[0])) {
				t.Errorf("%s: --%s is missing", path, f.Names()[0])
			}
		}
	})
	for _, e := range exitMeanings {
		if e.meaning == "" || !slices.Contains(exitOrder, e.code) && e.code != exitOK && e.code < 128 {
			t.Errorf("exit code %d is none", e.code)
		}
	}
	if len(exitMeanings) != len(exitOrder)+2 { // 0 and the signals
		t.Errorf("%d exit codes are explained, and there are %d", len(exitMeanings), len(exitOrder)+2)
	}
	if path, err := exec.LookPath("groff"); err == nil {
		cmd := exec.Command(path, "-man", "-Tascii", "-ww", "-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "'") || strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
			t.Errorf("a line that terminals of all kinds don't show: %q", line)
		}
	}
}

// --version says what is needed to report a bug, and whoever links the program may
// say from which commit.
func TestVersionSaysWhatWasBuilt(t *testing.T) {
	text := runs(t, "--version")
	for _, want := range []string{"billing development\n", "commit ", "go1.", "Stripe API  20", "schema      version "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	commit = "0a1b2c3"
	t.Cleanup(func() { commit = "" })
	var out strings.Builder
	if code := run(t.Context(), []string{"billing", "--version"}, nil, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "\ncommit      0a1b2c3\n") {
		t.Errorf("exit %d\n%s", code, out.String())
	}
}
