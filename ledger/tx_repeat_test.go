package ledger_test

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// A transaction whose server went away may have been committed: it is not repeated
// here, and whoever began it decides.
func TestATransactionThatMayHaveBeenCommittedIsNotRepeated(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t).Pool
	for name, lost := range map[string]error{
		"shut down": &pgconn.PgError{Code: "57P01"}, "crashed": &pgconn.PgError{Code: "57P02"}, "cut off": &pgconn.PgError{Code: "08006"},
		"stood still": &pgconn.PgError{Code: "25P03"}, "broken connection": io.ErrUnexpectedEOF,
	} {
		tries := 0
		err := ledger.InTx(context.Background(), pool, func(pgx.Tx) error {
			tries++
			return lost
		})
		if tries != 1 || !ledger.IsUnreachable(err) {
			t.Errorf("%s: %d tries, want 1; error %v", name, tries, err)
		}
	}
}
