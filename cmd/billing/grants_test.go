package main

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// as is an office whose program connects as one of the roles of docs/deploy, made
// for this test alone.
func (o *office) as(role string) {
	o.t.Helper()
	text, err := os.ReadFile("../../docs/deploy/grants.sql")
	if err != nil {
		o.t.Fatal(err)
	}
	suffix := fmt.Sprintf("_%d", time.Now().UnixNano())
	for _, name := range []string{"billing_owner", "billing_run", "billing_read"} {
		text = []byte(strings.ReplaceAll(string(text), name, name+suffix))
	}
	var sql strings.Builder
	for _, line := range strings.Split(string(text), "\n") {
		// The schema exists: this database was cloned.
		if !strings.HasPrefix(line, "CREATE SCHEMA") {
			sql.WriteString(line + "\n")
		}
	}
	o.exec(sql.String())
	o.t.Cleanup(func() {
		for _, name := range []string{"billing_owner", "billing_run", "billing_read"} {
			o.exec("DROP OWNED BY " + name + suffix)
			o.exec("DROP ROLE " + name + suffix)
		}
	})
	u, err := url.Parse(o.db.URL)
	if err != nil {
		o.t.Fatal(err)
	}
	o.exec("ALTER ROLE " + role + suffix + " PASSWORD 'secret'")
	u.User = url.UserPassword(role+suffix, "secret")
	o.env["DATABASE_URL"] = u.String()
}

// The rights that docs/deploy grants are enough for everything that runs a month,
// and those of finance for everything that reads.
func TestTheGrantsOfTheDocumentationAreEnough(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.as("billing_run")
	list := customers(6)
	list[5].card = ""
	o.imports(october, list)
	o.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0001"})
	o.advance(26 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	o.must(0, "void", "--period", october, "--account", "a0006", "--why", "test")
	list[5].card = "pm_card_visa_6"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "requeue", "--period", october, "--account", "a0006", "--why", "test")
	o.month(0)
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "test")
	o.month(0)
	o.must(0, "export", "charges", "--period", october, "--output", "-")
	o.mustBeWhole()
	if n := o.states(october)["succeeded"]; n != 6 {
		t.Errorf("%d of 6 are paid", n)
	}

	reader := *o
	reader.env = map[string]string{}
	for name, value := range o.env {
		reader.env[name] = value
	}
	reader.as("billing_read")
	for _, args := range [][]string{
		{"status"}, {"status", "--period", october}, {"preview", "--period", october}, {"show", "--period", october, "--account", "a0001"},
		{"export", "charges", "--period", october, "--output", "-"}, {"reconcile", "--period", october, "--dry-run"},
	} {
		reader.must(0, args...)
	}
	reader.must(77, "void", "--period", october, "--account", "a0001", "--why", "test")
}
