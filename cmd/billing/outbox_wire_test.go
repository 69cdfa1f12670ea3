package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/mail"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/fixtures/mailemu"
)

// newSecret replaces hookSecret.
const newSecret = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="

// overSMTP makes an office send its mail over a mail server instead of Resend.
func (o *outboxOffice) overSMTP() *mailemu.SMTP {
	o.t.Helper()
	server, err := mailemu.StartSMTP(mailemu.SMTPConfig{User: "billing", Password: "hidden-password"})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(server.Close)
	delete(o.env, "BILLING_RESEND_API_KEY")
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.env["BILLING_SMTP_URL"] = server.URL()
	return server
}

// receiver is one more endpoint.
func (o *outboxOffice) receiver(secret string) *mailemu.Receiver {
	o.t.Helper()
	r, err := mailemu.StartReceiver(secret)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(r.Close)
	return r
}

// Over SMTP a mail arrives at least once: a sender that is killed after the server took
// it, and before that is written down, leaves it to be sent again. It is the same mail,
// byte by byte, though the template is another by then, so that mail programs show it
// once.
func TestOverSMTPAMailArrivesAtLeastOnce(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	server := o.overSMTP()
	o.importMailed(customers(1))
	o.month(0)
	server.Inject(mailemu.FaultHang, 1) // it has taken the mail, and says nothing
	p := o.start("outbox", "send")
	eventually(t, "the server has the mail", func() bool { return server.Held() == 1 })
	p.kill()
	p.wait()
	server.Release()
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/receipt.txt", []byte("Subject: Another\n\nAnother text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.env["BILLING_TEMPLATES"] = folder
	o.forward(20 * time.Minute)
	o.must(0, "outbox", "send")
	o.must(0, "outbox", "send")
	mails := server.Mails()
	if len(mails) != 2 || !bytes.Equal(mails[0].Raw, mails[1].Raw) {
		t.Fatalf("%d mails, want the same twice: %q", len(mails), mails)
	}
	m, err := mail.ReadMessage(bytes.NewReader(mails[1].Raw))
	if err != nil || !strings.HasSuffix(m.Header.Get("Message-ID"), "@acme.example>") || strings.Contains(string(mails[1].Raw), "Another") {
		t.Errorf("%v, %s", err, mails[1].Raw)
	}
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0001/1 sent"})
	if tries := one[int](o.office, `SELECT tries FROM billing.outbox`); tries != 2 {
		t.Errorf("%d tries, want 2", tries)
	}
}

// What a mail server says to what it does not take stands beside the dead letter, and a
// refusal for now is none.
func TestAMailServerThatRefuses(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	server := o.overSMTP()
	o.importMailed(customers(2))
	o.month(0)
	server.Inject(mailemu.FaultNobody550, 1)
	server.Inject(mailemu.FaultLater450, 1)
	o.must(75, "outbox", "send", "--senders", "1")
	r := o.must(0, "outbox", "list", "--format", "csv")
	if strings.Count(r.stdout, ",dead,smtp_550,") != 1 || strings.Count(r.stdout, ",queued,smtp_450,") != 1 || strings.Count(r.stdout, "refused by the emulator") != 2 {
		t.Errorf("want one that is dead and one that waits, and what the server said\n%s", r)
	}
	o.forward(time.Hour)
	o.must(4, "outbox", "send")
	if got := one[string](o.office, `SELECT string_agg(concat_ws(' ', state, nullif(reason, '')), ', ' ORDER BY state) FROM billing.outbox`); got != "dead smtp_550, sent" {
		t.Errorf("the mails are %s", got)
	}
	if n := len(server.Mails()); n != 1 {
		t.Errorf("%d mails, want 1", n)
	}
}

