package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/mailemu"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// mailedReview bills October for two customers. Stripe has a payment of another amount
// for the first one, which puts that charge into review.
func (o *outboxOffice) mailedReview() {
	o.t.Helper()
	o.importMailed(customers(2))
	o.meets(faults{"a0001": stripeemu.FaultRateLimit429})
	o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 500, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	o.forward(26 * time.Hour)
	o.month(4)
	o.is("a0001", "review not_as_asked")
}

// about are the dedupe keys of a channel that tell of an account, as outboxKeys has them.
func (o *outboxOffice) about(channel, account string) (list []string) {
	for _, key := range o.outboxKeys(channel) {
		if strings.Contains(key, "/"+account+"/") {
			list = append(list, key)
		}
	}
	slices.Sort(list) // what tells endpoints apart is not in them any more
	return list
}

// payloadOf is what was written of a kind for an account.
func (o *outboxOffice) payloadOf(kind, account string) string {
	o.t.Helper()
	return one[string](o.office, `SELECT payload FROM billing.outbox WHERE kind = $1 AND account_id = $2`, kind, account)
}

// A charge that leaves review because its own payment turned up has its receipt: only a
// person accepts what is not as asked, and only then is there none.
func TestAPaymentThatWinsAReviewHasItsReceipt(t *testing.T) {
	t.Parallel()
	t.Run("found", func(t *testing.T) {
		t.Parallel()
		o := newOutboxOffice(t)
		o.mailedReview()
		o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1001, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
		o.run("reconcile", "--period", october, "--audit")
		o.is("a0001", "succeeded")
		mustEqual(t, "mails", o.about("email", "a0001"), []string{"receipt/a0001/1 queued"})
	})
	t.Run("accepted", func(t *testing.T) {
		t.Parallel()
		o := newOutboxOffice(t)
		o.mailedReview()
		o.resolveAs(0, o.finding("a0001"), "accept")
		mustEqual(t, "mails", o.about("email", "a0001"), nil)
	})
}

// mismatch opens a finding about the payment that the charge has.
func (o *outboxOffice) mismatch(account string) (finding string) {
	o.t.Helper()
	return one[string](o.office, `INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
		SELECT 'amount_mismatch', 'act', job, period, account_id, billing_key, payment_intent, 'usd' FROM billing.charges WHERE account_id = $1
		RETURNING id::text`, account)
}

// A refund is told with the day that it was made, and only where its payment stands for
// the charge as it was asked for.
func TestARefundIsNotedAsItHappened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scene func(o *outboxOffice) (finding string)
		want  []string
	}{
		"of its payment": {func(o *outboxOffice) string {
			o.importMailed(customers(2))
			o.month(0)
			o.forward(5 * day)
			return o.mismatch("a0001")
		}, []string{"receipt/a0001/1 queued", "refund_noted/a0001/1/200 queued"}},
		"in review": {func(o *outboxOffice) string {
			o.mailedReview()
			return o.finding("a0001")
		}, nil},
		"of an accepted one": {func(o *outboxOffice) string {
			o.mailedReview()
			o.resolveAs(0, o.finding("a0001"), "accept")
			return o.mismatch("a0001")
		}, nil},
		"in another currency": {func(o *outboxOffice) string {
			o.importMailed(customers(2))
			o.month(0)
			// No move leads here: a payment of another currency goes to review.
			o.exec(`ALTER TABLE billing.charges DISABLE TRIGGER ALL`)
			o.exec(`UPDATE billing.charges SET payment_intent = $1 WHERE account_id = 'a0001'`,
				o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1001, Currency: "eur", Customer: "cus_0001"}))
			return o.mismatch("a0001")
		}, []string{"receipt/a0001/1 queued"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutboxOffice(t)
			id := c.scene(o)
			o.run("resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes", "--amount", "2.00")
			if n := o.emu.Count(opRefund); n != 1 {
				t.Fatalf("%d refunds were sent", n)
			}
			mustEqual(t, "mails", o.about("email", "a0001"), c.want)
			today := o.db.Now().UTC().Format("2 January 2006")
			if len(c.want) == 2 && !strings.Contains(o.payloadOf("refund_noted", "a0001"), "Date:       "+today) {
				t.Errorf("it is not of %s: %s", today, o.payloadOf("refund_noted", "a0001"))
			}
		})
	}
}

// A charge that comes into review a second time in the same try is told a second time.
func TestEveryReviewIsTold(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.mailedReview()
	o.resolveAs(0, o.finding("a0001"), "release")
	o.exec(`UPDATE billing.findings SET seen = replace(seen, '500 usd', '400 usd')`)
	o.must(4, "release", "--period", october, "--all", "--why", "not ours")
	o.is("a0001", "review not_as_asked")
	mustEqual(t, "events", o.about("webhook", "a0001"), []string{"charge.review/a0001/1 queued", "charge.review/a0001/1/2 queued"})
}

