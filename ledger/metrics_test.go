package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// The numbers of a period are those of its rows: an answer that is not known counts
// as unknown until it is, and what waits is as old as the first of it.
func TestMeasureCountsWhatIsThere(t *testing.T) {
	w := newAnswersWorld(t, "a", "b", "c")
	w.record(paid(w.permits["a"], "pi_a"), unknown(w.permits["b"]), notExecuted(w.permits["c"]))
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		for _, f := range []ledger.Finding{
			{Kind: "duplicate", Severity: ledger.SeverityAct, BillingKey: "a"}, {Kind: "duplicate", Severity: ledger.SeverityAct, BillingKey: "b"},
			{Kind: "amount", Severity: ledger.SeverityNote, BillingKey: "a"},
		} {
			f.Job, f.Period = testJob, testPeriod
			if _, err := ledger.OpenFinding(ctx, tx, f); err != nil {
				return err
			}
		}
		return nil
	})
	w.SetOffset(w.Offset() + 3*time.Hour)
	got, err := ledger.Measure(t.Context(), w.Pool, testJob, testPeriod)
	if err != nil {
		t.Fatal(err)
	}
	if got.OldestPending < 3*time.Hour || got.OldestPending > 4*time.Hour {
		t.Errorf("the oldest waits for %s, want three hours", got.OldestPending)
	}
	got.OldestPending = 0
	want := ledger.Measures{
		Period: testPeriod, Unknown: 1,
		Charges: []ledger.ChargeMeasure{{ledger.ChargePending, "usd", 2, 2000}, {ledger.ChargeSucceeded, "usd", 1, 1000}},
		Findings: []ledger.FindingMeasure{
			{ledger.SeverityAct, "duplicate", 2}, {ledger.SeverityNote, "amount", 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
	other, err := ledger.Measure(t.Context(), w.Pool, testJob, "2027-01")
	if diff := cmp.Diff(ledger.Measures{Period: "2027-01"}, other, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("a period that is nowhere: %v (-want +got):\n%s", err, diff)
	}
}

// Only charges that left pending on evidence are settled.
func TestSettledCountsKnownOutcomes(t *testing.T) {
	t.Parallel()
	var s ledger.Summary
	for _, state := range ledger.ChargeStates {
		s.Sums = append(s.Sums, ledger.StateSum{State: state, Count: 1})
	}
	if got, want := s.Settled(), int64(len(ledger.ChargeStates)-3); got != want {
		t.Errorf("%d settled, want %d: all but pending, skipped and void", got, want)
	}
}

// A refused claim is counted at the attempt that owns the period, also while its
// owner records, and at none when nobody owns it.
func TestARefusedClaimIsCountedAtItsOwner(t *testing.T) {
	w := newImportWorld(t)
	refused := func() (n int64) {
		m, err := ledger.Measure(t.Context(), w.Pool, testJob, testPeriod)
		if err != nil {
			t.Fatal(err)
		}
		return m.Refused
	}
	count := func() {
		w.mustIn(func(ctx context.Context, tx pgx.Tx) error { return ledger.CountRefusal(ctx, tx, testJob, testPeriod) })
	}
	count()
	run := w.claim()
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		if err := run.Lock(ctx, tx); err != nil {
			return err
		}
		count() // in a transaction of its own, beside this one
		return nil
	})
	count()
	if n := refused(); n != 2 {
		t.Errorf("%d are counted, want 2", n)
	}
	if _, _, err := ledger.LastDone(t.Context(), w.Pool, testJob); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("nothing is done: %v, want ErrNotFound", err)
	}
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		return run.Finish(ctx, tx, ledger.RunDone, ledger.Outcome{})
	})
	count()
	if n := refused(); n != 2 {
		t.Errorf("%d are counted after the end, want 2", n)
	}
	period, at, err := ledger.LastDone(t.Context(), w.Pool, testJob)
	if err != nil || period != testPeriod || at.IsZero() {
		t.Errorf("last done: %s at %s, %v", period, at, err)
	}
	if latest, err := ledger.LatestRun(t.Context(), w.Pool, testJob); err != nil || latest != testPeriod {
		t.Errorf("the latest run: %s, %v", latest, err)
	}
	if _, err := ledger.LatestRun(t.Context(), w.Pool, "other"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of another job: %v, want ErrNotFound", err)
	}
}
