package sheet

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
	"unicode/utf8"
)

var testKind = Kind{
	Account: "account_id", Amount: "amount",
	Columns: []Column{{Name: "account_id", Required: true, Also: []string{"customer id"}}, {Name: "amount", Required: true, Also: []string{"total"}, Totals: []string{"total"}},
		{Name: "currency", Required: true}, {Name: "description"}, {Name: "day"}},
	Wrong: []Wrong{{What: "a file of payouts", Type: "take another", All: [][]string{{"id", "arrival date"}}}},
}

// readFile gives the rows of a file as account=amount currency.
func readFile(r io.Reader, opts Options) (rows []string, f *File, err error) {
	if f, err = Open("file.csv", r, testKind, opts); err != nil {
		return nil, f, err
	}
	for {
		if err = f.Next(); errors.Is(err, io.EOF) {
			return rows, f, nil
		} else if err != nil {
			return nil, f, err
		}
		plain, _, ok := f.Amount("amount", strings.ToLower(f.Raw("currency")))
		text, fine := f.Text("description")
		if f.Has("day") {
			f.Date("day")
		}
		if id, clean := f.Word("account_id"); ok && fine && clean {
			rows = append(rows, id+"="+plain+" "+f.Raw("currency")+text)
		}
	}
}

// asUTF16 writes text in either order of bytes, with a mark.
func asUTF16(text string, big bool) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
		if big {
			b.Write([]byte{byte(u >> 8), byte(u)})
		} else {
			b.Write([]byte{byte(u), byte(u >> 8)})
		}
	}
	return b.String()
}

// One table means one thing in whatever form it comes, also when it trickles in byte by
// byte.
func TestOneTableInEveryForm(t *testing.T) {
	const table = "account_id,amount,currency,description\nZoë 𝄞,1234.50,eur,\"two\nlines, \"\"q\"\"\"\nb,5.00,eur,x\n"
	semicolons := strings.NewReplacer(",\"two", ";\"two", "lines,", "lines,", "1234.50", "1.234,50", "5.00", "5,00", "account_id,amount,currency,description",
		"account_id;amount;currency;description", "𝄞,", "𝄞;", ",eur,", ";eur;", "b,", "b;", ",eur;", ";eur;").Replace(table)
	semicolons = strings.ReplaceAll(strings.ReplaceAll(semicolons, "50,eur", "50;eur"), "00,eur", "00;eur")
	for name, text := range map[string]string{
		"plain": table, "with a mark": "\ufeff" + table, "CRLF": strings.ReplaceAll(table, "\n", "\r\n"), "UTF-16": asUTF16(table, false), "UTF-16, other order": asUTF16(table, true),
		"titles": "Report\n,,\n\n" + table, "blank rows": strings.ReplaceAll(table, "\nb,", "\n,,,\n\nb,"), "semicolons": semicolons,
		"total": table + "Total,1239.50,,\n", "sep": "sep=,\n" + table,
	} {
		for way, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			rows, f, err := readFile(r, Options{})
			if err != nil || len(rows) != 2 || rows[0] != "Zoë 𝄞=1234.50 eurtwo\nlines, \"q\"" || rows[1] != "b=5.00 eurx" {
				t.Errorf("%s, %s: %q, %v (%+v)", name, way, rows, err, f)
			}
		}
	}
}

// A decimal mark that shows itself only below an amount in doubt is believed, and the
// amount in doubt refused if it was read by the other.
func TestAmountsInDoubt(t *testing.T) {
	const header = "account_id,amount,currency\n"
	many := strings.Repeat("x,20,kwd\n", 10000) // longer than what the format is found in
	for name, c := range map[string]struct{ text, want string }{
		"shown above":           {header + "a,\"12,50\",kwd\nb,1.234,kwd\n", "b=1234 kwd"},
		"shown below":           {header + "b,1.234,kwd\na,\"12,50\",kwd\n", "b=1234 kwd"},
		"shown far below":       {header + "b,1.234,kwd\n" + many + "a,\"12,50\",kwd\n", `file.csv:2:3: amount "1.234": line 10003 has a decimal comma`},
		"not shown, 3 digits":   {header + "b,1.234,kwd\n", "b=1.234 kwd"},
		"not shown, semicolons": {"account_id;amount;currency\nb;1.234;kwd\n", "may be 1.234 or 1234"},
		"not shown, 2 digits":   {header + "b,1.000,usd\n", "may be 1.000 or 1000"},
		"a comma, not shown":    {header + "b,\"1,000\",usd\n", "may be 1000 or 1.000"},
		"both shown":            {header + "a,12.50,usd\nb,\"12,50\",usd\n", "is written with another decimal mark than line 2"},
	} {
		rows, _, err := readFile(strings.NewReader(c.text), Options{})
		got := strings.Join(rows, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %.300s, want %s", name, got, c.want)
		}
	}
}

