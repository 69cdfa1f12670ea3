package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/pgproxy"
	"github.com/chargeonce/billing/fixtures/pgserver"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/migrations"
)

// proxied puts a proxy between the program and its database.
func (o *office) proxied() *pgproxy.Proxy {
	o.t.Helper()
	p, err := pgproxy.Start(o.db.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(p.Close)
	o.env["DATABASE_URL"] = p.URL
	return p
}

// What the transactions of a run are recognized by.
const (
	txIdentity    = "INSERT INTO billing.stripe_identity"
	txClaimPeriod = "INSERT INTO billing.job_runs"
	txRecord      = "INSERT INTO billing.charges"
	txClaimRows   = "picked AS MATERIALIZED"
	txAnswers     = "SET state = a.state, reason = a.reason"
	txFinish      = "UPDATE billing.job_runs SET state ="
)

// mixed is a small month with an account of every fate.
func mixed() []customer {
	list := customers(12)
	list[1].card = "pm_card_chargeCustomerFail_1"
	list[2].card = "pm_card_authenticationRequired_1"
	list[3].amount = "0.00"
	list[4].card = ""
	list[5].amount, list[5].currency = "1200", "jpy"
	return list
}

// projection is what two histories of the same month must have in common (G7):
// billing key, state, reason, amount, currency and the payments at Stripe.
func (o *office) projection() string {
	o.t.Helper()
	text := one[string](o, `SELECT string_agg(concat_ws(' ', billing_key, state, reason, amount, currency, amount_minor, 'try', try), E'\n'
		ORDER BY billing_key) FROM billing.charges`)
	for _, c := range mixed() {
		for _, pi := range o.emu.IntentsFor("monthly-billing/" + october + "/" + c.id) {
			text += fmt.Sprintf("\n%s: %s %d %s", c.id, pi.Status, pi.Amount, pi.Currency)
		}
	}
	return text
}

// undisturbed is the projection of a month in which nothing went wrong.
func undisturbed(t *testing.T) string {
	t.Helper()
	o := newOffice(t)
	o.imports(october, mixed())
	o.month(0)
	return o.projection()
}

// finishAsUndisturbed runs the month to its end and compares it with one in
// which nothing went wrong.
func (o *office) finishAsUndisturbed(want string) {
	o.t.Helper()
	o.month(0)
	if diff := cmp.Diff(want, o.projection()); diff != "" {
		o.t.Errorf("it did not end as an undisturbed month does:\n%s", diff)
	}
	for key, bodies := range o.bodiesByKey() {
		if len(bodies) != 1 {
			o.t.Errorf("%s: %d different bodies", key, len(bodies))
		}
	}
	before, posts := o.ledgerText(), o.emu.Posts()
	o.month(0)
	if diff := cmp.Diff(before, o.ledgerText()); diff != "" || o.emu.Posts() != posts {
		o.t.Errorf("one more run sent %d POSTs and changed:\n%s", o.emu.Posts()-posts, diff)
	}
	o.mustBeWhole()
}

// T43, T49: killed before or after any commit, before the POST arrives, before
// its answer or after it, a month that is run again ends as one clean run.
func TestKilledAnywhereTheNextRunEndsAsACleanOne(t *testing.T) {
	t.Parallel()
	want := undisturbed(t)
	commit := func(act pgproxy.Act, touching string, skip int) func(*office, *pgproxy.Proxy) {
		return func(_ *office, p *pgproxy.Proxy) {
			p.Inject(pgproxy.Rule{Act: act, Touching: touching, Skip: skip, Times: 1})
		}
	}
	stripe := func(name stripeemu.FaultKind) func(*office, *pgproxy.Proxy) {
		return func(o *office, _ *pgproxy.Proxy) {
			o.emu.Inject(stripeemu.Fault{Name: name, Method: "POST", Skip: 3, Times: 1})
		}
	}
	for name, arm := range map[string]func(*office, *pgproxy.Proxy){
		"before the claim's commit":       commit(pgproxy.HoldBefore, txClaimPeriod, 0),
		"after the claim's commit":        commit(pgproxy.HoldAfter, txClaimPeriod, 0),
		"before the record's commit":      commit(pgproxy.HoldBefore, txRecord, 0),
		"after the record's commit":       commit(pgproxy.HoldAfter, txRecord, 0),
		"before the permits' commit":      commit(pgproxy.HoldBefore, txClaimRows, 0),
		"after it, nothing sent yet":      commit(pgproxy.HoldAfter, txClaimRows, 0),
		"the POST on its way":             stripe(stripeemu.FaultHoldRequest),
		"the POST lost":                   stripe(stripeemu.FaultHang),
		"the work done, no answer":        stripe(stripeemu.FaultLate),
		"answered, before the commit":     commit(pgproxy.HoldBefore, txAnswers, 0),
		"answered and committed":          commit(pgproxy.HoldAfter, txAnswers, 0),
		"the second group, before commit": commit(pgproxy.HoldBefore, txAnswers, 1),
		"before the commit of the finish": commit(pgproxy.HoldBefore, txFinish, 0),
		"after the commit of the finish":  commit(pgproxy.HoldAfter, txFinish, 0),
		"the work half done at Stripe":    stripe(stripeemu.FaultSlowExecution),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Slow enough that answers are written in several groups.
			o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 25 * time.Millisecond})
			o.env["BILLING_LEASE"] = "1s"
			o.imports(october, mixed())
			p := o.proxied()
			arm(o, p)
			run := o.start("run", "--period", october, "--concurrency", "1")
			eventually(t, "the moment comes", func() bool { return p.Held()+o.emu.Held() > 0 })
			run.kill()
			p.Clear()
			p.Cut()
			o.emu.Release()
			attempt := one[int](o, `SELECT coalesce(max(attempt), 0) FROM billing.job_runs`)
			claimed := one[bool](o, `SELECT count(*) > 0 FROM billing.job_runs WHERE state = 'claimed'`)
			o.finishAsUndisturbed(want)
			if got := one[int](o, `SELECT attempt FROM billing.job_runs`); claimed && got != attempt+1 {
				t.Errorf("attempt %d was killed and %d took over, want the next", attempt, got)
			}
		})
	}
}

