package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// restored is a month that was run, and whose ledger was then put back to an
// earlier moment of it.
type restored struct {
	*office
	list   []customer
	fates  map[string]ledger.ChargeState
	backup string
	began  time.Time // of the month's first run
}

// restoredCards are what the customers of a restored month pay with, and what must
// become of their charges in the end.
var restoredCards = []struct {
	card, amount string
	state        ledger.ChargeState
}{
	{"pm_card_visa", "10.00", ledger.ChargeSucceeded},
	{"pm_card_chargeCustomerFail", "11.00", ledger.ChargeDeclined},
	{"pm_card_visa", "12.00", ledger.ChargeSucceeded},
	{"pm_card_authenticationRequired", "13.00", ledger.ChargeActionRequired},
	{"pm_usBankAccount_success", "14.00", ledger.ChargeProcessing},
	{"pm_card_visa", "0.00", ledger.ChargeSkipped},
	{"pm_card_visa", "15.00", ledger.ChargeSucceeded},
}

// ofEveryKind makes five customers of each kind, a0001 and on.
func ofEveryKind() (list []customer, fates map[string]ledger.ChargeState) {
	list, fates = customers(5*len(restoredCards)), map[string]ledger.ChargeState{}
	for i := range list {
		kind := restoredCards[i%len(restoredCards)]
		list[i].card, list[i].amount = fmt.Sprintf("%s_%d", kind.card, i), kind.amount
		fates[list[i].id] = kind.state
	}
	return list, fates
}

// backups are the moments of a month at which it is saved. Each leaves the month
// at that moment, with nobody connected.
var backups = []struct {
	name string
	upTo func(*restored)
}{
	{"before the invoices", func(r *restored) {
		r.must(0, "import", "accounts", "--file", r.file("accounts.csv", accountsCSV(r.list)))
	}},
	{"before record", func(r *restored) { r.imports(october, r.list) }},
	{"between record and charge", func(r *restored) {
		r.imports(october, r.list)
		r.recordedUnsent()
	}},
	{"from the middle of charging", func(r *restored) {
		r.imports(october, r.list)
		r.killedAfter(8)
	}},
}

// recordedUnsent ends a run before its first charge leaves: its key may not charge.
func (r *restored) recordedUnsent() {
	r.t.Helper()
	key := r.env["STRIPE_SECRET_KEY"]
	r.env["STRIPE_SECRET_KEY"] = readOnlyKey
	r.month(77, "--concurrency", "1")
	r.env["STRIPE_SECRET_KEY"] = key
	if n := one[int](r.office, `SELECT count(*) FROM billing.charges WHERE state = 'pending' AND open_sends = 0`); n != 30 || r.emu.IntentCount() != 0 {
		r.t.Fatalf("%d charges recorded and not sent, %d PaymentIntents; want 30 and none", n, r.emu.IntentCount())
	}
}

// killedAfter kills a run that has n answers and waits for the next.
func (r *restored) killedAfter(n int) {
	r.t.Helper()
	id := r.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: n, Times: 1})
	p := r.start("run", "--period", october, "--concurrency", "1")
	eventually(r.t, "a request is under way", func() bool { return r.emu.Held() == 1 })
	p.kill()
	r.emu.Release()
	eventually(r.t, "nothing is under way", func() bool { return r.emu.Held() == 0 })
	r.emu.RemoveFault(id)
}

// endings are how the month went on after the backup.
var endings = []struct {
	name string
	run  func(*restored)
}{
	{"ended well", func(r *restored) { r.month(0) }},
	{"was killed", func(r *restored) { r.killedAfter(11) }},
	{"lost answers and got 5xx", (*restored).metFaults},
}

// metFaults runs the month while ten answers are lost, or are errors of Stripe's
// own, until all else is settled.
func (r *restored) metFaults() {
	r.t.Helper()
	faults := map[string]stripeemu.FaultKind{
		"a0015": stripeemu.FaultLoseAnswer, "a0016": stripeemu.FaultLoseAnswer, "a0017": stripeemu.FaultError500Done,
		"a0018": stripeemu.FaultLoseAnswer, "a0019": stripeemu.FaultLoseAnswer, "a0021": stripeemu.FaultError500Undone,
		"a0022": stripeemu.FaultLoseRequest, "a0023": stripeemu.FaultError500Done, "a0024": stripeemu.FaultHTML502,
		"a0028": stripeemu.FaultError500Undone,
	}
	for account, f := range faults {
		r.emu.Inject(stripeemu.Fault{Name: f, Method: "POST", Account: account})
	}
	p := r.start("run", "--period", october)
	eventually(r.t, "all but those that met a fault are settled", func() bool {
		met := map[string]bool{}
		for _, req := range r.emu.Requests() {
			if req.Fault != "" && req.Method == "POST" {
				met[req.Account] = true
			}
		}
		return len(met) >= len(faults) && r.states(october)["pending"] == len(faults)
	})
	p.signal(syscall.SIGTERM)
	if got := p.wait(); got.code != 143 {
		r.t.Errorf("interrupted: want exit 143\n%s", got)
	}
	r.emu.ClearFaults()
}

