package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// A charge is shown whole, and one that isn't there is said to be so.
func TestReadHistory(t *testing.T) {
	w := newImportWorld(t)
	w.mustInvoices(invoice(2, "a", "0.00"))
	if _, err := ledger.ReadHistory(t.Context(), w.Pool, testJob, testPeriod, "a"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("before it is recorded: %v, want ErrNotFound", err)
	}
	amount, currency, err := ledger.BillableOf(t.Context(), w.Pool, testJob, testPeriod, "a")
	if err != nil || amount != "0.00" || currency != "usd" {
		t.Errorf("what is owed: %q %q %v", amount, currency, err)
	}
	if _, _, err := ledger.BillableOf(t.Context(), w.Pool, testJob, testPeriod, "A"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("another account: %v, want ErrNotFound", err)
	}
	w.record(ledger.RunFailed)
	const sqlVoid = `
WITH e AS (
    INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person, detail)
    VALUES ('monthly-billing', '2026-10', 'a', 1, 'skipped', 'void', 'person', 'anna', 'paid in cash') RETURNING id)
UPDATE billing.charges SET state = 'void', last_event = e.id FROM e`
	if _, err := w.Pool.Exec(t.Context(), sqlVoid); err != nil {
		t.Fatal(err)
	}
	h, err := ledger.ReadHistory(t.Context(), w.Pool, testJob, testPeriod, "a")
	if err != nil {
		t.Fatal(err)
	}
	if h.Charge.State != ledger.ChargeVoid || h.Charge.Amount != "0.00" || h.Charge.BillingKey != "monthly-billing/2026-10/a" {
		t.Errorf("charge: %+v", h.Charge)
	}
	if len(h.Events) != 1 || h.Events[0].Person != "anna" || h.Events[0].Detail != "paid in cash" || h.Events[0].RunID != nil {
		t.Errorf("events: %+v", h.Events)
	}
}

// Every charge is given once, in the order of bytes and with the columns of
// report_charges, and an error ends it.
func TestEachChargeRow(t *testing.T) {
	w := newImportWorld(t)
	w.mustInvoices(invoice(2, "b", "1"), invoice(3, "ä", "2"), invoice(4, "B", "3"))
	w.record(ledger.RunDone)
	each := func(do func(ledger.Cells) error) error {
		return ledger.InReadTx(t.Context(), w.Pool, func(tx pgx.Tx) error {
			return ledger.EachChargeRow(t.Context(), tx, testJob, testPeriod, do)
		})
	}
	var got []string
	err := each(func(row ledger.Cells) error {
		got = append(got, string(row[2])+"="+string(row[9]))
		return nil
	})
	if want := []string{"B=3", "b=1", "ä=2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	full := errors.New("the disk is full")
	if err := each(func(ledger.Cells) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want the error of the writer", err)
	}
}

// The last periods come from invoices, charges and runs alike, the latest first.
func TestReadPeriods(t *testing.T) {
	w := newImportWorld(t)
	w.mustInvoices(invoice(2, "a", "1"), invoice(3, "b", "2"))
	w.record(ledger.RunDone)
	if _, err := w.invoices(func(r *ledger.InvoiceImport) { r.Period, r.Open = "2026-12", true }, invoice(2, "a", "1")); err != nil {
		t.Fatal(err)
	}
	got, err := ledger.ReadPeriods(t.Context(), w.Pool, testJob, 12)
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.PeriodLine{
		{Period: "2026-12", Charges: map[ledger.ChargeState]int64{}},
		{Period: "2026-10", State: ledger.RunDone, Attempt: 1, Owner: "host-a", Closed: true,
			Charges: map[ledger.ChargeState]int64{ledger.ChargeSkipped: 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got, err = ledger.ReadPeriods(t.Context(), w.Pool, testJob, 1); err != nil || len(got) != 1 {
		t.Errorf("the last one: %+v, %v", got, err)
	}
	if got, err = ledger.ReadPeriods(t.Context(), w.Pool, "other", 12); err != nil || len(got) != 0 {
		t.Errorf("another job: %+v, %v", got, err)
	}
}
