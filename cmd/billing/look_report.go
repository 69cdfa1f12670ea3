package main

import (
	"encoding/csv"
	"fmt"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const (
	// shownLines is how many charges of one outcome the table shows, keptLines how
	// many --json has; csv has all of them.
	shownLines = 20
	keptLines  = 1000
)

// lookReport collects what a look came to. Memory stays flat: beyond a number
// lines are only counted.
type lookReport struct {
	a   *app
	csv *csv.Writer // nil for a table
	// retry says that the look is about declined charges, and opens tries.
	retry bool

	mu        sync.Mutex
	lines     map[reconcile.Outcome][]reconcile.Line
	counts    map[reconcile.Outcome]int64
	total     reconcile.Report
	periods   []periodLooked
	standings []standing
	all       []ledger.PeriodLine // every period, where none was open
}

type periodLooked struct {
	period ledger.Period
	report reconcile.Report
}

var lookColumns = []string{"outcome", "period", "account_id", "billing_key", "amount", "currency", "payment_intent", "found", "done", "next"}

func newLookReport(a *app, format string) (*lookReport, error) {
	r := &lookReport{a: a, lines: map[reconcile.Outcome][]reconcile.Line{}, counts: map[reconcile.Outcome]int64{}}
	switch {
	case format == "csv" && a.json:
		return nil, usagef("--format csv and --json are both about stdout: take one")
	case format == "csv":
		r.csv = csv.NewWriter(a.out)
		if err := r.csv.Write(lookColumns); err != nil {
			return nil, outputError{error: fmt.Errorf("write the result: %w", err)}
		}
	}
	return r, nil
}

// line takes one charge. What has nothing to say is only counted.
func (r *lookReport) line(l reconcile.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[l.Outcome]++
	if r.csv != nil {
		_ = r.csv.Write(csvOf(l)) // its error is read at the end
		return
	}
	if len(r.lines[l.Outcome]) < keptLines {
		r.lines[l.Outcome] = append(r.lines[l.Outcome], l)
	}
}

func csvOf(l reconcile.Line) []string {
	return []string{string(l.Outcome), string(l.Period), l.AccountID, l.BillingKey, moneyText(l.Amount, l.Currency), l.Currency, l.PaymentIntent, l.Found, l.Done, l.Next}
}

func (r *lookReport) add(period ledger.Period, report reconcile.Report) {
	r.periods = append(r.periods, periodLooked{period, report})
	r.total.Looked += report.Looked
	r.total.Settled += report.Settled
	r.total.Renewed += report.Renewed
	r.total.Recorded += report.Recorded
	r.total.Findings += report.Findings
	r.total.Calls.Searches += report.Calls.Searches
	r.total.Calls.Pages += report.Calls.Pages
	r.total.Calls.Gets += report.Calls.Gets
	if at := report.NextLook; at != nil && (r.total.NextLook == nil || at.Before(*r.total.NextLook)) {
		r.total.NextLook = at
	}
}

// print writes the report for people.
func (r *lookReport) print(dryRun bool) error {
	if r.csv != nil {
		if r.csv.Flush(); r.csv.Error() != nil {
			return outputError{error: fmt.Errorf("write the result: %w", r.csv.Error())}
		}
		return nil
	}
	var b strings.Builder
	for _, o := range reconcile.Outcomes {
		r.addTable(&b, o)
	}
	b.WriteString(r.sentence(dryRun))
	return r.a.emit(b.String())
}

func (r *lookReport) addTable(b *strings.Builder, o reconcile.Outcome) {
	lines := r.lines[o]
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %s\n", o, plural(r.counts[o], "charge", "charges"))
	t := r.a.newTable(table.Row{"account", "amount", "currency", "payment", "found", "done", "next"}, 2)
	for _, l := range lines[:min(len(lines), shownLines)] {
		t.AppendRow(table.Row{clean(l.AccountID), moneyText(l.Amount, l.Currency), clean(l.Currency), l.PaymentIntent, clean(l.Found), clean(l.Done), cleanLines(l.Next)})
	}
	b.WriteString(t.Render() + "\n")
	if o == reconcile.OutcomeHeld {
		b.WriteString("release charges it with the next run; billing void withdraws it\n")
	}
	if more := r.counts[o] - shownLines; more > 0 {
		fmt.Fprintf(b, "and %d more; --format csv has them all\n", more)
	}
	b.WriteString("\n")
}

// sentence says what was looked at, and what the ledger has now.
func (r *lookReport) sentence(dryRun bool) string {
	t := r.total
	calls := fmt.Sprintf("%s to Stripe: %d searches, %d pages, %d single", plural(t.Calls.All(), "call", "calls"), t.Calls.Searches, t.Calls.Pages, t.Calls.Gets)
	var b strings.Builder
	if t.Looked == 0 && len(r.counts) == 0 {
		fmt.Fprintf(&b, "nothing open: %s\n", r.accounted())
		return b.String()
	}
	what := "settled"
	if dryRun {
		what = "would be settled"
	}
	switch {
	case r.retry && t.Looked == 0:
		fmt.Fprintf(&b, "%s, and none may be tried again now: Stripe was not asked", plural(r.counts[reconcile.OutcomeNotRetried], "declined charge", "declined charges"))
	case r.retry:
		fmt.Fprintf(&b, "%s looked at (%s); %d %s, %s", plural(t.Looked, "declined charge", "declined charges"), calls, t.Settled, what, plural(t.Renewed, "try opened", "tries opened"))
	default:
		fmt.Fprintf(&b, "%s looked at (%s); %d %s, %d renewed", plural(t.Looked, "open charge", "open charges"), calls, t.Settled, what, t.Renewed)
	}
	if t.Recorded > 0 {
		fmt.Fprintf(&b, ", %d recorded", t.Recorded)
	}
	if t.Findings > 0 {
		fmt.Fprintf(&b, ", %s opened", plural(t.Findings, "finding", "findings"))
	}
	b.WriteString("\n")
	if dryRun {
		b.WriteString("nothing was changed (dry run)\n")
	}
	if t.NextLook != nil {
		fmt.Fprintf(&b, "the first of those that wait may be decided after %s\n", t.NextLook.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return b.String()
}

// accounted says how many charges there are, all of them with a known outcome.
func (r *lookReport) accounted() string {
	var charges int64
	for _, s := range r.standings {
		for _, sum := range s.summary.Sums {
			charges += sum.Count
		}
	}
	for _, p := range r.all {
		for _, n := range p.Charges {
			charges += n
		}
	}
	return plural(charges, "charge", "charges") + " looked at, every outcome is known"
}

// verdict is the most urgent of the periods', in the order of the exit codes.
func (r *lookReport) verdict() (worst error) {
	for i := range r.standings {
		err := r.standings[i].verdict()
		if err != nil && (worst == nil || urgency(classify(err).code) < urgency(classify(worst).code)) {
			worst = err
		}
	}
	return worst
}

// urgency is a code's place in the order in which codes count.
func urgency(code int) int {
	for i, c := range []int{exitBug, exitBadConfig, exitNoPermission, exitUsage, exitBadInput, exitCannotCreate, exitIOError, exitStopped, exitUnreachable, exitUnknown, exitNeedsPerson} {
		if c == code {
			return i
		}
	}
	return 99
}

// lookJSON is what a look adds to --json.
type lookJSON struct {
	Looked  int64            `json:"looked"`
	Counts  map[string]int64 `json:"outcomes"`
	Calls   map[string]int64 `json:"calls"`
	Next    string           `json:"next_look_at,omitempty"`
	Charges []lookLineJSON   `json:"charges"` // at most a thousand of each outcome
}

type lookLineJSON struct {
	Outcome       string `json:"outcome"`
	Period        string `json:"period"`
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	Amount        string `json:"amount"`
	Currency      string `json:"currency"`
	PaymentIntent string `json:"payment_intent"`
	Found         string `json:"found"`
	Done          string `json:"done"`
	Next          string `json:"next"`
}

func (r *lookReport) json() any {
	t := r.total
	out := lookJSON{
		Looked: t.Looked, Counts: map[string]int64{}, Charges: []lookLineJSON{}, Next: rfc3339(t.NextLook),
		Calls: map[string]int64{"searches": t.Calls.Searches, "pages": t.Calls.Pages, "single": t.Calls.Gets},
	}
	for _, o := range reconcile.Outcomes {
		if n := r.counts[o]; n > 0 {
			out.Counts[string(o)] = n
		}
		for _, l := range r.lines[o] {
			out.Charges = append(out.Charges, lookLineJSON{
				string(o), string(l.Period), l.AccountID, l.BillingKey, moneyText(l.Amount, l.Currency), l.Currency, l.PaymentIntent, l.Found, l.Done, l.Next,
			})
		}
	}
	return out
}
