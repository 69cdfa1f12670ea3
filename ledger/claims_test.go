package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

const testLease = 2 * time.Minute // that of importWorld.claim

// in runs do in a transaction of its own.
func (w importWorld) in(do func(ctx context.Context, tx pgx.Tx) error) error {
	w.t.Helper()
	return ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error { return do(w.t.Context(), tx) })
}

func (w importWorld) mustIn(do func(ctx context.Context, tx pgx.Tx) error) {
	w.t.Helper()
	if err := w.in(do); err != nil {
		w.t.Fatal(err)
	}
}

// pending records accounts that each owe 10 usd, whose windows open now.
func (w importWorld) pending(run ledger.Run, accounts ...string) {
	w.t.Helper()
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error { return w.recordIn(ctx, tx, run, accounts...) })
}

func (w importWorld) recordIn(ctx context.Context, tx pgx.Tx, run ledger.Run, accounts ...string) error {
	if err := run.Lock(ctx, tx); err != nil {
		return err
	}
	staging, err := ledger.NewStaging(ctx, tx)
	if err != nil {
		return err
	}
	rows, decided := make([]ledger.Billable, len(accounts)), make([]ledger.Decision, len(accounts))
	for i, id := range accounts {
		body := "amount=1000&customer=cus_" + id
		rows[i] = ledger.Billable{AccountID: id, Amount: "10.00", Currency: "usd", StripeCustomer: "cus_" + id, Status: "active"}
		decided[i] = ledger.Decision{State: ledger.ChargePending, Currency: "usd", AmountMinor: 1000,
			BillingKey: ledger.BillingKey(testJob, testPeriod, id), Body: body, BodySHA256: sha256.Sum256([]byte(body))}
	}
	if err := staging.Add(ctx, rows, decided); err != nil {
		return err
	}
	now, err := ledger.Now(ctx, tx)
	if err != nil {
		return err
	}
	n, err := staging.Record(ctx, run, now)
	if err == nil && n != int64(len(accounts)) {
		err = fmt.Errorf("%d of %d charges were recorded", n, len(accounts))
	}
	return err
}

func accounts(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("a%03d", i)
	}
	return list
}

var oneSend = ledger.ClaimLimits{Rows: 100, SendsPerRun: 6, Permit: 30 * time.Second}

func (w importWorld) permits(run ledger.Run, limits ledger.ClaimLimits) []ledger.Permit {
	w.t.Helper()
	permits, err := w.tryPermits(run, limits)
	if err != nil {
		w.t.Fatal(err)
	}
	return permits
}

func (w importWorld) tryPermits(run ledger.Run, limits ledger.ClaimLimits) (permits []ledger.Permit, err error) {
	err = ledger.InQueueTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		permits, err = ledger.ClaimCharges(w.t.Context(), tx, run, limits)
		return err
	})
	return permits, err
}

// value reads one value from the database.
func value[T any](w importWorld, sql string, args ...any) (v T) {
	w.t.Helper()
	if err := w.Pool.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// together calls do n times at once.
func together(n int, do func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { do(i) })
	}
	wait.Wait()
}

