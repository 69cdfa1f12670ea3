package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// emit writes what a command has to say to people. With --json it is silent: the
// object says it.
func (a *app) emit(text string) error {
	if a.json {
		return nil
	}
	if _, err := io.WriteString(a.out, text); err != nil {
		return outputError{error: fmt.Errorf("write the result: %w", err)}
	}
	return nil
}

// warn says something that a person should know, and keeps it for --json.
func (a *app) warn(out *result, format string, args ...any) {
	warning := fmt.Sprintf(format, args...)
	out.Warnings = append(out.Warnings, warning)
	if !a.json {
		fmt.Fprintln(a.err, "warning:", warning)
	}
}

// newTable makes a table with light lines. The columns whose numbers, counted
// from 1, are given hold money or counts and are right-aligned. Cells may hold
// wide characters; those from outside go through clean first.
func (a *app) newTable(header table.Row, right ...int) table.Writer {
	// The library writes colours whether or not there is a terminal.
	if !a.outTTY {
		text.DisableColors()
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	style := t.Style()
	style.Options.DrawBorder, style.Options.SeparateColumns = false, false
	style.Format.Header, style.Format.Footer = text.FormatDefault, text.FormatDefault
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	var configs []table.ColumnConfig
	for _, n := range right {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	return t
}

// printSums writes the charges of a period by state, and what they come to.
func (a *app) printSums(sums []ledger.StateSum) {
	fmt.Fprintln(a.out, a.sumsTable(sums))
}

func (a *app) sumsTable(sums []ledger.StateSum) string {
	t := a.newTable(table.Row{"state", "reason", "currency", "charges", "amount"}, 4, 5)
	sums = slices.Clone(sums)
	slices.SortStableFunc(sums, func(x, y ledger.StateSum) int {
		return slices.Index(ledger.ChargeStates, x.State) - slices.Index(ledger.ChargeStates, y.State)
	})
	var currencies []string
	count, amount := map[string]int64{}, map[string]decimal.Decimal{}
	for _, s := range sums {
		t.AppendRow(table.Row{string(s.State), clean(joined(s.Reason, s.AdviceCode)), clean(s.Currency), s.Count, formatAmount(s)})
		if _, seen := count[s.Currency]; !seen {
			currencies = append(currencies, s.Currency)
		}
		count[s.Currency] += s.Count
		amount[s.Currency] = amount[s.Currency].Add(s.Amount)
	}
	slices.Sort(currencies)
	for _, c := range currencies {
		total := ledger.StateSum{Currency: c, Amount: amount[c]}
		t.AppendFooter(table.Row{"all", "", clean(c), count[c], formatAmount(total)})
	}
	return t.Render()
}

// keyValues aligns values behind their keys, one a line; empty ones are left out.
func keyValues(pairs ...[2]string) string {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	var b strings.Builder
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", width, p[0], p[1])
		}
	}
	return b.String()
}

// clean makes text from outside safe for a terminal: what would move the cursor
// is shown as what it is.
func clean(s string) string {
	if !strings.ContainsFunc(s, isUnprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isUnprintable(r) {
			b.WriteString(strings.Trim(fmt.Sprintf("%+q", r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnprintable covers control characters and those that turn the direction of
// text around.
func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar
}

// moneyText prints an amount that came as text with the digits of its currency,
// and as it is where one of them is not what it should be.
func moneyText(amount, currency string) string {
	d, err := decimal.NewFromString(amount)
	if err != nil {
		return amount
	}
	c, err := money.ParseCurrency(currency)
	if err != nil {
		return amount
	}
	return money.Format(d, c)
}

// majorText prints Stripe's whole number in major units.
func majorText(minor int64, currency string) string {
	return money.FormatMinor(minor, money.Currency(currency))
}

// timeText prints a moment for people, "" for none.
func timeText(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// plural writes 1 invoice, 2 invoices.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
