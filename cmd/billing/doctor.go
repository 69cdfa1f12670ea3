package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// checkTime bounds each check.
const checkTime = 5 * time.Second

// What a check comes to.
const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)

// check is one line of doctor. The names are a public interface.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Todo   string `json:"todo"`
	err    error
}

// finding is what one look came to, before it has a name.
type finding struct {
	status, detail, todo string
	err                  error
}

func fine(format string, args ...any) finding {
	return finding{status: statusOK, detail: fmt.Sprintf(format, args...)}
}

func worth(todo, format string, args ...any) finding {
	return finding{status: statusWarn, detail: fmt.Sprintf(format, args...), todo: todo}
}

// broken is what a command would end with. Without a todo the hint of the error counts.
func broken(err error, todo string) finding {
	if todo == "" {
		todo = classify(err).hint
	}
	return finding{status: statusFail, detail: err.Error(), todo: todo, err: err}
}

// misset is broken by a setting, of this program or of Postgres.
func misset(todo, format string, args ...any) finding {
	return broken(configError{fmt.Errorf(format, args...), todo}, todo)
}

// doctor looks at everything that a run rests on, and writes nothing anywhere.
type doctor struct {
	a *app
	c *cli.Context
	// run has the settings that a run would have in this environment.
	run    *cli.Context
	unread []string // its flags whose variables can't be read
	job    ledger.Job
	period ledger.Period // empty unless one was named

	pool   *pgxpool.Pool  // nil without a database
	server *ledger.Server // nil if it could not be asked
	fits   bool           // the schema fits this program
	empty  bool           // there is no schema

	client     *gateway.Client   // nil without a key that could be used
	stripe     *gateway.Identity // nil if Stripe did not say whose key it is
	stripeErr  error             // why not
	stripeSaid time.Time         // when, by this host's clock

	checks []check
}

// newDoctor reads the settings of a run as far as they can be read.
func newDoctor(a *app, c *cli.Context, job ledger.Job, period ledger.Period) *doctor {
	d := &doctor{a: a, c: c, job: job, period: period}
	command := c.App.Command("run")
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	for _, f := range command.Flags {
		// The check of settings tells what can't be read.
		if f.Apply(flags) != nil {
			d.unread = append(d.unread, f.Names()[0])
		}
	}
	d.run = cli.NewContext(c.App, flags, nil)
	d.run.Command = command
	return d
}

// close gives back what the checks opened.
func (d *doctor) close() {
	if d.pool != nil {
		d.pool.Close()
	}
	if d.client != nil {
		d.client.Close()
	}
}

// notChecked begins the detail of a check that could not be made.
const notChecked = "not checked: "

// missing says why a check can't be made, "" if it can.
type missing func(d *doctor) string

func needsNothing(*doctor) string { return "" }

func needsDatabase(d *doctor) string {
	if d.pool == nil || d.server == nil {
		return "Postgres was not reached"
	}
	return ""
}

func needsSchema(d *doctor) string {
	if why := needsDatabase(d); why != "" || d.fits {
		return why
	}
	return "the schema does not fit this program, or is not readable"
}

// needsTables is for what may be asked of a schema that does not fit, too.
func needsTables(d *doctor) string {
	if why := needsDatabase(d); why != "" || !d.empty {
		return why
	}
	return "there is no schema"
}

func needsKey(d *doctor) string {
	if d.client == nil {
		return "there is no Stripe key that could be used"
	}
	return ""
}

// needsStripe is for what asks Stripe again: a key that was refused, and a Stripe
// that was not reached, would say the same once more.
func needsStripe(d *doctor) string {
	var failure *gateway.Error
	switch {
	case d.client == nil:
		return needsKey(d)
	case d.stripeErr == nil, errors.As(d.stripeErr, &failure) && failure.Kind == gateway.KindPermission:
		return ""
	case errors.As(d.stripeErr, &failure) && failure.Kind == gateway.KindAuth:
		return "Stripe refused the key"
	}
	return "Stripe was not reached"
}

// examine makes every check, whatever came of those before.
func (d *doctor) examine(ctx context.Context) {
	for _, one := range []struct {
		name  string
		needs missing
		look  func(*doctor, context.Context) finding
	}{
		{"settings", needsNothing, (*doctor).checkSettings},
		{"time_zone", needsNothing, (*doctor).checkTimeZone},
		{"rate", needsNothing, (*doctor).checkRate},
		{"files", needsNothing, (*doctor).checkFiles},
		{"check_in", needsNothing, (*doctor).checkCheckIn},

		{"database", needsNothing, (*doctor).checkDatabase},
		{"version", needsDatabase, (*doctor).checkVersion},
		{"primary", needsDatabase, (*doctor).checkPrimary},
		{"schema", needsDatabase, (*doctor).checkSchema},
		{"role", needsTables, (*doctor).checkRole},
		{"rights", needsTables, (*doctor).checkRights},
		{"triggers", needsSchema, (*doctor).checkTriggers},
		{"durability", needsDatabase, (*doctor).checkDurability},
		{"standbys", needsDatabase, (*doctor).checkStandbys},
		{"pooler", needsDatabase, (*doctor).checkPooler},
		{"billable", needsSchema, (*doctor).checkBillable},
		{"invoices", needsSchema, (*doctor).checkInvoices},
		{"messages", needsNothing, (*doctor).checkMessages},
		{"mail", needsNothing, (*doctor).checkMail},
		{"webhooks", needsNothing, (*doctor).checkWebhooks},

		{"stripe_key", needsNothing, (*doctor).checkKey},
		{"stripe_address", needsKey, (*doctor).checkStripeAddress},
		{"stripe_account", needsKey, (*doctor).checkAccount},
		{"stripe_list", needsStripe, (*doctor).checkList},
		{"stripe_read", needsStripe, (*doctor).checkRead},
		{"stripe_customers", needsStripe, (*doctor).checkCustomers},
		{"stripe_search", needsStripe, (*doctor).checkSearch},
		{"stripe_write", needsStripe, (*doctor).checkWrite},
		{"identity", needsSchema, (*doctor).checkIdentity},
		{"clocks", needsNothing, (*doctor).checkClocks},
	} {
		var found finding
		if why := one.needs(d); why != "" {
			found = worth("", notChecked+"%s", why)
		} else {
			within, cancel := context.WithTimeout(ctx, checkTime)
			found = one.look(d, within)
			if errors.Is(within.Err(), context.DeadlineExceeded) && found.status == statusFail {
				found.detail = fmt.Sprintf("no answer within %s: %s", checkTime, found.detail)
			}
			cancel()
		}
		// One line, also where an error has several.
		detail := strings.Join(strings.Fields(found.detail), " ")
		d.checks = append(d.checks, check{one.name, found.status, d.discreet(detail), found.todo, found.err})
	}
}

