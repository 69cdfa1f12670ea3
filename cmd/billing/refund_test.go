package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// opRefund is the one POST that gives money back.
const opRefund = "POST refunds"

// refundsSent are the refunds that arrived at Stripe, key and body of each.
func (o *office) refundsSent() (list []string) {
	for _, r := range o.emu.Requests() {
		if r.Method == "POST" && r.Path == "/v1/refunds" {
			list = append(list, r.IdempotencyKey+" "+r.Body)
		}
	}
	return list
}

// givenBackOnce wants a finding to be resolved by one refund of the whole second
// payment, sent in n requests that are the same byte for byte, and the right payment to
// be untouched.
func (o *office) givenBackOnce(right, second, finding string, n int) {
	o.t.Helper()
	sent := o.refundsSent()
	if len(sent) != n {
		o.t.Errorf("%d refunds were sent, want %d: %q", len(sent), n, sent)
	}
	want := "finding/" + finding + "/" + second + "/refund payment_intent=" + second + "&amount=1001&reason=duplicate&metadata%5Bbilling_finding%5D=" + finding
	for _, s := range sent {
		if plain := strings.NewReplacer("[", "%5B", "]", "%5D").Replace(s); s != sent[0] || !strings.HasPrefix(plain, want) {
			o.t.Errorf("sent %q, want %q", s, want)
		}
	}
	for id, refunded := range map[string]int64{right: 0, second: 1001} {
		if pi, _ := o.emu.Intent(id); pi.AmountRefunded != refunded {
			o.t.Errorf("of %s %d were given back, want %d", id, pi.AmountRefunded, refunded)
		}
	}
	o.resolvedOnce(finding, "refund")
	if got := one[string](o, `SELECT state || ' ' || (refund <> '')::text || ' ' || (open_sends = 0)::text FROM billing.refund_orders WHERE try = 1`); got != "refunded true true" {
		o.t.Errorf("the order is %s", got)
	}
	if got := one[string](o, `SELECT state || ' ' || payment_intent || ' ' || amount_refunded_minor FROM billing.charges WHERE account_id = 'a0001'`); got != "succeeded "+right+" 0" {
		o.t.Errorf("the charge is %s", got)
	}
	o.refused("was resolved before: refunded by tester", "resolve", "--finding", finding, "--as", "refund", "--why", "agreed", "--yes")
	o.month(0)
}

// Without --yes the refund is shown as it would be sent, key and body, and neither Stripe
// nor the ledger is touched; with it exactly that is sent.
func TestARefundIsShownBeforeItIsMade(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	right, second, id := o.paidTwice()
	before := o.resolutionText()
	shown := o.resolveAs(0, id, "refund")
	shown.says(t, "10.01 usd of payment "+second+" would be given back", "POST /v1/refunds payment_intent="+second+"&amount=1001&reason=duplicate",
		"finding/"+id+"/"+second+"/refund", right, "the same command with --yes makes it")
	o.resolveAs(0, id, "refund", "--json")
	o.resolveAs(0, id, "refund", "--yes", "--dry-run").says(t, "nothing was sent")
	if o.resolutionText() != before || o.emu.Count(opRefund) > 0 {
		t.Error("showing it did something")
	}
	o.resolveAs(0, id, "refund", "--yes").says(t, "10.01 usd of payment "+second+" given back, refund re_")
	if sent := o.refundsSent(); !strings.Contains(shown.stdout, strings.SplitN(sent[0], " ", 2)[1]) {
		t.Errorf("it sent %q", sent)
	}
	o.givenBackOnce(right, second, id, 1)
}

// Whatever becomes of a refund's request or answer, running the same command again
// leaves one refund, sent under one key with one body.
func TestALostAnswerAboutARefundIsNoSecondRefund(t *testing.T) {
	t.Parallel()
	for kind, sends := range map[stripeemu.FaultKind]int{
		stripeemu.FaultLoseRequest: 2, stripeemu.FaultLoseAnswer: 1, stripeemu.FaultError500Done: 1, stripeemu.FaultRateLimit429: 2,
		stripeemu.FaultLockTimeout429: 2, stripeemu.FaultInUse409: 2, stripeemu.FaultUnavailable503: 2, stripeemu.FaultCutBody: 1,
		stripeemu.FaultEmptyObject: 1, stripeemu.FaultHTML502: 1, stripeemu.FaultHTML200: 1, stripeemu.FaultEmpty204: 1, stripeemu.FaultRedirect307: 2,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			right, second, id := o.paidTwice()
			o.emu.Inject(stripeemu.Fault{Name: kind, Operation: opRefund, Times: 1})
			o.resolveAs(75, id, "refund", "--yes").says(t, "is not known", "run the same command again")
			if got := one[string](o, `SELECT state FROM billing.refund_orders`); got != "pending" {
				t.Errorf("the order is %s", got)
			}
			o.refused("a refund of "+second+" was ordered", "resolve", "--finding", id, "--as", "accept", "--why", "agreed")
			o.refused("without --amount goes on with it", "resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes", "--amount", "5")
			o.resolveAs(0, id, "refund", "--yes")
			o.givenBackOnce(right, second, id, sends)
		})
	}
}

