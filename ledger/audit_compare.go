package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

// AuditCharge is a charge as an audit compares it.
type AuditCharge struct {
	OpenCharge
	// Moved says that it was recorded or changed after the audit began; Sending that
	// it is pending inside its window or leased. Neither is compared.
	Moved, Sending bool
	// Tries and TryCustomers are its closed tries, and whom they asked.
	Tries        []int
	TryCustomers []string
}

const sqlAuditChargesCursor = `
DECLARE %s NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT` + openColumns + `,
    c.created_at >= $3::timestamptz OR coalesce(e.at >= $3::timestamptz, false) OR coalesce(c.last_sent_at >= $3::timestamptz, false) AS moved,
    c.state = 'pending' AND (c.window_opened_at + $4::interval > clock.t OR coalesce(c.lease_until > clock.t, false)) AS sending,
    CASE WHEN c.try > 1 THEN ARRAY(SELECT t.try FROM billing.charge_tries t
        WHERE t.job = c.job AND t.period = c.period AND t.account_id = c.account_id ORDER BY t.try) END AS tries,
    CASE WHEN c.try > 1 THEN ARRAY(SELECT t.stripe_customer FROM billing.charge_tries t
        WHERE t.job = c.job AND t.period = c.period AND t.account_id = c.account_id ORDER BY t.try) END AS try_customers
FROM (SELECT billing.now() AS t OFFSET 0) clock, billing.charges c
LEFT JOIN billing.charge_events e ON e.id = c.last_event
WHERE c.job = $1 AND c.period = $2 ORDER BY c.billing_key`

// WholeSides makes Postgres join whole sides for the rest of a transaction: it may have
// no statistics yet of what was just noted, and would look up each row on its own.
func WholeSides(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlNoNestedLoops); err != nil {
		return fmt.Errorf("begin to compare: %w", err)
	}
	return nil
}

// Charges reads the charges of the period in the order of billing keys as bytes.
func (a Audit) Charges(ctx context.Context, tx pgx.Tx) (*Cursor[AuditCharge], error) {
	c, err := openCursor[AuditCharge](ctx, tx, "audit_charges", sqlAuditChargesCursor, string(a.Job), string(a.Period), a.StartedAt, (Window + RequestDead).String())
	if err != nil {
		return nil, fmt.Errorf("read the charges of %s: %w", a.Period, err)
	}
	return c, nil
}

const sqlAuditPaymentsCursor = `
DECLARE %s NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT p.payment_intent, p.billing_key, p.job, p.period, p.account_id, p.try, p.status, p.amount, p.received, p.currency, p.stripe_customer,
    p.stripe_account, p.created, p.balance_currency, p.balance_digits, p.gross, p.fee, p.net, p.booked_at, p.available_on,
    coalesce(r.refunds, 0)::int AS refunds, coalesce(r.refunded, 0)::bigint AS refunded, coalesce(r.disputes, 0)::int AS disputes
FROM billing.audit_payments p
LEFT JOIN (SELECT payment_intent, count(*) FILTER (WHERE kind = 'refund' AND amount > 0) AS refunds,
        sum(amount) FILTER (WHERE kind = 'refund') AS refunded, count(*) FILTER (WHERE kind = 'dispute') AS disputes
    FROM billing.audit_returns WHERE audit = $1 GROUP BY payment_intent) r ON r.payment_intent = p.payment_intent
WHERE p.audit = $1 AND p.job = $2 AND p.period = $3
ORDER BY p.billing_key, p.created, p.payment_intent`

// Payments reads the payments of the period in the order of billing keys as bytes,
// and of a key's the earliest first.
func (a Audit) Payments(ctx context.Context, tx pgx.Tx) (*Cursor[AuditPayment], error) {
	c, err := openCursor[AuditPayment](ctx, tx, "audit_payments", sqlAuditPaymentsCursor, a.ID, string(a.Job), string(a.Period))
	if err != nil {
		return nil, fmt.Errorf("read the payments of %s: %w", a.Period, err)
	}
	return c, nil
}

// AuditLine is one line of what a sum is made of. Amount is in major units and
// signed: the lines of a currency add up.
type AuditLine struct {
	Currency string
	What     string
	Count    int64
	Amount   decimal.Decimal
}

