package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// What must stand nowhere that the program writes.
const (
	goodKey   = "sk_test_51hiddenGoodKeyQ7w8e9r0t1y"
	wrongKey  = "sk_test_51hiddenWrongKeyA1s2d3f4g5"
	mailDrop  = "@mail-hidden.example"
	secretTag = "_secret_" // of each client secret; Stripe makes them
)

// spy hears everything that the programs of an office say.
type spy struct {
	*office
	heard map[string]string // by what said it
}

func (s *spy) hear(what, text string) { s.heard[what] += text + "\n" }

// says runs a command and keeps what it says; code -1 takes any.
func (s *spy) says(code int, args ...string) string {
	s.t.Helper()
	return s.ends(s.start(args...), code, args...)
}

func (s *spy) ends(p process, code int, args ...string) string {
	s.t.Helper()
	r := p.wait()
	what := "billing " + strings.Join(p.Args(), " ")
	s.hear(what, r.stdout+r.stderr)
	if code >= 0 && r.code != code {
		s.t.Errorf("%s: want exit %d\n%s", what, code, r)
	}
	return r.stdout + r.stderr
}

// with says the same under other settings.
func (s *spy) with(env map[string]string, code int, args ...string) string {
	s.t.Helper()
	before := map[string]string{}
	for name, value := range env {
		before[name] = s.env[name]
		s.env[name] = value
	}
	defer func() {
		for name, value := range before {
			if s.env[name] = value; value == "" {
				delete(s.env, name)
			}
		}
	}()
	return s.says(code, args...)
}

// found names the secrets in a text.
func found(text string) (list []string) {
	for name, secret := range map[string]string{
		"the key": goodKey, "a key that is wrong": wrongKey, "the middle of a key": "hiddenGoodKey", "the middle of a wrong key": "hiddenWrongKey",
		"the password": rolePassword, "a client secret": secretTag, "an e-mail address": mailDrop, "the check-in's URL": checkinSecret,
		"the check-in's header": "header-hidden",
	} {
		if strings.Contains(text, secret) {
			list = append(list, name)
		}
	}
	return list
}

// near is the neighbourhood of the first secret in a text.
func near(text string) string {
	for _, secret := range []string{goodKey, wrongKey, "hiddenGoodKey", "hiddenWrongKey", rolePassword, secretTag, mailDrop, checkinSecret, "header-hidden"} {
		if at := strings.Index(text, secret); at >= 0 {
			return text[max(0, at-120):min(len(text), at+len(secret)+60)]
		}
	}
	return ""
}

// spied is an office by the book whose secrets can be told from all other text: the
// month's owner checks in, writes metrics, and logs all it can.
func spied(t *testing.T, w *watcher) *spy {
	t.Helper()
	s := installedAt(t, stripeemu.Config{AnyCustomer: true, Keys: []string{goodKey}}).run
	s.ungated()
	s.env["STRIPE_SECRET_KEY"] = goodKey
	s.env["BILLING_CHECKIN"], s.env["BILLING_CHECKIN_URL"] = kindTemplate, w.URL+"/"+checkinSecret+"/{{.Event}}"
	s.env["BILLING_CHECKIN_HEADER"], s.env["BILLING_CHECKIN_BODY"] = "X-API-Key: header-hidden", "{{json .}}"
	s.env["BILLING_METRICS_FILE"] = filepath.Join(t.TempDir(), "billing.prom")
	s.env["BILLING_VERBOSE"] = "true"
	return &spy{s, map[string]string{}}
}

// fates are a month's charges with everything that Stripe can say of one.
func (s *spy) fates() {
	s.t.Helper()
	cards := []string{"pm_card_visa", "pm_card_chargeDeclined", "pm_card_authenticationRequired", "pm_usBankAccount_success", "pm_usBankAccount_noMandate",
		"pm_card_chargeDeclinedFraudulent", "pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_visa", "", "pm_card_visa"}
	accounts, list := "account_id,stripe_customer,payment_method,currency,email,name\n", customers(len(cards))
	for i, card := range cards {
		if card != "" {
			card = fmt.Sprintf("%s_%d", card, i+1)
		}
		accounts += fmt.Sprintf("%s,%s,%s,usd,%s%s,Name %d\n", list[i].id, list[i].customer, card, list[i].id, mailDrop, i+1)
	}
	s.says(0, "import", "accounts", "--file", s.file("accounts.csv", accounts))
	s.says(0, "import", "invoices", "--period", october, "--file", s.file("invoices.csv", invoicesCSV(list)))
	for account, fault := range map[string]stripeemu.FaultKind{
		"a0007": stripeemu.FaultLoseAnswer, "a0008": stripeemu.FaultEmptyObject, "a0009": stripeemu.FaultHTML502, "a0010": stripeemu.FaultWrongAmount,
		"a0011": stripeemu.FaultError500Done, "a0012": stripeemu.FaultCutBody, "a0014": stripeemu.FaultLoseRequest,
	} {
		s.emu.Inject(stripeemu.Fault{Name: fault, Method: "POST", Account: account})
	}
}

