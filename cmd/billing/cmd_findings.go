package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
	"github.com/chargeonce/billing/reconcile/export"
)

const findingsHelp = `Lists what Stripe and the ledger do not agree on, the oldest first, each with its
age and what to type about it. Without --all only those that nobody resolved.

Example:
   billing findings
   billing findings --period 2026-10 --severity act
   billing findings --all --account 4182 --format csv > findings.csv

Formats: text (the first 100), csv and jsonl (all). --json has the first thousand.
amount is the money that a finding is about, in major units: what was given back,
or what the payment came to, or else what was invoiced.

It is a report: it exits 0 if it could read, whatever it shows.

Exit codes: 0 shown   64 usage   69 Postgres unreachable
   74 the output can't be written   78 configuration`

const (
	// listedFindings bounds the list for people, keptFindings that of --json.
	listedFindings = 100
	keptFindings   = 1000
)

func (a *app) findingsCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "findings", Usage: "list what Stripe and the ledger do not agree on", Description: findingsHelp,
		Flags: []cli.Flag{
			periodFlag(),
			&cli.StringFlag{Name: "kind", Usage: "only findings of this kind, such as duplicate"},
			&cli.StringFlag{Name: "severity", Usage: "act (a person is needed) or note"},
			&cli.StringFlag{Name: "account", Usage: "only findings about this account"},
			&cli.BoolFlag{Name: "open", Usage: "only those that nobody resolved (the default)"},
			allFlag("those that were resolved too"),
			&cli.StringFlag{Name: "format", Usage: "text, csv or jsonl", Value: "text", EnvVars: []string{"BILLING_FORMAT"}},
		},
	}, findings)
}

