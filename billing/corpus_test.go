package billing

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/company"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// The limits were chosen by looking at the companies of the tuning seeds, and are
// counted on those of the counting seeds, which were looked at once, at the end.
var (
	tuningSeeds   = slices.Concat(seedsFrom(1, 40), seedsFrom(101, 10), seedsFrom(201, 10))
	countingSeeds = seedsFrom(301, 20)
)

func seedsFrom(first uint64, n int) (seeds []uint64) {
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds
}

const (
	// leastMoney is the share of the month's money from which a fault counts.
	leastMoney = 0.01
	// largestRise is the largest price rise of an ordinary month: what changes an
	// account by no more looks like one, and is not counted.
	largestRise = 0.20
)

// What must hold on the counting seeds.
const (
	leastStopped   = 0.95 // of the faults
	mostFalseStops = 1.0  // in 24 ordinary months
)

var updatePage = flag.Bool("update", false, "write docs/gates.md anew")

var onTuning = flag.Bool("tuning", false, "log the page of the tuning seeds, for choosing limits, and judge nothing")

const gatesPage = "../docs/gates.md"

// listed is a period's charges in memory.
type listed []ledger.PlainCharge

func (l *listed) Peek(context.Context) (*ledger.PlainCharge, error) {
	if len(*l) == 0 {
		return nil, nil
	}
	return &(*l)[0], nil
}

func (l *listed) Take()                       { *l = (*l)[1:] }
func (l *listed) Close(context.Context) error { return nil }

// periodOf is the period of a company's month.
func periodOf(month int) ledger.Period {
	return ledger.Period(time.Date(2024, time.January+time.Month(month), 1, 0, 0, 0, 0, time.UTC).Format("2006-01"))
}

// decided runs bills through the decider of a run. The error is a run's, for files
// that it does not take at all.
func decided(bills []company.Bill, period ledger.Period) (listed, error) {
	p := newPlanner(ledger.DefaultJob, period)
	p.bare = true
	rows := make(listed, 0, len(bills))
	for _, b := range bills {
		row := ledger.Billable{
			AccountID: b.AccountID, Amount: b.Amount.String(), Currency: b.Currency,
			StripeCustomer: b.Customer, PaymentMethod: b.Card, Status: b.Status,
		}
		dec, err := p.add(&row)
		if err != nil {
			return nil, err
		}
		rows = append(rows, plainOf(&row, dec))
	}
	return rows, nil
}

