package export

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxSheetRows and maxCellLength are what spreadsheets take.
	maxSheetRows  = 1 << 20
	maxCellLength = 32767
	// exactDigits are what a float64 keeps of every number; a longer one is text.
	exactDigits = 15
)

// xlsxEncoder writes a workbook as a stream: nothing of it is kept, and the same rows
// give the same bytes. A longer table goes on on the next sheet.
type xlsxEncoder struct {
	zip       *zip.Writer
	cells     *cells
	letters   []string // of the columns
	sheetRows int      // that one sheet takes, the header counted
	sheet     io.Writer
	sheets    int
	row       int // the last one of the sheet
	line      []byte
}

func newXLSX(w io.Writer, t Table) (Encoder, error) {
	e := &xlsxEncoder{zip: zip.NewWriter(w), cells: newCells(t), sheetRows: maxSheetRows}
	e.zip.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	for i := range t.Columns {
		e.letters = append(e.letters, columnLetters(i))
	}
	for _, part := range [][2]string{{"[Content_Types].xml", xlsxTypes}, {"_rels/.rels", xlsxRelations}, {"xl/styles.xml", xlsxStyles}} {
		if err := e.part(part[0], part[1]); err != nil {
			return nil, err
		}
	}
	return e, e.openSheet()
}

func (e *xlsxEncoder) part(name, text string) error {
	w, err := e.zip.Create(name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+text)
	return err
}

// columnLetters counts A, B … Z, AA, AB ….
func columnLetters(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return columnLetters(i/26-1) + columnLetters(i%26)
}

// openSheet begins a sheet with its header, which stays in view.
func (e *xlsxEncoder) openSheet() (err error) {
	e.sheets++
	if e.sheet, err = e.zip.Create(fmt.Sprintf("xl/worksheets/sheet%d.xml", e.sheets)); err != nil {
		return err
	}
	e.line = append(e.line[:0], xml.Header+`<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetViews>`+
		`<sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><cols>`...)
	for i, c := range e.cells.table.Columns {
		e.line = fmt.Appendf(e.line, `<col min="%d" max="%d" width="%d" customWidth="1"/>`, i+1, i+1, max(12, len(c.Name)+2))
	}
	e.row = 1
	e.line = append(e.line, `</cols><sheetData><row r="1">`...)
	for i, name := range e.cells.table.Names() {
		e.text(i, []byte(name), styleHeader)
	}
	e.line = append(e.line, `</row>`...)
	_, err = e.sheet.Write(e.line)
	return err
}

func (e *xlsxEncoder) closeSheet() error {
	_, err := io.WriteString(e.sheet, `</sheetData></worksheet>`)
	return err
}

// Write writes a row.
func (e *xlsxEncoder) Write(row Row) error {
	if e.row == e.sheetRows {
		if err := e.closeSheet(); err != nil {
			return err
		}
		if err := e.openSheet(); err != nil {
			return err
		}
	}
	e.row++
	e.line = append(e.line[:0], `<row r="`...)
	e.line = append(strconv.AppendInt(e.line, int64(e.row), 10), `">`...)
	for i := range e.cells.table.Columns {
		cell := e.cells.at(row, i)
		if len(cell) == 0 {
			continue
		}
		if len(cell) > maxCellLength && len(utf16.Encode([]rune(string(cell)))) > maxCellLength {
			err := fmt.Errorf("row %d, column %s: the text is longer than the %d characters that a cell takes", e.row, e.cells.table.Columns[i].Name, maxCellLength)
			return &Error{Trouble: Unfit, Hint: "use --format csv, or jsonl; an old file is as it was", err: err}
		}
		e.cell(i, cell)
	}
	e.line = append(e.line, `</row>`...)
	_, err := e.sheet.Write(e.line)
	return err
}

