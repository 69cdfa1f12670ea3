package main

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

// secret reads a setting that must not stand in ps: from the environment, or
// from the file that NAME_FILE names. Several names may mean the same setting;
// two that differ are refused, because nobody could say which counts.
func secret(names ...string) (string, error) {
	value, from := "", ""
	for _, name := range names {
		v, err := secretOf(name)
		if err != nil {
			return "", err
		}
		if v == "" {
			continue
		}
		if value != "" && v != value {
			return "", configError{fmt.Errorf("%s and %s are both set and differ", from, name), "set one of them"}
		}
		value, from = v, name
	}
	return value, nil
}

func secretOf(name string) (string, error) {
	value, file := strings.TrimSpace(os.Getenv(name)), os.Getenv(name+"_FILE")
	if file == "" {
		return value, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", configError{fmt.Errorf("%s_FILE: %w", name, err), "check the path and its rights"}
	}
	// An editor leaves a newline at the end; no secret has one.
	if v := strings.TrimSpace(string(text)); value == "" || value == v {
		return v, nil
	}
	return "", configError{fmt.Errorf("%s and %s_FILE are both set and differ", name, name), "set one of them"}
}

// jobOf reads --job.
func jobOf(c *cli.Context) (ledger.Job, error) {
	job, err := ledger.ParseJob(c.String("job"))
	if err != nil {
		return "", usageError{err}
	}
	return job, nil
}

func periodFlag() cli.Flag {
	return &cli.StringFlag{Name: "period", Usage: "the month that the money is for, such as 2026-10", EnvVars: []string{"BILLING_PERIOD"}}
}

// periodOf reads --period where it must be given.
func periodOf(c *cli.Context) (ledger.Period, error) {
	text := c.String("period")
	if text == "" {
		return "", usagef("--period is missing: type the month, such as --period 2026-10")
	}
	period, err := ledger.ParsePeriod(text)
	if err != nil {
		return "", usageError{err}
	}
	return period, nil
}

// periodIfGiven reads --period where it may be missing: then it is empty. A typo is
// found before anything is asked.
func periodIfGiven(c *cli.Context) (ledger.Period, error) {
	if c.String("period") == "" {
		return "", nil
	}
	return periodOf(c)
}

// jobAndPeriodOf reads what most commands are about.
func jobAndPeriodOf(c *cli.Context) (ledger.Job, ledger.Period, error) {
	job, err := jobOf(c)
	if err != nil {
		return "", "", err
	}
	period, err := periodOf(c)
	return job, period, err
}

// debtFlags name one debt, which debtOf reads.
func debtFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "account", Usage: "the account's id, exactly as it was imported"}, periodFlag()}
}

func debtOf(c *cli.Context) (job ledger.Job, period ledger.Period, account string, err error) {
	if job, period, err = jobAndPeriodOf(c); err != nil {
		return "", "", "", err
	}
	if account = c.String("account"); account == "" {
		return "", "", "", usagef("--account is missing: type the account's id, such as --account 4182")
	}
	return job, period, account, nil
}

func zoneFlag() cli.Flag {
	return &cli.StringFlag{Name: "timezone", Usage: "where months begin and end", Value: "UTC", EnvVars: []string{"BILLING_TIMEZONE"}}
}

func zoneOf(c *cli.Context) (*time.Location, error) {
	loc, err := time.LoadLocation(c.String("timezone"))
	if err != nil || c.String("timezone") == "Local" {
		return nil, configError{fmt.Errorf("BILLING_TIMEZONE %q is not a time zone", c.String("timezone")), "use a name such as UTC or Europe/Berlin"}
	}
	return loc, nil
}

func whyFlag() cli.Flag {
	return &cli.StringFlag{Name: "why", Usage: "the reason, kept with the change"}
}

func byFlag() cli.Flag {
	return &cli.StringFlag{Name: "by", Usage: "who says so", DefaultText: "your login name", EnvVars: []string{"BILLING_BY"}}
}

// personOf is who does something, for the history.
func personOf(c *cli.Context) string {
	if by := strings.TrimSpace(c.String("by")); by != "" {
		return by
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// ownerOf names this process for people: host and process id.
func ownerOf() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}

// typed reports a flag that stands on the command line. A setting of the environment is
// for all commands of a host, also for those that have no use for it.
func (a *app) typed(name string) bool {
	return slices.ContainsFunc(a.args, func(arg string) bool {
		flag, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		return strings.HasPrefix(arg, "-") && flag == name
	})
}

// formatOf reads --format where a command has these, the first by default. One that it
// does not have is refused only if it was typed.
func (a *app) formatOf(c *cli.Context, formats ...string) (string, error) {
	format := c.String("format")
	switch {
	case slices.Contains(formats, format):
		return format, nil
	case a.typed("format"):
		return "", usagef("--format %q: want %s or %s", format, strings.Join(formats[:len(formats)-1], ", "), formats[len(formats)-1])
	}
	return formats[0], nil
}
