package export

import (
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// Summer adds up amounts by currency while rows are written.
type Summer struct {
	columns  []int // the amounts
	currency int
	sums     map[string]*sum
}

type sum struct {
	rows    int64
	amounts []total
}

// total keeps most amounts as whole thousandths of a unit: a decimal for each row would
// cost more than writing it.
type total struct {
	mills int64
	rest  decimal.Decimal
}

// NewSummer adds up the given columns of a table, by the currency in another.
func NewSummer(t Table, currency string, columns ...string) *Summer {
	s := &Summer{currency: t.index(currency), sums: map[string]*sum{}}
	for _, name := range columns {
		s.columns = append(s.columns, t.index(name))
	}
	return s
}

// Add counts a row. What is no number has no sum.
func (s *Summer) Add(row Row) {
	of := s.sums[string(row[s.currency])]
	if of == nil {
		of = &sum{amounts: make([]total, len(s.columns))}
		s.sums[string(row[s.currency])] = of
	}
	of.rows++
	for i, column := range s.columns {
		of.amounts[i].add(row[column])
	}
}

// maxMills keeps the sum of a billion rows within an int64.
const maxMills = 1 << 33

func (t *total) add(amount []byte) {
	if mills, ok := parseMills(amount); ok {
		t.mills += mills
		return
	}
	if d, err := decimal.NewFromString(string(amount)); err == nil {
		t.rest = t.rest.Add(d)
	}
}

func (t *total) value() decimal.Decimal { return decimal.New(t.mills, -3).Add(t.rest) }

// parseMills reads a plain amount of up to three digits behind the point.
func parseMills(amount []byte) (mills int64, ok bool) {
	whole, fraction, plain := splitAmount(amount)
	if !plain || len(whole) > 8 || len(fraction) > 3 {
		return 0, false
	}
	negative := whole[0] == '-'
	for _, b := range whole {
		if b != '-' {
			mills = mills*10 + int64(b-'0')
		}
	}
	for i := range 3 {
		mills *= 10
		if i < len(fraction) {
			mills += int64(fraction[i] - '0')
		}
	}
	if negative {
		mills = -mills
	}
	return mills, mills <= maxMills && mills >= -maxMills
}

// each calls do with the rows and amounts of each currency, in their order.
func (s *Summer) each(do func(currency string, rows int64, amounts []string)) {
	var names []string
	for name := range s.sums {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		of := s.sums[name]
		amounts := make([]string, len(of.amounts))
		for i, t := range of.amounts {
			amounts[i] = formatAmount(t.value(), name)
		}
		do(name, of.rows, amounts)
	}
}

// Amounts are the sums of the first column.
func (s *Summer) Amounts() (list []Sum) {
	s.each(func(currency string, rows int64, amounts []string) {
		list = append(list, Sum{Currency: currency, Rows: rows, Amount: amounts[0]})
	})
	return list
}

// formatAmount prints an amount with its currency's digits, and as it is where Stripe
// does not charge in that.
func formatAmount(amount decimal.Decimal, currency string) string {
	if c, err := money.ParseCurrency(currency); err == nil {
		return money.Format(amount, c)
	}
	return amount.String()
}
