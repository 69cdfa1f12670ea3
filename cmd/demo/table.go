//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/fixtures/world"
	"github.com/chargeonce/billing/ledger"
)

// line is one line of the closing table.
type line struct {
	state    ledger.ChargeState
	currency string
}

// sum is how many charges stand on a line and what they come to in major units.
type sum struct {
	count  int
	amount decimal.Decimal
}

// side is what one witness says of the month.
type side map[line]sum

func (s side) add(l line, count int, amount decimal.Decimal) {
	was := s[l]
	s[l] = sum{was.count + count, was.amount.Add(amount)}
}

// byHand is what the month must come to, worked out beforehand.
func byHand() side {
	s := side{}
	for _, t := range world.Expected() {
		s.add(line{ledger.ChargeState(t.State), t.Currency}, t.Count, decimal.RequireFromString(t.Amount))
	}
	return s
}

// unrecorded is the line of invoices that no charge accounts for.
const unrecorded ledger.ChargeState = "not recorded"

const (
	sqlInvoiceSums = `
		SELECT COALESCE(c.state, 'not recorded'), i.currency, count(*), sum(i.amount)
		FROM billing.invoices i
		LEFT JOIN billing.report_charges c USING (job, period, account_id)
		WHERE i.period = $1
		GROUP BY 1, 2`
	sqlLedgerSums = `
		SELECT c.state, c.currency, count(*), sum(c.amount)
		FROM billing.report_charges c
		WHERE c.period = $1
		GROUP BY 1, 2`
)

// read runs one of the statements above.
func read(ctx context.Context, db *pgx.Conn, sql string) (side, error) {
	rows, err := db.Query(ctx, sql, world.Period)
	if err != nil {
		return nil, fmt.Errorf("add up the ledger: %w", err)
	}
	s := side{}
	var l line
	var count int
	var amount decimal.Decimal
	_, err = pgx.ForEachRow(rows, []any{&l.state, &l.currency, &count, &amount}, func() error {
		s.add(l, count, amount)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("add up the ledger: %w", err)
	}
	return s, nil
}

// witnesses are all who say what the month came to.
type witnesses struct {
	hand, invoices, ledger, stripe side
}

// atStripe says whether charges in a state have a PaymentIntent.
func atStripe(state ledger.ChargeState) bool {
	switch state {
	case ledger.ChargeSucceeded, ledger.ChargeProcessing, ledger.ChargeActionRequired, ledger.ChargeDeclined:
		return true
	}
	return false
}

// agree reports whether all witnesses say the same about a line: all four where
// money moved or was tried, the first three where Stripe has nothing to show.
func (w witnesses) agree(l line) bool {
	want := w.hand[l]
	if !equal(w.invoices[l], want) || !equal(w.ledger[l], want) {
		return false
	}
	if atStripe(l.state) {
		return equal(w.stripe[l], want)
	}
	return w.stripe[l].count == 0
}

func equal(a, b sum) bool { return a.count == b.count && a.amount.Equal(b.amount) }

// lines returns every line that any witness knows, in the order of reports.
func (w witnesses) lines() []line {
	var all []line
	for _, s := range []side{w.hand, w.invoices, w.ledger, w.stripe} {
		for l := range s {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b line) int {
		return cmp.Or(
			cmp.Compare(slices.Index(ledger.ChargeStates, a.state), slices.Index(ledger.ChargeStates, b.state)),
			cmp.Compare(a.currency, b.currency))
	})
	return slices.Compact(all)
}

// print writes the table and reports whether everything in it is equal.
func (w witnesses) print(out io.Writer) bool {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"state", "", "by hand", "invoices", "ledger", "Stripe", ""})
	right := func(n int) table.ColumnConfig {
		return table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs([]table.ColumnConfig{right(3), right(4), right(5), right(6)})
	allEqual := true
	var last ledger.ChargeState
	for _, l := range w.lines() {
		if last != "" && l.state != last {
			t.AppendSeparator()
		}
		last = l.state
		verdict := good("equal")
		if !w.agree(l) {
			verdict, allEqual = bad("DIFFERS"), false
		}
		t.AppendRow(table.Row{l.state, l.currency, cell(w.hand[l], l), cell(w.invoices[l], l), cell(w.ledger[l], l), cell(w.stripe[l], l), verdict})
	}
	t.Render()
	return allEqual
}

// cell shows a sum as "427 × → 12472.00"; a dash where there is nothing.
func cell(s sum, l line) string {
	if s.count == 0 {
		return "–"
	}
	return fmt.Sprintf("%d: %10s", s.count, s.amount.StringFixed(world.Digits(l.currency)))
}
