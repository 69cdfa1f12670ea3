package ledger_test

import (
	"testing"

	"github.com/chargeonce/billing/ledger"
)

// A message that a person gave up while it was on its way, and that arrived, is sent: the
// ledger says what happened, not what was wanted.
func TestADroppedMessageThatArrivedIsSent(t *testing.T) {
	t.Parallel()
	db := threeMessages(t)
	tx := begin(t, db)
	if _, err := ledger.DropMessages(t.Context(), tx, ledger.MessageQuery{Job: "j", States: []ledger.MessageState{ledger.MessageDead}}, "p", "w"); err != nil {
		t.Fatal(err)
	}
	if err := recordSent(t.Context(), tx, 2); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := tx.QueryRow(t.Context(), `SELECT string_agg(state, ' ' ORDER BY id) FROM billing.outbox`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != "dropped sent dropped" {
		t.Errorf("they are %s", got)
	}
}

// While a copy of a mail may have arrived, no other one goes out under another sender.
func TestASenderStaysWhileACopyMayHaveArrived(t *testing.T) {
	t.Parallel()
	db := threeMessages(t)
	exec := func(sql string) error { _, err := db.Pool.Exec(t.Context(), sql); return err }
	if err := exec(`UPDATE billing.outbox SET sender = 'a', tries = 1, open_tries = id % 2, first_try_at = billing.now()`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sql     string
		allowed bool
	}{
		{`UPDATE billing.outbox SET sender = 'b' WHERE id = 1`, false}, {`UPDATE billing.outbox SET sender = '' WHERE id = 1`, false},
		{`UPDATE billing.outbox SET sender = 'b' WHERE id = 2`, false}, {`UPDATE billing.outbox SET sender = '' WHERE id = 2`, true},
	} {
		if err := exec(c.sql); (err == nil) != c.allowed {
			t.Errorf("%s: %v", c.sql, err)
		}
	}
}
