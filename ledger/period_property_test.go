package ledger_test

import (
	"archive/zip"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger"
)

// zones are all of the tz database that came with Go, each once: many have several names.
func zones(t *testing.T) (all []*time.Location) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	known := map[string]bool{}
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, "/") {
			continue
		}
		r, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if known[string(data)] {
			continue
		}
		known[string(data)] = true
		loc, err := time.LoadLocationFromTZData(file.Name, data)
		if err != nil {
			t.Fatalf("%s: %v", file.Name, err)
		}
		all = append(all, loc)
	}
	if len(all) < 300 {
		t.Fatalf("only %d zones", len(all))
	}
	return all
}

// cameTwice reports a month whose first minute came twice: in Newfoundland and
// Labrador the clock was put back at 00:01 of 1 November 2009, to the day before.
func cameTwice(loc *time.Location, p ledger.Period) bool {
	switch loc.String() {
	case "America/St_Johns", "Canada/Newfoundland", "America/Goose_Bay":
		return p == "2009-11"
	}
	return false
}

// In every zone that there is, each month from 2000 to 2099 begins at the first
// moment of its first day, whatever the clock did that night, and ends where the
// next one begins.
func TestEveryMonthInEveryZoneBeginsWithItsFirstDay(t *testing.T) {
	t.Parallel()
	for _, loc := range zones(t) {
		for p := ledger.Period("2000-01"); p <= "2099-12"; p = p.Next() {
			start, end := p.Start(loc), p.End(loc)
			if local := start.In(loc); ledger.PeriodOf(start, loc) != p || local.Day() != 1 || local.Hour() > 1 {
				t.Errorf("%s: %s starts at %s", loc, p, local)
			}
			if last := ledger.PeriodOf(start.Add(-time.Nanosecond), loc); last != p.Previous() {
				t.Errorf("%s: the moment before %s is in %s", loc, p, last)
			}
			if !end.Equal(p.Next().Start(loc)) {
				t.Errorf("%s: %s ends at %s, and the next one starts at %s", loc, p, end, p.Next().Start(loc))
			}
			// A zone may lose a whole day (Samoa, 30 December 2011) or some hours of one.
			whole := time.Duration(daysOf(p)) * 24 * time.Hour
			if off := end.Sub(start) - whole; off.Abs() > 24*time.Hour {
				t.Errorf("%s: %s is %s long, %s from its days", loc, p, end.Sub(start), off)
			}
		}
	}
}

// daysOf counts the days of a month by the rule of the calendar.
func daysOf(p ledger.Period) int {
	year := int(p[2]-'0')*10 + int(p[3]-'0') // since 2000, which is a leap year
	switch p[5:] {
	case "02":
		if year%4 == 0 {
			return 29
		}
		return 28
	case "04", "06", "09", "11":
		return 30
	default:
		return 31
	}
}

// Any moment lies in exactly one period: the one that its zone's calendar shows.
func TestAnyMomentLiesInItsPeriod(t *testing.T) {
	t.Parallel()
	var names []string
	all := map[string]*time.Location{}
	for _, loc := range zones(t) {
		names, all[loc.String()] = append(names, loc.String()), loc
	}
	first, last := time.Date(2000, 2, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2099, 11, 29, 0, 0, 0, 0, time.UTC).Unix()
	rapid.Check(t, func(t *rapid.T) {
		loc := all[rapid.SampledFrom(names).Draw(t, "zone")]
		at := time.Unix(rapid.Int64Range(first, last).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		if rapid.Bool().Draw(t, "near the turn of the month") {
			at = ledger.PeriodOf(at, loc).Start(loc).Add(time.Duration(rapid.Int64Range(int64(-3*time.Hour), int64(3*time.Hour)).Draw(t, "off")))
		}
		p := ledger.PeriodOf(at, loc)
		if parsed, err := ledger.ParsePeriod(string(p)); err != nil || parsed != p {
			t.Fatalf("%s in %s lies in %q: %v", at, loc, p, err)
		}
		if !cameTwice(loc, p) && !cameTwice(loc, p.Next()) && (at.Before(p.Start(loc)) || !at.Before(p.End(loc))) {
			t.Errorf("%s lies in %s, which is from %s to %s", at.In(loc), p, p.Start(loc), p.End(loc))
		}
		if p.Next().Previous() != p || p.Previous().Next() != p || p.Previous() >= p || p.Next() <= p {
			t.Errorf("%s: between %s and %s", p, p.Previous(), p.Next())
		}
	})
}

// FuzzParsePeriod looks for a text that is taken for a month and is none, and for a
// month that is not kept as it was typed.
func FuzzParsePeriod(f *testing.F) {
	for _, text := range []string{"2026-10", "2000-01", "2099-12", "2026-13", "2026-1", "2026-10\n", " 2026-10", "２０２６-10", "2026-10-01", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ledger.ParsePeriod(text)
		month, mistake := time.Parse("2006-01", text)
		ours := mistake == nil && len(text) == len("2006-01") && month.Year() >= 2000 && month.Year() < 2100
		if (err == nil) != ours || err == nil && (string(p) != text || !p.Start(time.UTC).Equal(month)) {
			t.Errorf("%q: %q, %v; by the calendar %s, %v", text, p, err, month, mistake)
		}
	})
}
