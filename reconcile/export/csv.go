package export

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// csvEncoder writes what encoding/csv would, without a string for each cell.
type csvEncoder struct {
	w     io.Writer
	cells *cells
	line  []byte
}

func newCSV(w io.Writer, t Table) (Encoder, error) {
	e := &csvEncoder{w: w, cells: newCells(t)}
	for i, name := range t.Names() {
		e.line = appendCSV(e.line, []byte(name), i == 0)
	}
	_, err := w.Write(append(e.line, '\n'))
	return e, err
}

// Write writes a row.
func (e *csvEncoder) Write(row Row) error {
	e.line = e.line[:0]
	for i, column := range e.cells.table.Columns {
		cell := e.cells.at(row, i)
		if column.Kind == KindText {
			cell = disarm(cell)
		}
		e.line = appendCSV(e.line, cell, i == 0)
	}
	e.line = append(e.line, '\n')
	_, err := e.w.Write(e.line)
	return err
}

// Flush has nothing left to write.
func (e *csvEncoder) Flush() error { return nil }

// appendCSV adds a cell to a line, in quotes where it must be.
func appendCSV(line, cell []byte, first bool) []byte {
	if !first {
		line = append(line, ',')
	}
	if !needsQuotes(cell) {
		return append(line, cell...)
	}
	line = append(line, '"')
	for {
		i := bytes.IndexByte(cell, '"')
		if i < 0 {
			break
		}
		line = append(append(line, cell[:i]...), '"', '"')
		cell = cell[i+1:]
	}
	return append(append(line, cell...), '"')
}

// needsQuotes follows encoding/csv. \. alone ends the data for Postgres's COPY.
func needsQuotes(cell []byte) bool {
	if len(cell) == 0 {
		return false
	}
	if len(cell) == 2 && cell[0] == '\\' && cell[1] == '.' {
		return true
	}
	for _, b := range cell {
		if b == ',' || b == '"' || b == '\n' || b == '\r' {
			return true
		}
	}
	if cell[0] < utf8.RuneSelf {
		return cell[0] == ' ' || '\t' <= cell[0] && cell[0] <= '\r'
	}
	first, _ := utf8.DecodeRune(cell)
	return unicode.IsSpace(first)
}
