package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger"
)

// meteredOffice knows the accounts a0001 to a0003 and the metrics calls and bytes.
func meteredOffice(t testing.TB) *office {
	t.Helper()
	o := newOffice(t)
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(customers(3))))
	o.exec(`INSERT INTO billing.metrics (metric) VALUES ('calls'), ('bytes')`)
	return o
}

// meters runs the meter until nothing is waited for: other tests have transactions open on the
// same server. It returns what the first said.
func (o *office) meters(code int, args ...string) outcome {
	o.t.Helper()
	args = append([]string{"meter"}, args...)
	first := o.must(code, args...)
	eventually(o.t, "all usage is counted", func() bool {
		if one[bool](o, `SELECT target_xid IS NULL AND NOT EXISTS (SELECT FROM billing.usage_events e WHERE e.xid >= w.xid) FROM billing.job_watermarks w`) {
			return true
		}
		o.run(args...)
		return false
	})
	return first
}

func (o *office) dailyUsage() []string {
	o.t.Helper()
	return one[[]string](o, `SELECT coalesce(array_agg(concat_ws(' ', account_id, metric, day, quantity, events) ORDER BY account_id, metric, day), '{}') FROM billing.daily_usage`)
}

// A file of usage comes in as events, times in every form that can be told apart; the same file
// again adds nothing, and what is counted is what stands in it.
func TestAFileOfUsageIsCounted(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	file := o.file("usage.csv", strings.Join([]string{
		"Transaction ID,account_id,Code,Quantity,Timestamp",
		"t1,a0001,calls,5,2026-10-31T23:30:00+01:00",
		"t2,a0001,calls,0.25,1793487600.5",
		"t3,a0002,bytes,9007199254740993,2026-10-31 22:59:59.999999Z",
		"t3,a0002,bytes,9007199254740993,2026-10-31 22:59:59.999999Z",
		"t4,a0003,calls,1,",
	}, "\n"))
	o.must(0, "import", "usage", "--file", file, "--dry-run")
	if n := one[int](o, `SELECT count(*) FROM billing.usage_events`); n != 0 {
		t.Fatalf("a dry run wrote %d events", n)
	}
	if r := o.must(0, "import", "usage", "--file", file); !strings.Contains(r.stdout, "5 events, 4 new, 0 changed, 1 unchanged") {
		t.Error(r)
	}
	if r := o.must(0, "import", "usage", "--file", file); !strings.Contains(r.stdout, "nothing changed") {
		t.Error(r)
	}
	o.meters(0, "--timezone", "Europe/Berlin")
	mustEqual(t, "daily usage", o.dailyUsage(), []string{
		"a0001 calls 2026-10-31 5 1", "a0001 calls 2026-11-01 0.25 1", "a0002 bytes 2026-10-31 9007199254740993 1", "a0003 calls 2026-11-01 1 1",
	})
}

// A time without an offset may be of any zone. It is refused, also where it came twice or never
// in the zone that is named, and so is everything that may mean something else.
func TestAFileOfUsageIsRefusedWhereItIsNotClear(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	for _, c := range []struct{ row, says, zone string }{
		{"e1,a0001,calls,5,2026-10-05T10:00:00", "add --timezone", ""},
		{"e1,a0001,calls,5,2026-10-25T02:30:00", "came twice", "Europe/Berlin"},
		{"e1,a0001,calls,5,2026-03-29T02:30:00", "does not exist", "Europe/Berlin"},
		{"e1,a0001,calls,5,1790895600000", "milliseconds", ""},
		{"e1,a0001,calls,5,2026-10-05", "want a moment", ""},
		{`e1,a0001,calls,"1,234",2026-10-05T10:00:00Z`, "thousands separators", ""},
		{"e1,a0001,calls,NaN,2026-10-05T10:00:00Z", "want a number", ""},
		{",a0001,calls,5,2026-10-05T10:00:00Z", "is missing", ""},
		{"1.23E+15,a0001,calls,5,2026-10-05T10:00:00Z", "spreadsheet", ""},
	} {
		args := []string{"import", "usage", "--file", o.file("usage.csv", "id,account_id,metric,quantity,occurred_at\n"+c.row+"\n")}
		if c.zone != "" {
			args = append(args, "--timezone", c.zone)
		}
		if r := o.must(65, args...); !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stderr, "usage.csv:2:") {
			t.Errorf("%s: want %q and the line\n%s", c.row, c.says, r)
		}
	}
	o.must(0, "import", "usage", "--timezone", "Europe/Berlin", "--file", o.file("usage.csv", "id,account_id,metric,quantity,occurred_at\ne1,a0001,calls,5,2026-10-25T03:30:00\n"))
	if at := one[time.Time](o, `SELECT occurred_at FROM billing.usage_events`); !at.Equal(time.Date(2026, 10, 25, 2, 30, 0, 0, time.UTC)) {
		t.Errorf("half past three of that night was taken for %s", at.UTC())
	}
	if r := o.must(65, "import", "invoices", "--period", october, "--file", o.file("usage.csv", "id,account_id,metric,quantity\ne1,a0001,calls,5\n")); !strings.Contains(r.stderr, "import usage") {
		t.Errorf("a file of usage as invoices: %s", r)
	}
}

