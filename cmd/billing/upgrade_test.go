package main

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/migrations"
)

// oldOffice is an office in the middle of a month of an older program: its ledger is
// that of schema 2, and Stripe has seen the requests that had reached it.
func oldOffice(t *testing.T) *office {
	t.Helper()
	o := newOffice(t)
	ledger, err := os.ReadFile("testdata/upgrade/schema-2.sql")
	if err != nil {
		t.Fatal(err)
	}
	requests, err := os.ReadFile("testdata/upgrade/sent.tsv")
	if err != nil {
		t.Fatal(err)
	}
	text := string(ledger)
	for line := range strings.Lines(string(requests)) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		o.sends(field[0], field[2])
		made := o.emu.IntentsFor(field[0])
		if len(made) != 1 {
			t.Fatalf("Stripe has %d payments for %s", len(made), field[0])
		}
		// This Stripe gives ids of its own.
		text = strings.ReplaceAll(text, field[1], made[0].ID)
	}
	o.exec(`DROP SCHEMA billing CASCADE`)
	o.exec(text)
	o.emu.ResetLog()
	o.setNow(time.Date(2026, 11, 1, 0, 10, 0, 0, time.UTC)) // the lease of the killed run is over
	return o
}

// sends is what any program does with a key and a body.
func (o *office) sends(key, body string) {
	o.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, o.env["STRIPE_API_BASE"]+"/v1/payment_intents", strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_emulator")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusPaymentRequired {
		o.t.Fatalf("%s: %d %s %v", key, res.StatusCode, answer, err)
	}
}

// frozen reads the bodies of all charges in a state, by idempotency key.
func (o *office) frozen(where string) map[string]string {
	o.t.Helper()
	rows, _ := o.db.Pool.Query(context.Background(), `SELECT idempotency_key, body FROM billing.charges WHERE idempotency_key IS NOT NULL AND `+where)
	bodies := map[string]string{}
	var key, body string
	if _, err := pgx.ForEachRow(rows, []any{&key, &body}, func() error { bodies[key] = body; return nil }); err != nil {
		o.t.Fatal(err)
	}
	return bodies
}

// sent reads the bodies that reached Stripe by idempotency key; one that was sent with
// two bodies fails the test.
func (o *office) sent() map[string]string {
	o.t.Helper()
	bodies := map[string]string{}
	for _, r := range o.emu.Requests() {
		if r.Method != http.MethodPost {
			continue
		}
		if before, again := bodies[r.IdempotencyKey]; again && before != r.Body {
			o.t.Errorf("%s was sent with two bodies", r.IdempotencyKey)
		}
		bodies[r.IdempotencyKey] = r.Body
	}
	return bodies
}

// A month that a program of an older schema began, and a kill stopped, is finished
// by this one: what was recorded is sent with the bodies that the old program froze,
// byte for byte, though this one would write others; nobody pays twice. A schema that
// is older than the program says what to type, and nothing is done to it.
func TestAMonthThatAnOlderProgramBeganIsFinishedWithItsOwnRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		later time.Duration // after the kill
		// found is the charge whose payment is looked up rather than asked for again.
		found string
	}{
		"in its window": {},
		"days later":    {later: 80 * time.Hour, found: "monthly-billing/2026-10/a0005"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := oldOffice(t)
			o.advance(c.later)
			o.mustNotFit()
			all, pending := o.frozen("true"), o.frozen("state = 'pending'")
			if len(all) != 19 || len(pending) != 13 {
				t.Fatalf("%d requests, %d without an outcome", len(all), len(pending))
			}
			if r := o.must(0, "migrate"); !strings.Contains(r.stdout, "applied 00003_gates.sql") || !strings.Contains(r.stdout, "applied 00004_monitor.sql") {
				t.Errorf("migrate does not say what it did: %s", r)
			}
			o.month(0)
			sent := o.sent()
			if c.found != "" {
				delete(pending, c.found)
			}
			if !maps.Equal(sent, pending) {
				t.Errorf("sent were %q, want %q, each with its own body", slices.Sorted(maps.Keys(sent)), slices.Sorted(maps.Keys(pending)))
			}
			if !maps.Equal(o.frozen("true"), all) {
				t.Error("a request in the ledger is not what it was")
			}
			o.mustBeWhole()
			if got := o.states(october); got["succeeded"] != 18 || got["declined"] != 1 || got["skipped"] != 1 {
				t.Errorf("the month ends as %v", got)
			}
			posts := o.emu.Posts()
			o.month(0)
			if o.emu.Posts() != posts {
				t.Error("a second run sent something")
			}
		})
	}
}

// mustNotFit runs commands on a schema that is older than the program.
func (o *office) mustNotFit() {
	o.t.Helper()
	before := o.ledgerText()
	for _, args := range [][]string{{"run", "--period", october}, {"reconcile", "--period", october}, {"status"}} {
		if r := o.must(78, args...); !strings.Contains(r.stderr, "the schema is at version 2, this program needs ") || !strings.Contains(r.stderr, "billing migrate") {
			o.t.Errorf("billing %s on an older schema: %s", args[0], r)
		}
	}
	if o.ledgerText() != before || o.emu.RequestCount() != 0 {
		o.t.Error("something was done on a schema that does not fit")
	}
}

// A program that was left behind on a host, while another migrated the schema in the
// middle of a month, does nothing more, and says what to do.
func TestAProgramOlderThanTheSchemaGoesNoFurther(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	o.exec(`INSERT INTO billing.schema_migrations (version_id, is_applied) VALUES ($1, true)`, migrations.Latest()+1)
	before := o.ledgerText()
	for _, args := range [][]string{{"run", "--period", october}, {"migrate"}, {"doctor"}} {
		r := o.must(78, args...)
		if !strings.Contains(r.stdout+r.stderr, "newer than the") || !strings.Contains(r.stdout+r.stderr, "install the newer billing") {
			o.t.Errorf("billing %s on a newer schema: %s", args[0], r)
		}
	}
	if o.ledgerText() != before || o.emu.Posts() != 0 {
		t.Error("something was done on a schema that does not fit")
	}
}
