package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
)

const exportChargesHelp = `Writes every charge of a period, in the order of account ids, with the columns of
the view report_charges. Amounts are in major units with the digits of their
currency, times are RFC 3339 in UTC. A file appears whole or not at all. In CSV a
name that a spreadsheet would run as a formula gets an apostrophe in front; no
other column is touched. A BILLING_FORMAT that is neither csv nor jsonl is refused:
type --format.

Example:
   billing export charges --period 2026-10 --format csv --output charges.csv

Exit codes: 0 written   64 usage   69 Postgres unreachable
   73 the file can't be created   74 the file can't be written; an old one is
   as it was   78 configuration`

func (a *app) exportCommand(code *int) *cli.Command {
	return a.group(&cli.Command{
		Name: "export", Usage: "write the ledger to files",
		Subcommands: []*cli.Command{
			a.command(code, &cli.Command{
				Name: "charges", Usage: "every charge of a period", Description: exportChargesHelp,
				Flags: []cli.Flag{
					periodFlag(),
					&cli.StringFlag{Name: "format", Usage: "csv or jsonl", Value: "csv", EnvVars: []string{"BILLING_FORMAT"}},
					&cli.StringFlag{Name: "output", Usage: "the file to write, or - for stdout", Value: "-", EnvVars: []string{"BILLING_OUTPUT"}},
				},
			}, exportCharges),
		},
	})
}

// exportJSON is what an export adds to --json.
type exportJSON struct {
	Output string `json:"output"`
	Format string `json:"format"`
	Rows   int64  `json:"rows"`
}

func exportCharges(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	job, period, err := jobAndPeriodOf(c)
	if err != nil {
		return nil, err
	}
	format, output := c.String("format"), c.String("output")
	newWriter, known := chargeWriters[format]
	switch {
	case !known && !a.typed("format"):
		// Another format than is set for the host would be written into somebody's file.
		return nil, usagef("BILLING_FORMAT is %q, and an export has csv and jsonl: type --format csv, or --format jsonl", format)
	case !known:
		return nil, usagef("--format %q: want csv or jsonl", format)
	case output == "":
		return nil, usagef("--output is empty: type the file's name, or - for stdout")
	case output == "-" && a.json:
		return nil, usagef("--json and the export would both go to stdout: name a file with --output")
	}
	pool, err := openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	rows := int64(0)
	err = a.writeOutput(output, func(w io.Writer) error {
		to, err := newWriter(w)
		if err != nil {
			return err
		}
		err = ledger.EachReportCharge(ctx, pool, job, period, func(charge ledger.ReportCharge) error {
			rows++
			return to.write(charge)
		})
		if err != nil {
			return err
		}
		return to.flush()
	})
	out := &result{Job: string(job), Period: string(period), Details: exportJSON{output, format, rows}}
	if err != nil {
		return out, err
	}
	if rows == 0 {
		a.warn(out, "%s of %s has no charges; see: billing status --period %s", period, job, period)
	}
	if output == "-" {
		return out, nil
	}
	return out, a.emit(fmt.Sprintf("%s: %s of %s\n", output, plural(rows, "charge", "charges"), period))
}

// chargeWriter writes charges in one format.
type chargeWriter interface {
	write(ledger.ReportCharge) error
	flush() error
}

var chargeWriters = map[string]func(io.Writer) (chargeWriter, error){
	"csv":   newCSVCharges,
	"jsonl": newJSONCharges,
}

// chargeJSONL is one line of JSON, in the order of the columns of report_charges.
type chargeJSONL struct {
	Job            string  `json:"job"`
	Period         string  `json:"period"`
	AccountID      string  `json:"account_id"`
	Name           string  `json:"name"`
	BillingKey     string  `json:"billing_key"`
	Try            int     `json:"try"`
	IdempotencyKey *string `json:"idempotency_key"`
	State          string  `json:"state"`
	Reason         string  `json:"reason"`
	Amount         string  `json:"amount"`
	Currency       string  `json:"currency"`
	AmountMinor    *int64  `json:"amount_minor"`
	PaymentIntent  *string `json:"payment_intent"`
	StripeCustomer string  `json:"stripe_customer"`
	StripeAccount  string  `json:"stripe_account"`
	DeclineCode    string  `json:"decline_code"`
	AmountRefunded string  `json:"amount_refunded"`
	Disputed       bool    `json:"disputed"`
	Sends          int     `json:"sends"`
	CreatedAt      string  `json:"created_at"`
	WindowOpenedAt *string `json:"window_opened_at"`
	SettledAt      *string `json:"settled_at"`
	RunID          string  `json:"run_id"`
	RequestID      string  `json:"request_id"`
	// What an audit saw on Stripe's balance, in its currency.
	Fee             *string `json:"fee"`
	Net             *string `json:"net"`
	Payout          string  `json:"payout"`
	AvailableOn     *string `json:"available_on"`
	Refunds         int     `json:"refunds"`
	BalanceCurrency string  `json:"balance_currency"`
}