// What is owed, and how it became what is recorded: each row of billable and each
// charge is in the lines it belongs to. What is no number has no sum.
const sqlInvoiceLines = `
WITH b AS MATERIALIZED (SELECT account_id::text AS account_id, amount, lower(currency) AS currency FROM billing.billable WHERE job = $1 AND period = $2),
c AS MATERIALIZED (SELECT account_id, amount, lower(currency) AS currency FROM billing.charges WHERE job = $1 AND period = $2),
both_sides AS MATERIALIZED (
    SELECT b.account_id IS NULL AS uninvoiced, c.account_id IS NULL AS unrecorded, b.currency AS owed_in, c.currency, b.amount AS owed, c.amount
    FROM b FULL JOIN c ON c.account_id = b.account_id),
lines AS (
    SELECT owed_in AS currency, 'invoiced' AS what, owed AS amount FROM both_sides WHERE NOT uninvoiced
    UNION ALL SELECT owed_in, 'not recorded', -owed FROM both_sides WHERE unrecorded
    UNION ALL SELECT currency, 'recorded, invoice gone', amount FROM both_sides WHERE uninvoiced
    UNION ALL SELECT owed_in, 'recorded otherwise', -owed FROM both_sides WHERE (owed, owed_in) IS DISTINCT FROM (amount, currency) AND NOT unrecorded AND NOT uninvoiced
    UNION ALL SELECT currency, 'recorded otherwise', amount FROM both_sides WHERE (owed, owed_in) IS DISTINCT FROM (amount, currency) AND NOT unrecorded AND NOT uninvoiced)
SELECT currency, what, count(*) AS count, coalesce(sum(amount) FILTER (WHERE amount > '-Infinity' AND amount < 'Infinity'), 0) AS amount
FROM lines GROUP BY currency, what`

// InvoiceLines says what was invoiced and how it differs from what is recorded.
func (a Audit) InvoiceLines(ctx context.Context, q Querier) ([]AuditLine, error) {
	rows, _ := q.Query(ctx, sqlInvoiceLines, a.Job, a.Period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[AuditLine])
	if err != nil {
		return nil, fmt.Errorf("sum %s: %w", a.Period, err)
	}
	return list, nil
}

// BalanceSum is what some payments or returns came to on the balance on one day, in
// minor units: what was paid or asked back in one currency, and booked in another or
// the same.
type BalanceSum struct {
	Kind string // payment, refund, dispute
	// Own says that it is of payments by which charges are paid, by the ledger's word;
	// of returns alone.
	Own             bool
	Currency        string
	BalanceCurrency string // empty where nothing is booked yet
	Day             string // of the period's time zone, such as 2026-11-03; empty where nobody knows
	Count           int64  // of payments, or of returns by the day of their first movement
	Moves           int64  // of payments, or of movements
	Amount          int64  // in Currency
	Gross           int64  // in BalanceCurrency, negative where money left
	Fee             int64
}

// There are as many rows as days, times currencies: they do not grow with the period. A
// return without a movement is under way, and in no sum. A return that an older program
// noted has one movement of which the day is not known.
const sqlBalanceSums = `
WITH zone AS MATERIALIZED (
    SELECT coalesce((SELECT r.time_zone FROM billing.job_runs r WHERE r.job = $2 AND r.period = $3), 'UTC') AS name),
moves AS (
    SELECT 'payment' AS kind, false AS own, p.currency, p.balance_currency, p.booked_at AS at, true AS first, p.received AS amount, p.gross, p.fee
    FROM billing.audit_payments p WHERE p.audit = $1 AND p.job = $2 AND p.period = $3 AND p.status = 'succeeded'
    UNION ALL
    SELECT r.kind, c.payment_intent IS NOT NULL, r.currency, m.currency, m.at, m.n = 1, r.amount, m.gross, m.fee
    FROM billing.audit_returns r JOIN billing.audit_payments p ON p.audit = r.audit AND p.payment_intent = r.payment_intent
    LEFT JOIN billing.charges c ON c.payment_intent = p.payment_intent AND c.state = 'succeeded'
    CROSS JOIN LATERAL (
        SELECT j.at, j.currency, j.gross, j.fee, j.n
        FROM ROWS FROM (jsonb_to_recordset(r.moves) AS (at timestamptz, currency text, gross bigint, fee bigint)) WITH ORDINALITY AS j(at, currency, gross, fee, n)
        UNION ALL SELECT NULL, r.balance_currency, r.gross, r.fee, 1 WHERE r.moves IS NULL AND r.balance_currency <> '') m
    WHERE r.audit = $1 AND p.job = $2 AND p.period = $3)
SELECT kind, own, m.currency, balance_currency, coalesce(to_char((at AT TIME ZONE zone.name)::date, 'YYYY-MM-DD'), '') AS day,
    count(*) FILTER (WHERE first) AS count, count(*) AS moves, coalesce(sum(amount) FILTER (WHERE first), 0)::bigint AS amount,
    sum(gross)::bigint AS gross, sum(fee)::bigint AS fee
FROM moves m, zone GROUP BY kind, own, m.currency, balance_currency, (at AT TIME ZONE zone.name)::date ORDER BY 1, 2, 3, 4, 5`