// What a cut, a Mac or a total below says about the rows is not lost.
func TestNoRowIsLostInSilence(t *testing.T) {
	const header = "account_id,amount,currency\n"
	for name, c := range map[string]struct{ text, want string }{
		"CR alone":              {strings.ReplaceAll(header+"a,1,usd\nb,2,usd\n", "\n", "\r"), "a=1 usd b=2 usd"},
		"UTF-16, cut in half":   {asUTF16(header+"a,1,usd\n", false)[:len(asUTF16(header+"a,1,usd\n", false))-1], "is broken UTF-16"},
		"a total that fits":     {header + "a,1,usd\nb,2,usd\nTotal,3,\n", "a=1 usd b=2 usd"},
		"a total that does not": {header + "a,1,usd\nTotal,3,\n", "the rows above come to 1.00 usd: rows are missing"},
		"a row without an id":   {header + "a,5,usd\n,5,usd\n", "account id is blank"},
		"two files in one":      {header + "a,5,usd\n" + header + "b,5,usd\n", "file.csv:3: the header stands here again"},
		"a spreadsheet's":       {header + "a,1E+15,usd\n", "was rewritten by a spreadsheet"},
	} {
		rows, _, err := readFile(strings.NewReader(c.text), Options{})
		got := strings.Join(rows, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A failing disk is no mistake of the file's.
func TestAReadThatFailsIsNoMistake(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "account_id,amount,currency\n", "account_id,amount,currency\n" + strings.Repeat("a,1,usd\n", 20000)} {
		_, _, err := readFile(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), Options{})
		var failed ReadError
		if !errors.As(err, &failed) || !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", len(text), err)
		}
	}
}

// The first twenty mistakes are listed, and the rest is counted by kind.
func TestMistakesAreCountedByKind(t *testing.T) {
	m := Mistakes{Name: "file.csv"}
	for range 22 {
		m.Add("amount", "a")
	}
	m.Add("width", "w")
	if text := m.Error(); !strings.HasPrefix(text, "file.csv has 23 mistakes:\n") || !strings.Contains(text, "and 3 more (amount 2, width 1)") {
		t.Error(text)
	}
}

// Whatever bytes come, reading ends with rows that are text, or with mistakes that name
// their place; it never gives fewer rows without saying so, and never hangs.
func FuzzFile(f *testing.F) {
	const table = "account_id,amount,currency,description,day\na,1.50,usd,x,2026-11-01\n"
	for _, text := range []string{table, "\ufeff" + table, asUTF16(table, true), asUTF16(table, false)[:31], strings.ReplaceAll(table, "\n", "\r"), "title\n\n" + table, table + "Total,1.50,,,\n",
		strings.ReplaceAll(table, ",", ";"), "sep=|\n" + table, "id,arrival date\n", table + "a,\"1", "\x1f\x8b", table + "\ufeffb,2,usd,,\n", "a\tb\n\"", table + table} {
		f.Add(text, "")
	}
	f.Add(strings.ReplaceAll(table, "x", "\x80\x81"), EncodingWindows)
	f.Fuzz(func(t *testing.T, text, encoding string) {
		rows, file, err := readFile(strings.NewReader(text), Options{Encoding: encoding})
		var mistakes *Mistakes
		switch {
		case errors.As(err, &mistakes):
			if mistakes.Total < 1 || len(mistakes.List) == 0 || len(mistakes.List) > MaxListed || rows != nil {
				t.Fatalf("%d mistakes, %d listed, %d rows", mistakes.Total, len(mistakes.List), len(rows))
			}
			for _, one := range mistakes.List {
				if !strings.HasPrefix(one, "file.csv") || strings.ContainsFunc(one, func(r rune) bool { return r < ' ' || r == 0x7f }) {
					t.Fatalf("%q", one)
				}
			}
		case err != nil:
			t.Fatal(err)
		default:
			if len(rows) == 0 || len(rows) != file.Rows {
				t.Fatalf("%d rows, the file counted %d", len(rows), file.Rows)
			}
			for _, row := range rows {
				if !utf8.ValidString(row) || strings.ContainsRune(row, 0) {
					t.Fatalf("%q", row)
				}
			}
		}
	})
}
