package metering_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing/metering"
	"github.com/chargeonce/billing/ledger"
)

// An event of a transaction that began before others is not passed over, however many
// meters come and go before it commits; what began later waits for it, and is counted once.
func TestALongTransactionIsNotPassedOver(t *testing.T) {
	w := newWorld(t, "UTC")
	long := w.open()
	w.add(long, event{id: "early", quantity: "1", at: "2026-11-01T10:00:00Z"})
	w.add(w.db.Pool, event{id: "late", quantity: "2", at: "2026-11-01T10:00:00Z"})
	for range 3 {
		if done := w.count(); !done.Waiting || done.Watermark.Through != nil {
			t.Fatalf("the meter passed a transaction that still runs: %+v", done)
		}
		w.db.Advance(time.Hour)
	}
	w.same("while it runs", w.daily(), nil)
	before := w.db.Now()
	w.end(long, true)
	w.settled()
	w.same("after it", w.daily(), []string{"acme calls 2026-11-01 3 2"})
	mark, err := ledger.ReadWatermark(t.Context(), w.db.Pool, ledger.DefaultJob)
	if err != nil || mark.Through == nil || mark.Through.Before(before) {
		t.Errorf("through %v, want the last meter's moment: %v", mark.Through, err)
	}
}

// settled counts until nothing is waited for: transactions of other tests on the same server hold
// a meter back too.
func (w *world) settled(with ...func(*metering.Meter)) (last metering.Result) {
	w.t.Helper()
	for last = w.count(with...); last.Waiting; last = w.count() {
	}
	return last
}

// What is said to be counted through a moment is: a transaction that was given its id before
// that moment and commits after it moves the moment back.
func TestThroughIsBeforeWhatStillRuns(t *testing.T) {
	w := newWorld(t, "UTC")
	w.settled()
	w.db.Advance(time.Minute)
	// Nothing ends while the first meter looks: the snapshot's upper bound lies below
	// ids that are given out already.
	older, long := w.open(), w.open()
	w.add(older, event{id: "a", quantity: "1"})
	w.add(long, event{id: "b", quantity: "1"})
	w.count()
	w.end(older, true)
	through := w.count().Watermark.Through
	w.end(long, true)
	w.settled()
	w.same("received before what was said to be counted", w.lines(`SELECT event_id FROM billing.usage_events WHERE event_id = 'b' AND received_at < $1`, through), nil)
	w.mustAgree("the end")
}

