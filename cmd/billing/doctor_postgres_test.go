package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/migrations"
)

// asRole is an office whose program connects as a role of docs/deploy, from which
// something was then taken; %[1]s is the role.
func asRole(role string, taken ...string) func(*office) {
	return func(o *office) {
		o.as(role)
		u, err := url.Parse(o.env["DATABASE_URL"])
		if err != nil {
			o.t.Fatal(err)
		}
		for _, text := range taken {
			o.exec(fmt.Sprintf(text, u.User.Username()))
		}
	}
}

// What the promises of the ledger rest on in Postgres is looked at, each by itself.
func TestDoctorFindsWhatIsWrongWithPostgres(t *testing.T) {
	t.Parallel()
	unread := []string{"billable warn", "identity warn", "invoices warn", "triggers warn"}
	// The clock of tests is in the schema.
	trueTime := func(o *office) { o.setNow(time.Now()) }
	empty := func(o *office) { trueTime(o); o.env["DATABASE_URL"] = emptyDatabaseOf(o) }
	owned := func(o *office) {
		asRole("billing_run", `ALTER TABLE billing.charges OWNER TO %s`)(o)
		o.t.Cleanup(func() { o.exec(`ALTER TABLE billing.charges OWNER TO CURRENT_USER`) })
	}
	examineEach(t, false, map[string]map[string]ailment{
		"schema": {
			"none":  {arm: empty, status: statusFail, says: []string{"no billing schema", "billing migrate"}, others: slices.Concat(unread, []string{"rights warn"})},
			"newer": {arm: sql(fmt.Sprintf(`INSERT INTO billing.schema_migrations (version_id, is_applied) VALUES (%d, true)`, migrations.Latest()+1)), status: statusFail, says: []string{"newer than", "install the newer billing"}, others: unread},
			"older": {arm: sql(fmt.Sprintf(`DELETE FROM billing.schema_migrations WHERE version_id = %d`, migrations.Latest())), status: statusFail, says: []string{"this program needs", "billing migrate"}, others: unread},
		},
		"role": {
			"owner": {arm: owned, status: statusWarn, says: []string{"owns the ledger's tables", "billing_run of docs/deploy"}},
			"right": {arm: asRole("billing_run"), status: statusOK},
		},
		"rights": {
			"a reader":          {arm: asRole("billing_read"), status: statusWarn, says: []string{"may read, and change nothing"}},
			"an importer":       {arm: asRole("billing_read", `GRANT INSERT, UPDATE ON billing.accounts TO %s`), status: statusWarn, says: []string{"may read and import accounts; not run"}},
			"a new table":       {arm: asRole("billing_run", `REVOKE INSERT ON billing.charge_tries FROM %s`), status: statusFail, says: []string{"INSERT on charge_tries", "grants.sql"}},
			"a sequence":        {arm: asRole("billing_run", `REVOKE USAGE ON SEQUENCE billing.charge_events_id_seq FROM %s`), status: statusFail, says: []string{"USAGE on charge_events_id_seq"}},
			"a table unread":    {arm: asRole("billing_run", `REVOKE SELECT ON billing.findings FROM %s`), status: statusFail, says: []string{"SELECT on findings"}, others: []string{"invoices fail"}},
			"the schema closed": {arm: both(trueTime, asRole("billing_run", `REVOKE USAGE ON SCHEMA billing FROM %s`)), status: statusFail, says: []string{"USAGE on the schema billing"}, others: slices.Concat(unread[:3], []string{"schema fail", "triggers warn"})},
		},
		"triggers": {
			"one off": {arm: sql(`ALTER TABLE billing.charges DISABLE TRIGGER charges_try_frozen`), status: statusFail, says: []string{"1 trigger that guard", "ENABLE TRIGGER"}},
			"all off": {arm: database(`ALTER DATABASE %s SET session_replication_role = replica`), status: statusFail, says: []string{"run without triggers"}},
		},
		"pooler": {
			"one": {arm: pooled, status: statusOK, says: []string{"a pooler stands between"}},
		},
	})
}

// emptyDatabaseOf is a database on the office's server that nobody migrated.
func emptyDatabaseOf(o *office) string {
	o.t.Helper()
	name := one[string](o, `SELECT current_database()`)
	o.exec(`CREATE DATABASE ` + name + `_new`)
	o.t.Cleanup(func() { o.exec(`DROP DATABASE ` + name + `_new WITH (FORCE)`) })
	return strings.Replace(o.db.URL, "/"+name, "/"+name+"_new", 1)
}

// pooled puts something between that gives its clients process numbers of its own,
// as pgbouncer does.
func pooled(o *office) {
	u, err := url.Parse(o.db.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { listener.Close() })
	server := u.Host
	u.Host = listener.Addr().String()
	o.env["DATABASE_URL"] = u.String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go renumber(client, server)
		}
	}()
}

