package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

// What a check-in tells a monitor.
const (
	eventStart    = "start"    // this run owns the period
	eventComplete = "complete" // exit 0
	eventFail     = "fail"     // any other exit code
)

const (
	// startGrace is how long the end of a run waits for its start to be told.
	startGrace = 3 * time.Second
	// checkinBudget bounds all that a monitor costs a run: the start is told beside
	// the work, and this is for the rest of it and for the end. With the 3 seconds
	// of a Pushgateway it is ten.
	checkinBudget = 7 * time.Second
)

// checkin is one message to a monitor. Its fields are those of a template and, as
// JSON, the body for Healthchecks.io: codes and counts, nothing of any customer.
type checkin struct {
	Event    string `json:"event"`
	Job      string `json:"job"`
	Period   string `json:"period"`
	RunID    string `json:"run_id"`
	Attempt  int    `json:"attempt"`
	Livemode bool   `json:"livemode"`
	Outcome  string `json:"outcome"` // as --json has it; empty at the start
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason"` // error.code of --json; empty unless it failed
	// RecordsProcessed counts the charges of the period whose outcome is known;
	// Sent, Settled and Renewed are this attempt's.
	RecordsProcessed int64            `json:"records_processed"`
	Sent             int64            `json:"sent"`
	Settled          int64            `json:"settled"`
	Renewed          int64            `json:"renewed"`
	Pending          int64            `json:"pending"`
	Findings         int64            `json:"findings"` // open ones that need a person
	Charges          map[string]int64 `json:"charges"`  // by state; every state is there
}

// newCheckin has every state, so that a template may name any.
func newCheckin(event string) checkin {
	ev := checkin{Event: event, Charges: map[string]int64{}}
	for _, state := range ledger.ChargeStates {
		ev.Charges[string(state)] = 0
	}
	return ev
}

// json is the message as it is sent to Healthchecks.io, and what the function json
// of a template makes of the whole.
func (ev checkin) json() string {
	text, err := json.MarshalIndent(ev, "", "  ")
	if err != nil {
		return "{}" // strings and numbers always encode
	}
	return string(text)
}

// monitor tells a service that watches cron jobs how a run gets on. Only the run
// that owns the claim speaks. A nil monitor tells nobody.
type monitor struct {
	kind   string
	shape  func(checkin) (ping, error)
	client *http.Client
	log    *slog.Logger

	run     *ledger.Run // set by start
	live    bool
	started chan error
	hurry   context.CancelFunc // ends what is left of telling the start
}

// monitorFlags choose the monitor.
func monitorFlags() []cli.Flag {
	text := func(name, usage, value string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Value: value, EnvVars: []string{envOf(name)}, Category: "Monitoring"}
	}
	return []cli.Flag{
		text("checkin", "tell a monitor when this run starts and ends: healthchecks, cronitor or template", ""),
		text("checkin-method", "how a template is sent: GET, POST or PUT", ""),
		text("checkin-body", "the body of a template, such as '{{json .}}'", ""),
		&cli.Int64Flag{Name: "expect-min", Usage: "how many settled charges a finished month has at least; fewer need a person", EnvVars: []string{"BILLING_EXPECT_MIN"}, Category: "Monitoring"},
	}
}

