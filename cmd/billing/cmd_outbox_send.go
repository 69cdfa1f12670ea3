package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
)

const outboxSendHelp = `Sends what is queued: mail over Resend or SMTP, webhooks to their endpoints, each
receiver by itself, so that one that is slow or down keeps no other waiting. Any
number of hosts may do so at once. It belongs into cron, some minutes apart. What
fails is tried again for three days, later each time; what a receiver refuses, or
what may have arrived and is older than 23 hours, becomes a dead letter.
It charges nobody, and no charge ever waits for it.

Example:
   billing outbox send
   billing outbox send --mail-rate 10 --wait-due 1m

Rates are of this process: where several send at once, they add up. An answer of 429
is waited out here, up to 30 seconds at a time.

Exit codes: 0 all is sent   4 dead letters, a stopped endpoint, or messages that
   nothing here sends need a person   64 usage   69 Postgres unreachable   75 messages
   wait, and the next start tries them again (before 4, where both hold)
   77 a receiver refuses our key   78 configuration   130, 143 interrupted`

func (a *app) outboxSendCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "send", Usage: "send what is queued", Description: outboxSendHelp,
		Flags: append([]cli.Flag{
			&cli.Float64Flag{Name: "mail-rate", Usage: "mails a second, 0 for no limit", Value: 2, EnvVars: []string{"BILLING_MAIL_RATE"}},
			&cli.Float64Flag{Name: "webhook-rate", Usage: "messages a second to each endpoint, 0 for no limit", Value: 25, EnvVars: []string{"BILLING_WEBHOOK_RATE"}},
			&cli.IntFlag{Name: "senders", Usage: "messages on their way to one receiver at once", Value: outbox.DefaultConcurrency, EnvVars: []string{"BILLING_SENDERS"}},
			&cli.DurationFlag{Name: "give-up", Usage: "how long after its first try a message that fails is given up", Value: outbox.DefaultGiveUp, EnvVars: []string{"BILLING_GIVE_UP"}},
			&cli.DurationFlag{Name: "wait-due", Usage: "wait this long for what is due later", Value: 0, EnvVars: []string{"BILLING_WAIT_DUE"}},
		}, metricsFlags()...),
	}, outboxSend)
}

// sendJSON is what send adds to --json.
type sendJSON struct {
	Sent          int64    `json:"sent"`
	Queued        int64    `json:"queued"`
	Waiting       int64    `json:"waiting"` // of queued: the next start tries them again
	Dead          int64    `json:"dead"`
	Unknown       int64    `json:"unknown"`
	Undeliverable int64    `json:"undeliverable"`
	Stopped       []string `json:"stopped"`
}

func outboxSend(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	m, err := a.metricsOf(c, "outbox send", job)
	if err != nil {
		return nil, err
	}
	res, err := a.sendQueued(ctx, c, job, m)
	return m.tell(ctx, res, err), err
}

func (a *app) sendQueued(ctx context.Context, c *cli.Context, job ledger.Job, m *measurements) (*result, error) {
	options, err := a.sendOptions(c)
	if err != nil {
		return nil, err
	}
	lanes, err := lanesOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	defer func() { m.look(ctx, pool) }()
	var sent atomic.Int64
	options.Progress = func(lane string, done ledger.TriesRecorded) {
		a.log.Info("sending", "lane", lane, "sent", sent.Add(done.Sent))
	}
	reports, err := outbox.NewDispatcher(pool, options).Run(ctx, lanes)
	out := &result{Job: string(job)}
	details := sendJSON{Sent: sent.Load(), Stopped: []string{}}
	out.Details = &details
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return out, err
	}
	return out, a.afterSending(ctx, pool, lanes, reports, out, &details)
}

func (a *app) sendOptions(c *cli.Context) (o outbox.Options, err error) {
	o = outbox.Options{GiveUp: c.Duration("give-up"), Wait: c.Duration("wait-due"), Log: a.log}
	if o.Twice, err = twiceKinds(); err != nil {
		return o, err
	}
	for _, name := range []string{"mail-rate", "webhook-rate"} {
		if rate := c.Float64(name); !(rate == 0 || rate >= 0.01 && rate <= 10_000) { // NaN is neither
			return o, usagef("--%s %v: want 0.01 to 10000 a second, or 0 for no limit", name, rate)
		}
	}
	switch {
	case c.Int("senders") < 1 || c.Int("senders") > 256:
		return o, usagef("--senders %d: want 1 to 256", c.Int("senders"))
	case o.GiveUp < time.Hour || o.GiveUp > 30*24*time.Hour:
		return o, usagef("--give-up %s: want 1h to 720h", o.GiveUp)
	case o.Wait < 0 || o.Wait > 24*time.Hour:
		return o, usagef("--wait-due %s: want 0 to 24h", o.Wait)
	}
	return o, nil
}