// A process that is killed before its request arrives, or after, leaves what the next
// one needs to go on.
func TestAKilledRefundIsGoneOnWith(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault stripeemu.FaultKind
		sends int
	}{"before the work": {stripeemu.FaultHang, 2}, "after it": {stripeemu.FaultHoldRequest, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			right, second, id := o.paidTwice()
			o.emu.Inject(stripeemu.Fault{Name: c.fault, Operation: opRefund, Times: 1})
			p := o.start("resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes")
			eventually(t, "the refund is on its way", func() bool { return o.emu.Count(opRefund) == 1 })
			p.kill()
			o.emu.Release()
			if c.fault == stripeemu.FaultHoldRequest {
				eventually(t, "Stripe did it", func() bool { pi, _ := o.emu.Intent(second); return pi.AmountRefunded > 0 })
			} else {
				o.resolveAs(75, id, "refund", "--yes").says(t, "somebody else is sending the refund")
			}
			o.advance(3 * time.Minute)
			o.resolveAs(0, id, "refund", "--yes")
			o.givenBackOnce(right, second, id, c.sends)
		})
	}
}

// The order is recorded before anything is sent: stopped between the two, nothing was
// sent, and the same order goes on.
func TestARefundIsRecordedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	right, second, id := o.paidTwice()
	o.exec(`CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stopped' USING ERRCODE = '57P01'; END $$`)
	o.exec(`CREATE TRIGGER stop BEFORE UPDATE ON billing.refund_orders FOR EACH ROW EXECUTE FUNCTION stop()`)
	o.resolveAs(69, id, "refund", "--yes")
	o.exec(`DROP TRIGGER stop ON billing.refund_orders`)
	if got := one[string](o, `SELECT state || ' ' || sends || ' ' || ordered_by || ' ' || why FROM billing.refund_orders`); got != "pending 0 tester agreed" || o.emu.Count(opRefund) > 0 {
		t.Errorf("%s, %d sent", got, o.emu.Count(opRefund))
	}
	o.exec(`CREATE TRIGGER stop BEFORE INSERT ON billing.finding_events FOR EACH ROW EXECUTE FUNCTION stop()`)
	o.resolveAs(69, id, "refund", "--yes")
	o.exec(`DROP TRIGGER stop ON billing.finding_events`)
	if n := o.emu.Count(opRefund); n != 1 {
		t.Errorf("%d sent", n)
	}
	o.advance(3 * time.Minute)
	o.resolveAs(0, id, "refund", "--yes")
	o.givenBackOnce(right, second, id, 1)
	for _, change := range []string{"body = 'x'", "amount_minor = 1", "payment_intent = 'pi_x'", "idempotency_key = 'k'", "window_opened_at = now()"} {
		if _, err := o.db.Pool.Exec(context.Background(), `UPDATE billing.refund_orders SET `+change); err == nil {
			t.Errorf("%s was not refused", change)
		}
	}
}

// Two people who order the same refund at once give the money back once.
func TestTwoRefundsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	right, second, id := o.paidTwice()
	var running []process
	for range 3 {
		running = append(running, o.start("resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes"))
	}
	won := 0
	for _, p := range running {
		switch r := p.wait(); r.code {
		case 0:
			won++
		case 64, 75:
		default:
			t.Error(r)
		}
	}
	if won == 0 {
		o.advance(3 * time.Minute)
		o.resolveAs(0, id, "refund", "--yes")
	}
	o.givenBackOnce(right, second, id, len(o.refundsSent()))
}

