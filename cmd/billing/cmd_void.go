package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const voidHelp = `Withdraws charges for good: the customer paid another way, or must not be charged.
A charge can be withdrawn that was never sent, or was skipped, rejected, declined or
held. Its invoice is free again: it may be corrected, and charged by billing requeue.

Example:
   billing void --period 2026-10 --account 4182 --why "paid by bank transfer"

Exit codes: 0 withdrawn   64 usage, or a charge that can't be withdrawn (then none is)
   69 Postgres unreachable   78 configuration`

func (a *app) voidCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "void", Usage: "withdraw charges that must not be sent", Description: voidHelp,
		Flags: []cli.Flag{periodFlag(), accountsFlag(), whyFlag(), byFlag(), dryRunFlag()},
	}, void)
}

func void(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	period, accounts, why, err := ordered(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(job), Period: string(period)}
	if c.Bool("dry-run") {
		err := ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error { return mayVoid(ctx, tx, job, period, accounts) })
		if err != nil {
			return out, err
		}
		return out, a.emit(plural(int64(len(accounts)), "charge", "charges") + " would be withdrawn; nothing was changed (dry run)\n")
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error {
		moved, err := ledger.Void(ctx, tx, job, period, accounts, personOf(c), why)
		if err != nil {
			return err
		}
		for _, account := range accounts {
			if !moved[account] {
				return cannotVoid(ctx, tx, job, period, account)
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	return out, a.emit(fmt.Sprintf("%s of %s withdrawn\nnext: billing status --period %s\n", plural(int64(len(accounts)), "charge", "charges"), period, period))
}

// mayVoid refuses what Void would not move.
func mayVoid(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period, accounts []string) error {
	for _, account := range accounts {
		h, err := ledger.ReadHistory(ctx, q, job, period, account)
		if err != nil || !ledger.MayMove(h.Charge.State, ledger.ChargeVoid) || h.Charge.State == ledger.ChargeReview ||
			h.Charge.State == ledger.ChargePending && h.Charge.Sends > 0 {
			return cannotVoid(ctx, q, job, period, account)
		}
	}
	return nil
}

// unlessDry ends a transaction that is only tried.
func unlessDry(c *cli.Context) error {
	if c.Bool("dry-run") {
		return errDryRun
	}
	return nil
}

// afterDry tells a try that ended well from a mistake, and adds what it was.
func afterDry(err error, text string) (string, error) {
	if errors.Is(err, errDryRun) {
		return text + "nothing was changed (dry run)\n", nil
	}
	return text, err
}

// errDryRun takes back what was only tried.
var errDryRun = errors.New("dry run")

// cannotVoid says what state a charge is in that can't be withdrawn.
func cannotVoid(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period, account string) error {
	h, err := ledger.ReadHistory(ctx, q, job, period, account)
	if errors.Is(err, ledger.ErrNotFound) {
		return usagef("account %s has no charge for %s; nothing was done", clean(account), period)
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf("the charge of account %s for %s is %s", clean(account), period, h.Charge.State)
	if h.Charge.State == ledger.ChargePending {
		text += " and was sent: its outcome must be known first"
	}
	return usagef("%s; nothing was done: billing show --period %s --account %s", text, period, clean(account))
}
