package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/ledger"
)

// pages reads a query to its end, two charges at a time, and calls between after
// each page.
func (w importWorld) pages(q ledger.OpenQuery, between func(page []ledger.OpenCharge)) (list []string) {
	w.t.Helper()
	q.Job, q.Period, q.Rows = testJob, testPeriod, 2
	for range 100 {
		page, err := ledger.ReadOpen(w.t.Context(), w.Pool, q)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(page) == 0 {
			return list
		}
		for _, c := range page {
			list = append(list, c.AccountID)
		}
		q.After = &page[len(page)-1]
		between(page)
	}
	w.t.Fatal("the pages do not end")
	return nil
}

// Every open charge is read once, although those before it are settled, and sent,
// while the next page is read.
func TestOpenChargesAreReadOnceWhileTheyMove(t *testing.T) {
	w := newImportWorld(t)
	w.put(testPeriod, ledger.ChargePending, 2, "a", "b", "c", "d")
	w.put(testPeriod, ledger.ChargePending, 1, "w", "x", "y")
	w.put(testPeriod, ledger.ChargeProcessing, 1, "p1", "p2", "p3")
	w.put(testPeriod, ledger.ChargeActionRequired, 1, "p4")
	w.put(testPeriod, ledger.ChargeHeld, 1, "h1", "h2", "h3")
	w.put("2026-09", ledger.ChargePending, 1, "earlier")
	settle := func(page []ledger.OpenCharge) {
		for _, c := range page {
			w.settleFound(foundPaid(c.AccountID, func(f *ledger.Found) { f.From, f.PaymentIntent = c.State, "pi_found_"+c.AccountID }))
		}
	}
	for _, test := range []struct {
		query ledger.OpenQuery
		want  []string
	}{
		{ledger.OpenQuery{Pending: true}, []string{"w", "x", "y", "a", "b", "c", "d"}},
		{ledger.OpenQuery{Unsettled: true}, []string{"p1", "p2", "p3", "p4"}},
		{ledger.OpenQuery{States: []ledger.ChargeState{ledger.ChargeHeld}, Accounts: []string{"h1", "h3", "p1"}}, []string{"h1", "h3"}},
		{ledger.OpenQuery{States: []ledger.ChargeState{ledger.ChargeHeld}}, []string{"h2"}},
	} {
		if got := w.pages(test.query, settle); !slices.Equal(got, test.want) {
			t.Errorf("%+v: read %v, want %v", test.query, got, test.want)
		}
	}
	if n := value[int](w, `SELECT count(*) FROM billing.charges WHERE state <> 'succeeded'`); n != 1 {
		t.Errorf("%d charges are not settled, want that of another period", n)
	}
}

