package ledger_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

const (
	testJob    ledger.Job    = "monthly-billing"
	testPeriod ledger.Period = "2026-10"
)

// importWorld is a database and short words for what files do to it.
type importWorld struct {
	*testdb.DB
	t *testing.T
}

func newImportWorld(t *testing.T) importWorld {
	t.Parallel()
	return importWorld{testdb.New(t), t}
}

// rowsOf gives rows one by one, as a file does.
func rowsOf[T any](rows ...T) func() (T, error) {
	n := -1
	return func() (row T, err error) {
		if n++; n >= len(rows) {
			return row, io.EOF
		}
		return rows[n], nil
	}
}

// fileOf is rowsOf from the beginning each time.
func fileOf[T any](rows ...T) ledger.Rows[T] {
	return func() (func() (T, error), error) { return rowsOf(rows...), nil }
}

func (w importWorld) accounts(rows ...ledger.Account) (done ledger.ImportedAccounts, err error) {
	err = ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		done, err = ledger.ImportAccounts(w.t.Context(), tx, ledger.AccountImport{}, rowsOf(rows...))
		return err
	})
	return done, err
}

func (w importWorld) invoices(change func(*ledger.InvoiceImport), rows ...ledger.Invoice) (done ledger.ImportedInvoices, err error) {
	req := ledger.InvoiceImport{Job: testJob, Period: testPeriod, Source: "invoices.csv", Person: "anna"}
	if change != nil {
		change(&req)
	}
	err = ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		done, err = ledger.ImportInvoices(w.t.Context(), tx, req, fileOf(rows...))
		return err
	})
	return done, err
}

func (w importWorld) mustInvoices(rows ...ledger.Invoice) ledger.ImportedInvoices {
	w.t.Helper()
	done, err := w.invoices(nil, rows...)
	if err != nil {
		w.t.Fatalf("import invoices: %v", err)
	}
	return done
}

// claim starts a run of the period.
func (w importWorld) claim() ledger.Run {
	w.t.Helper()
	run, err := w.tryClaim(w.t.Context())
	if err != nil {
		w.t.Fatalf("claim: %v", err)
	}
	return run
}

func (w importWorld) tryClaim(ctx context.Context) (run ledger.Run, err error) {
	err = ledger.InTx(ctx, w.Pool, func(tx pgx.Tx) error {
		run, err = ledger.TakeClaim(ctx, tx, ledger.ClaimRequest{
			Job: testJob, Period: testPeriod, RunID: uuid.New(), Owner: "host-a", Build: "test",
			Lease: 2 * time.Minute, Timeout: time.Hour, Location: time.UTC,
		})
		return err
	})
	return run, err
}

// record makes a skipped charge of every billable row and ends the run as state.
func (w importWorld) record(state ledger.RunState) {
	w.t.Helper()
	run := w.claim()
	err := ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		staging, err := ledger.NewStaging(w.t.Context(), tx)
		if err != nil {
			return err
		}
		err = ledger.EachUnrecorded(w.t.Context(), tx, testJob, testPeriod, func(rows []ledger.Billable) error {
			decided := make([]ledger.Decision, len(rows))
			for i, row := range rows {
				decided[i] = ledger.Decision{State: ledger.ChargeSkipped, Reason: "zero", Currency: row.Currency,
					BillingKey: ledger.BillingKey(testJob, testPeriod, row.AccountID)}
			}
			return staging.Add(w.t.Context(), rows, decided)
		})
		if err != nil {
			return err
		}
		if _, err := staging.Record(w.t.Context(), run, run.ClaimedAt); err != nil {
			return err
		}
		return run.Finish(w.t.Context(), tx, state, ledger.Outcome{})
	})
	if err != nil {
		w.t.Fatalf("record: %v", err)
	}
}

func text(s string) *string { return &s }

func invoice(line int, account, amount string) ledger.Invoice {
	return ledger.Invoice{Line: line, AccountID: account, Amount: amount, Currency: "usd"}
}

// The same file again changes nothing, a corrected one changes what it corrects.
func TestImportAccountsIsRepeatable(t *testing.T) {
	w := newImportWorld(t)
	a := ledger.Account{Line: 2, AccountID: "00123", StripeCustomer: "cus_1", PaymentMethod: "pm_1", Currency: "usd", Name: text("株式会社")}
	b := ledger.Account{Line: 3, AccountID: "123", StripeCustomer: "cus_2", Currency: "eur", CardExpires: text("2027-08-31")}
	moved := b
	moved.PaymentMethod = "pm_2"
	for _, step := range []struct {
		what string
		rows []ledger.Account
		want ledger.Imported
	}{
		{"first", []ledger.Account{a, b}, ledger.Imported{Rows: 2, New: 2}},
		{"again", []ledger.Account{a, b}, ledger.Imported{Rows: 2, Unchanged: 2}},
		{"corrected", []ledger.Account{a, moved}, ledger.Imported{Rows: 2, Changed: 1, Unchanged: 1}},
	} {
		done, err := w.accounts(step.rows...)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if diff := cmp.Diff(step.want, done.Imported); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", step.what, diff)
		}
	}
}