// While the key of webhooks is replaced, receivers that have either one verify what
// comes; once the old one is taken away, who has it alone no longer does.
func TestAKeyOfWebhooksIsReplaced(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_MESSAGES")
	late, early := o.hook, o.receiver(newSecret)
	o.env["BILLING_WEBHOOK_URL"] = late.URL() + " " + early.URL()
	o.env["BILLING_WEBHOOK_SECRET"] = newSecret + " " + hookSecret
	o.importMailed(customers(3))
	o.month(0)
	o.must(0, "outbox", "send")
	for name, r := range map[string]*mailemu.Receiver{"the old key": late, "the new key": early} {
		if got := r.PerID(); len(got) != 4 || slices.Max(slices.Collect(maps.Values(got))) != 1 {
			t.Errorf("who has %s verified %v, want each of four events once", name, got)
		}
	}
	o.env["BILLING_WEBHOOK_SECRET"] = newSecret
	o.must(0, "reopen", "--period", october, "--why", "once more")
	o.month(0)
	o.must(4, "outbox", "send")
	if last := late.Deliveries()[len(late.Deliveries())-1]; last.Verified || len(early.PerID()) != 5 {
		t.Errorf("verified %t by who has the old key alone, and the other has %d of 5", last.Verified, len(early.PerID()))
	}
	if r := o.must(0, "outbox", "list", "--state", "dead"); !strings.Contains(r.stdout, "http_401") {
		t.Errorf("the list does not say that it was refused\n%s", r)
	}
}

// Twenty thousand messages to a receiver that is dead, and a receiver that never
// answers, keep nobody else waiting: while the one hangs, all the others have theirs.
func TestADeadReceiverDelaysNobody(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	hanging := o.receiver(hookSecret)
	hanging.Inject(mailemu.FaultHang, 0)
	const nobody = "http://127.0.0.1:1/hook"
	o.env["BILLING_WEBHOOK_URL"] = strings.Join([]string{nobody, hanging.URL(), o.hook.URL()}, " ")
	o.importMailed(customers(30))
	o.month(0)
	dead := outbox.Lane(nobody)
	if _, err := o.db.Pool.Exec(t.Context(), `INSERT INTO billing.outbox (dedupe_key, kind, channel, lane, destination, job, period, payload, next_at)
		SELECT 'older/' || i, kind, channel, lane, destination, job, period, payload, next_at - interval '1 hour'
		FROM billing.outbox, generate_series(1, 20000) i WHERE kind = 'run.finished' AND lane = $1`, dead); err != nil {
		t.Fatal(err)
	}
	p := o.start("outbox", "send")
	eventually(t, "all others have theirs while one receiver hangs", func() bool {
		return hanging.Held() > 0 && len(o.resend.PerKey()) == 30 && len(o.hook.PerID()) == 31
	})
	hanging.Clear()
	hanging.Release()
	if r := p.wait(); r.code != 75 {
		t.Errorf("want exit 75\n%s", r)
	}
	if tries := one[int](o.office, `SELECT sum(tries) FROM billing.outbox WHERE lane = $1`, dead); tries > 10 {
		t.Errorf("the dead one was asked %d times", tries)
	}
	if n := one[int](o.office, `SELECT count(*) FROM billing.outbox WHERE lane = $1 AND state = 'queued'`, dead); n != 20_031 {
		t.Errorf("%d wait for the dead one, want 20031", n)
	}
}

// A mail that can't be rendered, a key that is refused, and receivers that say no, are
// nobody's charge: the month is as it is without messages, and ends alike.
func TestAFailingMailSystemChangesNoCharge(t *testing.T) {
	t.Parallel()
	quiet := newOutboxOffice(t)
	delete(quiet.env, "BILLING_MESSAGES")
	delete(quiet.env, "BILLING_WEBHOOK_EVENTS")
	loud := newOutboxOffice(t)
	folder := t.TempDir()
	poison := "Subject: Yours\n\n{{if eq .AccountID \"a0001\"}}{{index .Name 9999}}{{end}}Dear {{.Name}}\n"
	if err := os.WriteFile(folder+"/receipt.txt", []byte(poison), 0o600); err != nil {
		t.Fatal(err)
	}
	loud.env["BILLING_TEMPLATES"] = folder
	loud.env["BILLING_RESEND_API_KEY"] = "re_another"
	loud.hook.Inject(mailemu.FaultUndone500, 0)
	var charges []string
	for _, o := range []*outboxOffice{quiet, loud} {
		o.importMailed(fourFates())
		o.month(0)
		if o == loud {
			o.must(77, "outbox", "send")
		}
		o.must(0, "reconcile", "--period", october)
		o.month(0)
		charges = append(charges, one[string](o.office, `SELECT string_agg(concat_ws(' ', account_id, state, reason, decline_code, try, sends, amount_minor), ', '
			ORDER BY account_id) FROM billing.charges`))
	}
	if charges[0] != charges[1] || strings.Count(charges[0], ",") != 3 {
		t.Errorf("with failing messages %s\nwithout any %s", charges[1], charges[0])
	}
	if got := one[string](loud.office, `SELECT state || ' ' || reason FROM billing.outbox WHERE kind = 'receipt'`); got != "dead template_failed" {
		t.Errorf("the mail that can't be rendered is %s", got)
	}
}

