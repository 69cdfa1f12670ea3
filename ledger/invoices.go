package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Invoice is one row of a file of invoices: what an account owes for a period.
// Fields that are nil were not in the file: what is stored stays.
type Invoice struct {
	Line        int // in the file, for errors
	AccountID   string
	Amount      string // major units, plain digits; zero and negative too
	Currency    string // lower case
	Description *string
	InvoiceID   *string
	// InvoiceDate is the day that the row names, 2026-11-01, or empty.
	InvoiceDate string
}

// InvoiceImport says how invoices come in.
type InvoiceImport struct {
	Job    Job
	Period Period
	// Source is kept with each row: the name of the file.
	Source string
	// Replace lets a row change an invoice that has no charge.
	Replace bool
	// SumLines adds up the rows of an account. TotalsRepeat says that the amounts are
	// those of whole invoices by their title, so that two rows of one are a mistake.
	SumLines, TotalsRepeat bool
	// EqualLines says that rows with one amount are lines all the same.
	EqualLines bool
	// ReusedIDs takes invoice ids that another period has too.
	ReusedIDs bool
	// Open leaves an open period open; otherwise Person closes it.
	Open   bool
	Person string
	// Try is for a transaction that is rolled back: no event is written.
	Try bool
}

// ImportedInvoices says what an import of invoices did, and what a person should
// know about them.
type ImportedInvoices struct {
	Imported
	// Lines are the rows of the file where they were added up, else zero; Identical
	// counts those among them that say the same as another.
	Lines, Identical int64
	// Changes are the first twenty that were changed, with the old and the new.
	Changes []InvoiceConflict
	// Others are invoices of the period that the file does not have. They stay.
	Others int64
	// NoAccount counts rows whose account is not in billing.accounts, and
	// NoAccountIDs names the first five.
	NoAccount    int64
	NoAccountIDs []string
	// Run is the state of the period's run, empty if there was none.
	Run RunState
}

// InvoiceConflict is a row that says something else than the invoice that is
// there.
type InvoiceConflict struct {
	Line           int
	AccountID      string
	OldAmount      string
	OldCurrency    string
	OldDescription string
	OldInvoiceID   string
	NewAmount      string
	NewCurrency    string
	NewDescription string
	NewInvoiceID   string
	// OldAccountID is whose invoice it was, if its invoice id is another account's.
	OldAccountID string
	// State is the charge's, empty if nothing is recorded; Sends is how often it was
	// sent.
	State ChargeState
	Sends int
}

// Frozen reports whether the invoice can't be changed at all.
func (c InvoiceConflict) Frozen() bool { return c.State != "" && c.State != ChargeVoid }

// ConflictError says that rows would change invoices that may not be changed, or
// not without being told to. It is ErrInvoiceFrozen if any is recorded.
type ConflictError struct {
	// List has the first twenty, frozen ones first.
	List []InvoiceConflict
	// Frozen rows have a charge, Changed ones have none.
	Frozen, Changed int64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%d invoices differ and are recorded, %d differ and are not", e.Frozen, e.Changed)
}

// Is makes errors.Is find ErrInvoiceFrozen.
func (e *ConflictError) Is(target error) bool { return target == ErrInvoiceFrozen && e.Frozen > 0 }

const sqlStageInvoices = `CREATE TEMPORARY TABLE invoice_staging ` + stagedInvoice

const stagedInvoice = `(
    line bigint, account_id text COLLATE "C", amount numeric, currency text, description text, invoice_id text, invoice_date date
) ON COMMIT DROP`

var invoiceStagingColumns = []string{"line", "account_id", "amount", "currency", "description", "invoice_id", "invoice_date"}