// monitorOf reads them, and refuses what could not work when it is needed. It is
// nil without --checkin, and for a dry run.
func (a *app) monitorOf(c *cli.Context) (*monitor, error) {
	m := &monitor{kind: c.String("checkin"), client: newMonitorClient(), log: a.log}
	url, err := secretSetting("BILLING_CHECKIN_URL")
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"", kindHealthchecks, kindCronitor, kindTemplate}, m.kind) {
		return nil, usagef("--checkin %q: want healthchecks, cronitor or template", m.kind)
	}
	if m.kind != kindTemplate {
		for _, name := range []string{"checkin-method", "checkin-body"} {
			if c.String(name) != "" {
				return nil, usagef("--%s is for --checkin template", name)
			}
		}
	}
	switch {
	case m.kind == "" && url.text != "":
		return nil, usagef("%s is set, and --checkin (BILLING_CHECKIN) does not say what is there: want healthchecks, cronitor or template", url.from)
	case m.kind == "":
		return nil, nil
	case url.text == "":
		return nil, configError{fmt.Errorf("--checkin %s needs a URL", m.kind), "set BILLING_CHECKIN_URL or BILLING_CHECKIN_URL_FILE"}
	case m.kind == kindTemplate:
		m.shape, err = templateShape(c, url)
	default:
		m.shape, err = builtInShape(m.kind, url)
	}
	if err != nil || c.Bool("dry-run") {
		return nil, err
	}
	return m, nil
}

// setting is a text, and where it came from.
type setting struct{ text, from string }

// secretSetting reads what only the environment or a file may hold: ps shows flags.
func secretSetting(env string) (setting, error) {
	text, err := secret(env)
	if file := os.Getenv(env + "_FILE"); file != "" {
		env += "_FILE"
	}
	return setting{text, env}, err
}

// start says that this run owns the period. It does not wait for the monitor.
func (m *monitor) start(run ledger.Run, live bool) {
	if m == nil {
		return
	}
	m.run, m.live, m.started = &run, live, make(chan error, 1)
	ctx, hurry := context.WithCancel(context.Background())
	m.hurry = hurry
	go func() {
		defer func() {
			if p := recover(); p != nil { // nothing that a monitor does may end a run
				m.started <- fmt.Errorf("a bug: %v", p)
			}
		}()
		m.started <- m.deliver(ctx, m.message(eventStart))
	}()
}

// message is what is known of the run at any time.
func (m *monitor) message(event string) checkin {
	ev := newCheckin(event)
	ev.Job, ev.Period, ev.RunID, ev.Attempt = string(m.run.Job), string(m.run.Period), m.run.RunID.String(), m.run.Attempt
	ev.Livemode = m.live
	return ev
}

// finish says what the run came to, and returns warnings if the monitor was not
// told. A run that never owned the period, or lost it to another, says nothing:
// the other speaks.
func (m *monitor) finish(ctx context.Context, res billing.Result, runErr error) (warnings []string) {
	if m == nil || m.run == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkinBudget)
	defer cancel()
	if err := m.awaitStart(ctx); err != nil {
		warnings = append(warnings, m.untold(eventStart, err))
	}
	if errors.Is(runErr, ledger.ErrClaimLost) || res.Run.RunID != m.run.RunID {
		m.log.Warn("another run owns the period now: it checks in, and this one does not")
		return warnings
	}
	ev := m.message(eventComplete)
	ev.Outcome = "done"
	if f := classify(runErr); f.code != exitOK {
		ev.Event, ev.Outcome, ev.ExitCode, ev.Reason = eventFail, f.outcome, f.code, f.name
	}
	ev.RecordsProcessed, ev.Findings = res.Summary.Settled(), res.Summary.FindingsToAct
	ev.Sent, ev.Settled, ev.Renewed = res.Sent, res.Settled, res.Renewed
	for _, sum := range res.Summary.Sums {
		ev.Charges[string(sum.State)] += sum.Count
	}
	ev.Pending = ev.Charges[string(ledger.ChargePending)]
	if err := m.deliver(ctx, ev); err != nil {
		warnings = append(warnings, m.untold(ev.Event, err))
	}
	return warnings
}

// awaitStart makes sure that the start is not told after the end.
func (m *monitor) awaitStart(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	select {
	case err := <-m.started:
		return err
	case <-grace.Done():
		m.hurry()
		return <-m.started
	}
}

func (m *monitor) untold(event string, err error) string {
	m.log.Warn("the monitor was not told", "event", event, "monitor", m.kind, "error", err)
	return fmt.Sprintf("check-in: %s was not told of the %s: %v; the run is not concerned", m.kind, event, err)
}
