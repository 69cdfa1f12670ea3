package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

// shownFindings is how many findings the text shows.
const shownFindings = 20

func (a *app) auditText(r reconcile.AuditReport, s *standing, dryRun bool) string {
	var b strings.Builder
	for _, sum := range r.Sums {
		t := a.newTable(table.Row{clean(sum.Currency), "count", "amount"}, 2, 3)
		for _, line := range sum.Lines {
			what, count := "  "+line.What, fmt.Sprint(line.Count)
			if line.Total {
				what = "= " + line.What
			}
			if line.Count == 0 {
				count = ""
			}
			t.AppendRow(table.Row{what, count, auditAmount(sum, line)})
		}
		b.WriteString(t.Render() + "\n\n")
	}
	findings, count, open := s.findings, s.summary.FindingsToAct, "open"
	if dryRun {
		findings, count, open = foretold(r.Listed, findings), r.Count()-r.Resolved, "would be open"
	}
	a.addFindings(&b, findings, count, dryRun)
	differences := plural(r.Count(), "difference", "differences")
	if r.Resolved > 0 {
		differences += fmt.Sprintf(" (%d resolved before, %d %s)", r.Resolved, r.Count()-r.Resolved, open)
	}
	fmt.Fprintf(&b, "%s; compared: %s with %s, %s and %s at Stripe (%s)\n", differences,
		plural(r.Compared, "charge", "charges"), plural(r.Payments, "payment", "payments"), plural(r.Refunds, "refund", "refunds"),
		plural(r.Disputes, "dispute", "disputes"), plural(r.Calls, "call", "calls"))
	if r.Moving > 0 {
		fmt.Fprintf(&b, "%s not compared: they may be sent, or changed meanwhile\n", plural(r.Moving, "charge was", "charges were"))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "for the record: %d %s\n", n.Count, n.Kind)
	}
	if r.Settled > 0 {
		fmt.Fprintf(&b, "%s found paid, and settled\n", plural(r.Settled, "charge was", "charges were"))
	}
	if r.Closed > 0 {
		fmt.Fprintf(&b, "%s closed: no longer true\n", plural(r.Closed, "finding was", "findings were"))
	}
	if dryRun {
		b.WriteString("nothing was changed (dry run)\n")
	}
	return b.String()
}

// foretold are the findings that would be open if it were no dry run, those that the
// audit saw first. What it would close is among them: it is open.
func foretold(seen, open []ledger.Finding) []ledger.Finding {
	list := slices.Clone(seen)
	for _, f := range open {
		if !slices.ContainsFunc(seen, func(s ledger.Finding) bool { return s.ID == f.ID }) {
			list = append(list, f)
		}
	}
	return list
}

// addFindings shows what needs a person, of which there are count at least: both lists are
// bounded. What a dry run did not open has no number.
func (a *app) addFindings(b *strings.Builder, findings []ledger.Finding, count int64, dryRun bool) {
	t := a.newTable(table.Row{"finding", "kind", "account", "payment", "expected", "seen"}, 1)
	n := int64(0)
	for _, f := range findings {
		if f.Severity != ledger.SeverityAct {
			continue
		}
		number := any(f.ID)
		if f.ID == 0 {
			number = "new"
		}
		if n++; n <= shownFindings {
			t.AppendRow(table.Row{number, f.Kind, clean(f.AccountID), clean(f.PaymentIntent), clean(f.Expected), clean(reconcile.SeenText(f))})
		}
	}
	if n == 0 {
		return
	}
	b.WriteString(t.Render() + "\n")
	switch more := max(n, count) - shownFindings; {
	case more > 0 && dryRun:
		fmt.Fprintf(b, "and %d more; --json has a thousand, and after an audit that is no dry run billing findings has them all\n", more)
	case more > 0:
		fmt.Fprintf(b, "and %d more; billing findings has them all\n", more)
	}
	b.WriteString("\n")
}

func payoutsText(p reconcile.PayoutReport) string {
	text := fmt.Sprintf("payouts: %d read, %d payments found in them, %d available and in none; %d calls\n", p.Read, p.Found, p.Open, p.Calls)
	if p.ByHand > 0 {
		text += fmt.Sprintf("%d payouts were ordered by hand: nobody can say what is in them\n", p.ByHand)
	}
	return text
}
