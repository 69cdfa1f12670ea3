package ledger_test

import (
	"testing"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// The tables whose rights doctor asks for exist, and whoever owns them may do all.
func TestTheOwnerLacksNoRight(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	unreadable, commands, err := ledger.ReadRights(t.Context(), db.Pool)
	if err != nil || len(unreadable) > 0 || len(commands) < 8 {
		t.Fatalf("%v, %v, %v", unreadable, commands, err)
	}
	for _, c := range commands {
		if len(c.Missing) > 0 {
			t.Errorf("%v: %v", c.Commands, c.Missing)
		}
	}
}

// Postgres tells what it is without a schema, and a direct connection is no pooler.
func TestReadServer(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s, err := ledger.ReadServer(t.Context(), db.Pool)
	if err != nil || s.VersionNumber < ledger.OldestPostgres || s.Version == "" || s.Role == "" || s.Database == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	if s.Standby || s.Pooled || !s.TriggersFire || s.SynchronousCommit != "on" || s.Now.IsZero() {
		t.Errorf("%+v", s)
	}
}
