package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditPayment is a PaymentIntent as an audit noted it. Amounts are in minor units.
type AuditPayment struct {
	PaymentIntent  string
	BillingKey     string // the ledger's, where it knows the payment by its id
	Job            Job
	Period         Period
	AccountID      string
	Try            int
	Status         string
	Amount         int64
	Received       int64
	Currency       string
	StripeCustomer string
	StripeAccount  string
	Created        time.Time
	// What was booked on the balance, in its currency, of which BalanceDigits are
	// the decimals; empty where nothing was yet.
	BalanceCurrency string
	BalanceDigits   int
	Gross, Fee, Net int64
	BookedAt        *time.Time
	AvailableOn     *time.Time
	// Refunds, Refunded and Disputes are counted from their own lists, and not noted.
	Refunds  int
	Refunded int64
	Disputes int
}

// A payment that the ledger knows by its id is its charge's, whatever its metadata
// says today. Of the others, those are kept that carry a key of this period, or may
// be payments of the same debt under another key.
const sqlNotePayments = `
INSERT INTO billing.audit_payments (audit, payment_intent, billing_key, job, period, account_id, try, status, amount, received, currency,
    stripe_customer, stripe_account, created, balance_currency, balance_digits, gross, fee, net, available_on, booked_at)
SELECT @audit, p.id, coalesce(c.billing_key, p.key), coalesce(c.job, p.job), coalesce(c.period, p.period), coalesce(c.account_id, p.account),
    p.try, p.status, p.amount, p.received, p.currency, p.customer, @stripe_account, p.created, p.balance, p.digits, p.gross, p.fee, p.net, p.available, p.booked
FROM unnest(@ids::text[], @keys::text[], @jobs::text[], @periods::text[], @accounts::text[], @tries::int[], @statuses::text[],
        @amounts::bigint[], @receiveds::bigint[], @currencies::text[], @customers::text[], @createds::timestamptz[],
        @balances::text[], @digits::int[], @grosses::bigint[], @fees::bigint[], @nets::bigint[], @availables::timestamptz[], @bookeds::timestamptz[])
    AS p(id, key, job, period, account, try, status, amount, received, currency, customer, created, balance, digits, gross, fee, net, available, booked)
LEFT JOIN LATERAL (SELECT c.billing_key, c.job, c.period, c.account_id FROM billing.charges c WHERE c.payment_intent = p.id OFFSET 0) c ON true
WHERE coalesce(c.period, p.period) = ANY (@near::text[])
ON CONFLICT ON CONSTRAINT audit_payments_pkey DO NOTHING`

// NotePayments keeps what a page showed of this period's payments and those near it.
func (a Audit) NotePayments(ctx context.Context, tx pgx.Tx, stripeAccount string, list []AuditPayment) error {
	_, err := tx.Exec(ctx, sqlNotePayments, pgx.NamedArgs{
		"audit": a.ID, "stripe_account": stripeAccount,
		"near":       []string{string(a.Period.Previous()), string(a.Period), string(a.Period.Next())},
		"ids":        columnOf(list, func(p AuditPayment) string { return p.PaymentIntent }),
		"keys":       columnOf(list, func(p AuditPayment) string { return p.BillingKey }),
		"jobs":       columnOf(list, func(p AuditPayment) string { return string(p.Job) }),
		"periods":    columnOf(list, func(p AuditPayment) string { return string(p.Period) }),
		"accounts":   columnOf(list, func(p AuditPayment) string { return p.AccountID }),
		"tries":      columnOf(list, func(p AuditPayment) int { return p.Try }),
		"statuses":   columnOf(list, func(p AuditPayment) string { return p.Status }),
		"amounts":    columnOf(list, func(p AuditPayment) int64 { return p.Amount }),
		"receiveds":  columnOf(list, func(p AuditPayment) int64 { return p.Received }),
		"currencies": columnOf(list, func(p AuditPayment) string { return p.Currency }),
		"customers":  columnOf(list, func(p AuditPayment) string { return p.StripeCustomer }),
		"createds":   columnOf(list, func(p AuditPayment) time.Time { return p.Created }),
		"balances":   columnOf(list, func(p AuditPayment) string { return p.BalanceCurrency }),
		"digits":     columnOf(list, func(p AuditPayment) int { return p.BalanceDigits }),
		"grosses":    columnOf(list, func(p AuditPayment) int64 { return p.Gross }),
		"fees":       columnOf(list, func(p AuditPayment) int64 { return p.Fee }),
		"nets":       columnOf(list, func(p AuditPayment) int64 { return p.Net }),
		"availables": columnOf(list, func(p AuditPayment) *time.Time { return p.AvailableOn }),
		"bookeds":    columnOf(list, func(p AuditPayment) *time.Time { return p.BookedAt }),
	})
	if err != nil {
		return fmt.Errorf("note a page of payments: %w", err)
	}
	return nil
}

