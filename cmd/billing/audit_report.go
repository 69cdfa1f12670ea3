package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

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
	case c.String("format") == "csv":
		return nil, usagef("--format csv is not for --audit: billing findings lists what differs, billing export charges has the money")
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
	opts := a.reconciler(l.pool, l.client, l.job, l.looks, func() {})
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

// horizon is the period's, also of one that was never run: something may have been
// paid for it nevertheless.
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
	return ledger.HorizonOf(period.Start(loc)), nil
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
	text := l.a.auditText(report, s.findings, l.dryRun)
	if payouts != nil {
		details["payouts"] = payoutsJSON{payouts.Read, payouts.ByHand, payouts.Found, payouts.Open, payouts.Calls}
		text += payoutsText(*payouts)
	}
	if err := l.a.emit(text); err != nil {
		return l.out, err
	}
	if s.run == nil {
		return l.out, s.unrunVerdict()
	}
	return l.out, s.verdict()
}

// payoutsJSON is what --payouts adds to --json.
type payoutsJSON struct {
	Read   int64 `json:"read"`
	ByHand int64 `json:"ordered_by_hand"`
	Found  int64 `json:"payments_found"`
	Open   int64 `json:"payments_in_none"`
	Calls  int64 `json:"calls"`
}

func payoutsText(p reconcile.PayoutReport) string {
	text := fmt.Sprintf("payouts: %d read, %d payments found in them, %d available and in none; %d calls\n", p.Read, p.Found, p.Open, p.Calls)
	if p.ByHand > 0 {
		text += fmt.Sprintf("%d payouts were ordered by hand: nobody can say what is in them\n", p.ByHand)
	}
	return text
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
	Opened      int64            `json:"findings_opened"`
	Closed      int64            `json:"findings_closed"`
	Sums        []auditSumJSON   `json:"sums"`
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
		Resumed: r.Resumed, Differences: map[string]int64{}, Notes: map[string]int64{}, Opened: r.Opened, Closed: r.Closed, Sums: []auditSumJSON{},
	}
	for _, d := range r.Differences {
		out.Differences[d.Kind] = d.Count
	}
	for _, d := range r.Notes {
		out.Notes[d.Kind] = d.Count
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

// shownFindings is how many findings the text shows.
const shownFindings = 20

func (a *app) auditText(r reconcile.AuditReport, findings []ledger.Finding, dryRun bool) string {
	var b strings.Builder
	for _, sum := range r.Sums {
		t := a.newTable(table.Row{clean(sum.Currency), "count", "amount"}, 2, 3)
		for _, line := range sum.Lines {
			what, count := "  "+line.What, fmt.Sprint(line.Count)
			if line.Total {
				what = "= " + line.What
			}
			if line.Count == 0 {
				count = ""
			}
			t.AppendRow(table.Row{what, count, auditAmount(sum, line)})
		}
		b.WriteString(t.Render() + "\n\n")
	}
	a.addFindings(&b, findings)
	fmt.Fprintf(&b, "%s; compared: %s with %s, %s and %s at Stripe (%s)\n", plural(r.Count(), "difference", "differences"),
		plural(r.Compared, "charge", "charges"), plural(r.Payments, "payment", "payments"), plural(r.Refunds, "refund", "refunds"),
		plural(r.Disputes, "dispute", "disputes"), plural(r.Calls, "call", "calls"))
	if r.Moving > 0 {
		fmt.Fprintf(&b, "%s not compared: they may be sent, or changed meanwhile\n", plural(r.Moving, "charge was", "charges were"))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "for the record: %d %s\n", n.Count, n.Kind)
	}
	if r.Settled > 0 {
		fmt.Fprintf(&b, "%s found paid, and settled\n", plural(r.Settled, "charge was", "charges were"))
	}
	if r.Closed > 0 {
		fmt.Fprintf(&b, "%s closed: no longer true\n", plural(r.Closed, "finding was", "findings were"))
	}
	if dryRun {
		b.WriteString("nothing was changed (dry run)\n")
	}
	return b.String()
}

// addFindings shows what needs a person.
func (a *app) addFindings(b *strings.Builder, findings []ledger.Finding) {
	t := a.newTable(table.Row{"finding", "kind", "account", "payment", "expected", "seen"}, 1)
	n := 0
	for _, f := range findings {
		if f.Severity != ledger.SeverityAct {
			continue
		}
		if n++; n <= shownFindings {
			t.AppendRow(table.Row{f.ID, f.Kind, clean(f.AccountID), clean(f.PaymentIntent), clean(f.Expected), clean(f.Seen)})
		}
	}
	if n == 0 {
		return
	}
	b.WriteString(t.Render() + "\n")
	if n > shownFindings {
		fmt.Fprintf(b, "and %d more; billing findings has them all\n", n-shownFindings)
	}
	b.WriteString("\n")
}
