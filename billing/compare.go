package billing

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

const (
	// largestShown is how many of the largest charges, and of the changes that
	// stand out, are kept for people.
	largestShown = 10
	// bigChange is the factor from which an account's change stands out.
	bigChange = 2
	// fifth is the factor from which an account rose: with what rounding adds to a
	// price rise of 20 % on small prices.
	fifth = 1.22
)

// Comparison is a period beside the last one before it, by account. It counts
// what is to be charged: skipped and void charges are not in it.
type Comparison struct {
	// Last is the period compared with, empty if there is none.
	Last       ledger.Period
	Currencies []CurrencyChange
	// New accounts were not charged in the last period, Gone ones are not in this
	// one, Up, Down and Same are in both.
	New, Gone, Up, Down, Same int64
	// Jumped accounts are in both, in one currency, and pay at least twice or at
	// most half of what they paid.
	Jumped int64
	// Rose and Fell accounts are in both, in one currency, and pay more than a fifth
	// more, or less by as much: a price rise of a fifth is in neither.
	Rose, Fell int64
	// Moved accounts pay in another currency than before.
	Moved int64
	// Skipped are this period's charges that can't be sent for a cause that can
	// mend or is a mistake, LastSkipped those of the last one; Rows and LastRows
	// are all.
	Skipped, LastSkipped, Rows, LastRows int64
	// Largest are this period's largest charges of each currency, Steepest the
	// accounts whose amount grew by the largest factor.
	Largest, Steepest []AccountChange
}

// CurrencyChange is what is charged in one currency, in minor units.
type CurrencyChange struct {
	Currency         string
	Count, LastCount int64
	Minor, LastMinor int64
	Max, LastMax     int64
}

// AccountChange is one account's amount in both periods, in minor units.
type AccountChange struct {
	AccountID        string
	Currency         string
	Minor, LastMinor int64
}

// Factor is by how much it grew, 0 if there is nothing to compare with.
func (c AccountChange) Factor() float64 {
	if c.LastMinor == 0 {
		return 0
	}
	return float64(c.Minor) / float64(c.LastMinor)
}

// plainCharges are a period's charges in the order of account ids, read one by one:
// a cursor of the ledger's, or what a test has in memory.
type plainCharges interface {
	// Peek returns the next charge without taking it, nil at the end.
	Peek(ctx context.Context) (*ledger.PlainCharge, error)
	Take()
	Close(ctx context.Context) error
}

// comparing merges this period's rows, which come in the order of account ids,
// with the last period's charges.
type comparing struct {
	Comparison
	last       plainCharges // nil if there is no last period
	byCurrency map[string]*CurrencyChange
	largest    map[string][]AccountChange
	// each is told every account with both charges, nil where there is none; it may
	// be nil.
	each func(now, last *ledger.PlainCharge) error
}

// newComparing finds the last period and opens it.
func newComparing(ctx context.Context, tx pgx.Tx, job ledger.Job, period ledger.Period) (*comparing, error) {
	last, err := ledger.LastPeriod(ctx, tx, job, period)
	if errors.Is(err, ledger.ErrNotFound) {
		return compareWith("", nil), nil
	}
	if err != nil {
		return nil, err
	}
	charges, err := ledger.PlainCharges(ctx, tx, "last_charges", job, last)
	if err != nil {
		return nil, err
	}
	return compareWith(last, charges), nil
}

// compareWith begins a comparison with a period's charges, nil if there is none.
func compareWith(last ledger.Period, charges plainCharges) *comparing {
	return &comparing{
		Comparison: Comparison{Last: last}, last: charges,
		byCurrency: map[string]*CurrencyChange{}, largest: map[string][]AccountChange{},
	}
}

// add takes this period's next row.
func (c *comparing) add(ctx context.Context, now ledger.PlainCharge) error {
	c.Rows++
	before, err := c.advance(ctx, now.AccountID)
	if err == nil {
		err = c.tell(&now, before)
	}
	if err != nil {
		return err
	}
	c.count(now, before)
	return nil
}

