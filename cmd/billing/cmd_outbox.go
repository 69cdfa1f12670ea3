package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
)

const outboxReleaseHelp = `Queues dead letters again, also those that may have arrived: who releases one
answers for its being sent twice. What was dropped by mistake is released by --id, or
with --state dropped. With --lane alone it lets an endpoint that was stopped (it
answered 410) have messages again. What it acts on is typed: BILLING_PERIOD and
BILLING_JOB choose nothing here, and without --job it is of all jobs.

Example:
   billing outbox release --id 4182 --why "mailbox is there again"
   billing outbox release --kind receipt --reason unknown --why "none had arrived"

Exit codes: 0 done   64 usage, or nothing was chosen   69 Postgres unreachable
   77 refused   78 configuration`

const outboxDropHelp = `Gives messages up: dead letters, those without an address, and what is still queued
and not under way. Nothing is deleted; they stay in the list as dropped, and release
--id queues one again. What it acts on is typed: BILLING_PERIOD and BILLING_JOB choose
nothing here, and without --job it is of all jobs.

Example:
   billing outbox drop --id 4182 --why "customer has left"
   billing outbox drop --lane hooks.example.com-1a2b3c4d --state queued --why "endpoint is gone"

Exit codes: 0 done   64 usage, or nothing was chosen   69 Postgres unreachable
   77 refused   78 configuration`

const outboxPreviewHelp = `Prints a mail as it would be sent, headers and texts, for a made-up charge. It reads
no ledger and sends nothing; a folder of templates is tried by it.

Example:
   billing outbox preview --kind receipt
   BILLING_TEMPLATES=./mails billing outbox preview --kind payment_failed --html > mail.html

Exit codes: 0 printed   64 usage   74 the output can't be written   78 a setting or a template
   that can't be used`

func (a *app) outboxCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "outbox", Usage: "send messages to customers and webhooks, and look after them",
		Subcommands: []*cli.Command{
			a.outboxSendCommand(code),
			a.outboxListCommand(code),
			a.command(code, &cli.Command{
				Name: "release", Usage: "queue dead letters again", Description: outboxReleaseHelp,
				Flags: append(messageFlags(), reasonFlag(), stateFlag("dead; with --id dropped too"), whyFlag(), byFlag()),
			}, outboxRelease),
			a.command(code, &cli.Command{
				Name: "drop", Usage: "give messages up", Description: outboxDropHelp,
				Flags: append(messageFlags(), reasonFlag(), stateFlag("dead and undeliverable"), whyFlag(), byFlag()),
			}, outboxDrop),
			a.command(code, &cli.Command{
				Name: "preview", Usage: "print a mail as it would be sent", Description: outboxPreviewHelp,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "kind", Usage: strings.Join(outbox.MailKinds, ", ")},
					&cli.BoolFlag{Name: "html", Usage: "print the HTML alone"},
				},
			}, outboxPreview),
		},
	})
}

// messageFlags choose messages. None has a variable: what is dropped must be typed.
func messageFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "period", Usage: "only messages about this month, such as 2026-10"},
		&cli.StringFlag{Name: "account", Usage: "only messages about this account"},
		&cli.Int64SliceFlag{Name: "id", Usage: "only this message; may be repeated"},
		&cli.StringFlag{Name: "kind", Usage: "only messages of this kind, such as receipt or charge.succeeded"},
		&cli.StringFlag{Name: "lane", Usage: "only this queue: email, or an endpoint as outbox list names it"},
	}
}

func reasonFlag() cli.Flag {
	return &cli.StringFlag{Name: "reason", Usage: "only messages with this reason, such as unknown"}
}

func stateFlag(otherwise string) cli.Flag {
	return &cli.StringSliceFlag{Name: "state", Usage: "queued, sent, dead, undeliverable or dropped; may be repeated", DefaultText: otherwise}
}

// messagesAsked reads which messages are wanted. The outbox is of all jobs, and so is
// what is asked without --job.
func (a *app) messagesAsked(c *cli.Context, otherwise ...ledger.MessageState) (q ledger.MessageQuery, err error) {
	if a.typed("job") {
		if q.Job, err = jobOf(c); err != nil {
			return q, err
		}
	}
	if q.Period, err = periodIfGiven(c); err != nil {
		return q, err
	}
	q.Account, q.Kind, q.Lane, q.Reason = c.String("account"), c.String("kind"), c.String("lane"), c.String("reason")
	q.IDs, q.States = c.Int64Slice("id"), otherwise
	if len(q.IDs) == 0 {
		q.IDs = nil
	}
	if given := c.StringSlice("state"); len(given) > 0 {
		q.States = nil
		for _, text := range given {
			state, known := messageState(text)
			if !known {
				return q, usagef("--state %q: want queued, sent, dead, undeliverable or dropped", text)
			}
			q.States = append(q.States, state)
		}
	}
	return q, nil
}

