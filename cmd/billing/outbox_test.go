package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// outboxOffice is an office that sends mail over Resend and webhooks to one receiver.
type outboxOffice struct {
	*office
	resend *mailemu.Resend
	hook   *mailemu.Receiver
}

func newOutboxOffice(t testing.TB) *outboxOffice {
	t.Helper()
	o := &outboxOffice{office: newOffice(t)}
	o.ungated()
	var err error
	if o.resend, err = mailemu.StartResend(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.resend.Close)
	if o.hook, err = mailemu.StartReceiver(hookSecret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.hook.Close)
	maps.Copy(o.env, map[string]string{
		"BILLING_MESSAGES": "all", "BILLING_MAIL_FROM": "Acme <billing@acme.example>", "BILLING_PAY_URL": "https://acme.example/pay?account={account_id}",
		"BILLING_RESEND_API_KEY": mailemu.ResendKey, "BILLING_RESEND_BASE": o.resend.URL(), "BILLING_MAIL_RATE": "0",
		"BILLING_WEBHOOK_EVENTS": "all", "BILLING_WEBHOOK_URL": o.hook.URL(), "BILLING_WEBHOOK_SECRET": hookSecret, "BILLING_WEBHOOK_RATE": "0",
		"BILLING_WEBHOOK_ALLOW": "127.0.0.0/8", "BILLING_WEBHOOK_HTTP": "true",
	})
	return o
}

// forward moves every clock on.
func (o *outboxOffice) forward(d time.Duration) {
	o.advance(d)
	o.resend.SetOffset(o.emu.Offset())
}

// importMailed brings in customers with addresses, other than those that are named.
func (o *outboxOffice) importMailed(list []customer, without ...string) {
	o.t.Helper()
	b := strings.Builder{}
	b.WriteString("account_id,stripe_customer,payment_method,currency,name,email\n")
	for _, c := range list {
		mail := c.id + "@example.com"
		if slices.Contains(without, c.id) {
			mail = ""
		}
		fmt.Fprintf(&b, "%s,%s,%s,%s,Name of %s,%s\n", c.id, c.customer, c.card, c.currency, c.id, mail)
	}
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", b.String()))
	o.must(0, "import", "invoices", "--period", october, "--file", o.file("invoices.csv", invoicesCSV(list)))
}

// outboxKeys are the dedupe keys of a channel without what tells endpoints apart, each
// with its state.
func (o *outboxOffice) outboxKeys(channel string) []string {
	return one[[]string](o.office, `SELECT coalesce(array_agg(replace(regexp_replace(dedupe_key, '/[0-9a-f]{8}$', ''), 'monthly-billing/2026-10/', '') || ' ' || state
		ORDER BY dedupe_key), '{}') FROM billing.outbox WHERE channel = $1`, channel)
}

func mustEqual(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// fourFates are customers who pay, whose bank refuses, who must confirm, and whose bank
// debit takes days.
func fourFates() []customer {
	list := customers(4)
	list[1].card = "pm_card_visa_chargeDeclinedInsufficientFunds_2"
	list[2].card = "pm_card_authenticationRequired_3"
	list[3].card = "pm_usBankAccount_success_4"
	return list
}

// Every change is told once, by mail and by webhook, whatever is run again; the mails
// and the webhooks that arrive are the bytes that were written with the change.
func TestEveryChangeIsToldOnce(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(fourFates())
	o.month(0)
	wantMails := []string{"action_required/a0003/1", "debit_started/a0004/1", "payment_failed/a0002/1", "receipt/a0001/1"}
	wantEvents := []string{"charge.action_required/a0003/1", "charge.declined/a0002/1", "charge.processing/a0004/1", "charge.succeeded/a0001/1", "run.finished/1"}
	mustEqual(t, "mails", o.outboxKeys("email"), inState(wantMails, "queued"))
	mustEqual(t, "events", o.outboxKeys("webhook"), inState(wantEvents, "queued"))
	o.must(0, "outbox", "send")
	o.must(0, "reconcile", "--period", october)
	o.month(0)
	o.must(0, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), inState(wantMails, "sent"))
	mustEqual(t, "events", o.outboxKeys("webhook"), inState(wantEvents, "sent"))
	if got := o.resend.PerKey(); len(got) != 4 || slices.Max(slices.Collect(maps.Values(got))) != 1 {
		t.Errorf("Resend sent %v, want each of four mails once", got)
	}
	if got := o.hook.PerID(); len(got) != 5 || slices.Max(slices.Collect(maps.Values(got))) != 1 {
		t.Errorf("the receiver verified %v, want each of five events once", got)
	}
	for _, d := range o.hook.Deliveries() {
		if !one[bool](o.office, `SELECT EXISTS (SELECT FROM billing.outbox WHERE channel = 'webhook' AND payload = $1)`, string(d.Body)) {
			t.Errorf("the receiver got %s, which is no payload of the outbox", d.Body)
		}
	}
}

