package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

// maxShownFindings bounds the table for people; --json has up to a thousand.
const maxShownFindings = 20

// text is a period's status for people.
func (s *standing) text(a *app) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s\n\n", s.period, s.job)
	b.WriteString(keyValues(
		[2]string{"stripe", s.stripeText()},
		[2]string{"run", s.runText()},
		[2]string{"closed", s.closedText()},
		[2]string{"usage", s.usageText()},
		[2]string{"reopened", s.reopenedText()},
		[2]string{"pending", s.pendingText()},
		[2]string{"paused", s.pausedText()},
		[2]string{"invoices", s.invoicesText()},
		[2]string{"findings", s.findingsText()},
		[2]string{"needs", s.needsText()},
	))
	if len(s.summary.Sums) > 0 {
		fmt.Fprintf(&b, "\n%s\n", a.sumsTable(s.summary.Sums))
	}
	s.addAged(&b, a)
	s.addFindings(&b, a)
	b.WriteString("\n")
	for i, step := range s.next() {
		prefix := "      "
		if i == 0 {
			prefix = "next: "
		}
		b.WriteString(prefix + step + "\n")
	}
	return b.String()
}

func (s *standing) stripeText() string {
	switch {
	case s.identity == nil:
		return ""
	case s.identity.Livemode:
		return s.identity.AccountID + ", live mode"
	}
	return s.identity.AccountID + ", test mode"
}

func (s *standing) runText() string {
	if s.run == nil {
		return "never"
	}
	attempt := fmt.Sprintf("attempt %d by %s", s.run.Attempt, clean(s.run.Owner))
	heartbeat := s.now.Sub(s.run.HeartbeatAt).Round(time.Second)
	switch {
	case s.live():
		return fmt.Sprintf("at work: %s, alive %s ago", attempt, max(heartbeat, 0))
	case s.run.State == ledger.RunClaimed:
		return fmt.Sprintf("gone silent: %s, last sign of life %s ago; the next run takes over", attempt, heartbeat)
	}
	return fmt.Sprintf("%s: %s, ended %s", s.run.State, attempt, timeText(s.run.FinishedAt))
}

func (s *standing) closedText() string {
	switch {
	case s.closed != nil:
		return fmt.Sprintf("%s by %s: %s", timeText(&s.closed.ClosedAt), clean(s.closed.ClosedBy), closeText(*s.closed))
	case s.needsClose:
		return "no: nobody said that all invoices are there"
	}
	return "not needed: billing.billable reads tables of your own"
}

// usageText is how far the month's usage is, where usage is metered.
func (s *standing) usageText() string {
	text := s.usageOfMonthText()
	for i, p := range s.usage.Missed {
		text += map[bool]string{true: "; never invoiced: ", false: ", "}[i == 0] + string(p)
	}
	return text
}

func (s *standing) usageOfMonthText() string {
	switch u := s.usage; {
	case !u.Counted:
		return ""
	case u.Invoiced && s.needsClose && s.closed == nil:
		return "invoiced, but for accounts with a problem"
	case u.Invoiced:
		return "invoiced"
	case u.Complete():
		return "complete, not invoiced"
	default:
		return fmt.Sprintf("complete from %s on; counted up to %s", timeText(&u.CompleteAt), throughText(u.Through))
	}
}

// nextOfUsage is what an open month of metered usage needs.
func (s *standing) nextOfUsage() []string {
	invoice := fmt.Sprintf("billing invoice --period %s", s.period)
	if s.usage.Complete() {
		return []string{invoice}
	}
	return []string{fmt.Sprintf("billing meter   # from %s on", timeText(&s.usage.CompleteAt)), invoice}
}

// reopenedText is the last time that somebody reopened the period.
func (s *standing) reopenedText() (text string) {
	for _, e := range s.events {
		if e.Action == "reopen" {
			text = fmt.Sprintf("%s by %s: %s", timeText(&e.At), clean(e.Person), clean(e.Why))
		}
	}
	return text
}

func (s *standing) pendingText() string {
	inside, past := s.pending()
	var parts []string
	if inside > 0 {
		parts = append(parts, fmt.Sprintf("%d inside the window, which ends at %s", inside, timeText(s.summary.NextWindowEnds)))
	}
	if past > 0 {
		text := fmt.Sprintf("%d past the window: never sent again before a look at Stripe", past)
		if n := s.summary.Unanswered; n > 0 {
			until := s.summary.UnansweredSince.Add(s.absentAfter)
			text += fmt.Sprintf(" (%d got no answer: Stripe may complete them, so they wait until %s at least)", n, timeText(&until))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (s *standing) invoicesText() string {
	var parts []string
	switch n := s.summary.Unrecorded; {
	case n > 0 && s.done():
		parts = append(parts, plural(n, "is", "are")+" not in the ledger: they came after the period was done")
	case n > 0:
		parts = append(parts, plural(n, "is", "are")+" not in the ledger yet")
	}
	if n := s.summary.Changed; n > 0 {
		parts = append(parts, plural(n, "differs", "differ")+" from what was recorded and charged")
	}
	return strings.Join(parts, "; ")
}

func (s *standing) findingsText() string {
	if s.summary.FindingsToAct == 0 {
		return ""
	}
	return plural(s.summary.FindingsToAct, "needs a person", "need a person")
}

// needsText is what a run of the period would ask a person for.
func (s *standing) needsText() string {
	if s.outcome() != "needs_person" || s.summary.Unrecorded+s.summary.Changed > 0 {
		return "" // nothing, or said of the invoices already
	}
	return s.verdict().Error()
}

func (s *standing) addFindings(b *strings.Builder, a *app) {
	if len(s.findings) == 0 {
		return
	}
	t := a.newTable(table.Row{"finding", "kind", "severity", "account", "payment", "expected", "seen"}, 1)
	for _, f := range s.findings[:min(len(s.findings), maxShownFindings)] {
		t.AppendRow(table.Row{f.ID, f.Kind, string(f.Severity), clean(f.AccountID), f.PaymentIntent, clean(f.Expected), clean(reconcile.SeenText(f))})
	}
	fmt.Fprintf(b, "\n%s\n", t.Render())
	if more := len(s.findings) - maxShownFindings; more > 0 {
		fmt.Fprintf(b, "and %d more; billing status --period %s --json has them\n", more, s.period)
	}
}
