package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// page is a document of docs, by its headings.
type page struct {
	sections []section
	links    []string // to headings of the same page
}

// section is a heading, what stands under it up to the next one, and the commands in
// its blocks and inside its sentences.
type section struct {
	chapter, heading, text string
	blocks, inline         [][]string
}

// readRunbook reads docs/runbook.md.
func readRunbook(t testing.TB) (p page) {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
		p.links = append(p.links, m[1])
	}
	fenced, chapter := false, ""
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if !fenced && strings.HasPrefix(line, "#") {
			if strings.HasPrefix(line, "## ") {
				chapter = line
			}
			p.sections = append(p.sections, section{chapter: chapter, heading: line})
			continue
		}
		s := &p.sections[len(p.sections)-1]
		if s.text += line + "\n"; fenced {
			command, _, _ := strings.Cut(line, "  #")
			s.blocks = appendCommand(s.blocks, command)
		}
	}
	for i := range p.sections {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(p.sections[i].text, -1) {
			p.sections[i].inline = appendCommand(p.sections[i].inline, m[1])
		}
	}
	return p
}

func appendCommand(list [][]string, line string) [][]string {
	if words := shellWords(line); len(words) > 1 && words[0] == "billing" {
		list = append(list, words[1:])
	}
	return list
}

// names are the words in code of the headings of a chapter.
func (p page) names(chapter string) (names []string) {
	for _, s := range p.sections {
		if s.chapter == chapter && s.heading != chapter {
			for _, m := range regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(s.heading, -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return names
}

// inSource are the words that a pattern's group finds in the program, tests left out.
func inSource(t testing.TB, dirs []string, patterns ...string) (words []string) {
	t.Helper()
	for _, dir := range dirs {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, pattern := range patterns {
				for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
					if !strings.HasSuffix(file, "_test.go") {
						words = append(words, m[1])
					}
				}
			}
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// Whatever pages somebody has a heading: each exit code, guard, kind of finding and
// alert, and nothing that is not there any more.
func TestTheRunbookHasAHeadingForEachCause(t *testing.T) {
	t.Parallel()
	p := readRunbook(t)
	own := []string{"billing", "reconcile", "ledger", "cmd/billing"}
	gates := inSource(t, own, `Gate:\s*"([a-z_]+)"`, `Violation\{\{?"([a-z_]+)"`, `\badd\([^"\n]*, "([a-z_]+)", "--`)
	if diff := cmp.Diff(gates, p.names("## Stopped (3)")); diff != "" {
		t.Errorf("guards (-program +runbook):\n%s", diff)
	}
	kinds := inSource(t, own, `\bKind:\s+"([a-z_]+)"`, `\.finding\([^"\n]*"([a-z_]+)"`, `(?s)INSERT INTO billing\.findings [^;]*?SELECT '([a-z_]+)'`, `Finding[A-Z]\w+\s+= "([a-z_]+)"`)
	if diff := cmp.Diff(kinds, p.names("## Findings")); diff != "" {
		t.Errorf("kinds of findings (-program +runbook):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(kinds)), slices.Sorted(slices.Values(findingKinds))); diff != "" {
		t.Errorf("kinds that findings --kind takes (-opened +taken):\n%s", diff)
	}
	if diff := cmp.Diff(alertNames(t), p.names("## Alerts")); diff != "" {
		t.Errorf("alerts (-rules +runbook):\n%s", diff)
	}
	codes := inSource(t, []string{"cmd/billing"}, `(?m)^\texit[A-Z][A-Za-z]+ += ([0-9]+)$`)
	codes = append(codes, "130", "143", "137") // of signals; the last is the system's own
	var documented []string
	for _, s := range p.sections {
		if s.chapter == "## Exit codes" && s.heading != s.chapter {
			documented = append(documented, regexp.MustCompile(`[0-9]+`).FindAllString(s.heading, -1)...)
		}
	}
	slices.Sort(codes)
	slices.Sort(documented)
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("exit codes (-program +runbook):\n%s", diff)
	}
}

func alertNames(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	slices.Sort(names)
	return names
}

// Each cause says what it means, where to look, what to type and what never to do;
// each error.code stands under its exit code; every link leads somewhere.
func TestTheRunbookSaysWhatToDoAboutEachCause(t *testing.T) {
	t.Parallel()
	p := readRunbook(t)
	anchors := map[string]bool{}
	exits := ""
	for _, s := range p.sections {
		anchors[anchor(s.heading)] = true
		if s.heading == s.chapter || !slices.Contains([]string{"## Exit codes", "## Stopped (3)", "## Findings", "## Alerts"}, s.chapter) {
			continue
		}
		if s.chapter == "## Exit codes" {
			exits += s.text
		}
		for _, word := range []string{"**Means**", "**Look**", "**Type**", "**Never**"} {
			if !strings.Contains(s.text, word) {
				t.Errorf("%s has no %s", s.heading, word)
			}
		}
	}
	for _, code := range inSource(t, []string{"cmd/billing", "billing"}, `failure\{[^,\n]+, "[a-z_]+", "([a-z_]+)"`, `\bCode:\s+"([a-z_]+)"`, `cmp\.Or\(person\.Code, "([a-z_]+)"`) {
		if !strings.Contains(exits, "`"+code+"`") {
			t.Errorf("no exit code of the runbook names the error.code %s", code)
		}
	}
	for _, link := range p.links {
		if !anchors[link] {
			t.Errorf("a link leads to #%s, which is no heading", link)
		}
	}
}

// anchor is a heading's, as GitHub makes it.
func anchor(heading string) string {
	text := strings.ToLower(strings.TrimLeft(heading, "# "))
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(text, ""), " ", "-")
}

// Every command of the runbook, also inside its sentences, is one that the program
// has, with flags that it knows and values that they take.
func TestEveryCommandOfTheRunbookIsOneOfTheProgram(t *testing.T) {
	t.Parallel()
	o := &office{t: t}
	seen := map[string]bool{}
	for _, s := range readRunbook(t).sections {
		for _, command := range append(s.blocks, s.inline...) {
			line := strings.Join(command, " ")
			if seen[line] || command[len(command)-1] == "--help" {
				continue
			}
			seen[line] = true
			// Help is what a command prints once all its flags were read.
			if r := o.run(append(command, "--help")...); r.code != 0 || !strings.Contains(r.stdout, "OPTIONS:") {
				t.Errorf("%s: billing %s\n%s", s.heading, line, r)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d commands were found", len(seen))
	}
}

// situation is what a section of the runbook is for: how to come into it, the files
// that stand there by name, and what its commands end with.
type situation struct {
	// into builds it. What it returns is done before each command.
	into  func(o *office) (before func(command []string))
	files map[string]string
	codes []int
	// in names the test of wayback_test.go that types this section already.
	in string
}

// plain is a situation without anything between its commands.
func plain(into func(o *office)) func(*office) func([]string) {
	return func(o *office) func([]string) { into(o); return nil }
}

// two are the accounts of the runbook and one more.
func two() []customer { return debtors("acct-1003", "acct-1004", "good") }

// moved gives the first of a list another customer at Stripe.
func moved(list []customer) []customer {
	list[0].customer = "cus_right"
	return list
}

// once does something when a command comes up.
func once(name string, do func()) func([]string) {
	return func(command []string) {
		if command[0] == name {
			do()
			name = ""
		}
	}
}

// situations are those of every section that has a block of commands.
var situations = map[string]situation{
	"# Runbook": {into: plain(func(o *office) {
		o.imports(october, two())
		o.month(0)
	}), codes: []int{0, 0, 0}},
	"### Exit 4": {into: plain((*office).rejectedOnes), codes: []int{0, 0, 0}, files: map[string]string{"charges.csv": ""}},
	"### Exit 65": {into: plain(func(o *office) {
		o.imports(october, two())
		o.must(65, "import", "invoices", "--period", october, "--replace", "--file", o.file("october.csv", "account_id,amount,currency\nacct-1003,ten,usd\n"))
	}), files: map[string]string{"october.csv": invoicesCSV(two())}, codes: []int{0, 0, 0}},
	"### Exit 69": {into: func(o *office) func([]string) {
		o.imports(october, two())
		good := o.env["DATABASE_URL"]
		o.env["DATABASE_URL"] = "postgres://billing@127.0.0.1:1/app"
		o.month(69)
		return once("run", func() { o.env["DATABASE_URL"] = good })
	}, codes: []int{69, 0}},
	"### Exit 73, 74": {into: plain(func(o *office) {
		o.imports(october, two())
		o.month(0)
		o.must(73, "export", "charges", "--period", october, "--output", "/nonexistent/charges.csv")
	}), files: map[string]string{"charges.csv": ""}, codes: []int{0}},
	"### Exit 75": {into: func(o *office) func([]string) {
		o.imports(october, two())
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHoldRequest, Method: "POST"})
		o.start("run", "--period", october)
		eventually(o.t, "a run is at work", func() bool { return o.emu.Held() > 0 })
		o.month(75, "--wait", "0s")
		return once("run", func() { o.emu.ClearFaults(); o.emu.Release() })
	}, codes: []int{0, 0}},
	"### Exit 77": {into: func(o *office) func([]string) {
		o.imports(october, two())
		good := o.env["STRIPE_SECRET_KEY"]
		o.env["STRIPE_SECRET_KEY"] = "sk_test_revoked"
		o.month(77)
		return once("run", func() { o.env["STRIPE_SECRET_KEY"] = good })
	}, codes: []int{77, 0}},
	"### Exit 78": {into: plain(func(o *office) {
		o.imports(october, two())
		o.env["STRIPE_SECRET_KEY"] = "sk_live_x"
		o.month(78)
	}), codes: []int{78, 0, 0}},
	"### Exit 137": {into: plain(func(o *office) {
		o.imports(october, two())
		o.recordedOnly()
	}), codes: []int{0, 0}},
	"### Rejected": {into: plain((*office).rejectedOnes), files: map[string]string{"mended.csv": accountsCSV(moved(two()))}, codes: []int{0, 0, 4, 0}},
	"### Held":     {into: plain(func(o *office) { o.heldOnes("acct-1003", "acct-1004") }), codes: []int{4, 0, 0, 0}},
	"### Review": {into: plain(func(o *office) {
		o.imports(october, two())
		o.meets(faults{"acct-1003": stripeemu.FaultLoseRequest})
		o.addIntent("acct-1003", "requires_payment_method", 999)
		o.advance(26 * time.Hour)
		o.month(4)
		if got := o.state("acct-1003"); got != "review" {
			o.t.Errorf("it is %s", got)
		}
	}), codes: []int{0, 0, 4}},
	"### Past the window": {into: plain(func(o *office) {
		o.imports(october, two())
		o.meets(faults{"acct-1003": stripeemu.FaultLoseAnswer, "acct-1004": stripeemu.FaultRateLimit429})
		o.advance(26 * time.Hour)
	}), codes: []int{75, 4}},
	"## The ledger is older than Stripe": {into: plain(func(o *office) {
		o.imports(october, two())
		backup := o.db.Snapshot(o.t)
		o.month(0)
		o.db.RestoreSnapshot(o.t, backup)
		o.advance(3 * time.Hour)
		if r := o.month(3, "--json"); r.json(o.t).Error.Code != "ledger_older_than_stripe" {
			o.t.Errorf("%s", r)
		}
	}), codes: []int{75, 0, 0}},

	"## Stopped (3)":                            {in: "TestAGateThatStopped"},
	"## Stop everything":                        {in: "TestStopEverything"},
	"### A wrong amount, found before the run":  {in: "TestAWrongAmountFoundBeforeTheRun"},
	"### A wrong amount, found before the send": {in: "TestAWrongAmountFoundBeforeTheSend"},
	"### A wrong amount, found after the send":  {in: "TestAWrongAmountFoundAfterTheSend"},
	"### A card added on the 2nd":               {in: "TestACardAddedOnTheSecond"},
	"### A customer who must not be charged":    {in: "TestACustomerWhoMustNotBeCharged"},
	"## A late invoice":                         {in: "TestAnInvoiceThatCameLate"},
}

// rejectedOnes leaves a done October in which Stripe refused two customers.
func (o *office) rejectedOnes() {
	o.t.Helper()
	list := two()
	for _, c := range list[:2] {
		o.emu.AddCustomer(stripeemu.Customer{ID: c.customer, Deleted: true})
	}
	o.imports(october, list)
	o.month(4)
	o.is("acct-1003", "rejected resource_missing")
	o.advance(20 * time.Minute) // no request is on its way any more
}

// Every block of commands is typed, from top to bottom, by somebody who is in the
// situation that its heading describes. It ends as the runbook says, and nobody is
// charged twice by it.
func TestTheRunbookIsTypedInEachSituation(t *testing.T) {
	t.Parallel()
	wayback, err := os.ReadFile("wayback_test.go")
	if err != nil {
		t.Fatal(err)
	}
	left := len(situations)
	for _, s := range readRunbook(t).sections {
		if len(s.blocks) == 0 {
			continue
		}
		is, there := situations[s.heading]
		switch left--; {
		case !there:
			t.Errorf("%s has commands, and no situation in which they are typed", s.heading)
			continue
		case is.in != "":
			if !strings.Contains(string(wayback), "func "+is.in+"(") {
				t.Errorf("%s should be typed by %s, which is gone", s.heading, is.in)
			}
			continue
		}
		t.Run(strings.TrimLeft(s.heading, "# "), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.types(s, is)
			o.mustBeWhole()
		})
	}
	if left != 0 {
		t.Errorf("%d situations have no section, or the other way round", left)
	}
}

// types comes into a situation and types a section.
func (o *office) types(s section, is situation) {
	o.t.Helper()
	if len(s.blocks) != len(is.codes) {
		o.t.Fatalf("%s has %d commands, want %d: %v", s.heading, len(s.blocks), len(is.codes), s.blocks)
	}
	before := is.into(o)
	for i, command := range s.blocks {
		for j, word := range command {
			if text, there := is.files[word]; there {
				command[j] = o.file(word, text)
			}
		}
		if before != nil {
			before(command)
		}
		if command[0] == "doctor" {
			o.asksDoctor(is.codes[i], command[1:])
			continue
		}
		o.must(is.codes[i], command...)
	}
}

// asksDoctor wants an exit code, but for what is so in every test: a Postgres that
// does not sync its files.
func (o *office) asksDoctor(code int, args []string) {
	o.t.Helper()
	r, checks := o.doctor(args...)
	wrong := notOK(checks)
	wrong = slices.DeleteFunc(wrong, func(one string) bool {
		return !strings.HasSuffix(one, " "+statusFail) || one == "durability "+statusFail
	})
	// 78 of the durability comes before 77 and 69.
	if (code == 0) != (len(wrong) == 0) || r.code != code && r.code != exitBadConfig {
		o.t.Errorf("doctor: %v, want exit %d\n%s", wrong, code, r)
	}
}