// An endpoint that no message may go to is refused before a charge is recorded, by what
// charges and by what sends, and the complaint does not repeat its secret.
func TestABadEndpointIsRefusedBeforeMoneyMoves(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(1))
	for _, c := range []struct{ set, value, says string }{
		{"BILLING_WEBHOOK_URL", "https://u:hidden-token@hooks.example.com/", "must be like https://host/path"},
		{"BILLING_WEBHOOK_URL", "https://hooks.example.com/#hidden-token", "must be like https://host/path"},
		{"BILLING_WEBHOOK_URL", "hooks.example.com/hidden-token", "must be like https://host/path"},
		{"BILLING_WEBHOOK_URL", "https://h%FFx.example/hidden-token", "xn--"},
		{"BILLING_WEBHOOK_URL", "https://10.1.2.3/hidden-token", "BILLING_WEBHOOK_ALLOW"},
		{"BILLING_WEBHOOK_URL", "https://a.example/hidden-token https://a.example/hidden-token", "twice"},
		{"BILLING_WEBHOOK_HTTP", "", "must begin with https://"},
		{"BILLING_WEBHOOK_HTTP", "yes", "want true or false"},
		{"BILLING_WEBHOOK_ALLOW", "", "BILLING_WEBHOOK_ALLOW"},
		{"BILLING_WEBHOOK_ALLOW", "127.0.0.1", "such as 10.1.0.0/16"},
		{"BILLING_WEBHOOK_EVENTS", "charge.paid", "charge.succeeded"},
		{"BILLING_MESSAGES", "receipts", "receipt, payment_failed"},
		{"BILLING_MAIL_FROM", "billing", "such as Acme <billing@acme.example>"},
		{"BILLING_PAY_URL", "", "because action_required is on"},
	} {
		good := o.env[c.set]
		o.env[c.set] = c.value
		for _, args := range [][]string{{"run", "--period", october}, {"reconcile", "--period", october}} {
			if r := o.must(78, args...); !strings.Contains(r.stderr, c.says) || strings.Contains(r.stdout+r.stderr, "hidden-token") {
				t.Errorf("%s=%s: it should say %q, and no secret\n%s", c.set, c.value, c.says, r)
			}
		}
		o.env[c.set] = good
	}
	if n := one[int](o.office, `SELECT count(*) FROM billing.charges`); n != 0 {
		t.Errorf("%d charges are recorded", n)
	}
}

// The URL of an endpoint is in no row and in no text: its path may be its secret.
func TestNoEndpointsSecretIsKept(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	const token = "T0hidden-token"
	o.env["BILLING_WEBHOOK_URL"] = o.hook.URL() + "/hooks/" + token + "?key=" + token
	o.importMailed(customers(2))
	o.month(0)
	o.hook.Inject(mailemu.FaultTeapot, 1)
	said := o.must(4, "outbox", "send", "--senders", "1").String()
	for _, args := range [][]string{{"outbox", "list", "--format", "csv"}, {"outbox", "list", "--json"}, {"config"}, {"config", "--json"}, {"doctor", "--json"}, {"status"}} {
		said += o.run(args...).String()
	}
	if strings.Contains(said, token) || strings.Contains(said, hookSecret) || strings.Contains(said, mailemu.ResendKey) {
		t.Errorf("a secret is shown\n%s", said)
	}
	if n := one[int](o.office, fmt.Sprintf(`SELECT count(*) FROM billing.outbox o WHERE o::text LIKE '%%%s%%'`, token)); n != 0 {
		t.Errorf("%d rows hold the secret", n)
	}
	if len(o.hook.PerID()) != 3 {
		t.Errorf("%d events came, want 3", len(o.hook.PerID()))
	}
}
