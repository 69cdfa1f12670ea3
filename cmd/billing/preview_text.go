package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

// previewText is a preview for people.
func (a *app) previewText(period ledger.Period, v billing.Preview) string {
	var b strings.Builder
	fmt.Fprintf(&b, "period %s: %s, plan %s\n", period, plural(v.Plan.Rows, "invoice", "invoices"), v.Plan.Hash)
	if v.Plan.Rows == 0 {
		fmt.Fprintf(&b, "nothing is billable; import invoices: billing import invoices --period %s --file F\n", period)
		return b.String()
	}
	b.WriteString(a.sumsTable(v.Plan.Sums) + "\n")
	if recorded := v.Plan.Rows - v.Summary.Unrecorded; recorded > 0 {
		fmt.Fprintf(&b, "%d of them are in the ledger already and stay as they were recorded:\n%s\n", recorded, a.sumsTable(v.Summary.Sums))
	}
	a.addComparison(&b, v)
	b.WriteString(keyValues(
		[2]string{"expired cards", expiredText(v)},
		[2]string{"past the window", pastText(v)},
		[2]string{"paused", strings.Join(pausesText(v.Pauses), "; ")},
		[2]string{"sends", willSendText(v)},
		[2]string{"approved", approvedText(v)},
	))
	addGates(&b, period, v)
	b.WriteString("nothing was written and nothing was sent\n")
	return b.String()
}

// addComparison puts the period beside the last one.
func (a *app) addComparison(b *strings.Builder, v billing.Preview) {
	if v.Last == "" {
		b.WriteString("there is no earlier period to compare it with\n")
		return
	}
	t := a.newTable(table.Row{"to charge", "charges", string(v.Last), "change", "amount", string(v.Last), "change"}, 2, 3, 4, 5, 6, 7)
	for _, c := range v.Currencies {
		t.AppendRow(table.Row{c.Currency, c.Count, c.LastCount, percent(c.Count, c.LastCount), minorText(c.Minor, c.Currency), minorText(c.LastMinor, c.Currency), percent(c.Minor, c.LastMinor)})
	}
	fmt.Fprintf(b, "\n%s\n", t.Render())
	fmt.Fprintf(b, "beside %s: %d new, %d gone, %d pay more, %d less, %d the same", v.Last, v.New, v.Gone, v.Up, v.Down, v.Same)
	if v.Jumped > 0 {
		fmt.Fprintf(b, "; %d at least twice or at most half as much", v.Jumped)
	}
	if v.Moved > 0 {
		fmt.Fprintf(b, "; %d in another currency", v.Moved)
	}
	b.WriteString("\n")
	a.addChanges(b, "largest charges", v.Largest)
	a.addChanges(b, "steepest rises", v.Steepest)
}

func (a *app) addChanges(b *strings.Builder, title string, list []billing.AccountChange) {
	if len(list) == 0 {
		return
	}
	t := a.newTable(table.Row{title, "amount", "before", "currency"}, 2, 3)
	for _, c := range list[:min(len(list), 5)] {
		t.AppendRow(table.Row{clean(c.AccountID), minorText(c.Minor, c.Currency), minorText(c.LastMinor, c.Currency), c.Currency})
	}
	fmt.Fprintf(b, "\n%s\n", t.Render())
}

func percent(now, last int64) string {
	if last == 0 {
		return "new"
	}
	return fmt.Sprintf("%+.1f %%", 100*(float64(now)/float64(last)-1))
}

func expiredText(v billing.Preview) string {
	if v.ExpiredCards == 0 {
		return ""
	}
	text := plural(v.ExpiredCards, "account", "accounts") + ": " + clean(strings.Join(v.ExpiredCardsOf, ", "))
	if more := v.ExpiredCards - int64(len(v.ExpiredCardsOf)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func pastText(v billing.Preview) string {
	if v.Summary.Expired == 0 {
		return ""
	}
	return plural(v.Summary.Expired, "charge", "charges") + ": the run looks at Stripe for these first"
}

func willSendText(v billing.Preview) string {
	switch {
	case v.Sends == 0:
		return "none"
	case v.Takes == 0:
		return fmt.Sprintf("%d, as fast as it goes", v.Sends)
	case !v.Fits:
		return fmt.Sprintf("%d, which takes %s: longer than the window or the deadline; a higher --rate, if Stripe allows it, or several runs", v.Sends, v.Takes.Round(time.Second))
	}
	return fmt.Sprintf("%d, which takes %s at the rate", v.Sends, v.Takes.Round(time.Second))
}

func approvedText(v billing.Preview) string {
	switch {
	case v.Approval == nil:
		return ""
	case v.Approval.Plan == v.Plan.Hash:
		return fmt.Sprintf("by %s, %s", clean(v.Approval.ApprovedBy), timeText(&v.Approval.ApprovedAt))
	}
	return fmt.Sprintf("plan %s by %s, which is not this one", v.Approval.Plan, clean(v.Approval.ApprovedBy))
}

// addGates says what would stop the run, and what to type if it must not.
func addGates(b *strings.Builder, period ledger.Period, v billing.Preview) {
	if len(v.Violations) == 0 {
		return
	}
	b.WriteString("\nthe run would stop:\n")
	for _, g := range v.Violations {
		fmt.Fprintf(b, "   %s: %s   (%s)\n", g.Gate, g.Msg, g.Typed())
	}
	if len(v.Violations) == 1 && v.Violations[0].Gate == "usage_not_invoiced" {
		return // an approval does not pass it
	}
	fmt.Fprintf(b, "if it is right: billing approve --period %s --plan %s --by NAME\n", period, v.Plan.Hash)
}