// discreet takes the secrets of this process out of a text. None should be there.
// A short password is a word that may stand there by itself.
func (d *doctor) discreet(text string) string {
	var secrets []string
	for _, name := range []string{"STRIPE_SECRET_KEY", "STRIPE_API_KEY", "PGPASSWORD", "BILLING_CHECKIN_URL", "BILLING_CHECKIN_HEADER"} {
		if value, err := secretOf(name); err == nil {
			secrets = append(secrets, value)
		}
	}
	secrets = append(secrets, messageSecrets()...)
	if address, err := databaseURL(d.c); err == nil {
		if u, err := url.Parse(address); err == nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	for _, value := range secrets {
		if len(value) >= 8 {
			text = strings.ReplaceAll(text, value, "[secret]")
		}
	}
	return text
}

// exitOrder is the order in which exit codes count where several apply.
var exitOrder = []int{exitBug, exitBadConfig, exitNoPermission, exitUsage, exitBadInput, exitCannotCreate, exitIOError, exitStopped,
	exitUnreachable, exitUnknown, exitNeedsPerson}

// verdict is the error that doctor ends with: of all that failed, the one whose
// exit code counts first.
func (d *doctor) verdict() error {
	var first *check
	failed, best := 0, len(exitOrder)
	for i, one := range d.checks {
		if one.Status != statusFail {
			continue
		}
		failed++
		if at := slices.Index(exitOrder, classify(one.err).code); at < best {
			first, best = &d.checks[i], at
		}
	}
	if first == nil {
		return nil
	}
	return &sickError{first: *first, failed: failed, of: len(d.checks)}
}

// sickError says which failed check counts.
type sickError struct {
	first      check
	failed, of int
}

func (e *sickError) Error() string {
	text := e.first.Name + ": " + e.first.Detail
	if e.failed > 1 {
		text += fmt.Sprintf(" (one of %d that failed, of %d checks)", e.failed, e.of)
	}
	return text
}

func (e *sickError) Unwrap() error { return e.first.err }

// text is the checks for people, one a line.
func (d *doctor) text() string {
	var b strings.Builder
	count := map[string]int{}
	for _, one := range d.checks {
		if strings.HasPrefix(one.Detail, notChecked) {
			count[notChecked]++
		} else {
			count[one.Status]++
		}
		line := fmt.Sprintf("%-4s  %-16s  %s", one.Status, one.Name, clean(one.Detail))
		if one.Todo != "" {
			line += "  -> " + one.Todo
		}
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "\n%d checks: %d ok, %d to look at, %d failed", len(d.checks), count[statusOK], count[statusWarn], count[statusFail])
	if count[notChecked] > 0 {
		fmt.Fprintf(&b, ", %d could not be made", count[notChecked])
	}
	b.WriteString("\n")
	return b.String()
}

// checkSettings reads everything that a run would read from the environment.
func (d *doctor) checkSettings(context.Context) finding {
	settings := settingsOf(d.c)
	for _, s := range settings {
		if s.problem != nil {
			todo := classify(s.problem).hint
			if todo == "" {
				todo = "mend it, or unset it"
			}
			return broken(fmt.Errorf("%s: %w", s.Name, s.problem), todo)
		}
	}
	if _, err := runOptions(d.run); err != nil {
		return broken(fmt.Errorf("the settings of run: %w", err), "mend the variable BILLING_… of that name")
	}
	if _, err := lookOptionsOf(d.run); err != nil {
		return broken(fmt.Errorf("the settings of run: %w", err), "mend the variable BILLING_… of that name")
	}
	if unknown := unknownSettings(settings); len(unknown) > 0 {
		return worth("rename or remove it", "%s", strings.Join(unknown, "; "))
	}
	set := 0
	for _, s := range settings {
		if s.Source != fromDefault {
			set++
		}
	}
	return fine("%d are set; billing config lists them", set)
}

func (d *doctor) checkTimeZone(context.Context) finding {
	zone, err := zoneOf(d.run)
	if err != nil {
		return broken(err, "")
	}
	text := "months begin and end in " + zone.String()
	if local := os.Getenv("TZ"); local != "" && local != zone.String() {
		return worth("set BILLING_TIMEZONE to the zone of the schedule", "%s, and TZ is %s", text, local)
	}
	return fine("%s", text)
}
