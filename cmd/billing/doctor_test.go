package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/fixtures/pgserver"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// doctor runs it and returns its checks by name.
func (o *office) doctor(args ...string) (outcome, map[string]check) {
	o.t.Helper()
	r := o.run(append([]string{"doctor", "--json"}, args...)...)
	var res struct {
		Details struct{ Checks []check }
	}
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil {
		o.t.Fatalf("stdout is no JSON: %v\n%s", err, r)
	}
	checks := map[string]check{}
	for _, one := range res.Details.Checks {
		checks[one.Name] = one
	}
	if len(checks) < 30 || len(checks) != len(res.Details.Checks) {
		o.t.Errorf("%d checks, %d names", len(res.Details.Checks), len(checks))
	}
	return r, checks
}

// notOK are the checks that found something, as "name status".
func notOK(checks map[string]check) []string {
	var list []string
	for name, one := range checks {
		if one.Status != statusOK {
			list = append(list, name+" "+one.Status)
		}
	}
	slices.Sort(list)
	return list
}

// goodInstallation is an office as docs/deploy wants it: a durable Postgres of its
// own, on true time, and a role that may run the month and no more.
func goodInstallation(t *testing.T) *office {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(pgserver.Immediate); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	emu := stripeemu.New(stripeemu.Config{AnyCustomer: true})
	address, err := emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	o := &office{t: t, db: &testdb.DB{URL: server.URL(""), Pool: pool}, emu: emu, env: map[string]string{
		"DATABASE_URL": server.URL(""), "STRIPE_SECRET_KEY": "sk_test_emulator", "STRIPE_API_BASE": address,
	}}
	o.must(0, "migrate")
	o.as("billing_run")
	return o
}