// renumber passes a connection on, and changes the number in BackendKeyData.
func renumber(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client) }()
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if head[0] == 'K' {
			binary.BigEndian.PutUint32(body, binary.BigEndian.Uint32(body)^1<<30)
		}
		if _, err := client.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// viewOf replaces billing.billable by one of a company's own: each column as it is
// said, or as it should be. An empty expression leaves the column out.
func viewOf(rows string, columns map[string]string) func(*office) {
	return func(o *office) {
		var list []string
		for _, want := range billableTypes {
			expression, said := columns[want.column]
			if !said {
				expression = map[string]string{"job": "'monthly-billing'", "period": "'2026-10'", "account_id": "n::text", "amount": "10.50", "currency": "'usd'", "status": "'active'"}[want.column]
				if expression == "" {
					expression = "'x'"
				}
			}
			if expression == "" {
				continue
			}
			if !said && expression[0] == '\'' {
				expression += "::text"
			}
			list = append(list, expression+" AS "+want.column)
		}
		o.exec(`DROP VIEW billing.billable`)
		o.exec(`CREATE VIEW billing.billable AS SELECT ` + strings.Join(list, ", ") + ` FROM ` + rows)
	}
}

// A company that keeps its own tables learns what its view lacks, and which of its
// rows a run would refuse or skip.
func TestDoctorFindsWhatIsWrongWithTheView(t *testing.T) {
	t.Parallel()
	const three = "generate_series(1, 3) n"
	column := func(name, expression string) func(*office) {
		return viewOf(three, map[string]string{name: expression})
	}
	examineEach(t, false, map[string]map[string]ailment{
		"billable": {
			"right":            {arm: viewOf(three, nil), status: statusOK},
			"numbers as ids":   {arm: column("account_id", "n"), status: statusOK},
			"uuids as ids":     {arm: column("account_id", "gen_random_uuid()"), status: statusOK},
			"no view":          {arm: sql(`DROP VIEW billing.billable`), status: statusFail, says: []string{"there is no view", "docs/own-tables.md"}, others: []string{"invoices fail"}},
			"a column missing": {arm: column("payment_method", ""), status: statusFail, says: []string{"has no column payment_method"}},
			"several things": {arm: viewOf(three, map[string]string{"email": "", "amount": "10.5::double precision", "description": "n"}), status: statusFail,
				says: []string{"no column email", "amount as double precision: want", "description as integer: want text"}},
			"money": {arm: column("amount", "10.5::numeric::money"), status: statusFail, says: []string{"amount as money"}},
			"an enum": {arm: func(o *office) {
				o.exec(`CREATE TYPE public.s AS ENUM ('active')`)
				column("status", "'active'::public.s")(o)
			}, status: statusFail, says: []string{"status as s: want text"}},
			"whole numbers":      {arm: column("amount", "1050"), status: statusWarn, says: []string{"amount / 100.0"}},
			"what can't be read": {arm: ownedByNobody, status: statusFail, says: []string{"permission denied", "owner of the view needs SELECT"}, others: []string{"invoices fail"}},
		},
		"invoices": {
			"right":          {arm: viewOf(three, nil), status: statusOK, says: []string{"3 rows in 2026-10, one an account"}},
			"nothing":        {arm: column("period", "'2025-10'::text"), status: statusOK, says: []string{"nothing is billable in 2026-10"}},
			"two rows":       {arm: viewOf("(SELECT 1 AS n UNION ALL SELECT 1 UNION ALL SELECT 2) x", nil), status: statusFail, says: []string{"two rows for account 1 in period 2026-10"}},
			"no account":     {arm: column("account_id", "CASE WHEN n > 1 THEN n::text END"), status: statusFail, says: []string{"1 row without an account id"}},
			"no number":      {arm: column("amount", "CASE WHEN n = 2 THEN 'NaN'::numeric ELSE 5 END"), status: statusWarn, says: []string{"1 row of 2026-10 without a number as amount (account 2)"}},
			"no amount":      {arm: column("amount", "CASE WHEN n < 3 THEN 5::numeric END"), status: statusWarn, says: []string{"without a number as amount (account 3)"}},
			"fractions":      {arm: column("amount", "CASE WHEN n = 2 THEN 10.505 ELSE 5 END"), status: statusWarn, says: []string{"1 row of 2026-10 with fractions finer than USD has (account 2)"}},
			"fractions of 0": {arm: viewOf(three, map[string]string{"currency": "'jpy'::text"}), status: statusWarn, says: []string{"3 rows of 2026-10 with fractions finer than JPY has"}},
			"no currency":    {arm: column("currency", "CASE WHEN n = 2 THEN 'dollars' ELSE 'usd' END"), status: statusWarn, says: []string{`1 row of 2026-10 with the currency "dollars" (account 2)`}},
		},
	})
	o := newOffice(t)
	o.imports("2026-08", customers(2))
	viewOf(three, map[string]string{"period": "CASE WHEN n = 2 THEN '2026-08' ELSE '2026-07' END", "amount": "0.001"})(o)
	if _, checks := o.doctor(); !strings.Contains(checks["invoices"].Detail, "1 row of 2026-08") {
		t.Errorf("a period without a run is not looked at: %+v", checks["invoices"])
	}
	if _, checks := o.doctor("--period", "2026-07"); !strings.Contains(checks["invoices"].Detail, "2 rows of 2026-07") {
		t.Errorf("a period that was named is not looked at: %+v", checks["invoices"])
	}
}

