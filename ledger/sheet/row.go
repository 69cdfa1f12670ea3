package sheet

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Next takes the next row. It returns io.EOF after the last, and once a mistake was
// found, at the end, all of them.
func (f *File) Next() (err error) {
	for {
		f.row, err = f.reader.Read()
		f.bound.rowEnd = f.reader.InputOffset()
		var parse *csv.ParseError
		switch {
		case err == nil && f.take():
			f.last = f.Line()
			f.Rows++
			return nil
		case err == nil:
		case errors.Is(err, io.EOF):
			return f.end()
		case errors.Is(err, errRowTooLong):
			f.Mistakes.Add("quotes", "%s: the row after line %d is longer than %d bytes: a quote is not closed", f.Name, f.last, maxRowBytes)
			return f.Mistakes.Err()
		case errors.Is(err, errBadUTF16):
			f.Mistakes.Add("file", "%s %v", f.Name, err)
			return f.Mistakes.Err()
		case errors.As(err, &parse):
			f.addParseError(parse)
		default:
			return f.readError(err)
		}
	}
}

// take reports whether the row is one. A row of nothing is none; a total below the
// rows is known only when it turns out to be the last.
func (f *File) take() bool {
	if isBlank(f.row) {
		return false
	}
	if f.keepTotal() {
		return false
	}
	f.refuseTotals()
	width := len(f.titles)
	switch {
	case len(f.row) == width:
	case len(f.row) > width && isBlank(f.row[width:]):
		f.row = f.row[:width]
	case len(f.row) > width:
		f.Mistakes.Add("width", "%s:%d: the row has %d values, the header has %d columns: put a value with %s in it into quotes",
			f.Name, f.Line(), len(f.row), width, delimiterIn(f.reader.Comma))
		return false
	default:
		f.Mistakes.Add("width", "%s:%d: the row has %d values, the header has %d columns", f.Name, f.Line(), len(f.row), width)
		return false
	}
	if f.isHeader() {
		f.Mistakes.Add("header", "%s:%d: the header stands here again: two files in one; import them one by one, or remove the line", f.Name, f.Line())
		return false
	}
	return true
}

func delimiterIn(mark rune) string {
	return map[rune]string{',': "a comma", ';': "a semicolon", '\t': "a tab", '|': "a bar"}[mark]
}

func (f *File) isHeader() bool {
	if f.row[0] != f.titles[0] {
		return false
	}
	for i, cell := range f.row {
		if cell != f.titles[i] {
			return false
		}
	}
	return true
}

func (f *File) end() error {
	f.settleTotals()
	if f.Rows == 0 && f.Mistakes.Total == 0 {
		f.Mistakes.Add("file", "%s has a header and no rows", f.Name)
	}
	if f.doubt.line > 0 && f.decimal == ',' && f.opts.Decimal == 0 {
		f.Mistakes.Add(f.kind.Amount, "%s:%d:%d: %s %s: line %d has a decimal comma, so this may be another amount: add --decimal comma, or write it plainly",
			f.Name, f.doubt.line, f.doubt.column, f.kind.Amount, Show(f.doubt.text), f.decimalLine)
	}
	if err := f.Mistakes.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (f *File) addParseError(err *csv.ParseError) {
	line, start := err.Line+f.base, err.StartLine+f.base
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		f.Mistakes.Add("quotes", "%s:%d:%d: a quote inside a value: put the whole value into quotes and write \"\" for each inner one", f.Name, line, err.Column)
	case errors.Is(err, csv.ErrQuote):
		f.Mistakes.Add("quotes", "%s:%d:%d: a value in quotes, begun in line %d, does not end where its quote ends: write \"\" for an inner quote",
			f.Name, line, err.Column, start)
	default:
		f.Mistakes.Add("quotes", "%s:%d:%d: %v", f.Name, line, err.Column, err.Err)
	}
}

// Line is where the current row begins.
func (f *File) Line() int {
	line, _ := f.reader.FieldPos(0)
	return line + f.base
}