func findings(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	query, err := findingsAsked(c)
	if err != nil {
		return nil, err
	}
	format := "text"
	if c.String("format") != "table" { // as other commands call it
		if format, err = a.formatOf(c, "text", "csv", "jsonl"); err != nil {
			return nil, err
		}
	}
	to, err := a.newFindingWriter(format, query)
	if err != nil {
		return nil, err
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	out := &result{Job: string(query.Job), Period: string(query.Period)}
	details := findingsJSON{Findings: []findingLineJSON{}}
	err = ledger.EachFinding(ctx, pool, query, func(f ledger.FindingState) error {
		details.Total++
		if a.json && details.Total <= keptFindings {
			out.addFindings([]ledger.Finding{f.Finding})
			details.Findings = append(details.Findings, findingLine(&f))
		}
		return to.write(findingLine(&f))
	})
	out.Details = details
	if err != nil {
		return out, err
	}
	return out, to.flush()
}

// findingsAsked reads which findings are wanted.
func findingsAsked(c *cli.Context) (q ledger.FindingQuery, err error) {
	if q.Job, err = jobOf(c); err != nil {
		return q, err
	}
	if q.Period, err = periodIfGiven(c); err != nil {
		return q, err
	}
	q.Kind, q.Severity, q.Account, q.All = c.String("kind"), ledger.Severity(c.String("severity")), c.String("account"), c.Bool("all")
	switch {
	case q.Kind != "" && !slices.Contains(findingKinds, q.Kind):
		err = usagef("--kind %q: want one of %s", q.Kind, strings.Join(findingKinds, ", "))
	case q.Severity != "" && q.Severity != ledger.SeverityAct && q.Severity != ledger.SeverityNote:
		err = usagef("--severity %q: want act or note", q.Severity)
	case q.All && c.Bool("open"):
		err = usagef("--open and --all: take one")
	}
	return q, err
}

// findingsJSON is what the list adds to --json.
type findingsJSON struct {
	Total    int64             `json:"total"`
	Findings []findingLineJSON `json:"findings"` // at most a thousand
}

// findingLineJSON is one finding in every format; the names are a public interface.
type findingLineJSON struct {
	ID            int64  `json:"id"`
	Kind          string `json:"kind"`
	Severity      string `json:"severity"`
	Job           string `json:"job"`
	Period        string `json:"period"`
	AccountID     string `json:"account_id"`
	BillingKey    string `json:"billing_key"`
	PaymentIntent string `json:"payment_intent"`
	// Amount is the money that it is about, AmountMinor the same in the currency's
	// smallest unit; empty and null where nobody knows.
	Amount      string `json:"amount"`
	Currency    string `json:"currency"`
	AmountMinor *int64 `json:"amount_minor"`
	Expected    string `json:"expected"`
	Seen        string `json:"seen"`
	OpenedAt    string `json:"opened_at"`
	AgeSeconds  int64  `json:"age_seconds"`
	ChargeState string `json:"charge_state"`
	Refund      string `json:"refund"`
	ResolvedAt  string `json:"resolved_at"`
	ResolvedBy  string `json:"resolved_by"`
	Resolution  string `json:"resolution"`
	Why         string `json:"why"`
	Next        string `json:"next"`

	age time.Duration
}

// findingKinds are all that a run, a look or an audit opens; the runbook has a section
// for each.
var findingKinds = []string{
	ledger.FindingDuplicate, "not_as_asked", "unknown_try", "idempotency_error", "not_recorded", "payment_intent_taken", "processing_long",
	ledger.FindingOrphan, ledger.FindingMissing, ledger.FindingAmountMismatch, ledger.FindingCurrencyMismatch, ledger.FindingWrongCustomer,
	ledger.FindingLatePaid, ledger.FindingAdjacentDouble, ledger.FindingRefunded, ledger.FindingDisputed, ledger.FindingCanceled,
}

var findingColumns = []string{
	"id", "kind", "severity", "job", "period", "account_id", "billing_key", "payment_intent", "amount", "currency", "amount_minor", "expected", "seen",
	"opened_at", "age_seconds", "charge_state", "refund", "resolved_at", "resolved_by", "resolution", "why", "next",
}

func findingLine(f *ledger.FindingState) findingLineJSON {
	line := findingLineJSON{
		ID: f.ID, Kind: f.Kind, Severity: string(f.Severity), Job: string(f.Job), Period: string(f.Period), AccountID: f.AccountID,
		BillingKey: f.BillingKey, PaymentIntent: f.PaymentIntent, Currency: f.Currency, Expected: f.Expected, Seen: reconcile.SeenText(f.Finding),
		OpenedAt: rfc3339(&f.OpenedAt), AgeSeconds: int64(f.Age / time.Second), ChargeState: string(f.ChargeState), Refund: f.OrderedRefund,
		ResolvedAt: rfc3339(f.ResolvedAt), ResolvedBy: f.ResolvedBy, Resolution: f.Resolution, Why: f.Why, Next: reconcile.NextAbout(*f), age: f.Age,
	}
	if minor, known := reconcile.AmountAbout(*f); known {
		line.Amount, line.AmountMinor = majorText(minor, f.Currency), &minor
	}
	return line
}

// findingWriter writes findings in one format.
type findingWriter interface {
	write(findingLineJSON) error
	flush() error
}

func (a *app) newFindingWriter(format string, query ledger.FindingQuery) (findingWriter, error) {
	switch {
	case a.json && (format == "csv" || format == "jsonl"):
		return nil, usagef("--format %s and --json are both about stdout: take one", format)
	case format == "csv":
		w := csv.NewWriter(a.out)
		return &csvFindings{w: w}, asOutput(w.Write(findingColumns))
	case format == "jsonl":
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return jsonFindings{enc}, nil
	}
	return &textFindings{a: a, query: query, t: a.newTable(table.Row{"finding", "age", "kind", "period", "account", "amount", "currency", "payment", "expected", "seen", "next"}, 1, 6)}, nil
}

func asOutput(err error) error {
	if err != nil {
		return outputError{error: fmt.Errorf("write the findings: %w", err)}
	}
	return nil
}

type jsonFindings struct{ enc *json.Encoder }

func (j jsonFindings) write(f findingLineJSON) error { return asOutput(j.enc.Encode(f)) }
func (j jsonFindings) flush() error                  { return nil }

type csvFindings struct{ w *csv.Writer }

func (c *csvFindings) write(f findingLineJSON) error {
	minor := ""
	if f.AmountMinor != nil {
		minor = strconv.FormatInt(*f.AmountMinor, 10)
	}
	return asOutput(c.w.Write([]string{
		strconv.FormatInt(f.ID, 10), f.Kind, f.Severity, f.Job, f.Period, f.AccountID, f.BillingKey, f.PaymentIntent,
		f.Amount, f.Currency, minor, f.Expected, f.Seen,
		f.OpenedAt, strconv.FormatInt(f.AgeSeconds, 10), f.ChargeState, f.Refund, f.ResolvedAt, export.Disarm(f.ResolvedBy), f.Resolution, export.Disarm(f.Why), f.Next,
	}))
}

func (c *csvFindings) flush() error {
	c.w.Flush()
	return asOutput(c.w.Error())
}

// textFindings keeps as many as people read.
type textFindings struct {
	a     *app
	query ledger.FindingQuery
	t     table.Writer
	// rows were found; act of them are open and need a person.
	rows, act int64
}

func (t *textFindings) write(f findingLineJSON) error {
	if f.ResolvedAt == "" && f.Severity == string(ledger.SeverityAct) {
		t.act++
	}
	if t.rows++; t.rows > listedFindings {
		return nil
	}
	next := cleanLines(f.Next)
	if f.ResolvedAt != "" {
		next = clean(fmt.Sprintf("%s by %s: %s", f.Resolution, f.ResolvedBy, f.Why))
	}
	kind := f.Kind
	if f.Severity == string(ledger.SeverityNote) {
		kind += " (note)"
	}
	t.t.AppendRow(table.Row{f.ID, ageText(f.age), kind, f.Period, clean(f.AccountID), f.Amount, clean(f.Currency), f.PaymentIntent, clean(f.Expected), clean(f.Seen), next})
	return nil
}

func (t *textFindings) flush() error {
	if t.rows == 0 {
		return t.a.emit(noFindings(t.query))
	}
	var b strings.Builder
	b.WriteString(t.t.Render() + "\n")
	if more := t.rows - listedFindings; more > 0 {
		fmt.Fprintf(&b, "and %d more; --format csv has them all\n", more)
	}
	b.WriteString(plural(t.act, "finding needs a person", "findings need a person") + "\n")
	return t.a.emit(b.String())
}

// noFindings names the filters: none of this kind is not none at all.
func noFindings(q ledger.FindingQuery) string {
	text := "no findings"
	for _, filter := range [][2]string{{"period", string(q.Period)}, {"kind", q.Kind}, {"severity", string(q.Severity)}, {"account", q.Account}} {
		if filter[1] != "" {
			text += ", " + filter[0] + " " + clean(filter[1])
		}
	}
	if !q.All {
		text += "; --all lists the resolved ones too"
	}
	return text + "\n"
}

// cleanLines is clean for what has a line for each command.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// ageText is how long ago something was, in the two largest units.
func ageText(d time.Duration) string {
	switch d = max(d, 0); {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd %dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}
