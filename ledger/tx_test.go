package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// A write is on disk when its commit returns, and is not broken off by limits that
// the database sets for others, whatever the database's defaults are.
func TestAWriteIsDurableWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := testdb.New(t)
	_, err := db.Pool.Exec(ctx, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET synchronous_commit TO off', current_database());
		EXECUTE format('ALTER DATABASE %I SET statement_timeout TO ''1s''', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation TO serializable', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only TO on', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := ledger.Open(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, inTx := range map[string]func(context.Context, *pgxpool.Pool, func(pgx.Tx) error) error{
		"InTx": ledger.InTx, "InQueueTx": ledger.InQueueTx,
	} {
		err := inTx(ctx, pool, func(tx pgx.Tx) error {
			for setting, want := range map[string]string{
				"synchronous_commit": "on", "statement_timeout": "0", "transaction_isolation": "read committed",
				"transaction_read_only": "off", "idle_in_transaction_session_timeout": "5s",
			} {
				var got string
				if err := tx.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&got); err != nil {
					return err
				}
				if got != want {
					t.Errorf("%s: %s is %s, want %s", name, setting, got, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A deadlock or a serialization failure repeats the transaction, a bounded number
// of times; any other error does not.
func TestATransactionIsRepeatedOnlyAfterItDidNothing(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t).Pool
	for code, want := range map[string]int{"40001": 6, "40P01": 6, "23505": 1} {
		tries := 0
		err := ledger.InTx(context.Background(), pool, func(pgx.Tx) error {
			tries++
			return &pgconn.PgError{Code: code}
		})
		if tries != want || err == nil {
			t.Errorf("%s: %d tries, want %d; error %v", code, tries, want, err)
		}
	}
}

// A snapshot for reading can't be written to.
func TestAReadTransactionRefusesWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := ledger.InReadTx(ctx, testdb.New(t).Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM billing.accounts`)
		return err
	})
	if !errors.Is(err, ledger.ErrReadOnly) {
		t.Errorf("want ErrReadOnly, got %v", err)
	}
}
