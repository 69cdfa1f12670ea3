package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Billable is one row of the view that runs record from, as text: an amount may
// be anything that numeric can hold, and what it is worth is decided in Go.
type Billable struct {
	AccountID      string
	Amount         string // major units, as numeric prints it
	Currency       string
	Description    string
	StripeAccount  string
	StripeCustomer string
	PaymentMethod  string
	Name           string
	Email          string
	// Status is empty when the invoice has no account.
	Status string
	// Nameless rows have no account id at all.
	Nameless bool
	// Skipped is set when the charge is recorded as skipped, for SkippedFor,
	// and may be decided again.
	Skipped    bool
	SkippedFor string
	// Recorded is the charge's state, empty if there is none; RecordedMinor its
	// amount in minor units.
	Recorded      ChargeState
	RecordedMinor int64
}

// Decision is what becomes of one billable row.
type Decision struct {
	State       ChargeState // pending or skipped
	Reason      string      // why it is skipped
	Currency    string      // lower case where it is a currency
	AmountMinor int64       // minor units as Stripe counts them; 0 when skipped
	BillingKey  string
	Body        string // the request of try 1, empty when skipped
	BodySHA256  [32]byte
}

// MendableReasons are those for which a skipped charge is decided again by each
// run of its period: a card may have been added since.
var MendableReasons = []string{"no_payment_method", "no_customer", "no_account", "paused", "bad_currency", "bad_stripe_account"}

const billableColumns = `
    coalesce(b.account_id::text, '') AS account_id, coalesce(b.amount::text, 'NaN') AS amount, coalesce(b.currency, '') AS currency, coalesce(b.description, '') AS description,
    coalesce(b.stripe_account, '') AS stripe_account, coalesce(b.stripe_customer, '') AS stripe_customer,
    coalesce(b.payment_method, '') AS payment_method, coalesce(b.name, '') AS name, coalesce(b.email, '') AS email, coalesce(b.status, '') AS status,
    b.account_id IS NULL AS nameless`

const billableCharge = `, coalesce(c.state = 'skipped', false) AS skipped, coalesce(c.reason, '') AS skipped_for,
    coalesce(c.state, '') AS recorded, coalesce(c.amount_minor, 0) AS recorded_minor`

// The order makes two rows of one account neighbours, and fills the indexes of
// charges from left to right.
const sqlBillableCursor = `
DECLARE billable_rows NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT` + billableColumns + billableCharge + `
FROM billing.billable b
LEFT JOIN billing.charges c ON c.job = b.job AND c.period = b.period AND c.account_id = b.account_id::text
WHERE b.job = $1 AND b.period = $2
ORDER BY b.account_id::text COLLATE "C"`

const sqlUnrecordedCursor = `
DECLARE billable_rows NO SCROLL CURSOR WITHOUT HOLD FOR
SELECT` + billableColumns + billableCharge + `
FROM billing.billable b
LEFT JOIN billing.charges c ON c.job = b.job AND c.period = b.period AND c.account_id = b.account_id::text
WHERE b.job = $1 AND b.period = $2
  AND (c.account_id IS NULL OR (c.state = 'skipped' AND c.reason = ANY ($3)))
ORDER BY b.account_id::text COLLATE "C"`

const (
	// A cursor is planned for its first rows unless told otherwise; all of
	// them are read here.
	sqlWholeCursor = `SET LOCAL cursor_tuple_fraction TO 1`
	// A table that was just filled has no statistics yet. For a handful of rows
	// a nested loop over both sides is a good plan, for a month it takes hours.
	sqlNoNestedLoops = `SELECT set_config('enable_nestloop', 'off', true)`
	sqlFetchBillable = `FETCH FORWARD 2000 FROM billable_rows`
	sqlCloseBillable = `CLOSE billable_rows`
)

// EachBillable calls do with every billable row of the period in groups, in the
// order of account ids as bytes. The slice is reused. Memory stays flat.
func EachBillable(ctx context.Context, tx pgx.Tx, job Job, period Period, do func([]Billable) error) error {
	if _, err := tx.Exec(ctx, sqlNoNestedLoops); err != nil {
		return fmt.Errorf("read billable: %w", err)
	}
	return eachBillable(ctx, tx, do, sqlBillableCursor, job, period)
}

