package export

import (
	"bytes"
	"encoding/json"
	"io"
)

// jsonlEncoder writes one object a line, with the columns in their order.
type jsonlEncoder struct {
	w     io.Writer
	cells *cells
	keys  [][]byte // {"job": or ,"period":
	line  []byte
}

func newJSONL(w io.Writer, t Table) Encoder {
	e := &jsonlEncoder{w: w, cells: newCells(t)}
	for i, name := range t.Names() {
		before := byte(',')
		if i == 0 {
			before = '{'
		}
		e.keys = append(e.keys, append(appendJSON([]byte{before}, []byte(name)), ':'))
	}
	return e
}

// Write writes a row.
func (e *jsonlEncoder) Write(row Row) error {
	e.line = e.line[:0]
	for i, column := range e.cells.table.Columns {
		e.line = append(e.line, e.keys[i]...)
		cell := e.cells.at(row, i)
		switch {
		case cell == nil:
			e.line = append(e.line, "null"...)
		case column.Kind == KindInteger || column.Kind == KindBool:
			e.line = append(e.line, cell...)
		default:
			e.line = appendJSON(e.line, cell)
		}
	}
	e.line = append(e.line, '}', '\n')
	_, err := e.w.Write(e.line)
	return err
}

// Flush has nothing left to write.
func (e *jsonlEncoder) Flush() error { return nil }

// appendJSON adds a string. Most are plain; the others are written by encoding/json.
func appendJSON(line, text []byte) []byte {
	for _, b := range text {
		if b < ' ' || b > '~' || b == '"' || b == '\\' {
			return appendEscaped(line, text)
		}
	}
	return append(append(append(line, '"'), text...), '"')
}

func appendEscaped(line, text []byte) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(string(text)) // a string can't fail
	return append(line, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
