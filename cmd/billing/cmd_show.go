package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

const showHelp = `Shows one charge's whole history: the row, its earlier tries, every change with
its evidence, and what was found at Stripe. --json has the request itself too.

Example:
   billing show --account 4182 --period 2026-10

Exit codes: 0 shown   64 usage, or there is no such charge
   69 Postgres unreachable   78 configuration`

func (a *app) showCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "show", Usage: "show one charge's whole history", Description: showHelp,
		Flags: debtFlags(),
	}, showCharge)
}

func showCharge(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, account, err := debtOf(c)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var h ledger.History
	err = ledger.InReadTx(ctx, pool, func(tx pgx.Tx) error {
		h, err = ledger.ReadHistory(ctx, tx, job, period, account)
		if errors.Is(err, ledger.ErrNotFound) {
			return notRecorded(ctx, tx, job, period, account)
		}
		return err
	})
	out := &result{Job: string(job), Period: string(period)}
	if err != nil {
		return out, err
	}
	out.Details = historyToJSON(h)
	return out, a.emit(a.historyText(h))
}

// notRecorded says what there is of an account that has no charge.
func notRecorded(ctx context.Context, q ledger.Querier, job ledger.Job, period ledger.Period, account string) error {
	amount, currency, err := ledger.BillableOf(ctx, q, job, period, account)
	if errors.Is(err, ledger.ErrNotFound) {
		return usagef("account %s has no charge and no invoice for %s of %s; ids are compared byte for byte", show(account), period, job)
	}
	if err != nil {
		return err
	}
	return usagef("account %s has an invoice of %s %s for %s that is not in the ledger yet; see: billing status --period %s",
		show(account), moneyText(amount, currency), clean(currency), period, period)
}

func (a *app) historyText(h ledger.History) string {
	c := h.Charge
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", clean(c.BillingKey))
	b.WriteString(keyValues(
		[2]string{"account", accountText(c.AccountID, c.Name)},
		[2]string{"state", stateText(c)},
		[2]string{"amount", moneyText(c.Amount, c.Currency) + " " + clean(c.Currency)},
		[2]string{"refunded", refundedText(c)},
		[2]string{"disputed", yes(c.Disputed)},
		[2]string{"payment", joined(orEmpty(c.PaymentIntent), c.StripeStatus)},
		[2]string{refusedLabel(c), joined(c.DeclineCode, c.AdviceCode)},
		[2]string{"customer", joined(clean(c.StripeCustomer), clean(c.StripeAccount))},
		[2]string{"try", fmt.Sprintf("%d, key %s", c.Try, orNone(clean(orEmpty(c.IdempotencyKey))))},
		[2]string{"window", windowText(c)},
		[2]string{"sends", sendsText(c)},
		[2]string{"recorded", timeText(&c.CreatedAt) + " by run " + c.RunID.String()},
		[2]string{"settled", timeText(c.SettledAt)},
		[2]string{"last request", c.RequestID},
		[2]string{"request", requestText(c)},
	))
	a.addTries(&b, h.Tries)
	a.addEvents(&b, h.Events)
	a.addPastFindings(&b, h.Findings)
	return b.String()
}

func (a *app) addTries(b *strings.Builder, tries []ledger.ClosedTry) {
	if len(tries) == 0 {
		return
	}
	t := a.newTable(table.Row{"try", "state", "reason", "payment", "sends", "sent last", "closed", "key"}, 5)
	for _, try := range tries {
		t.AppendRow(table.Row{try.Try, string(try.State), clean(try.Reason), orEmpty(try.PaymentIntent), try.Sends,
			timeText(try.LastSentAt), timeText(&try.ClosedAt), clean(try.IdempotencyKey)})
	}
	fmt.Fprintf(b, "\nearlier tries\n%s\n", t.Render())
}

func (a *app) addEvents(b *strings.Builder, events []ledger.ChargeEvent) {
	if len(events) == 0 {
		b.WriteString("\nnothing changed since it was recorded\n")
		return
	}
	t := a.newTable(table.Row{"when", "try", "change", "on", "by", "evidence"}, 2)
	for _, e := range events {
		t.AppendRow(table.Row{timeText(&e.At), e.Try, string(e.FromState) + " → " + string(e.ToState), clean(onText(e)), clean(byText(e)),
			clean(joined(e.PaymentIntent, e.RequestID, e.Detail))})
	}
	fmt.Fprintf(b, "\nevents\n%s\n", t.Render())
}

func (a *app) addPastFindings(b *strings.Builder, findings []ledger.PastFinding) {
	if len(findings) == 0 {
		return
	}
	t := a.newTable(table.Row{"finding", "kind", "severity", "expected", "seen", "opened", "resolved"}, 1)
	for _, f := range findings {
		resolved := "open"
		if f.ResolvedAt != nil {
			resolved = joined(timeText(f.ResolvedAt), f.ResolvedBy, f.Resolution, f.Why)
		}
		t.AppendRow(table.Row{f.ID, f.Kind, string(f.Severity), clean(f.Expected), clean(reconcile.SeenText(f.Finding)), timeText(&f.OpenedAt), clean(resolved)})
	}
	fmt.Fprintf(b, "\nfindings\n%s\n", t.Render())
}

func accountText(id, name string) string {
	if name == "" {
		return clean(id)
	}
	return clean(id) + "  " + clean(name)
}

func stateText(c ledger.ChargeDetail) string {
	if c.Reason == "" {
		return string(c.State)
	}
	return string(c.State) + ": " + clean(c.Reason)
}

func refundedText(c ledger.ChargeDetail) string {
	if strings.Trim(c.AmountRefunded, "0.") == "" {
		return ""
	}
	return moneyText(c.AmountRefunded, c.Currency) + " " + clean(c.Currency)
}

func windowText(c ledger.ChargeDetail) string {
	if c.WindowOpenedAt == nil {
		return ""
	}
	text := timeText(c.WindowOpenedAt) + " to " + timeText(c.WindowEndsAt)
	if c.State == ledger.ChargePending && !c.WindowOpen {
		text += ", not open now"
	}
	return text
}

func sendsText(c ledger.ChargeDetail) string {
	if c.Sends == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d, the last one %s", c.Sends, timeText(c.LastSentAt))
	if c.OpenSends > 0 {
		text += fmt.Sprintf("; of %d the answer is not known", c.OpenSends)
	}
	if c.ServerErrors > 0 {
		text += fmt.Sprintf("; %s by Stripe", plural(int64(c.ServerErrors), "server error", "server errors"))
	}
	return text
}

// refusedLabel names the bank's code: one that asks for the customer is no
// decline.
func refusedLabel(c ledger.ChargeDetail) string {
	if c.State == ledger.ChargeDeclined {
		return "declined with"
	}
	return "the bank said"
}

func requestText(c ledger.ChargeDetail) string {
	if c.Body == nil {
		return ""
	}
	return fmt.Sprintf("%d bytes, SHA-256 %s", len(*c.Body), hex.EncodeToString(c.BodySHA256))
}

func onText(e ledger.ChargeEvent) string {
	if e.Reason == "" {
		return e.Cause
	}
	return e.Cause + ": " + e.Reason
}

func byText(e ledger.ChargeEvent) string {
	if e.Person != "" {
		return e.Person
	}
	return runText(e.RunID)
}

func runText(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return "run " + id.String()[:8]
}

// joined puts what is there into one line.
func joined(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