// chargeEvent is the body of a webhook about a charge.
type chargeEvent struct {
	Data struct {
		Amount        string
		AmountMinor   int64  `json:"amount_minor"`
		StripeAccount string `json:"stripe_account"`
		Livemode      *bool
	}
}

func (o *outboxOffice) eventOf(kind, account string) (e chargeEvent) {
	o.t.Helper()
	if err := json.Unmarshal([]byte(o.payloadOf(kind, account)), &e); err != nil {
		o.t.Fatal(err)
	}
	return e
}

// Amounts are written as their currency is, and are what was paid, also where the invoice
// could not be charged.
func TestAmountsAreWhatWasPaid(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	list := customers(3)
	list[0].amount, list[1].amount, list[1].currency, list[2].amount = "12.5", "1250", "jpy", "10.01"
	o.importMailed(list)
	o.exec(`UPDATE billing.invoices SET amount = 10.005 WHERE account_id = 'a0003'`) // no file can say that; a view can
	o.run("run", "--period", october)
	o.is("a0003", "skipped bad_amount")
	o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1001, Customer: "cus_0003", Metadata: ourKey("a0003", "1")})
	o.run("reconcile", "--period", october, "--audit")
	for account, want := range map[string]struct {
		amount, mail string
		minor        int64
	}{"a0001": {"12.50", "12.50 USD", 1250}, "a0002": {"1250", "1250 JPY", 1250}, "a0003": {"10.01", "10.01 USD", 1001}} {
		o.is(account, "succeeded")
		e := o.eventOf("charge.succeeded", account)
		if e.Data.Amount != want.amount || e.Data.AmountMinor != want.minor || !strings.Contains(o.payloadOf("receipt", account), " "+want.mail) {
			t.Errorf("%s: told %+v and %s, want %s", account, e.Data, o.payloadOf("receipt", account), want.mail)
		}
	}
}

// Two ledgers of two Stripe accounts, with the same customers and one receiver, share no
// name of a message; each says whose it is.
func TestTwoLedgersShareNoName(t *testing.T) {
	t.Parallel()
	mine, other := newOutboxOffice(t), &outboxOffice{office: newOffice(t, stripeemu.Config{AccountID: "acct_other", AnyCustomer: true})}
	for name, value := range mine.env {
		if strings.HasPrefix(name, "BILLING_MESSAGES") || strings.HasPrefix(name, "BILLING_MAIL") || strings.HasPrefix(name, "BILLING_RESEND") ||
			strings.HasPrefix(name, "BILLING_WEBHOOK") || name == "BILLING_PAY_URL" {
			other.env[name] = value
		}
	}
	for account, o := range map[string]*outboxOffice{stripeemu.DefaultAccount: mine, "acct_other": other} {
		o.importMailed(customers(1))
		o.month(0)
		o.must(0, "outbox", "send")
		if e := o.eventOf("charge.succeeded", "a0001"); e.Data.StripeAccount != account || e.Data.Livemode == nil || *e.Data.Livemode {
			t.Errorf("of %s: %s", account, o.payloadOf("charge.succeeded", "a0001"))
		}
	}
	if got := mine.hook.PerID(); len(got) != 4 {
		t.Errorf("the receiver has %v, want two of each ledger", got)
	}
	for _, key := range []string{"receipt/monthly-billing/2026-10/a0001/1/acct_other/test", "receipt/monthly-billing/2026-10/a0001/1/" + stripeemu.DefaultAccount + "/test"} {
		if mine.resend.PerKey()[key] != 1 {
			t.Errorf("Resend has %v, want one by %s", mine.resend.PerKey(), key)
		}
	}
}

// sender is the From and Reply-To of a call to Resend.
func sender(t testing.TB, c mailemu.Call) string {
	t.Helper()
	var sent struct {
		From    string
		ReplyTo string `json:"reply_to"`
	}
	if err := json.Unmarshal(c.Body, &sent); err != nil {
		t.Fatal(err)
	}
	return sent.From + " " + sent.ReplyTo
}