// EachUnrecorded is EachBillable for the rows that have no charge yet, or one
// that was skipped for a reason that can mend.
func EachUnrecorded(ctx context.Context, tx pgx.Tx, job Job, period Period, do func([]Billable) error) error {
	if _, err := tx.Exec(ctx, sqlNoNestedLoops); err != nil {
		return fmt.Errorf("read billable: %w", err)
	}
	return eachBillable(ctx, tx, do, sqlUnrecordedCursor, job, period, MendableReasons)
}

func eachBillable(ctx context.Context, tx pgx.Tx, do func([]Billable) error, cursor string, args ...any) error {
	if _, err := tx.Exec(ctx, sqlWholeCursor); err != nil {
		return fmt.Errorf("read billable: %w", err)
	}
	// DECLARE takes no parameters in the extended protocol.
	if _, err := tx.Exec(ctx, cursor, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...); err != nil {
		return fmt.Errorf("read billable: %w", err)
	}
	var group []Billable
	for {
		rows, _ := tx.Query(ctx, sqlFetchBillable)
		group = group[:0]
		var b Billable
		_, err := pgx.ForEachRow(rows, []any{&b.AccountID, &b.Amount, &b.Currency, &b.Description, &b.StripeAccount,
			&b.StripeCustomer, &b.PaymentMethod, &b.Name, &b.Email, &b.Status, &b.Nameless, &b.Skipped, &b.SkippedFor, &b.Recorded, &b.RecordedMinor},
			func() error { group = append(group, b); return nil })
		if err != nil {
			return fmt.Errorf("read billable: %w", err)
		}
		if len(group) == 0 {
			break
		}
		if err := do(group); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, sqlCloseBillable)
	return err
}

const sqlCreateStaging = `
CREATE TEMPORARY TABLE charge_staging (
    account_id text COLLATE "C", again boolean, billing_key text, name text, email text, amount text, currency text, amount_minor bigint,
    state text, reason text, body text, body_sha256 bytea, stripe_account text, stripe_customer text
) ON COMMIT DROP`

var stagingColumns = []string{"account_id", "again", "billing_key", "name", "email", "amount", "currency", "amount_minor",
	"state", "reason", "body", "body_sha256", "stripe_account", "stripe_customer"}

// Staging collects decided rows inside one transaction, to be recorded by one
// statement.
type Staging struct{ tx pgx.Tx }

// NewStaging opens an empty one; it goes away with the transaction.
func NewStaging(ctx context.Context, tx pgx.Tx) (*Staging, error) {
	if _, err := tx.Exec(ctx, sqlCreateStaging); err != nil {
		return nil, fmt.Errorf("create staging: %w", err)
	}
	return &Staging{tx}, nil
}

// Add copies a group of rows with what was decided on each.
func (s *Staging) Add(ctx context.Context, rows []Billable, decided []Decision) error {
	n := -1
	row := make([]any, len(stagingColumns))
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if n++; n >= len(rows) {
			return nil, nil
		}
		b, d := &rows[n], &decided[n]
		row = append(row[:0], b.AccountID, b.Skipped, d.BillingKey, b.Name, b.Email, b.Amount, d.Currency, nil,
			string(d.State), d.Reason, nil, nil, b.StripeAccount, b.StripeCustomer)
		if d.State == ChargePending {
			row[7], row[10], row[11] = d.AmountMinor, d.Body, d.BodySHA256[:]
		}
		return row, nil
	})
	_, err := s.tx.CopyFrom(ctx, pgx.Identifier{"charge_staging"}, stagingColumns, source)
	if err != nil {
		return fmt.Errorf("stage charges: %w", err)
	}
	return nil
}

const sqlRecord = `
INSERT INTO billing.charges (job, period, account_id, billing_key, name, email, amount, currency, amount_minor, state, reason,
    idempotency_key, body, body_sha256, stripe_account, stripe_customer, window_opened_at, recorded_by, created_at)
SELECT @job, @period, s.account_id, s.billing_key, s.name, s.email, s.amount::numeric, s.currency, s.amount_minor, s.state, s.reason,
    CASE WHEN s.body IS NOT NULL THEN s.billing_key END, s.body, s.body_sha256, s.stripe_account, s.stripe_customer,
    CASE WHEN s.body IS NOT NULL THEN @window_opened_at::timestamptz END, @run_id, clock.t
FROM charge_staging s, (SELECT billing.now() AS t) clock
WHERE NOT s.again
ON CONFLICT ON CONSTRAINT charges_pkey DO NOTHING`

