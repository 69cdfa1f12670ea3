package sheet

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Orders of day and month in dates with slashes, as a person types them.
const (
	DatesDayFirst   = "dmy"
	DatesMonthFirst = "mdy"
)

var (
	// A date may have a time behind it. What the day is then is what is written: a
	// zone moves nothing, or the first of a month would become the last of another.
	isoDate    = regexp.MustCompile(`^([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})([T ][0-9:.]+ ?(Z|UTC|[+-][0-9:]{2,6})?)?$`)
	otherDate  = regexp.MustCompile(`^([0-9]{1,2})([-/.])([0-9]{1,2})[-/.]([0-9]{4})( [0-9:]+( ?[APap][Mm])?)?$`)
	namedDates = []string{"2 Jan 2006", "02-Jan-2006", "2 January 2006", "Jan 2, 2006", "January 2, 2006"}
)

var errNoDate = errors.New("want a date such as 2026-11-01")

// ParseDate reads a day as it is written and returns it as 2026-11-01. Where day and
// month can't be told apart, order says which comes first, "" for neither.
func ParseDate(text, order string) (string, error) {
	text = strings.TrimSpace(text)
	if len(text) > 40 {
		return "", errNoDate
	}
	if m := isoDate.FindStringSubmatch(text); m != nil {
		return day(m[1], m[2], m[3])
	}
	if m := otherDate.FindStringSubmatch(text); m != nil {
		dayFirst, dayErr := day(m[4], m[3], m[1])
		monthFirst, monthErr := day(m[4], m[1], m[3])
		switch {
		case m[2] == ".", order == DatesDayFirst: // no country writes dots behind a month
			return dayFirst, dayErr
		case order == DatesMonthFirst:
			return monthFirst, monthErr
		case dayErr == nil && monthErr == nil && dayFirst != monthFirst:
			return "", fmt.Errorf("may be %s or %s: write it so, or add --dates dmy or --dates mdy", dayFirst, monthFirst)
		case dayErr == nil:
			return dayFirst, nil
		}
		return monthFirst, monthErr
	}
	for _, layout := range namedDates {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format(time.DateOnly), nil
		}
	}
	if allDigits(text) && len(text) == 5 {
		return "", errors.New("is a spreadsheet's number for a day: format the column as a date, yyyy-mm-dd, and export again")
	}
	return "", errNoDate
}

func day(year, month, date string) (string, error) {
	t, err := time.Parse("2006-1-2", year+"-"+month+"-"+date)
	if err != nil {
		return "", errors.New("is no day of the calendar: want a date such as 2026-11-01")
	}
	return t.Format(time.DateOnly), nil
}
