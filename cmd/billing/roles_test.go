package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/migrations"
)

// roles are those of docs/deploy/grants.sql; the first owns what the others are
// granted.
var roles = []string{"billing_owner", "billing_run", "billing_finance", "billing_read"}

// rolePassword must stand in no output.
const rolePassword = "pgword-7c21d9-hidden"

var roleNumber atomic.Int64

// grants reads docs/deploy/grants.sql: what a superuser does once, and what follows
// every migrate. Its roles have a suffix of their own, because a server's tests share
// them, and a word to log in with.
func (o *office) grants() (first, after, suffix string) {
	o.t.Helper()
	text, err := os.ReadFile("../../docs/deploy/grants.sql")
	if err != nil {
		o.t.Fatal(err)
	}
	suffix = fmt.Sprintf("_%d_%d", time.Now().UnixNano(), roleNumber.Add(1))
	sql := string(text)
	for _, name := range roles {
		sql = strings.ReplaceAll(sql, name, name+suffix)
		sql = strings.Replace(sql, "CREATE ROLE "+name+suffix+" LOGIN;", "CREATE ROLE "+name+suffix+" LOGIN PASSWORD '"+rolePassword+"';", 1)
	}
	first, after, found := strings.Cut(sql, "-- billing migrate\n")
	if !found {
		o.t.Fatal("docs/deploy/grants.sql does not say where to migrate")
	}
	o.t.Cleanup(func() {
		for _, name := range roles {
			o.exec("DROP OWNED BY " + name + suffix + " CASCADE")
			o.exec("DROP ROLE " + name + suffix)
		}
	})
	return first, after, suffix
}

func (o *office) urlOf(role string) string {
	o.t.Helper()
	u, err := url.Parse(o.db.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	u.User = url.UserPassword(role, rolePassword)
	return u.String()
}

// as is an office whose program connects as one of the roles of docs/deploy, made
// for this test alone. Somebody else owns the schema.
func (o *office) as(role string) {
	o.t.Helper()
	first, after, suffix := o.grants()
	// The schema exists: this database was cloned.
	first, _, _ = strings.Cut(first, "CREATE SCHEMA")
	o.exec(first + after)
	o.env["DATABASE_URL"] = o.urlOf(role + suffix)
}

// staff is an installation by the book: the owner's program migrated it, the owner
// granted, and each of the others has the same office with a login of their own.
type staff struct {
	owner, run, finance, read *office
	suffix                    string
}

// named gives the roles in SQL of a page the names that they have here.
func (s staff) named(text string) string {
	for _, name := range roles {
		text = strings.ReplaceAll(text, name, name+s.suffix)
	}
	return text
}

func installed(t *testing.T) staff { return installedAt(t, stripeemu.Config{AnyCustomer: true}) }

// installedAt is an installation beside a Stripe of one's own.
func installedAt(t *testing.T, stripe stripeemu.Config) staff {
	t.Helper()
	o := newOffice(t, stripe)
	clock := one[string](o, `SELECT pg_get_functiondef('billing.now'::regproc)`)
	o.exec(`DROP SCHEMA billing CASCADE`)
	first, after, suffix := o.grants()
	o.exec(first)
	colleague := func(role string) *office {
		other := *o
		other.env = maps.Clone(o.env)
		other.env["DATABASE_URL"] = o.urlOf(role + suffix)
		return &other
	}
	s := staff{colleague("billing_owner"), colleague("billing_run"), colleague("billing_finance"), colleague("billing_read"), suffix}
	s.owner.must(0, "migrate")
	if err := s.owner.sql(after); err != nil {
		t.Fatalf("what docs/deploy grants: %v", err)
	}
	o.exec(clock)
	return s
}

// sql is what somebody does with psql and the program's login.
func (o *office) sql(text string) error {
	conn, err := pgx.Connect(context.Background(), o.env["DATABASE_URL"])
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), text)
	return err
}

// refuses wants statements refused: with the SQLSTATE 42501 where the role lacks the
// right, with 23000 where a trigger guards what the program itself must be able to do.
func (o *office) refuses(code string, statements ...string) {
	o.t.Helper()
	before := o.allTables()
	for _, text := range statements {
		var pg *pgconn.PgError
		if err := o.sql(text); !errors.As(err, &pg) || pg.Code != code {
			o.t.Errorf("%s: %v, want SQLSTATE %s", text, err, code)
		}
	}
	if !maps.Equal(o.allTables(), before) {
		o.t.Error("a refused statement changed something")
	}
}

