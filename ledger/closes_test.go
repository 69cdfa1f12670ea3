package ledger_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
)

func (w importWorld) close(person string) error {
	return ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		return ledger.Close(w.t.Context(), tx, testJob, testPeriod, person)
	})
}

func (w importWorld) wantClose(want ledger.PeriodClose) {
	w.t.Helper()
	got, err := ledger.ReadClose(w.t.Context(), w.Pool, testJob, testPeriod)
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.PeriodClose{}, "ClosedAt")); diff != "" {
		w.t.Errorf("close: (-want +got)\n%s", diff)
	}
}

// Closing says what the invoices came to; again with the same invoices it
// changes nothing, with more of them it brings the record up to date.
func TestClose(t *testing.T) {
	w := newImportWorld(t)
	stayOpen := func(r *ledger.InvoiceImport) { r.Open = true }
	if _, err := w.invoices(stayOpen, invoice(2, "a", "12.30"), invoice(3, "b", "0.70"),
		ledger.Invoice{Line: 4, AccountID: "c", Amount: "80", Currency: "jpy"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.ReadClose(t.Context(), w.Pool, testJob, testPeriod); !errors.Is(err, ledger.ErrNotFound) {
		t.Fatalf("an open period: %v, want ErrNotFound", err)
	}
	for _, person := range []string{"anna", "bert"} {
		if err := w.close(person); err != nil {
			t.Fatal(err)
		}
		w.wantClose(ledger.PeriodClose{ClosedBy: "anna", Invoices: 3, Sums: []ledger.InvoiceSum{
			{Currency: "jpy", Count: 1, Amount: decimal.RequireFromString("80")},
			{Currency: "usd", Count: 2, Amount: decimal.RequireFromString("13")},
		}})
	}
	w.mustInvoices(invoice(2, "d", "7"))
	w.wantClose(ledger.PeriodClose{ClosedBy: "anna", Invoices: 4, Sums: []ledger.InvoiceSum{
		{Currency: "jpy", Count: 1, Amount: decimal.RequireFromString("80")},
		{Currency: "usd", Count: 3, Amount: decimal.RequireFromString("20")},
	}})
	if _, err := w.invoices(stayOpen, invoice(2, "e", "1")); err != nil {
		t.Fatal(err)
	}
	w.wantClose(ledger.PeriodClose{ClosedBy: "anna", Invoices: 5, Sums: []ledger.InvoiceSum{
		{Currency: "jpy", Count: 1, Amount: decimal.RequireFromString("80")},
		{Currency: "usd", Count: 4, Amount: decimal.RequireFromString("21")},
	}})
	events, err := ledger.ReadPeriodEvents(t.Context(), w.Pool, testJob, testPeriod)
	if err != nil || len(events) != 3 || events[0].Action != "close" || events[0].Person != "anna" {
		t.Errorf("events: %+v, %v, want three closes", events, err)
	}
}

// A month without invoices is a mistake of somebody, not a complete month.
func TestCloseRefusesAnEmptyPeriod(t *testing.T) {
	w := newImportWorld(t)
	if err := w.close("anna"); !errors.Is(err, ledger.ErrNoInvoices) {
		t.Errorf("got %v, want ErrNoInvoices", err)
	}
}

// Only who bills from our own table must close: it is seen through views, and a
// company's own table is not.
func TestNeedsClose(t *testing.T) {
	w := newImportWorld(t)
	for _, step := range []struct {
		what, sql       string
		close, accounts bool
	}{
		{"the default view", `SELECT 1`, true, true},
		{"through a view of their own", `
			CREATE VIEW public.mine AS SELECT * FROM billing.invoices;
			CREATE OR REPLACE VIEW billing.billable AS
			SELECT i.job, i.period, i.account_id, i.amount, i.currency, i.description, ''::text AS stripe_account,
			       ''::text AS stripe_customer, ''::text AS payment_method, ''::text AS name, ''::text AS email, 'active'::text AS status
			FROM public.mine i`, true, false},
		{"a table of their own", `
			CREATE TABLE public.owed AS SELECT * FROM billing.billable;
			CREATE OR REPLACE VIEW billing.billable AS
			SELECT job, period COLLATE "C" AS period, account_id COLLATE "C" AS account_id, amount, currency, description,
			       stripe_account, stripe_customer, payment_method, name, email, status
			FROM public.owed`, false, false},
	} {
		if _, err := w.Pool.Exec(t.Context(), step.sql); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		needs, err := ledger.NeedsClose(t.Context(), w.Pool)
		if err != nil || needs != step.close {
			t.Errorf("%s: needs a close: %v, %v", step.what, needs, err)
		}
		uses, err := ledger.UsesAccounts(t.Context(), w.Pool)
		if err != nil || uses != step.accounts {
			t.Errorf("%s: uses accounts: %v, %v", step.what, uses, err)
		}
	}
}