func inState(keys []string, state string) []string {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = key + " " + state
	}
	return list
}

// What is off costs no row, and what happened before a kind was switched on is never
// told.
func TestNothingIsToldOfTheTimeBefore(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	on, events := o.env["BILLING_MESSAGES"], o.env["BILLING_WEBHOOK_EVENTS"]
	delete(o.env, "BILLING_MESSAGES")
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(fourFates())
	o.month(0)
	if n := one[int](o.office, `SELECT count(*) FROM billing.outbox`); n != 0 {
		t.Errorf("%d messages were written with every kind off", n)
	}
	o.env["BILLING_MESSAGES"], o.env["BILLING_WEBHOOK_EVENTS"] = on, events
	o.month(0)
	// The bank debit is paid after that.
	if err := o.emu.SettleDebit(one[string](o.office, `SELECT payment_intent FROM billing.charges WHERE account_id = 'a0004'`), true); err != nil {
		t.Fatal(err)
	}
	o.forward(26 * time.Hour)
	o.must(0, "reconcile", "--period", october)
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0004/1 queued"})
	mustEqual(t, "events", o.outboxKeys("webhook"), []string{"charge.succeeded/a0004/1 queued"})
}

// T64: an account without an address is charged like every other; its mail is kept as
// undeliverable and reported, and needs nobody.
func TestNoAddressStopsNoCharge(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(2), "a0002")
	o.month(0)
	if got := o.states(october)["succeeded"]; got != 2 {
		t.Errorf("%d succeeded, want 2", got)
	}
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0001/1 queued", "receipt/a0002/1 undeliverable"})
	if r := o.must(0, "outbox", "send"); !strings.Contains(r.stderr, "1 messages have no address") {
		t.Errorf("it does not say that one has no address\n%s", r)
	}
	if got := one[string](o.office, `SELECT reason FROM billing.outbox WHERE account_id = 'a0002' AND channel = 'email'`); got != "no_address" {
		t.Errorf("the reason is %q", got)
	}
}

// T62: a declined charge that is paid later is told as declined once and as paid once.
func TestADeclineAndItsPaymentAreToldOnceEach(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	list := customers(1)
	good := list[0].card
	list[0].card = "pm_card_visa_chargeDeclinedInsufficientFunds_1"
	o.importMailed(list)
	o.month(0)
	o.forward(20 * time.Minute)
	list[0].card = good
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.must(0, "retry-declined", "--period", october, "--account", "a0001", "--why", "another card")
	o.month(0)
	o.must(0, "outbox", "send")
	o.month(0)
	o.must(0, "reconcile", "--period", october)
	o.must(0, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"payment_failed/a0001/1 sent", "receipt/a0001/2 sent"})
	if n := len(o.resend.Mails()); n != 2 {
		t.Errorf("%d mails were sent, want 2", n)
	}
}

