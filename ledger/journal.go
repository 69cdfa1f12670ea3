package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
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
    LEFT JOIN (SELECT account_id::text AS account_id, max(tax::numeric) AS tax FROM billing.billable
        WHERE job = $1 AND period = $2 AND tax > '-Infinity' AND tax < 'Infinity' GROUP BY 1) b ON b.account_id = c.account_id` + bookingsEnd
)

// sqlTaxKnown asks whether the view has a column for tax, which is a company's own.
const sqlTaxKnown = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = 'billing.billable'::regclass AND a.attname = 'tax' AND NOT a.attisdropped)`

// Bookings sums the charges of a period by what happened to them, for a journal.
func Bookings(ctx context.Context, tx pgx.Tx, job Job, period Period) ([]Booking, error) {
	var known bool
	if err := tx.QueryRow(ctx, sqlTaxKnown).Scan(&known); err != nil {
		return nil, fmt.Errorf("look for tax in the view: %w", err)
	}
	sql := sqlBookings
	if known {
		sql = taxedBookings
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
