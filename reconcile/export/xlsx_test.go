package export

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"
)

// fixtureTable has a column of each kind.
var fixtureTable = Table{"charges", []Column{
	{Name: "account_id", Kind: KindID}, {Name: "name"}, {Name: "try", Kind: KindInteger},
	{Name: "amount", Kind: KindAmount, Currency: "currency"}, {Name: "currency"}, {Name: "disputed", Kind: KindBool},
	{Name: "at", Kind: KindTime}, {Name: "day", Kind: KindDate},
}}

func row(cells ...string) Row {
	r := make(Row, len(cells))
	for i, c := range cells {
		if c != "NULL" {
			r[i] = []byte(c)
		}
	}
	return r
}

// encode writes rows in a format.
func encode(t testing.TB, format string, table Table, rows ...Row) []byte {
	t.Helper()
	var b bytes.Buffer
	to, err := NewEncoder(format, &b, table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := to.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func openXLSX(t testing.TB, file []byte) *excelize.File {
	t.Helper()
	f, err := excelize.OpenReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A workbook has numbers as numbers, moments as moments, and text as text that no
// spreadsheet runs; another program reads it.
func TestAWorkbookIsReadByAnotherProgram(t *testing.T) {
	f := openXLSX(t, encode(t, "xlsx", fixtureTable,
		row("-5", "=1+1", "1", "-70", "usd", "f", "2026-11-01 00:05:00.25+00", "2026-10-31"),
		row("007", "<b>&\x01 _x0041_ ü", "NULL", "1234567890123.456", "bhd", "t", "NULL", "NULL"),
		row("1e5", "", "1234567890123456", "12345678901234.567", "usd", "t", "infinity", "2026-13-99"),
	))
	want := map[string]string{
		"A1": "account_id", "A2": "-5", "B2": "=1+1", "C2": "1", "D2": "-70.00", "F2": "FALSE", "G2": "2026-11-01 00:05:00", "H2": "2026-10-31",
		"A3": "007", "B3": "<b>&\x01 _x0041_ ü", "C3": "", "F3": "TRUE", "G3": "",
		// A float64 would not keep these: they are text.
		"A4": "1e5", "C4": "1234567890123456", "D3": "1234567890123.456", "D4": "12345678901234.567", "G4": "infinity", "H4": "2026-13-99",
	}
	for cell, text := range want {
		got, err := f.GetCellValue("charges", cell)
		if err != nil || got != text {
			t.Errorf("%s is %q, %v, want %q", cell, got, err, text)
		}
		if formula, err := f.GetCellFormula("charges", cell); formula != "" || err != nil {
			t.Errorf("%s is a formula: %q, %v", cell, formula, err)
		}
	}
	for cell, kind := range map[string]excelize.CellType{
		"A2": excelize.CellTypeInlineString, "B2": excelize.CellTypeInlineString, "D2": excelize.CellTypeUnset, "G2": excelize.CellTypeUnset,
		"F2": excelize.CellTypeBool, "D4": excelize.CellTypeInlineString,
	} {
		if got, err := f.GetCellType("charges", cell); got != kind || err != nil {
			t.Errorf("%s is of type %v, %v, want %v", cell, got, err, kind)
		}
	}
	if panes, err := f.GetPanes("charges"); err != nil || !panes.Freeze || panes.YSplit != 1 {
		t.Errorf("the header does not stay in view: %+v, %v", panes, err)
	}
}

// What does not fit on a sheet is on the next one, with a header of its own.
func TestALongTableGoesOnOnTheNextSheet(t *testing.T) {
	var b bytes.Buffer
	to, err := newXLSX(&b, fixtureTable)
	if err != nil {
		t.Fatal(err)
	}
	to.(*xlsxEncoder).sheetRows = 4
	for i := range 7 {
		if err := to.Write(row(fmt.Sprint("a", i), "n", "1", "1", "usd", "f", "NULL", "NULL")); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Flush(); err != nil {
		t.Fatal(err)
	}
	f := openXLSX(t, b.Bytes())
	var got []string
	for _, sheet := range f.GetSheetList() {
		rows, err := f.GetRows(sheet)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			got = append(got, sheet+":"+r[0])
		}
	}
	want := "charges:account_id charges:a0 charges:a1 charges:a2 charges 2:account_id charges 2:a3 charges 2:a4 charges 2:a5 charges 3:account_id charges 3:a6"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %q\nwant %q", strings.Join(got, " "), want)
	}
}

// A cell that a spreadsheet would cut is refused, with what to do.
func TestTextThatNoCellTakesIsRefused(t *testing.T) {
	to, err := newXLSX(&bytes.Buffer{}, fixtureTable)
	if err != nil {
		t.Fatal(err)
	}
	fits := row("a", strings.Repeat("ü", maxCellLength), "1", "1", "usd", "f", "NULL", "NULL")
	if err := to.Write(fits); err != nil {
		t.Errorf("what fits: %v", err)
	}
	fits[1] = append(fits[1], 'x')
	err = to.Write(fits)
	if e, ok := errors.AsType[*Error](err); !ok || e.Trouble != Unfit || !strings.Contains(err.Error(), "column name") || !strings.Contains(e.Hint, "--format csv") {
		t.Errorf("got %v", err)
	}
}
