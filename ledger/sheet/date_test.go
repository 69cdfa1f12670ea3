package sheet

import (
	"testing"
	"time"
)

// A day is what is written: no zone of the file or of this machine moves it (T13).
func TestDatesAreWhatIsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-01": "2026-11-01", "2026-11-01T00:30:00+03:00": "2026-11-01", "2026-11-01T23:59:59Z": "2026-11-01", "2026/11/1": "2026-11-01",
		"2026-11-01 00:00:00": "2026-11-01", "31.10.2026": "2026-10-31", "1.11.2026": "2026-11-01", "31/10/2026": "2026-10-31", "10/31/2026": "2026-10-31",
		"10/10/2026": "2026-10-10", "1 Nov 2026": "2026-11-01", "Nov 1, 2026": "2026-11-01", " 2026-11-01 ": "2026-11-01", "31/10/2026 10:00": "2026-10-31",
	} {
		if got, err := ParseDate(text, ""); got != want || err != nil {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
	for order, want := range map[string]string{DatesDayFirst: "2026-11-01", DatesMonthFirst: "2026-01-11"} {
		if got, err := ParseDate("01/11/2026", order); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", order, got, err, want)
		}
	}
	for _, text := range []string{"", "01/11/2026", "2026-02-30", "2026-13-01", "46327", "soon", "1/11/26", "2026-11", "2026-11-01 AWST", "00.11.2026", "32/10/2026"} {
		if got, err := ParseDate(text, ""); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// Whatever is read as a date is one of the calendar, and reads back as itself.
func FuzzDate(f *testing.F) {
	for _, text := range []string{"2026-11-01", "31.10.2026", "01/11/2026", "1 Nov 2026", "2026-11-01T00:00:00+14:00", "46327"} {
		f.Add(text, "")
		f.Add(text, DatesMonthFirst)
	}
	f.Fuzz(func(t *testing.T, text, order string) {
		got, err := ParseDate(text, order)
		if err != nil {
			return
		}
		if _, err := time.Parse(time.DateOnly, got); err != nil {
			t.Fatalf("%q is %q", text, got)
		}
		if again, err := ParseDate(got, order); again != got || err != nil {
			t.Fatalf("%q is %q, which is %q, %v", text, got, again, err)
		}
	})
}