// A sender that was wrong is corrected for all that was never tried, and for what was
// refused; what may have arrived keeps the one that it had, to the byte.
func TestASenderIsFrozenWithTheFirstTry(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(1))
	o.month(0)
	o.env["BILLING_MAIL_FROM"] = "Second <second@acme.example>"
	o.resend.Inject(mailemu.FaultRefused401, 1) // as for a domain that is not ours: nothing was tried
	o.must(77, "outbox", "send")
	o.env["BILLING_MAIL_FROM"], o.env["BILLING_MAIL_REPLY_TO"] = "Third <third@acme.example>", "help@acme.example"
	o.resend.Inject(mailemu.FaultInvalid422, 1)
	o.must(4, "outbox", "send")
	o.env["BILLING_MAIL_FROM"] = "Fourth <fourth@acme.example>"
	o.must(0, "outbox", "release", "--reason", "http_422", "--why", "the sender was wrong")
	o.resend.Inject(mailemu.FaultLoseAnswer, 1)
	o.must(75, "outbox", "send")
	o.env["BILLING_MAIL_FROM"] = "Fifth <fifth@acme.example>"
	o.forward(10 * time.Minute)
	o.must(0, "outbox", "send")
	var senders []string
	for _, c := range o.resend.Calls() {
		senders = append(senders, sender(t, c))
	}
	mustEqual(t, "senders", senders, []string{
		`"Second" <second@acme.example> `, `"Third" <third@acme.example> <help@acme.example>`,
		`"Fourth" <fourth@acme.example> <help@acme.example>`, `"Fourth" <fourth@acme.example> <help@acme.example>`,
	})
	if n := len(o.resend.Mails()); n != 1 {
		t.Errorf("%d mails went out", n)
	}
}

// What waited when the backup was made may have been sent since. A rebuild leaves it to a
// person, and nothing of it goes out twice by itself.
func TestARestoredQueueIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	o.importMailed(customers(3))
	o.month(0)
	backup := o.db.Snapshot(t)
	o.must(0, "outbox", "send")
	calls := len(o.resend.Calls())
	o.db.RestoreSnapshot(t, backup)
	o.forward(3 * day) // Resend has forgotten its keys
	o.must(0, "reconcile", "--period", october, "--rebuild", "--dry-run")
	mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", 3), "queued"))
	r := o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "restored the backup of 3 am")
	if !strings.Contains(r.stderr, "7 messages that waited may have been sent since the backup") {
		t.Errorf("it does not say so\n%s", r)
	}
	o.must(4, "outbox", "send")
	if n := len(o.resend.Calls()); n != calls {
		t.Errorf("%d mails were sent again", n-calls)
	}
	mustEqual(t, "mails", o.outboxKeys("email"), inState(keysOf("receipt", 3), "dead"))
	if n := one[int](o.office, `SELECT count(*) FROM billing.outbox WHERE state = 'dead' AND reason = 'unknown'`); n != 7 {
		t.Errorf("%d are unknown, want 7", n)
	}
	o.must(0, "outbox", "release", "--reason", "unknown", "--account", "a0002", "--kind", "receipt", "--why", "it had not arrived")
	o.must(4, "outbox", "send")
	if n := len(o.resend.Calls()); n != calls+1 {
		t.Errorf("%d mails were sent after one was released", n-calls)
	}
}

// A mail that is refused after a try whose outcome nobody knows may have arrived by that
// one, and is told as such.
func TestARefusalDoesNotForgetAnEarlierTry(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	delete(o.env, "BILLING_WEBHOOK_EVENTS")
	o.importMailed(customers(1))
	o.month(0)
	o.resend.Inject(mailemu.FaultLoseAnswer, 1)
	o.must(75, "outbox", "send")
	o.forward(10 * time.Minute)
	o.resend.Inject(mailemu.FaultInvalid422, 1)
	o.must(4, "outbox", "send")
	if got := one[string](o.office, `SELECT state || ' ' || reason || ' ' || open_tries || ' ' || split_part(answer, ':', 1) FROM billing.outbox`); got != "dead unknown 1 http_422" {
		t.Errorf("it is %q", got)
	}
}

// A ledger of an older program has no addresses in its charges: those that are still to
// be told of get their account's.
func TestAnUpgradeBringsAddresses(t *testing.T) {
	t.Parallel()
	o := oldOffice(t)
	o.exec(`UPDATE billing.accounts SET email = account_id || '@example.com'`)
	o.must(0, "migrate")
	if got := one[string](o, `SELECT count(*) FILTER (WHERE email = account_id || '@example.com') || ' of ' || count(*) FROM billing.charges
		WHERE state NOT IN ('succeeded', 'void')`); got == "0 of 0" || got[:strings.Index(got, " ")] != got[strings.LastIndex(got, " ")+1:] {
		t.Errorf("%s charges have an address", got)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE state IN ('succeeded', 'void') AND email <> ''`); n != 0 {
		t.Errorf("%d charges that are final were changed", n)
	}
}
