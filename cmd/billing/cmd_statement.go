package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

const statementHelp = `Shows every month of one account: what was invoiced, what became of it, what was
paid and given back, and what is open. What is open is of the ledger: a refund does
not make it more. A month that is invoiced and has no charge yet is "invoiced". CSV
has one line a month. BILLING_FORMAT and BILLING_OUTPUT, which are of the exports, do
not count here.

Examples:
   billing statement --account acct-1001
   billing statement --account acct-1001 --format csv --output acct-1001.csv

Exit codes: 0 shown   64 usage, or there is no such account   69 Postgres unreachable
   73 / 74 the file can't be created / written   78 configuration`

func (a *app) statementCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "statement", Usage: "every month of one account", Description: statementHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "account", Usage: "whose"},
			&cli.StringFlag{Name: "format", Usage: "table or csv", Value: "table"},
			&cli.StringFlag{Name: "output", Usage: "the file to write, or - for stdout", Value: "-"},
		},
	}, statement)
}

// statementJSON is what statement adds to --json.
type statementJSON struct {
	Account string            `json:"account_id"`
	Months  []statementMonth  `json:"months"`
	Open    map[string]string `json:"open"` // by currency
	lines   []ledger.StatementLine
	totals  map[string][4]decimal.Decimal
}

// stateInvoiced is of a month that has no charge yet.
const stateInvoiced = "invoiced"

type statementMonth struct {
	Period        string  `json:"period"`
	InvoiceID     string  `json:"invoice_id"`
	Description   string  `json:"description"`
	State         string  `json:"state"`
	Reason        string  `json:"reason"`
	Currency      string  `json:"currency"`
	Amount        string  `json:"amount"`
	Paid          string  `json:"paid"`
	Refunded      string  `json:"refunded"`
	Open          string  `json:"open"`
	Disputed      bool    `json:"disputed"`
	SettledAt     *string `json:"settled_at"`
	PaymentIntent *string `json:"payment_intent"`
}

func statement(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, err := jobOf(c)
	if err != nil {
		return nil, err
	}
	account, format, output := c.String("account"), c.String("format"), c.String("output")
	switch {
	case account == "":
		return nil, usagef("--account is missing: type the account's id, such as --account acct-1001")
	case format != "table" && format != "csv":
		return nil, usagef("--format %q: want table or csv", format)
	case output == "":
		return nil, usagef("--output is empty: type the file's name, or - for stdout")
	case export.IsBucket(output):
		return nil, usagef("--output %s: a statement goes into a file or to stdout, and not into a bucket", output)
	case a.json && output == "-" && format == "csv":
		return nil, usagef("--json and the statement would both go to stdout: name a file with --output")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	lines, err := ledger.Statement(ctx, pool, job, account)
	if err != nil {
		return nil, err
	}
	s := newStatement(account, lines)
	out := &result{Job: string(job), Details: s}
	if format == "csv" {
		return out, a.writeOutput(output, s.writeCSV)
	}
	text := s.text(a, string(job))
	if output == "-" {
		return out, a.emit(text)
	}
	return out, a.writeOutput(output, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
}

func newStatement(account string, lines []ledger.StatementLine) statementJSON {
	s := statementJSON{Account: account, Open: map[string]string{}, lines: lines, totals: map[string][4]decimal.Decimal{}}
	for _, l := range lines {
		open := moneyText(l.Open().String(), l.Currency)
		s.Months = append(s.Months, statementMonth{
			Period: string(l.Period), InvoiceID: l.InvoiceID, Description: l.Description, State: cmp.Or(string(l.State), stateInvoiced), Reason: l.Reason,
			Currency: l.Currency, Amount: moneyText(l.Amount, l.Currency), Paid: moneyText(l.Paid, l.Currency),
			Refunded: moneyText(l.Refunded, l.Currency), Open: open, Disputed: l.Disputed,
			SettledAt: nullIfEmpty(rfc3339(l.SettledAt)), PaymentIntent: l.PaymentIntent,
		})
		sum := s.totals[l.Currency]
		for i, text := range []string{l.Amount, l.Paid, l.Refunded, l.Open().String()} {
			if d, err := decimal.NewFromString(text); err == nil {
				sum[i] = sum[i].Add(d)
			}
		}
		s.totals[l.Currency] = sum
		s.Open[l.Currency] = moneyText(sum[3].String(), l.Currency)
	}
	return s
}

func (s statementJSON) text(a *app, job string) string {
	t := a.newTable(table.Row{"period", "invoice", "state", "reason", "currency", "invoiced", "paid", "refunded", "open", "settled"}, 6, 7, 8, 9)
	for i, m := range s.Months {
		settled := timeText(s.lines[i].SettledAt)
		state := m.State
		if m.Disputed {
			state += ", disputed"
		}
		t.AppendRow(table.Row{m.Period, clean(m.InvoiceID), state, clean(m.Reason), clean(m.Currency), clean(m.Amount), clean(m.Paid), m.Refunded, m.Open, settled})
	}
	for _, currency := range slices.Sorted(maps.Keys(s.totals)) {
		row := table.Row{"all", "", "", "", clean(currency)}
		for _, sum := range s.totals[currency] {
			row = append(row, moneyText(sum.String(), currency))
		}
		t.AppendFooter(row)
	}
	return "account " + clean(s.Account) + ", " + job + "\n" + t.Render() + "\n"
}

var statementTable = export.Table{Name: "statement", Columns: []export.Column{
	{Name: "account_id", Kind: export.KindID}, {Name: "period", Kind: export.KindID}, {Name: "invoice_id", Kind: export.KindID}, {Name: "description"},
	{Name: "state"}, {Name: "reason"}, {Name: "amount", Kind: export.KindAmount, Currency: "currency"}, {Name: "currency"},
	{Name: "paid", Kind: export.KindAmount, Currency: "currency"}, {Name: "refunded", Kind: export.KindAmount, Currency: "currency"},
	{Name: "open", Kind: export.KindAmount, Currency: "currency"}, {Name: "disputed", Kind: export.KindBool},
	{Name: "settled_at", Kind: export.KindID}, {Name: "payment_intent", Kind: export.KindID},
}}

func (s statementJSON) writeCSV(w io.Writer) error {
	to, err := export.NewEncoder("csv", w, statementTable)
	if err != nil {
		return err
	}
	for _, m := range s.Months {
		row := export.Row{}
		for _, cell := range []string{
			s.Account, m.Period, m.InvoiceID, m.Description, m.State, m.Reason, m.Amount, m.Currency, m.Paid, m.Refunded, m.Open,
			strconv.FormatBool(m.Disputed), orEmpty(m.SettledAt), orEmpty(m.PaymentIntent),
		} {
			row = append(row, []byte(cell))
		}
		if err := to.Write(row); err != nil {
			return err
		}
	}
	return to.Flush()
}