// AuditReturn is money that went back, as an audit noted it.
type AuditReturn struct {
	ID              string
	Kind            string // refund, dispute
	PaymentIntent   string
	Status          string
	Amount          int64 // what stands of it; 0 for a refund that failed
	Currency        string
	BalanceCurrency string
	// Gross is what it moved on the balance, negative where that left; Fee is what
	// Stripe took for it.
	Gross, Fee int64
	// Moves are its movements one by one: money may come back on a later day.
	Moves []AuditMove
}

// AuditMove is one movement of a return on the balance, in minor units of Currency.
type AuditMove struct {
	At       time.Time `json:"at"`
	Currency string    `json:"currency"`
	Gross    int64     `json:"gross"`
	Fee      int64     `json:"fee"`
}

const sqlNoteReturns = `
INSERT INTO billing.audit_returns (audit, id, kind, payment_intent, status, amount, currency, balance_currency, gross, fee, moves)
SELECT @audit, r.* FROM unnest(@ids::text[], @kinds::text[], @payments::text[], @statuses::text[], @amounts::bigint[], @currencies::text[],
    @balances::text[], @grosses::bigint[], @fees::bigint[], @moves::jsonb[]) AS r(id, kind, payment, status, amount, currency, balance, gross, fee, moves)
ON CONFLICT ON CONSTRAINT audit_returns_pkey DO NOTHING`

// NoteReturns keeps a page of refunds or disputes.
func (a Audit) NoteReturns(ctx context.Context, tx pgx.Tx, list []AuditReturn) error {
	moves := make([]string, len(list))
	for i, r := range list {
		text, err := json.Marshal(r.Moves)
		if err != nil {
			return fmt.Errorf("note a page of refunds or disputes: %w", err)
		}
		moves[i] = string(text)
	}
	_, err := tx.Exec(ctx, sqlNoteReturns, pgx.NamedArgs{
		"audit":      a.ID,
		"ids":        columnOf(list, func(r AuditReturn) string { return r.ID }),
		"kinds":      columnOf(list, func(r AuditReturn) string { return r.Kind }),
		"payments":   columnOf(list, func(r AuditReturn) string { return r.PaymentIntent }),
		"statuses":   columnOf(list, func(r AuditReturn) string { return r.Status }),
		"amounts":    columnOf(list, func(r AuditReturn) int64 { return r.Amount }),
		"currencies": columnOf(list, func(r AuditReturn) string { return r.Currency }),
		"balances":   columnOf(list, func(r AuditReturn) string { return r.BalanceCurrency }),
		"grosses":    columnOf(list, func(r AuditReturn) int64 { return r.Gross }),
		"fees":       columnOf(list, func(r AuditReturn) int64 { return r.Fee }),
		"moves":      moves,
	})
	if err != nil {
		return fmt.Errorf("note a page of refunds or disputes: %w", err)
	}
	return nil
}

// sqlDropCompared forgets what an audit that was killed had concluded.
const sqlDropCompared = `DELETE FROM billing.audit_differences WHERE audit = $1`

// CompareAgain forgets what an audit concluded before it was killed: it is concluded
// again from the same pages.
func (a Audit) CompareAgain(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlDropCompared, a.ID); err != nil {
		return fmt.Errorf("begin to compare: %w", err)
	}
	return nil
}

// That a payment is not as asked may have been found by a run, as a finding of its own:
// a person says once what is to be done about it.
const sqlNoteDifferences = `
INSERT INTO billing.audit_differences (audit, kind, severity, account_id, billing_key, payment_intent, currency, expected, seen)
SELECT @audit, d.* FROM unnest(@kinds::text[], @severities::text[], @accounts::text[], @keys::text[], @payments::text[], @currencies::text[],
    @expected::text[], @seen::text[]) AS d(kind, severity, account, key, payment, currency, expected, seen)
WHERE NOT (d.kind = ANY (@mismatches::text[]) AND EXISTS (SELECT FROM billing.findings f
    WHERE f.kind = 'not_as_asked' AND f.billing_key = d.key AND f.payment_intent = d.payment))
ON CONFLICT ON CONSTRAINT audit_differences_pkey DO NOTHING`

// NoteDifferences keeps what will be findings once the audit is complete.
func (a Audit) NoteDifferences(ctx context.Context, tx pgx.Tx, list []Finding) error {
	_, err := tx.Exec(ctx, sqlNoteDifferences, pgx.NamedArgs{
		"audit":      a.ID,
		"mismatches": []string{FindingAmountMismatch, FindingCurrencyMismatch, FindingWrongCustomer},
		"kinds":      columnOf(list, func(f Finding) string { return f.Kind }),
		"severities": columnOf(list, func(f Finding) string { return string(f.Severity) }),
		"accounts":   columnOf(list, func(f Finding) string { return f.AccountID }),
		"keys":       columnOf(list, func(f Finding) string { return f.BillingKey }),
		"payments":   columnOf(list, func(f Finding) string { return f.PaymentIntent }),
		"currencies": columnOf(list, func(f Finding) string { return f.Currency }),
		"expected":   columnOf(list, func(f Finding) string { return f.Expected }),
		"seen":       columnOf(list, func(f Finding) string { return f.Seen }),
	})
	if err != nil {
		return fmt.Errorf("note differences: %w", err)
	}
	return nil
}