// T57: rows of one instant are counted once each, wherever a meter is cut and killed.
func TestManyEventsOfOneInstantAreCountedOnce(t *testing.T) {
	w := newWorld(t, "Europe/Berlin")
	w.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at)
		SELECT 'e' || i, 'acme', 'calls', 1, timestamptz '2026-10-20T10:00:00Z' FROM generate_series(1, 2500) i`)
	for n := range 4 {
		w.killed(n)
	}
	w.settled()
	w.settled(rewound(time.Time{}))
	w.same("daily usage", w.daily(), []string{"acme calls 2026-10-20 2500 2500"})
}

// T58: a copy counts nothing; the same id with other content is set aside and reported, neither
// added nor written over the first; other ids count, however alike they are.
func TestCopiesCountOnceAndConflictsAreSetAside(t *testing.T) {
	w := newWorld(t, "UTC")
	at := "2026-11-01T10:00:00Z"
	w.add(w.db.Pool, event{id: "e1", quantity: "5", at: at}, event{id: "e1", quantity: "5.0", at: "2026-11-01T11:00:00+01:00"})
	w.settled()
	w.add(w.db.Pool, event{id: "e1", quantity: "7", at: at}, event{id: "e1", quantity: "5", at: at}, event{id: "e1", quantity: "5", at: at, account: "bolt"},
		event{id: "e2", quantity: "5", at: at}, event{id: "e3", quantity: "5", at: at})
	done := w.count()
	w.same("daily usage", w.daily(), []string{"acme calls 2026-11-01 15 3"})
	w.same("set aside", w.setAside(), []string{"e1 repeat", "e1 conflict", "e1 repeat", "e1 conflict"})
	if done.Repeats != 1 || !slices.Equal(done.SetAside, []ledger.ReasonCount{{Reason: "conflict", Count: 2}}) || done.Rows != 5 {
		t.Errorf("the second meter reports %+v", done.Judged)
	}
}

// A sender that repeats an event repeats a wrong one too: each content of an id is one event, so
// that a release counts a conflict once, whenever its copies came and whatever was decided.
func TestCopiesOfAConflictCountOnceWhenItIsReleased(t *testing.T) {
	for _, much := range []bool{false, true} {
		w := newWorld(t, "UTC")
		at := "2026-11-01T10:00:00Z"
		w.add(w.db.Pool, event{id: "k1", quantity: "10", at: at}, event{id: "k1", quantity: "99", at: at}, event{id: "k1", quantity: "99.0", at: at})
		w.settled(large(much))
		w.add(w.db.Pool, event{id: "k1", quantity: "99", at: at}, event{id: "k1", quantity: "7"}, event{id: "k1", quantity: "7"}, event{id: "k1", quantity: "10", at: at})
		w.settled(large(much))
		w.same("set aside", w.setAside(), []string{"k1 conflict", "k1 repeat", "k1 repeat", "k1 conflict", "k1 repeat", "k1 repeat"})
		if done := w.release(ledger.SetAsideQuery{Arrivals: []int64{2}}); done.Events != 1 || done.Conflicts != 1 {
			t.Errorf("released %+v", done)
		}
		w.same("after the release", w.daily(), []string{"acme calls 2026-11-01 109 2"})
		w.add(w.db.Pool, event{id: "k1", quantity: "99", at: at})
		w.settled(large(much))
		w.settled(rewound(time.Time{}))
		w.same("after another copy", w.daily(), []string{"acme calls 2026-11-01 109 2"})
		w.mustAgree("the end")
	}
}

// What a killed meter had set aside is told by the one that finishes its range, once: a clock that
// runs meters sees it by its exit code.
func TestWhatAKilledMeterSetAsideIsTold(t *testing.T) {
	for _, much := range []bool{false, true} {
		w := newWorld(t, "UTC")
		var list []event
		for day := 1; day <= 9; day += 2 {
			for i := range 3 {
				list = append(list, event{id: fmt.Sprint(day, i), quantity: "1", at: fmt.Sprintf("2026-10-%02dT10:00:00Z", day)})
			}
		}
		list = append(list, event{id: "bad", quantity: "-1", at: "2026-10-01T10:00:00Z"}, event{id: "bad", quantity: "-1", at: "2026-10-01T10:00:00Z"},
			event{id: "worse", quantity: "NaN", at: "2026-10-09T10:00:00Z"})
		w.add(w.db.Pool, list...)
		for unfinished := false; !unfinished; {
			ctx, cancel := context.WithCancel(t.Context())
			m := w.meter(large(much))
			m.Range.Progress = func(phase string, _, _ int64) {
				if phase == "count" {
					cancel()
				}
			}
			if _, err := m.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			cancel()
			mark, err := ledger.ReadWatermark(t.Context(), w.db.Pool, ledger.DefaultJob)
			if err != nil {
				t.Fatal(err)
			}
			unfinished = mark.Unfinished() // others' transactions may have held it back
		}
		done := w.count(large(much))
		if want := []ledger.ReasonCount{{Reason: "nan", Count: 1}, {Reason: "negative", Count: 1}}; !done.Finished || !slices.Equal(done.Reasons(), want) {
			t.Errorf("large %t: the next meter reports %+v", much, done)
		}
		if done := w.settled(large(much)); done.SetAsideTotal() != 0 {
			t.Errorf("large %t: the one after it reports %+v", much, done.Judged)
		}
		w.mustAgree("the end")
	}
}

// T59: months are half-open; what they sum to is the total.
func TestAnEventAtMidnightIsOfOneMonth(t *testing.T) {
	for zone, midnight := range map[string]string{"UTC": "2026-11-01T00:00:00Z", "Europe/Berlin": "2026-10-31T23:00:00Z", "America/New_York": "2026-11-01T04:00:00Z"} {
		w := newWorld(t, zone)
		at, err := time.Parse(time.RFC3339, midnight)
		if err != nil {
			t.Fatal(err)
		}
		w.add(w.db.Pool, event{id: "oct", quantity: "1", at: at.Add(-time.Microsecond).Format(time.RFC3339Nano)}, event{id: "nov", quantity: "1", at: midnight})
		w.settled()
		w.same(zone, w.daily(), []string{"acme calls 2026-10-31 1 1", "acme calls 2026-11-01 1 1"})
	}
}

// T60: a negative quantity counts only if a person says so, and then as it is.
func TestNegativeQuantitiesAreForAPerson(t *testing.T) {
	w := newWorld(t, "UTC")
	at := "2026-11-01T10:00:00Z"
	w.add(w.db.Pool, event{id: "a", quantity: "100", at: at}, event{id: "b", quantity: "-100", at: at}, event{id: "c", quantity: "-5", at: at})
	w.settled()
	w.same("before", w.daily(), []string{"acme calls 2026-11-01 100 1"})
	if done := w.release(ledger.SetAsideQuery{Reasons: []string{"negative"}}); done.Events != 2 || done.Days != 1 {
		t.Errorf("released %+v", done)
	}
	w.same("after", w.daily(), []string{"acme calls 2026-11-01 -5 3"})
	w.mustAgree("after")
}

// T61: quantities keep all their digits, to the bounds and not beyond.
func TestHugeQuantitiesKeepTheirDigits(t *testing.T) {
	w := newWorld(t, "UTC")
	at := "2026-11-01T10:00:00Z"
	w.add(w.db.Pool, event{id: "a", quantity: "9007199254740993", at: at}, event{id: "b", quantity: "1e15", at: at, account: "bolt"},
		event{id: "c", quantity: "999999999999999", at: at, account: "core"}, event{id: "d", quantity: "0.000000000001", at: at},
		event{id: "e", quantity: "1e18", at: at}, event{id: "f", quantity: "0.0000000000001", at: at}, event{id: "g", quantity: "1.5000000000000000", at: at})
	w.settled()
	w.same("daily usage", w.daily(), []string{
		"acme calls 2026-11-01 9007199254740994.500000000001 3", "bolt calls 2026-11-01 1000000000000000 1", "core calls 2026-11-01 999999999999999 1",
	})
	w.same("set aside", w.setAside(), []string{"e huge", "f huge"})
}

// A late event is carried once, to the first month that is not invoiced yet, whatever is counted
// again, and the frozen days stay as they are.
func TestALateEventIsCarriedOnce(t *testing.T) {
	w := newWorld(t, "Europe/Berlin")
	w.add(w.db.Pool, event{id: "oct", quantity: "1", at: "2026-10-31T22:59:59Z"}, event{id: "nov", quantity: "1", at: "2026-10-31T23:00:00Z"})
	w.settled()
	w.invoice("2026-10")
	w.add(w.db.Pool, event{id: "late", quantity: "2", at: "2026-10-31T22:59:59Z"}, event{id: "late", quantity: "2", at: "2026-10-31T22:59:59Z"})
	if done := w.settled(); !slices.Equal(done.Carried, []ledger.CarriedCount{{FromPeriod: "2026-10", ToPeriod: "2026-11", Count: 1}}) {
		t.Errorf("the meter reports %+v", done.Carried)
	}
	w.invoice("2026-11")
	w.add(w.db.Pool, event{id: "later", quantity: "4", at: "2026-10-05T10:00:00Z"}, event{id: "bad", quantity: "-1", at: "2026-10-05T10:00:00Z"})
	w.killed(2)
	for _, to := range []time.Time{{}, w.db.Now().Add(-240 * time.Hour)} {
		w.twice(rewound(to))
	}
	w.release(ledger.SetAsideQuery{EventIDs: []string{"bad"}})
	w.twice(rewound(time.Time{}))
	w.same("carried", w.carried(), []string{"bad 2026-10 2026-12 acme calls -1", "late 2026-10 2026-11 acme calls 2", "later 2026-10 2026-12 acme calls 4"})
	w.same("daily usage", w.daily(), []string{"acme calls 2026-10-31 1 1", "acme calls 2026-11-01 1 1"})
	w.mustAgree("the end")
}

// twice runs two meters at once.
func (w *world) twice(with ...func(*metering.Meter)) {
	w.t.Helper()
	failed := make(chan error, 2)
	for range 2 {
		m := w.meter(with...)
		go func() {
			_, err := m.Run(w.t.Context())
			failed <- err
		}()
	}
	for range 2 {
		if err := <-failed; err != nil {
			w.t.Fatal(err)
		}
	}
}

// Two meters at once do the work of one: what they say to have counted sums to what there was.
func TestTwoMetersCountWhatOneWould(t *testing.T) {
	w := newWorld(t, "UTC")
	w.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at)
		SELECT 'e' || i, 'acme', 'calls', 1, timestamptz '2026-10-01' + i * interval '1 hour' FROM generate_series(0, 719) i`)
	type outcome struct {
		done metering.Result
		err  error
	}
	outcomes := make(chan outcome, 2)
	for range 2 {
		m := w.meter(func(m *metering.Meter) { m.Chunk = 60 })
		go func() {
			done, err := m.Run(t.Context())
			outcomes <- outcome{done, err}
		}()
	}
	var rows, events int64
	for range 2 {
		o := <-outcomes
		if o.err != nil {
			t.Fatal(o.err)
		}
		rows, events = rows+o.done.Rows, events+o.done.CountedEvents
	}
	for done := w.count(); ; done = w.count() {
		if rows, events = rows+done.Rows, events+done.CountedEvents; !done.Waiting {
			break
		}
	}
	if rows != 720 || events != 720 {
		t.Errorf("the meters report %d rows and %d counted, want 720 of each", rows, events)
	}
	w.mustAgree("the end")
}