// The texts of a mail are frozen with the change: a template that changes between two
// tries changes no byte of it.
func TestATemplateChangesNoMailThatIsWritten(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(1))
	o.month(0)
	o.resend.Inject(mailemu.FaultUndone500, 1)
	o.must(75, "outbox", "send")
	folder := t.TempDir()
	if err := os.WriteFile(folder+"/receipt.txt", []byte("Subject: Another\n\nAnother text for {{.Name}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.env["BILLING_TEMPLATES"], o.env["BILLING_MAIL_FROM"] = folder, "other@acme.example"
	o.forward(10 * time.Minute)
	o.must(0, "outbox", "send")
	calls := o.resend.Calls()
	if len(calls) != 2 || string(calls[0].Body) != string(calls[1].Body) || calls[0].Key != calls[1].Key {
		t.Errorf("%d calls, and not the same bytes: %q", len(calls), calls)
	}
	var sent struct{ From, Subject string }
	if err := json.Unmarshal(calls[1].Body, &sent); err != nil || !strings.Contains(sent.From, "billing@acme.example") || sent.Subject == "Another" {
		t.Errorf("sent %+v, %v", sent, err)
	}
}

// A mail whose outcome is unknown is sent again under its key while Resend knows the
// key. Once it may not any more, it is a dead letter that a person releases or drops.
func TestNoMailIsSentBlindlyAfterADay(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(2))
	o.month(0)
	o.resend.Inject(mailemu.FaultLoseAnswer, 2)
	o.must(75, "outbox", "send")
	o.forward(23*time.Hour + time.Minute)
	o.must(4, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0001/1 dead", "receipt/a0002/1 dead"})
	if calls := len(o.resend.Calls()); calls != 2 {
		t.Errorf("%d calls, want the 2 of the first try", calls)
	}
	o.must(0, "outbox", "drop", "--account", "a0001", "--why", "it had arrived")
	o.must(0, "outbox", "release", "--reason", "unknown", "--why", "the other had not")
	o.must(0, "outbox", "send")
	mustEqual(t, "mails", o.outboxKeys("email"), []string{"receipt/a0001/1 dropped", "receipt/a0002/1 sent"})
	if got := one[string](o.office, `SELECT string_agg(action || ' ' || why, ', ' ORDER BY id) FROM billing.outbox_events`); got != "drop it had arrived, release the other had not" {
		t.Errorf("the history says %q", got)
	}
}

// A receiver that is down for two days keeps no mail waiting, is asked seldom, and has
// every event once it is back.
func TestAReceiverThatIsDownForTwoDays(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(20))
	o.month(0)
	o.hook.Stop()
	for range 48 {
		o.run("outbox", "send")
		o.forward(time.Hour)
	}
	if got := o.outboxKeys("email"); !slices.Equal(got, inState(keysOf("receipt", 20), "sent")) {
		t.Errorf("mails wait for a receiver of webhooks: %v", got)
	}
	if err := o.hook.Restart(); err != nil {
		t.Fatal(err)
	}
	o.must(0, "outbox", "send", "--wait-due", "10s")
	if n := one[int](o.office, `SELECT count(*) FROM billing.outbox WHERE state <> 'sent'`); n != 0 {
		t.Errorf("%d messages are not sent", n)
	}
	if got := o.hook.PerID(); len(got) != 21 {
		t.Errorf("the receiver has %d events, want 21", len(got))
	}
}

func keysOf(kind string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s/a%04d/1", kind, i+1))
	}
	return list
}

// An endpoint that answers 410 is stopped for good and says so, until a person lets it
// have messages again.
func TestAnEndpointThatIsGoneIsStopped(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_MESSAGES")
	o.importMailed(customers(3))
	o.month(0)
	o.hook.Inject(mailemu.FaultGone410, 100)
	o.must(4, "outbox", "send", "--senders", "1")
	asked := len(o.hook.Deliveries())
	o.hook.Clear()
	o.forward(time.Hour)
	o.must(4, "outbox", "send")
	if again := len(o.hook.Deliveries()); again != asked {
		t.Errorf("it was asked %d times more", again-asked)
	}
	lane := one[string](o.office, `SELECT lane FROM billing.outbox_lanes WHERE stopped_for = 'gone'`)
	o.must(0, "outbox", "release", "--lane", lane, "--why", "it is back")
	o.must(0, "outbox", "release", "--lane", lane, "--reason", one[string](o.office, `SELECT reason FROM billing.outbox WHERE state = 'dead'`), "--why", "it is back")
	o.must(0, "outbox", "send")
	if got := o.hook.PerID(); len(got) != 4 {
		t.Errorf("the receiver has %d events, want 4", len(got))
	}
}

