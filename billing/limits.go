package billing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Limits are what a plan is held against before it is recorded. Shares and factors
// compare with the last period that has charges; 0 switches one off.
type Limits struct {
	// MaxCharges bounds how many charges there are to send.
	MaxCharges int64
	// MaxTotal and MaxCharge bound a currency's total and a single charge, in
	// minor units, for the currencies that are named.
	MaxTotal, MaxCharge map[money.Currency]int64
	// MaxGrowth and MaxDrop bound how much more or less a currency's total is, as a
	// share of the last one: 0.5 is half as much again. One charge of the size of
	// the last period's largest is always allowed on top.
	MaxGrowth, MaxDrop float64
	// MaxSingle bounds a single charge, by the last period's largest in its
	// currency; MaxAccountGrowth how many times an account's last amount it may be.
	MaxSingle, MaxAccountGrowth float64
	// MaxShifted is by what share of the accounts those whose amount rose by more
	// than a fifth may outnumber those whose amount fell as much, or the reverse.
	MaxShifted float64
	// MaxJumped, MaxNew, MaxGone and MaxSkipped are shares of the accounts: whose
	// amount doubled or halved, that are new, that are gone, that can't be charged.
	MaxJumped, MaxNew, MaxGone, MaxSkipped float64
	// MinCount is the least share of the last period's charges.
	MinCount float64
	// Currencies are allowed although the last period had none of them.
	Currencies []money.Currency
	// AllowSame lets a period be recorded that is the last one, account by account.
	AllowSame bool
}

// DefaultLimits stop what ordinary months are not: docs/gates.md has what they
// catch, and what they do not.
var DefaultLimits = Limits{
	MaxGrowth: 0.5, MaxDrop: 0.4, MaxSingle: 3, MaxAccountGrowth: 30,
	MaxShifted: 0.25, MaxJumped: 0.03, MaxNew: 0.15, MaxGone: 0.09, MaxSkipped: 0.1, MinCount: 0.5,
}

// leastForShares is how many charges a period must have for shares of its accounts
// to mean anything.
const leastForShares = 20

const (
	// leastConcerned is how many accounts a gate must be about.
	leastConcerned = 5
	// usualJumps is what share of the accounts whose amount changed by less may jump
	// besides: who pays by usage sometimes does.
	usualJumps = 0.1
	// many is how many accounts there must be for it to be odd that not one amount
	// changed, and for no single charge to matter to the whole.
	many = 300
	// onTop is how many average charges may come on top of a currency's total: one
	// year of the dearest plan. It is much where few pay, and little where many do.
	onTop = 130
)

// Violation is one limit that a plan does not keep.
type Violation struct {
	// Gate names the limit; Flag and Value are what to type if the plan is right.
	Gate, Flag, Value string
	Msg               string
}

// Typed is what to type if the plan is right.
func (v Violation) Typed() string { return strings.TrimSpace(v.Flag + " " + v.Value) }

// Check returns the limits that a plan does not keep, the most telling first.
func (l Limits) Check(c Comparison) (list []Violation) {
	list = append(list, l.caps(c)...)
	if c.Last == "" {
		return list
	}
	list = append(list, l.totals(c)...)
	list = append(list, l.overall(c)...)
	list = append(list, l.singles(c)...)
	list = append(list, l.shares(c)...)
	// What asks for most comes first, so that one value is enough for its flag.
	slices.SortStableFunc(list, func(a, b Violation) int { return cmp.Compare(b.weight(), a.weight()) })
	return list
}

// weight orders violations of one flag by what they ask for.
func (v Violation) weight() float64 {
	n, err := strconv.ParseFloat(v.Value, 64)
	if err != nil || v.Flag == "--min-count" {
		return 0
	}
	return n
}

// isCapped reports that somebody said how much is right in a currency.
func (l Limits) isCapped(currency string) bool {
	_, capped := l.MaxTotal[money.Currency(currency)]
	return capped
}

// caps are absolute.
func (l Limits) caps(c Comparison) (list []Violation) {
	count := int64(0)
	for _, of := range c.Currencies {
		count += of.Count
		cur := money.Currency(of.Currency)
		if most, set := l.MaxTotal[cur]; set && of.Minor > most {
			list = append(list, Violation{"max_total", "--max-total", fmt.Sprintf("%s=%s", cur, money.FormatMinor(of.Minor, cur)),
				fmt.Sprintf("%s in all, %s is allowed", moneyOf(of.Minor, cur), moneyOf(most, cur))})
		}
		if most, set := l.MaxCharge[cur]; set && of.Max > most {
			list = append(list, Violation{"max_charge", "--max-charge", fmt.Sprintf("%s=%s", cur, money.FormatMinor(of.Max, cur)),
				fmt.Sprintf("a single charge of %s, %s is allowed", moneyOf(of.Max, cur), moneyOf(most, cur))})
		}
	}
	if l.MaxCharges > 0 && count > l.MaxCharges {
		list = append(list, Violation{"max_charges", "--max-charges", fmt.Sprint(count), fmt.Sprintf("%d charges, %d are allowed", count, l.MaxCharges)})
	}
	return list
}

