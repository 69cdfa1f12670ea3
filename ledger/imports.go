package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// maxListed bounds how many rows an error of an import shows; the rest is
// counted.
const maxListed = 20

// DuplicateError says that a file has more than one row for an account.
type DuplicateError struct {
	// List has the first twenty such accounts, in the order of the file.
	List []Duplicate
	// Total is how many accounts have more than one row.
	Total int64
}

// Duplicate is an account and the lines of a file on which it stands, five at
// most.
type Duplicate struct {
	AccountID string
	Lines     []int
	// Identical rows say the same in every column.
	Identical bool
	Total     int64 // accounts with more than one row, the same in each Duplicate
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%d accounts have more than one row", e.Total)
}

// Account is one row of a file of accounts. Fields that are nil were not in the
// file: what is stored stays. Currency is lower case or empty.
type Account struct {
	Line           int // in the file, for errors
	AccountID      string
	StripeCustomer string
	PaymentMethod  string
	Currency       string
	StripeAccount  *string
	Name           *string
	Email          *string
	Status         *string // active or paused
	CardExpires    *string // YYYY-MM-DD, or empty for none
}

// AccountImport says how accounts come in.
type AccountImport struct {
	// PauseMissing pauses the accounts that the file does not have.
	PauseMissing bool
}

// ImportedAccounts says what an import of accounts did.
type ImportedAccounts struct {
	Imported
	// Changes are the first twenty accounts that changed, in the order of the file.
	Changes []AccountChange
	// Paused were active and are not in the file; PausedIDs names the first twenty.
	Paused    int64
	PausedIDs []string
}

// AccountChange is an account before and after an import.
type AccountChange struct {
	Line      int
	AccountID string
	// Old and New have the same columns in the same order, see AccountColumns.
	Old, New []string
	Total    int64 // accounts that changed, the same in each AccountChange
}

// AccountColumns are the columns of an AccountChange.
var AccountColumns = []string{"stripe_account", "stripe_customer", "payment_method", "currency", "name", "email", "status", "card_expires"}

// Imported says what an import did to the rows of a file.
type Imported struct {
	Rows, New, Changed, Unchanged int64
}

const sqlStageAccounts = `
CREATE TEMPORARY TABLE account_staging (
    line bigint, account_id text COLLATE "C", stripe_account text, stripe_customer text, payment_method text, currency text,
    name text, email text, status text, card_expires text
) ON COMMIT DROP`

var accountStagingColumns = []string{"line", "account_id", "stripe_account", "stripe_customer", "payment_method", "currency",
	"name", "email", "status", "card_expires"}

// Two imports at once would each count what the other writes. Readers, and so
// runs, are not kept waiting by this lock.
const sqlLockAccounts = `LOCK TABLE billing.accounts IN SHARE ROW EXCLUSIVE MODE`

const sqlChangeAccounts = `
WITH changed AS (
    UPDATE billing.accounts a
    SET stripe_account = n.stripe_account, stripe_customer = n.stripe_customer, payment_method = n.payment_method,
        currency = n.currency, name = n.name, email = n.email, status = n.status, card_expires = n.card_expires, updated_at = n.t
    FROM (
        SELECT s.line, s.account_id, coalesce(s.stripe_account, o.stripe_account) AS stripe_account, s.stripe_customer, s.payment_method,
            s.currency, coalesce(s.name, o.name) AS name, coalesce(s.email, o.email) AS email, coalesce(s.status, o.status) AS status,
            CASE WHEN s.card_expires IS NULL THEN o.card_expires ELSE nullif(s.card_expires, '')::date END AS card_expires, clock.t,
            ARRAY[o.stripe_account, o.stripe_customer, o.payment_method, o.currency, o.name, o.email, o.status,
                coalesce(o.card_expires::text, '')] AS old
        FROM pg_temp.account_staging s
        JOIN billing.accounts o ON o.account_id = s.account_id, (SELECT billing.now() AS t) clock) n
    WHERE a.account_id = n.account_id
      AND (a.stripe_account, a.stripe_customer, a.payment_method, a.currency, a.name, a.email, a.status, a.card_expires)
          IS DISTINCT FROM
          (n.stripe_account, n.stripe_customer, n.payment_method, n.currency, n.name, n.email, n.status, n.card_expires)
    RETURNING n.line, a.account_id, n.old, ARRAY[a.stripe_account, a.stripe_customer, a.payment_method, a.currency, a.name, a.email,
        a.status, coalesce(a.card_expires::text, '')] AS new)
SELECT line, account_id, old, new, count(*) OVER () AS total FROM changed ORDER BY line LIMIT $1`