// month runs a whole one with everything that can go wrong in it.
func (s *spy) wholeMonth() {
	s.t.Helper()
	s.fates()
	s.says(0, "preview", "--period", october)
	s.with(map[string]string{"STRIPE_SECRET_KEY": wrongKey}, 77, "run", "--period", october)
	s.emu.Stop()
	s.with(map[string]string{"BILLING_TIMEOUT": "2s"}, -1, "run", "--period", october)
	if err := s.emu.Restart(); err != nil {
		s.t.Fatal(err)
	}
	s.advance(time.Minute)
	p := s.start("run", "--period", october)
	eventually(s.t, "every charge was sent once", func() bool {
		return one[bool](s.office, `SELECT coalesce(bool_and(state <> 'pending' OR reason <> ''), false) FROM billing.charges`)
	})
	s.with(nil, -1, "status", "--period", october)
	p.signal(syscall.SIGTERM)
	s.ends(p, -1, "run")
	s.emu.ClearFaults()
	s.says(-1, "run", "--period", october, "--json")
	s.advance(100 * time.Hour)
	for _, json := range []string{"--json=false", "--json"} {
		for _, args := range [][]string{
			{"reconcile", "--period", october}, {"run", "--period", october}, {"status"}, {"status", "--period", october}, {"preview", "--period", october},
			{"doctor"}, {"config"}, {"migrate", "--status"}, {"export", "charges", "--period", october},
			{"requeue", "--period", october, "--all", "--why", "test"}, {"release", "--period", october, "--all", "--why", "test"},
			{"void", "--period", october, "--account", "a0013", "--why", "test"}, {"reopen", "--period", october, "--why", "test"}, {"close", "--period", october},
			{"pause", "--all", "--why", "test"}, {"reconcile", "--period", october, "--rebuild", "--why", "test"},
		} {
			s.says(-1, append(args, json)...)
		}
		for i := 1; i <= 14; i++ {
			s.says(-1, "show", "--period", october, "--account", fmt.Sprintf("a%04d", i), json)
		}
	}
	export := filepath.Join(s.t.TempDir(), "charges.jsonl")
	s.says(0, "export", "charges", "--period", october, "--format", "jsonl", "--output", export)
	s.reads("the export", export)
	s.reads("the metrics", s.env["BILLING_METRICS_FILE"])
}

func (s *spy) reads(what, path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.hear(what, string(text))
}

// mistakes are settings that can't be, each of which ends with an error about what
// holds a secret.
func (s *spy) mistakes() {
	s.t.Helper()
	good := s.env["DATABASE_URL"]
	for name, address := range map[string]string{
		"no such host": strings.Replace(good, "@", "@nowhere.invalid,", 1), "a wrong port": "postgres://billing:" + rolePassword + "@127.0.0.1:1/app",
		"no URL": "postgres://billing:" + rolePassword + "@[::1/app", "no port": "postgres://billing:" + rolePassword + "@host:port/app",
		"a slash": "postgres://billing:x/" + rolePassword + "@127.0.0.1/app", "words": "host=127.0.0.1 port=1 user=billing password=" + rolePassword,
		"bad words": "host=127.0.0.1 port=x user=billing password=" + rolePassword, "quotes": "host=127.0.0.1 password='" + rolePassword, "no scheme": "billing:" + rolePassword + "@127.0.0.1/app",
		"no such user": strings.Replace(good, "billing_", "nobody_", 1), "no such database": good + "_none", "bad option": good + "&sslmode=wrong",
		"percent": "postgres://billing:%zz" + rolePassword + "@127.0.0.1/app", "only a password": rolePassword,
	} {
		for _, command := range [][]string{{"status"}, {"doctor"}, {"config"}, {"migrate"}, {"run", "--period", october, "--json"}} {
			s.hear(name, s.with(map[string]string{"DATABASE_URL": address}, -1, command...))
		}
	}
	for _, env := range []map[string]string{
		{"STRIPE_SECRET_KEY": "pk_test_51hiddenGoodKey"}, {"STRIPE_SECRET_KEY": goodKey + " x"}, {"STRIPE_API_KEY": wrongKey}, {"STRIPE_SECRET_KEY": "sk_live_51hiddenGoodKey"},
		{"STRIPE_API_BASE": "http://user:" + rolePassword + "@127.0.0.1:1"}, {"BILLING_CHECKIN_URL": "::/" + checkinSecret},
		{"BILLING_CHECKIN_HEADER": "header-hidden"}, {"BILLING_CHECKIN_URL": "http://127.0.0.1:1/" + checkinSecret},
		{"BILLING_PUSHGATEWAY": "http://user:" + rolePassword + "@127.0.0.1:1"},
		{"BILLING_RESEND_API_KEY": wrongKey}, {"BILLING_SMTP_URL": "smtp://user:" + rolePassword + "@127.0.0.1:1?tls=maybe"},
		{"BILLING_SMTP_URL": "smtp://user:" + rolePassword + "@127.0.0.1:1"}, {"BILLING_WEBHOOK_SECRET": wrongKey},
		{"BILLING_WEBHOOK_EVENTS": "all", "BILLING_WEBHOOK_URL": "https://user:" + rolePassword + "@hooks.example/"},
	} {
		for _, command := range [][]string{{"run", "--period", october}, {"doctor"}, {"config"}, {"config", "--json"}, {"outbox", "send"}} {
			s.with(env, -1, command...)
		}
	}
}