// No event stops the others, whatever stands in it; each is named by its reason.
func TestAPoisonedEventStopsNobody(t *testing.T) {
	for _, much := range []bool{false, true} {
		t.Run(fmt.Sprint("large ", much), func(t *testing.T) { poisoned(t, much) })
	}
}

func poisoned(t *testing.T, much bool) {
	w := newWorld(t, "Asia/Tokyo")
	good := event{id: "good", quantity: "1", at: "2026-11-01T10:00:00Z"}
	list := []struct{ reason, account, metric, quantity, at string }{
		{reason: "nan", quantity: "NaN", at: good.at},
		{reason: "huge", quantity: "1e18", at: good.at}, {reason: "huge", quantity: "-1e1000", at: good.at}, {reason: "huge", quantity: "1e-13", at: good.at},
		{reason: "huge", quantity: "1e130000", at: good.at},
		{reason: "negative", quantity: "-0.5", at: good.at},
		{reason: "future", quantity: "1", at: "2027-11-01T10:00:00Z"}, {reason: "future", quantity: "1", at: "infinity"}, {reason: "future", quantity: "1", at: "294276-12-31T23:59:59Z"},
		{reason: "ancient", quantity: "1", at: "2025-01-01T10:00:00Z"}, {reason: "ancient", quantity: "1", at: "-infinity"}, {reason: "ancient", quantity: "1", at: "4713-01-01T00:00:00Z BC"},
		{reason: "unknown_account", account: "nobody", quantity: "1"}, {reason: "unknown_account", account: strings.Repeat("x", 9000), quantity: "1"},
		{reason: "unknown_metric", metric: "bits", quantity: "1"}, {reason: "unknown_metric", metric: strings.Repeat("=1+1 ", 9000), quantity: "1"},
	}
	var want []string
	for i, p := range list {
		id := fmt.Sprint("p", i)
		if i == 0 {
			id = strings.Repeat("long", 9000)
		}
		w.add(w.db.Pool, event{id, p.account, p.metric, p.quantity, p.at})
		want = append(want, id+" "+p.reason)
	}
	w.add(w.db.Pool, good)
	if done := w.settled(large(much)); !done.Waiting && done.Rows > 0 && (done.SetAsideTotal() != int64(len(want)) || done.Rows != int64(len(want))+1) {
		t.Errorf("the meter reports %+v", done)
	}
	w.same("daily usage", w.daily(), []string{"acme calls 2026-11-01 1 1"})
	w.same("set aside", w.setAside(), want)
	// Who releases everything gets what can be counted by then, and the rest is told.
	done := w.release(ledger.SetAsideQuery{})
	w.same("released", w.lines(`SELECT reason FROM billing.usage_set_aside WHERE decided = 'released' ORDER BY arrival`),
		[]string{"huge", "huge", "negative", "future", "ancient"})
	if int(done.Events) != 5 || len(done.Refused) != 6 {
		t.Errorf("released %+v", done)
	}
	w.settled(rewound(time.Time{}))
	w.same("daily usage", w.daily(), []string{
		"acme calls 2025-01-01 1 1", "acme calls 2026-11-01 1000000000000000000.5000000000001 4", "acme calls 2027-11-01 1 1",
	})
}

