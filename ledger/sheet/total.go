package sheet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// total is a row that looks like a total of the rows above it.
type total struct {
	line, column int
	cells        []string
	word         bool // a word says so; else its account is blank
	currency     string
}

// keepTotal sets a row aside that may be a total.
func (f *File) keepTotal() bool {
	at, there := f.at[f.kind.Account]
	if f.opts.KeepTotals || !there || f.kind.Amount == "" {
		return false
	}
	account := ""
	if at < len(f.row) {
		account = strings.TrimSpace(f.row[at])
	}
	word := mayBeWord(account) && isTotalWord(account)
	if account == "" {
		word = slices.ContainsFunc(f.row, func(cell string) bool { return mayBeWord(cell) && isTotalWord(cell) })
	} else if !word {
		return false
	}
	f.refuseTotals()
	line, column := f.reader.FieldPos(min(at, len(f.row)-1))
	f.totals = append(f.totals[:0], total{line: line + f.base, column: column, cells: slices.Clone(f.row), word: word, currency: f.rowCurrency()})
	return true
}

// mayBeWord keeps most ids from being looked at further.
func mayBeWord(cell string) bool {
	return cell != "" && len(cell) <= 32 && !strings.ContainsAny(cell, "0123456789")
}

func (f *File) rowCurrency() string {
	if i, there := f.at["currency"]; there && i < len(f.row) {
		return strings.ToLower(strings.TrimSpace(f.row[i]))
	}
	return ""
}

// refuseTotals says that what looked like a total has rows below it.
func (f *File) refuseTotals() {
	for _, t := range f.totals {
		if t.word {
			f.Mistakes.Add("total", "%s:%d:%d: %s looks like a total, and rows stand below it: remove the line, or add --keep-totals if it is an account",
				f.Name, t.line, t.column, Show(strings.Join(t.cells, " ")))
		} else {
			f.refuseBlank(t)
		}
	}
	f.totals = f.totals[:0]
}

func (f *File) refuseBlank(t total) {
	f.Mistakes.Add(f.kind.Account, "%s:%d:%d: %s \"\": account id is blank", f.Name, t.line, t.column, f.kind.Account)
}

// settleTotals leaves the last row out if it is the total of the others, to the cent:
// one that is not says that rows are missing, or too many.
func (f *File) settleTotals() {
	for _, t := range f.totals {
		text, equal := f.equalsSum(t)
		// Three rows: one more row of the same amount, without an id, is no total.
		sure := t.word || f.Rows > 2 && equal
		switch {
		case equal && sure && f.Rows > 0:
			f.format.TotalLine, f.format.TotalText = t.line, text
		case !t.word:
			f.refuseBlank(t)
		case f.Mistakes.Total > 0:
			// The sum of rows that could not be read is not known.
		default:
			f.Mistakes.Add("total", "%s:%d:%d: %s looks like a total, and the rows above come to %s: rows are missing or doubled; mend it, or remove the line; if it is an account, add --keep-totals",
				f.Name, t.line, t.column, Show(strings.Join(t.cells, " ")), f.sumsText())
		}
	}
	f.totals = nil
}

func (f *File) equalsSum(t total) (string, bool) {
	for currency, sum := range f.sums {
		if len(f.sums) > 1 && t.currency != currency || sum.IsZero() && !t.word {
			continue
		}
		for _, cell := range t.cells {
			r, err := read(cell)
			if err != nil {
				continue
			}
			for _, plain := range []string{r.point, r.comma} {
				if d, err := money.Parse(plain); err == nil && d.Equal(sum) {
					return money.Format(sum, money.Currency(currency)) + " " + currency, true
				}
			}
		}
	}
	return "", false
}

func (f *File) sumsText() string {
	var parts []string
	for currency, sum := range f.sums {
		parts = append(parts, fmt.Sprintf("%s %s", money.Format(sum, money.Currency(currency)), currency))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " and ")
}

// Amount reads an amount of the row's currency as plain digits with a point. Zero and
// negative ones are fine. An amount that may be two different ones is refused.
func (f *File) Amount(column, currency string) (plain string, amount decimal.Decimal, ok bool) {
	text := f.Raw(column)
	mark, simple := plainAmount(text)
	if simple && (mark == 0 || f.decimal == '.' || f.decimal == 0) {
		if mark != 0 && f.decimal == 0 {
			f.show(mark)
		}
		plain = text
	} else if plain, ok = f.writtenAmount(column, text, currency); !ok {
		return "", amount, false
	}
	amount, err := money.Parse(plain)
	if err != nil {
		f.Refuse(column, "has too many digits: want at most %d before and %d after the point", money.MaxWholeDigits, money.MaxFractionDigits)
		return "", amount, false
	}
	f.sums[currency] = f.sums[currency].Add(amount)
	return plain, amount, true
}

// show remembers which decimal mark the file has, and where that is seen.
func (f *File) show(mark byte) { f.decimal, f.decimalLine = mark, f.Line() }

func (f *File) writtenAmount(column, text, currency string) (plain string, ok bool) {
	r, err := read(text)
	if err == nil {
		err = checkSign(r.sign, currency)
	}
	if err != nil {
		f.Refuse(column, "%v", err)
		return "", false
	}
	plain, evidence, doubt, err := r.settle(f.decimal)
	switch {
	case err != nil && f.opts.Decimal != 0:
		f.Refuse(column, "is not written with the decimal mark that --decimal names")
		return "", false
	case err != nil:
		f.Refuse(column, "is written with another decimal mark than line %d: write all amounts alike", f.decimalLine)
		return "", false
	case evidence != 0 && f.decimal == 0:
		f.show(evidence)
	case doubt:
		return plain, f.doubtful(column, text, r, currency)
	}
	return plain, true
}

// doubtful decides about 1.234 and 1,234 where nothing in the file so far shows which
// mark is the decimal one. A point before three digits is taken for one in a currency
// of three digits, and where it would not be an amount of the currency at all, so that
// this is said; else it may be a thousand times as much.
func (f *File) doubtful(column, text string, r reading, currency string) bool {
	c := money.Currency(currency)
	if strings.Contains(text, ".") && f.reader.Comma != ';' && c.Known() {
		amount, err := money.Parse(r.point)
		if err == nil {
			_, err = money.ToMinor(amount, c)
		}
		if err != nil || c.Digits() == 3 {
			if f.doubt.line == 0 {
				line, position := f.reader.FieldPos(f.at[column])
				f.doubt = place{line + f.base, position, text}
			}
			return true
		}
	}
	f.Refuse(column, "may be %s or %s: add --decimal point or --decimal comma, or write it without thousands separators", r.point, r.comma)
	return false
}
