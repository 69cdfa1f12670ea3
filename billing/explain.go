package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/billing/pricing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// Explanation is how an invoice from usage was computed, and whether the usage and the
// prices that the ledger has still come to it.
type Explanation struct {
	ledger.UsageInvoice
	// Lists are the price lists that its lines name.
	Lists []ledger.PriceList
	// Again is what it comes to today; nil if it can't be computed.
	Again *pricing.Invoice
	// Differences say what does not agree; none means that everything does.
	Differences []string
}

// Explain reads an invoice and computes it again from daily usage and from the prices
// that it was made with. ledger.ErrNotFound means that there is no invoice; one without
// lines was not made from usage, and is not computed.
func Explain(ctx context.Context, tx pgx.Tx, job ledger.Job, period ledger.Period, account string) (e Explanation, err error) {
	if e.UsageInvoice, err = ledger.ReadUsageInvoice(ctx, tx, job, period, account); err != nil || len(e.Lines) == 0 {
		return e, err
	}
	usage, err := ledger.ReadUsageOf(ctx, tx, job, period, account)
	if err != nil {
		return e, err
	}
	p := pricer{tx: tx, period: period, lists: map[listKey]*pricing.List{}}
	if err := e.readLists(ctx, &p); err != nil {
		return e, err
	}
	if len(e.Differences) == 0 {
		if err := e.compute(ctx, &p, usage); err != nil {
			return e, err
		}
	}
	e.compareTotals()
	return e, nil
}

func (e *Explanation) differ(format string, args ...any) {
	e.Differences = append(e.Differences, fmt.Sprintf(format, args...))
}

// readLists reads the lists that the lines name.
func (e *Explanation) readLists(ctx context.Context, p *pricer) error {
	seen := map[listKey]bool{}
	for _, l := range e.Lines {
		key := keyOf(l)
		if seen[key] {
			continue
		}
		seen[key] = true
		kept, err := ledger.ReadPriceList(ctx, p.tx, key.from, key.currency, key.version)
		if errors.Is(err, ledger.ErrNotFound) {
			e.differ("line %d was made with a price list that is not there: %v", l.Line, err)
			continue
		}
		if err != nil {
			return err
		}
		e.Lists = append(e.Lists, kept)
		if _, err := p.keep(kept); err != nil {
			e.differ("line %d was made with a price list that can't be read any more: %v", l.Line, err)
		}
	}
	return nil
}

func keyOf(l ledger.InvoiceLine) listKey { return listKey{l.ListFrom, l.Currency, l.ListVersion} }

// lineKey tells the lines of one invoice apart.
type lineKey struct{ kind, metric, from string }

// compute prices the account again, with the lists that its lines name, and compares.
func (e *Explanation) compute(ctx context.Context, p *pricer, usage []ledger.UsageOf) error {
	a := ledger.AccountUsage{AccountID: e.AccountID, Known: true, Currency: e.Currency, Usage: usage}
	recorded := map[lineKey]ledger.InvoiceLine{}
	list := pricing.List{Currency: money.Currency(e.Currency)}
	for _, l := range e.Lines {
		recorded[lineKey{l.Kind, l.Metric, string(l.FromPeriod)}] = l
		// A paused account owes no base fee; whether it was paused then, its lines say.
		a.Active = a.Active || l.Kind == string(pricing.KindBaseFee)
		if l.Kind != string(pricing.KindLate) {
			list = *p.lists[keyOf(l)]
		}
	}
	for i, u := range usage {
		if l, there := recorded[lineKey{u.Kind, u.Metric, string(u.FromPeriod)}]; there {
			usage[i].ListFrom, usage[i].ListCurrency, usage[i].ListVersion = l.ListFrom, l.Currency, l.ListVersion
		}
	}
	if err := p.load(ctx); err != nil {
		e.differ("it can't be computed again: %v", err)
		return nil
	}
	in, err := p.input(ctx, a, list)
	if err != nil {
		return err
	}
	in.BaseFee = a.Active
	again, err := in.Price()
	var problem *pricing.Problem
	if errors.As(err, &problem) {
		e.differ("it can't be computed again: %s", problem.Msg)
		return nil
	}
	e.Again = &again
	e.compareLines(recorded, linesOf(again))
	return err
}