// An installation as docs/deploy wants it has nothing wrong; each mistake ends with
// the exit code that a run would end with, and where several are made, with the one
// that counts first.
func TestDoctorEndsWithTheCodeOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := goodInstallation(t)
	// Whatever writes takes a number, and nobody else is on this server.
	const xmax = `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	before := one[int64](o, xmax)
	r, checks := o.doctor()
	if got := notOK(checks); r.code != 0 || !slices.Equal(got, []string{"stripe_address warn"}) { // the emulator's
		t.Fatalf("%q in a good installation\n%s", got, r)
	}
	if text := o.must(0, "doctor").stdout; strings.Count(text, "\nok ") < 20 || !strings.HasSuffix(text, "30 checks: 29 ok, 1 to look at, 0 failed\n") {
		t.Errorf("for people:\n%s", text)
	}
	if after := one[int64](o, xmax); after != before {
		t.Errorf("%d transactions wrote something", after-before)
	}
	o.isDocumented(checks)
	o.breaksDurability()
	good := maps.Clone(o.env)
	for name, c := range map[string]struct {
		code  int
		env   map[string]string
		fails []string
	}{
		"a key that nobody knows": {77, map[string]string{"STRIPE_SECRET_KEY": "sk_test_unknown"}, []string{"stripe_account"}},
		"no key":                  {78, map[string]string{"STRIPE_SECRET_KEY": ""}, []string{"stripe_key"}},
		"Stripe is down":          {69, map[string]string{"STRIPE_API_BASE": "http://127.0.0.1:1"}, []string{"stripe_account"}},
		"Postgres is down":        {69, map[string]string{"DATABASE_URL": "postgres://billing@127.0.0.1:1/app"}, []string{"database"}},
		"a wrong password":        {77, map[string]string{"DATABASE_URL": strings.Replace(good["DATABASE_URL"], ":"+rolePassword+"@", ":wrong@", 1)}, []string{"database"}},
		"no such database":        {78, map[string]string{"DATABASE_URL": strings.Replace(good["DATABASE_URL"], "/postgres?", "/nowhere?", 1)}, []string{"database"}},
		"a setting":               {64, map[string]string{"BILLING_RATE": "fast"}, []string{"settings"}},
		"a folder":                {73, map[string]string{"BILLING_OUTPUT": "/nowhere/at/all.csv"}, []string{"files"}},
		"a key and Postgres":      {77, map[string]string{"STRIPE_SECRET_KEY": "sk_test_unknown", "DATABASE_URL": "postgres://billing@127.0.0.1:1/app"}, []string{"database", "stripe_account"}},
		"no key, and Postgres":    {78, map[string]string{"STRIPE_SECRET_KEY": "", "DATABASE_URL": "postgres://billing@127.0.0.1:1/app"}, []string{"database", "stripe_key"}},
		"both are down":           {69, map[string]string{"STRIPE_API_BASE": "http://127.0.0.1:1", "DATABASE_URL": "postgres://billing@127.0.0.1:1/app"}, []string{"database", "stripe_account"}},
	} {
		o.env = maps.Clone(good)
		maps.Copy(o.env, c.env)
		r, checks := o.doctor()
		var fails []string
		for name, one := range checks {
			if one.Status == statusFail {
				fails = append(fails, name)
				if one.Todo == "" {
					t.Errorf("%s: %s does not say what to do", name, one.Name)
				}
			}
		}
		slices.Sort(fails)
		if r.code != c.code || !slices.Equal(fails, c.fails) {
			t.Errorf("%s: exit %d, want %d; %q failed, want %q\n%s", name, r.code, c.code, fails, c.fails, r)
		}
		res := r.json(t)
		if res.Error == nil || res.ExitCode != c.code || res.Command != "doctor" {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// isDocumented holds docs/doctor.md to the checks.
func (o *office) isDocumented(checks map[string]check) {
	o.t.Helper()
	text, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		o.t.Fatal(err)
	}
	for name := range checks {
		if !strings.Contains(string(text), "`"+name+"`") {
			o.t.Errorf("docs/doctor.md does not explain %s", name)
		}
	}
}

// Where neither Postgres nor Stripe ever answers, each check ends all the same.
func TestDoctorWaitsForNobody(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts; nobody reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	o := &office{t: t, env: map[string]string{
		"DATABASE_URL": "postgres://billing@" + silent.Addr().String() + "/app?sslmode=disable", "STRIPE_SECRET_KEY": "sk_test_emulator",
		"STRIPE_API_BASE": "http://" + silent.Addr().String(),
	}}
	r, checks := o.doctor()
	for _, name := range []string{"database", "stripe_account"} {
		if one := checks[name]; r.code != 69 || one.Status != statusFail || !strings.HasPrefix(one.Detail, "no answer within 5s") {
			t.Errorf("%+v\n%s", one, r)
		}
	}
}

// breaksDurability switches off, one after the other, what keeps commits.
func (o *office) breaksDurability() {
	o.t.Helper()
	for _, c := range []struct {
		code                         int
		on, off, check, status, says string
	}{
		{78, `ALTER SYSTEM SET fsync = off`, `ALTER SYSTEM RESET fsync`, "durability", statusFail, "fsync is off"},
		{0, `ALTER SYSTEM SET full_page_writes = off`, `ALTER SYSTEM RESET full_page_writes`, "durability", statusWarn, "full_page_writes is off"},
		{0, `ALTER DATABASE postgres SET synchronous_commit = off`, `ALTER DATABASE postgres RESET synchronous_commit`, "durability", statusWarn, "this program's own commits are durable"},
		{0, `ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'`, `ALTER SYSTEM RESET synchronous_standby_names`, "standbys", statusOK, "commits wait for a standby (elsewhere)"},
	} {
		setting := c.off[strings.LastIndex(c.off, " ")+1:]
		before := one[string](o, `SELECT setting FROM pg_settings WHERE name = $1`, setting)
		o.exec(c.on)
		o.exec(`SELECT pg_reload_conf()`)
		system := strings.HasPrefix(c.on, "ALTER SYSTEM")
		changed := func() bool {
			return one[string](o, `SELECT setting FROM pg_settings WHERE name = $1`, setting) != before
		}
		if system {
			eventually(o.t, setting+" is set", changed)
		}
		r, checks := o.doctor()
		if found := checks[c.check]; r.code != c.code || found.Status != c.status || !strings.Contains(found.Detail, c.says) {
			o.t.Errorf("%s: exit %d, want %d: %+v", c.on, r.code, c.code, found)
		}
		o.exec(c.off)
		o.exec(`SELECT pg_reload_conf()`)
		if system {
			eventually(o.t, setting+" is reset", func() bool { return !changed() })
		}
	}
}