// lanesOf is every lane that this host can send for.
func lanesOf(c *cli.Context) (lanes []outbox.LaneSender, err error) {
	config, err := messagesOf()
	if err != nil {
		return nil, err
	}
	mails, err := mailSender()
	if err != nil {
		return nil, err
	}
	if mails != nil {
		from, err := outbox.SenderText(config.From, config.ReplyTo)
		if err != nil {
			return nil, asSetting(err)
		}
		lanes = append(lanes, outbox.LaneSender{Lane: outbox.MailLane, Sender: mails, MailFrom: from, Rate: c.Float64("mail-rate"), Concurrency: c.Int("senders")})
	}
	hooks, err := webhookSender()
	if err != nil {
		return nil, err
	}
	if hooks != nil {
		for _, endpoint := range config.Endpoints {
			if err := hooks.CheckEndpoint(endpoint); err != nil {
				return nil, asSetting(err)
			}
			lanes = append(lanes, outbox.LaneSender{
				Lane: outbox.Lane(endpoint), Sender: hooks, Endpoint: endpoint, Rate: c.Float64("webhook-rate"), Concurrency: c.Int("senders"),
			})
		}
	}
	switch {
	case hooks == nil && len(config.Endpoints) > 0:
		err = configError{errors.New("an endpoint is set and no secret to sign with"), "set BILLING_WEBHOOK_SECRET to whsec_ and the base64 of 24 to 64 random bytes"}
	case len(lanes) == 0:
		err = configError{errors.New("nothing to send with is configured"), "set BILLING_RESEND_API_KEY or BILLING_SMTP_URL for mail, BILLING_WEBHOOK_URL and BILLING_WEBHOOK_SECRET for webhooks"}
	}
	return lanes, err
}

// afterSending says where the outbox stands, and ends by that.
func (a *app) afterSending(ctx context.Context, pool *pgxpool.Pool, lanes []outbox.LaneSender,
	reports map[string]outbox.LaneReport, out *result, details *sendJSON,
) error {
	counts, err := ledger.CountLanes(ctx, pool)
	if err != nil {
		return err
	}
	for _, l := range counts {
		details.Queued += l.Queued
		details.Dead += l.Dead
		details.Unknown += l.Unknown
		details.Undeliverable += l.Undeliverable
		switch {
		case l.StoppedFor != "":
			details.Stopped = append(details.Stopped, l.Lane)
			a.warn(out, "lane %s is stopped: %s; billing outbox release --lane %s", l.Lane, l.StoppedFor, l.Lane)
		case slices.ContainsFunc(lanes, func(s outbox.LaneSender) bool { return s.Lane == l.Lane }):
			details.Waiting += l.Queued
		case l.Queued > 0:
			a.warn(out, "lane %s has %d messages and nothing here to send them with", l.Lane, l.Queued)
		}
	}
	if details.Undeliverable > 0 {
		a.warn(out, "%d messages have no address to go to: billing outbox list --state undeliverable", details.Undeliverable)
	}
	text := fmt.Sprintf("%d sent, %d waiting, %d dead letters\n", details.Sent, details.Waiting, details.Dead)
	if err := a.emit(text); err != nil {
		return err
	}
	for _, l := range lanes {
		if r := reports[l.Lane]; r.Refused != "" {
			return refusedError{l.Lane, r.Refused}
		}
	}
	switch {
	case details.Waiting > 0:
		return waitingError{details.Waiting}
	case details.Dead > 0 || len(details.Stopped) > 0 || details.Queued > 0:
		return &billing.PersonError{Code: "dead_letters", Msg: "messages need a person", Hint: "billing outbox list shows them; release or drop them"}
	}
	return nil
}

// refusedError says that a receiver of messages refuses our key or settings.
type refusedError struct{ lane, reason string }

func (e refusedError) Error() string {
	return fmt.Sprintf("%s refuses to take messages from here: %s", e.lane, e.reason)
}

// waitingError says that messages wait.
type waitingError struct{ queued int64 }

func (e waitingError) Error() string { return fmt.Sprintf("%d messages are waiting", e.queued) }

func isLaneNotStopped(err error) bool { return errors.Is(err, ledger.ErrLaneNotStopped) }

func isMailKind(kind string) bool { return slices.Contains(outbox.MailKinds, kind) }

func isEventKind(kind string) bool { return slices.Contains(outbox.EventKinds, kind) }