// Three senders at once send every message once.
func TestThreeSendersSendEachOnce(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(120))
	o.month(0)
	var senders []process
	for range 3 {
		senders = append(senders, o.start("outbox", "send"))
	}
	for _, p := range senders {
		if r := p.wait(); r.code != 0 && r.code != 75 {
			t.Errorf("a sender ended with\n%s", r)
		}
	}
	o.must(0, "outbox", "send")
	if calls, mails := len(o.resend.Calls()), len(o.resend.Mails()); calls != 120 || mails != 120 {
		t.Errorf("%d calls, %d mails, want 120 of each", calls, mails)
	}
	if n := len(o.hook.Deliveries()); n != 121 {
		t.Errorf("%d deliveries, want 121", n)
	}
}

// A sender that is killed while a mail is on its way leaves it to the next one: Resend
// has each mail once, whether it had done the work or not.
func TestAKilledSenderSendsNoMailTwice(t *testing.T) {
	t.Parallel()
	for _, fault := range []mailemu.Fault{mailemu.FaultHang, mailemu.FaultLoseAnswer} {
		o := newOutboxOffice(t)
		delete(o.env, "BILLING_WEBHOOK_EVENTS")
		o.importMailed(customers(12))
		o.month(0)
		if fault == mailemu.FaultLoseAnswer {
			o.resend.Inject(fault, 1) // done, and not known to be
		}
		o.resend.Inject(mailemu.FaultHang, 1)
		p := o.start("outbox", "send", "--senders", "2")
		eventually(t, "a mail hangs", func() bool {
			return slices.ContainsFunc(o.resend.Calls(), func(c mailemu.Call) bool { return c.Fault == mailemu.FaultHang })
		})
		p.kill()
		p.wait()
		o.resend.Clear()
		o.resend.Release()
		o.forward(20 * time.Minute)
		o.must(0, "outbox", "send")
		mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", 12), "sent"))
		if got := o.resend.PerKey(); len(got) != 12 || slices.Max(slices.Collect(maps.Values(got))) != 1 {
			t.Errorf("%s: Resend sent %v, want each of 12 once", fault, got)
		}
	}
}

// A mail system that is away, or a lane that no host sends for, touches no charge.
func TestADeadMailSystemTouchesNoCharge(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.resend.Stop()
	o.hook.Stop()
	o.importMailed(customers(3))
	o.month(0)
	o.must(75, "outbox", "send")
	if got := o.states(october)["succeeded"]; got != 3 {
		t.Errorf("%d succeeded, want 3", got)
	}
	o.month(0)
}

// A person sees what a mail looks like before a kind is switched on, and the list says
// what waits and what is dead.
func TestOutboxPreviewAndList(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	for kind, says := range map[string]string{
		"receipt": "1234.50 USD", "payment_failed": "Nothing was", "action_required": "https://acme.example/pay?account=4182",
		"debit_started": "some days", "refund_noted": "200.00 USD",
	} {
		if r := o.must(0, "outbox", "preview", "--kind", kind); !strings.Contains(r.stdout, says) || !strings.Contains(r.stdout, "&lt;ada&gt;") {
			t.Errorf("%s does not say %q\n%s", kind, says, r)
		}
	}
	o.must(64, "outbox", "preview", "--kind", "receipts")
	o.must(64, "outbox", "drop", "--why", "all of them")
	o.must(64, "outbox", "release", "--id", "1")
	o.importMailed(customers(2))
	o.month(0)
	if r := o.must(0, "outbox", "list", "--kind", "receipt", "--format", "csv"); strings.Count(r.stdout, "queued") != 2 {
		t.Errorf("the list has not both receipts\n%s", r)
	}
	if r := o.must(0, "outbox", "list", "--state", "sent"); r.stdout != "no messages\n" {
		t.Errorf("something is sent\n%s", r)
	}
}
