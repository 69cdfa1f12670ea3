package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const statusHelp = `Shows where a period stands and what to type next; without --period, the last
twelve periods.

Example:
   billing status
   billing status --period 2026-10

Declined charges have a line for each reason: the bank's decline_code, and Stripe's
advice_code if there is one.

It is a report: it exits 0 if it could read, whatever it shows. With --json the
outcome says what a run would end with: done, needs_person, unknown (outcomes are
not known yet), busy (a run is at work), or open (not run to its end).

Exit codes: 0 shown   64 usage   69 Postgres unreachable   78 configuration`

// shownPeriods is how many periods the list has.
const shownPeriods = 12

func (a *app) statusCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "status", Usage: "show where the month stands and what to type next", Description: statusHelp,
		Flags: []cli.Flag{periodFlag(), absentAfterFlag()},
	}, status)
}

func status(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	period, err := periodIfGiven(c)
	if err != nil {
		return nil, err
	}
	looks, err := lookOptionsOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job), Period: string(period)}
	if period == "" {
		return out, ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error { return statusOfAll(ctx, a, tx, job, out) })
	}
	s := standing{job: job, period: period, absentAfter: looks.absentAfter}
	if err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error { return s.read(ctx, tx) }); err != nil {
		return out, err
	}
	s.fill(out)
	return out, a.emit(s.text(a))
}

// lineJSON is one period in --json.
type lineJSON struct {
	Period        string           `json:"period"`
	State         string           `json:"state"` // of its run, empty if it was never run
	Attempt       int              `json:"attempt"`
	Owner         string           `json:"owner"`
	Closed        bool             `json:"closed"`
	Charges       map[string]int64 `json:"charges"` // by state
	FindingsToAct int64            `json:"findings_to_act"`
}

func statusOfAll(ctx context.Context, a *app, tx pgx.Tx, job ledger.Job, out *result) error {
	list, err := ledger.ReadPeriods(ctx, tx, job, shownPeriods)
	if err != nil {
		return err
	}
	details := []lineJSON{}
	t := a.newTable(table.Row{"period", "run", "attempt", "closed", "charges", "findings"}, 3, 6)
	for _, p := range list {
		line := lineJSON{Period: string(p.Period), State: string(p.State), Attempt: p.Attempt, Owner: p.Owner, Closed: p.Closed,
			Charges: map[string]int64{}, FindingsToAct: p.FindingsToAct}
		var counts []string
		for _, state := range ledger.ChargeStates {
			if n := p.Charges[state]; n > 0 {
				line.Charges[string(state)] = n
				counts = append(counts, fmt.Sprintf("%d %s", n, state))
			}
		}
		details = append(details, line)
		t.AppendRow(table.Row{line.Period, runStateText(p.State, p.Live), p.Attempt, yes(p.Closed), orNone(strings.Join(counts, ", ")), p.FindingsToAct})
	}
	out.Details = details
	if len(list) == 0 {
		return a.emit(fmt.Sprintf("%s has no periods yet\nnext: billing import accounts --file F\n", job))
	}
	return a.emit(t.Render() + "\nnext: billing status --period " + string(list[0].Period) + "\n")
}

func runStateText(state ledger.RunState, live bool) string {
	switch {
	case state == "":
		return "never run"
	case state == ledger.RunClaimed && live:
		return "at work"
	case state == ledger.RunClaimed:
		return "gone silent"
	}
	return string(state)
}

// standing is where one period stands, read from one snapshot.
type standing struct {
	job    ledger.Job
	period ledger.Period
	// absentAfter is how long a send without an answer waits for Stripe.
	absentAfter time.Duration
	now         time.Time
	run         *ledger.Run      // nil if it was never run
	stopped     bool             // the last run was stopped by a guard or a gate
	identity    *ledger.Identity // nil until a command talked to Stripe
	needsClose  bool
	closed      *ledger.PeriodClose // nil while it is open
	summary     ledger.Summary
	findings    []ledger.Finding
	events      []ledger.PeriodEvent
	pauses      []ledger.Pause // of the whole job first
	aged        []ledger.AgedItem
	usage       ledger.UsageState
}