// A file that lacks a column says nothing about it: a paused account stays paused.
func TestImportAccountsKeepsWhatTheFileDoesNotSay(t *testing.T) {
	w := newImportWorld(t)
	full := ledger.Account{AccountID: "a", StripeCustomer: "cus_1", Currency: "usd", Name: text("Anna"), Email: text("a@example.com"),
		Status: text("paused"), StripeAccount: text("acct_1"), CardExpires: text("2027-08-31")}
	short := ledger.Account{AccountID: "a", StripeCustomer: "cus_2", Currency: "usd"}
	emptied := short
	emptied.Name, emptied.CardExpires = text(""), text("")
	want := []string{"cus_1|Anna|a@example.com|paused|acct_1|2027-08-31", "cus_2|Anna|a@example.com|paused|acct_1|2027-08-31",
		"cus_2||a@example.com|paused|acct_1|none"}
	for i, row := range []ledger.Account{full, short, emptied} {
		if _, err := w.accounts(row); err != nil {
			t.Fatal(err)
		}
		var got string
		err := w.Pool.QueryRow(t.Context(), `SELECT concat_ws('|', stripe_customer, name, email, status, stripe_account,
			coalesce(card_expires::text, 'none')) FROM billing.accounts`).Scan(&got)
		if err != nil || got != want[i] {
			t.Errorf("import %d: got %q, %v, want %q", i, got, err, want[i])
		}
	}
}

// Two rows for one account are refused with both lines, and nothing is written.
func TestImportRefusesTwoRowsForOneAccount(t *testing.T) {
	w := newImportWorld(t)
	_, err := w.invoices(nil, invoice(2, "a", "1"), invoice(3, "b", "2"), invoice(7, "a", "1"))
	var dup *ledger.DuplicateError
	if !errors.As(err, &dup) {
		t.Fatalf("got %v, want a DuplicateError", err)
	}
	if diff := cmp.Diff([]ledger.Duplicate{{AccountID: "a", Lines: []int{2, 7}, Identical: true, Total: 1}}, dup.List); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	w.wantInvoices()
}