// ImportInvoices adds the invoices of a period, and changes them if the request
// says so; then it closes the period unless it is to stay open. Memory stays flat; the
// rows may be read twice. The caller rolls back on an error: a *HeldError while a run
// works on the period, a *DuplicateError, a *RepeatError, an *InvoiceIDError, a
// *NearError, a *ConflictError, or one of the rows.
func ImportInvoices(ctx context.Context, tx pgx.Tx, req InvoiceImport, open Rows[Invoice]) (done ImportedInvoices, err error) {
	// A busy period is refused before a long file is read, and again when its
	// run can be kept out.
	if _, err := keepRunsOut(ctx, tx, req.Job, req.Period, sqlRunState); err != nil {
		return done, err
	}
	if err := forMany(ctx, tx); err != nil {
		return done, err
	}
	err = pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return addAnew(ctx, sp, req, open, &done) })
	if errors.Is(err, errStage) {
		done = ImportedInvoices{}
		err = addStaged(ctx, tx, req, open, &done)
	}
	if err != nil {
		return done, err
	}
	// The first run of a period has no row that could be locked beforehand.
	if done.Run, err = keepRunsOut(ctx, tx, req.Job, req.Period, sqlLockRunState); err != nil {
		return done, err
	}
	if req.Open {
		// A period that is closed stays so, and its sums must not grow stale.
		if _, err := ReadClose(ctx, tx, req.Job, req.Period); err != nil {
			return done, ignoreNotFound(err)
		}
	}
	if req.Try {
		return done, TryClose(ctx, tx, req.Job, req.Period, req.Person)
	}
	return done, Close(ctx, tx, req.Job, req.Period, req.Person)
}

// addStaged adds and changes invoices by way of a staging table, in which rows can be
// compared with what is there, and with each other.
func addStaged(ctx context.Context, tx pgx.Tx, req InvoiceImport, open Rows[Invoice], done *ImportedInvoices) error {
	next, err := open()
	if err != nil {
		return err
	}
	if err := stageInvoices(ctx, tx, req, next, done); err != nil {
		return err
	}
	if _, err := keepRunsOut(ctx, tx, req.Job, req.Period, sqlLockRunState); err != nil {
		return err
	}
	return mergeInvoices(ctx, tx, req, done)
}

