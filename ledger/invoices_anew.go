package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/shopspring/decimal"
)

// errStage says that a file has to go by way of the staging table.
var errStage = errors.New("to be staged")

const (
	sqlNoInvoices = `
SELECT billing.now() AS t, NOT EXISTS (SELECT FROM billing.invoices i WHERE i.job = $1 AND i.period = $2) AS none`

	// Every id of the period is another, and none is another period's since a year.
	sqlIDsClash = `
SELECT EXISTS (
    SELECT FROM billing.invoices i
    WHERE i.job = @job AND (i.period = @period OR NOT @reused AND i.period >= @since) AND i.invoice_id <> ''
    GROUP BY i.invoice_id HAVING count(*) > 1 AND bool_or(i.period = @period))`

	sqlAllHaveAccounts = `
SELECT NOT EXISTS (
    SELECT FROM billing.invoices i WHERE i.job = $1 AND i.period = $2
      AND NOT EXISTS (SELECT FROM billing.accounts a WHERE a.account_id = i.account_id))`
)

var invoiceColumns = []string{"job", "period", "account_id", "invoice_id", "amount", "currency", "description", "invoice_date", "source",
	"content_hash", "imported_at"}

// addAnew writes the first file of a period, which has one row for each account, straight
// into billing.invoices: there is nothing that it could differ from. If it finds that
// there is more to say about the file, it leaves nothing and returns errStage.
func addAnew(ctx context.Context, tx pgx.Tx, req InvoiceImport, open Rows[Invoice], done *ImportedInvoices) error {
	if req.SumLines {
		return errStage
	}
	if _, err := tx.Exec(ctx, sqlLockInvoices); err != nil {
		return fmt.Errorf("lock invoices: %w", err)
	}
	var now time.Time
	var none bool
	if err := tx.QueryRow(ctx, sqlNoInvoices, req.Job, req.Period).Scan(&now, &none); err != nil {
		return fmt.Errorf("look for invoices of %s: %w", req.Period, err)
	}
	if !none {
		return errStage
	}
	next, err := open()
	if err != nil {
		return err
	}
	n, err := copyRows(ctx, tx, pgx.Identifier{"billing", "invoices"}, invoiceColumns, next, func(row []any, v Invoice) []any {
		return append(row, req.Job, req.Period, v.AccountID, textOf(v.InvoiceID), v.Amount, v.Currency, textOf(v.Description),
			dateOf(v.InvoiceDate), req.Source, contentHash(v), now)
	})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" {
		return errStage // an account has two rows: which ones, the staging table can tell
	}
	if err != nil {
		return err
	}
	done.Rows, done.New = n, n
	return nothingToSay(ctx, tx, req)
}

// nothingToSay returns errStage if something about the rows of a period must be said.
func nothingToSay(ctx context.Context, tx pgx.Tx, req InvoiceImport) error {
	var clash, known bool
	args := pgx.NamedArgs{"job": req.Job, "period": req.Period, "since": yearBefore(req.Period), "reused": req.ReusedIDs}
	if err := tx.QueryRow(ctx, sqlIDsClash, args).Scan(&clash); err != nil {
		return fmt.Errorf("look for invoice ids that are used twice: %w", err)
	}
	if clash {
		return errStage
	}
	if err := tx.QueryRow(ctx, sqlAllHaveAccounts, req.Job, req.Period).Scan(&known); err != nil {
		return fmt.Errorf("look for invoices without an account: %w", err)
	}
	if !known {
		return errStage
	}
	return nil
}

// contentHash is what setInvoice computes in Postgres.
func contentHash(v Invoice) []byte {
	amount := v.Amount
	if d, err := decimal.NewFromString(amount); err == nil {
		amount = d.String()
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{v.AccountID, amount, v.Currency, textOf(v.InvoiceID), v.InvoiceDate, textOf(v.Description)}, "\x1f")))
	return sum[:]
}

// textOf is a value that a file may lack.
func textOf(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}