// What a server of today can't be made to say.
func TestDoctorJudgesAServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server ledger.Server
		look   func(*doctor, context.Context) finding
		status string
		says   string
	}{
		"too old":            {ledger.Server{VersionNumber: 140012, Version: "14.12"}, (*doctor).checkVersion, statusFail, "PostgreSQL 14.12 is too old"},
		"new enough":         {ledger.Server{VersionNumber: 150000, Version: "15.0"}, (*doctor).checkVersion, statusOK, "15.0"},
		"standbys":           {ledger.Server{Standbys: 2, SynchronousCommit: "on"}, (*doctor).checkStandbys, statusWarn, "2 standbys are connected, and no commit waits"},
		"a standby, ignored": {ledger.Server{Standbys: 1, SynchronousStandbys: "b", SynchronousCommit: "local"}, (*doctor).checkStandbys, statusWarn, "local"},
	} {
		found := c.look(&doctor{server: &c.server}, t.Context())
		if found.status != c.status || !strings.Contains(found.detail, c.says) || found.status != statusOK && found.todo == "" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// ailment is one thing that is wrong, and what doctor says of it.
type ailment struct {
	arm    func(o *office)
	status string
	says   []string // in detail and todo
	// others are checks that it concerns besides, as "name status".
	others []string
}

// examineEach breaks one thing in each of many offices: its check says so, and no
// other check is disturbed by it. Where no database is broken they share one.
func examineEach(t *testing.T, shared bool, ailments map[string]map[string]ailment) {
	t.Helper()
	base := newOffice(t)
	_, healthy := base.doctor()
	for name, list := range ailments {
		for what, ill := range list {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				o := base.branch(t)
				if !shared {
					o = newOffice(t)
				}
				ill.arm(o)
				before, posts := o.ledgerText(), o.emu.Posts()
				r, checks := o.doctor()
				one := checks[name]
				if one.Status != ill.status || one.Status == statusFail && one.Todo == "" {
					t.Errorf("%+v, want %s\n%s", one, ill.status, r)
				}
				for _, text := range ill.says {
					if !strings.Contains(one.Detail+" -> "+one.Todo, text) {
						t.Errorf("%+v does not say %q", one, text)
					}
				}
				delete(checks, name)
				var others []string
				for _, line := range notOK(checks) {
					if other, status, _ := strings.Cut(line, " "); healthy[other].Status != status {
						others = append(others, line)
					}
				}
				slices.Sort(ill.others)
				if !slices.Equal(others, ill.others) {
					t.Errorf("other checks: %q, want %q\n%s", others, ill.others, r)
				}
				if o.ledgerText() != before || o.emu.Posts() != posts {
					t.Error("something was written")
				}
				if strings.Contains(r.String(), "secret-") {
					t.Errorf("a secret is shown\n%s", r)
				}
			})
		}
	}
}

// branch is an office on the same database, with a Stripe and settings of its own.
func (o *office) branch(t *testing.T) *office {
	t.Helper()
	b := &office{t: t, db: o.db, emu: stripeemu.New(stripeemu.Config{AnyCustomer: true}), env: maps.Clone(o.env)}
	address, err := b.emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.emu.Close)
	b.emu.SetOffset(o.emu.Offset())
	b.env["STRIPE_API_BASE"] = address
	return b
}

func set(name, value string) func(*office) {
	return func(o *office) { o.env[name] = value }
}

func sql(statements ...string) func(*office) {
	return func(o *office) {
		for _, text := range statements {
			o.exec(text)
		}
	}
}