const sqlDecideAgain = `
WITH clock AS MATERIALIZED (SELECT billing.now() AS t),
moved AS (
    UPDATE billing.charges c
    SET state = s.state, reason = s.reason, name = s.name, email = s.email, amount = s.amount::numeric, currency = s.currency,
        amount_minor = s.amount_minor, idempotency_key = CASE WHEN s.body IS NOT NULL THEN s.billing_key END,
        body = s.body, body_sha256 = s.body_sha256, stripe_account = s.stripe_account, stripe_customer = s.stripe_customer,
        window_opened_at = CASE WHEN s.body IS NOT NULL THEN @window_opened_at::timestamptz END,
        recorded_by = @run_id, last_event = nextval('billing.charge_events_id_seq')
    FROM charge_staging s
    WHERE s.again AND c.job = @job AND c.period = @period AND c.account_id = s.account_id
      AND c.state = 'skipped' AND c.idempotency_key IS NULL AND (c.reason <> s.reason OR s.state <> 'skipped')
    RETURNING c.last_event, c.account_id, c.try, c.state, c.reason)
INSERT INTO billing.charge_events (id, at, job, period, account_id, try, from_state, to_state, reason, cause, run_id)
SELECT m.last_event, clock.t, @job, @period, m.account_id, m.try, 'skipped', m.state, m.reason, 'decided', @run_id
FROM moved m, clock`

// Record makes charges of what was staged: rows that are not in the ledger yet
// are inserted, skipped ones that were decided again move on. Their windows open
// at windowOpensAt, ten minutes before the look at Stripe that found nothing.
// The caller holds the claim's row.
func (s *Staging) Record(ctx context.Context, run Run, windowOpensAt time.Time) (recorded int64, err error) {
	args := pgx.NamedArgs{"job": run.Job, "period": run.Period, "run_id": run.RunID, "window_opened_at": windowOpensAt}
	tag, err := s.tx.Exec(ctx, sqlRecord, args)
	if err != nil {
		return 0, fmt.Errorf("record charges: %w", err)
	}
	again, err := s.tx.Exec(ctx, sqlDecideAgain, args)
	if err != nil {
		return 0, fmt.Errorf("record charges that were skipped: %w", err)
	}
	return tag.RowsAffected() + again.RowsAffected(), nil
}

// KeyState is what the ledger knows of one billing key.
type KeyState struct {
	BillingKey string
	State      ChargeState
}

const sqlKnownKeys = `
SELECT billing_key, state FROM billing.charges WHERE billing_key = ANY ($1)`

// KnownKeys returns the state of those of the billing keys that are recorded.
func KnownKeys(ctx context.Context, q Querier, keys []string) (map[string]ChargeState, error) {
	rows, _ := q.Query(ctx, sqlKnownKeys, keys)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[KeyState])
	if err != nil {
		return nil, fmt.Errorf("look up billing keys: %w", err)
	}
	known := make(map[string]ChargeState, len(found))
	for _, k := range found {
		known[k.BillingKey] = k.State
	}
	return known, nil
}

const sqlStripeAccounts = `
SELECT DISTINCT coalesce(b.stripe_account, '') FROM billing.billable b WHERE b.job = $1 AND b.period = $2 ORDER BY 1`

// StripeAccounts are the connected accounts that the period's charges go to,
// with ” for one's own.
func StripeAccounts(ctx context.Context, q Querier, job Job, period Period) ([]string, error) {
	rows, _ := q.Query(ctx, sqlStripeAccounts, job, period)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the Stripe accounts of %s: %w", period, err)
	}
	return list, nil
}

const sqlBoundIdle = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`

// BoundIdle makes Postgres end the transaction if this process stops working on
// it for longer than d: a frozen process must not hold the claim's row.
func BoundIdle(ctx context.Context, tx pgx.Tx, d time.Duration) error {
	_, err := tx.Exec(ctx, sqlBoundIdle, fmt.Sprintf("%dms", d.Milliseconds()))
	if err != nil {
		return fmt.Errorf("bound the idle time: %w", err)
	}
	return nil
}

// IsDecidedAgain reports a skipped charge that each run of the period decides
// again.
func (b *Billable) IsDecidedAgain() bool {
	return b.Skipped && slices.Contains(MendableReasons, b.SkippedFor)
}
