package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/ledger/money"
	"github.com/chargeonce/billing/reconcile"
)

func maxShareFlag(name, what string) cli.Flag {
	return &cli.Float64Flag{Name: name, EnvVars: []string{envOf(name)},
		Usage: "with --audit: the share of payments, such as 0.02, beyond which those that were " + what + " need a person; 0 is no limit"}
}

// doAudit is reconcile --audit.
func doAudit(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	switch {
	case c.Bool("rebuild"):
		return nil, usagef("--audit and --rebuild: first rebuild, then audit")
	case c.String("period") == "":
		return nil, usagef("--audit needs --period: which month is to be compared?")
	case c.String("format") == "csv" && a.typed("format"):
		return nil, usagef("--format csv is not for --audit: billing findings lists what differs, billing export charges has the money")
	}
	for _, name := range []string{"why", "on-absent"} {
		if a.typed(name) {
			return nil, usagef("--%s is not for --audit, which charges and renews nothing: leave it out", name)
		}
	}
	for _, name := range []string{"max-refunded", "max-disputed"} {
		if share := c.Float64(name); !(share >= 0 && share <= 1) { // NaN is neither
			return nil, usagef("--%s %v: want 0 to 1", name, share)
		}
	}
	period, err := periodOf(c)
	if err != nil {
		return nil, err
	}
	return a.measured(ctx, c, func(m *measurements) (*result, error) { return a.audit(ctx, c, period, m) })
}

func (a *app) audit(ctx context.Context, c *cli.Context, period ledger.Period, m *measurements) (*result, error) {
	l, done, err := startLooking(ctx, a, c)
	if err != nil {
		return nil, err
	}
	defer done()
	l.out.Period = string(period)
	m.limitedBy(l.client.RateLimited)
	defer m.look(ctx, l.pool, period)
	horizon, err := l.horizon(ctx, period)
	if err != nil {
		return l.out, err
	}
	opts := a.reconciler(l.pool, l.client, l.job, l.looks, l.outbox, func() {})
	opts.DryRun, opts.Person = l.dryRun, ""
	r := reconcile.New(l.pool, l.client.Finder(), opts)
	report, err := r.Audit(ctx, reconcile.AuditWork{
		Period: period, Horizon: horizon, Owner: ownerOf(), Lease: c.Duration("lease"),
		MaxRefunded: c.Float64("max-refunded"), MaxDisputed: c.Float64("max-disputed"),
	})
	a.meter.Load().close()
	l.out.Settled = report.Settled
	if err != nil {
		return l.out, err
	}
	if !c.Bool("payouts") {
		return l.audited(ctx, period, report, nil)
	}
	a.newMeter()
	payouts, err := r.Payouts(ctx, period)
	a.meter.Load().close()
	if err != nil {
		return l.out, fmt.Errorf("the audit is complete, the payouts are not: %w", err)
	}
	return l.audited(ctx, period, report, &payouts)
}

// auditable is how many months from one that the ledger knows a month may lie that it
// does not know, to be audited nevertheless.
const auditable = 12

// knownPeriods is how many of the last ones are compared with it.
const knownPeriods = 60

