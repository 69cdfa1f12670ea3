package ledger_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger"
)

// debt is what a key stands for.
type debt struct {
	job     ledger.Job
	period  ledger.Period
	account string
}

// pieces are what ids are made of that could be mistaken for one another, or for
// what a key adds to an id.
var pieces = []string{
	"a", "A", "%", "%41", "%2F", "%2f", "%25", "%7E", "/", "/r2", "/r12", "r2", "~", "2026-10", "monthly-billing", "é", "e\u0301", "日", "月", "ß", "ss", "İ", "K", "\u212a", "\u200b",
	" ", "+", ".", "-", "_", "00", "0", strings.Repeat("a", 60), strings.Repeat("日", 30),
}

func anyDebt(t *rapid.T, name string) debt {
	account := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(t, name+": pieces"), "")
	if rapid.IntRange(0, 3).Draw(t, name+": any text") == 0 {
		account = rapid.String().Draw(t, name+": account")
	}
	return debt{
		ledger.Job(rapid.SampledFrom([]string{"a", "a-1", "monthly-billing", strings.Repeat("j", 40)}).Draw(t, name+": job")),
		ledger.Period(rapid.SampledFrom([]string{"2026-09", "2026-10", "2062-01"}).Draw(t, name+": period")), account,
	}
}

// neighbour is another debt that differs as little as can be.
func neighbour(t *rapid.T, d debt) debt {
	end := len(d.account)
	at := rapid.IntRange(0, end).Draw(t, "at")
	switch rapid.IntRange(0, 4).Draw(t, "neighbour") {
	case 0:
		d.account = d.account[:at] + rapid.SampledFrom(pieces).Draw(t, "put in") + d.account[at:]
	case 1:
		d.account = d.account[:at] + d.account[min(at+1, end):]
	case 2:
		d.account = strings.ToUpper(d.account)
	case 3: // the id that a key's spelling of this one is
		_, escaped, _ := strings.Cut(ledger.BillingKey(d.job, d.period, d.account), string(d.period)+"/")
		d.account = escaped
	case 4:
		d = anyDebt(t, "other")
	}
	return d
}

// stripeTakes is what every key is made of: no blank to be trimmed, nothing that a
// header refuses, at most 200 bytes.
var stripeTakes = regexp.MustCompile(`^[A-Za-z0-9._%/~-]{1,200}$`)

// No two debts share a key of any try, however alike their accounts are spelled, and
// a later try's key is nobody's billing key.
func TestNoTwoDebtsShareAKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := anyDebt(t, "a")
		b := neighbour(t, a)
		owners := map[string]debt{}
		for _, d := range []debt{a, b} {
			key := ledger.BillingKey(d.job, d.period, d.account)
			for _, try := range []int{1, 2, 3, 12, rapid.IntRange(4, 1_000_000).Draw(t, "try")} {
				k := ledger.TryKey(key, try)
				if !stripeTakes.MatchString(k) {
					t.Errorf("try %d of %+v has the key %q of %d bytes", try, d, k, len(k))
				}
				if owner, taken := owners[k]; taken && owner != d {
					t.Errorf("%+v and %+v share the key %s", owner, d, k)
				}
				owners[k] = d
				if try > 1 && k == key {
					t.Errorf("try %d of %+v has its billing key", try, d)
				}
			}
		}
		if a != b && ledger.BillingKey(a.job, a.period, a.account) == ledger.BillingKey(b.job, b.period, b.account) {
			t.Errorf("%+v and %+v have one billing key", a, b)
		}
	})
}

// A debt's tries have keys of their own.
func TestNoTwoTriesShareAKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := anyDebt(t, "a")
		key := ledger.BillingKey(d.job, d.period, d.account)
		m, n := rapid.IntRange(1, 1_000_000).Draw(t, "m"), rapid.IntRange(1, 1_000_000).Draw(t, "n")
		if (ledger.TryKey(key, m) == ledger.TryKey(key, n)) != (m == n) {
			t.Errorf("tries %d and %d of %s: %s and %s", m, n, key, ledger.TryKey(key, m), ledger.TryKey(key, n))
		}
	})
}