func messageState(text string) (ledger.MessageState, bool) {
	for _, s := range ledger.MessageStates {
		if string(s) == text {
			return s, true
		}
	}
	return "", false
}

// changing is what release and drop have in common: something must be chosen, and why.
func (a *app) changing(c *cli.Context, otherwise ...ledger.MessageState) (q ledger.MessageQuery, err error) {
	if q, err = a.messagesAsked(c, otherwise...); err != nil {
		return q, err
	}
	switch {
	case strings.TrimSpace(c.String("why")) == "":
		return q, usagef("--why is missing: type the reason")
	case q.IDs == nil && q.Period == "" && q.Account == "" && q.Kind == "" && q.Lane == "" && q.Reason == "":
		return q, usagef("which messages? choose by --id, --lane, --kind, --reason, --account or --period")
	}
	return q, nil
}

type movedJSON struct {
	Moved []int64 `json:"moved"`
}

func outboxRelease(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	may := []ledger.MessageState{ledger.MessageDead}
	if c.IsSet("id") {
		may = append(may, ledger.MessageDropped) // who names one means it
	}
	q, err := a.changing(c, may...)
	if err != nil {
		return nil, err
	}
	laneAlone := q.Lane != "" && q.Job == "" && !c.IsSet("state") && q.IDs == nil && q.Kind == "" && q.Account == "" && q.Period == "" && q.Reason == ""
	return a.changeMessages(ctx, c, q, func(tx pgx.Tx, person, why string) ([]int64, error) {
		if laneAlone {
			return nil, ledger.ResumeLane(ctx, tx, q.Lane, person, why)
		}
		return ledger.ReleaseMessages(ctx, tx, q, person, why)
	}, laneAlone, "released")
}

func outboxDrop(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	q, err := a.changing(c, ledger.MessageDead, ledger.MessageUndeliverable)
	if err != nil {
		return nil, err
	}
	return a.changeMessages(ctx, c, q, func(tx pgx.Tx, person, why string) ([]int64, error) {
		return ledger.DropMessages(ctx, tx, q, person, why)
	}, false, "dropped")
}

func (a *app) changeMessages(ctx context.Context, c *cli.Context, q ledger.MessageQuery,
	do func(tx pgx.Tx, person, why string) ([]int64, error), none bool, verb string,
) (*result, error) {
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(q.Job), Period: string(q.Period)}
	moved := []int64{}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		moved, err = do(tx, personOf(c), strings.TrimSpace(c.String("why")))
		return err
	})
	switch {
	case err != nil:
		return out, asUsage(err)
	case none:
		return out, a.emit(fmt.Sprintf("lane %s has messages again\n", clean(q.Lane)))
	case len(moved) == 0:
		return out, usagef("no message that can be %s was chosen; billing outbox list shows them", verb)
	}
	out.Details = movedJSON{moved}
	return out, a.emit(fmt.Sprintf("%d messages %s\n", len(moved), verb))
}

func asUsage(err error) error {
	if isLaneNotStopped(err) {
		return usageError{fmt.Errorf("%w; to release its dead letters name them by --kind, --reason or --id too", err)}
	}
	return err
}

func outboxPreview(_ context.Context, a *app, c *cli.Context) (*result, error) {
	config, err := messagesOf()
	if err != nil {
		return nil, err
	}
	kind := c.String("kind")
	config.Mails, config.Events, config.Endpoints = []string{kind}, nil, nil
	if config.From == "" {
		config.From = "Example <billing@example.com>"
	}
	if config.PayURL == "" && kind == outbox.KindActionRequired {
		config.PayURL = "https://pay.example.com/?account={account_id}&period={period}"
	}
	if !isMailKind(kind) {
		return nil, usagef("--kind %q: want %s", kind, strings.Join(outbox.MailKinds, ", "))
	}
	w, err := outbox.NewWriter(config)
	if err != nil {
		return nil, asSetting(err)
	}
	mail, err := w.Sample(kind, outbox.Sample(kind))
	if err != nil {
		return nil, asSetting(err)
	}
	out := &result{Details: mail}
	if c.Bool("html") {
		return out, a.emit(mail.HTML)
	}
	text := fmt.Sprintf("From: %s\nTo: %s\nSubject: %s\n\n%s", mail.From, mail.To, mail.Subject, mail.Text)
	if mail.HTML != "" {
		text += "\n--- HTML\n" + mail.HTML
	}
	return out, a.emit(text)
}
