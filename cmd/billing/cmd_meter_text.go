package main

import (
	"fmt"
	"strings"

	"github.com/chargeonce/billing/billing/metering"
)

// meterJSON is what a meter did; the names are a public interface.
type meterJSON struct {
	Rows     int64         `json:"rows"`    // events that arrived
	Repeats  int64         `json:"repeats"` // copies of others
	SetAside []reasonJSON  `json:"set_aside"`
	Carried  []carriedJSON `json:"carried"`
	Days     int64         `json:"days"`   // counted anew
	Events   int64         `json:"events"` // of the range, in these days
	Finished bool          `json:"finished_another"`
	Waiting  bool          `json:"waiting"`
	Moved    int64         `json:"moved"`
	Through  string        `json:"through"` // everything received before is counted; empty if that can't be said yet
	Settle   string        `json:"settle"`
	TimeZone string        `json:"time_zone"`
	DryRun   bool          `json:"dry_run"`
}

type reasonJSON struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

type carriedJSON struct {
	FromPeriod string `json:"from_period"`
	ToPeriod   string `json:"to_period"`
	Count      int64  `json:"count"`
}

func (m *meterJSON) fill(done metering.Result) {
	m.Rows, m.Repeats, m.Days, m.Events = done.Rows, done.Repeats, done.CountedDays, done.CountedEvents
	if m.DryRun {
		m.Days, m.Events = done.Days, done.Events
	}
	for _, r := range done.Reasons() {
		m.SetAside = append(m.SetAside, reasonJSON{r.Reason, r.Count})
	}
	for _, c := range done.Carried {
		m.Carried = append(m.Carried, carriedJSON{string(c.FromPeriod), string(c.ToPeriod), c.Count})
	}
	m.Finished, m.Waiting = done.Finished, done.Waiting
	m.Through, m.Settle, m.TimeZone = rfc3339(done.Watermark.Through), done.Watermark.Settle.String(), done.Watermark.TimeZone
}

// text is the result for people.
func (m *meterJSON) text() string {
	b := strings.Builder{}
	if m.Finished {
		b.WriteString("a meter that was broken off, or another one, had left days to count\n")
	}
	fmt.Fprintf(&b, "%s arrived\n", plural(m.Rows, "event", "events"))
	if m.Repeats > 0 {
		fmt.Fprintf(&b, "left out: %s\n", plural(m.Repeats, "copy of another event", "copies of other events"))
	}
	for _, r := range m.SetAside {
		fmt.Fprintf(&b, "set aside: %d %s\n", r.Count, r.Reason)
	}
	for _, c := range m.Carried {
		fmt.Fprintf(&b, "late: %d of %s, carried to %s\n", c.Count, c.FromPeriod, c.ToPeriod)
	}
	if m.DryRun {
		fmt.Fprintf(&b, "%s would be counted\nnothing was changed (dry run)\n", plural(m.Days, "day", "days"))
		return b.String()
	}
	fmt.Fprintf(&b, "%s of %s counted\n", plural(m.Days, "day", "days"), m.TimeZone)
	if m.Through != "" {
		fmt.Fprintf(&b, "everything received before %s is counted; a month is complete %s after its end\n", m.Through, m.Settle)
	}
	return b.String()
}
