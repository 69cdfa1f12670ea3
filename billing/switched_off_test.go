package billing

import "testing"

// 0 switches a share or factor off, whatever the last period was like: a month that is
// wrong in every way passes when all of them are 0.
func TestGatesThatAreSwitchedOffStopNothing(t *testing.T) {
	t.Parallel()
	c := Comparison{
		Last: "2026-09", Currencies: []CurrencyChange{{Currency: "usd", Count: 100, Minor: 9_000_000, Max: 5_000_000, LastCount: 400, LastMinor: 400_000, LastMax: 2_000}},
		Up: 60, Down: 10, Same: 10, Jumped: 60, Rose: 60, Fell: 5, New: 40, Gone: 300, Rows: 150, Skipped: 50, LastRows: 440, LastSkipped: 40,
	}
	on := DefaultLimits.Check(c)
	if len(on) < 6 {
		t.Errorf("with the gates on: %v", on)
	}
	if off := (Limits{AllowSame: true}).Check(c); len(off) > 0 {
		t.Errorf("with the gates off: %v", off)
	}
}