// eachRestored calls do with months of every kind, just before their backup is
// restored: for each moment of the backup and each way in which the month then
// went on, one of the delays, another one for each shift, and in the proof all three.
func eachRestored(t *testing.T, shift int, do func(r *restored, invoicesLost bool, now time.Time)) {
	for b, backup := range backups {
		for e, ending := range endings {
			for d, later := range []time.Duration{3 * time.Hour, 30 * time.Hour, 80 * time.Hour} {
				if os.Getenv("BILLING_PROOF") == "" && (b+e+shift)%3 != d {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, after %s", backup.name, ending.name, later), func(t *testing.T) {
					t.Parallel()
					r := newRestored(t)
					backup.upTo(r)
					r.backup = r.db.Snapshot(t)
					invoicesLost := one[int](r.office, `SELECT count(*) FROM billing.invoices`) == 0
					if invoicesLost {
						r.imports(october, r.list)
					}
					ending.run(r)
					do(r, invoicesLost, r.began.Add(later))
				})
			}
		}
	}
}

// After a backup was restored and rebuilt, and the month run again, nobody was
// charged twice and nobody is forgotten: whenever the backup was made, however the
// month went on, and however late it was restored.
func TestARestoredLedgerThatIsRebuiltChargesNobodyTwiceAndForgetsNobody(t *testing.T) {
	t.Parallel()
	eachRestored(t, 0, (*restored).rebuiltAt)
}

// Without a rebuild a run stops, or goes on safely.
func TestARunAloneOfARestoredLedgerChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	eachRestored(t, 1, (*restored).runAt)
}

func newRestored(t *testing.T) *restored {
	t.Helper()
	r := &restored{office: newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedReadOnlyKeys: []string{readOnlyKey}})}
	r.env["BILLING_LEASE"] = "1s"
	r.list, r.fates = ofEveryKind()
	r.began = r.emu.Now()
	return r
}

const readOnlyKey = "rk_test_readonly"

// rebuilt rebuilds October from what Stripe shows. It charges nobody, whatever it
// finds, and needs no key that could.
func (r *restored) rebuilt() outcome {
	r.t.Helper()
	key, posts := r.env["STRIPE_SECRET_KEY"], r.emu.Posts()
	r.env["STRIPE_SECRET_KEY"] = readOnlyKey
	got := r.run("reconcile", "--period", october, "--rebuild", "--why", "restored the backup")
	r.env["STRIPE_SECRET_KEY"] = key
	if n := r.emu.Posts() - posts; n != 0 {
		r.t.Errorf("a rebuild sent %d POSTs\n%s", n, got)
	}
	if got.code != 0 && got.code != 4 && got.code != 75 {
		r.t.Fatalf("a rebuild ends with 0, 4 or 75\n%s", got)
	}
	return got
}

// rebuiltAt restores the backup at a moment, rebuilds and runs.
func (r *restored) rebuiltAt(invoicesLost bool, now time.Time) {
	r.t.Helper()
	r.db.RestoreSnapshot(r.t, r.backup)
	r.setNow(now)
	if invoicesLost {
		r.rebuiltWithoutInvoices()
	}
	got := r.rebuilt()
	r.mustNotForget()
	next := r.run("run", "--period", october)
	r.t.Logf("rebuild: exit %d; run: exit %d, %v", got.code, next.code, r.states(october))
	r.mustNotForget()
	r.mustBeWhole()
	r.mustEnd()
}

// rebuiltWithoutInvoices finds payments and nothing that says what they are for,
// and does not take the month for done.
func (r *restored) rebuiltWithoutInvoices() {
	r.t.Helper()
	got := r.rebuilt()
	if n := r.unrecorded(); n != r.moneyMoved() || got.code != 4 {
		r.t.Errorf("%d of %d payments are reported to be in no ledger; want all, and exit 4\n%s", n, r.moneyMoved(), got)
	}
	r.month(3) // not closed
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("invoices.csv", invoicesCSV(r.list)))
}

// unrecorded counts the open findings about payments that are in no ledger.
func (r *restored) unrecorded() int {
	return one[int](r.office, `SELECT count(*) FROM billing.findings WHERE kind = 'not_recorded' AND resolved_at IS NULL`)
}

// moneyMoved counts the payments at Stripe that are paid or under way.
func (r *restored) moneyMoved() (n int) {
	for _, pi := range r.emu.PaymentIntents() {
		if pi.Live() {
			n++
		}
	}
	return n
}

