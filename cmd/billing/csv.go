package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chargeonce/billing/billing"
)

const (
	// maxListedErrors bounds how many mistakes of a file are shown; the rest is
	// counted.
	maxListedErrors = 20
	// maxRowBytes bounds one row: a quote that never ends would otherwise take
	// the rest of the file into memory.
	maxRowBytes = 1 << 20
	// maxShownValue bounds how much of a value stands in a message, in bytes.
	maxShownValue = 60
)

// csvColumn is a column that a file may have. Its name is a public interface.
type csvColumn struct {
	name     string
	required bool
}

// fileErrors are the mistakes of one file: the first twenty, and how many.
type fileErrors struct {
	name  string
	what  string // of what there are several; empty means mistakes
	list  []string
	total int
}

func (e *fileErrors) add(format string, args ...any) {
	if e.total++; len(e.list) < maxListedErrors {
		e.list = append(e.list, fmt.Sprintf(format, args...))
	}
}

func (e *fileErrors) Error() string {
	text := strings.Join(e.list, "\n  ")
	if e.total > 1 {
		text = fmt.Sprintf("%s has %d %s:\n  %s", e.name, e.total, cmp.Or(e.what, "mistakes"), text)
	}
	if more := e.total - len(e.list); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text + "\nnothing was imported"
}

// err is nil as long as nothing is wrong.
func (e *fileErrors) err() error {
	if e.total == 0 {
		return nil
	}
	return inputError{e}
}

// csvFile reads a file row by row, cells by the names of their columns, and
// collects mistakes instead of stopping at the first.
type csvFile struct {
	name    string
	reader  *csv.Reader
	bound   *boundedReader
	columns []csvColumn
	at      map[string]int // column → place in the row; absent where the file lacks it
	row     []string
	rows    int
	last    int // the line of the last row that was read whole
	mistake fileErrors
	// uncharged counts rows by a currency that Stripe does not charge in.
	uncharged map[string]int64
}

// openCSV reads the header. name is the file's, as messages show it.
func openCSV(name string, r io.Reader, columns []csvColumn) (*csvFile, error) {
	f := &csvFile{name: name, columns: columns, last: 1, mistake: fileErrors{name: name}, uncharged: map[string]int64{}}
	buf := bufio.NewReaderSize(r, 64<<10)
	if err := f.checkBeginning(buf); err != nil {
		return nil, err
	}
	f.bound = &boundedReader{r: buf}
	f.reader = csv.NewReader(f.bound)
	f.reader.ReuseRecord = true
	header, err := f.reader.Read()
	f.bound.rowEnd = f.reader.InputOffset()
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		f.mistake.add("%s is empty: it needs a header with %s", name, f.requiredNames())
	case errors.Is(err, errRowTooLong):
		f.mistake.add("%s:1: the header is longer than %d bytes: a quote is not closed", name, maxRowBytes)
	case errors.As(err, &parse):
		f.addParseError(parse)
	case err != nil:
		return nil, f.readError(err)
	default:
		f.readHeader(header)
	}
	return f, f.mistake.err()
}

// checkBeginning strips a byte order mark, which Excel writes and which may
// stand before a quote, and refuses what is no UTF-8 text with line ends.
func (f *csvFile) checkBeginning(buf *bufio.Reader) error {
	// A short file, or one that can't be read, is met again by the reader.
	start, _ := buf.Peek(4)
	switch {
	case bytes.HasPrefix(start, []byte("\xef\xbb\xbf")):
		_, _ = buf.Discard(3)
	case bytes.HasPrefix(start, []byte("\xff\xfe")), bytes.HasPrefix(start, []byte("\xfe\xff")):
		f.mistake.add("%s is UTF-16: save it as CSV UTF-8", f.name)
	case bytes.HasPrefix(start, []byte("PK\x03\x04")):
		f.mistake.add("%s is a workbook or an archive, no CSV file: save the sheet as CSV UTF-8", f.name)
	case bytes.HasPrefix(start, []byte("\x1f\x8b")):
		f.mistake.add("%s is compressed: unpack it first", f.name)
	}
	first, _ := buf.Peek(buf.Size())
	line, _, _ := bytes.Cut(first, []byte("\n"))
	// The reader would take a file of the old Mac kind for a header alone.
	if bytes.ContainsRune(bytes.TrimSuffix(line, []byte("\r")), '\r') {
		f.mistake.add("%s:1: the lines end in CR alone: save it with Windows or Unix line ends", f.name)
	}
	return f.mistake.err()
}

func (f *csvFile) readHeader(header []string) {
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t|") {
		f.mistake.add("%s:1: the columns are not separated by commas: %s", f.name, show(header[0]))
		return
	}
	f.at = make(map[string]int, len(header))
	for i, title := range header {
		name := columnName(title)
		line, column := f.reader.FieldPos(i)
		_, twice := f.at[name]
		switch {
		case name == "":
			f.mistake.add("%s:%d:%d: column %d has no name", f.name, line, column, i+1)
		case !slices.ContainsFunc(f.columns, func(c csvColumn) bool { return c.name == name }):
			f.mistake.add("%s:%d:%d: column %s is not known; there are %s", f.name, line, column, show(title), f.allNames())
		case twice:
			f.mistake.add("%s:%d:%d: column %s stands here a second time", f.name, line, column, show(title))
		default:
			f.at[name] = i
		}
	}
	for _, c := range f.columns {
		if _, there := f.at[c.name]; c.required && !there {
			f.mistake.add("%s:1: there is no column %s; the header needs %s", f.name, c.name, f.requiredNames())
		}
	}
}

