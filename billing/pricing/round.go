package pricing

import (
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// round sets the total, which is rounded once, half away from zero, to what Stripe can
// charge in the currency, and each line's share of it. A total that Stripe does not
// charge at once is a *Problem.
func (inv *Invoice) round() error {
	sum := decimal.Zero
	for _, line := range inv.Lines {
		sum = sum.Add(line.Exact)
	}
	inv.Total = money.Round(sum, inv.Currency)
	if _, err := money.ToMinor(inv.Total, inv.Currency); err != nil {
		return &Problem{CodeTooLarge, fmt.Sprintf("comes to %s %s, and Stripe charges at most %s %s at once",
			money.Format(inv.Total, inv.Currency), inv.Currency, money.FormatMinor(money.MaxMinor, inv.Currency), inv.Currency)}
	}
	inv.share()
	return nil
}

// share rounds every line down to whole units, and gives the units that are left of
// the total to the lines with the largest remainders, to the earlier one where two are
// equal: so 81 lines of 0.0449 show the 3.64 that is charged. A line is never more
// than a unit from its exact amount, nor is one changed that was whole.
//
// money.Allocate splits a total in proportion, which would move lines far where
// credits nearly cancel charges: 1000.00 and -999.996 come to 0.00, and their
// proportion of that is nothing.
func (inv *Invoice) share() {
	digits := inv.Currency.ChargeDigits()
	unit := decimal.New(1, -digits)
	left := inv.Total
	order := make([]int, len(inv.Lines))
	for i := range inv.Lines {
		inv.Lines[i].Amount = inv.Lines[i].Exact.RoundFloor(digits)
		left = left.Sub(inv.Lines[i].Amount)
		order[i] = i
	}
	remainder := func(i int) decimal.Decimal { return inv.Lines[i].Exact.Sub(inv.Lines[i].Amount) }
	slices.SortStableFunc(order, func(a, b int) int { return remainder(b).Cmp(remainder(a)) })
	for _, i := range order[:left.Shift(digits).IntPart()] {
		inv.Lines[i].Amount = inv.Lines[i].Amount.Add(unit)
	}
}