// A look takes what is past its window, and on demand what was sent inside it;
// each Stripe account has its own.
func TestOpenChargesArePastTheirWindow(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.put(testPeriod, ledger.ChargePending, 1, "past")
	w.pending(run, "sent", "unsent")
	w.exec(`UPDATE billing.charges SET sends = 1, open_sends = 1, last_sent_at = billing.now() WHERE account_id = 'sent'`)
	w.pendingOf("elsewhere", ledger.StripeCustomer{Account: "acct_x", ID: "cus_1"})
	w.exec(`UPDATE billing.charges SET sends = 1 WHERE account_id = 'elsewhere'`)
	none := func([]ledger.OpenCharge) {}
	read := func(stripeAccount string, inside bool) []string {
		return w.pages(ledger.OpenQuery{Pending: true, Inside: inside, StripeAccount: stripeAccount}, none)
	}
	if got := [][]string{read("", false), read("", true), read("acct_x", false), read("acct_x", true)}; !cmp.Equal(got, [][]string{{"past"}, {"past", "sent"}, nil, {"elsewhere"}}) {
		t.Errorf("read %v", got)
	}
	count := func() []ledger.OpenCount {
		list, err := ledger.CountOpen(t.Context(), w.Pool, testJob, testPeriod)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if diff := cmp.Diff([]ledger.OpenCount{{Past: 1, Inside: 1}, {StripeAccount: "acct_x", Inside: 1}}, count()); diff != "" {
		t.Error(diff)
	}
	w.Advance(ledger.Window)
	if got := read("", false); !slices.Equal(got, []string{"unsent", "past", "sent"}) {
		t.Errorf("a window later: %v", got)
	}
	if diff := cmp.Diff([]ledger.OpenCount{{Past: 3}, {StripeAccount: "acct_x", Past: 1}}, count()); diff != "" {
		t.Error(diff)
	}
}

// The window is dead a quarter of an hour after its end, and never while somebody
// may send.
func TestWhenAWindowIsDead(t *testing.T) {
	w := newImportWorld(t)
	w.put(testPeriod, ledger.ChargePending, 1, "a")
	c := w.seen("a")
	end, sent := c.WindowOpenedAt.Add(23*time.Hour+15*time.Minute), c.LastSentAt.Add(15*time.Minute)
	second := time.Second
	if !c.WindowDead(end) || c.WindowDead(end.Add(-second)) || !c.SendsDead(sent) || c.SendsDead(sent.Add(-second)) {
		t.Errorf("window dead at %s, sends at %s: not so for %+v", end, sent, c)
	}
	w.exec(`UPDATE billing.charges SET lease_until = billing.now() + interval '20 seconds'`)
	if c = w.seen("a"); c.WindowDead(end) || c.SendsDead(sent) {
		t.Error("dead while somebody may send")
	}
	if (&ledger.OpenCharge{}).WindowDead(end) {
		t.Error("what was never a request has no window")
	}
}

// Periods with something open, or about to be, are found by their claims.
func TestOpenPeriods(t *testing.T) {
	w := newImportWorld(t)
	for period, state := range map[ledger.Period]ledger.ChargeState{
		"2026-07": ledger.ChargeSucceeded, "2026-08": ledger.ChargeProcessing, "2026-09": ledger.ChargeActionRequired, "2026-10": ledger.ChargePending,
		"2026-06": ledger.ChargeHeld,
	} {
		w.exec(`INSERT INTO billing.job_runs (job, period, state, attempt, run_id, owner, lease, claimed_at, heartbeat_at, deadline_at, finished_at, time_zone,
				period_starts_at, period_ends_at)
			SELECT 'monthly-billing', $1, 'failed', 1, gen_random_uuid(), 'host', '2 minutes', t, t, t, t, 'UTC', t - interval '1 day', t FROM billing.now() t`, period)
		w.put(period, state, 1, "a")
	}
	got, err := ledger.OpenPeriods(t.Context(), w.Pool, testJob)
	if want := []ledger.Period{"2026-08", "2026-09", "2026-10"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := ledger.OpenPeriods(t.Context(), w.Pool, "other-job"); err != nil || len(got) > 0 {
		t.Errorf("another job: %v, %v", got, err)
	}
	if there, err := ledger.HasUnsettled(t.Context(), w.Pool, testJob); err != nil || !there {
		t.Errorf("unsettled: %t, %v", there, err)
	}
}

// Witnesses are the payments that a list must show: sent since the horizon,
// answered before the list, of the same Stripe account, in this period and those
// beside it, closed tries included.
func TestWitnessesAreWhatAListMustShow(t *testing.T) {
	w := newImportWorld(t)
	for _, period := range []ledger.Period{"2026-08", "2026-09", "2026-10", "2026-11"} {
		w.put(period, ledger.ChargeSucceeded, 1, "a")
	}
	w.put(testPeriod, ledger.ChargeSucceeded, 1, "b", "early", "late", "elsewhere", "not-asked-for")
	w.put(testPeriod, ledger.ChargePending, 1, "unknown")
	from, before := w.Now().Add(-30*time.Hour), w.Now()
	w.exec(`UPDATE billing.charges SET last_sent_at = $1 WHERE account_id = 'early'`, from.Add(-time.Second))
	w.exec(`UPDATE billing.charges SET settled_at = $1 WHERE account_id = 'late'`, before)
	w.exec(`INSERT INTO billing.charge_tries (job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer, window_opened_at,
			sends, open_sends, server_errors, last_sent_at, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id, settled_at, closed_at)
		SELECT job, period, account_id, 7, billing_key || '/r7', 'x', sha256('x'), '', 'cus_old', window_opened_at, 1, 0, 0, last_sent_at, 'declined', '',
			'pi_closed', 'canceled', '', '', '', settled_at, billing.now() FROM billing.charges WHERE account_id = 'b'`)
	list, err := ledger.Witnesses(t.Context(), w.Pool, testJob, testPeriod, "", []string{"a", "b", "early", "late", "unknown"}, from, before)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range list {
		got = append(got, k.StripeCustomer+" "+k.PaymentIntent)
	}
	slices.Sort(got)
	if want := []string{"cus_a pi_2026-09a", "cus_a pi_2026-10a", "cus_a pi_2026-11a", "cus_b pi_2026-10b", "cus_old pi_closed"}; !slices.Equal(got, want) {
		t.Errorf("witnesses %q, want %q", got, want)
	}
	all, err := ledger.SpanWitnesses(t.Context(), w.Pool, testJob, testPeriod, "", from, before)
	if err != nil || len(all) != 4 {
		t.Errorf("of the span %+v, %v; want a, b, elsewhere and not-asked-for", all, err)
	}
	if none, err := ledger.SpanWitnesses(t.Context(), w.Pool, testJob, testPeriod, "acct_x", from, before); err != nil || len(none) > 0 {
		t.Errorf("at another Stripe account %+v, %v", none, err)
	}
}

// The bounds divide what was sent into parts of the same size, by whole seconds.
func TestSpanBoundsDivideWhatWasSent(t *testing.T) {
	w := newImportWorld(t)
	start := w.Now().Add(-20 * time.Hour).Truncate(time.Second)
	w.exec(`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			window_opened_at, sends, last_sent_at, recorded_by, created_at)
		SELECT 'monthly-billing', '2026-10', 'a' || i, 'k' || i, 10, 'usd', 1000, 'pending', 'k' || i, 'x', sha256('x'), t, 1,
			t + i * interval '1500 milliseconds', gen_random_uuid(), t
		FROM generate_series(1, 400) i, (SELECT $1::timestamptz AS t) start`, start)
	bounds := func(from time.Time, parts int) []time.Time {
		t.Helper()
		list, err := ledger.SpanBounds(t.Context(), w.Pool, testJob, testPeriod, "", from, parts)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	got := bounds(start, 4)
	if len(got) != 3 {
		t.Fatalf("bounds %v", got)
	}
	for i, b := range got {
		if want := start.Add(time.Duration(i+1) * 150 * time.Second); !b.Equal(want) {
			t.Errorf("bound %d is %s, want %s", i, b, want)
		}
	}
	if got := bounds(start.Add(time.Hour), 4); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	w.exec(`UPDATE billing.charges SET last_sent_at = $1`, start.Add(time.Minute))
	if got := bounds(start, 4); len(got) != 1 || !got[0].Equal(start.Add(time.Minute)) {
		t.Errorf("of one second: %v", got)
	}
}

// A bank debit under way for more than seven days is reported once, and no more
// when it ends.
func TestLongProcessingIsReportedUntilItEnds(t *testing.T) {
	w := newImportWorld(t)
	w.put(testPeriod, ledger.ChargeProcessing, 1, "a")
	w.put(testPeriod, ledger.ChargeActionRequired, 1, "b")
	note := func(want ...string) {
		t.Helper()
		w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
			return ledger.NoteLongProcessing(ctx, tx, testJob, testPeriod)
		})
		open, err := ledger.OpenFindings(t.Context(), w.Pool, testJob, testPeriod)
		var got []string
		for _, f := range open {
			got = append(got, fmt.Sprint(f.Kind, " ", f.Severity, " ", f.AccountID, " ", f.PaymentIntent))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("findings %q, %v, want %q", got, err, want)
		}
	}
	note()
	w.Advance(7*24*time.Hour - 24*time.Hour)
	note()
	w.Advance(24 * time.Hour)
	note("processing_long act a pi_2026-10a")
	note("processing_long act a pi_2026-10a")
	w.settleFound(foundPaid("a", func(f *ledger.Found) { f.From, f.PaymentIntent = ledger.ChargeProcessing, "pi_2026-10a" }))
	note()
	if n := value[int](w, `SELECT count(*) FROM billing.findings`); n != 1 {
		t.Errorf("%d findings were ever open", n)
	}
}

// A look reads and settles by index, in a table that was just filled and has no
// statistics: nothing of it goes through all charges of a month for each group.
func TestALookGoesByIndexWithoutStatistics(t *testing.T) {
	w := newImportWorld(t)
	run := w.claim()
	w.exec(`ALTER TABLE billing.charges SET (autovacuum_enabled = off)`)
	w.put(testPeriod, ledger.ChargePending, 1, accounts20k()...)
	cfg, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1 // statistics are a session's own until it gives them away
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	group, err := ledger.ReadOpen(t.Context(), pool, ledger.OpenQuery{Job: testJob, Period: testPeriod, Pending: true, Rows: 200})
	if err != nil || len(group) != 200 {
		t.Fatal(len(group), err)
	}
	names, keys, found, gone := make([]string, 200), make([]string, 200), make([]ledger.Found, 100), make([]ledger.Absent, 100)
	for i, c := range group {
		names[i], keys[i] = c.AccountID, c.BillingKey
		if i < 100 {
			found[i] = foundPaid(c.AccountID)
		} else {
			gone[i-100] = absent(c, ledger.ChargeHeld)
		}
	}
	now := w.Now()
	for name, do := range map[string]func(ctx context.Context) error{
		"ReadOpen": func(ctx context.Context) error {
			_, err := ledger.ReadOpen(ctx, pool, ledger.OpenQuery{Job: testJob, Period: testPeriod, Pending: true, Rows: 200, After: &group[199]})
			return err
		},
		"ReadOpen, unsettled": func(ctx context.Context) error {
			_, err := ledger.ReadOpen(ctx, pool, ledger.OpenQuery{Job: testJob, Period: testPeriod, Unsettled: true, Rows: 200})
			return err
		},
		"ReadByKeys": func(ctx context.Context) error { _, err := ledger.ReadByKeys(ctx, pool, keys); return err },
		"Witnesses": func(ctx context.Context) error {
			_, err := ledger.Witnesses(ctx, pool, testJob, testPeriod, "", names, now.Add(-99*time.Hour), now)
			return err
		},
		"TriesOf": func(ctx context.Context) error {
			_, err := ledger.TriesOf(ctx, pool, testJob, testPeriod, names)
			return err
		},
		"OpenPeriods": func(ctx context.Context) error { _, err := ledger.OpenPeriods(ctx, pool, testJob); return err },
		"SettleFound": func(ctx context.Context) error {
			moved, err := ledger.SettleFound(ctx, pool, ledger.Actor{Person: "anna"}, found)
			return allMoved(moved, err)
		},
		"SettleAbsent": func(ctx context.Context) error {
			return ledger.InQueueTx(ctx, pool, func(tx pgx.Tx) error {
				moved, err := run.SettleAbsent(ctx, tx, "", now, gone)
				return allMoved(moved, err)
			})
		},
	} {
		scans := func() (n int64) {
			var flushed any
			if err := pool.QueryRow(t.Context(), `SELECT pg_stat_force_next_flush()`).Scan(&flushed); err != nil {
				t.Fatal(err)
			}
			if err := pool.QueryRow(t.Context(), `SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'billing.charges'::regclass`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := scans()
		if err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := scans() - before; n > 0 {
			t.Errorf("%s reads the whole table, %d times", name, n)
		}
	}
}

func allMoved(moved map[string]bool, err error) error {
	if err == nil && len(moved) != 100 {
		err = errors.New("not all of the group moved")
	}
	return err
}

func accounts20k() []string {
	list := make([]string, 20_000)
	for i := range list {
		list[i] = fmt.Sprintf("a%05d", i)
	}
	return list
}
