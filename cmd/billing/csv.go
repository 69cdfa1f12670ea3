package main

import (
	"errors"
	"io"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

// csvFile is a file that is being imported, with what only the import knows of it.
type csvFile struct {
	*sheet.File
	rules rowRules
	// uncharged counts rows by a currency that Stripe does not charge in.
	uncharged map[string]int64
	// first are the first rows as they were understood, for people to look at.
	first [][]string
	// size is the file's, in bytes, and read how much of it was, for the progress.
	size int64
	read *countedReader
}

// rowRules are what a person said about the rows of a file.
type rowRules struct {
	period  ledger.Period
	anyDate bool
}

// maxFirst is how many rows are shown as they were understood.
const maxFirst = 5

// openCSV reads the header. name is the file's, as messages show it.
func openCSV(name string, r io.Reader, kind sheet.Kind, opts sheet.Options) (*csvFile, error) {
	counted := &countedReader{Reader: r}
	file, err := sheet.Open(name, counted, kind, opts)
	if err != nil {
		return nil, sheetError(err)
	}
	return &csvFile{File: file, uncharged: map[string]int64{}, read: counted}, nil
}

// sheetError says whether the file is wrong or could not be read.
func sheetError(err error) error {
	var mistakes *sheet.Mistakes
	var failed sheet.ReadError
	switch {
	case errors.As(err, &mistakes):
		return inputError{mistakes}
	case errors.As(err, &failed):
		return outputError{error: failed}
	}
	return err
}

// csvRows returns a function that gives the rows as parse makes them, io.EOF
// after the last. Once a mistake was found nothing is given any more: the rest
// of the file is only checked, and at its end all mistakes are the error.
func csvRows[T any](f *csvFile, parse func(*csvFile) T, meter *meter) func() (T, error) {
	return func() (v T, err error) {
		for {
			if err = f.Next(); err != nil {
				if format := f.Format(); !format.Plain() {
					f.Mistakes.Read = format.String()
				}
				return v, sheetError(err)
			}
			if f.Rows%256 == 0 {
				meter.show(billing.Progress{Phase: "import", Done: int64(f.Rows), Total: f.allRows()})
			}
			if v = parse(f); f.Mistakes.Total == 0 {
				return v, nil
			}
		}
	}
}

// allRows is about how many rows the file has, by how much of it they took so far.
func (f *csvFile) allRows() int64 {
	if f.size <= 0 || f.read.n <= 0 {
		return 0
	}
	return max(int64(f.Rows), int64(float64(f.Rows)*float64(f.size)/float64(f.read.n)))
}

// optional is nil where the file lacks the column, so that what is stored stays.
func (f *csvFile) optional(column string, get func(string) (string, bool)) *string {
	if !f.Has(column) {
		return nil
	}
	value, _ := get(column)
	return &value
}

// understood keeps a row for people to look at.
func (f *csvFile) understood(cells ...string) {
	if len(f.first) < maxFirst {
		f.first = append(f.first, cells)
	}
}

// show quotes a value for a message, cut if it is long.
func show(value string) string { return sheet.Show(value) }

// countedReader counts what was read.
type countedReader struct {
	io.Reader
	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
