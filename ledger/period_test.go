package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// A key is the debt in plain ASCII that Stripe takes, and no two debts share one.
func TestBillingKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 164) // the longest that is not hashed
	for account, want := range map[string]string{
		"4182":       "monthly-billing/2026-10/4182",
		"A.b_c-d":    "monthly-billing/2026-10/A.b_c-d",
		"a/r2":       "monthly-billing/2026-10/a%2Fr2",
		"a%2Fr2":     "monthly-billing/2026-10/a%252Fr2",
		"a b":        "monthly-billing/2026-10/a%20b",
		"a~b":        "monthly-billing/2026-10/a%7Eb",
		"caf\u00e9":  "monthly-billing/2026-10/caf%C3%A9",
		"cafe\u0301": "monthly-billing/2026-10/cafe%CC%81",
		"日本":         "monthly-billing/2026-10/%E6%97%A5%E6%9C%AC",
		long:         "monthly-billing/2026-10/" + long,
	} {
		got := ledger.BillingKey("monthly-billing", "2026-10", account)
		if got != want {
			t.Errorf("%q: %s, want %s", account, got, want)
		}
	}
	got := ledger.BillingKey("monthly-billing", "2026-10", long+"a")
	if head, sum, hashed := strings.Cut(got, "~"); !hashed || len(sum) != 64 || len(got) != 188 || !strings.HasPrefix("monthly-billing/2026-10/"+long, head) {
		t.Errorf("an id too long for a key: %s (%d bytes)", got, len(got))
	}
}

// FuzzBillingKey looks for a key that Stripe would refuse or change, and for two
// accounts with one key.
func FuzzBillingKey(f *testing.F) {
	for _, pair := range [][2]string{{"a", "A"}, {"a/r2", "a"}, {strings.Repeat("日", 85), strings.Repeat("日", 84) + "月"},
		{strings.Repeat("a", 165), strings.Repeat("a", 99) + "~"}, {" a", "a"}, {"a\x00", "a"}, {"%41", "A"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		const longestJob = "a123456789a123456789a123456789a123456789"
		for _, job := range []ledger.Job{"j", longestJob} {
			key, other := ledger.BillingKey(job, "2026-10", a), ledger.BillingKey(job, "2026-10", b)
			if (key == other) != (a == b) {
				t.Errorf("%q and %q: keys %s and %s", a, b, key, other)
			}
			last := ledger.TryKey(key, 1_000_000)
			if len(last) > 200 || strings.ContainsFunc(last, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q: the key of its millionth try has %d bytes: %q", a, len(last), last)
			}
		}
	})
}

// The first try's key is the debt's; each later one has its own, which no other
// debt's key can be.
func TestTryKey(t *testing.T) {
	t.Parallel()
	key := ledger.BillingKey("monthly-billing", "2026-10", "a")
	seen := map[string]bool{ledger.BillingKey("monthly-billing", "2026-10", "a/r2"): true}
	for try := 1; try <= 12; try++ {
		k := ledger.TryKey(key, try)
		if seen[k] || try == 1 && k != key {
			t.Errorf("try %d has the key %s", try, k)
		}
		seen[k] = true
	}
}

// Ids that people and systems confuse are refused, and nothing else is.
func TestCheckAccountID(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "00123", "-5", "=1+1", "o'neil", `x" OR 1=1`, "a b", "日本", "cafe\u0301", "a\u200bb", strings.Repeat("a", 255)} {
		if err := ledger.CheckAccountID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " ", "\u3000", " a", "a ", "a\u00a0", "a\n", "a\nb", "a\tb", "a\x00b", "a\x7fb", "a\u0085b", "a\xffb", strings.Repeat("a", 256)} {
		if ledger.CheckAccountID(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A month is typed exactly, and a job is a plain word.
func TestParsePeriodAndJob(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"2000-01", "2026-10", "2099-12"} {
		if p, err := ledger.ParsePeriod(good); err != nil || string(p) != good {
			t.Errorf("%q: %q, %v", good, p, err)
		}
	}
	for _, bad := range []string{"", "2026-1", "2026-13", "2026-00", "202610", "2026-10 ", "2026-10\n", " 2026-10", "1999-12", "2100-01", "２０２６-10", "2026-10-01"} {
		if _, err := ledger.ParsePeriod(bad); err == nil || !strings.Contains(err.Error(), "2026-10") {
			t.Errorf("%q: %v, want a refusal with an example", bad, err)
		}
	}
	for job, ok := range map[string]bool{"monthly-billing": true, "a": true, strings.Repeat("a", 40): true,
		"": false, strings.Repeat("a", 41): false, "Monthly": false, "a b": false, "a/b": false, "a\n": false} {
		if _, err := ledger.ParseJob(job); (err == nil) != ok {
			t.Errorf("job %q: %v", job, err)
		}
	}
}

// Periods follow each other without a gap or an overlap, in every zone, also
// where the clock is put forward or back or a day is missing.
func TestPeriodsFollowEachOther(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		period := ledger.Period("2010-01")
		for range 240 {
			next := ledger.PeriodOf(period.End(loc), loc)
			if !period.End(loc).Equal(next.Start(loc)) || next.Previous() != period || next <= period {
				t.Errorf("%s: %s ends at %s, %s starts at %s", zone, period, period.End(loc), next, next.Start(loc))
			}
			if last := ledger.PeriodOf(period.End(loc).Add(-time.Nanosecond), loc); last != period {
				t.Errorf("%s: the last moment of %s is in %s", zone, period, last)
			}
			period = next
		}
	}
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	march := ledger.Period("2026-03")
	if d := march.End(newYork).Sub(march.Start(newYork)); d != 31*24*time.Hour-time.Hour {
		t.Errorf("March 2026 in New York is %s long, want an hour less than 31 days", d)
	}
}

// The horizon lies a day before the first moment at which a payment can exist:
// the period may have been charged early.
func TestHorizon(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		run := ledger.Run{Early: early, StartsAt: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), EndsAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
		if got, want := run.Horizon(), time.Date(2026, 9, 30, 0, 0, 0, 0, time.UTC); !got.Equal(want) {
			t.Errorf("early %v: horizon %s, want %s", early, got, want)
		}
	}
}
