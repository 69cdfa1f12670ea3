package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// pendingOf records one charge of an account for a customer of one's choice.
func (w importWorld) pendingOf(account string, customer ledger.StripeCustomer) {
	w.t.Helper()
	_, err := w.Pool.Exec(w.t.Context(), `
		INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			stripe_account, stripe_customer, window_opened_at, recorded_by, created_at)
		SELECT 'monthly-billing', '2026-10', $1, k, 10, 'usd', 1000, 'pending', k, 'x', sha256('x'), $2, $3, billing.now(), gen_random_uuid(), billing.now()
		FROM (SELECT 'monthly-billing/2026-10/' || $1 AS k) key`, account, customer.Account, customer.ID)
	if err != nil {
		w.t.Fatal(err)
	}
}

func accountsOf(permits []ledger.Permit) (list []string) {
	for _, p := range permits {
		list = append(list, p.AccountID)
	}
	return list
}

// No charge of a customer that the process is busy with is handed out, whichever
// account it is of; the same id at another Stripe account is another customer.
func TestACustomerUnderWayIsLeftOutOfAClaim(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	shared, elsewhere := ledger.StripeCustomer{ID: "cus_1"}, ledger.StripeCustomer{Account: "acct_x", ID: "cus_1"}
	for account, customer := range map[string]ledger.StripeCustomer{
		"a": shared, "b": shared, "c": elsewhere, "d": {ID: "cus_2"}, "e": {ID: "cus_12"},
	} {
		w.pendingOf(account, customer)
	}
	limits := oneSend
	limits.UnderWay = []ledger.StripeCustomer{shared, {ID: "cus_2"}}
	if got := accountsOf(w.permits(run, limits)); !slices.Equal(got, []string{"c", "e"}) {
		t.Errorf("claimed %q, want c and e", got)
	}
	if got := accountsOf(w.permits(run, oneSend)); !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("claimed %q when nothing was under way, want what was left out", got)
	}
}

// A new owner is told for whom the one before may still send, and how long.
func TestTheLeasesOfAnEarlierOwnerAreKnown(t *testing.T) {
	w := newImportWorld(t)
	old := w.claim()
	w.pendingOf("a", ledger.StripeCustomer{Account: "acct_x", ID: "cus_1"})
	w.pendingOf("b", ledger.StripeCustomer{ID: "cus_2"})
	limits := oneSend
	limits.Rows = 1
	w.permits(old, limits)
	w.finish(ledger.RunFailed)
	run := w.claim()
	w.permits(run, limits) // its own leases are no news
	leases, err := ledger.LeasesOfOthers(t.Context(), w.Pool, run)
	if err != nil || len(leases) != 1 {
		t.Fatalf("%+v, %v; want one lease", leases, err)
	}
	if diff := cmp.Diff(ledger.StripeCustomer{Account: "acct_x", ID: "cus_1"}, leases[0].Customer); diff != "" {
		t.Error(diff)
	}
	if left := leases[0].Left; left > ledger.PermitLife || left < ledger.PermitLife-10*time.Second {
		t.Errorf("the lease ends in %s, want nearly %s", left, ledger.PermitLife)
	}
	w.Advance(ledger.PermitLife)
	if leases, err := ledger.LeasesOfOthers(t.Context(), w.Pool, run); err != nil || len(leases) != 0 {
		t.Errorf("%+v, %v; want none when they are over", leases, err)
	}
}

// With hundreds of customers under way a claim of a large queue still goes by
// index, in a table without statistics.
func TestAClaimPassesOverHundredsOfCustomersByIndex(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	for _, sql := range []string{
		`ALTER TABLE billing.charges SET (autovacuum_enabled = off)`,
		`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			stripe_customer, window_opened_at, recorded_by, created_at)
		 SELECT 'monthly-billing', '2026-10', 'a' || lpad(i::text, 6, '0'), 'k' || i, 10, 'usd', 1000, 'pending', 'k' || i, 'x', sha256('x'),
			'cus_' || i, billing.now(), gen_random_uuid(), billing.now() FROM generate_series(1, 20000) i`,
	} {
		if _, err := w.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var underWay []ledger.StripeCustomer
	err := ledger.InQueueTx(t.Context(), w.Pool, func(tx pgx.Tx) error {
		// Twenty thousand times twenty thousand would take minutes.
		if _, err := tx.Exec(t.Context(), `SET LOCAL statement_timeout TO '20s'`); err != nil {
			return err
		}
		for range 6 {
			permits, err := ledger.ClaimCharges(t.Context(), tx, run, ledger.ClaimLimits{Rows: 250, SendsPerRun: 6, Permit: ledger.PermitLife, UnderWay: underWay})
			if err != nil {
				return err
			}
			if len(permits) != 250 {
				t.Errorf("%d rows claimed, want 250", len(permits))
			}
			for _, p := range permits {
				underWay = append(underWay, ledger.StripeCustomer{ID: p.StripeCustomer})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