// totals compares each currency's total.
func (l Limits) totals(c Comparison) (list []Violation) {
	all := int64(0)
	for _, of := range c.Currencies {
		all += of.Count
	}
	for _, of := range c.Currencies {
		cur := money.Currency(of.Currency)
		if of.LastCount == 0 {
			if few := max(5, all/50); of.Count > few && !slices.Contains(l.Currencies, cur) {
				list = append(list, Violation{"new_currency", "--allow-currency", of.Currency,
					fmt.Sprintf("%s in %s, in which nobody paid in %s", plural(of.Count, "charge", "charges"), of.Currency, c.Last)})
			}
			continue
		}
		change := share(of.Minor, of.LastMinor) - 1
		text := fmt.Sprintf("%s after %s in %s", moneyOf(of.Minor, cur), moneyOf(of.LastMinor, cur), c.Last)
		switch {
		case l.MaxGrowth > 0 && float64(of.Minor) > float64(of.LastMinor)*(1+l.MaxGrowth)+onTop*of.lastMean():
			list = append(list, Violation{"growth", "--max-growth", roundUp(change), fmt.Sprintf("%s: %.0f %% more, %.0f %% is allowed", text, 100*change, 100*l.MaxGrowth)})
		case l.MaxDrop > 0 && of.hasDropped(l.MaxDrop):
			list = append(list, Violation{"drop", "--max-drop", roundUp(-change), fmt.Sprintf("%s: %.0f %% less, %.0f %% is allowed", text, -100*change, 100*l.MaxDrop)})
		}
	}
	return list
}

// overall compares all currencies together, each in the average charges that it had
// in the last period: no rates are needed for that, and where many pay it says more
// than any one currency.
func (l Limits) overall(c Comparison) []Violation {
	now, last, top := 0., 0., 0.
	for _, of := range c.Currencies {
		if mean := of.lastMean(); mean > 0 {
			now, last = now+float64(of.Minor)/mean, last+float64(of.LastCount)
			top = max(top, float64(of.LastMax)/mean)
		}
	}
	if last >= many {
		top = 0 // no single charge explains it
	}
	text := func(change float64, word string, allowed float64) string {
		return fmt.Sprintf("all currencies together are %.0f %% %s than in %s, %.0f %% is allowed", 100*change, word, c.Last, 100*allowed)
	}
	switch change := now/last - 1; {
	case l.MaxGrowth > 0 && now > last*(1+l.MaxGrowth)+onTop:
		return []Violation{{"growth", "--max-growth", roundUp(change), text(change, "more", l.MaxGrowth)}}
	case l.MaxDrop > 0 && now+top < last*(1-l.MaxDrop):
		return []Violation{{"drop", "--max-drop", roundUp(-change), text(-change, "less", l.MaxDrop)}}
	}
	return nil
}

// hasDropped reports that a total is less by more than a share. The last period's
// largest charge may have been one that comes once a year, unless nothing is left.
func (of CurrencyChange) hasDropped(limit float64) bool {
	if of.Count == 0 && of.LastCount >= leastConcerned {
		return limit < 1
	}
	return float64(of.Minor+of.LastMax) < float64(of.LastMinor)*(1-limit)
}

// lastMean is the last period's average charge, in minor units.
func (of CurrencyChange) lastMean() float64 { return share(of.LastMinor, of.LastCount) }

// singles looks at the largest charges and at those that grew most.
func (l Limits) singles(c Comparison) (list []Violation) {
	for _, of := range c.Currencies {
		if a, found := c.outstanding(of, l.MaxSingle); found {
			cur, times := money.Currency(of.Currency), share(a.Minor, of.LastMax)
			list = append(list, Violation{"single_charge", "--max-single", roundUp(times),
				fmt.Sprintf("account %s: a single charge of %s, the largest in %s was %s: %.1f times as much, %.1f is allowed",
					a.AccountID, moneyOf(a.Minor, cur), c.Last, moneyOf(of.LastMax, cur), times, l.MaxSingle)})
		}
	}
	for _, a := range c.Steepest {
		// Small amounts grow steeply without harm: it must stand among the large.
		if l.MaxAccountGrowth <= 0 || a.Factor() <= l.MaxAccountGrowth || !c.isLarge(a) {
			continue
		}
		cur := money.Currency(a.Currency)
		return append(list, Violation{"account_growth", "--max-account-growth", roundUp(a.Factor()),
			fmt.Sprintf("account %s: %s after %s, %.0f times as much, %.0f is allowed", a.AccountID, moneyOf(a.Minor, cur), moneyOf(a.LastMinor, cur), a.Factor(), l.MaxAccountGrowth)})
	}
	return list
}

// outstanding returns the largest charge of a currency if it is above what is
// allowed: by the last period's largest, or as one that comes once a year.
func (c Comparison) outstanding(of CurrencyChange, limit float64) (most AccountChange, found bool) {
	if limit <= 0 || of.LastCount < leastForShares {
		return most, false
	}
	for _, a := range c.Largest {
		if a.Currency == of.Currency {
			return a, float64(a.Minor) > max(limit*float64(of.LastMax), onTop*of.lastMean())
		}
	}
	return most, false
}

