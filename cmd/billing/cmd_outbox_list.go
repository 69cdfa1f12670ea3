package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

const outboxListHelp = `Lists messages, the oldest first: without --state those that are queued, dead or
undeliverable. States: queued, sent, dead (the reason says why; a person releases or
drops it), undeliverable (the account had no address), dropped. What a receiver said
to what it did not take stands beside the reason. Without --job it has those of all
jobs. Under idempotency_key Resend knows a mail, under message_id a mail server, and
under webhook_id an endpoint; csv and --json have them, and the text of a single one.

Example:
   billing outbox list
   billing outbox list --state sent --account 4182
   billing outbox list --state dead --format csv > dead.csv

Formats: text (the first 100) and csv (all). --json has the first thousand.
It is a report: it exits 0 if it could read, whatever it shows.

Exit codes: 0 shown   64 usage   69 Postgres unreachable
   74 the output can't be written   78 configuration`

func (a *app) outboxListCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "list", Usage: "list messages", Description: outboxListHelp,
		Flags: append(messageFlags(), reasonFlag(), stateFlag("queued, dead and undeliverable"),
			&cli.StringFlag{Name: "format", Usage: "text or csv", Value: "text", EnvVars: []string{"BILLING_FORMAT"}}),
	}, outboxList)
}

// messageJSON is one message in every format; the names are a public interface.
type messageJSON struct {
	ID          int64  `json:"id"`
	DedupeKey   string `json:"dedupe_key"`
	Kind        string `json:"kind"`
	Lane        string `json:"lane"`
	Job         string `json:"job"`
	Period      string `json:"period"`
	AccountID   string `json:"account_id"`
	State       string `json:"state"`
	Reason      string `json:"reason"`
	Answer      string `json:"answer"` // the beginning of what the receiver said
	Tries       int    `json:"tries"`
	OpenTries   int    `json:"open_tries"`
	CreatedAt   string `json:"created_at"`
	FirstTryAt  string `json:"first_try_at"`
	NextAt      string `json:"next_at"`
	SettledAt   string `json:"settled_at"`
	ProviderID  string `json:"provider_id"`
	Destination string `json:"destination"`
	// What receivers know it by.
	IdempotencyKey string `json:"idempotency_key"` // Resend
	MessageID      string `json:"message_id"`      // a mail server
	WebhookID      string `json:"webhook_id"`
}

var messageColumns = []string{
	"id", "dedupe_key", "kind", "lane", "job", "period", "account_id", "state", "reason", "tries", "open_tries", "created_at",
	"first_try_at", "next_at", "settled_at", "provider_id", "destination", "answer",
	"idempotency_key", "message_id", "webhook_id",
}

func messageLine(m *ledger.MessageLine) messageJSON {
	l := messageJSON{
		ID: m.ID, DedupeKey: m.DedupeKey, Kind: m.Kind, Lane: m.Lane, Job: string(m.Job), Period: string(m.Period), AccountID: m.AccountID,
		State: string(m.State), Reason: m.Reason, Tries: m.Tries, OpenTries: m.OpenTries, CreatedAt: rfc3339(&m.CreatedAt),
		FirstTryAt: rfc3339(m.FirstTryAt), SettledAt: rfc3339(m.SettledAt), ProviderID: m.ProviderID, Destination: m.Destination, Answer: m.Answer,
	}
	names := outbox.NamesOf(m.Channel, m.SentAs, m.FromDomain)
	l.IdempotencyKey, l.MessageID, l.WebhookID = names.IdempotencyKey, names.MessageID, names.WebhookID
	if m.State == ledger.MessageQueued {
		l.NextAt = rfc3339(&m.NextAt)
	}
	return l
}

// why is the reason with what the receiver said, as far as a table has room.
func (l messageJSON) why() string {
	const room = 40
	said := []rune(clean(l.Answer))
	switch {
	case len(said) == 0 || l.State == string(ledger.MessageSent):
		return clean(l.Reason)
	case len(said) > room:
		said = append(said[:room], '…')
	}
	return clean(l.Reason) + ": " + string(said)
}

