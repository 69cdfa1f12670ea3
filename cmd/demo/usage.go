//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/world"
)

// ancientUsage lets the demo's October be metered however long ago it is.
const ancientUsage = "BILLING_USAGE_ANCIENT=876000h"

const (
	// exitNotYet says: not all usage is counted. A transaction of Postgres's own may
	// keep a meter from saying so, for a moment.
	exitNotYet = 3

	// handCalls is the account that is worked out by hand, by its calls: 19.99 and
	// (13,300 − 1,000) × 0.0005 = 12,300 × 0.0005 = 6.15, together 26.14.
	handCalls = 13_300
	byHandOne = "19.99 + (13,300 − 1,000) × 0.0005 = 19.99 + 6.15 = 26.14 usd"
	handOne   = "26.14"
	// All 400 made 1,000, 1,100, 1,200 … calls: 400 × 19.99 = 7,996.00 in fees, and
	// 100 × 400·399/2 = 7,980,000 calls beyond those included, × 0.0005 = 3,990.00.
	byHandAll = "400 × 19.99 + 7,980,000 × 0.0005 = 7,996.00 + 3,990.00 = 11,986.00 usd"
	handAll   = "11986.00"
)

// usage is the part of the month that is billed by usage: an application writes what
// customers used, a meter counts it, and invoices are made by the prices. They must
// come to what was worked out by hand.
func (d *demo) usage(ctx context.Context) error {
	if err := d.writeUsage(ctx); err != nil {
		return err
	}
	if err := d.invoices(ctx); err != nil {
		return err
	}
	account := ""
	for _, m := range d.world.MeteredAccounts() {
		if m.Calls == handCalls {
			account = m.AccountID
		}
	}
	if err := d.program.mustRun(ctx, "explain", "--account", account, "--period", world.Period); err != nil {
		return err
	}
	const sqlFromUsage = `
		SELECT sum(i.amount)::numeric(20, 2)::text, max(i.amount) FILTER (WHERE i.account_id = $2)::numeric(20, 2)::text
		FROM billing.invoices i
		WHERE i.period = $1 AND EXISTS (SELECT FROM billing.invoice_lines l WHERE l.account_id = i.account_id AND l.period = i.period)`
	var all, one string
	if err := d.db.QueryRow(ctx, sqlFromUsage, world.Period, account).Scan(&all, &one); err != nil {
		return fmt.Errorf("add up the invoices from usage: %w", err)
	}
	d.note("by hand, " + account + ": " + byHandOne + "; the invoice: " + one)
	d.note("by hand, all of them: " + byHandAll + "; the invoices: " + all)
	if one != handOne || all != handAll {
		return fmt.Errorf("the invoices from usage are over %s and %s, by hand it is %s and %s", one, all, handOne, handAll)
	}
	return nil
}

// writeUsage is the application: its own INSERTs, some of them twice.
func (d *demo) writeUsage(ctx context.Context) error {
	events := d.world.UsageEvents()
	batch := &pgx.Batch{}
	for _, e := range events {
		batch.Queue(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES ($1, $2, $3, $4, $5)`,
			e.ID, e.AccountID, e.Metric, e.Quantity, e.OccurredAt)
	}
	if err := d.db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	d.say("\nThe application wrote %d events of %d accounts into billing.usage_events, 40 of them twice", len(events), len(d.world.MeteredAccounts()))
	return nil
}

// invoices counts the usage and makes invoices of it.
func (d *demo) invoices(ctx context.Context) error {
	const most = 5
	for range most {
		if err := d.program.mustRun(ctx, "meter"); err != nil {
			return err
		}
		code, err := d.program.run(ctx, "invoice", "--period", world.Period)
		if err != nil || code == 0 {
			return err
		}
		if code != exitNotYet {
			return fmt.Errorf("billing invoice: exit code %d", code)
		}
	}
	return fmt.Errorf("usage is not complete after %d meters", most)
}