// stageInvoices brings the rows of a file into the staging table, one for each account.
func stageInvoices(ctx context.Context, tx pgx.Tx, req InvoiceImport, next func() (Invoice, error), done *ImportedInvoices) (err error) {
	if _, err := tx.Exec(ctx, sqlStageInvoices); err != nil {
		return fmt.Errorf("create staging for invoices: %w", err)
	}
	table := "invoice_staging"
	if req.SumLines {
		table = "invoice_lines"
		if _, err := tx.Exec(ctx, sqlStageLines); err != nil {
			return fmt.Errorf("create staging for lines: %w", err)
		}
	}
	done.Rows, err = stageRows(ctx, tx, table, invoiceStagingColumns, next, func(row []any, v Invoice) []any {
		return append(row, v.Line, v.AccountID, v.Amount, v.Currency, v.Description, v.InvoiceID, dateOf(v.InvoiceDate))
	})
	if err != nil {
		return err
	}
	if req.SumLines {
		if err := sumLines(ctx, tx, req, done); err != nil {
			return err
		}
	}
	if err := refuseDuplicates(ctx, tx, sqlDuplicateInvoices); err != nil {
		return err
	}
	return refuseClashes(ctx, tx, sqlInvoiceIDTwice, maxListed)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

const sqlRunState = `
SELECT state, state = 'claimed' AND least(heartbeat_at + lease, deadline_at) >= billing.now() AS live
FROM billing.job_runs WHERE job = $1 AND period = $2`

const sqlLockRunState = sqlRunState + ` FOR SHARE`

// The first run of a period has no row yet that could be locked. Whoever changes invoices
// shares this lock until its transaction ends, and whoever claims the period takes it alone.
const (
	periodLock        = `(hashtextextended('billing period ' || $1::text || '/' || $2::text, 0))`
	sqlSharePeriod    = `SELECT pg_advisory_xact_lock_shared` + periodLock
	sqlTakePeriodLock = `SELECT pg_advisory_xact_lock` + periodLock
)

// keepRunsOut returns the state of the period's run, or a *HeldError while one is
// at work. With the locking statement no run starts before this transaction ends.
func keepRunsOut(ctx context.Context, tx pgx.Tx, job Job, period Period, sql string) (state RunState, err error) {
	var live bool
	// A run that records holds its row for long. The savepoint makes it possible
	// to say who it is after waiting in vain.
	err = pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
		if _, err := sp.Exec(ctx, claimLockTimeout); err != nil {
			return err
		}
		if sql == sqlLockRunState {
			if _, err := sp.Exec(ctx, sqlSharePeriod, job, period); err != nil {
				return err
			}
		}
		// No row is no error: that would give the lock back.
		err := sp.QueryRow(ctx, sql, job, period).Scan(&state, &live)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		_, err = sp.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT`)
		return err
	})
	switch {
	case IsLockTimeout(err):
		live = true
	case err != nil:
		return "", fmt.Errorf("look for a run of %s: %w", period, err)
	}
	if !live {
		return state, nil
	}
	holder, err := ReadRun(ctx, tx, job, period)
	if errors.Is(err, ErrNotFound) {
		holder, err = Run{Owner: "a run that begins"}, nil
	}
	if err != nil {
		return "", err
	}
	return "", &HeldError{Job: job, Period: period, Holder: holder}
}

const sqlLockInvoices = `LOCK TABLE billing.invoices IN SHARE ROW EXCLUSIVE MODE`

// A column that the file lacks never makes a difference, nor does a day that an older
// version of the program did not keep.
const stagedInvoiceDiffers = `
    (i.amount, i.currency, i.description, i.invoice_id, i.invoice_date) IS DISTINCT FROM
    (s.amount, s.currency, coalesce(s.description, i.description), coalesce(s.invoice_id, i.invoice_id),
        CASE WHEN i.invoice_date IS NULL THEN NULL ELSE coalesce(s.invoice_date, i.invoice_date) END)`

const sqlCompareInvoices = `
SELECT count(*) FILTER (WHERE i.account_id IS NULL) AS new,
       count(*) FILTER (WHERE i.account_id IS NOT NULL AND` + stagedInvoiceDiffers + `
           AND coalesce(c.state, 'void') <> 'void') AS frozen,
       count(*) FILTER (WHERE i.account_id IS NOT NULL AND` + stagedInvoiceDiffers + `
           AND coalesce(c.state, 'void') = 'void') AS changed,
       (SELECT count(*) FROM billing.invoices o WHERE o.job = $1 AND o.period = $2) - count(i.account_id) AS others
FROM pg_temp.invoice_staging s
LEFT JOIN billing.invoices i ON i.job = $1 AND i.period = $2 AND i.account_id = s.account_id
LEFT JOIN billing.charges c ON c.job = $1 AND c.period = $2 AND c.account_id = s.account_id`

const sqlConflicts = `
SELECT s.line, s.account_id, i.amount::text AS old_amount, i.currency AS old_currency, i.description AS old_description,
       i.invoice_id AS old_invoice_id, s.amount::text AS new_amount, s.currency AS new_currency,
       coalesce(s.description, i.description) AS new_description, coalesce(s.invoice_id, i.invoice_id) AS new_invoice_id,
       '' AS old_account_id, coalesce(c.state, '') AS state, coalesce(c.sends, 0) AS sends
FROM pg_temp.invoice_staging s
JOIN billing.invoices i ON i.job = $1 AND i.period = $2 AND i.account_id = s.account_id
LEFT JOIN billing.charges c ON c.job = $1 AND c.period = $2 AND c.account_id = s.account_id
WHERE` + stagedInvoiceDiffers + `
ORDER BY coalesce(c.state, 'void') = 'void', s.line LIMIT $3`

// What the hash is taken of can be told apart again: only the description, which is the
// last, may hold a control character. A JSON array took a fifth of an import's time.
const setInvoice = `
    amount = s.amount, currency = s.currency, description = coalesce(s.description, i.description),
    invoice_id = coalesce(s.invoice_id, i.invoice_id), invoice_date = coalesce(s.invoice_date, i.invoice_date),
    source = @source, imported_at = clock.t,
    content_hash = sha256(convert_to(concat_ws(E'\x1f', s.account_id, trim_scale(s.amount), s.currency, coalesce(s.invoice_id, i.invoice_id),
        coalesce(coalesce(s.invoice_date, i.invoice_date)::text, ''), coalesce(s.description, i.description)), 'UTF8'))`

const sqlChangeInvoices = `
UPDATE billing.invoices i
SET` + setInvoice + `
FROM pg_temp.invoice_staging s, (SELECT billing.now() AS t) clock
WHERE i.job = @job AND i.period = @period AND i.account_id = s.account_id AND` + stagedInvoiceDiffers

const sqlAddInvoices = `
INSERT INTO billing.invoices (job, period, account_id, invoice_id, amount, currency, description, invoice_date, source, content_hash, imported_at)
SELECT @job, @period, s.account_id, coalesce(s.invoice_id, ''), s.amount, s.currency, coalesce(s.description, ''), s.invoice_date, @source,
    sha256(convert_to(concat_ws(E'\x1f', s.account_id, trim_scale(s.amount), s.currency, coalesce(s.invoice_id, ''),
        coalesce(s.invoice_date::text, ''), coalesce(s.description, '')), 'UTF8')), clock.t
FROM pg_temp.invoice_staging s, (SELECT billing.now() AS t) clock
WHERE NOT EXISTS (SELECT FROM billing.invoices i WHERE i.job = @job AND i.period = @period AND i.account_id = s.account_id)
ORDER BY s.account_id`

const sqlStagedWithoutAccount = `
SELECT count(*), coalesce((array_agg(s.account_id ORDER BY s.line))[1:5], '{}')
FROM pg_temp.invoice_staging s
WHERE NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = s.account_id)`

// mergeInvoices brings the staged rows into billing.invoices.
func mergeInvoices(ctx context.Context, tx pgx.Tx, req InvoiceImport, done *ImportedInvoices) error {
	if _, err := tx.Exec(ctx, sqlLockInvoices); err != nil {
		return fmt.Errorf("lock invoices: %w", err)
	}
	if !req.ReusedIDs {
		args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "since": yearBefore(req.Period), "limit": maxListed}
		if err := refuseClashes(ctx, tx, sqlInvoiceIDElsewhere, args); err != nil {
			return err
		}
	}
	moved, err := moveInvoices(ctx, tx, req)
	if err != nil {
		return err
	}
	var frozen int64
	err = tx.QueryRow(ctx, sqlCompareInvoices, req.Job, req.Period).Scan(&done.New, &frozen, &done.Changed, &done.Others)
	if err != nil {
		return fmt.Errorf("compare invoices: %w", err)
	}
	if frozen > 0 || done.Changed > 0 {
		list, err := readConflicts(ctx, tx, req)
		if err != nil {
			return err
		}
		if frozen > 0 || !req.Replace {
			return &ConflictError{List: list, Frozen: frozen, Changed: done.Changed}
		}
		done.Changes = list
	}
	done.Unchanged = done.Rows - done.New - done.Changed
	args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "source": req.Source}
	if done.Changed > 0 {
		if _, err := tx.Exec(ctx, sqlChangeInvoices, args); err != nil {
			return fmt.Errorf("change invoices: %w", err)
		}
	}
	if done.New > 0 {
		if _, err := tx.Exec(ctx, sqlAddInvoices, args); err != nil {
			return fmt.Errorf("add invoices: %w", err)
		}
	}
	// What was moved is as the file has it, so it was compared as unchanged.
	n := int64(len(moved))
	done.Changed, done.Unchanged = done.Changed+n, done.Unchanged-n
	done.Changes = append(moved, done.Changes...)
	done.Changes = done.Changes[:min(len(done.Changes), maxListed)]
	if err := tx.QueryRow(ctx, sqlStagedWithoutAccount).Scan(&done.NoAccount, &done.NoAccountIDs); err != nil {
		return fmt.Errorf("look for invoices without an account: %w", err)
	}
	if done.NoAccount > 0 {
		return refuseNear(ctx, tx, sqlNearInvoices)
	}
	return nil
}

func readConflicts(ctx context.Context, tx pgx.Tx, req InvoiceImport) ([]InvoiceConflict, error) {
	rows, _ := tx.Query(ctx, sqlConflicts, req.Job, req.Period, maxListed)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[InvoiceConflict])
	if err != nil {
		return nil, fmt.Errorf("read invoices that differ: %w", err)
	}
	return list, nil
}
