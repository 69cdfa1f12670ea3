package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger/money"
)

// BookingKind is what happened to some debts.
type BookingKind string

// The kinds of bookings.
const (
	BookingInvoice BookingKind = "invoice" // owed, whatever became of it
	BookingVoid    BookingKind = "void"    // withdrawn
	BookingPayment BookingKind = "payment" // paid, by the ledger's word
)

// Booking is the charges of a period to which the same happened on the same day, in one
// currency. Amount is in major units; a credit is negative. Tax is what of it is tax, 0
// where nobody says.
type Booking struct {
	Kind     BookingKind
	Day      time.Time // as a date of the period's time zone
	Currency string
	Count    int64
	Amount   decimal.Decimal
	Tax      decimal.Decimal
}

// Days are those of the period's time zone: an invoice is of the period's last day. What
// is no number is in no sum, as in an audit.
const (
	bookingsBegin = `
WITH zone AS MATERIALIZED (
    SELECT coalesce((SELECT r.time_zone FROM billing.job_runs r WHERE r.job = $1 AND r.period = $2), 'UTC') AS name),
c AS MATERIALIZED (
    SELECT c.state, lower(c.currency) AS currency, c.amount, (coalesce(c.settled_at, e.at, c.created_at) AT TIME ZONE zone.name)::date AS day, `
	bookingsFrom = ` AS tax
    FROM zone, billing.charges c LEFT JOIN billing.charge_events e ON e.id = c.last_event `
	bookingsEnd = `
    WHERE c.job = $1 AND c.period = $2 AND c.amount > '-Infinity' AND c.amount < 'Infinity')
SELECT 'invoice' AS kind, ((($2::text || '-01')::date + interval '1 month') - interval '1 day')::date AS day, currency, count(*) AS count,
    sum(amount) AS amount, sum(tax) AS tax
FROM c GROUP BY currency
UNION ALL
SELECT 'void', day, currency, count(*), sum(amount), sum(tax) FROM c WHERE state = 'void' GROUP BY day, currency
UNION ALL
SELECT 'payment', day, currency, count(*), sum(amount), sum(tax) FROM c WHERE state = 'succeeded' GROUP BY day, currency
ORDER BY currency, kind, day`

	sqlBookings = bookingsBegin + `0::numeric` + bookingsFrom + bookingsEnd

	// taxedBookings is for a view of a company's own that has a column for tax.
	taxedBookings = bookingsBegin + `coalesce(b.tax, 0)` + bookingsFrom + `
    LEFT JOIN (` + viewTax + `) b ON b.account_id = c.account_id` + bookingsEnd

	viewTax = `SELECT account_id::text AS account_id, max(tax::numeric) AS tax FROM billing.billable WHERE job = $1 AND period = $2 GROUP BY 1`

	// doubtfulTax is one account for each way in which tax may be wrong, and for each
	// number of digits: how many a currency has is not known here.
	doubtfulTax = `
SELECT DISTINCT ON (currency, why, digits) account_id, tax::text AS tax, amount::text AS amount, currency, why, digits
FROM (SELECT c.account_id, b.tax, c.amount, lower(c.currency) AS currency, coalesce(scale(trim_scale(b.tax)), 0) AS digits,
        CASE WHEN b.tax = 'NaN' OR b.tax = 'Infinity' OR b.tax = '-Infinity' THEN 'it is no number'
            WHEN abs(b.tax) > abs(c.amount) THEN 'it is more than the amount'
            WHEN sign(b.tax) = -sign(c.amount) AND b.tax <> 0 THEN 'it has the other sign' ELSE '' END AS why
    FROM billing.charges c JOIN (` + viewTax + `) b ON b.account_id = c.account_id
    WHERE c.job = $1 AND c.period = $2 AND c.amount > '-Infinity' AND c.amount < 'Infinity' AND b.tax IS NOT NULL) t
ORDER BY currency, why, digits, account_id`
)

// TaxError is tax of the view that can't be: mend the view.
type TaxError struct {
	AccountID, Tax, Amount, Currency string
	Why                              string
	Digits                           int32 `db:"digits"` // behind the point
}

func (e *TaxError) Error() string {
	return fmt.Sprintf("the view billing.billable has a tax of %s for account %s, of %s %s: %s", e.Tax, e.AccountID, e.Amount, e.Currency, e.Why)
}

// checkTax returns a *TaxError, the one of the lowest account id, if the view has tax that
// can't be.
func checkTax(ctx context.Context, tx pgx.Tx, job Job, period Period) error {
	rows, _ := tx.Query(ctx, doubtfulTax, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[TaxError])
	if err != nil {
		return fmt.Errorf("look at the tax of %s: %w", period, err)
	}
	var first *TaxError
	for _, t := range list {
		if c, err := money.ParseCurrency(t.Currency); err == nil && t.Why == "" && t.Digits > c.Digits() {
			t.Why = "it has more digits than the currency"
		}
		if t.Why != "" && (first == nil || t.AccountID < first.AccountID) {
			first = t
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// sqlTaxKnown asks whether the view has a column for tax, which is a company's own.
const sqlTaxKnown = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = 'billing.billable'::regclass AND a.attname = 'tax' AND NOT a.attisdropped)`

// Bookings sums the charges of a period by what happened to them, for a journal. A
// *TaxError says what is wrong with the tax of a company's own view.
func Bookings(ctx context.Context, tx pgx.Tx, job Job, period Period) ([]Booking, error) {
	var known bool
	if err := tx.QueryRow(ctx, sqlTaxKnown).Scan(&known); err != nil {
		return nil, fmt.Errorf("look for tax in the view: %w", err)
	}
	sql := sqlBookings
	if known {
		sql = taxedBookings
		if err := checkTax(ctx, tx, job, period); err != nil {
			return nil, err
		}
	}
	rows, _ := tx.Query(ctx, sql, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Booking])
	if err != nil {
		return nil, fmt.Errorf("sum the charges of %s: %w", period, err)
	}
	return list, nil
}

// AuditResult is what the last complete audit of a period came to.
type AuditResult struct {
	Day    time.Time // on which it began, as a date of the period's time zone
	Result []byte    // as Finish was given it
}

const sqlLastAudit = `
SELECT (a.started_at AT TIME ZONE coalesce((SELECT r.time_zone FROM billing.job_runs r WHERE r.job = a.job AND r.period = a.period), 'UTC'))::date AS day, a.result
FROM billing.audits a
WHERE a.job = $1 AND a.period = $2 AND a.complete ORDER BY a.finished_at DESC, a.id DESC LIMIT 1`

// LastAudit reads the last complete audit of a period, ErrNotFound if there is none.
func LastAudit(ctx context.Context, q Querier, job Job, period Period) (AuditResult, error) {
	rows, _ := q.Query(ctx, sqlLastAudit, job, period)
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[AuditResult])
	if errors.Is(err, pgx.ErrNoRows) {
		return a, fmt.Errorf("audit of %s: %w", period, ErrNotFound)
	}
	if err != nil {
		return a, fmt.Errorf("read the audit of %s: %w", period, err)
	}
	return a, nil
}
