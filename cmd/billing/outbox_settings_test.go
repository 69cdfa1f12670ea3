package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

// Each setting of the senders has a flag and a variable, is in the help with its bounds'
// default, and a value that can't be ends with 64 and is named.
func TestSettingsOfSendersAreChecked(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	help := o.must(0, "outbox", "send", "--help").stdout
	good := maps.Clone(o.env)
	for name, bad := range map[string][]string{
		"mail-rate":    {"fast", "-1", "0.001", "10001", "NaN", "+Inf"},
		"webhook-rate": {"fast", "-1", "0.001", "10001", "NaN", "+Inf"},
		"senders":      {"many", "0", "-8", "257", "1.5"},
		"give-up":      {"soon", "59m", "0s", "721h", "-72h"},
		"wait-due":     {"long", "-1s", "25h", "5"},
	} {
		variable := "BILLING_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if !strings.Contains(help, "--"+name) || !strings.Contains(help, variable) {
			t.Errorf("the help does not tell --%s and %s", name, variable)
		}
		for _, value := range bad {
			r := o.must(64, "outbox", "send", "--"+name+"="+value)
			if !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, value) && !strings.Contains(r.stderr, strings.TrimSuffix(value, "m")) {
				t.Errorf("--%s=%s is not named\n%s", name, value, r)
			}
			o.env[variable] = value
			if r := o.must(64, "outbox", "send"); !strings.Contains(r.stderr, name) {
				t.Errorf("%s=%s is not named\n%s", variable, value, r)
			}
			o.env = maps.Clone(good)
		}
	}
	for _, fine := range []string{"--mail-rate=0", "--mail-rate=0.01", "--webhook-rate=10000", "--senders=256", "--give-up=720h", "--wait-due=24h"} {
		o.must(0, "outbox", "send", fine)
	}
	o.env["BILLING_MESSAGES_TWICE"] = "receipts"
	if r := o.must(78, "outbox", "send"); !strings.Contains(r.stderr, `"receipts"`) || !strings.Contains(r.stderr, "receipt, payment_failed") {
		t.Errorf("a kind that is none is not named\n%s", r)
	}
}

// Rates are per process, so cron starts no second one while one sends.
func TestCronSendsMessagesOneAtATime(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/deploy/crontab")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "billing outbox send") {
			if lines++; !strings.Contains(line, "exec flock ") || !strings.Contains(line, " /run/lock/billing-outbox ") {
				t.Errorf("no lock: %s", line)
			}
		}
	}
	if lines != 2 {
		t.Errorf("%d lines send messages, want 2", lines)
	}
}

// doctor says of messages, mail and webhooks what is wrong and what to do, a line each,
// sends nothing and shows no secret.
func TestDoctorLooksAtMessages(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	smtp, err := mailemu.StartSMTP(mailemu.SMTPConfig{User: "billing", Password: "hidden-password"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(smtp.Close)
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/receipt.txt", []byte("Subject: {{.Nothing}}\n\nText\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := maps.Clone(o.env)
	server := map[string]string{"BILLING_RESEND_API_KEY": "", "BILLING_SMTP_URL": smtp.URL()}
	for name, c := range map[string]struct {
		env                 map[string]string
		check, status, says string
	}{
		"all is well":           {nil, "messages", statusOK, "mails: receipt, "},
		"Resend":                {nil, "mail", statusOK, "the right form"},
		"an endpoint":           {nil, "webhooks", statusOK, "127.0.0.1-"},
		"every kind is off":     {map[string]string{"BILLING_MESSAGES": "", "BILLING_WEBHOOK_EVENTS": ""}, "messages", statusOK, "every kind is off"},
		"a template":            {map[string]string{"BILLING_TEMPLATES": folder}, "messages", statusFail, "receipt"},
		"nothing sends mail":    {map[string]string{"BILLING_RESEND_API_KEY": ""}, "messages", statusWarn, "BILLING_SMTP_URL"},
		"no mail is set":        {map[string]string{"BILLING_RESEND_API_KEY": ""}, "mail", statusOK, "nothing that sends"},
		"another's key":         {map[string]string{"BILLING_RESEND_API_KEY": "sk_hidden-password"}, "mail", statusFail, "BILLING_RESEND_API_KEY"},
		"both":                  {map[string]string{"BILLING_SMTP_URL": smtp.URL()}, "mail", statusFail, "set one of them"},
		"a mail server":         {server, "mail", statusOK, "takes the login"},
		"a wrong password":      {map[string]string{"BILLING_RESEND_API_KEY": "", "BILLING_SMTP_URL": strings.Replace(smtp.URL(), "hidden-password", "hidden-password2", 1)}, "mail", statusWarn, "login_535"},
		"no mail server":        {map[string]string{"BILLING_RESEND_API_KEY": "", "BILLING_SMTP_URL": "smtp://127.0.0.1:1"}, "mail", statusWarn, "not_connected"},
		"an address of another": {map[string]string{"BILLING_RESEND_API_KEY": "", "BILLING_SMTP_URL": "http://u:hidden-password@h"}, "mail", statusFail, "smtp://user:password@host:587"},
		"no secret to sign":     {map[string]string{"BILLING_WEBHOOK_SECRET": ""}, "webhooks", statusWarn, "BILLING_WEBHOOK_SECRET"},
		"a secret that is none": {map[string]string{"BILLING_WEBHOOK_SECRET": "hidden-password"}, "webhooks", statusFail, "whsec_"},
		"an address inside":     {map[string]string{"BILLING_WEBHOOK_ALLOW": ""}, "webhooks", statusFail, "BILLING_WEBHOOK_ALLOW"},
		"a name that is inside": {map[string]string{"BILLING_WEBHOOK_ALLOW": "10.0.0.0/8", "BILLING_WEBHOOK_URL": "https://localhost/hidden-password"}, "webhooks", statusWarn, "not public"},
		"no such name":          {map[string]string{"BILLING_WEBHOOK_URL": "https://nobody.invalid/hidden-password"}, "webhooks", statusWarn, "nobody.invalid"},
	} {
		o.env = maps.Clone(good)
		maps.Copy(o.env, c.env)
		r, checks := o.doctor()
		got := checks[c.check]
		if got.Status != c.status || !strings.Contains(got.Detail+got.Todo, c.says) {
			t.Errorf("%s: %+v, want %s and %q", name, got, c.status, c.says)
		}
		if got.Status != statusOK && got.Todo == "" {
			t.Errorf("%s: it does not say what to do", name)
		}
		if r.code != 78 { // its own Postgres is not durable
			t.Errorf("%s: exit %d\n%s", name, r.code, r)
		}
		if strings.Contains(r.stdout+r.stderr, "hidden-password") || strings.Contains(r.stdout+r.stderr, hookSecret) {
			t.Errorf("%s: a secret is shown\n%s", name, r)
		}
	}
	if n := len(o.hook.Deliveries()) + len(o.resend.Calls()) + len(smtp.Mails()); n != 0 {
		t.Errorf("%d messages were sent by a look", n)
	}
}