// T52: a connection that breaks around a COMMIT, so that nobody can say whether
// it happened, costs nothing: the run or the one after it ends as a clean one.
func TestACommitWhoseOutcomeIsUnknownChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	want := undisturbed(t)
	for name, touching := range map[string]string{
		"identity": txIdentity, "claim": txClaimPeriod, "record": txRecord, "permits": txClaimRows, "answers": txAnswers, "finish": txFinish,
	} {
		for _, act := range []pgproxy.Act{pgproxy.CutBefore, pgproxy.CutAfter} {
			t.Run(name+" "+string(act), func(t *testing.T) {
				t.Parallel()
				o := newOffice(t)
				o.env["BILLING_LEASE"] = "1s"
				o.imports(october, mixed())
				p := o.proxied()
				p.Inject(pgproxy.Rule{Act: act, Touching: touching, Times: 1})
				first := o.run("run", "--period", october, "--concurrency", "2")
				if p.Fired() != 1 {
					t.Fatalf("nothing was cut\n%s", first)
				}
				if first.code != 0 && first.code != 69 {
					t.Errorf("the run with a broken connection: want exit 0 or 69\n%s", first)
				}
				o.finishAsUndisturbed(want)
			})
		}
	}
}

// T51: a transaction that Postgres asks to repeat is repeated; the send that it
// records is not.
func TestASerializationFailureRepeatsTheRecordAndNotTheSend(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(30))
	// A sequence counts also what is rolled back.
	o.exec(`CREATE SEQUENCE public.failures`)
	o.exec(`CREATE FUNCTION public.fail_first() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.failures') <= 3 THEN
				RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
			END IF;
			RETURN NULL;
		END $$`)
	o.exec(`CREATE CONSTRAINT TRIGGER fail_first AFTER UPDATE ON billing.charges DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (OLD.state = 'pending' AND NEW.state = 'succeeded') EXECUTE FUNCTION public.fail_first()`)
	o.month(0)
	if n := one[int](o, `SELECT last_value FROM public.failures`); n < 4 {
		t.Fatalf("%d commits were tried; the test shows nothing", n)
	}
	if o.emu.Posts() != 30 || o.states(october)["succeeded"] != 30 {
		t.Errorf("%d POSTs for 30 charges, %v", o.emu.Posts(), o.states(october))
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charge_events`); n != 30 {
		t.Errorf("%d events for 30 changes", n)
	}
	o.mustBeWhole()
}

// T53: no transaction is open while Stripe is asked, so a server that ends idle
// ones quickly does no harm.
func TestNoTransactionIsOpenWhileStripeWorks(t *testing.T) {
	t.Parallel()
	var o *office
	var asked, idle atomic.Int64
	o = newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 1500 * time.Millisecond, OnAnswer: func(r *stripeemu.Request) {
		if r.Method != "POST" {
			return
		}
		// Between two statements a transaction is idle for a moment; one that
		// waited for this answer would be for the whole of it.
		var n int64
		err := o.db.Pool.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state LIKE 'idle in transaction%'
			  AND clock_timestamp() - xact_start > interval '1 second'`).Scan(&n)
		if err != nil {
			o.t.Errorf("look at the sessions: %v", err)
		}
		idle.Add(n)
		asked.Add(1)
	}})
	o.imports(october, customers(6))
	o.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = ''1s''', current_database()); END $$`)
	o.month(0, "--concurrency", "2")
	if asked.Load() != 6 || idle.Load() != 0 {
		t.Errorf("%d answers, %d times a transaction was open through one", asked.Load(), idle.Load())
	}
	o.mustBeWhole()
}

// A run that loses Postgres for longer than its lease is taken over; what it had
// learned of a charge meanwhile is recorded when Postgres is back.
func TestAnAnswerIsKeptWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	list := customers(20)
	o.imports(october, list)
	direct := o.env["DATABASE_URL"]
	p := o.proxied()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Account: "a0006", Times: 1})
	first := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "an answer is held", func() bool { return o.emu.Held() == 1 })
	p.Sever()
	// Whoever asks again for that charge learns nothing.
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Account: "a0006"})
	o.emu.Release()
	o.env["DATABASE_URL"] = direct
	o.month(75, "--timeout", "10s")
	if got := o.states(october); got["succeeded"] != 19 || got["pending"] != 1 {
		t.Errorf("the second run left %v; want all but the one", got)
	}
	if got := one[string](o, `SELECT state FROM billing.job_runs`); got != "failed" {
		t.Errorf("with one charge pending the period is %s", got)
	}
	p.Mend()
	if r := first.wait(); r.code != 69 && r.code != 75 {
		t.Errorf("the first run: want exit 69 or 75\n%s", r)
	}
	if got := o.state("a0006"); got != "succeeded" {
		t.Errorf("the charge is %s although its first owner had the answer", got)
	}
	o.emu.ClearFaults()
	o.month(0)
	o.mustHaveOneKeyEach(list)
	o.mustBeWhole()
}

// Sessions that Postgres ends, as it does for a failover, disturb a run for a
// moment: it goes on, or says that it may be repeated.
func TestSessionsThatPostgresEndsDisturbNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, Latency: 5 * time.Millisecond})
	list := customers(400)
	o.imports(october, list)
	for range 3 {
		p := o.start("run", "--period", october, "--concurrency", "4")
		for ended := 0; ended < 30; {
			select {
			case <-p.Done():
				ended = 30
			default:
				ended += one[int](o, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
					WHERE datname = current_database() AND application_name = 'billing'`)
			}
		}
		if r := p.wait(); r.code != 0 && r.code != 69 && r.code != 75 {
			t.Errorf("want exit 0, 69 or 75\n%s", r)
		}
	}
	o.month(0)
	if n := o.emu.IntentCount(); n != 400 {
		t.Errorf("%d PaymentIntents for 400 debts", n)
	}
	o.mustHaveOneKeyEach(list)
	o.mustBeWhole()
}

// A file whose import was cut off is there whole or not at all, and importing it
// again completes it.
func TestAnImportThatIsCutOffIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	for act, want := range map[pgproxy.Act]int{pgproxy.CutBefore: 0, pgproxy.CutAfter: 7} {
		t.Run(string(act), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			list := customers(7)
			p := o.proxied()
			p.Inject(pgproxy.Rule{Act: act, Touching: `copy "billing"."invoices"`, Times: 1})
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
			file := o.file("invoices.csv", invoicesCSV(list))
			o.must(69, "import", "invoices", "--period", october, "--file", file)
			if n := one[int](o, `SELECT count(*) FROM billing.invoices`); n != want {
				t.Errorf("%d invoices are there, want %d", n, want)
			}
			o.must(0, "import", "invoices", "--period", october, "--file", file)
			o.month(0)
			if o.emu.Posts() != 7 {
				t.Errorf("%d POSTs for 7 invoices", o.emu.Posts())
			}
			o.mustBeWhole()
		})
	}
}

// An import that is about to commit and a run that starts never lose an invoice: the run
// waits for it, also where it is the first of its period and has no row to wait for.
func TestAnImportBesideARunIsCharged(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"a period that was run before": true, "a new period": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(3))
			o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(4))))
			if before {
				o.recordedOnly()
				o.advance(time.Minute)
			}
			direct := o.env["DATABASE_URL"]
			p := o.proxied()
			p.Inject(pgproxy.Rule{Act: pgproxy.HoldBefore, Touching: "INSERT INTO billing.invoices", Times: 1})
			late := o.start("import", "invoices", "--period", october, "--file", o.file("late.csv", invoicesCSV(customers(4))))
			eventually(t, "the import is about to commit", func() bool { return p.Held() == 1 })
			o.env["DATABASE_URL"] = direct
			o.month(75, "--wait", "0s") // the import keeps runs out
			p.Release()
			if r := late.wait(); r.code != 0 {
				t.Errorf("the import\n%s", r)
			}
			o.month(0)
			if got := o.states(october)["succeeded"]; got != 4 {
				t.Errorf("%d of 4 succeeded", got)
			}
			o.mustBeWhole()
		})
	}
}

// A transaction of record that stands still for longer than the lease is ended by
// Postgres; the run repeats it, or says that it may be repeated.
func TestARecordThatStandsStillIsEndedByPostgres(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["BILLING_LEASE"] = "1s"
	o.imports(october, customers(5))
	p := o.proxied()
	p.Inject(pgproxy.Rule{Act: pgproxy.HoldBefore, Touching: txRecord, Times: 1})
	if r := o.run("run", "--period", october); r.code != 0 && r.code != 69 || p.Fired() != 1 {
		t.Errorf("want exit 0 or 69\n%s", r)
	}
	p.Cut()
	o.month(0)
	o.mustBeWhole()
}

// A run that freezes, or loses its network, in the middle of a transaction does
// not keep the period and its rows from others for ever.
func TestARunThatStandsStillInATransactionIsOutlived(t *testing.T) {
	t.Parallel()
	for name, touching := range map[string]string{"claim": txClaimPeriod, "permits": txClaimRows, "answers": txAnswers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.env["BILLING_LEASE"] = "1s"
			o.imports(october, customers(30))
			direct := o.env["DATABASE_URL"]
			p := o.proxied()
			p.Inject(pgproxy.Rule{Act: pgproxy.HoldBefore, Touching: touching, Times: 1})
			first := o.start("run", "--period", october)
			eventually(t, "a transaction stands still", func() bool { return p.Held() == 1 })
			first.signal(syscall.SIGSTOP)
			o.env["DATABASE_URL"] = direct
			o.month(0, "--timeout", "2m", "--wait", "2m")
			first.kill()
			p.Cut()
			o.mustBeWhole()
		})
	}
}

// T54: a standby is refused before anything is asked of Stripe.
func TestAStandbyIsRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["DATABASE_URL"] = startStandby(t)
	for _, command := range [][]string{
		{"run", "--period", october}, {"close", "--period", october},
		{"reopen", "--period", october, "--why", "test"}, {"import", "invoices", "--period", october, "--file", o.file("i.csv", invoicesCSV(customers(1)))},
	} {
		if r := o.must(78, command...); !strings.Contains(r.stderr, "primary") {
			t.Errorf("it does not say what to connect to\n%s", r)
		}
	}
	if n := o.emu.RequestCount(); n != 0 {
		t.Errorf("%d requests to Stripe", n)
	}
}

// startStandby migrates a server of its own and starts it again as a hot standby.
func startStandby(t *testing.T) string {
	t.Helper()
	// The server may belong to another user, who must be able to enter.
	dir, err := os.MkdirTemp("/tmp", "billing-standby-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	start := func() *pgserver.Server {
		server, err := pgserver.Start(t.Context(), pgserver.Options{Dir: dir, Log: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	primary := start()
	if err := migrations.Up(t.Context(), primary.URL(""), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := primary.Stop(pgserver.Fast); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	standby := start()
	t.Cleanup(func() {
		if err := standby.Stop(pgserver.Immediate); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), standby.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var standsBy bool
	if err := conn.QueryRow(t.Context(), `SELECT pg_is_in_recovery()`).Scan(&standsBy); err != nil || !standsBy {
		t.Fatalf("the server is no standby: %v, %v", standsBy, err)
	}
	return standby.URL("")
}
