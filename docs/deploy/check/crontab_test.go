package check

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/robfig/cron/v3"
)

// cronLine is a line of a file in /etc/cron.d: five fields, the user, the command.
var cronLine = regexp.MustCompile(`^((?:\S+\s+){4}\S+)\s+(\S+)\s+(.+)$`)

// optional is a line that works once its # is taken out.
var optional = regexp.MustCompile(`^#([0-9*])`)

// cron reads every line as what it was meant to be: when, by whom, and a command that a shell understands whole. In
// a crontab a % ends the command.
func TestCronReadsTheCrontab(t *testing.T) {
	var runs, sends []string
	commands := 0
	for line := range strings.Lines(string(read(t, "../crontab"))) {
		line = optional.ReplaceAllString(strings.TrimSpace(line), "$1")
		if line == "" || strings.HasPrefix(line, "#") || regexp.MustCompile(`^[A-Z_]+=\S+$`).MatchString(line) {
			continue
		}
		m := cronLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no line of a crontab: %s", line)
			continue
		}
		when, user, command := m[1], m[2], m[3]
		if _, err := cron.ParseStandard(when); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if user != "billing" || strings.Contains(command, "%") {
			t.Errorf("want the user billing, and no %%: %s", line)
		}
		if out, err := exec.Command("sh", "-n", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("sh: %v: %s", err, out)
		}
		if strings.Contains(command, "billing run ") {
			runs = append(runs, when)
		}
		if strings.Contains(command, "billing outbox send ") && strings.HasSuffix(command, "2>&1") {
			sends = append(sends, when)
		}
		commands++
	}
	if commands != 5 {
		t.Errorf("%d commands, want two that run the month, one that reconciles, and two that send messages", commands)
	}
	// A dead letter is told of once a day, not each time that something is sent.
	if len(sends) != 1 || sends[0] != "*/5   *   *     *    *" {
		t.Errorf("messages are sent without a mail to the administrator at %q, want every five minutes", sends)
	}
	mustStartHourlyThenDaily(t, runs)
}