func chargeToJSONL(c ledger.ReportCharge) chargeJSONL {
	return chargeJSONL{
		Job: string(c.Job), Period: string(c.Period), AccountID: c.AccountID, Name: c.Name, BillingKey: c.BillingKey, Try: c.Try,
		IdempotencyKey: c.IdempotencyKey, State: string(c.State), Reason: c.Reason, Amount: moneyText(c.Amount, c.Currency),
		Currency: c.Currency, AmountMinor: c.AmountMinor, PaymentIntent: c.PaymentIntent, StripeCustomer: c.StripeCustomer,
		StripeAccount: c.StripeAccount, DeclineCode: c.DeclineCode, AmountRefunded: moneyText(c.AmountRefunded, c.Currency),
		Disputed: c.Disputed, Sends: c.Sends, CreatedAt: rfc3339(&c.CreatedAt), WindowOpenedAt: nullIfEmpty(rfc3339(c.WindowOpenedAt)),
		SettledAt: nullIfEmpty(rfc3339(c.SettledAt)), RunID: c.RunID.String(), RequestID: c.RequestID,
		Fee: bookedText(c.Fee, c.BalanceCurrency), Net: bookedText(c.Net, c.BalanceCurrency), Payout: c.Payout,
		AvailableOn: nullIfEmpty(rfc3339(c.AvailableOn)), Refunds: c.Refunds, BalanceCurrency: c.BalanceCurrency,
	}
}

// bookedText is an amount on Stripe's balance, nil until it is booked.
func bookedText(amount *string, currency string) *string {
	if amount == nil {
		return nil
	}
	text := moneyText(*amount, currency)
	return &text
}

func nullIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type jsonCharges struct{ enc *json.Encoder }

func newJSONCharges(w io.Writer) (chargeWriter, error) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return jsonCharges{enc}, nil
}

func (j jsonCharges) write(c ledger.ReportCharge) error { return j.enc.Encode(chargeToJSONL(c)) }
func (j jsonCharges) flush() error                      { return nil }

// chargeColumns are the columns of report_charges, a public interface.
var chargeColumns = []string{
	"job", "period", "account_id", "name", "billing_key", "try", "idempotency_key", "state", "reason", "amount", "currency",
	"amount_minor", "payment_intent", "stripe_customer", "stripe_account", "decline_code", "amount_refunded", "disputed", "sends",
	"created_at", "window_opened_at", "settled_at", "run_id", "request_id",
	"fee", "net", "payout", "available_on", "refunds", "balance_currency",
}

type csvCharges struct {
	w   *csv.Writer
	row []string
}

func newCSVCharges(w io.Writer) (chargeWriter, error) {
	out := &csvCharges{w: csv.NewWriter(w)}
	return out, out.w.Write(chargeColumns)
}

func (c *csvCharges) write(charge ledger.ReportCharge) error {
	v := chargeToJSONL(charge)
	minor := ""
	if v.AmountMinor != nil {
		minor = strconv.FormatInt(*v.AmountMinor, 10)
	}
	c.row = append(c.row[:0], v.Job, v.Period, v.AccountID, disarm(v.Name), v.BillingKey, strconv.Itoa(v.Try), orEmpty(v.IdempotencyKey),
		v.State, v.Reason, v.Amount, v.Currency, minor, orEmpty(v.PaymentIntent), v.StripeCustomer, v.StripeAccount, v.DeclineCode,
		v.AmountRefunded, strconv.FormatBool(v.Disputed), strconv.Itoa(v.Sends), v.CreatedAt, orEmpty(v.WindowOpenedAt),
		orEmpty(v.SettledAt), v.RunID, v.RequestID, orEmpty(v.Fee), orEmpty(v.Net), v.Payout, orEmpty(v.AvailableOn),
		strconv.Itoa(v.Refunds), v.BalanceCurrency)
	return c.w.Write(c.row)
}

func (c *csvCharges) flush() error {
	c.w.Flush()
	return c.w.Error()
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// disarm keeps a spreadsheet from running text as a formula. Only names go
// through it: ids must come back byte for byte, and -70.00 is a number.
func disarm(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