// ownedByNobody is a view whose owner may not read the tables behind it.
func ownedByNobody(o *office) {
	role := "owner_of_" + one[string](o, `SELECT current_database()`)
	o.exec(`CREATE ROLE ` + role)
	o.t.Cleanup(func() { o.exec(`DROP OWNED BY ` + role); o.exec(`DROP ROLE ` + role) })
	o.exec(`ALTER VIEW billing.billable OWNER TO ` + role)
}

// A standby is told from a primary, and all that can be read there is looked at.
func TestDoctorFindsAStandby(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.env["DATABASE_URL"] = startStandby(t)
	r, checks := o.doctor()
	if one := checks["primary"]; r.code != 78 || one.Status != statusFail || !strings.Contains(one.Todo, "primary") || checks["rights"].Status != statusOK {
		t.Errorf("%+v\n%s", one, r)
	}
}

// lesser is an office whose program connects as a role that may read, and what
// doctor says that some commands need besides.
func (o *office) lesser(command string) *office {
	o.t.Helper()
	role := "billing_lesser_" + one[string](o, `SELECT md5(random()::text)`)
	o.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'a-password'`)
	o.t.Cleanup(func() { o.exec(`DROP OWNED BY ` + role); o.exec(`DROP ROLE ` + role) })
	for _, text := range []string{`GRANT USAGE ON SCHEMA billing TO `, `GRANT SELECT ON ALL TABLES IN SCHEMA billing TO `} {
		o.exec(text + role)
	}
	u, err := url.Parse(o.db.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	u.User = url.UserPassword(role, "a-password")
	pool, err := pgxpool.New(o.t.Context(), u.String())
	if err != nil {
		o.t.Fatal(err)
	}
	defer pool.Close()
	_, commands, err := ledger.ReadRights(o.t.Context(), pool)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, c := range commands {
		if !slices.Contains(c.Commands, command) {
			continue
		}
		for _, right := range c.Missing {
			object := "billing." + right.Object
			if strings.HasSuffix(object, "_seq") {
				object = "SEQUENCE " + object
			}
			o.exec(`GRANT ` + right.Privilege + ` ON ` + object + ` TO ` + role)
		}
		l := &office{t: o.t, db: o.db, emu: o.emu, env: maps.Clone(o.env)}
		l.env["DATABASE_URL"] = u.String()
		return l
	}
	o.t.Fatalf("doctor knows no rights of %s", command)
	return nil
}

// A month goes through with each command run by a role that has only those rights
// which doctor asks for.
func TestTheRightsThatDoctorAsksForAreEnough(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	list := customers(4)
	list[3].card = ""
	accounts, invoices := o.file("accounts.csv", accountsCSV(list)), o.file("invoices.csv", invoicesCSV(list))
	o.lesser("import accounts").must(0, "import", "accounts", "--file", accounts)
	o.lesser("import invoices").must(0, "import", "invoices", "--period", october, "--file", invoices, "--open")
	o.lesser("close").must(0, "close", "--period", october)
	o.lesser("pause").must(0, "pause", "--account", "a0002", "--why", "test")
	o.lesser("resume").must(0, "resume", "--account", "a0002")
	plan := o.must(0, "preview", "--period", october, "--json").json(t).Plan
	o.lesser("approve").must(0, "approve", "--period", october, "--plan", plan, "--by", "anna")
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0001", Method: "POST"})
	o.lesser("run").must(75, "run", "--period", october)
	o.emu.ClearFaults()
	o.advance(26 * time.Hour)
	o.lesser("reconcile").must(4, "reconcile", "--period", october)
	o.lesser("release").must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	o.lesser("void").must(0, "void", "--period", october, "--account", "a0004", "--why", "test")
	list[3].card = "pm_card_visa_4"
	o.lesser("import accounts").must(0, "import", "accounts", "--file", o.file("again.csv", accountsCSV(list)))
	o.lesser("requeue").must(0, "requeue", "--period", october, "--account", "a0004", "--why", "test")
	o.lesser("run").must(0, "run", "--period", october)
	o.lesser("reopen").must(0, "reopen", "--period", october, "--why", "test")
	o.lesser("reconcile").must(0, "reconcile", "--period", october, "--rebuild", "--why", "test")
	o.lesser("run").must(0, "run", "--period", october)
	o.mustBeWhole()
}
