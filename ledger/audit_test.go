package ledger_test

import (
	"errors"
	"testing"
	"time"

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
