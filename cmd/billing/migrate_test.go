package main

import (
	"strings"
	"testing"

	"github.com/chargeonce/billing/migrations"
)

// emptyDatabase is an office whose database has no schema yet.
func emptyDatabase(t *testing.T) *office {
	t.Helper()
	o := newOffice(t)
	name := one[string](o, `SELECT current_database()`)
	o.exec(`CREATE DATABASE ` + name + `_new`)
	t.Cleanup(func() { o.exec(`DROP DATABASE ` + name + `_new WITH (FORCE)`) })
	o.env["DATABASE_URL"] = strings.Replace(o.db.URL, "/"+name, "/"+name+"_new", 1)
	return o
}

// Any number of hosts may migrate at once; each ends with the whole schema.
func TestMigrateRunsOnAnyNumberOfHostsAtOnce(t *testing.T) {
	t.Parallel()
	o := emptyDatabase(t)
	var hosts []process
	for range 6 {
		hosts = append(hosts, o.start("migrate"))
	}
	for _, p := range hosts {
		if r := p.wait(); r.code != 0 {
			t.Errorf("one of six: %s", r)
		}
	}
	if r := o.must(0, "migrate", "--status"); !strings.Contains(r.stdout, "00001_ledger") {
		t.Errorf("the status names no migration\n%s", r)
	}
	o.must(0, "status")
}

// A schema that is missing, older or newer than the program needs is refused by
// every other command, with what to do.
func TestASchemaThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	o := emptyDatabase(t)
	commands := [][]string{{"status"}, {"run", "--period", october}, {"preview", "--period", october}, {"close", "--period", october},
		{"export", "charges", "--period", october}, {"show", "--period", october, "--account", "a"},
		{"reopen", "--period", october, "--why", "x"}, {"import", "accounts", "--file", o.file("a.csv", accountsCSV(customers(1)))}}
	for _, args := range commands {
		if r := o.must(78, args...); !strings.Contains(r.stderr, "billing migrate") {
			t.Errorf("billing %s on an empty database: %s", strings.Join(args, " "), r)
		}
	}
	newer := newOffice(t)
	newer.exec(`INSERT INTO billing.schema_migrations (version_id, is_applied) VALUES ($1, true)`, migrations.Latest()+1)
	for _, args := range commands {
		if r := newer.must(78, args...); !strings.Contains(r.stderr, "install the newer billing") {
			t.Errorf("billing %s on a newer schema: %s", strings.Join(args, " "), r)
		}
	}
	if newer.emu.RequestCount() != 0 {
		t.Error("Stripe was asked")
	}
}
