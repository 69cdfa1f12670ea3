package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// auditOf asks for the audit of October as a process of its own.
func auditOf(t *testing.T, db *testdb.DB) (ledger.Audit, error) {
	t.Helper()
	var a ledger.Audit
	err := ledger.InTx(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		a, err = ledger.TakeAudit(t.Context(), tx, ledger.AuditRequest{
			Job: ledger.DefaultJob, Period: "2026-10", Horizon: time.Date(2026, 9, 30, 0, 0, 0, 0, time.UTC), RunID: uuid.New(), Owner: "test", Lease: time.Minute,
		})
		return err
	})
	return a, err
}

// One process owns an audit. Another one gets it when the lease is over, goes on with
// what was noted, and what the first one writes after that is rolled back. After six
// hours an audit is begun anew.
func TestAnAuditHasOneOwner(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	first, err := auditOf(t, db)
	if err != nil || first.Resumed {
		t.Fatalf("%+v, %v", first, err)
	}
	list := []ledger.AuditList{{Part: 1, List: "payments", CreatedFrom: first.Horizon, CreatedTo: first.StartedAt}}
	if err := ledger.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error { return first.AddLists(t.Context(), tx, list) }); err != nil {
		t.Fatal(err)
	}
	var held *ledger.HeldError
	if _, err := auditOf(t, db); !errors.As(err, &held) || held.Holder.Owner != "test" {
		t.Errorf("a second process: %v", err)
	}
	db.Advance(2 * time.Minute)
	second, err := auditOf(t, db)
	if err != nil || !second.Resumed || second.ID != first.ID || !second.StartedAt.Equal(first.StartedAt) {
		t.Fatalf("%+v, %v", second, err)
	}
	err = ledger.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
		if err := first.Read(t.Context(), tx, 1, "pi_1", 1, true); err != nil {
			return err
		}
		return first.Keep(t.Context(), tx, time.Minute, 1)
	})
	if !errors.Is(err, ledger.ErrClaimLost) {
		t.Errorf("the first process: %v", err)
	}
	if lists, err := second.Lists(t.Context(), db.Pool); err != nil || len(lists) != 1 || lists[0].Done {
		t.Errorf("%+v, %v", lists, err)
	}
	db.Advance(7 * time.Hour)
	third, err := auditOf(t, db)
	if err != nil || third.Resumed || third.ID == first.ID {
		t.Fatalf("%+v, %v", third, err)
	}
	if lists, err := second.Lists(t.Context(), db.Pool); err != nil || len(lists) != 0 {
		t.Errorf("of the old one is left %+v, %v", lists, err)
	}
}

// A list's notebook of which Postgres lost everything in a crash is as if nothing had
// been read: the lists are planned again.
func TestALostNotebookIsWrittenAgain(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	a, err := auditOf(t, db)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"audit_lists", "audit_payments", "audit_returns", "audit_differences"} {
		var persistence string
		if err := db.Pool.QueryRow(t.Context(), `SELECT relpersistence::text FROM pg_class WHERE oid = ('billing.' || $1)::regclass`, table).Scan(&persistence); err != nil || persistence != "u" {
			t.Errorf("%s is %q, %v: a crash must empty all of the notebook or nothing", table, persistence, err)
		}
	}
	if lists, err := a.Lists(t.Context(), db.Pool); err != nil || len(lists) != 0 {
		t.Errorf("%+v, %v", lists, err)
	}
}

// The balance is summed by the days of its movements, in the period's zone, and apart for
// payments by which no charge is paid; what an older program noted has no day, and is not
// lost.
func TestTheBalanceIsSummedByDay(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	a, err := auditOf(t, db)
	if err != nil {
		t.Fatal(err)
	}
	day := func(n int) time.Time { return time.Date(2026, 11, n, 12, 0, 0, 0, time.UTC) }
	booked := day(1)
	payment := ledger.AuditPayment{
		PaymentIntent: "pi_1", BillingKey: "monthly-billing/2026-10/a", Job: ledger.DefaultJob, Period: "2026-10", AccountID: "a", Try: 1, Status: "succeeded",
		Amount: 1000, Received: 1000, Currency: "usd", Created: booked, BalanceCurrency: "usd", BalanceDigits: 2, Gross: 1000, Fee: 59, Net: 941, BookedAt: &booked,
	}
	dispute := ledger.AuditReturn{
		ID: "du_1", Kind: "dispute", PaymentIntent: "pi_1", Amount: 1000, Currency: "usd", BalanceCurrency: "usd", Fee: 1500,
		Moves: []ledger.AuditMove{{At: day(3), Currency: "usd", Gross: -1000, Fee: 1500}, {At: day(9), Currency: "usd", Gross: 1000}},
	}
	underWay := ledger.AuditReturn{ID: "re_1", Kind: "refund", PaymentIntent: "pi_1", Amount: 5, Currency: "usd", Moves: []ledger.AuditMove{}}
	var got []ledger.BalanceSum
	err = ledger.InTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO billing.audit_returns (audit, id, kind, payment_intent, status, amount, currency, balance_currency, gross, fee)
			VALUES ($1, 're_0', 'refund', 'pi_1', 'succeeded', 7, 'usd', 'usd', -7, 0)`, a.ID)
		if err := errors.Join(err, a.NotePayments(t.Context(), tx, "", []ledger.AuditPayment{payment}), a.NoteReturns(t.Context(), tx, []ledger.AuditReturn{dispute, underWay})); err != nil {
			return err
		}
		got, err = a.BalanceSums(t.Context(), tx)
		return err
	})
	want := []ledger.BalanceSum{
		{Kind: "dispute", Currency: "usd", BalanceCurrency: "usd", Day: "2026-11-03", Count: 1, Moves: 1, Amount: 1000, Gross: -1000, Fee: 1500},
		{Kind: "dispute", Currency: "usd", BalanceCurrency: "usd", Day: "2026-11-09", Moves: 1, Gross: 1000},
		{Kind: "payment", Currency: "usd", BalanceCurrency: "usd", Day: "2026-11-01", Count: 1, Moves: 1, Amount: 1000, Gross: 1000, Fee: 59},
		{Kind: "refund", Currency: "usd", BalanceCurrency: "usd", Count: 1, Moves: 1, Amount: 7, Gross: -7},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