// What stops a file in the middle is said as it is, and nothing of it stays.
func TestImportIsAllOrNothing(t *testing.T) {
	w := newImportWorld(t)
	bad := errors.New("line 3 is wrong")
	err := ledger.InTx(t.Context(), w.Pool, func(tx pgx.Tx) error {
		n := 0
		_, err := ledger.ImportAccounts(t.Context(), tx, ledger.AccountImport{}, func() (ledger.Account, error) {
			if n++; n == 3 {
				return ledger.Account{}, bad
			}
			return ledger.Account{AccountID: strings.Repeat("a", n)}, nil
		})
		return err
	})
	if !errors.Is(err, bad) {
		t.Errorf("got %v, want the file's own error", err)
	}
	var n int
	if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM billing.accounts`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d accounts are there, %v", n, err)
	}
}

// wantInvoices compares account=amount of all invoices.
func (w importWorld) wantInvoices(want ...string) {
	w.t.Helper()
	rows, _ := w.Pool.Query(w.t.Context(), `SELECT account_id || '=' || amount FROM billing.invoices ORDER BY account_id`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Equal(got, want) {
		w.t.Errorf("invoices are %q, %v, want %q", got, err, want)
	}
}

// The cases of a real month: a file, the file again, a late row, a correction.
func TestImportInvoices(t *testing.T) {
	w := newImportWorld(t)
	done := w.mustInvoices(invoice(2, "a", "12.30"), invoice(3, "b", "0"), invoice(4, "c", "-5.00"))
	if diff := cmp.Diff(ledger.Imported{Rows: 3, New: 3}, done.Imported); diff != "" {
		t.Errorf("first: (-want +got)\n%s", diff)
	}
	if done.NoAccount != 3 || !slices.Equal(done.NoAccountIDs, []string{"a", "b", "c"}) {
		t.Errorf("without an account: %d, %q", done.NoAccount, done.NoAccountIDs)
	}
	done = w.mustInvoices(invoice(2, "a", "12.3"), invoice(3, "b", "0.00"))
	if done.Unchanged != 2 || done.New+done.Changed != 0 || done.Others != 1 {
		t.Errorf("the same again: %+v", done)
	}
	done = w.mustInvoices(invoice(2, "d", "1"))
	if done.New != 1 || done.Others != 3 {
		t.Errorf("a late row: %+v", done)
	}
	w.wantInvoices("a=12.30", "b=0", "c=-5.00", "d=1")
}

// A row that says something else is refused without --replace, and replaced with
// it; the description alone is a difference too.
func TestImportInvoicesReplacesOnlyWhenTold(t *testing.T) {
	w := newImportWorld(t)
	w.mustInvoices(invoice(2, "a", "12.30"), invoice(3, "b", "7"))
	other := invoice(2, "a", "13.00")
	renamed := ledger.Invoice{Line: 3, AccountID: "b", Amount: "7", Currency: "usd", Description: text("October")}
	_, err := w.invoices(nil, other, renamed)
	var conflict *ledger.ConflictError
	if !errors.As(err, &conflict) || errors.Is(err, ledger.ErrInvoiceFrozen) {
		t.Fatalf("got %v, want a conflict that is not frozen", err)
	}
	want := []ledger.InvoiceConflict{
		{Line: 2, AccountID: "a", OldAmount: "12.30", OldCurrency: "usd", NewAmount: "13.00", NewCurrency: "usd"},
		{Line: 3, AccountID: "b", OldAmount: "7", OldCurrency: "usd", NewAmount: "7", NewCurrency: "usd", NewDescription: "October"},
	}
	if diff := cmp.Diff(want, conflict.List); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	w.wantInvoices("a=12.30", "b=7")
	done, err := w.invoices(func(r *ledger.InvoiceImport) { r.Replace = true }, other, renamed)
	if err != nil || done.Changed != 2 {
		t.Errorf("with replace: %+v, %v", done, err)
	}
	w.wantInvoices("a=13.00", "b=7")
}

// An invoice whose charge is recorded is never changed, with --replace neither;
// a new one may come into a done period.
func TestImportInvoicesRefusesRecordedOnes(t *testing.T) {
	w := newImportWorld(t)
	w.mustInvoices(invoice(2, "a", "12.30"))
	w.record(ledger.RunDone)
	_, err := w.invoices(func(r *ledger.InvoiceImport) { r.Replace = true }, invoice(2, "a", "13.00"))
	var conflict *ledger.ConflictError
	if !errors.Is(err, ledger.ErrInvoiceFrozen) || !errors.As(err, &conflict) || conflict.Frozen != 1 || !conflict.List[0].Frozen() {
		t.Fatalf("got %v, want ErrInvoiceFrozen with the row", err)
	}
	done := w.mustInvoices(invoice(2, "a", "12.30"), invoice(3, "late", "1.00"))
	if done.New != 1 || done.Run != ledger.RunDone {
		t.Errorf("a late invoice: %+v", done)
	}
	w.wantInvoices("a=12.30", "late=1.00")
}

// While a run is at work nothing comes into its period; a stale claim is no run.
func TestImportInvoicesKeepsOutOfALiveRun(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	_, err := w.invoices(nil, invoice(2, "a", "1"))
	var held *ledger.HeldError
	if !errors.As(err, &held) || held.Holder.RunID != run.RunID {
		t.Fatalf("got %v, want a HeldError that names the run", err)
	}
	w.Advance(3 * time.Minute)
	w.mustInvoices(invoice(2, "a", "1"))
	w.wantInvoices("a=1")
}

// A transaction of the run that holds the claim's row is a busy period too.
func TestImportInvoicesMeetsALockedClaim(t *testing.T) {
	w := newImportWorld(t)
	w.record(ledger.RunFailed)
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT FROM billing.job_runs FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	_, err = w.invoices(nil, invoice(2, "a", "1"))
	var held *ledger.HeldError
	if !errors.As(err, &held) || held.Holder.Owner != "host-a" {
		t.Errorf("got %v, want a HeldError", err)
	}
}

// A run can't begin while invoices are coming in, so that none slips by.
func TestImportInvoicesKeepsRunsOut(t *testing.T) {
	w := newImportWorld(t)
	w.record(ledger.RunFailed)
	err := ledger.InTx(t.Context(), w.Pool, func(tx pgx.Tx) error {
		req := ledger.InvoiceImport{Job: testJob, Period: testPeriod, Person: "anna"}
		if _, err := ledger.ImportInvoices(t.Context(), tx, req, fileOf(invoice(2, "a", "1"))); err != nil {
			return err
		}
		if _, err := w.tryClaim(t.Context()); !ledger.IsLockTimeout(err) {
			t.Errorf("a claim beside an import: %v, want a lock timeout", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.claim()
}
