package ledger_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

const sqlLine = `INSERT INTO billing.invoice_lines (job, period, account_id, line, kind, metric, quantity, unit_price, exact, amount, currency, list_from, list_version)
	VALUES ('monthly-billing', '2026-10', $1, $2, 'usage', 'm', 1, 10, 10, 10, 'usd', '2026-10', 1)`

// linesWorld has two invoices with a line each; free is not charged, charged is.
func linesWorld(t *testing.T) importWorld {
	t.Helper()
	w := importWorld{t: t, DB: testdb.New(t)}
	for _, sql := range []string{
		`INSERT INTO billing.price_lists (valid_from, currency, version, content, sha256, source, imported_by) VALUES ('2026-10', 'usd', 1, '{}', sha256('{}'), 'f', 'ann')`,
		`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		 SELECT 'monthly-billing', '2026-10', id, 10, 'usd', 'usage', '' FROM unnest(ARRAY['free', 'charged', 'other']) AS a(id)`,
	} {
		w.do(sql)
	}
	w.do(sqlLine, "free", 1)
	w.do(sqlLine, "charged", 1)
	w.do(`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
		window_opened_at, recorded_by, created_at)
		SELECT job, period, account_id, 'monthly-billing/2026-10/' || account_id, 10, 'usd', 1000, 'pending', 'monthly-billing/2026-10/' || account_id,
			'x', sha256('x'), billing.now(), gen_random_uuid(), billing.now() FROM billing.invoices WHERE account_id = 'charged'`)
	return w
}

func (w importWorld) do(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// Lines are as frozen as their invoice, a line never changes, prices are kept for good,
// and what lines name is there.
func TestLinesAndPricesAreFrozen(t *testing.T) {
	t.Parallel()
	w := linesWorld(t)
	w.refused("a line more", "invoice_lines_frozen", ledger.ErrInvoiceFrozen, sqlLine, "charged", 2)
	w.refused("a line less", "invoice_lines_frozen", ledger.ErrInvoiceFrozen, `DELETE FROM billing.invoice_lines WHERE account_id = 'charged'`)
	for _, account := range []string{"charged", "free"} {
		w.refused("another line", "invoice_lines_no_update", ledger.ErrInvoiceFrozen, `UPDATE billing.invoice_lines SET amount = 1 WHERE account_id = $1`, account)
	}
	w.refused("no lines", "invoice_lines_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.invoice_lines`)
	w.refused("a charged invoice removed", "invoices_frozen", ledger.ErrInvoiceFrozen, `SELECT billing.remove_usage_invoices('monthly-billing', '2026-10', '{charged}')`)
	w.refused("other prices", "price_lists_append_only", ledger.ErrAppendOnly, `UPDATE billing.price_lists SET content = '[]', sha256 = sha256('[]')`)
	w.refused("no prices", "price_lists_append_only", ledger.ErrAppendOnly, `DELETE FROM billing.price_lists`)
	w.refused("no prices at all", "price_lists_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.price_lists CASCADE`)
	w.refused("prices whose hash is another's", "price_lists_sha256_check", nil,
		`INSERT INTO billing.price_lists (valid_from, currency, version, content, sha256, source, imported_by) VALUES ('2026-11', 'usd', 1, '{}', '', 'f', 'ann')`)
	w.refused("a line without prices", "invoice_lines_list_fkey", nil,
		`INSERT INTO billing.invoice_lines (job, period, account_id, line, kind, metric, quantity, unit_price, exact, amount, currency, list_from, list_version)
		 VALUES ('monthly-billing', '2026-10', 'free', 2, 'usage', 'm', 1, 1, 1, 1, 'usd', '2026-10', 2)`)
	w.refused("a line without an invoice", "invoice_lines_invoice_fkey", nil, sqlLine, "nobody", 1)
}

// A change of an invoice takes its lines along, whoever makes it; and the function that
// removes invoices removes those that have lines, and no others.
func TestLinesGoWithTheirInvoice(t *testing.T) {
	t.Parallel()
	w := linesWorld(t)
	count := func(sql string) (n int) {
		t.Helper()
		if err := w.Pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(`SELECT billing.remove_usage_invoices('monthly-billing', '2026-10', '{free,other,nobody}')`); n != 1 {
		t.Errorf("%d invoices were removed, want the one with lines", n)
	}
	if n := count(`SELECT count(*) FROM billing.invoice_lines WHERE account_id = 'free'`); n != 0 {
		t.Error("lines of a removed invoice are left")
	}
	w.do(sqlLine, "other", 1)
	w.do(`UPDATE billing.invoices SET amount = 11 WHERE account_id = 'other'`)
	if n := count(`SELECT count(*) FROM billing.invoice_lines`); n != 1 {
		t.Errorf("%d lines are left, want the charged one", n)
	}
}

// An invoice that is not there is said to be none, and so is a version of prices.
func TestNoInvoiceAndNoPrices(t *testing.T) {
	t.Parallel()
	w := linesWorld(t)
	err := ledger.InReadTx(t.Context(), w.Pool, func(tx pgx.Tx) error {
		if _, err := ledger.ReadUsageInvoice(t.Context(), tx, ledger.DefaultJob, "2026-10", "nobody"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("an invoice of nobody: %v", err)
		}
		if _, err := ledger.ReadPriceList(t.Context(), tx, "2026-10", "usd", 2); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("prices that are not there: %v", err)
		}
		inv, err := ledger.ReadUsageInvoice(t.Context(), tx, ledger.DefaultJob, "2026-10", "charged")
		if err == nil && (len(inv.Lines) != 1 || inv.State != ledger.ChargePending || inv.Lines[0].Exact != "10") {
			t.Errorf("got %+v", inv)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