// stored hears every row of every table as text; accounts are who the addresses
// belong to, and charges who is written to about them.
func (s *spy) stored() {
	s.t.Helper()
	for _, table := range s.tables() {
		s.hear("the table "+table, one[string](s.office, `SELECT coalesce(string_agg((to_jsonb(t) - CASE WHEN $1 IN ('billing.accounts', 'billing.charges') THEN 'email' ELSE '' END)::text, E'\n'), '') FROM `+table+` t`, table))
	}
	if n := one[int](s.office, `SELECT count(*) FROM billing.accounts WHERE email LIKE '%`+mailDrop+`'`); n != 14 {
		s.t.Errorf("%d addresses were imported, want 14", n)
	}
}

// A month in which everything happens that can, and every mistake in the settings:
// the keys, the database's password, client secrets, e-mail addresses and what a
// watching service is called by stand in no output, no log, no table (but addresses in
// accounts and charges), no export, no metrics, and nothing that is sent to the watcher.
func TestSecretsStandNowhere(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	s := spied(t, w)
	for _, c := range (&app{}).commands(new(int)) {
		s.says(0, c.Name, "--help")
		for _, sub := range c.Subcommands {
			s.says(0, c.Name, sub.Name, "--help")
		}
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"man"}, {"completion", "--shell", "bash"}} {
		s.says(-1, args...)
	}
	s.wholeMonth()
	s.mistakes()
	s.stored()
	for _, p := range w.pings() {
		s.hear("a check-in", p.path+p.body+p.query.Encode())
	}
	if len(w.pings()) == 0 || s.heard["the metrics"] == "" || !strings.Contains(s.heard["billing doctor --json=false"], "ok ") {
		t.Errorf("not everything was heard: %d check-ins", len(w.pings()))
	}
	for what, text := range s.heard {
		if list := found(text); len(list) > 0 {
			t.Errorf("%s has %s: … %s …", what, strings.Join(list, ", "), near(text))
		}
	}
	if got := s.states(october); got["declined"] < 2 || got["succeeded"] < 6 || got["action_required"] != 1 || got["processing"] != 1 {
		t.Errorf("the month had not everything in it: %v", got)
	}
}

// A password in a flag would be shown by ps to everybody on the host.
func TestAPasswordIsNoFlag(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, address := range []string{"postgres://billing:" + rolePassword + "@db/app", "host=db user=billing password=" + rolePassword, "postgres://db/app?password=" + rolePassword} {
		r := o.must(64, "status", "--database-url", address)
		if !strings.Contains(r.stderr, "DATABASE_URL_FILE") || len(found(r.String())) > 0 {
			t.Errorf("%s", r)
		}
	}
	withoutPassword := o.run("status", "--database-url", "postgres://nobody@127.0.0.1:1/app")
	if withoutPassword.code != 69 {
		t.Errorf("an address without a password: %s", withoutPassword)
	}
	// A colon was lost, and the password is the end of the user's name.
	o.env["DATABASE_URL"] = "postgres://billing" + rolePassword + "@127.0.0.1:1/app"
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}} {
		if r := o.run(args...); r.code != 69 || strings.Contains(r.String(), rolePassword) {
			t.Errorf("billing %v: %s", args, r)
		}
	}
}