// compared holds one period's charges against those of the one before, as a run does.
func compared(t *testing.T, rows, last listed, before ledger.Period) Comparison {
	t.Helper()
	c := compareWith(before, &last)
	for _, row := range rows {
		if err := c.add(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := c.end(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// told is a company with its months as a run decides them.
type told struct {
	*company.Company
	seed  uint64
	month [company.Months]listed
}

func tell(t *testing.T, seed uint64) *told {
	t.Helper()
	c := &told{Company: company.New(seed), seed: seed}
	for month, bills := range c.Months {
		rows, err := decided(bills, periodOf(month))
		if err != nil {
			t.Fatalf("%s, month %d: %v", c.Name, month, err)
		}
		c.month[month] = rows
	}
	return c
}

// ordinary counts months of companies, and those that a gate stopped by mistake.
type ordinary struct {
	months  int
	stopped []string
}

// in24 is how many of 24 months are stopped.
func (o *ordinary) in24() float64 { return 24 * float64(len(o.stopped)) / float64(o.months) }

func (o *ordinary) count(t *testing.T, c *told) {
	t.Helper()
	for month := 1; month < company.Months; month++ {
		o.months++
		list := DefaultLimits.Check(compared(t, c.month[month], c.month[month-1], periodOf(month-1)))
		if len(list) == 0 {
			continue
		}
		o.stopped = append(o.stopped, fmt.Sprintf("%s, month %d: %s: %s", c.Name, month+1, list[0].Gate, list[0].Msg))
	}
}

// fared is how the gates did with one fault.
type fared struct {
	company.Fault
	// months is in how many it was tried, tried in how many of them it came to what
	// counts, stopped how many of these a gate stopped.
	months, tried, stopped int
	gates                  map[string]int // violations, by gate
	changed                float64        // shares of the money, added up
	missed                 []string
}

// share is the share of the money that the fault changes, on average.
func (f *fared) share() float64 { return f.changed / float64(f.months) }

// counts reports that a gate of this kind could be expected to see the fault.
func (f *fared) counts() bool { return 2*f.tried >= f.months }

// try does one fault to one month of a company.
func (f *fared) try(t *testing.T, c *told, month int) {
	t.Helper()
	right := c.month[month]
	rows, err := decided(c.Faulty(f.Fault, month, c.seed), periodOf(month))
	if err != nil {
		t.Errorf("%s, %s, month %d: %v", f.Name, c.Name, month, err)
		return
	}
	off, steep := difference(rows, right)
	f.months++
	f.changed += off
	if counts := steep >= leastMoney; !counts {
		return
	}
	f.tried++
	comparison := compared(t, rows, c.month[month-1], periodOf(month-1))
	list := DefaultLimits.Check(comparison)
	if left := typed(t, list).Check(comparison); len(left) > 0 {
		t.Errorf("%s, %s, month %d: with all that it said to type, it is still stopped: %+v", f.Name, c.Name, month+1, left)
	}
	if len(list) == 0 {
		f.missed = append(f.missed, fmt.Sprintf("%s, month %d", c.Name, month+1))
		return
	}
	f.stopped++
	for _, v := range list {
		f.gates[v.Gate]++
	}
}

// typed is the default limits with what violations say to type.
func typed(t *testing.T, list []Violation) Limits {
	t.Helper()
	l := DefaultLimits
	values := map[string]*float64{
		"--max-growth": &l.MaxGrowth, "--max-drop": &l.MaxDrop, "--max-single": &l.MaxSingle, "--max-account-growth": &l.MaxAccountGrowth,
		"--max-shifted": &l.MaxShifted, "--max-jumped": &l.MaxJumped, "--max-new": &l.MaxNew, "--max-gone": &l.MaxGone,
		"--max-skipped": &l.MaxSkipped, "--min-count": &l.MinCount,
	}
	seen := map[string]bool{}
	for _, v := range list {
		switch {
		case v.Flag == "--allow-currency":
			l.Currencies = append(l.Currencies, money.Currency(v.Value))
		case v.Flag == "--allow-same":
			l.AllowSame = true
		case !seen[v.Flag]: // the first one asks for most
			value, err := strconv.ParseFloat(v.Value, 64)
			if err != nil {
				t.Errorf("%s: %v", v.Typed(), err)
				continue
			}
			*values[v.Flag] = value
		}
		seen[v.Flag] = true
	}
	return l
}

// difference is what share of the right money is charged wrongly, too much or too
// little; steep is the part of it that lies with accounts whose amount differs by
// more than a price rise may.
func difference(rows, right listed) (off, steep float64) {
	sum := 0.
	differ := func(was, is ledger.PlainCharge) {
		a, b := dollars(was), dollars(is)
		sum += a
		if was.Currency != is.Currency && a != 0 && b != 0 {
			off, steep = off+a+b, steep+a+b
			return
		}
		d := math.Abs(a - b)
		off += d
		if d > (largestRise+0.005)*a {
			steep += d
		}
	}
	for len(rows) > 0 || len(right) > 0 {
		switch {
		case len(right) == 0 || len(rows) > 0 && rows[0].AccountID < right[0].AccountID:
			differ(ledger.PlainCharge{}, rows[0])
			rows = rows[1:]
		case len(rows) == 0 || right[0].AccountID < rows[0].AccountID:
			differ(right[0], ledger.PlainCharge{})
			right = right[1:]
		default:
			differ(right[0], rows[0])
			rows, right = rows[1:], right[1:]
		}
	}
	return off / sum, steep / sum
}

func dollars(c ledger.PlainCharge) float64 {
	if c.AmountMinor == 0 {
		return 0
	}
	return company.Dollars(money.FromMinor(c.AmountMinor, money.Currency(c.Currency)), c.Currency)
}

// corpus holds the default limits against every company of some seeds.
func corpus(t *testing.T, seeds []uint64) (*ordinary, []*fared) {
	t.Helper()
	var faults []*fared
	for _, f := range company.Faults() {
		faults = append(faults, &fared{Fault: f, gates: map[string]int{}})
	}
	companies := make([]*told, len(seeds))
	normal := &ordinary{}
	for i, seed := range seeds {
		companies[i] = tell(t, seed)
		normal.count(t, companies[i])
	}
	var wait sync.WaitGroup
	for _, f := range faults {
		wait.Go(func() {
			for _, c := range companies {
				// Spread over the years, in other months for each company.
				f.try(t, c, 4+int(c.seed*7)%(company.Months-4))
			}
		})
	}
	wait.Wait()
	return normal, faults
}

// stoppedOf is the share of trials that a gate stopped, and of how many.
func stoppedOf(faults []*fared) (rate float64, tried int) {
	stopped := 0
	for _, f := range faults {
		if f.counts() {
			tried, stopped = tried+f.tried, stopped+f.stopped
		}
	}
	return float64(stopped) / float64(tried), tried
}

// The default gates stop at least 95 of 100 faults that are no ordinary month's, and
// at most one ordinary month in two years; docs/gates.md says which.
func TestTheDefaultGatesStopFaultsAndLetOrdinaryMonthsPass(t *testing.T) {
	t.Parallel()
	if *onTuning {
		t.Log(gatesText(corpus(t, tuningSeeds)))
		return
	}
	normal, faults := corpus(t, countingSeeds)
	rate, tried := stoppedOf(faults)
	t.Logf("%.1f %% of %d faulty months stopped, %.2f of 24 ordinary ones", 100*rate, tried, normal.in24())
	if rate < leastStopped {
		t.Errorf("%.1f %% of the faulty months are stopped, want %.0f %%", 100*rate, 100*leastStopped)
	}
	if normal.in24() > mostFalseStops {
		t.Errorf("%.2f of 24 ordinary months are stopped, want at most %.0f:\n%s", normal.in24(), mostFalseStops, strings.Join(normal.stopped, "\n"))
	}
	page := gatesText(normal, faults)
	if t.Failed() {
		return // the page says that this is so
	}
	if *updatePage {
		if err := os.WriteFile(gatesPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(gatesPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(kept), page); diff != "" {
		t.Errorf("docs/gates.md is not what happens; go test ./billing -run DefaultGates -update writes it anew (-kept +now):\n%s", diff)
	}
}

// gatesText is docs/gates.md.
func gatesText(normal *ordinary, faults []*fared) string {
	var b strings.Builder
	b.WriteString(gatesIntro)
	b.WriteString("| flag | default | stops when |\n|---|---|---|\n")
	for _, g := range gateLines() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", g[0], g[1], g[2])
	}
	rate, tried := stoppedOf(faults)
	counted := 0
	for _, f := range faults {
		if f.counts() {
			counted++
		}
	}
	fmt.Fprintf(&b, corpusIntro, len(faults), counted, tried, 100*rate, len(normal.stopped), normal.months, normal.in24(),
		len(countingSeeds), company.Months, company.Months-1, len(tuningSeeds))
	slices.SortStableFunc(faults, func(a, b *fared) int {
		return cmp.Compare(float64(a.stopped)/float64(max(a.tried, 1)), float64(b.stopped)/float64(max(b.tried, 1)))
	})
	b.WriteString("## Faults that are not always stopped\n\n")
	writeFaults(&b, faults, func(f *fared) bool { return f.counts() && f.stopped < f.tried })
	b.WriteString("\n## Faults that are always stopped\n\n")
	writeFaults(&b, faults, func(f *fared) bool { return f.counts() && f.stopped == f.tried })
	b.WriteString(apartIntro)
	b.WriteString("| what happened | how it comes about | of the money |\n|---|---|---|\n")
	for _, f := range faults {
		if !f.counts() {
			fmt.Fprintf(&b, "| %s | %s | %.1f %% |\n", f.Name, f.Models, 100*f.share())
		}
	}
	b.WriteString("\n## Ordinary months that were stopped\n\n")
	for _, text := range normal.stopped {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	b.WriteString(notSeen)
	return b.String()
}

// writeFaults writes the rows of some faults: how often they were stopped, by what,
// and where they were not.
func writeFaults(b *strings.Builder, faults []*fared, which func(*fared) bool) {
	b.WriteString("| what happened | how it comes about | of the money | stopped | by | not in |\n|---|---|---|---|---|---|\n")
	for _, f := range faults {
		if !which(f) {
			continue
		}
		gates := slices.Sorted(maps.Keys(f.gates))
		slices.SortStableFunc(gates, func(x, y string) int { return cmp.Compare(f.gates[y], f.gates[x]) })
		missed := strings.Join(f.missed[:min(len(f.missed), 2)], "; ")
		if len(f.missed) > 2 {
			missed += " …"
		}
		fmt.Fprintf(b, "| %s | %s | %.0f %% | %d of %d | %s | %s |\n", f.Name, f.Models, 100*f.share(),
			f.stopped, f.tried, strings.Join(gates[:min(len(gates), 3)], ", "), missed)
	}
}

// gateLines are the gates: flag, default, and when they stop.
func gateLines() [][3]string {
	d := DefaultLimits
	n := func(f float64) string { return fmt.Sprintf("%g", f) }
	return [][3]string{
		{"--max-growth", n(d.MaxGrowth), fmt.Sprintf("a currency's total, or all currencies together, is more by a larger share than this; %d average charges may come on top, so that a year paid at once does not stop a currency in which few pay", onTop)},
		{"--max-drop", n(d.MaxDrop), "a currency's total is less by a larger share, even if one charge like the last period's largest were there; or all currencies together are; or nobody pays in a currency any more"},
		{"--max-single", n(d.MaxSingle), fmt.Sprintf("a charge is this many times the last period's largest in its currency, and over %d average ones", onTop)},
		{"--max-account-growth", n(d.MaxAccountGrowth), "an account is charged this many times what it was, and more than five average charges"},
		{"--max-shifted", n(d.MaxShifted), "accounts that pay over a fifth more outnumber those that pay over a fifth less (or the reverse) by a larger share of the accounts: prices moved, not customers"},
		{"--max-jumped", n(d.MaxJumped), fmt.Sprintf("a larger share of the accounts pays at least twice or at most half of what it paid, or in another currency; %.0f %% of those whose amount changed by less are allowed besides, because who pays by usage sometimes does", 100*usualJumps)},
		{"--max-new", n(d.MaxNew), "a larger share of the accounts that are charged was not, in the last period"},
		{"--max-gone", n(d.MaxGone), "a larger share of the accounts of the last period is not charged"},
		{"--max-skipped", n(d.MaxSkipped), "a larger share of the invoices has no card, no customer, no account, or an amount or a currency that is none (twice the last period's share, where that was larger)"},
		{"--min-count", n(d.MinCount), "there are fewer charges than this share of the last period's"},
		{"--allow-currency", "none", "more than five charges, and more than 2 % of them, are in a currency in which nobody paid"},
		{"--allow-same", "no", fmt.Sprintf("not one amount changed: with nobody new or gone, or with at least %d accounts", many)},
		{"--max-total", "none", "a currency's total is over a sum that a person named"},
		{"--max-charge", "none", "a single charge is over a sum that a person named"},
		{"--max-charges", "none", "there are more charges than a person named"},
	}
}

const gatesIntro = `# The gates, and what they catch

Written by a test (TestTheDefaultGatesStopFaultsAndLetOrdinaryMonthsPass in billing), which fails if one figure is not
true any more; ` + "`go test ./billing -run DefaultGates -update`" + ` writes the page anew. Limits are chosen by what the same
command says with ` + "`-v -tuning`" + ` about other companies.

Before a period is recorded, its plan is held against the last period that has charges. If it is no ordinary month, the
run ends with exit 3, nothing is recorded and no money moves; it says which gate, by how much, and what to type if the
plan is right. ` + "`billing preview`" + ` says the same the evening before. Every flag can be set for good by an environment
variable (` + "`--max-jumped`" + ` is ` + "`BILLING_MAX_JUMPED`" + `); 0 switches a share or factor off. Shares of accounts mean something
from 20 charges on, and five accounts must be concerned.

`

const corpusIntro = `
The defaults suit a company with flat plans, up to a third of its accounts paying by usage and up to a quarter by the
year. Where most pay by usage, or most by the year, ordinary months differ by more: look at two or three previews, and
set ` + "`BILLING_MAX_JUMPED`, `BILLING_MAX_SHIFTED`, `BILLING_MAX_NEW` and `BILLING_MAX_GONE`" + ` to what they show.

## How it was counted

**%d faults** were made in the files of companies that fixtures/company makes up, and the months decided and compared by
the code of a run. %d of them count, in %d faulty months: **%.1f %% were stopped**. Of the ordinary months of the same
companies %d of %d were stopped: **%.2f in 24**.

- %d companies over %d months, each with 400 to 900 accounts at first, six currencies (usd, eur, gbp, jpy, kwd, isk), 2 to
  6 %% new and 1 to 3 %% gone a month, flat plans, usage with a season, annual plans at ten or twelve monthly prices, up-
  and downgrades, discounts, free plans, credits, accounts without a card, one price rise of 8 to 20 %% for all, and two or
  three customers that are worth fifty others. Each fault is tried in a month of each; of each, %d months are ordinary ones.
- The limits were chosen by looking at %d other companies (tuningSeeds and countingSeeds in billing/corpus_test.go).
- A faulty month counts if at least 1 %% of the money is wrong through accounts whose amount differs by more than 20 %%.
  What does less is a rounding error, or looks like a price rise that an ordinary month may bring: a gate that stopped it
  would stop that month too. A fault counts if half of its months do; the others are listed apart.
- "Of the money" is what is charged wrongly, too much or too little, as a share of what is right.

`

const apartIntro = `
## Faults that no gate of this kind sees

In most of its months each changes under 1 % of the money, or no account by more than a price rise does.

`

const notSeen = `
## What gates can't see

They compare a month with the one before, account by account, and know nothing of contracts. So they can't see an amount
that is wrong for one customer but like its others; two customers exchanged; a price rise that nobody decided; a charge
for the year that is due in another month; a discount that was forgotten for a few. What they let pass is not approved:
the totals per currency, the largest charges and the list of changes in ` + "`billing preview`" + ` are for a person, and
` + "`BILLING_REQUIRE_APPROVAL`" + ` makes a run wait for one. The first period has nothing to compare with: with a live key it
needs ` + "`--max-total`" + ` for each currency, or an approval. And what is wrong in the same way every month is ordinary.
`