// database is a statement about the office's own database.
func database(text string) func(*office) {
	return func(o *office) { o.exec(fmt.Sprintf(text, one[string](o, `SELECT quote_ident(current_database())`))) }
}

// What a run would read from its environment is looked at before it does.
func TestDoctorFindsWrongSettings(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	examineEach(t, true, map[string]map[string]ailment{
		"settings": {
			"a typo":       {arm: set("BILLING_TIMEZON", "UTC"), status: statusWarn, says: []string{"BILLING_TIMEZON is no setting", "BILLING_TIMEZONE is"}},
			"no rate":      {arm: set("BILLING_RATE", "fast"), status: statusFail, says: []string{"BILLING_RATE", "--rate", "mend it"}},
			"no number":    {arm: set("BILLING_MAX_NEW", "few"), status: statusFail, says: []string{"BILLING_MAX_NEW", "--max-new"}},
			"out of range": {arm: set("BILLING_LEASE", "2h"), status: statusFail, says: []string{"--lease 2h0m0s: want 1s to 1h"}},
			"two keys": {arm: set("STRIPE_API_KEY", "sk_test_other"), status: statusFail, says: []string{"STRIPE_SECRET_KEY and STRIPE_API_KEY are both set and differ"},
				others: []string{"identity warn", "stripe_account warn", "stripe_customers warn", "stripe_key fail", "stripe_list warn",
					"stripe_read warn", "stripe_search warn", "stripe_write warn"}},
		},
		"time_zone": {
			"none":    {arm: set("BILLING_TIMEZONE", "Berlin"), status: statusFail, says: []string{"Europe/Berlin"}, others: []string{"settings fail"}},
			"another": {arm: set("TZ", "Europe/Berlin"), status: statusWarn, says: []string{"months begin and end in UTC"}},
		},
		"rate": {
			"none":     {arm: set("BILLING_RATE", "0"), status: statusWarn, says: []string{"without a limit", "BILLING_RATE=25"}},
			"too fast": {arm: set("BILLING_RATE", "80"), status: statusWarn, says: []string{"80 charges a second"}},
			"reads":    {arm: func(o *office) { o.env["BILLING_RATE"], o.env["BILLING_READ_RATE"] = "25", "50" }, status: statusWarn, says: []string{"50 questions"}},
			"right":    {arm: set("BILLING_RATE", "25"), status: statusOK},
		},
		"files": {
			"no folder":  {arm: set("BILLING_OUTPUT", "/nowhere/charges.csv"), status: statusFail, says: []string{"/nowhere", "no such file"}},
			"a bucket":   {arm: set("BILLING_OUTPUT", "s3://finance/close"), status: statusOK},
			"a folder":   {arm: set("BILLING_OUTPUT", filepath.Dir(file)), status: statusOK},
			"no such":    {arm: set("BILLING_OUTPUT", "/nowhere/exports/"), status: statusFail, says: []string{"/nowhere/exports"}},
			"a file":     {arm: set("BILLING_OUTPUT", file+"/charges.csv"), status: statusFail, says: []string{"is no folder"}},
			"of metrics": {arm: set("BILLING_METRICS_FILE", "/nowhere/billing.prom"), status: statusWarn, says: []string{"a run goes on"}},
		},
		"check_in": {
			"no address": {arm: set("BILLING_CHECKIN", "healthchecks"), status: statusFail, says: []string{"BILLING_CHECKIN_URL"}},
			"no kind":    {arm: set("BILLING_CHECKIN_URL", "https://hc-ping.example/4f1d-secret-uuid"), status: statusFail, says: []string{"healthchecks, cronitor or template"}},
			"set": {arm: func(o *office) {
				o.env["BILLING_CHECKIN"], o.env["BILLING_CHECKIN_URL"] = "healthchecks", "http://127.0.0.1:1/4f1d-secret-uuid"
			}, status: statusOK, says: []string{"not tried"}},
		},
	})
}
