package main

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/sheet"
)

func parseUsage(f *csvFile, zone *time.Location) ledger.UsageEvent {
	e := ledger.UsageEvent{Line: f.Line(), EventID: usageID(f, "id"), AccountID: parseAccountID(f), Metric: usageID(f, "metric")}
	var plain string
	e.Quantity, plain = parseQuantity(f)
	e.OccurredAt = parseOccurred(f, zone)
	if f.Mistakes.Total == 0 && len(f.first) < maxFirst {
		at := "its arrival"
		if e.OccurredAt != nil {
			at = e.OccurredAt.UTC().Format(time.RFC3339Nano)
		}
		f.understood(strconv.Itoa(e.Line), show(e.EventID), plain, show(e.Metric), show(e.AccountID), at)
	}
	return e
}

// usageID reads an id or a code that must be there.
func usageID(f *csvFile, column string) string {
	id, ok := f.Word(column)
	if !ok {
		return ""
	}
	if id == "" {
		f.Refuse(column, "is missing")
	} else if why := sheet.ID(id); why != "" {
		f.Refuse(column, "%s", why)
	}
	return id
}

// A quantity is written for machines: digits and a point, as a rule. One with a comma may be
// a thousand times as much.
var quantityText = regexp.MustCompile(`^[+-]?[0-9]{1,100}(\.[0-9]{1,100})?([eE][+-]?[0-9]{1,3})?$`)

func parseQuantity(f *csvFile) (n pgtype.Numeric, plain string) {
	text := strings.TrimSpace(f.Raw("quantity"))
	switch {
	case text == "":
		f.Refuse("quantity", "is missing")
		return n, ""
	case !quantityText.MatchString(text):
		f.Refuse("quantity", "want a number of digits and a point, such as 12.5, without thousands separators")
		return n, ""
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		f.Refuse("quantity", "%v", err)
		return n, ""
	}
	return pgtype.Numeric{Int: new(big.Int).Set(d.Coefficient()), Exp: d.Exponent(), Valid: true}, text
}

var (
	unixSeconds = regexp.MustCompile(`^[0-9]{9,11}(\.[0-9]{1,9})?$`)
	unixMillis  = regexp.MustCompile(`^[0-9]{12,19}$`)
)

// parseOccurred reads when an event occurred, nil if it has no time of its own.
func parseOccurred(f *csvFile, zone *time.Location) *time.Time {
	text := strings.TrimSpace(f.Raw("occurred_at"))
	if text == "" {
		return nil
	}
	at, why := occurredAt(text, zone)
	if why != "" {
		f.Refuse("occurred_at", "%s", why)
		return nil
	}
	// Postgres keeps microseconds.
	at = at.UTC().Truncate(time.Microsecond)
	return &at
}

const localLayout = "2006-01-02T15:04:05"

// occurredAt reads a moment. why says what is wrong with it.
func occurredAt(text string, zone *time.Location) (at time.Time, why string) {
	switch {
	case unixSeconds.MatchString(text):
		return fromUnix(text), ""
	case unixMillis.MatchString(text):
		return at, "looks like milliseconds: want seconds since 1970, such as 1791000000.5"
	}
	if len(text) > 10 && text[10] == ' ' {
		text = text[:10] + "T" + text[11:]
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, ""
	}
	local, err := time.Parse(localLayout, text)
	switch {
	case err != nil:
		return at, "want a moment such as 2026-10-01T06:00:00Z, or seconds since 1970"
	case zone == nil:
		return at, "has no offset, so it may be of any zone: write 2026-10-01T06:00:00Z, or add --timezone, such as --timezone Europe/Berlin"
	}
	return inZone(local, zone)
}

// inZone finds the moment of a local time. In the night in which clocks are changed there may be
// two, or none.
func inZone(local time.Time, zone *time.Location) (at time.Time, why string) {
	found := []time.Time{}
	for _, probe := range []time.Duration{-26 * time.Hour, 26 * time.Hour} {
		_, offset := local.Add(probe).In(zone).Zone()
		at := local.Add(-time.Duration(offset) * time.Second)
		if at.In(zone).Format(localLayout) == local.Format(localLayout) && (len(found) == 0 || !found[0].Equal(at)) {
			found = append(found, at)
		}
	}
	switch len(found) {
	case 0:
		return at, "does not exist in " + zone.String() + ", where clocks were put forward: write it with its offset, such as +02:00"
	case 2:
		return at, "came twice in " + zone.String() + ", where clocks were put back: write it with its offset, such as +02:00"
	}
	return found[0], ""
}

// fromUnix reads seconds and their fraction, digit by digit.
func fromUnix(text string) time.Time {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, _ := strconv.ParseInt(whole, 10, 64)
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	return time.Unix(seconds, nanos)
}