func (s *standing) read(ctx context.Context, q ledger.Querier) (err error) {
	if s.now, err = ledger.Now(ctx, q); err != nil {
		return err
	}
	switch run, err := ledger.ReadRun(ctx, q, s.job, s.period); {
	case err == nil:
		s.run = &run
		if s.stopped, err = ledger.EndedWith(ctx, q, run.RunID, exitStopped); err != nil {
			return err
		}
	case !errors.Is(err, ledger.ErrNotFound):
		return err
	}
	switch id, err := ledger.ReadIdentity(ctx, q); {
	case err == nil:
		s.identity = &id
	case !errors.Is(err, ledger.ErrNotFound):
		return err
	}
	if s.needsClose, err = ledger.NeedsClose(ctx, q); err != nil {
		return err
	}
	if s.closed, err = closeOf(ctx, q, s.job, s.period); err != nil {
		return err
	}
	if s.summary, err = ledger.Summarize(ctx, q, s.job, s.period); err != nil {
		return err
	}
	if s.findings, err = ledger.OpenFindings(ctx, q, s.job, s.period); err != nil {
		return err
	}
	if s.events, err = ledger.ReadPeriodEvents(ctx, q, s.job, s.period); err != nil {
		return err
	}
	if s.aged, err = ledger.ReadAged(ctx, q, s.job, s.period); err != nil {
		return err
	}
	if s.usage, err = ledger.ReadUsageState(ctx, q, s.job, s.period); err != nil {
		return err
	}
	s.pauses, err = ledger.OpenPauses(ctx, q, s.job)
	return err
}

// live reports whether a run is at work.
func (s *standing) live() bool {
	return s.run != nil && s.run.State == ledger.RunClaimed && !s.run.StaleAt.Before(s.now)
}

func (s *standing) done() bool { return s.run != nil && s.run.State == ledger.RunDone }

// empty reports whether there is nothing to bill and nothing was.
func (s *standing) empty() bool { return s.summary.Unrecorded == 0 && len(s.summary.Sums) == 0 }

// pending counts those inside their window and those past it.
func (s *standing) pending() (inside, past int64) {
	return s.summary.Count(ledger.ChargePending) - s.summary.Expired, s.summary.Expired
}

// outcome is what a run of the period would end with, as things stand.
func (s *standing) outcome() string {
	if s.live() {
		return "busy"
	}
	if s.run == nil {
		return "open"
	}
	err := s.verdict()
	var left *billing.UnsettledError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &left) && left.Pending == 0:
		return "open"
	}
	return classify(err).outcome
}

// verdict is what the ledger says, as the end of a run would.
func (s *standing) verdict() error {
	state := ledger.RunState("")
	if s.run != nil {
		state = s.run.State
	}
	return billing.Verdict(s.period, state, s.summary)
}

