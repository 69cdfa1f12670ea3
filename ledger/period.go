// Package ledger is the record of what was billed: periods, claims, charges,
// their states and their history, in Postgres. It knows nothing of Stripe: what
// Stripe said arrives here as evidence, in words of its own.
package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Job names what is being billed, such as monthly-billing: 1 to 40 characters
// of a-z, 0-9 and the hyphen.
type Job string

// DefaultJob is the job of a company that bills one thing.
const DefaultJob Job = "monthly-billing"

var jobPattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// ParseJob checks the name of a job.
func ParseJob(s string) (Job, error) {
	if !jobPattern.MatchString(s) {
		return "", fmt.Errorf("job %q: want 1 to 40 characters of a-z, 0-9 and -", s)
	}
	return Job(s), nil
}

// Period is the month that the money is for, written 2026-10. It is named by
// the work, not by the clock.
type Period string

var periodPattern = regexp.MustCompile(`^[0-9]{4}-(0[1-9]|1[0-2])$`)

// ParsePeriod checks a period as a person types it: exactly YYYY-MM, from 2000
// to 2099.
func ParsePeriod(s string) (Period, error) {
	if !periodPattern.MatchString(s) || s[:2] != "20" {
		return "", fmt.Errorf("period %q: want a month such as 2026-10", s)
	}
	return Period(s), nil
}

// PeriodOf is the month in which t lies, in loc.
func PeriodOf(t time.Time, loc *time.Location) Period {
	return Period(t.In(loc).Format("2006-01"))
}

// Start is the first moment of the period in loc.
func (p Period) Start(loc *time.Location) time.Time {
	year, month := p.yearMonth()
	return monthStart(year, month, loc)
}

// End is the first moment after the period in loc.
func (p Period) End(loc *time.Location) time.Time {
	year, month := p.yearMonth()
	return monthStart(year, month+1, loc)
}

func (p Period) yearMonth() (int, time.Month) {
	year, _ := strconv.Atoi(string(p[:4]))
	month, _ := strconv.Atoi(string(p[5:]))
	return year, time.Month(month)
}

// monthStart is the first moment of a month. Where the clock is put forward at that
// midnight there is none, and time.Date may give 23:00 of the day before; where it is
// put back to it there are two, and the month begins with the earlier one.
func monthStart(year int, month time.Month, loc *time.Location) time.Time {
	midnight := time.Date(year, month, 1, 0, 0, 0, 0, loc)
	before, after := midnight.ZoneBounds()
	switch {
	case midnight.Day() != 1:
		return after
	case before.Equal(midnight) && before.Add(-time.Nanosecond).Day() == 1:
		_, was := before.Add(-time.Nanosecond).Zone()
		_, is := midnight.Zone()
		return midnight.Add(-time.Duration(was-is) * time.Second)
	default:
		return midnight
	}
}

// Previous is the month before.
func (p Period) Previous() Period {
	s := p.Start(time.UTC)
	return PeriodOf(time.Date(s.Year(), s.Month()-1, 1, 0, 0, 0, 0, time.UTC), time.UTC)
}

// Next is the month after.
func (p Period) Next() Period {
	return PeriodOf(p.End(time.UTC), time.UTC)
}

const (
	// maxKeyBytes bounds every idempotency key. Stripe takes 255; the rest is
	// room for whatever stands in front of a key in a log or a header.
	maxKeyBytes = 200
	// trySuffixBytes is the room that /rN of a later try takes.
	trySuffixBytes = 12
	// MaxAccountIDBytes bounds an account id: it goes into metadata, where
	// Stripe takes 500 characters, and into every row.
	MaxAccountIDBytes = 255
)

// BillingKey is the identity of a debt, job/period/account, and the idempotency
// key of its first try. Every byte of the account outside A-Za-z0-9._- is
// written %XX, so that no two accounts share a key; a key that would be too
// long ends in ~ and the SHA-256 of the whole, and ~ stands in no other key.
func BillingKey(job Job, period Period, accountID string) string {
	const limit = maxKeyBytes - trySuffixBytes
	key := string(job) + "/" + string(period) + "/" + escapeKey(accountID)
	if len(key) <= limit {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:limit-1-2*sha256.Size] + "~" + hex.EncodeToString(sum[:])
}

// TryKey is the idempotency key of try n of a debt; the first try's key is the
// billing key itself.
func TryKey(billingKey string, try int) string {
	if try == 1 {
		return billingKey
	}
	return billingKey + "/r" + strconv.Itoa(try)
}

func escapeKey(id string) string {
	plain := true
	for i := 0; i < len(id) && plain; i++ {
		plain = isKeyByte(id[i])
	}
	if plain {
		return id
	}
	var b strings.Builder
	for i := range len(id) {
		if isKeyByte(id[i]) {
			b.WriteByte(id[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", id[i])
		}
	}
	return b.String()
}

func isKeyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// CheckAccountID refuses ids that people and systems confuse: blank ones, ones
// with space around them, with control characters, with broken UTF-8, or of
// more than MaxAccountIDBytes.
func CheckAccountID(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return errors.New("account id is blank")
	case strings.TrimSpace(id) != id:
		return fmt.Errorf("account id %q has space around it", id)
	case len(id) > MaxAccountIDBytes:
		return fmt.Errorf("account id has %d bytes, %d are allowed", len(id), MaxAccountIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("account id %q is not valid UTF-8", id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("account id %q has a control character", id)
	}
	return nil
}