// Two findings about one payment never give it back twice, in part or whole.
func TestOnePaymentIsRefundedAboutOneFindingAtATime(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
		VALUES ('orphan', 'act', 'monthly-billing', $1, 'a0001', $2, $3, 'usd')`, october, keyOf("a0001"), second)
	other := one[string](o, `SELECT id::text FROM billing.findings WHERE kind = 'orphan'`)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
	o.resolveAs(75, id, "refund", "--yes", "--amount", "4.00")
	o.refused("is being refunded about another finding", "resolve", "--finding", other, "--as", "refund", "--why", "agreed", "--yes")
	o.resolveAs(0, id, "refund", "--yes")
	o.resolveAs(0, other, "refund").says(t, "6.01 usd of payment "+second)
}

// A refund whose 23 hours are over is looked up and never sent again under its key. A
// person may order it anew, under another, once Stripe can't complete the first.
func TestARefundPastItsWindowIsHeld(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, second, id := o.paidTwice()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Operation: opRefund, Times: 1})
	o.resolveAs(75, id, "refund", "--yes")
	o.advance(23 * time.Hour)
	o.resolveAs(75, id, "refund", "--yes").says(t, "a request may still be on its way", "run the same command again after")
	o.advance(time.Hour)
	o.resolveAs(4, id, "refund", "--yes").says(t, "stays open", "Stripe shows no refund")
	o.resolveAs(75, id, "refund", "--yes").says(t, "Stripe may still make it", "again after")
	if n := o.emu.Count(opRefund); n != 1 {
		t.Errorf("%d were sent", n)
	}
	o.advance(72 * time.Hour)
	o.resolveAs(0, id, "refund", "--yes")
	if sent := o.refundsSent(); len(sent) != 2 || !strings.HasPrefix(sent[1], "finding/"+id+"/"+second+"/refund/r2 ") {
		t.Errorf("sent %q", sent)
	}
	if pi, _ := o.emu.Intent(second); pi.AmountRefunded != 1001 {
		t.Errorf("%d were given back", pi.AmountRefunded)
	}
}

// The payment that stands for a debt is never the one that is given back: not where the
// finding names it, not where the other one is gone, and not while neither is settled.
func TestTheRightPaymentIsNeverRefunded(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	right, second, id := o.paidTwice()
	o.exec(`UPDATE billing.findings SET payment_intent = $1`, right)
	refund := []string{"resolve", "--finding", id, "--as", "refund", "--why", "agreed", "--yes"}
	o.refused("not the second one", refund...)
	o.refused("not the second one", append(refund, "--amount", "10.01")...)
	o.exec(`UPDATE billing.findings SET kind = 'amount_mismatch'`)
	o.refused("type with --amount how much", refund...)
	o.must(0, append(refund, "--amount", "1.00")...)
	if got := one[int](o, `SELECT amount_refunded_minor FROM billing.charges WHERE account_id = 'a0001'`); got != 100 {
		t.Errorf("the charge has %d given back", got)
	}
	o.exec(`UPDATE billing.findings SET kind = 'duplicate', payment_intent = $1, resolved_at = NULL`, second)
	if err := o.emu.Refund(right, 0); err != nil {
		t.Fatal(err)
	}
	o.refused("the debt would not be paid at all", refund...)
	if pi, _ := o.emu.Intent(second); pi.AmountRefunded > 0 {
		t.Errorf("the second payment was given back")
	}
}

// What Stripe says about a refund decides: one that it refuses leaves the finding open,
// and a payment that somebody gave back meanwhile is resolved by that refund.
func TestStripesWordOnARefundCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code       int
		state      string
		meanwhile  func(s *stripeemu.Server, payment string) error
		resolution string
	}{
		"given back by hand": {0, "refused", func(s *stripeemu.Server, id string) error { return s.Refund(id, 0) }, "refunded"},
		"disputed":           {4, "refused", func(s *stripeemu.Server, id string) error { return s.Dispute(id) }, ""},
		"partly given back":  {4, "refused", func(s *stripeemu.Server, id string) error { return s.Refund(id, 1) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o *office
			second := ""
			o = newOffice(t, stripeemu.Config{AnyCustomer: true, OnRequest: func(r *stripeemu.Request) {
				if r.Method == "POST" && r.Path == "/v1/refunds" {
					if err := c.meanwhile(o.emu, second); err != nil {
						t.Error(err)
					}
				}
			}})
			var id string
			_, second, id = o.paidTwice()
			o.resolveAs(c.code, id, "refund", "--yes")
			if got := one[string](o, `SELECT o.state || ' ' || f.resolution FROM billing.refund_orders o, billing.findings f`); got != c.state+" "+c.resolution {
				t.Errorf("the order is %s", got)
			}
		})
	}
}

// Kinds of keys that may not give money back end with 77, and the order waits.
func TestAKeyThatMayNotRefund(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	right, second, id := o.paidTwice()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultForbidden403, Operation: opRefund, Times: 1})
	o.resolveAs(77, id, "refund", "--yes")
	o.resolveAs(0, id, "refund", "--yes")
	o.givenBackOnce(right, second, id, 2)
}

// A ledger that was restored from a backup finds the refund that it forgot.
func TestARestoredLedgerFindsItsRefund(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, _, id := o.paidTwice()
	backup := o.db.Snapshot(t)
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4")
	o.db.RestoreSnapshot(t, backup)
	o.resolveAs(0, id, "refund", "--yes", "--amount", "4").says(t, "4.00 usd")
	if n := o.emu.Count(opRefund); n != 1 {
		t.Errorf("%d refunds were sent", n)
	}
}