// cell writes a number as a number, a moment as one, and everything else as text, which
// no spreadsheet runs.
func (e *xlsxEncoder) cell(i int, cell []byte) {
	switch e.cells.table.Columns[i].Kind {
	case KindInteger, KindAmount:
		if style, ok := numberStyle(cell); ok {
			e.number(i, cell, style, "")
			return
		}
	case KindBool:
		value := "0"
		if cell[0] == 't' {
			value = "1"
		}
		e.number(i, []byte(value), styleText, ` t="b"`)
		return
	case KindTime:
		if at, err := time.Parse(time.RFC3339, string(cell)); err == nil {
			e.number(i, serial(at), styleTime, "")
			return
		}
	case KindDate:
		if at, err := time.Parse(time.DateOnly, string(cell)); err == nil {
			e.number(i, serial(at), styleDate, "")
			return
		}
	}
	e.text(i, cell, styleText)
}

// serial is a moment in days since 1899-12-30, as spreadsheets count.
func serial(at time.Time) []byte {
	return strconv.AppendFloat(nil, float64(at.Unix())/86400+25569, 'f', -1, 64)
}

// numberStyle picks how many digits are shown; ok is false for what a float64 would
// not keep.
func numberStyle(cell []byte) (style int, ok bool) {
	whole, fraction, plain := splitAmount(cell)
	if !plain || len(bytes.TrimLeft(whole, "-0"))+len(fraction) > exactDigits || len(fraction) > 3 {
		return 0, false
	}
	return []int{styleWhole, styleOther, styleCents, styleMills}[len(fraction)], true
}

func (e *xlsxEncoder) begin(i, style int) {
	e.line = append(append(e.line, `<c r="`...), e.letters[i]...)
	e.line = append(strconv.AppendInt(e.line, int64(e.row), 10), `" s="`...)
	e.line = append(strconv.AppendInt(e.line, int64(style), 10), '"')
}

func (e *xlsxEncoder) number(i int, value []byte, style int, kind string) {
	e.begin(i, style)
	e.line = append(append(e.line, kind...), `><v>`...)
	e.line = append(append(e.line, value...), `</v></c>`...)
}

func (e *xlsxEncoder) text(i int, value []byte, style int) {
	e.begin(i, style)
	e.line = append(e.line, ` t="inlineStr"><is><t xml:space="preserve">`...)
	e.line = append(appendXML(e.line, value), `</t></is></c>`...)
}

// appendXML escapes text. Spreadsheets read _x0041_ as A, and what XML can't hold is
// written like that.
func appendXML(line, text []byte) []byte {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == '&':
			line = append(line, "&amp;"...)
		case r == '<':
			line = append(line, "&lt;"...)
		case r == '>':
			line = append(line, "&gt;"...)
		case r == '_' && isEscape(text[i:]):
			line = append(line, "_x005F_"...)
		case r < ' ' && r != '\t' && r != '\n', r == 0xFFFE, r == 0xFFFF:
			line = fmt.Appendf(line, "_x%04X_", r)
		default:
			line = utf8.AppendRune(line, r)
		}
		i += size
	}
	return line
}

func isEscape(text []byte) bool {
	if len(text) < 7 || text[1] != 'x' || text[6] != '_' {
		return false
	}
	_, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return err == nil
}

// Flush ends the last sheet and the workbook.
func (e *xlsxEncoder) Flush() error {
	if err := e.closeSheet(); err != nil {
		return err
	}
	var sheets, relations bytes.Buffer
	for n := 1; n <= e.sheets; n++ {
		name := e.cells.table.Name
		if n > 1 {
			name += " " + strconv.Itoa(n)
		}
		fmt.Fprintf(&sheets, `<sheet name="%s" sheetId="%d" r:id="rId%d"/>`, name, n, n)
		fmt.Fprintf(&relations, `<Relationship Id="rId%d" Type="%s/worksheet" Target="worksheets/sheet%d.xml"/>`, n, xlsxRelation, n)
	}
	fmt.Fprintf(&relations, `<Relationship Id="rId%d" Type="%s/styles" Target="styles.xml"/>`, e.sheets+1, xlsxRelation)
	err := e.part("xl/workbook.xml", `<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="`+xlsxRelation+`"><sheets>`+
		sheets.String()+`</sheets></workbook>`)
	if err != nil {
		return err
	}
	err = e.part("xl/_rels/workbook.xml.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">`+
		relations.String()+`</Relationships>`)
	if err != nil {
		return err
	}
	return e.zip.Close()
}