// isLarge reports that an amount stands out from the last period's.
func (c Comparison) isLarge(a AccountChange) bool {
	for _, of := range c.Currencies {
		if of.Currency == a.Currency {
			return of.LastCount > 0 && a.Minor > of.LastMinor/of.LastCount*5
		}
	}
	return false
}

// shares compares how many accounts are not what they were.
func (l Limits) shares(c Comparison) (list []Violation) {
	now, last := int64(0), int64(0)
	for _, of := range c.Currencies {
		now, last = now+of.Count, last+of.LastCount
	}
	if last < leastForShares {
		return nil
	}
	both := c.Up + c.Down + c.Same + c.Moved
	add := func(limit float64, gate, flag, what string, n, of int64) {
		if s := share(n, of); limit > 0 && s > limit+rounding && n >= leastConcerned {
			list = append(list, Violation{gate, flag, roundUp(s), fmt.Sprintf("%d of %d accounts %s: %s, %s is allowed", n, of, what, percent(s), percent(limit))})
		}
	}
	if s := share(now, last); l.MinCount > 0 && s < l.MinCount {
		list = append(list, Violation{"min_count", "--min-count", roundDown(s), fmt.Sprintf("%d charges after %d in %s: %.0f %%, at least %.0f %% must be there", now, last, c.Last, 100*s, 100*l.MinCount)})
	}
	jumped := l.MaxJumped
	if jumped > 0 { // 0 switches it off
		jumped += usualJumps * share(c.Up+c.Down-c.Jumped, both)
	}
	add(jumped, "jumped", "--max-jumped", "pay at least twice or at most half of what they paid, or in another currency", c.Jumped+c.Moved, both)
	if c.Rose >= c.Fell {
		add(l.MaxShifted, "shifted", "--max-shifted", "more rose by over a fifth than fell as much", c.Rose-c.Fell, both)
	} else {
		add(l.MaxShifted, "shifted", "--max-shifted", "more fell by over a fifth than rose as much", c.Fell-c.Rose, both)
	}
	add(l.MaxNew, "new_accounts", "--max-new", "were not charged in "+string(c.Last), c.New, now)
	add(l.MaxGone, "gone_accounts", "--max-gone", "of "+string(c.Last)+" are not charged", c.Gone, last)
	// A share that the last period had as well is this company's.
	if s := share(c.LastSkipped, c.LastRows); s <= l.MaxSkipped || l.MaxSkipped <= 0 {
		add(l.MaxSkipped, "skipped", "--max-skipped", "can't be charged", c.Skipped, c.Rows)
	} else {
		add(2*s, "skipped", "--max-skipped", "can't be charged", c.Skipped, c.Rows)
	}
	if c.isSame() && !l.AllowSame {
		list = append(list, Violation{"same", "--allow-same", "", fmt.Sprintf("everyone who paid in %s pays the same again, to the cent: is it the same file?", c.Last)})
	}
	return list
}

// isSame reports that the amounts are the last period's.
func (c Comparison) isSame() bool {
	changed, others := c.Up+c.Down+c.Moved, c.New+c.Gone
	return changed == 0 && (c.Same >= many || c.Same >= leastForShares && others == 0)
}

// stopped is the error of a plan that does not keep its limits.
func stopped(period ledger.Period, list []Violation) error {
	lines := make([]string, len(list))
	flags := make([]string, 0, len(list))
	for i, v := range list {
		lines[i] = v.Gate + ": " + v.Msg
		// Of a flag that takes one value, the first one named asks for most.
		if !slices.ContainsFunc(list[:i], func(o Violation) bool {
			return o.Flag == v.Flag && !strings.Contains(v.Value, "=") && v.Flag != "--allow-currency"
		}) {
			flags = append(flags, v.Typed())
		}
	}
	return &StoppedError{
		Gate: list[0].Gate,
		Msg:  fmt.Sprintf("the plan of %s is not an ordinary one, and nothing was recorded:\n   %s", period, strings.Join(lines, "\n   ")),
		Hint: fmt.Sprintf("look: billing preview --period %s; if it is right: billing run --period %s %s", period, period, strings.Join(flags, " ")),
	}
}

func share(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// rounding is how far a share may be over its limit: what roundUp suggests must do.
const rounding = 1e-6

// percent is a share for people: "8 %", "8.4 %".
func percent(s float64) string { return trimZeros(math.Round(1000*s)/10) + " %" }

func roundUp(s float64) string   { return trimZeros(math.Ceil((s-rounding)*100) / 100) }
func roundDown(s float64) string { return trimZeros(math.Floor((s+rounding)*100) / 100) }

func trimZeros(f float64) string { return fmt.Sprintf("%g", f) }

func moneyOf(minor int64, c money.Currency) string {
	return money.FormatMinor(minor, c) + " " + string(c)
}

// currenciesOf lists the currencies of a plan, for whoever must set caps.
func currenciesOf(c Comparison) []string {
	var list []string
	for _, of := range c.Currencies {
		if of.Count > 0 {
			list = append(list, of.Currency)
		}
	}
	sort.Strings(list)
	return list
}
