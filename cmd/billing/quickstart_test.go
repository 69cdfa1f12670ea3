package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// step is one command of docs/quickstart.md, and the output that it shows.
type step struct {
	command string
	shown   []string
}

// quickstartSteps are those of its console blocks, in order.
func quickstartSteps(t testing.TB) (steps []step) {
	t.Helper()
	text, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```console\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		here := false // inside a document that the shell reads
		for _, line := range strings.Split(block[1], "\n") {
			command, isCommand := strings.CutPrefix(line, "$ ")
			switch {
			case here:
				steps[len(steps)-1].command += "\n" + line
				here = line != "END"
			case isCommand:
				steps = append(steps, step{command: command})
				here = strings.HasSuffix(command, "<<'END'")
			default:
				last := &steps[len(steps)-1]
				last.shown = append(last.shown, line)
			}
		}
	}
	return steps
}

// newcomer types the quick start: a shell in a folder of its own, with nothing set. What
// the page does to a machine as a whole (a clone, a build, a database, roles, a
// process) is done for this test alone, under names of its own.
type newcomer struct {
	*office
	dir, suffix string
	roles       []string
	code        int
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	n := &newcomer{office: emptyDatabase(t), dir: t.TempDir(), suffix: fmt.Sprintf("_%d", time.Now().UnixNano())}
	n.db.URL = n.env["DATABASE_URL"]
	grants, err := os.ReadFile("../../docs/deploy/grants.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`CREATE ROLE (\w+)`).FindAllStringSubmatch(string(grants), -1) {
		n.roles = append(n.roles, m[1])
	}
	t.Cleanup(func() {
		for _, role := range n.roles {
			n.sql("DROP OWNED BY " + role)
			n.sql("DROP ROLE " + role)
		}
	})
	n.env = map[string]string{}
	return n
}

// named writes this test's roles for those of a text.
func (n *newcomer) named(text string) string {
	for _, role := range n.roles {
		text = strings.ReplaceAll(text, role, role+n.suffix)
	}
	return text
}

// sql is what psql does for a superuser in the page's database.
func (n *newcomer) sql(text string) {
	n.t.Helper()
	conn, err := pgx.Connect(context.Background(), n.db.URL)
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), n.named(text)); err != nil {
		n.t.Fatalf("%s: %v", text, err)
	}
}

// shell gives a line to bash and returns what it wrote to stdout.
func (n *newcomer) shell(dir, line string) string {
	n.t.Helper()
	cmd := exec.Command("bash", "-c", line)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("%s: %v\n%s", line, err, stderr.String())
	}
	return string(out)
}

// set does what export does, with this test's database and Stripe for the page's.
func (n *newcomer) set(assignment string) {
	n.t.Helper()
	name, value, _ := strings.Cut(assignment, "=")
	switch name {
	case "DATABASE_URL":
		theirs, err := url.Parse(value)
		if err != nil {
			n.t.Fatal(err)
		}
		ours, err := url.Parse(n.db.URL)
		if err != nil {
			n.t.Fatal(err)
		}
		password, _ := theirs.User.Password()
		ours.User = url.UserPassword(n.named(theirs.User.Username()), password)
		value = ours.String()
	case "STRIPE_API_BASE":
		value = n.emu.URL()
	}
	n.env[name] = value
}

var psql = regexp.MustCompile(`^psql -q -d (\w+)(?: -c "(.*)")?$`)

// types does one command of the page and returns what it shows.
func (n *newcomer) types(command string) string {
	n.t.Helper()
	pipe, last, piped := strings.Cut(command, " | ")
	if !piped {
		pipe, last = "", command
	}
	words := shellWords(command)
	switch m := psql.FindStringSubmatch(last); {
	case m != nil && piped:
		n.sql(n.shell("../..", pipe))
	case m != nil && strings.HasPrefix(m[2], "CREATE DATABASE "): // emptyDatabase made one
	case m != nil:
		n.sql(m[2])
	case words[0] == "git":
		if mod, err := os.ReadFile("../../go.mod"); err != nil || !strings.Contains(string(mod), strings.TrimPrefix(words[2], "https://")+"\n") {
			n.t.Errorf("%s: go.mod has another name: %v", command, err)
		}
	case words[0] == "make":
		n.shell("../..", "make --dry-run "+words[1])
	case strings.HasPrefix(command, "go run ./"):
		n.shell("../..", "go list "+words[2]) // the office has started one
	case words[0] == "export" && strings.HasPrefix(words[1], "PATH="):
	case words[0] == "export":
		for _, assignment := range words[1:] {
			n.set(assignment)
		}
	case words[0] == "billing":
		return n.billing(words[1:])
	case command == "echo $?":
		return fmt.Sprintln(n.code)
	case words[0] == "cat":
		return n.shell(n.dir, command)
	default:
		n.t.Fatalf("the test does not know how to type %s", command)
	}
	return ""
}

// billing runs the program in the newcomer's folder.
func (n *newcomer) billing(args []string) string {
	n.t.Helper()
	for i, arg := range args {
		if strings.HasSuffix(arg, ".csv") {
			args[i] = n.dir + "/" + arg
		}
	}
	r := n.run(args...)
	n.code = r.code
	switch {
	case args[0] == "migrate":
		// Months are of last year when this test is read; its clock is the emulator's.
		n.sql(fmt.Sprintf(`CREATE OR REPLACE FUNCTION billing.now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
			AS $$ SELECT pg_catalog.clock_timestamp() + %d * INTERVAL '1 microsecond' $$`, n.emu.Offset().Microseconds()))
	case args[0] == "doctor":
		n.asksDoctor(0, args[1:])
		return r.stdout
	}
	if r.code != 0 {
		n.t.Errorf("billing %s\n%s", strings.Join(args, " "), r)
	}
	return r.stdout
}

// Whoever types the quick start from top to bottom sees what it shows, but for times, ids,
// names and addresses.
func TestTheQuickstartIsWhatIsShown(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	steps := quickstartSteps(t)
	if len(steps) < 20 {
		t.Fatalf("only %d commands", len(steps))
	}
	for _, s := range steps {
		got := strings.Split(strings.TrimRight(n.types(s.command), "\n"), "\n")
		if len(s.shown) > 0 && !n.shows(got, s.shown) {
			t.Errorf("$ %s\n--- shown by the program\n%s\n--- by the page\n%s", s.command, strings.Join(got, "\n"), strings.Join(s.shown, "\n"))
		}
	}
	n.mustBePaid()
}

// mustBePaid wants one payment for each of the two cards that work.
func (n *newcomer) mustBePaid() {
	n.t.Helper()
	live := 0
	for _, pi := range n.emu.PaymentIntents() {
		if pi.Live() {
			live++
		}
	}
	if live != 2 || n.emu.Posts() != 3 {
		n.t.Errorf("%d payments after %d POSTs, want 2 after 3", live, n.emu.Posts())
	}
}

// shows reports that the lines of the page are the program's; … stands for any number
// of lines, or for the rest of one.
func (n *newcomer) shows(got, page []string) bool {
	switch {
	case len(page) == 0:
		return len(got) == 0
	case page[0] == "…":
		return n.shows(got, page[1:]) || len(got) > 0 && n.shows(got[1:], page)
	case len(got) == 0:
		return false
	}
	want, have := plainly(page[0]), plainly(strings.NewReplacer(n.suffix, "", n.dir+"/", "", n.emu.URL(), "http://127.0.0.1:12111").Replace(got[0]))
	if beginning, cut := strings.CutSuffix(want, "…"); cut {
		return strings.HasPrefix(have, beginning) && n.shows(got[1:], page[1:])
	}
	return have == want && n.shows(got[1:], page[1:])
}

var (
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)
	owners  = regexp.MustCompile(`by \S+, process \d+`)
	rules   = regexp.MustCompile(`─+`)
	blanks  = regexp.MustCompile(` +`)
)

// plainly leaves out of a line what differs each time.
func plainly(line string) string {
	line = moments.ReplaceAllString(line, "TIME")
	line = owners.ReplaceAllString(line, "by OWNER")
	line = rules.ReplaceAllString(line, "─")
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}
