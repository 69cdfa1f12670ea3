package export

import (
	"bytes"
	"io"
	"slices"
	"strconv"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// Kind is how the cells of a column are written.
type Kind int

// The kinds of columns.
const (
	// KindText is what people or strangers wrote: in CSV, what a spreadsheet would run
	// gets an apostrophe in front.
	KindText Kind = iota
	// KindID is text that must come back byte for byte.
	KindID
	// KindInteger is a whole number.
	KindInteger
	// KindAmount is money in major units, shown with the digits of its currency. JSON
	// has it as a string, so that nobody's float rounds it.
	KindAmount
	// KindBool is true or false.
	KindBool
	// KindTime is a moment, RFC 3339 in UTC, in whole seconds.
	KindTime
	// KindDate is a day.
	KindDate
)

// Column is a column of a file. Its name is a public interface.
type Column struct {
	Name string
	Kind Kind
	// Currency names the column that an amount's currency is in.
	Currency string
}

// Table is what a file has.
type Table struct {
	Name    string
	Columns []Column
}

// Names are those of the columns, in order.
func (t Table) Names() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

func (t Table) index(name string) int {
	for i, c := range t.Columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// Row is the cells of a row in the order of the columns, as Postgres writes them as
// text with ISO dates in UTC; nil is NULL.
type Row = [][]byte

// Encoder writes rows in one format.
type Encoder interface {
	Write(row Row) error
	// Flush writes what is left. Nothing may follow.
	Flush() error
}

// Formats are the names of the formats.
var Formats = []string{"csv", "jsonl", "xlsx"}

// NewEncoder opens an encoder of a format, which must be one of Formats, and begins
// the file.
func NewEncoder(format string, w io.Writer, t Table) (Encoder, error) {
	switch format {
	case "jsonl":
		return newJSONL(w, t), nil
	case "xlsx":
		return newXLSX(w, t)
	}
	return newCSV(w, t)
}

// cells turns what Postgres wrote into what files have.
type cells struct {
	table    Table
	currency []int // of each amount, the column with its currency
	digits   map[string]int32
	buffer   []byte
}

func newCells(t Table) *cells {
	c := &cells{table: t, currency: make([]int, len(t.Columns)), digits: map[string]int32{}}
	for i, column := range t.Columns {
		c.currency[i] = t.index(column.Currency)
	}
	return c
}

// at is a cell as files have it, valid until the next call; nil stays nil.
func (c *cells) at(row Row, i int) []byte {
	cell := row[i]
	if cell == nil {
		return nil
	}
	switch c.table.Columns[i].Kind {
	case KindAmount:
		c.buffer = c.appendAmount(c.buffer[:0], cell, row[c.currency[i]])
		return c.buffer
	case KindBool:
		c.buffer = strconv.AppendBool(c.buffer[:0], cell[0] == 't')
		return c.buffer
	case KindTime:
		c.buffer = appendTime(c.buffer[:0], cell)
		return c.buffer
	}
	return cell
}

// unknownDigits marks a currency that Stripe does not charge in: amounts in it are
// written as they are.
const unknownDigits = -1

// appendAmount writes an amount with the digits of its currency, and as it is where
// that would hide one, or where one of them is not what it should be.
func (c *cells) appendAmount(to, amount, currency []byte) []byte {
	digits, seen := c.digits[string(currency)]
	if !seen {
		digits = unknownDigits
		if known, err := money.ParseCurrency(string(currency)); err == nil {
			digits = known.Digits()
		}
		c.digits[string(currency)] = digits
	}
	whole, fraction, plain := splitAmount(amount)
	switch {
	case digits == unknownDigits:
		return append(to, amount...)
	case plain && len(fraction) <= int(digits):
		to = append(to, whole...)
		if digits > 0 {
			to = append(append(to, '.'), fraction...)
		}
		for n := len(fraction); n < int(digits); n++ {
			to = append(to, '0')
		}
		return to
	}
	d, err := decimal.NewFromString(string(amount))
	if err != nil {
		return append(to, amount...) // NaN, of a company's own view
	}
	known, _ := money.ParseCurrency(string(currency))
	return append(to, money.Format(d, known)...)
}

// splitAmount cuts plain digits at their point; what is anything else is not plain.
func splitAmount(amount []byte) (whole, fraction []byte, plain bool) {
	whole, fraction, _ = bytes.Cut(amount, []byte{'.'})
	digits := whole
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return nil, nil, false
	}
	for _, part := range [][]byte{digits, fraction} {
		for _, b := range part {
			if b < '0' || b > '9' {
				return nil, nil, false
			}
		}
	}
	return whole, fraction, true
}

// appendTime turns 2026-11-01 00:05:00.123456+00 into 2026-11-01T00:05:00Z.
func appendTime(to, cell []byte) []byte {
	const seconds = len("2026-11-01 00:05:00")
	if len(cell) < seconds || cell[10] != ' ' || !bytes.HasSuffix(cell, []byte("+00")) {
		return append(to, cell...) // beyond the year 9999, or infinity
	}
	to = append(append(to, cell[:10]...), 'T')
	return append(append(to, cell[11:seconds]...), 'Z')
}

// Disarm keeps a spreadsheet from running text as a formula. Ids must come back byte
// for byte, and -70.00 is a number: they do not go through it.
func Disarm(text string) string { return string(disarm([]byte(text))) }

// disarm puts an apostrophe before what would be run, also behind what some spreadsheets
// take for the end of a cell: quotes do not count for them within one.
func disarm(text []byte) []byte {
	if armed(text) {
		text = append([]byte("'"), text...)
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ';', '\t', '\n', '\r':
			if armed(bytes.TrimLeft(text[i+1:], `"`)) {
				text = slices.Concat(text[:i+1], []byte("'"), text[i+1:])
			}
		}
	}
	return text
}

// armed reports whether a spreadsheet would run the text. Some trim blanks first.
func armed(text []byte) bool {
	text = bytes.TrimLeft(text, " \u00a0\n")
	if len(text) == 0 {
		return false
	}
	switch text[0] {
	case '=', '+', '-', '@', '\t', '\r', '|', '%':
		return true
	}
	return bytes.HasPrefix(text, []byte("＝")) || bytes.HasPrefix(text, []byte("＋")) ||
		bytes.HasPrefix(text, []byte("－")) || bytes.HasPrefix(text, []byte("＠"))
}