// Nobody is forgotten: an account that left the file is paused, so that an invoice of
// its is named and not charged.
const sqlPauseMissing = `
WITH paused AS (
    UPDATE billing.accounts a SET status = 'paused', updated_at = billing.now()
    WHERE a.status <> 'paused' AND NOT EXISTS (SELECT FROM pg_temp.account_staging s WHERE s.account_id = a.account_id)
    RETURNING a.account_id)
SELECT count(*), coalesce((array_agg(account_id ORDER BY account_id))[1:$1], '{}') FROM paused`

const sqlAddAccounts = `
INSERT INTO billing.accounts (account_id, stripe_account, stripe_customer, payment_method, currency, name, email, status,
    card_expires, updated_at)
SELECT s.account_id, coalesce(s.stripe_account, ''), s.stripe_customer, s.payment_method, s.currency, coalesce(s.name, ''),
    coalesce(s.email, ''), coalesce(s.status, 'active'), nullif(s.card_expires, '')::date, clock.t
FROM pg_temp.account_staging s, (SELECT billing.now() AS t) clock
WHERE NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = s.account_id)
ORDER BY s.account_id`

// ImportAccounts adds and changes accounts so that they are as the rows say.
// next returns one row after another, io.EOF after the last; memory stays flat.
// A *DuplicateError, a *NearError, or an error of next, leaves everything as it was
// when the caller rolls back. What is recorded for charging stays as it is: a charge
// took what it needs from an account once.
func ImportAccounts(ctx context.Context, tx pgx.Tx, req AccountImport, next func() (Account, error)) (done ImportedAccounts, err error) {
	if err := forMany(ctx, tx); err != nil {
		return done, err
	}
	if _, err := tx.Exec(ctx, sqlStageAccounts); err != nil {
		return done, fmt.Errorf("create staging for accounts: %w", err)
	}
	done.Rows, err = stageRows(ctx, tx, "account_staging", accountStagingColumns, next, func(row []any, a Account) []any {
		return append(row, a.Line, a.AccountID, a.StripeAccount, a.StripeCustomer, a.PaymentMethod, a.Currency,
			a.Name, a.Email, a.Status, a.CardExpires)
	})
	if err != nil {
		return done, err
	}
	if err := refuseDuplicates(ctx, tx, sqlDuplicateAccounts); err != nil {
		return done, err
	}
	if _, err := tx.Exec(ctx, sqlLockAccounts); err != nil {
		return done, fmt.Errorf("lock accounts: %w", err)
	}
	if err := refuseNear(ctx, tx, sqlNearNewAccounts); err != nil {
		return done, err
	}
	rows, _ := tx.Query(ctx, sqlChangeAccounts, maxListed)
	if done.Changes, err = pgx.CollectRows(rows, pgx.RowToStructByName[AccountChange]); err != nil {
		return done, fmt.Errorf("change accounts: %w", err)
	}
	if len(done.Changes) > 0 {
		done.Changed = done.Changes[0].Total
	}
	added, err := tx.Exec(ctx, sqlAddAccounts)
	if err != nil {
		return done, fmt.Errorf("add accounts: %w", err)
	}
	done.New = added.RowsAffected()
	done.Unchanged = done.Rows - done.Changed - done.New
	if !req.PauseMissing {
		return done, nil
	}
	if err := tx.QueryRow(ctx, sqlPauseMissing, maxListed).Scan(&done.Paused, &done.PausedIDs); err != nil {
		return done, fmt.Errorf("pause accounts that the file lacks: %w", err)
	}
	return done, nil
}

// What was just written has no statistics, and a million rows that are taken for one are
// compared one by one.
const sqlForMany = `SELECT set_config('enable_nestloop', 'off', true), set_config('work_mem', '64MB', true)`

// forMany prepares a transaction to compare many rows.
func forMany(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlForMany); err != nil {
		return fmt.Errorf("prepare to compare rows: %w", err)
	}
	return nil
}

// Rows opens the rows of a file at their beginning. What it returns gives one row after
// another, io.EOF after the last.
type Rows[T any] func() (next func() (T, error), err error)

func stageRows[T any](ctx context.Context, tx pgx.Tx, table string, columns []string, next func() (T, error), fields func(row []any, v T) []any) (int64, error) {
	return copyRows(ctx, tx, pgx.Identifier{"pg_temp", table}, columns, next, fields)
}

// copyRows copies all rows into a table. An error of next is returned as it is, not as
// what Postgres makes of a COPY that was broken off.
func copyRows[T any](ctx context.Context, tx pgx.Tx, table pgx.Identifier, columns []string, next func() (T, error), fields func(row []any, v T) []any) (int64, error) {
	var row []any
	var sourceErr error
	source := pgx.CopyFromFunc(func() ([]any, error) {
		v, err := next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			sourceErr = err
			return nil, err
		}
		row = fields(row[:0], v)
		return row, nil
	})
	n, err := tx.CopyFrom(ctx, table, columns, source)
	if sourceErr != nil {
		return 0, sourceErr
	}
	if err != nil {
		return 0, fmt.Errorf("copy rows: %w", err)
	}
	return n, nil
}
