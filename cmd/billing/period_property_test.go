package main

import (
	"testing"
	"time"

	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// A derived period is the month before the scheduled moment, in every zone, and ended
// at most 27 days before it; for a later moment a person must say which is meant.
func TestADerivedPeriodEndedAtMost27DaysBefore(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var zones []*time.Location
	for _, name := range []string{"UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Kiritimati", "Pacific/Honolulu", "America/Asuncion"} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, loc)
	}
	first, last := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2098, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
	rapid.Check(t, func(r *rapid.T) {
		loc := zones[rapid.IntRange(0, len(zones)-1).Draw(r, "zone")]
		at := time.Unix(rapid.Int64Range(first, last).Draw(r, "second"), 0)
		if rapid.Bool().Draw(r, "near the bound") {
			at = ledger.PeriodOf(at, loc).Start(loc).Add(27*24*time.Hour + time.Duration(rapid.IntRange(-2, 2).Draw(r, "seconds off"))*time.Second)
		}
		c, err := given(t, []cli.Flag{&cli.StringFlag{Name: "scheduled-at"}}, map[string]string{"scheduled-at": at.UTC().Format(time.RFC3339)})
		if err != nil {
			r.Fatal(err)
		}
		period, err := derivePeriod(t.Context(), c, db.Pool, loc)
		began := ledger.PeriodOf(at, loc).Start(loc)
		if late := at.Sub(began) > 27*24*time.Hour; late != (err != nil) || late && classify(err).code != exitUsage {
			r.Errorf("%s, %s after the month began: %q, %v", at.In(loc), at.Sub(began), period, err)
		}
		if err == nil && (period != ledger.PeriodOf(at, loc).Previous() || !period.End(loc).Equal(began)) {
			r.Errorf("%s derives %s, which ended at %s", at.In(loc), period, period.End(loc))
		}
	})
}
