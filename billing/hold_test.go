package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// newHold holds October of a ledger in which one charge has a state.
func newHold(t *testing.T, state ledger.ChargeState) (*testdb.DB, Hold) {
	t.Parallel()
	db := testdb.New(t)
	for _, sql := range []string{
		`INSERT INTO billing.accounts (account_id, stripe_customer) VALUES ('a', 'cus_1')`,
		`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash) VALUES ('monthly-billing', '2026-10', 'a', 10, 'usd', 'test', '')`,
		`INSERT INTO billing.period_closes (job, period, closed_by, invoices, sums) VALUES ('monthly-billing', '2026-10', 'anna', 1, '{}')`,
		`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			stripe_customer, window_opened_at, payment_intent, settled_at, recorded_by, created_at)
		 SELECT 'monthly-billing', '2026-10', 'a', k, 10, 'usd', 1000, '` + string(state) + `', k, 'x', sha256('x'), 'cus_1', t, 'pi_1',
			CASE WHEN '` + string(state) + `' <> 'pending' THEN t END, gen_random_uuid(), t FROM (SELECT 'monthly-billing/2026-10/a' AS k, billing.now() AS t) v`,
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return db, Hold{Pool: db.Pool, Log: slog.New(slog.DiscardHandler), ExitCode: func(err error) int {
		if err != nil {
			return 75
		}
		return 0
	}, Request: ledger.ClaimRequest{Job: ledger.DefaultJob, Period: "2026-10", Owner: "host", Build: "test", Lease: 2 * time.Minute, Timeout: time.Hour, Location: time.UTC}}
}

func nothing(context.Context, ledger.Run, func()) (ledger.Outcome, error) {
	return ledger.Outcome{}, nil
}

// left is the claim's state, the number of attempts, and the last one's result.
func left(t *testing.T, db *testdb.DB) (s string) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `SELECT concat_ws(' ', r.state, r.attempt, a.result, a.exit_code) FROM billing.job_runs r
		JOIN billing.job_run_attempts a USING (job, period, attempt)`).Scan(&s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A hold is given up as done where nothing is left to do, else so that the next
// run goes on.
func TestAHoldLeavesThePeriodAsItIs(t *testing.T) {
	for state, want := range map[ledger.ChargeState]string{
		ledger.ChargeSucceeded: "done 1 done 0", ledger.ChargeHeld: "done 1 done 75", ledger.ChargePending: "failed 1 failed 75",
	} {
		t.Run(string(state), func(t *testing.T) {
			db, hold := newHold(t, state)
			if err := hold.While(t.Context(), nothing); err != nil {
				t.Fatal(err)
			}
			if got := left(t, db); got != want {
				t.Errorf("left %q, want %q", got, want)
			}
		})
	}
}

// Work that fails leaves the period to the next run, with the error that it had.
func TestAHoldThatFailsIsGivenUp(t *testing.T) {
	db, hold := newHold(t, ledger.ChargeSucceeded)
	broken := errors.New("broken")
	err := hold.While(t.Context(), func(context.Context, ledger.Run, func()) (ledger.Outcome, error) { return ledger.Outcome{}, broken })
	if got := left(t, db); !errors.Is(err, broken) || got != "failed 1 failed 75" {
		t.Errorf("%v, left %q", err, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = hold.While(ctx, func(ctx context.Context, _ ledger.Run, _ func()) (ledger.Outcome, error) {
		cancel()
		return ledger.Outcome{}, fmt.Errorf("look: %w", ctx.Err())
	})
	if got := left(t, db); !errors.Is(err, context.Canceled) || got != "failed 2 failed 75" {
		t.Errorf("interrupted: %v, left %q", err, got)
	}
}

// A period that somebody owns is left alone, and so is one whose first step fails.
func TestAHoldIsNotTakenFromAnother(t *testing.T) {
	db, hold := newHold(t, ledger.ChargeSucceeded)
	never := func(context.Context, ledger.Run, func()) (ledger.Outcome, error) {
		t.Error("worked without the claim")
		return ledger.Outcome{}, nil
	}
	err := hold.While(t.Context(), func(ctx context.Context, run ledger.Run, _ func()) (ledger.Outcome, error) {
		var held *ledger.HeldError
		if err := hold.While(ctx, never); !errors.As(err, &held) || held.Holder.RunID != run.RunID {
			t.Errorf("beside another: %v, want a HeldError", err)
		}
		return ledger.Outcome{}, nil
	})
	if got := left(t, db); err != nil || got != "done 1 done 0" {
		t.Fatalf("%v, left %q", err, got)
	}
	refused := errors.New("refused")
	hold.Before = func(context.Context, pgx.Tx) error { return refused }
	if err := hold.While(t.Context(), never); !errors.Is(err, refused) {
		t.Errorf("%v, want that it was refused", err)
	}
	if got := left(t, db); got != "done 1 done 0" {
		t.Errorf("left %q", got)
	}
}

// Whoever loses the claim meanwhile does not give up what is another's.
func TestAHoldThatWasTakenOverIsLeftToItsOwner(t *testing.T) {
	db, hold := newHold(t, ledger.ChargeSucceeded)
	err := hold.While(t.Context(), func(ctx context.Context, _ ledger.Run, _ func()) (ledger.Outcome, error) {
		db.Advance(2 * time.Hour)
		hold.Request.RunID = newRunID()
		err := ledger.InTx(ctx, db.Pool, func(tx pgx.Tx) error {
			_, err := ledger.TakeClaim(ctx, tx, hold.Request)
			return err
		})
		return ledger.Outcome{}, err
	})
	if got := left(t, db); !errors.Is(err, ledger.ErrClaimLost) || got != "claimed 2 claimed" {
		t.Errorf("%v, left %q", err, got)
	}
}
