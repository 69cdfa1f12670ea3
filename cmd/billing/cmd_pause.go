package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const pauseHelp = `Stops the sending of charges: all of the job's, or one account's. A run that is at
work obeys before its next send. When this command has ended, nothing more is sent;
answers under way are still recorded. A run that meets a pause ends with 3.

Examples:
   billing pause --all --why "wrong prices?"
   billing pause --account acct-1003 --why "a dispute"

Exit codes: 0 paused, nothing is sent any more   64 usage   69 Postgres unreachable
   75 paused, but a process may still send what it has: look again   78 configuration`

const resumeHelp = `Lets paused charges be sent again, by the next run.

Example:
   billing resume --all
   billing resume --account acct-1003

Exit codes: 0 resumed   64 usage, or it was not paused   69 Postgres unreachable
   78 configuration`

// pausePatience is longer than any permit lasts.
const pausePatience = ledger.PermitLife + 15*time.Second

func (a *app) pauseCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "pause", Usage: "stop sending, all charges or one account's", Description: pauseHelp,
		Flags: []cli.Flag{accountsFlag(), allFlag("everything"), whyFlag(), byFlag(), dryRunFlag()},
	}, pause)
}

func (a *app) resumeCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "resume", Usage: "let paused charges be sent again", Description: resumeHelp,
		Flags: []cli.Flag{accountsFlag(), allFlag("what was paused by --all"), byFlag(), dryRunFlag()},
	}, resume)
}

// pausedOf are the job and the accounts that an order names, "" for all.
func pausedOf(c *cli.Context) (job ledger.Job, accounts []string, err error) {
	if job, err = jobOf(c); err != nil {
		return "", nil, err
	}
	accounts = c.StringSlice("account")
	switch {
	case c.Bool("all") && len(accounts) > 0:
		return "", nil, usagef("--account and --all: take one")
	case c.Bool("all"):
		return job, []string{""}, nil
	case len(accounts) == 0:
		return "", nil, usagef("--account is missing: type the account, or --all")
	}
	for _, account := range accounts {
		if err := ledger.CheckAccountID(account); err != nil {
			return "", nil, usageError{err}
		}
	}
	return job, accounts, nil
}

func pause(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, accounts, err := pausedOf(c)
	if err != nil {
		return nil, err
	}
	if c.String("why") == "" {
		return nil, usagef("--why is missing: type the reason; it is kept")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job)}
	if c.Bool("dry-run") {
		return out, tellPauses(ctx, a, pool, job, accounts, "would be paused", "is paused already")
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		for _, account := range accounts {
			isNew, err := ledger.AddPause(ctx, tx, job, account, personOf(c), c.String("why"))
			if err != nil {
				return err
			}
			if !isNew {
				a.warn(out, "%s was paused before", pauseText(account))
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, account := range accounts {
		if err := untilNothingIsSent(ctx, pool, job, account); err != nil {
			return out, err
		}
		if err := a.emit(pauseText(account) + " is paused; nothing of it is sent any more\n"); err != nil {
			return out, err
		}
	}
	return out, nil
}

func pauseText(account string) string {
	if account == "" {
		return "everything"
	}
	return "account " + clean(account)
}

// stillSending says that a process may not have seen the pause yet.
type stillSending struct{ what string }

func (e stillSending) Error() string {
	return e.what + " is paused, but a process may still send what it has a permit for"
}

// untilNothingIsSent waits for the permits that were given before the pause.
func untilNothingIsSent(ctx context.Context, pool *pgxpool.Pool, job ledger.Job, account string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pausePatience, stillSending{pauseText(account)})
	defer cancel()
	for {
		may, err := ledger.MayStillSend(ctx, pool, job, account)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil || !may:
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func resume(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, accounts, err := pausedOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job)}
	if c.Bool("dry-run") {
		return out, tellPauses(ctx, a, pool, job, accounts, "is not paused", "would be sent again")
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		for _, account := range accounts {
			ended, err := ledger.EndPause(ctx, tx, job, account, personOf(c))
			if err != nil {
				return err
			}
			if !ended {
				return usagef("%s of %s is not paused; nothing was done: billing status", pauseText(account), job)
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, account := range accounts {
		if err := a.emit(fmt.Sprintf("%s may be sent again, by the next run\n", pauseText(account))); err != nil {
			return out, err
		}
	}
	return out, nil
}

// pauseJSON is a pause in --json.
type pauseJSON struct {
	AccountID string `json:"account_id"`
	PausedAt  string `json:"paused_at"`
	PausedBy  string `json:"paused_by"`
	Why       string `json:"why"`
}

func pausesToJSON(list []ledger.Pause) []pauseJSON {
	out := []pauseJSON{}
	for _, p := range list {
		out = append(out, pauseJSON{p.AccountID, rfc3339(&p.PausedAt), p.PausedBy, p.Why})
	}
	return out
}

// maxShownPauses bounds the line of status; --json has them all.
const maxShownPauses = 5

// pausedText is what somebody paused, in a line.
func (s *standing) pausedText() string {
	var parts []string
	if s.summary.Paused > 0 {
		parts = append(parts, plural(s.summary.Paused, "pending charge is", "pending charges are")+" not sent")
	}
	return strings.Join(append(parts, pausesText(s.pauses)...), "; ")
}

// pausesText names the first few.
func pausesText(list []ledger.Pause) (parts []string) {
	for _, p := range list[:min(len(list), maxShownPauses)] {
		parts = append(parts, fmt.Sprintf("%s since %s by %s: %s", pauseText(p.AccountID), timeText(&p.PausedAt), clean(p.PausedBy), clean(p.Why)))
	}
	if more := len(list) - maxShownPauses; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return parts
}

// tellPauses says what an order would come to, by what is paused now.
func tellPauses(ctx context.Context, a *app, q ledger.Querier, job ledger.Job, accounts []string, open, paused string) error {
	list, err := ledger.OpenPauses(ctx, q, job)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, account := range accounts {
		what := open
		if slices.ContainsFunc(list, func(p ledger.Pause) bool { return p.AccountID == account }) {
			what = paused
		}
		fmt.Fprintf(&text, "%s %s; nothing was changed (dry run)\n", pauseText(account), what)
	}
	return a.emit(text.String())
}
