package sheet

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// maxRowBytes bounds one row.
const maxRowBytes = 1 << 20

// Options are what a person says about a file; what is empty is found in it.
type Options struct {
	Encoding   string
	Delimiter  rune
	Decimal    byte // '.' or ','
	Dates      string
	HeaderLine int
	// Columns say which title means which column, by the column's name.
	Columns map[string]string
	// SkipUnknown leaves columns out that are not known, and those without a name.
	SkipUnknown bool
	// Defaults are values of columns that the file lacks.
	Defaults map[string]string
	// KeepTotals takes a row that looks like a total for an account.
	KeepTotals bool

	skippedLines int
}

// Format is how a file was read.
type Format struct {
	Encoding   string `json:"encoding"`
	Delimiter  string `json:"delimiter"`
	Decimal    string `json:"decimal"` // point, comma, or empty where no amount shows it
	OldMac     bool   `json:"cr_line_ends,omitempty"`
	HeaderLine int    `json:"header_line"`
	TotalLine  int    `json:"total_line,omitempty"`
	TotalText  string `json:"total,omitempty"`
	Skipped    int    `json:"columns_left_out,omitempty"`
}

// Plain reports whether nothing about the file is out of the ordinary.
func (f Format) Plain() bool {
	return f.Encoding == EncodingUTF8 && f.Delimiter == "commas" && f.Decimal != "comma" && !f.OldMac && f.HeaderLine == 1 && f.TotalLine == 0 && f.Skipped == 0
}

func (f Format) String() string {
	parts := []string{strings.Replace(strings.ToUpper(f.Encoding), "WINDOWS", "Windows", 1), f.Delimiter}
	if f.Decimal != "" {
		parts = append(parts, f.Decimal+" decimals")
	}
	if f.OldMac {
		parts = append(parts, "line ends of CR alone")
	}
	if f.HeaderLine > 1 {
		parts = append(parts, fmt.Sprintf("header in line %d", f.HeaderLine))
	}
	switch {
	case f.Skipped == 1:
		parts = append(parts, "1 column left out")
	case f.Skipped > 1:
		parts = append(parts, fmt.Sprintf("%d columns left out", f.Skipped))
	}
	if f.TotalLine > 0 {
		parts = append(parts, fmt.Sprintf("line %d is the total of the rows, %s, and left out", f.TotalLine, f.TotalText))
	}
	return strings.Join(parts, ", ")
}

// File gives the rows of a file, cells by the names of their columns, and collects
// mistakes instead of stopping at the first.
type File struct {
	Name     string
	Mistakes Mistakes
	Rows     int

	kind   Kind
	opts   Options
	format Format
	lines  *lineReader
	bound  *boundedReader
	reader *csv.Reader
	base   int            // lines in front of the header
	titles []string       // as they stand in the file
	at     map[string]int // column → place in the row; absent where the file lacks it
	row    []string
	last   int // the line of the last row that was read whole

	decimal     byte // the decimal mark, once an amount has shown it
	decimalLine int
	doubt       place // the first amount that was read with a point before any showed it
	totals      []total
	sums        map[string]decimal.Decimal
}

// place is a cell that may turn out to mean something else.
type place struct {
	line, column int
	text         string
}

// Open finds out how the file is written and reads its header. name is the file's, as
// messages show it. The error is *Mistakes, or what reading failed with.
func Open(name string, r io.Reader, kind Kind, opts Options) (*File, error) {
	f := &File{Name: name, Mistakes: Mistakes{Name: name}, kind: kind, opts: opts, last: 1, decimal: opts.Decimal, sums: map[string]decimal.Decimal{}}
	buf := bufio.NewReaderSize(r, sampleBytes)
	// A short file, or one that can't be read, is met again by the reader.
	start, _ := buf.Peek(1024)
	text, encoding, err := decoded(start, buf, opts.Encoding)
	if err != nil {
		f.Mistakes.Add("file", "%s %v", name, err)
		return nil, f.Mistakes.Err()
	}
	f.format.Encoding = encoding
	f.lines = &lineReader{r: text}
	sample := make([]byte, sampleBytes)
	n, err := io.ReadFull(f.lines, sample)
	sample = sample[:n]
	switch {
	case errors.Is(err, errBadUTF16):
		f.Mistakes.Add("file", "%s %v", name, err)
		return nil, f.Mistakes.Err()
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, f.readError(err)
	}
	found := kind.sniff(sample, opts)
	f.base = found.lines
	f.format.Delimiter = delimiterWord(found.delimiter)
	f.bound = &boundedReader{r: io.MultiReader(bytes.NewReader(sample[found.offset:]), f.lines)}
	f.reader = csv.NewReader(f.bound)
	f.reader.ReuseRecord, f.reader.Comma, f.reader.FieldsPerRecord = true, found.delimiter, -1
	if err := f.openHeader(); err != nil {
		return nil, err
	}
	f.findDecimal(sample[found.offset:])
	return f, nil
}