func (e *Explanation) compareLines(recorded map[lineKey]ledger.InvoiceLine, again []ledger.InvoiceLine) {
	for _, want := range again {
		key := lineKey{want.Kind, want.Metric, string(want.FromPeriod)}
		have, there := recorded[key]
		if !there {
			e.differ("%s is no line of it, and comes to %s %s", LineName(want), want.Exact, want.Currency)
			continue
		}
		delete(recorded, key)
		for _, f := range []struct{ what, have, want string }{
			{"quantity", have.Quantity, want.Quantity}, {"quantity before", have.Before, want.Before}, {"included", have.Included, want.Included},
			{"unit price", have.UnitPrice, want.UnitPrice}, {"exact amount", have.Exact, want.Exact}, {"amount", have.Amount, want.Amount},
		} {
			if !sameNumber(f.have, f.want) {
				e.differ("line %d, %s: its %s is %s, and comes to %s", have.Line, LineName(have), f.what, f.have, f.want)
			}
		}
	}
	for _, l := range e.Lines {
		if _, left := recorded[lineKey{l.Kind, l.Metric, string(l.FromPeriod)}]; left {
			e.differ("line %d, %s: nothing comes to it any more", l.Line, LineName(l))
		}
	}
}

// compareTotals holds the invoice against its lines, its charge and what it comes to.
func (e *Explanation) compareTotals() {
	sum := decimal.Zero
	for _, l := range e.Lines {
		amount, err := decimal.NewFromString(l.Amount)
		if err != nil || l.Currency != e.Currency {
			e.differ("line %d is %s %s, and the invoice is in %s", l.Line, l.Amount, l.Currency, e.Currency)
		}
		sum = sum.Add(amount)
	}
	if !sameNumber(sum.String(), e.Amount) {
		e.differ("its lines add up to %s, and it is over %s %s", sum, e.Amount, e.Currency)
	}
	if e.Again != nil && !sameNumber(e.Again.Total.String(), e.Amount) {
		e.differ("it is over %s %s, and comes to %s", e.Amount, e.Currency, e.Again.Total)
	}
	if e.State != "" && (!sameNumber(e.Charged, e.Amount) || e.ChargedCurrency != e.Currency) {
		e.differ("%s %s was recorded as its charge, and it is over %s %s", e.Charged, e.ChargedCurrency, e.Amount, e.Currency)
	}
}

func sameNumber(a, b string) bool {
	x, errX := decimal.NewFromString(a)
	y, errY := decimal.NewFromString(b)
	return errX == nil && errY == nil && x.Equal(y)
}

// LineName says what a line is for, in words.
func LineName(l ledger.InvoiceLine) string {
	switch pricing.Kind(l.Kind) {
	case pricing.KindBaseFee:
		return "base fee"
	case pricing.KindLate:
		return fmt.Sprintf("%s, late for %s", l.Metric, l.FromPeriod)
	default:
		return l.Metric
	}
}

// LineArithmetic is how a line's exact amount is computed, so that a person can follow
// it with a pocket calculator. The line's numbers are plain decimal text.
func LineArithmetic(l ledger.InvoiceLine) string {
	if l.Kind == string(pricing.KindBaseFee) {
		return l.UnitPrice
	}
	if l.Kind == string(pricing.KindLate) {
		before, quantity := number(l.Before), number(l.Quantity)
		return fmt.Sprintf("%s − %s", partOf(before.Add(quantity), l), partOf(before, l))
	}
	return partOf(number(l.Quantity), l)
}

// partOf is the cost of one quantity of the line's metric.
func partOf(quantity decimal.Decimal, l ledger.InvoiceLine) string {
	included := number(l.Included)
	switch {
	case quantity.Sign() <= 0 || included.IsZero():
		return fmt.Sprintf("%s × %s", quantity, number(l.UnitPrice))
	case quantity.Cmp(included) <= 0:
		return fmt.Sprintf("0 × %s [%s of %s included]", number(l.UnitPrice), quantity, included)
	default:
		return fmt.Sprintf("(%s − %s) × %s", quantity, included, number(l.UnitPrice))
	}
}

// number reads what numeric printed; there is nothing else in the ledger's columns.
func number(text string) decimal.Decimal {
	d, _ := decimal.NewFromString(text)
	return d
}