// tables are those of the ledger.
func (o *office) tables() []string {
	o.t.Helper()
	rows, _ := o.db.Pool.Query(context.Background(), `SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'billing'::regnamespace AND c.relkind = 'r'`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(list) < 14 {
		o.t.Fatalf("the tables are %q, %v", list, err)
	}
	return list
}

// guarded is what no role but the owner can do, whatever else it may.
func (o *office) guarded() {
	o.t.Helper()
	var list []string
	for _, table := range o.tables() {
		// The notebooks of an audit and of a meter are no records and are emptied, and the
		// days of usage are computed from its events, until they are invoiced.
		if !slices.Contains([]string{"billing.audit_lists", "billing.audit_payments", "billing.audit_returns", "billing.audit_differences",
			"billing.daily_usage", "billing.usage_marks", "billing.usage_due"}, table) {
			list = append(list, "DELETE FROM "+table)
		}
		list = append(list, "TRUNCATE "+table+" CASCADE", "ALTER TABLE "+table+" DISABLE TRIGGER ALL", "DROP TABLE "+table+" CASCADE")
	}
	for _, table := range []string{"charge_events", "charge_tries", "period_events", "approvals", "approved_amounts"} {
		list = append(list, "UPDATE billing."+table+" SET period = '2026-09'")
	}
	o.refuses("42501", append(list,
		`SET session_replication_role = replica`,
		`CREATE TABLE billing.mine ()`,
		`CREATE FUNCTION billing.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`CREATE OR REPLACE FUNCTION billing.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now()'`,
		`CREATE OR REPLACE FUNCTION billing.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		`DROP TRIGGER charges_try_frozen ON billing.charges`,
		`DROP SCHEMA billing CASCADE`,
		`UPDATE billing.schema_migrations SET is_applied = false`)...)
}

// frozenFor is what the roles that move charges can't do to them.
func (o *office) frozenFor() {
	o.t.Helper()
	o.refuses("23000",
		`UPDATE billing.charges SET body = 'amount=1', body_sha256 = sha256('amount=1') WHERE state = 'succeeded'`,
		`UPDATE billing.charges SET idempotency_key = 'another' WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET body_sha256 = sha256('x') WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET stripe_customer = 'cus_mine' WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET amount_minor = 1 WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET account_id = 'a9999' WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET state = 'declined' WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET payment_intent = 'pi_mine' WHERE account_id = 'a0002'`,
		`UPDATE billing.charges SET window_opened_at = billing.now() WHERE account_id = 'a0002'`,
		`UPDATE billing.invoices SET amount = 1 WHERE account_id = 'a0002'`)
}

// monthWithTrouble is October with one charge that is held and one without a card, done
// by the role that runs it.
func (s staff) monthWithTrouble() []customer {
	s.run.t.Helper()
	list := customers(6)
	list[5].card = ""
	s.run.imports(october, list)
	s.run.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0001"})
	s.run.advance(26 * time.Hour)
	s.run.must(4, "reconcile", "--period", october)
	return list
}

// The owner migrates, which nobody else can: they are refused at once, with what is
// lacking, rather than kept waiting for a lock. Which versions there are, anybody may ask.
func TestTheOwnerAloneMigrates(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.owner.must(0, "migrate")
	s.owner.exec(`DELETE FROM billing.schema_migrations WHERE version_id = $1`, migrations.Latest())
	for _, o := range []*office{s.run, s.finance, s.read} {
		o.refusedByPostgres("migrate")
		if r := o.must(0, "migrate", "--status"); !strings.Contains(r.stdout, "00001_ledger") {
			t.Errorf("the versions are not shown: %s", r)
		}
		if err := o.sql(`CREATE VIEW billing.mine AS SELECT 1`); err == nil {
			t.Error("another role than the owner made something in the schema")
		}
	}
}

// refusedByPostgres wants a command refused for want of a right, with what to do.
func (o *office) refusedByPostgres(args ...string) {
	o.t.Helper()
	before := o.ledgerText()
	if r := o.must(77, args...); !strings.Contains(r.stderr, "permission denied") || !strings.Contains(r.stderr, "docs/deploy/grants.sql") {
		o.t.Errorf("billing %s: the error does not say what is lacking and what to do\n%s", strings.Join(args, " "), r)
	}
	if o.ledgerText() != before {
		o.t.Errorf("billing %s changed something", strings.Join(args, " "))
	}
}

// The role of the run can do all that a month takes, from the files to the last
// charge, also where something goes wrong. It can't edit history, nor what a charge
// asks of Stripe, nor agree with its own plan, nor end a pause.
func TestTheRunRoleRunsTheMonthAndCannotTouchItsHistory(t *testing.T) {
	t.Parallel()
	s := installed(t)
	o := s.run
	list := s.monthWithTrouble()
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	o.must(0, "void", "--period", october, "--account", "a0006", "--why", "test")
	list[5].card = "pm_card_visa_6"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "requeue", "--period", october, "--account", "a0006", "--why", "test")
	o.month(0)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "test")
	o.month(0)
	o.must(0, "close", "--period", october)
	o.must(0, "export", "charges", "--period", october, "--output", "-")
	if _, checks := o.doctor(); !strings.Contains(fmt.Sprint(checks), "not approve, pause, resume") {
		t.Errorf("doctor does not say what the role may not: %v", checks)
	}
	o.mustBeWhole()
	if n := o.states(october)["succeeded"]; n != 6 {
		t.Errorf("%d of 6 are paid", n)
	}
	o.guarded()
	o.frozenFor()
	o.refusedByPostgres("pause", "--all", "--why", "test")
	s.finance.must(0, "pause", "--all", "--why", "test")
	o.refusedByPostgres("resume", "--all")
	o.refuses("42501", `INSERT INTO billing.approvals (job, period, plan, approved_by, accounts, sums) VALUES ('monthly-billing', '2026-10', 'x', 'me', 1, '{}')`,
		`UPDATE billing.pauses SET resumed_at = billing.now(), resumed_by = 'me'`)
}

// Finance can do what its commands do: bring in, close, look, agree, order, stop and
// let go on. It can't record charges, so that it starts no month, and what a charge
// asks of Stripe and its history are as closed to it as to the run.
func TestFinanceCanDoItsCommandsAndNothingBesides(t *testing.T) {
	t.Parallel()
	s := installed(t)
	o := s.finance
	list := customers(6)
	list[5].card = ""
	o.imports(october, list)
	if r := o.must(77, "run", "--period", october); !strings.Contains(r.stderr, "permission denied for table charges") || o.emu.Posts() != 0 || len(o.states(october)) != 0 {
		t.Errorf("finance records charges: %s", r)
	}
	s.run.env["BILLING_REQUIRE_APPROVAL"] = "true"
	s.run.month(3)
	o.must(0, "close", "--period", october)
	plan := o.must(0, "preview", "--period", october, "--json").json(t).Plan
	o.must(0, "approve", "--period", october, "--plan", plan, "--by", "anna")
	o.must(0, "pause", "--account", "a0002", "--why", "test")
	o.must(0, "resume", "--account", "a0002")
	s.run.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0001"})
	o.advance(26 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	list[5].card = "pm_card_visa_6"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "void", "--period", october, "--account", "a0006", "--why", "test")
	o.must(0, "requeue", "--period", october, "--account", "a0006", "--why", "test")
	s.run.month(0)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.must(0, "export", "charges", "--period", october, "--output", "-")
	o.must(0, "show", "--period", october, "--account", "a0001")
	s.run.month(0)
	o.must(0, "status", "--period", october)
	o.mustBeWhole()
	if n := o.states(october)["succeeded"]; n != 6 {
		t.Errorf("%d of 6 are paid", n)
	}
	o.guarded()
	o.frozenFor()
	o.refuses("42501", `INSERT INTO billing.charges SELECT * FROM billing.charges`)
}

// Whoever only reads can read everything there is to read, and every command that
// writes is refused, with what to do.
func TestReadersReadAndChangeNothing(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.monthWithTrouble()
	o := s.read
	for _, args := range [][]string{
		{"status"}, {"status", "--period", october}, {"preview", "--period", october}, {"show", "--period", october, "--account", "a0001"}, {"config"},
		{"export", "charges", "--period", october, "--output", "-"}, {"export", "month", "--period", october, "--output", o.t.TempDir()},
		{"statement", "--account", "a0001"},
	} {
		o.must(0, args...)
	}
	// A charge is held, which needs somebody.
	o.must(4, "reconcile", "--period", october, "--dry-run")
	file := o.file("accounts.csv", accountsCSV(customers(1)))
	invoices := o.file("invoices.csv", invoicesCSV(customers(6)))
	s.run.must(0, "import", "invoices", "--period", "2026-09", "--file", invoices)
	plan := o.must(0, "preview", "--period", "2026-09", "--json").json(t).Plan
	for _, args := range [][]string{
		{"import", "accounts", "--file", file}, {"import", "invoices", "--period", "2026-11", "--file", invoices},
		{"run", "--period", "2026-09"}, {"reconcile", "--period", october}, {"approve", "--period", "2026-09", "--plan", plan},
		{"release", "--period", october, "--account", "a0001", "--why", "test"},
		{"requeue", "--period", october, "--account", "a0006", "--why", "test"},
		{"void", "--period", october, "--account", "a0006", "--why", "test"},
		{"pause", "--all", "--why", "test"}, {"reopen", "--period", october, "--why", "test"}, {"close", "--period", "2026-09"},
	} {
		o.refusedByPostgres(args...)
	}
	s.finance.must(0, "pause", "--all", "--why", "test")
	o.refusedByPostgres("resume", "--all")
	o.guarded()
	o.refuses("42501", `UPDATE billing.charges SET reason = ''`, `INSERT INTO billing.charges SELECT * FROM billing.charges`,
		`UPDATE billing.accounts SET payment_method = 'pm_mine'`, `SELECT nextval('billing.charge_events_id_seq')`)
}

// A function that acts with the owner's rights is for those whom docs/deploy names, and for
// what it was made for: nobody deletes lines by a trigger on a table of their own.
func TestNobodyBorrowsTheOwnersRights(t *testing.T) {
	t.Parallel()
	s := installed(t)
	if open := one[[]string](s.owner, `SELECT coalesce(array_agg(p.oid::regprocedure::text), '{}') FROM pg_proc p
		WHERE p.pronamespace = 'billing'::regnamespace AND p.prosecdef AND has_function_privilege('public', p.oid, 'EXECUTE')`); len(open) > 0 {
		t.Errorf("anybody may execute %q with the owner's rights", open)
	}
	s.owner.exec(`INSERT INTO billing.accounts (account_id, currency) VALUES ('a0001', 'usd');
		INSERT INTO billing.price_lists (valid_from, currency, version, content, sha256, source, imported_by) VALUES ('2026-01', 'usd', 1, '{}', sha256('{}'), 'x', 'x');
		INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash) VALUES ('monthly-billing', '2026-10', 'a0001', 1, 'usd', 'usage', '');
		INSERT INTO billing.invoice_lines (job, period, account_id, line, kind, quantity, unit_price, exact, amount, currency, list_from, list_version)
		VALUES ('monthly-billing', '2026-10', 'a0001', 1, 'base_fee', 1, 1, 1, 1, 'usd', '2026-01', 1)`)
	const borrow = `CREATE TEMPORARY TABLE mine (job text, period text, account_id text);
		INSERT INTO mine VALUES ('monthly-billing', '2026-10', 'a0001');
		CREATE TRIGGER mine AFTER UPDATE ON mine REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION billing.drop_stale_lines();
		UPDATE mine SET period = period`
	for _, o := range []*office{s.read, s.run, s.finance, s.owner} {
		o.refuses("42501", borrow)
	}
	if n := one[int](s.owner, `SELECT count(*) FROM billing.invoice_lines`); n != 1 {
		t.Errorf("%d lines are left of one", n)
	}
	if err := s.run.sql(`UPDATE billing.invoices SET amount = 2`); err != nil {
		t.Errorf("the run changes an invoice: %v", err)
	}
	if n := one[int](s.owner, `SELECT count(*) FROM billing.invoice_lines`); n != 0 {
		t.Errorf("%d lines are left of an invoice that changed", n)
	}
}
