package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

const usageListHelp = `Lists events of usage that are set aside and not counted, in the order of their arrival.
Reasons, of which the first that holds is kept: conflict (the id of another event and
other content), nan, huge (1e18 and more, or more than 12 decimals), negative, future,
ancient, unknown_account, unknown_metric. Copies of events are no trouble: --reason
repeat lists them. --decided lists what people released or dropped.

Example:
   billing usage list
   billing usage list --reason conflict --format csv > conflicts.csv

Formats: text (the first 100) and csv (all). --json has the first thousand.
It is a report: it exits 0 if it could read, whatever it shows.

Exit codes: 0 shown   64 usage   69 Postgres unreachable
   74 the output can't be written   78 configuration`

func (a *app) usageListCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "list", Usage: "list events that were set aside", Description: usageListHelp,
		Flags: append(setAsideFlags(),
			&cli.BoolFlag{Name: "decided", Usage: "what was released or dropped instead"},
			&cli.StringFlag{Name: "format", Usage: "text or csv", Value: "text", EnvVars: []string{"BILLING_FORMAT"}}),
	}, usageList)
}

// setAsideJSON is one event in every format; the names are a public interface.
type setAsideJSON struct {
	Arrival    int64  `json:"arrival"`
	EventID    string `json:"event_id"`
	Reason     string `json:"reason"`
	AccountID  string `json:"account_id"`
	Metric     string `json:"metric"`
	Quantity   string `json:"quantity"`
	OccurredAt string `json:"occurred_at"` // in UTC; empty if the event has no time of its own
	ReceivedAt string `json:"received_at"`
	Detail     string `json:"detail"`
	Since      string `json:"since"`
	Decided    string `json:"decided"`
	Person     string `json:"person"`
	Why        string `json:"why"`
	At         string `json:"at"`
}

var setAsideColumns = []string{
	"arrival", "event_id", "reason", "account_id", "metric", "quantity", "occurred_at", "received_at", "detail", "since",
	"decided", "person", "why", "at",
}

func (s setAsideJSON) cells() []string {
	return []string{
		strconv.FormatInt(s.Arrival, 10), export.Disarm(s.EventID), s.Reason, export.Disarm(s.AccountID), export.Disarm(s.Metric), s.Quantity, s.OccurredAt,
		s.ReceivedAt, export.Disarm(s.Detail), s.Since, s.Decided, export.Disarm(s.Person), export.Disarm(s.Why), s.At,
	}
}

func setAsideLine(l ledger.SetAsideLine) setAsideJSON {
	return setAsideJSON{
		Arrival: l.Arrival, EventID: l.EventID, Reason: l.Reason, AccountID: l.AccountID, Metric: l.Metric, Quantity: l.Quantity,
		OccurredAt: l.OccurredAt, ReceivedAt: l.ReceivedAt.UTC().Format(time.RFC3339Nano), Detail: l.Detail, Since: rfc3339(&l.Since),
		Decided: l.Decided, Person: l.Person, Why: l.Why, At: rfc3339(l.At),
	}
}

// setAsideListJSON is what the list adds to --json.
type setAsideListJSON struct {
	Total  int64          `json:"total"`
	Counts []reasonJSON   `json:"counts"`
	Events []setAsideJSON `json:"events"` // at most a thousand
}

func usageList(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	query, err := setAsideAsked(c, ledger.ReasonRepeat)
	if err != nil {
		return nil, err
	}
	query.Decided = c.Bool("decided")
	format, err := a.formatOf(c, "text", "csv")
	if err != nil {
		return nil, err
	}
	if a.json && format == "csv" {
		return nil, usagef("--format csv and --json are both about stdout: take one")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(query.Job)}
	if format == "csv" {
		return out, a.writeSetAside(ctx, pool, query)
	}
	details := setAsideListJSON{Counts: []reasonJSON{}, Events: []setAsideJSON{}}
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		counts, err := ledger.CountSetAside(ctx, tx, query)
		if err != nil {
			return err
		}
		for _, r := range counts {
			details.Total += r.Count
			details.Counts = append(details.Counts, reasonJSON{r.Reason, r.Count})
		}
		most := listedFindings
		if a.json {
			most = keptFindings
		}
		return ledger.EachSetAside(ctx, tx, query, most, func(l ledger.SetAsideLine) error {
			details.Events = append(details.Events, setAsideLine(l))
			return nil
		})
	})
	out.Details = details
	if err != nil {
		return out, err
	}
	return out, a.emit(a.setAsideText(details))
}

// setAsideText is the list for people.
func (a *app) setAsideText(list setAsideListJSON) string {
	if list.Total == 0 {
		return "no event is set aside\n"
	}
	t := a.newTable(table.Row{"arrival", "event", "reason", "account", "metric", "quantity", "occurred", "detail", "decided"}, 1, 6)
	for _, e := range list.Events {
		decided := e.Decided
		if decided != "" {
			decided += " by " + e.Person + ": " + e.Why
		}
		t.AppendRow(table.Row{
			e.Arrival, clean(shortText(e.EventID)), e.Reason, clean(shortText(e.AccountID)), clean(shortText(e.Metric)), shortText(e.Quantity), e.OccurredAt,
			clean(shortText(e.Detail)), clean(decided),
		})
	}
	text := t.Render() + "\n"
	for _, r := range list.Counts {
		text += fmt.Sprintf("%d %s\n", r.Count, r.Reason)
	}
	if int64(len(list.Events)) < list.Total {
		text += fmt.Sprintf("the first %d of %d; --format csv has all\n", len(list.Events), list.Total)
	}
	return text
}

// shortText is a value as far as a table has room: an event may hold anything.
func shortText(text string) string {
	const room = 60
	if runes := []rune(text); len(runes) > room {
		return string(runes[:room]) + "…"
	}
	return text
}

func (a *app) writeSetAside(ctx context.Context, pool *pgxpool.Pool, query ledger.SetAsideQuery) error {
	w := csv.NewWriter(a.out)
	if err := w.Write(setAsideColumns); err != nil {
		return asOutput(err)
	}
	const all = 1 << 62
	err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		return ledger.EachSetAside(ctx, tx, query, all, func(l ledger.SetAsideLine) error {
			return asOutput(w.Write(setAsideLine(l).cells()))
		})
	})
	if err != nil {
		return err
	}
	w.Flush()
	return asOutput(w.Error())
}