// messagesJSON is what the list adds to --json.
type messagesJSON struct {
	Total    int64         `json:"total"`
	Messages []messageJSON `json:"messages"` // at most a thousand
}

func outboxList(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	query, err := a.messagesAsked(c, ledger.MessageQueued, ledger.MessageDead, ledger.MessageUndeliverable)
	if err != nil {
		return nil, err
	}
	format := c.String("format")
	switch {
	case format != "text" && format != "table" && format != "csv":
		return nil, usagef("--format %q: want text or csv", format)
	case a.json && format == "csv":
		return nil, usagef("--format csv and --json are both about stdout: take one")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(query.Job), Period: string(query.Period)}
	if format == "csv" {
		return out, a.writeMessages(ctx, pool, query)
	}
	details := messagesJSON{Messages: []messageJSON{}}
	var jobs bool
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) (err error) {
		if details.Total, jobs, err = ledger.CountMessages(ctx, tx, query); err != nil {
			return err
		}
		most := listedFindings
		if a.json {
			most = keptFindings
		}
		return ledger.EachMessage(ctx, tx, query, most, func(m ledger.MessageLine) error {
			details.Messages = append(details.Messages, messageLine(&m))
			return nil
		})
	})
	out.Details = details
	if err != nil {
		return out, err
	}
	return out, a.emit(a.messagesText(details, jobs))
}

// messagesText is the list for people. jobs says that it is of more than one.
func (a *app) messagesText(list messagesJSON, jobs bool) string {
	if list.Total == 0 {
		return "no messages\n"
	}
	header := table.Row{"message", "state", "reason", "tries", "kind", "period", "account", "lane", "due"}
	if jobs {
		header = append(header, "job")
	}
	t := a.newTable(header, 1, 4)
	for _, l := range list.Messages[:min(len(list.Messages), listedFindings)] {
		row := table.Row{l.ID, l.State, l.why(), l.Tries, l.Kind, l.Period, clean(l.AccountID), clean(l.Lane), l.NextAt}
		if jobs {
			row = append(row, clean(l.Job))
		}
		t.AppendRow(row)
	}
	text := t.Render() + "\n"
	if more := list.Total - listedFindings; more > 0 {
		text += fmt.Sprintf("and %d more; --format csv has them all\n", more)
	}
	if len(list.Messages) == 1 {
		text += list.Messages[0].names()
	}
	return text
}

// names are what a person searches for at the receiver.
func (l messageJSON) names() (text string) {
	for _, n := range [][2]string{{"Resend's idempotency key", l.IdempotencyKey}, {"Message-ID", l.MessageID}, {"webhook-id", l.WebhookID}} {
		if n[1] != "" {
			text += n[0] + ": " + clean(n[1]) + "\n"
		}
	}
	return text
}

func (a *app) writeMessages(ctx context.Context, q ledger.Querier, query ledger.MessageQuery) error {
	w := csv.NewWriter(a.out)
	if err := w.Write(messageColumns); err != nil {
		return asOutput(err)
	}
	err := ledger.EachMessage(ctx, q, query, 0, func(m ledger.MessageLine) error {
		l := messageLine(&m)
		return asOutput(w.Write([]string{
			strconv.FormatInt(l.ID, 10), l.DedupeKey, l.Kind, l.Lane, l.Job, l.Period, l.AccountID, l.State, l.Reason, strconv.Itoa(l.Tries),
			strconv.Itoa(l.OpenTries), l.CreatedAt, l.FirstTryAt, l.NextAt, l.SettledAt, export.Disarm(l.ProviderID), export.Disarm(l.Destination), export.Disarm(l.Answer),
			export.Disarm(l.IdempotencyKey), export.Disarm(l.MessageID), l.WebhookID,
		}))
	})
	if err != nil {
		return err
	}
	w.Flush()
	return asOutput(w.Error())
}