func (f *File) openHeader() error {
	header, err := f.reader.Read()
	f.bound.rowEnd = f.reader.InputOffset()
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		f.Mistakes.Add("file", "%s is empty: it needs a header with %s", f.Name, f.kind.names(true))
	case errors.Is(err, errRowTooLong):
		f.Mistakes.Add("file", "%s:1: the header is longer than %d bytes: a quote is not closed", f.Name, maxRowBytes)
	case errors.As(err, &parse):
		f.addParseError(parse)
	case err != nil:
		return f.readError(err)
	default:
		f.format.HeaderLine = f.Line()
		f.readHeader(slices.Clone(header))
	}
	return f.Mistakes.Err()
}

func (f *File) readHeader(header []string) {
	f.titles = header
	if w := f.kind.wrong(header); w != nil {
		f.Mistakes.Add("file", "%s:%d: this is %s: %s", f.Name, f.format.HeaderLine, w.What, w.Type)
		return
	}
	known := f.kind.titles(f.opts.Columns)
	f.at = make(map[string]int, len(header))
	for i, title := range header {
		name := known[key(title)]
		line, column := f.reader.FieldPos(i)
		line += f.base
		first, twice := f.at[name]
		switch {
		case name == "" && f.opts.SkipUnknown:
			f.format.Skipped++
		case strings.TrimSpace(title) == "":
			f.Mistakes.Add("header", "%s:%d:%d: column %d has no name; to leave it out, add --skip-unknown", f.Name, line, column, i+1)
		case name == "":
			f.Mistakes.Add("header", "%s:%d:%d: column %s is not known; there are %s; to leave it out, add --skip-unknown, and if it is one of them, --column NAME=%s",
				f.Name, line, column, Show(title), f.kind.names(false), Show(title))
		case twice && key(header[first]) == key(title):
			f.Mistakes.Add("header", "%s:%d:%d: column %s stands here a second time: remove or rename one of them", f.Name, line, column, Show(title))
		case twice:
			f.Mistakes.Add("header", "%s:%d:%d: column %s means %s, and so does %s: say which it is, --column %s=%s, and leave the other out, --skip-unknown",
				f.Name, line, column, Show(title), name, Show(header[first]), name, Show(title))
		default:
			f.at[name] = i
		}
	}
	for _, c := range f.kind.Columns {
		title, assigned := f.opts.Columns[c.Name]
		switch _, there := f.at[c.Name]; {
		case there:
		case assigned:
			f.Mistakes.Add("header", "%s:%d: there is no column %s, which --column %s names", f.Name, f.format.HeaderLine, Show(title), c.Name)
		case c.Required && f.opts.Defaults[c.Name] == "":
			f.Mistakes.Add("header", "%s:%d: there is no column %s; the header needs %s; if it has another title, add --column %s=TITLE",
				f.Name, f.format.HeaderLine, c.Name, f.kind.names(true), c.Name)
		}
	}
}

// findDecimal looks for the first amount of the sample that can be read in one way.
func (f *File) findDecimal(sample []byte) {
	i, there := f.at[f.kind.Amount]
	if !there || f.decimal != 0 {
		return
	}
	r := csv.NewReader(bytes.NewReader(sample))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = f.reader.Comma, true, -1
	for row := 0; ; row++ {
		cells, err := r.Read()
		if err != nil {
			return
		}
		if row == 0 || i >= len(cells) {
			continue
		}
		amount, err := read(cells[i])
		if err != nil {
			continue
		}
		if _, evidence, _, _ := amount.settle(0); evidence != 0 {
			f.decimal = evidence
			line, _ := r.FieldPos(i)
			f.decimalLine = line + f.base
			return
		}
	}
}

// Format is how the file was read, complete once its last row was.
func (f *File) Format() Format {
	out := f.format
	out.OldMac = f.lines.lone
	switch f.decimal {
	case '.':
		out.Decimal = "point"
	case ',':
		out.Decimal = "comma"
	}
	return out
}

func (f *File) readError(err error) error { return ReadError{fmt.Errorf("read %s: %w", f.Name, err)} }

// ReadError says that a file could not be read, whatever is in it.
type ReadError struct{ error }

func (e ReadError) Unwrap() error { return e.error }