// columnName is how a title is looked up: Account ID is account_id.
func columnName(title string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(title), func(r rune) bool {
		return r == '_' || r == '-' || unicode.IsSpace(r)
	}), "_")
}

func (f *csvFile) allNames() string {
	var names []string
	for _, c := range f.columns {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func (f *csvFile) requiredNames() string {
	var names []string
	for _, c := range f.columns {
		if c.required {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// csvRows returns a function that gives the rows as parse makes them, io.EOF
// after the last. Once a mistake was found nothing is given any more: the rest
// of the file is only checked, and at its end all mistakes are the error.
func csvRows[T any](f *csvFile, parse func(*csvFile) T, meter *meter) func() (T, error) {
	return func() (v T, err error) {
		for {
			if err = f.read(); err != nil {
				return v, err
			}
			if f.rows++; f.rows%256 == 0 {
				meter.show(billing.Progress{Phase: "import", Done: int64(f.rows)})
			}
			if v = parse(f); f.mistake.total == 0 {
				return v, nil
			}
		}
	}
}

// read takes the next row that has as many cells as the header.
func (f *csvFile) read() (err error) {
	for {
		f.row, err = f.reader.Read()
		f.bound.rowEnd = f.reader.InputOffset()
		var parse *csv.ParseError
		switch {
		case err == nil:
			f.last = f.line()
			return nil
		case errors.Is(err, io.EOF):
			return f.end()
		case errors.Is(err, errRowTooLong):
			f.mistake.add("%s: the row after line %d is longer than %d bytes: a quote is not closed", f.name, f.last, maxRowBytes)
			return f.mistake.err()
		case errors.As(err, &parse):
			f.addParseError(parse)
		default:
			return f.readError(err)
		}
	}
}

func (f *csvFile) end() error {
	if f.rows == 0 && f.mistake.total == 0 {
		f.mistake.add("%s has a header and no rows", f.name)
	}
	if err := f.mistake.err(); err != nil {
		return err
	}
	return io.EOF
}

func (f *csvFile) addParseError(err *csv.ParseError) {
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		f.mistake.add("%s:%d: the row has %d values, the header has %d columns", f.name, err.Line, len(f.row), f.reader.FieldsPerRecord)
	case errors.Is(err, csv.ErrBareQuote):
		f.mistake.add("%s:%d:%d: a quote inside a value: put the whole value into quotes and write \"\" for each inner one", f.name, err.Line, err.Column)
	case errors.Is(err, csv.ErrQuote):
		f.mistake.add("%s:%d:%d: a value in quotes, begun in line %d, does not end where its quote ends: write \"\" for an inner quote",
			f.name, err.Line, err.Column, err.StartLine)
	default:
		f.mistake.add("%s:%d:%d: %v", f.name, err.Line, err.Column, err.Err)
	}
}

func (f *csvFile) readError(err error) error {
	return outputError{error: fmt.Errorf("read %s: %w", f.name, err)}
}

// line is where the current row begins.
func (f *csvFile) line() int {
	line, _ := f.reader.FieldPos(0)
	return line
}

// has reports whether the file has a column.
func (f *csvFile) has(column string) bool {
	_, there := f.at[column]
	return there
}

// refuse says what is wrong with a cell of the current row, and what to type.
func (f *csvFile) refuse(column, format string, args ...any) {
	i, there := f.at[column]
	if !there {
		return
	}
	line, position := f.reader.FieldPos(i)
	f.mistake.add("%s:%d:%d: %s %s: %s", f.name, line, position, column, show(f.row[i]), fmt.Sprintf(format, args...))
}

// raw returns a cell of the current row as it is, "" where the file lacks the
// column.
func (f *csvFile) raw(column string) string {
	if i, there := f.at[column]; there {
		return f.row[i]
	}
	return ""
}

// text returns a cell and whether Postgres can hold it.
func (f *csvFile) text(column string) (value string, ok bool) {
	value = f.raw(column)
	switch {
	case !utf8.ValidString(value):
		f.refuse(column, "not UTF-8: save the file as CSV UTF-8")
	case strings.ContainsRune(value, 0):
		f.refuse(column, "has a NUL byte in it")
	default:
		return value, true
	}
	return "", false
}

// word is text that is an id or a code: nothing around it and no control
// characters in it.
func (f *csvFile) word(column string) (value string, ok bool) {
	value, ok = f.text(column)
	switch {
	case !ok:
	case strings.TrimSpace(value) != value:
		f.refuse(column, "has space around it: remove it")
	case strings.ContainsFunc(value, unicode.IsControl):
		f.refuse(column, "has a control character or a line break in it")
	default:
		return value, true
	}
	return "", false
}

// optional is nil where the file lacks the column, so that what is stored stays.
func (f *csvFile) optional(column string, get func(string) (string, bool)) *string {
	if !f.has(column) {
		return nil
	}
	value, _ := get(column)
	return &value
}

// show quotes a value for a message, cut if it is long.
func show(value string) string {
	if len(value) > maxShownValue {
		cut := maxShownValue
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		return fmt.Sprintf("%q…", value[:cut])
	}
	return fmt.Sprintf("%q", value)
}

var errRowTooLong = errors.New("row too long")

// boundedReader refuses to read on while one row lasts for too long.
type boundedReader struct {
	r      io.Reader
	rowEnd int64 // where the last row ended
	read   int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.read-b.rowEnd > maxRowBytes {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p)
	b.read += int64(n)
	return n, err
}