// BalanceSums says what the payments of the period came to on Stripe's balance.
func (a Audit) BalanceSums(ctx context.Context, q Querier) ([]BalanceSum, error) {
	rows, _ := q.Query(ctx, sqlBalanceSums, a.ID, a.Job, a.Period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[BalanceSum])
	if err != nil {
		return nil, fmt.Errorf("sum the balance of %s: %w", a.Period, err)
	}
	return list, nil
}

const sqlCountNoted = `
SELECT (SELECT count(*) FROM billing.audit_payments WHERE audit = $1 AND job = $2 AND period = $3) AS payments,
    count(*) FILTER (WHERE r.kind = 'refund') AS refunds, count(*) FILTER (WHERE r.kind = 'dispute') AS disputes
FROM billing.audit_returns r JOIN billing.audit_payments p ON p.audit = r.audit AND p.payment_intent = r.payment_intent
WHERE r.audit = $1 AND p.job = $2 AND p.period = $3`

// CountNoted counts what of Stripe's is the period's.
func (a Audit) CountNoted(ctx context.Context, q Querier) (payments, refunds, disputes int64, err error) {
	if err := q.QueryRow(ctx, sqlCountNoted, a.ID, a.Job, a.Period).Scan(&payments, &refunds, &disputes); err != nil {
		return 0, 0, 0, fmt.Errorf("count what was read: %w", err)
	}
	return payments, refunds, disputes, nil
}

// AdjacentWithin is how close in time two payments of the same account and amount
// must be, under keys of neighbouring periods or of two jobs, to look like one debt
// that was paid twice. Months are four weeks apart.
const AdjacentWithin = 3 * 24 * time.Hour

// A later try is a declined month that came good late, perhaps right before the
// next one.
const sqlAdjacentDoubles = `
INSERT INTO billing.audit_differences (audit, kind, severity, account_id, billing_key, payment_intent, currency, expected, seen)
SELECT DISTINCT ON (p.payment_intent) p.audit, 'adjacent_double', 'act', p.account_id, p.billing_key, p.payment_intent, p.currency,
    'one payment within 3 days', 'the same amount was paid as ' || o.billing_key || ' too, ' || o.payment_intent
FROM billing.audit_payments p
JOIN billing.audit_payments o ON o.audit = p.audit AND o.account_id = p.account_id AND o.amount = p.amount AND o.currency = p.currency
    AND o.billing_key <> p.billing_key AND o.created BETWEEN p.created - $4::interval AND p.created + $4::interval
WHERE p.audit = $1 AND p.job = $2 AND p.period = $3 AND p.account_id <> '' AND p.status = 'succeeded' AND o.status = 'succeeded'
    AND p.try <= 1 AND o.try <= 1
    AND NOT EXISTS (SELECT FROM billing.audit_returns r WHERE r.audit = p.audit AND r.payment_intent IN (p.payment_intent, o.payment_intent)
        AND r.kind = 'refund' AND r.amount >= p.amount)
    AND NOT EXISTS (SELECT FROM billing.audit_differences d WHERE d.audit = p.audit AND d.payment_intent = p.payment_intent AND d.kind IN ('orphan', 'duplicate'))
ORDER BY p.payment_intent, o.created, o.payment_intent
ON CONFLICT ON CONSTRAINT audit_differences_pkey DO NOTHING`

// NoteAdjacentDoubles notes debts that were paid under two keys.
func (a Audit) NoteAdjacentDoubles(ctx context.Context, tx pgx.Tx) error {
	if err := WholeSides(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlAdjacentDoubles, a.ID, a.Job, a.Period, AdjacentWithin); err != nil {
		return fmt.Errorf("look for debts paid under two keys: %w", err)
	}
	return nil
}
