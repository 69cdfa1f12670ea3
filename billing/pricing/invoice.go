package pricing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// Kind says what a line of an invoice is for.
type Kind string

const (
	// KindBaseFee is what is owed whatever is used.
	KindBaseFee Kind = "base_fee"
	// KindUsage is a metric's usage of the month.
	KindUsage Kind = "usage"
	// KindLate is usage of an earlier month that arrived after its invoice was made.
	KindLate Kind = "late"
)

// Account is one account's month, as it is to be priced.
type Account struct {
	ID string
	// List has the prices of the month.
	List List
	// BaseFee says that the base fee is owed: the account is active.
	BaseFee bool
	// Usage is the month's, each metric once.
	Usage []Usage
	// Late is what came too late for earlier months, each metric and month once.
	Late []Late
}

// Usage is what was used of one metric in the month; below zero where corrections
// outweigh it.
type Usage struct {
	Metric   string
	Quantity decimal.Decimal
}

// Late is usage of an earlier month that arrived after that month was invoiced.
type Late struct {
	Metric string
	// FromPeriod is the month that it belongs to, and List has the prices of that one.
	FromPeriod string
	List       List
	// Before is what of that month was invoiced already, with it or carried into
	// months in between.
	Before decimal.Decimal
	// Quantity came since.
	Quantity decimal.Decimal
}

// Line is one line of an invoice, with all that its amount is computed from.
type Line struct {
	Kind Kind
	// Metric and FromPeriod are empty where the kind has none.
	Metric, FromPeriod string
	// Before is the quantity that was invoiced earlier, of a late line only.
	Before decimal.Decimal
	// Quantity is what was used; of a base fee it is 1.
	Quantity decimal.Decimal
	Terms
	// ListFrom and ListVersion name the list, of the invoice's currency, that the terms
	// stand in.
	ListFrom    string
	ListVersion int
	// Exact is the line's amount in major units with all its digits.
	Exact decimal.Decimal
	// Amount is the line's share of the rounded total: less than one unit from Exact.
	Amount decimal.Decimal
}

// Invoice is what an account owes for a month.
type Invoice struct {
	Currency money.Currency
	// Total is the sum of the lines' exact amounts, rounded once; the lines' amounts
	// add up to it. Below zero it is a credit, which is recorded and never charged.
	Total decimal.Decimal
	// Lines stand in order: base fee, usage by metric, late usage by month and metric.
	Lines []Line
}

// Code names a reason for which an account can't be invoiced.
type Code string

const (
	// CodeNoPrice says that a metric that was used is not in the list.
	CodeNoPrice Code = "no_price"
	// CodeTooLarge says that the total is beyond what Stripe charges at once.
	CodeTooLarge Code = "too_large"
	// CodeOtherCurrency says that late usage is priced in another currency than the invoice.
	CodeOtherCurrency Code = "other_currency"
)

// Problem says why an account can't be invoiced. Others are not concerned; a person
// mends the cause, and prices the account again.
type Problem struct {
	Code Code
	Msg  string
}

func (p *Problem) Error() string { return p.Msg }

// Price computes an account's invoice. It has no lines, and a total of zero, if there
// is nothing to invoice. The error is a *Problem.
func (a Account) Price() (Invoice, error) {
	inv := Invoice{Currency: a.List.Currency}
	if fee := a.List.BaseFeeOf(a.ID); a.BaseFee && !fee.IsZero() {
		one := decimal.NewFromInt(1)
		inv.Lines = append(inv.Lines, a.List.line(Line{Kind: KindBaseFee, Quantity: one, Terms: Terms{UnitPrice: fee}, Exact: fee}))
	}
	for _, u := range slices.SortedFunc(slices.Values(a.Usage), func(x, y Usage) int { return cmp.Compare(x.Metric, y.Metric) }) {
		price, err := a.List.priceOf(u.Metric)
		if err != nil {
			return Invoice{}, err
		}
		inv.Lines = append(inv.Lines, a.List.line(Line{Kind: KindUsage, Metric: u.Metric, Quantity: u.Quantity,
			Terms: price.Terms(), Exact: price.Cost(u.Quantity)}))
	}
	byMonth := func(x, y Late) int {
		return cmp.Or(cmp.Compare(x.FromPeriod, y.FromPeriod), cmp.Compare(x.Metric, y.Metric))
	}
	for _, l := range slices.SortedFunc(slices.Values(a.Late), byMonth) {
		line, err := l.price(a.List.Currency)
		if err != nil {
			return Invoice{}, err
		}
		inv.Lines = append(inv.Lines, line)
	}
	return inv, inv.round()
}

// price is what the month comes to with the late usage, less what it came to before.
func (l Late) price(currency money.Currency) (Line, error) {
	if l.List.Currency != currency {
		return Line{}, &Problem{CodeOtherCurrency, fmt.Sprintf("late usage of %s is priced in %s, and the account is billed in %s now", l.FromPeriod, l.List.Currency, currency)}
	}
	price, err := l.List.priceOf(l.Metric)
	if err != nil {
		return Line{}, err
	}
	exact := price.Cost(l.Before.Add(l.Quantity)).Sub(price.Cost(l.Before))
	return l.List.line(Line{Kind: KindLate, Metric: l.Metric, FromPeriod: l.FromPeriod, Before: l.Before, Quantity: l.Quantity,
		Terms: price.Terms(), Exact: exact}), nil
}

// line names the list in one of its lines.
func (l List) line(line Line) Line {
	line.ListFrom, line.ListVersion = l.ValidFrom, l.Version
	return line
}

func (l List) priceOf(metric string) (Price, error) {
	price, there := l.Metrics[metric]
	if !there {
		return nil, &Problem{CodeNoPrice, fmt.Sprintf("%q has no price in the list of %s that is valid from %s", metric, l.Currency, l.ValidFrom)}
	}
	return price, nil
}