// What a person decided is in the history, counts or not, and can be taken back only the one way.
func TestReleasedAndDroppedStayAsDecided(t *testing.T) {
	w := newWorld(t, "UTC")
	at := "2026-11-01T10:00:00Z"
	w.add(w.db.Pool, event{id: "first", quantity: "1", at: at}, event{id: "first", quantity: "2", at: at}, event{id: "new", account: "dune", quantity: "4", at: at},
		event{id: "gone", quantity: "-8", at: at})
	w.settled()
	if done := w.release(ledger.SetAsideQuery{EventIDs: []string{"new"}}); done.Events != 0 || !slices.Equal(done.Refused, []ledger.ReasonCount{{Reason: "unknown_account", Count: 1}}) {
		t.Errorf("an account that is unknown: %+v", done)
	}
	w.exec(`INSERT INTO billing.accounts (account_id) VALUES ('dune')`)
	drop := func(q ledger.SetAsideQuery) int64 {
		var done ledger.DecidedUsage
		q.Job = ledger.DefaultJob
		err := ledger.InTx(t.Context(), w.db.Pool, func(tx pgx.Tx) (err error) {
			done, err = ledger.DropUsage(t.Context(), tx, q, "ada", "a test")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return done.Events
	}
	if n := drop(ledger.SetAsideQuery{Reasons: []string{"negative"}}); n != 1 {
		t.Errorf("dropped %d, want 1", n)
	}
	if done := w.release(ledger.SetAsideQuery{}); done.Events != 2 || done.Conflicts != 1 {
		t.Errorf("released %+v, want the conflict and the new account's", done)
	}
	if n := drop(ledger.SetAsideQuery{}); n != 0 {
		t.Errorf("%d were dropped that had been released", n)
	}
	want := []string{"acme calls 2026-11-01 3 2", "dune calls 2026-11-01 4 1"}
	w.same("daily usage", w.daily(), want)
	w.settled(rewound(time.Time{}))
	w.same("daily usage, counted again", w.daily(), want)
	if done := w.release(ledger.SetAsideQuery{EventIDs: []string{"gone"}}); done.Events != 1 {
		t.Errorf("what was dropped and is named: %+v", done)
	}
	w.same("history", w.lines(`SELECT concat_ws(' ', e.event_id, h.action, h.person) FROM billing.usage_history h JOIN billing.usage_events e USING (arrival) ORDER BY h.id`),
		[]string{"gone drop ada", "first release ada", "new release ada", "gone release ada"})
}

// In another cluster nothing is counted before a person says that the ledger is whole; then
// nothing is counted twice, and nothing that was written there meanwhile is passed over.
func TestAnotherClusterIsRefusedUntilMoved(t *testing.T) {
	w := newWorld(t, "UTC")
	at := "2026-11-01T10:00:00Z"
	w.add(w.db.Pool, event{id: "a", quantity: "1", at: at}, event{id: "b", quantity: "2", at: at})
	w.settled()
	w.invoice("2026-10")
	w.add(w.db.Pool, event{id: "c", quantity: "4", at: at}, event{id: "bad", quantity: "-1", at: at})
	w.killed(2) // a range is under work
	w.add(w.db.Pool, event{id: "d", quantity: "8", at: at}, event{id: "a", quantity: "1", at: at})
	// As a dump of a cluster with ids far ahead would be restored; what follows is new.
	w.exec(`BEGIN; SET LOCAL session_replication_role TO replica;
		UPDATE billing.usage_events SET xid = (xid::text::bigint + 5000000000)::text::xid8;
		UPDATE billing.job_watermarks SET xid = (xid::text::bigint + 5000000000)::text::xid8, target_xid = (target_xid::text::bigint + 5000000000)::text::xid8, system_identifier = '42'; COMMIT`)
	w.add(w.db.Pool, event{id: "e", quantity: "16", at: at}, event{id: "late", quantity: "1", at: "2026-10-05T10:00:00Z"})
	before := w.daily()
	var cluster *ledger.ClusterError
	if _, err := w.meter().Run(t.Context()); !errors.As(err, &cluster) {
		t.Fatalf("a meter in another cluster: %v", err)
	}
	w.same("after the refusal", w.daily(), before)
	if err := ledger.InTx(t.Context(), w.db.Pool, func(tx pgx.Tx) error {
		_, err := ledger.MoveUsage(t.Context(), tx, "ada", "restored from a dump")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.settled(rewound(time.Time{}))
	w.same("daily usage", w.daily(), []string{"acme calls 2026-11-01 31 5"})
	w.same("set aside", w.setAside(), []string{"bad negative", "a repeat"})
	w.same("carried", w.carried(), []string{"late 2026-10 2026-11 acme calls 1"})
	w.mustAgree("the end")
}

// Another identifier is enough to be noticed, and so are ids that began anew: a cluster's ids
// only grow.
func TestIdsThatBeganAnewAreNoticed(t *testing.T) {
	for _, change := range []string{`system_identifier = '42'`, `xid = '5000000000'`} {
		w := newWorld(t, "UTC")
		w.settled()
		w.exec(`UPDATE billing.job_watermarks SET ` + change)
		var cluster *ledger.ClusterError
		if _, err := w.meter().Run(t.Context()); !errors.As(err, &cluster) {
			t.Errorf("%s: the meter says %v", change, err)
		}
	}
}

// The time zone of the first meter is that of all: another one is refused, and one that
// Postgres does not know too.
func TestTheTimeZoneIsPinned(t *testing.T) {
	w := newWorld(t, "Europe/Berlin")
	w.settled()
	for _, zone := range []string{"UTC", "Mars/Olympus"} {
		w.zone = zone
		var wrong *ledger.ZoneError
		if _, err := w.meter().Run(t.Context()); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", zone, err)
		}
	}
}

// Nothing is invoiced from a range that is half counted, and an invoiced month's days are
// frozen, whoever writes.
func TestHalfCountedUsageIsNotInvoiced(t *testing.T) {
	w := newWorld(t, "UTC")
	w.add(w.db.Pool, event{id: "a", quantity: "1", at: "2026-10-05T10:00:00Z"})
	w.settled()
	w.add(w.db.Pool, event{id: "b", quantity: "1", at: "2026-10-06T10:00:00Z"})
	w.exec(`UPDATE billing.job_watermarks SET target_xid = xid, target_arrival = arrival`)
	invoice := `INSERT INTO billing.usage_invoiced (job, period, person, xid, arrival) SELECT w.job, '2026-10', 'test', w.xid, w.arrival FROM billing.job_watermarks w`
	if _, err := w.db.Pool.Exec(t.Context(), invoice); err == nil || !strings.Contains(err.Error(), "half counted") {
		t.Errorf("an invoice of a range under work: %v", err)
	}
	w.exec(`UPDATE billing.job_watermarks SET target_xid = NULL, target_arrival = NULL`)
	w.invoice("2026-10")
	for _, sql := range []string{
		`UPDATE billing.daily_usage SET quantity = 2`, `DELETE FROM billing.daily_usage`,
		`INSERT INTO billing.daily_usage VALUES ('monthly-billing', 'bolt', 'calls', '2026-10-05', 1, 1)`,
	} {
		if _, err := w.db.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was taken for an invoiced month", sql)
		}
	}
}

// Where clocks are put back at midnight a day comes back after the next has begun. It is counted
// too if nothing else of it was used, also when days are looked for in the index.
func TestADayThatComesBackIsCounted(t *testing.T) {
	for _, much := range []bool{false, true} {
		w := newWorld(t, "America/St_Johns")
		w.db.SetNow(time.Date(2010, 11, 9, 12, 0, 0, 0, time.UTC))
		w.add(w.db.Pool, event{id: "first minute of the 7th", quantity: "1", at: "2010-11-07T02:30:30Z"}, event{id: "again the 6th", quantity: "1", at: "2010-11-07T02:40:00Z"})
		w.settled(large(much))
		w.same("daily usage", w.daily(), []string{"acme calls 2010-11-06 1 1", "acme calls 2010-11-07 1 1"})
	}
}

// Days are set to what their events come to: what stands there otherwise goes.
func TestDaysAreSetNotAddedTo(t *testing.T) {
	w := newWorld(t, "UTC")
	w.add(w.db.Pool, event{id: "a", quantity: "1", at: "2026-11-01T10:00:00Z"})
	w.settled()
	w.exec(`INSERT INTO billing.daily_usage VALUES ('monthly-billing', 'bolt', 'calls', '2026-11-01', 1, 1); UPDATE billing.daily_usage SET quantity = 7 WHERE account_id = 'acme'`)
	w.settled(rewound(time.Time{}))
	w.same("daily usage", w.daily(), []string{"acme calls 2026-11-01 1 1"})
}

// A late event that can't be counted is set aside and not carried, also where most is judged with its day.
func TestALateEventIsJudgedBeforeItIsCarried(t *testing.T) {
	for _, much := range []bool{false, true} {
		w := newWorld(t, "UTC")
		w.settled()
		w.invoice("2026-10")
		at := "2026-10-31T23:59:59Z"
		w.add(w.db.Pool, event{id: "good", quantity: "1", at: at}, event{id: "bad", quantity: "-1", at: at}, event{id: "worse", quantity: "NaN", at: at})
		w.settled(large(much))
		w.same("carried", w.carried(), []string{"good 2026-10 2026-11 acme calls 1"})
		w.same("set aside", w.setAside(), []string{"bad negative", "worse nan"})
	}
}