// runAt restores the backup at a moment and runs. A run that can't know what was
// charged sends nothing and says what to type.
func (r *restored) runAt(invoicesLost bool, now time.Time) {
	r.t.Helper()
	r.db.RestoreSnapshot(r.t, r.backup)
	r.setNow(now)
	if invoicesLost {
		r.must(0, "import", "invoices", "--period", october, "--file", r.file("invoices.csv", invoicesCSV(r.list)))
	}
	posts := r.emu.Posts()
	got := r.run("run", "--period", october)
	switch got.code {
	case 0, 4, 75:
		r.mustBeWhole()
	case 3:
		if n := r.emu.Posts() - posts; n != 0 || !strings.Contains(got.stderr, "--rebuild") {
			r.t.Errorf("it stopped after %d POSTs\n%s", n, got)
		}
		r.rebuilt()
		r.run("run", "--period", october)
	default:
		r.t.Fatalf("a run of a restored ledger ends with 0, 3, 4 or 75\n%s", got)
	}
	r.t.Logf("run: exit %d, %v", got.code, r.states(october))
	r.mustNotForget()
	r.mustEnd()
}

// mustNotForget wants every invoice's charge to be known, or to be waited for
// until a moment that status names, or to be a person's.
func (r *restored) mustNotForget() {
	r.t.Helper()
	states, s := r.states(october), r.must(0, "status", "--period", october)
	if n := one[int](r.office, `SELECT count(*) FROM billing.invoices i WHERE NOT EXISTS (
		SELECT FROM billing.charges c WHERE c.job = i.job AND c.period = i.period AND c.account_id = i.account_id)`); n > 0 &&
		!strings.Contains(s.stdout, fmt.Sprintf("invoices  %d ", n)) {
		r.t.Errorf("%d invoices have no charge and status does not say so\n%s", n, s)
	}
	if states["pending"] > 0 && !strings.Contains(s.stdout, "2026-11-0") {
		r.t.Errorf("%d charges are pending and status does not say until when\n%s", states["pending"], s)
	}
	if states["held"] > 0 && !strings.Contains(s.stdout, "billing release") {
		r.t.Errorf("%d charges are held and status does not say what to type\n%s", states["held"], s)
	}
}

// mustEnd lets three days and a person pass, and then wants every invoice to be in
// the state that its card decides, by one PaymentIntent at most.
func (r *restored) mustEnd() {
	r.t.Helper()
	for range 2 {
		if r.states(october)["pending"] > 0 {
			r.advance(74 * time.Hour)
			r.run("run", "--period", october)
		}
		if r.states(october)["held"] > 0 {
			r.must(0, "release", "--period", october, "--all", "--why", "nobody was charged")
			r.run("run", "--period", october)
		}
	}
	r.month(0)
	if n := r.unrecorded(); n != 0 {
		r.t.Errorf("%d findings about payments that are recorded by now are still open", n)
	}
	for account, want := range r.fates {
		if got := r.state(account); got != string(want) {
			r.t.Errorf("account %s ended as %s, its card makes it %s", account, got, want)
		}
		if n := len(r.emu.IntentsFor(ledger.BillingKey("monthly-billing", october, account))); n > 1 {
			r.t.Errorf("account %s has %d PaymentIntents", account, n)
		}
	}
	r.mustBeWhole()
}

// A request that Stripe failed before the restore, and completes by itself later, is
// forgotten by the ledger. What it calls never sent waits all the same.
func TestARestoredLedgerWaitsForWhatItCallsNeverSent(t *testing.T) {
	t.Parallel()
	for _, few := range []bool{false, true} { // read at once, or looked up one by one
		t.Run(fmt.Sprintf("one by one %v", few), func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			if few {
				r.ungated()
				r.imports("2026-09", manyMore())
				r.must(0, "run", "--period", "2026-09")
			}
			r.imports(october, r.list)
			key := r.env["STRIPE_SECRET_KEY"]
			r.env["STRIPE_SECRET_KEY"] = readOnlyKey
			r.month(77, "--concurrency", "1")
			r.env["STRIPE_SECRET_KEY"] = key
			backup := r.db.Snapshot(t)
			r.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRollforward, Method: "POST", Account: "a0001", Delay: 40 * time.Hour})
			p := r.start("run", "--period", october)
			eventually(t, "all others are answered", func() bool { return r.states(october)["pending"] == 1 })
			p.kill()
			r.emu.ClearFaults()
			r.db.RestoreSnapshot(t, backup)
			r.setNow(r.began.Add(30 * time.Hour))
			r.month(75)
			r.mustNotForget()
			r.setNow(r.began.Add(50 * time.Hour))
			r.run("run", "--period", october)
			if got := r.state("a0001"); got != "succeeded" {
				t.Errorf("account a0001 is %s", got)
			}
			if n := len(r.emu.IntentsFor("monthly-billing/2026-10/a0001")); n != 1 {
				t.Errorf("account a0001 was paid %d times", n)
			}
		})
	}
}

// manyMore are customers of another month, so that its payments outnumber this one's.
func manyMore() []customer {
	list := customers(3000)
	for i := range list {
		list[i].id = "other" + list[i].id
	}
	return list
}
