package billing

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
)

// A first period has nothing to compare with: with a live key each currency needs a
// cap (or the plan an approval, which is asked for before), with a test key it is only
// warned of.
func TestAFirstPeriodNeedsCapsWithALiveKey(t *testing.T) {
	t.Parallel()
	c := Comparison{Currencies: []CurrencyChange{{Currency: "eur", Count: 2, Minor: 500}, {Currency: "jpy"}, {Currency: "usd", Count: 1, Minor: 100}}}
	usd, both := map[money.Currency]int64{"usd": 100}, map[money.Currency]int64{"usd": 100, "eur": 500}
	for name, test := range map[string]struct {
		live     bool
		caps     map[money.Currency]int64
		stops    string // what the hint says to type
		warnings int
	}{
		"live, no caps":          {true, nil, "--max-total eur=N --max-total usd=N", 0},
		"live, one cap":          {true, usd, "--max-total eur=N", 0},
		"live, all capped":       {true, both, "", 0},
		"test key, no caps":      {false, nil, "", 1},
		"test key, all capped":   {false, both, "", 0},
		"test key, one currency": {false, usd, "", 1},
	} {
		r := &Runner{log: slog.New(slog.DiscardHandler), opts: Options{Livemode: test.live, Limits: Limits{MaxTotal: test.caps}}, run: ledger.Run{Period: "2026-10"}}
		err := r.firstPeriod(c)
		var stopped *StoppedError
		switch {
		case test.stops == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.stops != "" && (!errors.As(err, &stopped) || stopped.Gate != "first_period" ||
			!strings.Contains(stopped.Hint, "billing run --period 2026-10 "+test.stops+",") || !strings.Contains(stopped.Hint, "billing approve")):
			t.Errorf("%s: %+v", name, err)
		}
		if len(r.warnings) != test.warnings {
			t.Errorf("%s: warnings %v", name, r.warnings)
		}
	}
}
