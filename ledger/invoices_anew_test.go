package ledger_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// The first file of a period goes straight into the invoices, a later one by way of a
// staging table: it is the same file, to the hash.
func TestTheFirstFileOfAPeriodLeavesWhatALaterOneDoes(t *testing.T) {
	w := newImportWorld(t)
	text := func(s string) *string { return &s }
	rows := []ledger.Invoice{
		{Line: 2, AccountID: "a", Amount: "10.00", Currency: "usd"},
		{Line: 3, AccountID: "b", Amount: "-0.50", Currency: "eur", Description: text("two\r\nlines, \"quoted\" é"), InvoiceID: text("in_1")},
		{Line: 4, AccountID: "c", Amount: "0", Currency: "jpy", Description: text(""), InvoiceID: text("")},
		{Line: 5, AccountID: "d", Amount: "-0.00", Currency: "usd", InvoiceDate: "2026-11-01"},
		{Line: 6, AccountID: "e", Amount: "1200000000.10", Currency: "usd", Description: text("\x1f")},
		{Line: 7, AccountID: "f", Amount: "1500", Currency: "jpy"},
		{Line: 8, AccountID: "g", Amount: "0.070", Currency: "usd"},
	}
	accounts := []ledger.Account{{AccountID: "first"}}
	for _, v := range rows {
		accounts = append(accounts, ledger.Account{AccountID: v.AccountID})
	}
	if _, err := w.accounts(accounts...); err != nil {
		t.Fatal(err)
	}
	table := func() []string {
		t.Helper()
		found, _ := w.Pool.Query(t.Context(), `SELECT concat_ws('|', account_id, invoice_id, amount, currency, description, invoice_date, source, content_hash)
			FROM billing.invoices WHERE account_id <> 'first' ORDER BY account_id`)
		list, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	anew, err := w.invoices(nil, rows...)
	if err != nil {
		t.Fatal(err)
	}
	straight := table()
	if _, err := w.Pool.Exec(t.Context(), `DELETE FROM billing.invoices`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.invoices(func(r *ledger.InvoiceImport) { r.Open = true }, invoice(2, "first", "1")); err != nil {
		t.Fatal(err)
	}
	later, err := w.invoices(nil, rows...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table(), straight); diff != "" || len(straight) != len(rows) {
		t.Errorf("staged (-) and straight (+): %s", diff)
	}
	later.Others = 0 // the one that came first
	if diff := cmp.Diff(later, anew, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("staged (-) and straight (+): %s", diff)
	}
	same, err := w.invoices(nil, rows...)
	if err != nil || same.Unchanged != int64(len(rows)) {
		t.Errorf("the same file again: %+v, %v", same, err)
	}
}

// What a first file gets wrong is told as that of a later one is, and it leaves nothing.
func TestAFirstFileThatIsWrongLeavesNothing(t *testing.T) {
	w := newImportWorld(t)
	if _, err := w.accounts(ledger.Account{AccountID: "a"}, ledger.Account{AccountID: "b"}); err != nil {
		t.Fatal(err)
	}
	id := func(line int, account string) ledger.Invoice {
		v := invoice(line, account, "1")
		v.InvoiceID = &[]string{"in_1"}[0]
		return v
	}
	var twice *ledger.DuplicateError
	if _, err := w.invoices(nil, invoice(2, "a", "1"), invoice(3, "b", "1"), invoice(4, "a", "1")); !errors.As(err, &twice) {
		t.Errorf("an account with two rows: %v", err)
	} else if diff := cmp.Diff(twice.List[0].Lines, []int{2, 4}); diff != "" {
		t.Errorf("lines: %s", diff)
	}
	var clash *ledger.InvoiceIDError
	if _, err := w.invoices(nil, id(2, "a"), id(3, "b")); !errors.As(err, &clash) {
		t.Errorf("an invoice id on two rows: %v", err)
	}
	done, err := w.invoices(nil, invoice(2, "a", "1"), invoice(3, "nobody", "1"))
	if err != nil || done.NoAccount != 1 {
		t.Errorf("an invoice without an account: %+v, %v", done, err)
	}
	if _, err := w.Pool.Exec(t.Context(), `UPDATE billing.invoices SET period = '2026-09', invoice_id = 'in_1' WHERE account_id = 'a'; DELETE FROM billing.invoices WHERE account_id <> 'a'`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.invoices(nil, id(2, "a")); !errors.As(err, &clash) {
		t.Errorf("the id of another period's invoice: %v", err)
	}
	var n int
	if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM billing.invoices`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d invoices, want the one of the other period: %v", n, err)
	}
}