// waitsForLock returns once a session waits for a lock of another.
func (w importWorld) waitsForLock() {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 20_000 {
		if value[bool](w, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`) {
			return
		}
		<-tick.C
	}
	w.t.Fatal("nobody waits for a lock: the two do not exclude each other")
}

// Of many that ask at once, one owns the period, new, stale or failed; the others
// are shown the holder. A done period is nobody's.
func TestRacingClaimsHaveOneOwner(t *testing.T) {
	w := newImportWorld(t)
	race := func(what string, attempt int) {
		t.Helper()
		var mu sync.Mutex
		var owners []ledger.Run
		together(8, func(int) {
			run, err := w.tryClaim(t.Context())
			mu.Lock()
			defer mu.Unlock()
			var held *ledger.HeldError
			switch {
			case err == nil:
				owners = append(owners, run)
			case !errors.As(err, &held):
				t.Errorf("%s: %v", what, err)
			}
		})
		if attempt == 0 {
			if len(owners) != 0 {
				t.Errorf("%s: %d owners", what, len(owners))
			}
			return
		}
		if len(owners) != 1 || owners[0].Attempt != attempt || owners[0].State != ledger.RunClaimed {
			t.Fatalf("%s: owners %+v, want one with attempt %d", what, owners, attempt)
		}
		stored, err := ledger.ReadRun(t.Context(), w.Pool, testJob, testPeriod)
		if err != nil || stored.RunID != owners[0].RunID {
			t.Errorf("%s: the ledger says that %s owns it, %v", what, stored.RunID, err)
		}
	}
	race("new", 1)
	race("live", 0)
	w.Advance(testLease - 5*time.Second)
	race("before its lease ends", 0)
	w.Advance(6 * time.Second)
	race("stale", 2)
	w.finish(ledger.RunFailed)
	race("failed", 3)
	w.finish(ledger.RunDone)
	w.Advance(24 * time.Hour)
	race("done", 0)
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		_, err := ledger.Reopen(ctx, tx, testJob, testPeriod, "anna", "late invoice")
		return err
	})
	race("reopened", 4)
	if got := value[string](w, `SELECT string_agg(result, ' ' ORDER BY attempt) FROM billing.job_run_attempts`); got != "taken_over failed done claimed" {
		t.Errorf("the attempts are kept as %q", got)
	}
}

// finish ends the present run.
func (w importWorld) finish(state ledger.RunState) {
	w.t.Helper()
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		run, err := ledger.ReadRun(ctx, tx, testJob, testPeriod)
		if err != nil {
			return err
		}
		return run.Finish(ctx, tx, state, ledger.Outcome{})
	})
}

// A heartbeat keeps a claim, but not past its deadline.
func TestAHeartbeatKeepsAClaimUntilItsDeadline(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim() // for an hour
	beat := func() error { return w.in(run.Heartbeat) }
	for range 59 {
		w.Advance(time.Minute)
		if err := beat(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.tryClaim(t.Context()); err == nil {
		t.Error("a live claim was taken")
	}
	w.Advance(61 * time.Second)
	if err := beat(); !errors.Is(err, ledger.ErrClaimLost) {
		t.Errorf("a heartbeat after the deadline: %v, want ErrClaimLost", err)
	}
	if second := w.claim(); second.Attempt != 2 {
		t.Errorf("attempt %d after the deadline, want 2", second.Attempt)
	}
}

// T49: a claim always has an end: no time of it can be missing.
func TestAClaimAlwaysHasAnEnd(t *testing.T) {
	w := newImportWorld(t)
	w.claim()
	for _, change := range []string{"heartbeat_at = NULL", "deadline_at = NULL", "lease = NULL", "lease = '0'", "lease = '-1s'", "attempt = 0", "run_id = NULL"} {
		if _, err := w.Pool.Exec(t.Context(), `UPDATE billing.job_runs SET `+change); err == nil {
			t.Errorf("%s is taken", change)
		}
	}
}

// A run that was taken over may record answers, and nothing else.
func TestALostOwnerMayOnlyRecordAnswers(t *testing.T) {
	w := newImportWorld(t)
	old := w.claim()
	w.pending(old, "a", "b")
	permits := w.permits(old, ledger.ClaimLimits{Rows: 1, SendsPerRun: 6, Permit: 30 * time.Second})
	w.Advance(testLease + time.Second)
	now := w.claim()

	for what, do := range map[string]func(context.Context, pgx.Tx) error{
		"heartbeat": old.Heartbeat,
		"lock":      old.Lock,
		"record":    func(ctx context.Context, tx pgx.Tx) error { return w.recordIn(ctx, tx, old, "c") },
		"finish": func(ctx context.Context, tx pgx.Tx) error {
			return old.Finish(ctx, tx, ledger.RunDone, ledger.Outcome{})
		},
	} {
		if err := w.in(do); !errors.Is(err, ledger.ErrClaimLost) {
			t.Errorf("%s: %v, want ErrClaimLost", what, err)
		}
	}
	if got := w.permits(old, oneSend); len(got) != 0 {
		t.Errorf("it got %d permits", len(got))
	}
	rec, err := ledger.RecordAnswers(t.Context(), w.Pool, old, []ledger.Answer{paid(permits[0], "pi_1")})
	if err != nil || rec.Settled[ledger.ChargeSucceeded] != 1 {
		t.Errorf("its answer: %+v, %v; want it settled", rec, err)
	}
	if stored, err := ledger.ReadRun(t.Context(), w.Pool, testJob, testPeriod); err != nil || stored.RunID != now.RunID || stored.State != ledger.RunClaimed {
		t.Errorf("the claim is now %+v, %v", stored, err)
	}
}

// Rows that many claim at once are each had by one, counted before they are
// handed out, and come with the request as it was frozen.
func TestRacingClaimsOfRowsShareThem(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.pending(run, accounts(100)...)
	var mu sync.Mutex
	got := map[string]int{}
	together(8, func(int) {
		for {
			permits, err := w.tryPermits(run, ledger.ClaimLimits{Rows: 7, SendsPerRun: 6, Permit: 30 * time.Second})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			for _, p := range permits {
				got[p.AccountID]++
				if body := "amount=1000&customer=cus_" + p.AccountID; p.Body != body || [32]byte(p.BodySHA256) != sha256.Sum256([]byte(body)) ||
					p.IdempotencyKey != ledger.BillingKey(testJob, testPeriod, p.AccountID) || p.Sends != 1 || p.RunSends != 1 {
					t.Errorf("permit %+v", p)
				}
			}
			mu.Unlock()
			if len(permits) == 0 {
				return
			}
		}
	})
	// A claim passes over what another is looking at, so a few may be left.
	for _, p := range w.permits(run, oneSend) {
		got[p.AccountID]++
	}
	if len(got) != 100 {
		t.Errorf("%d of 100 rows were handed out", len(got))
	}
	for account, n := range got {
		if n != 1 {
			t.Errorf("account %s was handed out %d times", account, n)
		}
	}
	if n := value[int](w, `SELECT count(*) FROM billing.charges WHERE sends <> 1 OR open_sends <> 1 OR last_sent_at IS NULL`); n != 0 {
		t.Errorf("%d rows are not counted as sent once", n)
	}
}

// What may be claimed, and for how long, is decided by the window, the lease, the
// rest after a failure and the number of sends.
func TestWhatMayBeClaimed(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.pending(run, "a", "late", "old", "leased", "resting", "rested", "rests-for-another", "often", "often-by-another", "settled", "under-way")
	for _, sql := range []string{
		`WITH e AS (INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
			SELECT job, period, account_id, try, 'pending', 'pending', 'absent', 'anna' FROM billing.charges WHERE account_id IN ('late', 'old')
			RETURNING id, account_id)
		 UPDATE billing.charges c SET last_event = e.id, window_opened_at = billing.now() - interval '23 hours'
			+ CASE e.account_id WHEN 'late' THEN interval '5 seconds' ELSE '0' END FROM e WHERE c.account_id = e.account_id`,
		`UPDATE billing.charges SET lease_until = billing.now() + interval '1 minute' WHERE account_id = 'leased'`,
		`UPDATE billing.charges SET next_send_at = billing.now() + interval '1 minute', lease_owner = (SELECT run_id FROM billing.job_runs) WHERE account_id = 'resting'`,
		`UPDATE billing.charges SET next_send_at = billing.now() + interval '1 minute', lease_owner = gen_random_uuid() WHERE account_id = 'rests-for-another'`,
		`UPDATE billing.charges SET next_send_at = billing.now() - interval '1 second', lease_until = billing.now() - interval '1 second' WHERE account_id = 'rested'`,
		`UPDATE billing.charges SET sends = 6, run_sends = 6, lease_owner = (SELECT run_id FROM billing.job_runs) WHERE account_id = 'often'`,
		`UPDATE billing.charges SET sends = 6, run_sends = 6, lease_owner = gen_random_uuid() WHERE account_id = 'often-by-another'`,
		`WITH e AS (INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
			VALUES ('monthly-billing', '2026-10', 'settled', 1, 'pending', 'declined', 'found', 'anna') RETURNING id)
		 UPDATE billing.charges SET state = 'declined', last_event = e.id FROM e WHERE account_id = 'settled'`,
	} {
		if _, err := w.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	q, err := ledger.ReadQueue(t.Context(), w.Pool, run, 6, nil)
	if err != nil || q.Sendable != 6 || q.Waiting != 2 || q.Expired != 1 || q.Exhausted != 1 || q.NextAt == nil {
		t.Errorf("queue %+v, %v; want 6 sendable, 2 waiting, 1 expired, 1 exhausted", q, err)
	}
	// This process still waits for the answer of one of them.
	underWay := ledger.StripeCustomer{ID: "cus_under-way"}
	permits := w.permits(run, ledger.ClaimLimits{Rows: 100, SendsPerRun: 6, Permit: time.Hour, UnderWay: []ledger.StripeCustomer{underWay}})
	var got []string
	for _, p := range permits {
		got = append(got, p.AccountID)
		life := time.Duration(p.LifeMS * float64(time.Millisecond))
		longest := ledger.PermitLife
		if p.AccountID == "late" {
			longest = 5 * time.Second
		}
		if life > longest || life < longest-3*time.Second {
			t.Errorf("the permit of %s lives for %s, want %s", p.AccountID, life, longest)
		}
	}
	// What was sent least often comes first.
	if want := []string{"a", "late", "rested", "rests-for-another", "often-by-another"}; !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
	if got := w.permits(run, oneSend); len(got) != 1 || got[0].StripeCustomer != underWay.ID {
		t.Errorf("handed out next was %+v, want what was under way alone", got)
	}
}

// When the clock is set back, a window lies in the future, and is not open.
func TestAWindowInTheFutureIsNotOpen(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.pending(run, "a")
	w.Advance(-time.Hour)
	if got := w.permits(run, oneSend); len(got) != 0 {
		t.Errorf("%d permits for a window that opens in an hour", len(got))
	}
	w.Advance(time.Hour)
	if got := w.permits(run, oneSend); len(got) != 1 {
		t.Errorf("%d permits when it is open again, want 1", len(got))
	}
}

// A takeover and a claim of rows exclude each other: whichever commits first, the
// old owner has no permit that the new one does not know of.
func TestATakeoverAndAClaimOfRowsExcludeEachOther(t *testing.T) {
	t.Run("rows first", func(t *testing.T) {
		w := newImportWorld(t)
		old := w.claim()
		w.pending(old, "a", "b")
		w.Advance(testLease + time.Second)
		claiming, err := w.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if permits, err := ledger.ClaimCharges(t.Context(), claiming, old, ledger.ClaimLimits{Rows: 1, SendsPerRun: 6, Permit: time.Second}); err != nil || len(permits) != 1 {
			t.Fatalf("%d permits, %v", len(permits), err)
		}
		taken := make(chan ledger.Run, 1)
		go func() {
			run, err := w.tryClaim(t.Context())
			if err != nil {
				t.Error(err)
			}
			taken <- run
		}()
		w.waitsForLock()
		if err := claiming.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		run := <-taken
		if got := w.permits(old, oneSend); run.Attempt != 2 || len(got) != 0 {
			t.Errorf("attempt %d took over, and the old owner got %d permits after it", run.Attempt, len(got))
		}
		if got := w.permits(run, oneSend); len(got) != 1 || got[0].AccountID != "b" {
			t.Errorf("the new owner got %+v, want what is not leased", got)
		}
	})
	t.Run("takeover first", func(t *testing.T) {
		w := newImportWorld(t)
		old := w.claim()
		w.pending(old, "a", "b")
		w.Advance(testLease + time.Second)
		taking, err := w.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.TakeClaim(t.Context(), taking, ledger.ClaimRequest{Job: testJob, Period: testPeriod, RunID: uuid.New(),
			Owner: "host-b", Build: "test", Lease: testLease, Timeout: time.Hour, Location: time.UTC}); err != nil {
			t.Fatal(err)
		}
		claimed := make(chan int, 1)
		go func() {
			permits, err := w.tryPermits(old, oneSend)
			if err != nil {
				t.Error(err)
			}
			claimed <- len(permits)
		}()
		w.waitsForLock()
		if err := taking.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := <-claimed; n != 0 {
			t.Errorf("the old owner got %d permits beside the takeover", n)
		}
	})
}

// verdict ends a run as the program does: done only if nothing is pending.
func verdict(run ledger.Run) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		if err := run.Lock(ctx, tx); err != nil {
			return err
		}
		s, err := ledger.Summarize(ctx, tx, run.Job, run.Period)
		if err != nil {
			return err
		}
		state := ledger.RunDone
		if s.Count(ledger.ChargePending) > 0 {
			state = ledger.RunFailed
		}
		return run.Finish(ctx, tx, state, ledger.Outcome{})
	}
}

// While one transaction finishes and another records, whichever comes first, a
// period is never done with a pending charge.
func TestAPeriodIsNeverDoneWithAPendingCharge(t *testing.T) {
	race := func(t *testing.T, first, second func(context.Context, pgx.Tx) error, w importWorld) error {
		t.Helper()
		tx, err := w.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := first(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.in(second) }()
		w.waitsForLock()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	for name, c := range map[string]struct {
		recordFirst bool
		state       ledger.RunState
		pending     int
		err         error
	}{
		"record first": {true, ledger.RunFailed, 1, nil},
		"finish first": {false, ledger.RunDone, 0, ledger.ErrClaimLost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newImportWorld(t)
			run := w.claim()
			record := func(ctx context.Context, tx pgx.Tx) error { return w.recordIn(ctx, tx, run, "a") }
			first, second := verdict(run), record
			if c.recordFirst {
				first, second = record, verdict(run)
			}
			if err := race(t, first, second, w); !errors.Is(err, c.err) {
				t.Errorf("the second: %v, want %v", err, c.err)
			}
			stored, err := ledger.ReadRun(t.Context(), w.Pool, testJob, testPeriod)
			if n := value[int](w, `SELECT count(*) FROM billing.charges WHERE state = 'pending'`); err != nil || stored.State != c.state || n != c.pending {
				t.Errorf("the period is %s with %d pending, want %s with %d", stored.State, n, c.state, c.pending)
			}
		})
	}
	t.Run("reopen, claim", func(t *testing.T) {
		w := newImportWorld(t)
		w.claim()
		w.finish(ledger.RunDone)
		reopen := func(ctx context.Context, tx pgx.Tx) error {
			opened, err := ledger.Reopen(ctx, tx, testJob, testPeriod, "anna", "late invoice")
			if err == nil && !opened {
				err = errors.New("not reopened")
			}
			return err
		}
		claim := func(ctx context.Context, tx pgx.Tx) error {
			_, err := ledger.TakeClaim(ctx, tx, ledger.ClaimRequest{Job: testJob, Period: testPeriod, RunID: uuid.New(), Owner: "host-b", Build: "test",
				Lease: testLease, Timeout: time.Hour, Location: time.UTC})
			return err
		}
		if err := race(t, reopen, claim, w); err != nil {
			t.Errorf("the claim after a reopen: %v", err)
		}
		if got := value[string](w, `SELECT state || ' ' || attempt FROM billing.job_runs`); got != "claimed 2" {
			t.Errorf("the period is %s", got)
		}
	})
}

// Only a done period can be reopened, and who did it is kept.
func TestReopen(t *testing.T) {
	w := newImportWorld(t)
	reopen := func() (opened bool, err error) {
		err = w.in(func(ctx context.Context, tx pgx.Tx) error {
			opened, err = ledger.Reopen(ctx, tx, testJob, testPeriod, "anna", "late invoice")
			return err
		})
		return opened, err
	}
	if _, err := reopen(); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a period that was never run: %v, want ErrNotFound", err)
	}
	w.claim()
	if opened, err := reopen(); opened || err != nil {
		t.Errorf("a period that is being run: %v, %v", opened, err)
	}
	w.finish(ledger.RunFailed)
	if opened, err := reopen(); opened || err != nil {
		t.Errorf("a period that failed: %v, %v", opened, err)
	}
	w.claim()
	w.finish(ledger.RunDone)
	if opened, err := reopen(); !opened || err != nil {
		t.Errorf("a done period: %v, %v", opened, err)
	}
	events, err := ledger.ReadPeriodEvents(t.Context(), w.Pool, testJob, testPeriod)
	if err != nil || len(events) != 1 || events[0].Action != "reopen" || events[0].Person != "anna" || !strings.Contains(events[0].Why, "late") {
		t.Errorf("events %+v, %v", events, err)
	}
}