func (c *comparing) count(now ledger.PlainCharge, before *ledger.PlainCharge) {
	if now.State == ledger.ChargeSkipped {
		if isMistake(now.Reason) {
			c.Skipped++
		}
		if before != nil && before.State != ledger.ChargeSkipped {
			c.Gone++
		}
		return
	}
	of := c.of(now.Currency)
	of.Count++
	of.Minor += now.AmountMinor
	of.Max = max(of.Max, now.AmountMinor)
	change := AccountChange{AccountID: now.AccountID, Currency: now.Currency, Minor: now.AmountMinor}
	if before != nil && before.Currency == now.Currency {
		change.LastMinor = before.AmountMinor
	}
	c.keepLargest(change)
	switch {
	case before == nil || before.State == ledger.ChargeSkipped:
		c.New++
		return
	case before.Currency != now.Currency:
		c.Moved++
		return
	}
	switch {
	case change.Minor == change.LastMinor:
		c.Same++
		return
	case change.Minor > change.LastMinor:
		c.Up++
	default:
		c.Down++
	}
	c.countFactor(change.Factor())
	c.keepSteepest(change)
}

// countFactor counts by how much an account that is in both periods changed.
func (c *comparing) countFactor(f float64) {
	if f >= bigChange || f <= 1./bigChange {
		c.Jumped++
	}
	switch {
	case f > fifth:
		c.Rose++
	case f < 1/fifth:
		c.Fell++
	}
}

func (c *comparing) tell(now, last *ledger.PlainCharge) error {
	if c.each == nil {
		return nil
	}
	return c.each(now, last)
}

// advance moves the last period up to an account, counting who is gone on the way,
// and returns that account's charge in it, if there is one.
func (c *comparing) advance(ctx context.Context, account string) (*ledger.PlainCharge, error) {
	for c.last != nil {
		before, err := c.last.Peek(ctx)
		if err != nil || before == nil || before.AccountID > account {
			return nil, err
		}
		c.last.Take()
		c.countLast(before)
		if before.AccountID == account {
			same := *before
			return &same, nil
		}
		if before.State != ledger.ChargeSkipped {
			c.Gone++
			gone := *before
			if err := c.tell(nil, &gone); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (c *comparing) countLast(before *ledger.PlainCharge) {
	c.LastRows++
	if before.State == ledger.ChargeSkipped {
		if isMistake(before.Reason) {
			c.LastSkipped++
		}
		return
	}
	of := c.of(before.Currency)
	of.LastCount++
	of.LastMinor += before.AmountMinor
	of.LastMax = max(of.LastMax, before.AmountMinor)
}

func (c *comparing) of(currency string) *CurrencyChange {
	if c.byCurrency[currency] == nil {
		c.byCurrency[currency] = &CurrencyChange{Currency: currency}
	}
	return c.byCurrency[currency]
}

// isMistake reports skip reasons other than that there is nothing to pay.
func isMistake(reason string) bool {
	return reason != SkipZero && reason != SkipCredit && reason != SkipBelowMinimum && reason != SkipPaused
}

func (c *comparing) keepLargest(change AccountChange) {
	c.largest[change.Currency] = keepTop(c.largest[change.Currency], change, func(a, b AccountChange) int { return cmp.Compare(b.Minor, a.Minor) })
}

func (c *comparing) keepSteepest(change AccountChange) {
	if change.Factor() > 1 {
		c.Steepest = keepTop(c.Steepest, change, func(a, b AccountChange) int { return cmp.Compare(b.Factor(), a.Factor()) })
	}
}

// keepTop keeps the first few of a sorted list.
func keepTop(list []AccountChange, one AccountChange, order func(a, b AccountChange) int) []AccountChange {
	if len(list) == largestShown && order(one, list[len(list)-1]) >= 0 {
		return list
	}
	at, _ := slices.BinarySearchFunc(list, one, order)
	list = slices.Insert(list, at, one)
	return list[:min(len(list), largestShown)]
}

// end counts who is left in the last period, and returns the whole.
func (c *comparing) end(ctx context.Context) (Comparison, error) {
	if c.last != nil {
		// No account id is greater.
		if _, err := c.advance(ctx, "\U0010FFFF\U0010FFFF\U0010FFFF"); err != nil {
			return c.Comparison, err
		}
		if err := c.last.Close(ctx); err != nil {
			return c.Comparison, err
		}
	}
	for _, of := range c.byCurrency {
		c.Currencies = append(c.Currencies, *of)
	}
	slices.SortFunc(c.Currencies, func(a, b CurrencyChange) int { return cmp.Compare(a.Currency, b.Currency) })
	for _, of := range c.Currencies {
		c.Largest = append(c.Largest, c.largest[of.Currency]...)
	}
	return c.Comparison, nil
}