// Has reports whether the file has a column, or a value was given for it.
func (f *File) Has(column string) bool {
	_, there := f.at[column]
	return there || f.opts.Defaults[column] != ""
}

// IsTotal reports whether a column's title says that its amounts are those of whole
// invoices.
func (f *File) IsTotal(column string) bool {
	i, there := f.at[column]
	c := f.kind.find(column)
	return there && c != nil && c.isTotal(f.titles[i])
}

// Title is a column's title as it stands in the file.
func (f *File) Title(column string) string {
	if i, there := f.at[column]; there {
		return f.titles[i]
	}
	return ""
}

// Refuse says what is wrong with a cell of the current row, and what to type.
func (f *File) Refuse(column, format string, args ...any) {
	i, there := f.at[column]
	if !there {
		f.Mistakes.Add(column, "%s:%d: %s %s: %s", f.Name, f.Line(), column, Show(f.Raw(column)), fmt.Sprintf(format, args...))
		return
	}
	line, position := f.reader.FieldPos(i)
	f.Mistakes.Add(column, "%s:%d:%d: %s %s: %s", f.Name, line+f.base, position, column, Show(f.row[i]), fmt.Sprintf(format, args...))
}

// Raw returns a cell of the current row as it is, "" where the file lacks the column.
func (f *File) Raw(column string) string {
	if i, there := f.at[column]; there {
		return f.row[i]
	}
	return f.opts.Defaults[column]
}

// Text returns a cell and whether Postgres can hold it.
func (f *File) Text(column string) (value string, ok bool) {
	value = f.Raw(column)
	switch {
	case !utf8.ValidString(value):
		f.Refuse(column, "not UTF-8: save the file as CSV UTF-8, or add --encoding windows-1252 if that is what it is")
	case strings.ContainsRune(value, 0):
		f.Refuse(column, "has a NUL byte in it")
	case strings.HasPrefix(value, "\ufeff"):
		f.Refuse(column, "has a byte order mark in front: two files in one; import them one by one")
	default:
		return value, true
	}
	return "", false
}

// Word is text that is an id or a code: nothing around it and no control characters in
// it.
func (f *File) Word(column string) (value string, ok bool) {
	value, ok = f.Text(column)
	switch {
	case !ok:
	case strings.TrimSpace(value) != value:
		f.Refuse(column, "has space around it: remove it")
	case strings.ContainsFunc(value, unicode.IsControl):
		f.Refuse(column, "has a control character or a line break in it")
	case isSheetError(value):
		f.Refuse(column, "is a spreadsheet's error: mend its formula and export again")
	default:
		return value, true
	}
	return "", false
}

// isSheetError reports what stands in a cell whose formula failed, or whose column was
// too narrow for what it shows.
func isSheetError(value string) bool {
	switch value {
	case "#N/A", "#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!", "#NV", "#BEZUG!", "#WERT!":
		return true
	}
	return len(value) > 2 && strings.Trim(value, "#") == ""
}

// ID checks an id as the text that it is. Nothing is trimmed, folded or taken for a
// number. why is empty if it can be taken.
func ID(value string) (why string) {
	switch {
	case IsSpreadsheetNumber(value):
		return "looks like a number that a spreadsheet rewrote: format the column as text and export again"
	case isSheetError(value):
		return "is a spreadsheet's error: mend its formula and export again"
	case strings.HasPrefix(value, "\ufeff"):
		return "has a byte order mark in front: two files in one; import them one by one"
	case strings.HasPrefix(value, `="`):
		return "is a formula: export the values of the sheet, not its formulas"
	}
	return ""
}

// Date reads a day, "" for none.
func (f *File) Date(column string) (day string, ok bool) {
	text, ok := f.Text(column)
	if !ok || strings.TrimSpace(text) == "" {
		return "", ok
	}
	day, err := ParseDate(text, f.opts.Dates)
	if err != nil {
		f.Refuse(column, "%v", err)
		return "", false
	}
	return day, true
}