// What is set aside is told once by exit 4, listed with its reason, and counted or given up as a
// person says.
func TestPeopleDecideWhatIsSetAside(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	o.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES
		('good', 'a0001', 'calls', 1, '2026-10-30T10:00:00Z'), ('nan', 'a0001', 'calls', 'NaN', '2026-10-30T10:00:00Z'),
		('=1+1', 'a0001', 'calls', -2, '2026-10-30T10:00:00Z'), ('new', 'dune', 'calls', 4, '2026-10-30T10:00:00Z'),
		('good', 'a0001', 'calls', 8, '2026-10-30T10:00:00Z')`)
	// Others' transactions may hold them back.
	var dry outcome
	eventually(t, "a dry run finds them", func() bool { dry = o.run("meter", "--dry-run"); return dry.code == 4 })
	if !strings.Contains(dry.stdout, "nothing was changed") || one[int](o, `SELECT count(*) FROM billing.job_watermarks`) != 0 {
		t.Error(dry)
	}
	eventually(t, "a meter sets them aside", func() bool { return o.run("meter").code == 4 })
	o.must(0, "meter")
	mustEqual(t, "daily usage", o.dailyUsage(), []string{"a0001 calls 2026-10-30 1 1"})
	var list struct {
		Details setAsideListJSON `json:"details"`
	}
	if err := json.Unmarshal([]byte(o.must(0, "usage", "list", "--json").stdout), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Details.Events {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.EventID, e.Reason, e.Quantity, e.OccurredAt))
	}
	mustEqual(t, "the list", got, []string{
		"nan nan NaN 2026-10-30T10:00:00Z", "=1+1 negative -2 2026-10-30T10:00:00Z", "new unknown_account 4 2026-10-30T10:00:00Z", "good conflict 8 2026-10-30T10:00:00Z",
	})
	if r := o.must(0, "usage", "list", "--format", "csv", "--reason", "negative"); !strings.Contains(r.stdout, "'=1+1,negative") {
		t.Errorf("a formula stands in the CSV: %s", r)
	}
	for _, args := range [][]string{{"--all"}, {"--why", "x"}, {"--all", "--event", "nan", "--why", "x"}, {"--reason", "repeat", "--why", "x"}, {"--event", "none", "--why", "x"}} {
		o.must(64, append([]string{"usage", "release"}, args...)...)
		o.must(64, append([]string{"usage", "drop"}, args...)...)
	}
	o.must(0, "usage", "release", "--reason", "negative", "--why", "a credit", "--dry-run")
	mustEqual(t, "daily usage after a dry run", o.dailyUsage(), []string{"a0001 calls 2026-10-30 1 1"})
	if r := o.must(4, "usage", "release", "--all", "--why", "seen"); !strings.Contains(r.stderr, "1 conflict counts beside") || !strings.Contains(r.stdout, "not released: 1 unknown_account") {
		t.Error(r)
	}
	mustEqual(t, "daily usage", o.dailyUsage(), []string{"a0001 calls 2026-10-30 7 3"})
	o.exec(`INSERT INTO billing.accounts (account_id) VALUES ('dune')`)
	o.must(0, "usage", "release", "--reason", "unknown_account", "--why", "imported")
	o.must(0, "usage", "drop", "--all", "--why", "a sensor's fault")
	o.must(0, "meter", "--rewind-to", "beginning")
	mustEqual(t, "daily usage", o.dailyUsage(), []string{"a0001 calls 2026-10-30 7 3", "dune calls 2026-10-30 4 1"})
	if r := o.must(0, "usage", "list"); !strings.Contains(r.stdout, "no event is set aside") {
		t.Error(r)
	}
}

// T56: how long a month is waited for is one setting, kept with the watermark and told by every
// meter; no environment of a host is another.
func TestTheSettleIntervalIsOneSetting(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	o.must(0, "meter", "--settle", "10m")
	o.env["BILLING_SETTLE"] = "2m"
	r := o.must(0, "meter")
	if settle := one[string](o, `SELECT settle::text FROM billing.job_watermarks`); settle != "00:10:00" || !strings.Contains(r.stderr, `"settle":"10m0s"`) {
		t.Errorf("settle is %s\n%s", settle, r)
	}
	o.must(64, "meter", "--settle", "-1s")
	o.must(64, "meter", "--settle", "800h")
}

// Another time zone than the first meter's, and another cluster of Postgres, are refused with what
// to type.
func TestAMeterRefusesWhatWouldCountWrongly(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	o.meters(0, "--timezone", "Europe/Berlin")
	if r := o.must(78, "meter"); !strings.Contains(r.stderr, "set BILLING_TIMEZONE=Europe/Berlin") {
		t.Error(r)
	}
	o.env["BILLING_TIMEZONE"] = "Europe/Berlin"
	o.exec(`UPDATE billing.job_watermarks SET system_identifier = '42'`)
	for _, args := range [][]string{{"meter"}, {"usage", "drop", "--all", "--why", "x"}} {
		if r := o.must(78, args...); !strings.Contains(r.stderr, "billing meter --moved") {
			t.Error(r)
		}
	}
	o.must(64, "meter", "--moved")
	o.must(0, "meter", "--moved", "--why", "a drill", "--dry-run")
	o.must(78, "meter")
	o.must(0, "meter", "--moved", "--why", "a drill")
	o.must(0, "meter")
	o.must(64, "meter", "--rewind-to", "yesterday")
	o.must(64, "meter", "--why", "x")
	if got := one[string](o, `SELECT action || ' ' || why FROM billing.usage_history`); got != "moved a drill" {
		t.Errorf("the history says %q", got)
	}
}

// An application's role writes events and reads nothing. What others have open is not passed
// over by a role that can't see their transactions either.
func TestRolesOfUsageMayWhatTheyMust(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.owner.exec(`INSERT INTO billing.accounts (account_id) VALUES ('a0001'); INSERT INTO billing.metrics (metric) VALUES ('calls')`)
	shop := "shop" + s.suffix
	s.owner.exec(`CREATE ROLE ` + shop + ` LOGIN PASSWORD '` + rolePassword + `'; GRANT USAGE ON SCHEMA billing TO ` + shop + `; GRANT INSERT ON billing.usage_events TO ` + shop)
	t.Cleanup(func() { s.owner.exec(`DROP OWNED BY ` + shop + `; DROP ROLE ` + shop) })
	conn, err := pgx.Connect(t.Context(), s.owner.urlOf(shop))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	long, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const event = `INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES ($1, 'a0001', 'calls', 1, '2026-10-05T10:00:00Z')`
	if _, err := long.Exec(t.Context(), event, "early"); err != nil {
		t.Fatal(err)
	}
	s.owner.exec(event, "late")
	if r := s.run.must(0, "meter"); !strings.Contains(r.stderr, "still runs") {
		t.Errorf("a transaction that is open was passed over: %s", r)
	}
	mustEqual(t, "while it runs", s.owner.dailyUsage(), []string{})
	if err := long.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run.meters(0)
	mustEqual(t, "after it", s.owner.dailyUsage(), []string{"a0001 calls 2026-10-05 2 2"})
	s.owner.exec(event, "late") // a copy
	s.owner.exec(`INSERT INTO billing.usage_events (event_id, account_id, metric, quantity) VALUES ('x', 'nobody', 'calls', 1)`)
	eventually(t, "a meter sets it aside", func() bool { return s.finance.run("meter").code == 4 })
	s.finance.must(0, "usage", "drop", "--all", "--why", "x")
	s.read.must(0, "usage", "list")
	s.read.must(77, "meter")
	home := one[string](s.owner, `SELECT system_identifier FROM billing.job_watermarks`)
	s.owner.exec(`UPDATE billing.job_watermarks SET system_identifier = '42'`)
	s.run.must(77, "meter", "--moved", "--why", "x")
	s.owner.exec(`UPDATE billing.job_watermarks SET system_identifier = $1`, home)
	s.run.refuses("42501", `UPDATE billing.usage_events SET quantity = 2`, `DELETE FROM billing.usage_events`, `TRUNCATE billing.usage_events`)
	s.owner.refuses("23000", `UPDATE billing.usage_events SET quantity = 2`, `UPDATE billing.usage_events SET xid = '3'`,
		`SET billing.usage_moves = 'yes'; UPDATE billing.usage_events SET quantity = 2`, `DELETE FROM billing.usage_events`, `TRUNCATE billing.usage_events`,
		`DELETE FROM billing.usage_set_aside`, `DELETE FROM billing.usage_history`, `UPDATE billing.usage_set_aside SET reason = 'nan'`, `DELETE FROM billing.job_watermarks`)
	if codes := s.owner.dailyUsage(); !slices.Equal(codes, []string{"a0001 calls 2026-10-05 2 2"}) {
		t.Errorf("in the end: %q", codes)
	}
}

// Taking ids of another cluster over touches every event: a ledger that is where it was is left
// alone. Ids that went back are enough of a sign, those of events that no meter saw too.
func TestALedgerThatDidNotMoveIsNotMoved(t *testing.T) {
	t.Parallel()
	o := meteredOffice(t)
	const event = `INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at) VALUES ('e1', 'a0001', 'calls', 1, '2026-10-05T10:00:00Z')`
	o.exec(event)
	refused := func(args ...string) {
		t.Helper()
		before := one[string](o, `SELECT string_agg(xid::text, ' ') FROM billing.usage_events`)
		o.must(64, append([]string{"meter", "--moved", "--why", "x"}, args...)...).says(t, "did not move")
		if one[string](o, `SELECT string_agg(xid::text, ' ') FROM billing.usage_events`) != before || one[int](o, `SELECT count(*) FROM billing.usage_history`) != 0 {
			t.Error("a refused move changed something")
		}
	}
	refused()
	o.meters(0)
	refused()
	refused("--dry-run")
	o.exec(`BEGIN; SET LOCAL session_replication_role TO replica;
		INSERT INTO billing.usage_events (event_id, account_id, metric, quantity, occurred_at, received_at, xid) VALUES ('e2', 'a0001', 'calls', 2, '2026-10-05T10:00:00Z', billing.now(), '5000000000'); COMMIT`)
	o.must(0, "meter", "--moved", "--why", "x")
	o.meters(0)
	mustEqual(t, "daily usage", o.dailyUsage(), []string{"a0001 calls 2026-10-05 3 2"})
	o.exec(`UPDATE billing.job_watermarks SET xid = '5000000000'`)
	o.must(78, "meter")
	o.must(0, "meter", "--moved", "--why", "x")
	o.meters(0)
	mustEqual(t, "daily usage", o.dailyUsage(), []string{"a0001 calls 2026-10-05 3 2"})
}

// Every job has all usage and every base fee: a month is invoiced by one of them.
func TestAMonthIsInvoicedByOneJob(t *testing.T) {
	t.Parallel()
	o := usageOffice(t, 2)
	o.complete()
	o.invoice(0)
	second := func(code int, period string) outcome {
		t.Helper()
		return o.must(code, "invoice", "--job", "second", "--period", period)
	}
	now := one[time.Time](o, `SELECT billing.now()`)
	eventually(t, "the second job's usage is counted", func() bool {
		o.must(0, "meter", "--job", "second")
		return one[bool](o, `SELECT coalesce(bool_and(through >= $1 AND target_xid IS NULL), false) FROM billing.job_watermarks WHERE job = 'second'`, now)
	})
	before := o.invoiced()
	second(78, october).says(t, "monthly-billing", "billed twice", "billing invoice --job monthly-billing --period 2026-10")
	if o.invoiced() != before {
		t.Error("a refused invoice changed something")
	}
	o.invoice(0).says(t, "nothing changed")
}

// What can be done about an event that is not released depends on why it is not.
func TestTheHintOfAReleaseFitsWhatIsRefused(t *testing.T) {
	for reason, wants := range map[string]string{
		"nan": "billing usage drop", "huge": "billing usage drop", "ancient": "billing usage drop", "future": "billing usage drop",
		"unknown_account": "billing import accounts", "unknown_metric": "billing import prices",
	} {
		var person *billing.PersonError
		if err := stillRefused(ledger.DecidedUsage{Refused: []ledger.ReasonCount{{Reason: reason, Count: 1}}}); !errors.As(err, &person) {
			t.Fatalf("%s: %v", reason, err)
		}
		for _, command := range []string{"billing import accounts", "billing import prices"} {
			if strings.Contains(person.Hint, command) != (command == wants) {
				t.Errorf("%s: the hint is %q", reason, person.Hint)
			}
		}
		if !strings.Contains(person.Hint, wants) {
			t.Errorf("%s: the hint is %q", reason, person.Hint)
		}
	}
}
