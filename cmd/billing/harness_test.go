package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fixture "github.com/chargeonce/billing/fixtures/office"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/testdb"
)

// program is the built billing; every test runs it as a user would. BILLING_TEST_PROGRAM
// names one that was built before, such as one with a mistake (fixtures/mutants).
var program = os.Getenv("BILLING_TEST_PROGRAM")

func TestMain(m *testing.M) { fixture.Main(m, &program) }

// office is one company's installation: a database of its own, a Stripe of its
// own, and the built program between them.
type office struct {
	t   testing.TB
	db  *testdb.DB
	emu *stripeemu.Server
	env map[string]string
}

const october = "2026-10"

// newOffice opens one whose clocks stand at five past midnight on 1 November.
func newOffice(t testing.TB, cfg ...stripeemu.Config) *office {
	t.Helper()
	c := stripeemu.Config{AnyCustomer: true}
	if len(cfg) > 0 {
		c = cfg[0]
	}
	o := &office{t: t, db: testdb.New(t), emu: stripeemu.New(c)}
	o.env = fixture.Open(t, program, o.db, o.emu).Env
	o.setNow(time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC))
	return o
}

// ungated switches off the gates and the breaker, for months that are not ordinary
// on purpose.
func (o *office) ungated() { maps.Copy(o.env, fixture.Ungated) }

// setNow moves Postgres's clock and Stripe's to the same moment.
func (o *office) setNow(now time.Time) {
	o.t.Helper()
	ahead := time.Until(now)
	o.db.SetOffset(ahead)
	o.emu.SetOffset(ahead)
}

// advance moves both clocks on.
func (o *office) advance(d time.Duration) {
	o.t.Helper()
	o.db.SetOffset(o.db.Offset() + d)
	o.emu.SetOffset(o.emu.Offset() + d)
}

// customer is one line of both files.
type customer struct {
	id, customer, card, amount, currency string
}

// customers makes n ordinary ones, a0001 and on, who pay 10.01, 10.02 … usd.
func customers(n int) []customer {
	list := make([]customer, n)
	for i := range list {
		list[i] = customer{
			id: fmt.Sprintf("a%04d", i+1), customer: fmt.Sprintf("cus_%04d", i+1), card: fmt.Sprintf("pm_card_visa_%04d", i+1),
			amount: fmt.Sprintf("%d.%02d", 10+(i+1)/100, (i+1)%100), currency: "usd",
		}
	}
	return list
}

// imports brings accounts and invoices in through the program and closes the
// period.
func (o *office) imports(period string, list []customer) {
	o.t.Helper()
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "import", "invoices", "--period", period, "--file", o.file("invoices.csv", invoicesCSV(list)))
}

func accountsCSV(list []customer) string {
	b := strings.Builder{}
	b.WriteString("account_id,stripe_customer,payment_method,currency\n")
	for _, c := range list {
		fmt.Fprintf(&b, "%q,%s,%s,%s\n", c.id, c.customer, c.card, c.currency)
	}
	return b.String()
}

func invoicesCSV(list []customer) string {
	b := strings.Builder{}
	b.WriteString("account_id,amount,currency\n")
	for _, c := range list {
		fmt.Fprintf(&b, "%q,%s,%s\n", c.id, c.amount, c.currency)
	}
	return b.String()
}

func (o *office) file(name, text string) string {
	o.t.Helper()
	path := filepath.Join(o.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return path
}

// outcome is what a command left.
type outcome struct {
	code           int
	stdout, stderr string
}

func (r outcome) String() string {
	return fmt.Sprintf("exit %d\n--- stdout\n%s\n--- stderr\n%s", r.code, r.stdout, r.stderr)
}

// json reads what --json printed.
func (r outcome) json(t testing.TB) result {
	t.Helper()
	var res result
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, r)
	}
	return res
}

// run runs the program to its end.
func (o *office) run(args ...string) outcome {
	o.t.Helper()
	return o.start(args...).wait()
}

// must runs the program and wants an exit code.
func (o *office) must(code int, args ...string) outcome {
	o.t.Helper()
	r := o.run(args...)
	if r.code != code {
		o.t.Fatalf("billing %s: want exit %d\n%s", strings.Join(args, " "), code, r)
	}
	return r
}