// next is what to type, one command a line.
func (s *standing) next() []string {
	run := fmt.Sprintf("billing run --period %s", s.period)
	switch {
	case s.allPaused() && !s.done():
		return []string{"billing resume --all", run}
	case s.summary.Paused > 0 && !s.live():
		account := "A"
		if len(s.pauses) == 1 {
			account = reconcile.ShellWord(clean(s.pauses[0].AccountID))
		}
		return []string{"billing resume --account " + account, run}
	case s.live():
		return []string{fmt.Sprintf("nothing: it goes on by itself; look again with billing status --period %s", s.period)}
	case s.needsClose && s.usage.HasUsage && !s.usage.Invoiced:
		return s.nextOfUsage()
	case s.done() && s.summary.Unrecorded > 0:
		return []string{fmt.Sprintf("billing reopen --period %s --why \"late invoice\"", s.period), run}
	case s.summary.Count(ledger.ChargeHeld) > 0 && s.pastAll():
		return []string{
			fmt.Sprintf("billing reconcile --period %s   # looks once more", s.period),
			fmt.Sprintf("billing release --period %s --account A --why W   # charges it", s.period),
			fmt.Sprintf("billing void --period %s --account A --why W   # withdraws it", s.period),
		}
	case s.done() && s.outcome() == "needs_person" && s.summary.FindingsToAct > 0:
		return []string{
			fmt.Sprintf("billing findings --period %s   # each with what to type about it", s.period),
			fmt.Sprintf("billing show --period %s --account A   # one charge's history", s.period),
		}
	case s.done() && s.outcome() == "needs_person":
		return []string{
			fmt.Sprintf("billing export charges --period %s --output charges.csv   # lists them", s.period),
			fmt.Sprintf("billing show --period %s --account A   # one charge's history", s.period),
		}
	case s.done() && s.summary.Count(ledger.ChargeDeclined) > 0:
		return []string{fmt.Sprintf("billing retry-declined --period %s --why W   # if the declined ones are to be tried again", s.period)}
	case s.done():
		return []string{"nothing"}
	case s.needsClose && s.closed == nil && s.usage.Counted && !s.usage.Invoiced:
		return s.nextOfUsage()
	case s.needsClose && s.closed == nil && s.usage.Invoiced:
		return []string{fmt.Sprintf("billing invoice --period %s   # it lists the accounts that are missing", s.period)}
	case s.empty() && s.run == nil && s.needsClose:
		return []string{fmt.Sprintf("billing import invoices --period %s --file F", s.period)}
	case s.needsClose && s.closed == nil:
		return []string{fmt.Sprintf("billing close --period %s", s.period), fmt.Sprintf("billing preview --period %s", s.period), run}
	case s.run == nil:
		return []string{fmt.Sprintf("billing preview --period %s", s.period), run}
	}
	if s.stopped {
		return []string{fmt.Sprintf("billing preview --period %s   # the last run was stopped, exit 3: this says by what", s.period), run}
	}
	if at := s.summary.NextLook(s.absentAfter); at != nil && at.After(s.now) && s.pastAll() {
		return []string{run + "   # not before " + at.UTC().Format("2006-01-02 15:04 UTC")}
	}
	return []string{run}
}

// allPaused reports that nothing of the job may be sent.
func (s *standing) allPaused() bool { return len(s.pauses) > 0 && s.pauses[0].AccountID == "" }

// pastAll reports that no pending charge may be sent as things stand.
func (s *standing) pastAll() bool {
	inside, _ := s.pending()
	return inside == 0 && s.summary.Unrecorded == 0
}

// statusJSON is what a period's status adds to --json.
type statusJSON struct {
	Closed        *closeJSON  `json:"closed"`
	NeedsClose    bool        `json:"needs_close"`
	PendingInside int64       `json:"pending_inside_window"`
	PendingPast   int64       `json:"pending_past_window"`
	WindowEndsAt  string      `json:"first_window_ends_at,omitempty"`
	Unanswered    int64       `json:"pending_unanswered"`
	NextLookAt    string      `json:"next_look_at,omitempty"`
	Unrecorded    int64       `json:"unrecorded"`
	Changed       int64       `json:"changed"`
	FindingsToAct int64       `json:"findings_to_act"`
	Paused        int64       `json:"pending_paused"`
	Pauses        []pauseJSON `json:"pauses"` // of the job; an empty account is all of them
	HeartbeatAt   string      `json:"heartbeat_at,omitempty"`
	FinishedAt    string      `json:"finished_at,omitempty"`
	Aged          []agedJSON  `json:"aged"` // what is open, and since when
	Next          []string    `json:"next"`
}

func (s *standing) fill(out *result) {
	out.Outcome = s.outcome()
	if s.identity != nil {
		out.StripeAccount, out.Livemode = s.identity.AccountID, &s.identity.Livemode
	}
	out.addSums(s.summary.Sums)
	out.addFindings(s.findings)
	inside, past := s.pending()
	details := statusJSON{
		Closed: closeToJSON(s.closed), NeedsClose: s.needsClose, PendingInside: inside, PendingPast: past,
		WindowEndsAt: rfc3339(s.summary.NextWindowEnds), Unanswered: s.summary.Unanswered, NextLookAt: rfc3339(s.summary.NextLook(s.absentAfter)), Unrecorded: s.summary.Unrecorded, Changed: s.summary.Changed,
		FindingsToAct: s.summary.FindingsToAct, Aged: s.agedJSON(), Next: s.next(), Paused: s.summary.Paused, Pauses: pausesToJSON(s.pauses),
	}
	if s.run != nil {
		out.addRun(*s.run)
		details.HeartbeatAt, details.FinishedAt = rfc3339(&s.run.HeartbeatAt), rfc3339(s.run.FinishedAt)
	}
	out.Details = details
}
