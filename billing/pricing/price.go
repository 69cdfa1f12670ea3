// Package pricing computes what accounts owe for a month from their usage and the
// prices that are valid: one line for each thing, each exact, the total rounded once.
// It does no I/O and reads no clock; whoever calls it brings quantities and prices.
package pricing

import "github.com/shopspring/decimal"

// Price says what a quantity of one metric costs in one month. There is one kind of
// it today, PerUnit. Tiers and packages become further kinds; a file of prices tells
// them apart by their keys, and nothing but the parser and the printer of lines asks
// which kind a price is.
type Price interface {
	// Cost is the exact cost of a month's whole quantity, in major units of the list's
	// currency. A quantity below zero costs less than zero.
	Cost(quantity decimal.Decimal) decimal.Decimal
	// Terms are the price's numbers as a line shows them.
	Terms() Terms
}

// Terms stand beside a line, so that its arithmetic can be followed by hand.
type Terms struct {
	// Included is the quantity of a month that costs nothing; zero or more.
	Included decimal.Decimal
	// UnitPrice is what one more costs, in major units; zero or more.
	UnitPrice decimal.Decimal
}

// PerUnit is one price for each unit beyond those that are included.
type PerUnit Terms

// Cost is what is billed of a quantity, times the unit price.
func (p PerUnit) Cost(quantity decimal.Decimal) decimal.Decimal {
	return Billed(quantity, p.Included).Mul(p.UnitPrice)
}

// Terms are the included quantity and the unit price.
func (p PerUnit) Terms() Terms { return Terms(p) }

// Billed is the part of a month's quantity that is paid for: max(0, quantity −
// included). A net quantity below zero (corrections that outweigh the month) is
// billed whole, as a credit: nothing is included in what was not used.
func Billed(quantity, included decimal.Decimal) decimal.Decimal {
	if quantity.Sign() <= 0 {
		return quantity
	}
	return decimal.Max(decimal.Zero, quantity.Sub(included))
}