// month runs October and wants an exit code.
func (o *office) month(code int, args ...string) outcome {
	o.t.Helper()
	return o.must(code, append([]string{"run", "--period", october}, args...)...)
}

// process is a running program.
type process struct{ *fixture.Process }

func (o *office) start(args ...string) process {
	o.t.Helper()
	return o.startProgram(program, args...)
}

func (o *office) startProgram(path string, args ...string) process {
	o.t.Helper()
	f := fixture.Office{T: o.t, Env: o.env, Program: path}
	return process{f.Start(args...)}
}

func (p process) wait() outcome {
	r := p.Wait()
	return outcome{r.Code, r.Stdout, r.Stderr}
}

func (p process) signal(sig syscall.Signal) { p.Signal(sig) }

func (p process) kill() { p.Kill() }

// eventually waits for something that another process does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	fixture.Eventually(t, what, ok)
}

// one reads one value from the database.
func one[T any](o *office, sql string, args ...any) T {
	o.t.Helper()
	var v T
	if err := o.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (o *office) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.db.Pool.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

// states counts the charges of a period by state.
func (o *office) states(period string) map[string]int {
	o.t.Helper()
	rows, err := o.db.Pool.Query(context.Background(), `SELECT state, count(*) FROM billing.charges WHERE period = $1 GROUP BY 1`, period)
	if err != nil {
		o.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			o.t.Fatal(err)
		}
		out[state] = n
	}
	if rows.Err() != nil {
		o.t.Fatal(rows.Err())
	}
	return out
}

// state is one charge's.
func (o *office) state(account string) string {
	o.t.Helper()
	return one[string](o, `SELECT state FROM billing.charges WHERE account_id = $1`, account)
}

// ledgerText is every row of the ledger that a command could have changed, to be
// compared before and after.
func (o *office) ledgerText() string {
	o.t.Helper()
	return one[string](o, `SELECT coalesce(string_agg(t, E'\n' ORDER BY t), '') FROM (
		SELECT 'charge ' || c::text AS t FROM billing.charges c
		UNION ALL SELECT 'event ' || e::text FROM billing.charge_events e
		UNION ALL SELECT 'run ' || r::text FROM billing.job_runs r
		UNION ALL SELECT 'attempt ' || a::text FROM billing.job_run_attempts a
		UNION ALL SELECT 'finding ' || f::text FROM billing.findings f) x`)
}

// mustBeWhole asks the questions that have one answer after every history: one
// payment a debt, sums equal on both sides, everything in the history.
func (o *office) mustBeWhole() {
	o.t.Helper()
	type debt struct {
		state, currency string
		minor           int64
	}
	debts := map[string]debt{}
	rows, err := o.db.Pool.Query(context.Background(), `SELECT billing_key, state, currency, coalesce(amount_minor, 0) FROM billing.charges`)
	if err != nil {
		o.t.Fatal(err)
	}
	for rows.Next() {
		var key string
		var d debt
		if err := rows.Scan(&key, &d.state, &d.currency, &d.minor); err != nil {
			o.t.Fatal(err)
		}
		debts[key] = d
	}
	if rows.Close(); rows.Err() != nil {
		o.t.Fatal(rows.Err())
	}
	live := map[string]int{}
	for _, pi := range o.emu.PaymentIntents() {
		key := pi.Metadata["billing_key"]
		d, known := debts[key]
		if !pi.Live() {
			continue
		}
		live[key]++
		switch {
		case !known:
			o.t.Errorf("payment %s for %s is in no ledger", pi.ID, key)
		case live[key] > 1:
			o.t.Errorf("%s was paid %d times", key, live[key])
		case pi.Amount != d.minor || pi.Currency != d.currency:
			o.t.Errorf("%s: paid %d %s, owed %d %s", key, pi.Amount, pi.Currency, d.minor, d.currency)
		}
	}
	for key, d := range debts {
		if d.state == "succeeded" && live[key] != 1 {
			o.t.Errorf("%s is succeeded in the ledger and has %d payments", key, live[key])
		}
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges c WHERE state NOT IN ('pending', 'skipped')
		AND NOT EXISTS (SELECT FROM billing.charge_events e WHERE e.id = c.last_event AND e.to_state = c.state)`); n > 0 {
		o.t.Errorf("%d charges moved without an event", n)
	}
}