// horizon is the period's, also of one that was never run: something may have been
// paid for it nevertheless. A job of which the ledger has nothing, a month that has not
// begun, and one that is far from all it knows, are refused: of a typo there is nothing
// to find, and that would look as if all was well.
func (l *looking) horizon(ctx context.Context, period ledger.Period) (time.Time, error) {
	run, err := ledger.ReadRun(ctx, l.pool, l.job, period)
	switch {
	case err == nil:
		return run.Horizon(), nil
	case !errors.Is(err, ledger.ErrNotFound):
		return time.Time{}, err
	}
	loc, err := zoneOf(l.c)
	if err != nil {
		return time.Time{}, err
	}
	var known []ledger.PeriodLine
	var now time.Time
	err = ledger.InReadTx(ctx, l.pool, func(tx pgx.Tx) error {
		if now, err = ledger.Now(ctx, tx); err != nil {
			return err
		}
		known, err = ledger.ReadPeriods(ctx, tx, l.job, knownPeriods)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if err := mayAudit(l.job, period, known, period.Start(loc).After(now)); err != nil {
		return time.Time{}, err
	}
	return ledger.HorizonOf(period.Start(loc)), nil
}

// mayAudit refuses a month that was never run and hardly is the one that is meant.
func mayAudit(job ledger.Job, period ledger.Period, known []ledger.PeriodLine, future bool) error {
	if len(known) == 0 {
		return usagef("the ledger has no month of the job %s: is --job right? After a loss import the invoices first, or reconcile --rebuild", job)
	}
	near := false
	for _, k := range known {
		if k.Period == period {
			return nil
		}
		near = near || months(k.Period, period) <= auditable
	}
	if future || !near {
		return usagef("the ledger has neither invoices nor a run of %s for %s, and it is not one of the %d months beside those it has: is --period right? billing status lists them", job, period, auditable)
	}
	return nil
}

// months is how many lie between two periods.
func months(a, b ledger.Period) int {
	from, to := a.Start(time.UTC), b.Start(time.UTC)
	n := 12*(to.Year()-from.Year()) + int(to.Month()) - int(from.Month())
	return max(n, -n)
}

// audited says what a complete audit came to; the exit code is what the ledger says.
func (l *looking) audited(ctx context.Context, period ledger.Period, report reconcile.AuditReport, payouts *reconcile.PayoutReport) (*result, error) {
	s := standing{job: l.job, period: period, absentAfter: l.looks.absentAfter}
	if err := ledger.InReadTx(context.WithoutCancel(ctx), l.pool, func(tx pgx.Tx) error { return s.read(ctx, tx) }); err != nil {
		return l.out, err
	}
	l.out.addSums(s.summary.Sums)
	l.out.addFindings(s.findings)
	if s.run != nil {
		l.out.addRun(*s.run)
	}
	details := map[string]any{"audit": auditToJSON(report)}
	l.out.Details = details
	text := l.a.auditText(report, &s, l.dryRun)
	if payouts != nil {
		details["payouts"] = payoutsJSON{payouts.Read, payouts.ByHand, payouts.Found, payouts.Open, payouts.Calls}
		text += payoutsText(*payouts)
	}
	if err := l.a.emit(text); err != nil {
		return l.out, err
	}
	verdict := s.verdict
	if s.run == nil {
		verdict = s.unrunVerdict
	}
	if err := verdict(); err != nil {
		return l.out, err
	}
	if len(report.Listed) > 0 {
		// The ledger does not know of what a dry run would open, and nobody may take
		// that for nothing.
		return l.out, &billing.PersonError{
			Msg: fmt.Sprintf("period %s differs from Stripe", period), Hint: fmt.Sprintf("billing reconcile --period %s --audit", period),
		}
	}
	return l.out, nil
}

// payoutsJSON is what --payouts adds to --json.
type payoutsJSON struct {
	Read   int64 `json:"read"`
	ByHand int64 `json:"ordered_by_hand"`
	Found  int64 `json:"payments_found"`
	Open   int64 `json:"payments_in_none"`
	Calls  int64 `json:"calls"`
}

// unrunVerdict is the ledger's word on a period that was never run: nothing is wrong
// with that, unless somebody paid for it.
func (s *standing) unrunVerdict() error {
	if s.summary.FindingsToAct == 0 {
		return nil
	}
	return s.verdict()
}

// auditJSON is what an audit adds to --json. Amounts are strings in major units.
type auditJSON struct {
	Compared    int64            `json:"compared"`
	Moving      int64            `json:"moving"`
	Payments    int64            `json:"payments"`
	Refunds     int64            `json:"refunds"`
	Disputes    int64            `json:"disputes"`
	Pages       int64            `json:"pages"`
	Calls       int64            `json:"calls"`
	Resumed     bool             `json:"resumed"`
	Differences map[string]int64 `json:"differences"`
	Notes       map[string]int64 `json:"notes"`
	// Resolved are the differences that somebody resolved before; Listed the others, at
	// most a thousand, of a dry run.
	Resolved int64            `json:"resolved_before"`
	Listed   []differenceJSON `json:"listed,omitempty"`
	Opened   int64            `json:"findings_opened"`
	Closed   int64            `json:"findings_closed"`
	Sums     []auditSumJSON   `json:"sums"`
}

// differenceJSON is a difference of which a dry run made no finding.
type differenceJSON struct {
	Finding       int64  `json:"finding,omitempty"` // that is open about it already
	Kind          string `json:"kind"`
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	PaymentIntent string `json:"payment_intent"`
	Currency      string `json:"currency"`
	Expected      string `json:"expected"`
	Seen          string `json:"seen"`
}

type auditSumJSON struct {
	Currency string          `json:"currency"`
	Lines    []auditLineJSON `json:"lines"`
}

// auditLineJSON is one step; the lines above a total come to it.
type auditLineJSON struct {
	Side   string `json:"side"` // invoices, ledger, stripe, balance
	What   string `json:"what"`
	Count  int64  `json:"count"`
	Amount string `json:"amount"`
	Total  bool   `json:"total"`
}

func auditToJSON(r reconcile.AuditReport) auditJSON {
	out := auditJSON{
		Compared: r.Compared, Moving: r.Moving, Payments: r.Payments, Refunds: r.Refunds, Disputes: r.Disputes, Pages: r.Pages, Calls: r.Calls,
		Resumed: r.Resumed, Differences: map[string]int64{}, Notes: map[string]int64{}, Resolved: r.Resolved, Opened: r.Opened, Closed: r.Closed, Sums: []auditSumJSON{},
	}
	for _, d := range r.Differences {
		out.Differences[d.Kind] = d.Count
	}
	for _, d := range r.Notes {
		out.Notes[d.Kind] = d.Count
	}
	for _, f := range r.Listed {
		out.Listed = append(out.Listed, differenceJSON{f.ID, f.Kind, f.AccountID, f.BillingKey, f.PaymentIntent, f.Currency, f.Expected, reconcile.SeenText(f)})
	}
	for _, sum := range r.Sums {
		j := auditSumJSON{Currency: sum.Currency}
		for _, line := range sum.Lines {
			j.Lines = append(j.Lines, auditLineJSON{string(line.Side), line.What, line.Count, auditAmount(sum, line), line.Total})
		}
		out.Sums = append(out.Sums, j)
	}
	return out
}

func auditAmount(sum reconcile.AuditSum, line reconcile.AuditSumLine) string {
	if c, err := money.ParseCurrency(sum.Currency); err == nil {
		return money.Format(line.Amount, c)
	}
	return line.Amount.String()
}
