package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// chargedAndRestored is a month that was charged, whose ledger was put back to
// before record, three hours later.
func chargedAndRestored(t *testing.T, list []customer) *restored {
	t.Helper()
	r := newRestored(t)
	r.list = list
	r.imports(october, list)
	r.backup = r.db.Snapshot(t)
	r.month(0)
	r.db.RestoreSnapshot(t, r.backup)
	r.advance(3 * time.Hour)
	return r
}

// sequences is where every sequence of the ledger stands.
func (o *office) sequences() string {
	o.t.Helper()
	return one[string](o, `SELECT string_agg(sequencename || ' ' || coalesce(last_value, 0), E'\n' ORDER BY sequencename)
		FROM pg_sequences WHERE schemaname = 'billing'`)
}

// A rebuild that is only tried says what it would do and changes nothing at all:
// no row, no sequence, no request but reads.
func TestADryRebuildChangesNothing(t *testing.T) {
	t.Parallel()
	for name, upTo := range map[string]func(*restored){
		"before record":             func(r *restored) {},
		"between record and charge": (*restored).recordedUnsent,
		"in the middle":             func(r *restored) { r.killedAfter(8) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			r.imports(october, r.list)
			upTo(r)
			r.backup = r.db.Snapshot(t)
			r.month(0)
			r.db.RestoreSnapshot(t, r.backup)
			r.advance(30 * time.Hour)
			r.env["STRIPE_SECRET_KEY"] = readOnlyKey
			rows, sequences, posts := r.ledgerText(), r.sequences(), r.emu.Posts()
			got := r.run("reconcile", "--period", october, "--rebuild", "--dry-run")
			if diff := cmp.Diff(rows, r.ledgerText()); diff != "" {
				t.Errorf("rows changed:\n%s", diff)
			}
			if diff := cmp.Diff(sequences, r.sequences()); diff != "" || r.emu.Posts() != posts {
				t.Errorf("%d POSTs, sequences moved:\n%s", r.emu.Posts()-posts, diff)
			}
			if n := one[int](r.office, `SELECT count(*) FROM billing.period_events WHERE action = 'rebuild'`); n != 0 || !strings.Contains(got.stdout, "nothing was changed (dry run)") {
				t.Errorf("%d events of the period\n%s", n, got)
			}
		})
	}
}

// A payment for which the ledger has neither a charge nor an invoice needs a
// person; once the invoice is back the next rebuild records and settles its
// charge, and the finding says itself that it is resolved.
func TestAPaymentWithoutAnInvoiceIsReportedUntilItsInvoiceIsBack(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.list = customers(6)
	r.must(0, "import", "accounts", "--file", r.file("accounts.csv", accountsCSV(r.list)))
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("invoices.csv", invoicesCSV(r.list[:4])))
	r.backup = r.db.Snapshot(t)
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("all.csv", invoicesCSV(r.list)))
	r.month(0)
	r.db.RestoreSnapshot(t, r.backup)
	r.advance(3 * time.Hour)

	got := r.rebuilt()
	if n := r.unrecorded(); got.code != 4 || n != 2 || !strings.Contains(got.stdout, "a0006") {
		t.Errorf("want two findings and exit 4, have %d\n%s", n, got)
	}
	if again := r.rebuilt(); again.code != 4 || r.unrecorded() != 2 {
		t.Errorf("rebuilt again: %d findings\n%s", r.unrecorded(), again)
	}
	r.month(4)
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("all.csv", invoicesCSV(r.list)))
	r.month(4) // it is done without them, and they are named
	if got := r.rebuilt(); got.code != 0 || r.unrecorded() != 0 {
		t.Errorf("with the invoices: %d findings are open, want none and exit 0\n%s", r.unrecorded(), got)
	}
	if got := one[string](r.office, `SELECT string_agg(resolved_by || ': ' || why, ', ') FROM billing.findings`); got !=
		"billing: the charge is recorded, and succeeded, billing: the charge is recorded, and succeeded" {
		t.Errorf("the findings were resolved by %q", got)
	}
	r.month(0)
	if r.mustBeWhole(); r.emu.Posts() != 6 {
		t.Errorf("%d POSTs for six debts", r.emu.Posts())
	}
}

// A PaymentIntent of a try that the ledger does not know: if it is paid the charge
// is, else a person must look, and nothing is sent again.
func TestATryThatTheLedgerDoesNotKnow(t *testing.T) {
	t.Parallel()
	list := customers(2)
	list[0].card, list[1].card = "pm_card_chargeCustomerFail_a", "pm_card_chargeCustomerFail_b"
	r := chargedAndRestored(t, list)
	for i, status := range []string{"succeeded", "requires_payment_method"} {
		pi := r.emu.IntentsFor(ledger.BillingKey("monthly-billing", october, list[i].id))[0]
		pi.ID, pi.Status, pi.Created = "", status, pi.Created.Add(time.Hour)
		pi.Metadata["billing_try"] = "2"
		r.emu.AddIntent(pi)
	}
	posts := r.emu.Posts()
	got := r.rebuilt()
	if a, b := r.state("a0001"), r.state("a0002"); a != "succeeded" || b != "review" || got.code != 4 {
		t.Errorf("paid by an unknown try: %s, declined by one: %s; want succeeded, review and exit 4\n%s", a, b, got)
	}
	if kinds := one[string](r.office, `SELECT string_agg(kind || ' ' || account_id, ' ') FROM billing.findings WHERE resolved_at IS NULL`); kinds != "unknown_try a0002" {
		t.Errorf("findings %q", kinds)
	}
	r.month(4)
	r.advance(80 * time.Hour)
	r.month(4)
	if n := r.emu.Posts() - posts; n != 0 {
		t.Errorf("%d POSTs after it", n)
	}
	r.mustBeWhole()
}

// An invoice that comes back with another amount than what was paid is never taken
// for equal, and never charged: a person must look.
func TestAnInvoiceThatComesBackWithAnotherAmountIsNeverSettledAsEqual(t *testing.T) {
	t.Parallel()
	list := customers(3)
	r := newRestored(t)
	r.must(0, "import", "accounts", "--file", r.file("accounts.csv", accountsCSV(list)))
	r.backup = r.db.Snapshot(t)
	r.imports(october, list)
	r.month(0)
	r.db.RestoreSnapshot(t, r.backup)
	r.advance(3 * time.Hour)
	paid := list[1].amount
	list[1].amount = "99.99"
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("invoices.csv", invoicesCSV(list)))
	posts := r.emu.Posts()
	got := r.rebuilt()
	if r.state("a0002") != "review" || r.state("a0003") != "succeeded" || got.code != 4 {
		t.Errorf("paid %s, owed 99.99: the charge is %s\n%s", paid, r.state("a0002"), got)
	}
	finding := one[string](r.office, `SELECT kind || ': ' || expected || '; ' || seen FROM billing.findings WHERE resolved_at IS NULL`)
	if !strings.HasPrefix(finding, "not_as_asked: 99.99 usd") || !strings.Contains(finding, "1002 usd") {
		t.Errorf("the finding says %q", finding)
	}
	r.month(4)
	r.advance(80 * time.Hour)
	r.month(4)
	r.rebuilt()
	if r.state("a0002") != "review" || r.emu.Posts() != posts {
		t.Errorf("it is %s, after %d POSTs", r.state("a0002"), r.emu.Posts()-posts)
	}
}

// A rebuild beside a run is busy, and changes nothing: not even who wanted it.
func TestARebuildBesideARunIsBusy(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.env["BILLING_LEASE"] = "1m"
	r.imports(october, r.list)
	r.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Skip: 3, Times: 1})
	p := r.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "a request is under way", func() bool { return r.emu.Held() == 1 })
	rows := func() string {
		return one[string](r.office, `SELECT string_agg(t, E'\n' ORDER BY t) FROM (
			SELECT 'charge ' || c::text FROM billing.charges c UNION ALL SELECT 'attempt ' || a::text FROM billing.job_run_attempts a
			UNION ALL SELECT 'event ' || e::text FROM billing.charge_events e UNION ALL SELECT 'period ' || e::text FROM billing.period_events e
			UNION ALL SELECT 'finding ' || f::text FROM billing.findings f) x(t)`)
	}
	eventually(t, "the first answers are written", func() bool { return r.states(october)["pending"] <= 27 })
	before := rows()
	got := r.must(75, "reconcile", "--period", october, "--rebuild", "--why", "by mistake", "--json")
	if res := got.json(t); res.Outcome != "busy" {
		t.Errorf("want busy\n%s", got)
	}
	if diff := cmp.Diff(before, rows()); diff != "" {
		t.Errorf("a refused rebuild changed something:\n%s", diff)
	}
	r.emu.Release()
	if got := p.wait(); got.code != 0 {
		t.Errorf("the run beside it: want exit 0\n%s", got)
	}
	r.mustBeWhole()
}

// A rebuild that is killed half-way is repeated, and leaves what one would have.
func TestARebuildThatIsKilledIsRepeated(t *testing.T) {
	t.Parallel()
	for page := range 4 {
		t.Run(fmt.Sprintf("at page %d", page+1), func(t *testing.T) {
			t.Parallel()
			r := chargedAndRestored(t, customers(350))
			r.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Operation: stripeemu.OpList, Page: page + 1, Times: 1})
			p := r.start("reconcile", "--period", october, "--rebuild", "--why", "restored")
			eventually(t, "a page is being read, and those before it are settled", func() bool {
				return r.emu.Held() == 1 && r.states(october)["succeeded"] == 100*page
			})
			p.kill()
			r.emu.Release()
			eventually(t, "its claim is stale", func() bool {
				return one[bool](r.office, `SELECT heartbeat_at + lease < billing.now() FROM billing.job_runs`)
			})
			if got := r.rebuilt(); got.code != 0 || r.states(october)["succeeded"] != 350 {
				t.Errorf("repeated: %v\n%s", r.states(october), got)
			}
			r.month(0)
			r.mustBeWhole()
			if n := r.emu.IntentCount(); n != 350 {
				t.Errorf("%d PaymentIntents for 350 debts", n)
			}
		})
	}
}

// A rebuild of a period that is done reopens it, and keeps who wanted it and why;
// the run that follows ends it.
func TestARebuildOfADonePeriodReopensIt(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	r.imports(october, r.list[:28])
	r.month(0)
	r.backup = r.db.Snapshot(t)
	// A late invoice, which is charged and then forgotten by the restore.
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("late.csv", invoicesCSV(r.list[:29])))
	r.must(0, "import", "accounts", "--file", r.file("accounts.csv", accountsCSV(r.list)))
	r.must(0, "reopen", "--period", october, "--why", "a late invoice")
	r.month(0)
	r.db.RestoreSnapshot(t, r.backup)
	r.advance(30 * time.Hour)
	r.month(0) // it can't know
	if got := r.rebuilt(); got.code != 4 || r.unrecorded() != 1 {
		t.Errorf("%d payments are reported to be in no ledger, want one\n%s", r.unrecorded(), got)
	}
	if got := one[string](r.office, `SELECT string_agg(action || ' by ' || person || ': ' || why, ', ') FROM billing.period_events WHERE action <> 'close'`); got != "rebuild by tester: restored the backup" {
		t.Errorf("the period's history says %q", got)
	}
	r.must(0, "import", "accounts", "--file", r.file("accounts.csv", accountsCSV(r.list)))
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("late.csv", invoicesCSV(r.list[:29])))
	r.rebuilt()
	r.month(0)
	if r.state("a0029") != "succeeded" || r.unrecorded() != 0 {
		t.Errorf("the late invoice is %s, %d findings are open", r.state("a0029"), r.unrecorded())
	}
	r.mustBeWhole()
}

// What people did after the backup was made is forgotten by it, and is no reason
// to charge anybody again: a card that was imported late, a new try, a charge that
// was released, one that was withdrawn.
func TestWhatPeopleDidAfterTheBackupChargesNobodyTwice(t *testing.T) {
	t.Parallel()
	for _, later := range []time.Duration{3 * time.Hour, 30 * time.Hour} {
		t.Run(later.String(), func(t *testing.T) {
			t.Parallel()
			r := newRestored(t)
			mended := r.peopleAct()
			posts := r.emu.Posts()
			r.db.RestoreSnapshot(t, r.backup)
			r.advance(later)
			r.month(4) // it was done, and some were held and rejected
			r.mustHave("skipped", "skipped", "declined", "rejected", "rejected", "held", "held", "succeeded")
			r.rebuilt()
			r.mustHave("succeeded", "skipped", "declined", "succeeded", "rejected", "succeeded", "declined", "succeeded")
			if kinds := r.findings(); kinds != "unknown_try a0002, unknown_try a0005" {
				t.Errorf("the findings are %q", kinds)
			}
			r.month(4)
			r.must(0, "import", "accounts", "--file", r.file("mended.csv", accountsCSV(mended)))
			r.rebuilt()
			// The new try of the fifth was declined, which the ledger can't tell.
			r.mustHave("succeeded", "declined", "declined", "succeeded", "rejected", "succeeded", "declined", "succeeded")
			if kinds := r.findings(); kinds != "unknown_try a0005" {
				t.Errorf("the findings are %q", kinds)
			}
			r.must(4, "requeue", "--period", october, "--account", "a0005", "--why", "a new card")
			r.month(4)
			if n := r.emu.Posts() - posts; n != 0 {
				t.Errorf("%d POSTs although every charge had a PaymentIntent", n)
			}
			r.mustBeWhole()
		})
	}
}

// peopleAct leaves a month whose people mended what could not be charged: a backup
// is taken before they do. It returns the accounts as mended.
func (r *restored) peopleAct() (mended []customer) {
	r.t.Helper()
	list := customers(8)
	mended = slices.Clone(list)
	mended[1].card, mended[4].card = "pm_card_chargeCustomerFail_2", "pm_card_chargeCustomerFail_5"
	list[0].card, list[1].card = "", ""
	list[2].card, list[6].card = "pm_card_chargeCustomerFail_3", "pm_card_chargeCustomerFail_7"
	mended[2], mended[6] = list[2], list[6]
	list[3].card, list[4].card = "pm_gone_4", "pm_gone_5"
	for _, c := range list[3:5] {
		r.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: c.card, Customer: c.customer, Alias: "pm_card_visa"})
		r.emu.DetachPaymentMethod(c.card)
	}
	r.imports(october, list)
	for _, c := range list[5:7] {
		r.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultError500Undone, Method: "POST", Account: c.id})
	}
	r.month(75)
	r.emu.ClearFaults()
	r.advance(24 * time.Hour)
	r.month(4)
	r.backup = r.db.Snapshot(r.t)
	r.must(0, "void", "--period", october, "--account", "a0003", "--why", "paid by bank transfer")
	r.must(0, "import", "accounts", "--file", r.file("mended.csv", accountsCSV(mended)))
	r.must(0, "release", "--period", october, "--all", "--why", "nobody was charged")
	r.must(0, "requeue", "--period", october, "--all", "--why", "new cards")
	r.month(0)
	r.mustHave("succeeded", "declined", "void", "succeeded", "declined", "succeeded", "declined", "succeeded")
	return mended
}

// mustHave wants the charges, in the order of their accounts, in these states.
func (r *restored) mustHave(states ...string) {
	r.t.Helper()
	got := one[string](r.office, `SELECT string_agg(state, ' ' ORDER BY account_id) FROM billing.charges`)
	if want := strings.Join(states, " "); got != want {
		r.t.Errorf("the charges are\n%s, want\n%s", got, want)
	}
}

// findings are the open ones, by account.
func (r *restored) findings() string {
	return one[string](r.office, `SELECT coalesce(string_agg(kind || ' ' || account_id, ', ' ORDER BY account_id, kind), '')
		FROM billing.findings WHERE resolved_at IS NULL`)
}

// A rebuild reads each page once, and needs little memory, also for many payments.
func TestARebuildReadsEachPageOnce(t *testing.T) {
	t.Parallel()
	sizes := []int{3_000}
	if os.Getenv("BILLING_PROOF") != "" {
		sizes = []int{3_000, 12_000}
	}
	var memory []int
	for _, n := range sizes {
		r := newRestored(t)
		r.imports(october, customers(n))
		for i, c := range customers(n) {
			r.emu.AddIntent(stripeemu.PaymentIntent{
				Status: "succeeded", Amount: int64(1001 + i), Currency: "usd", Customer: c.customer,
				Metadata: map[string]string{"billing_key": ledger.BillingKey("monthly-billing", october, c.id), "billing_job": "monthly-billing",
					"billing_period": october, "billing_account": c.id, "billing_try": "1"},
			})
		}
		r.advance(3 * time.Hour)
		r.env["GODEBUG"] = "gctrace=1"
		p := r.start("reconcile", "--period", october, "--rebuild", "--why", "restored")
		got := p.wait()
		if got.code != 0 || r.states(october)["succeeded"] != n {
			t.Fatalf("%v\n%s", r.states(october), got)
		}
		if pages := r.emu.Count(stripeemu.OpList); pages > n/100+10 || r.emu.RequestCount() > n/100+12 {
			t.Errorf("%d pages, %d requests for %d payments", pages, r.emu.RequestCount(), n)
		}
		memory = append(memory, largestHeap(got.stderr))
		r.mustBeWhole()
	}
	t.Logf("heap at most: %v MB for %v payments", memory, sizes)
	if last := memory[len(memory)-1]; memory[0] == 0 || last > 16 {
		t.Errorf("heap of %v MB for %v payments", memory, sizes)
	}
}

var heapAtGC = regexp.MustCompile(`(?m)^gc .* \d+->(\d+)->\d+ MB`)

// largestHeap reads gctrace. What the system measures begins with the forking process.
func largestHeap(trace string) (most int) {
	for _, m := range heapAtGC.FindAllStringSubmatch(trace, -1) {
		mb, _ := strconv.Atoi(m[1])
		most = max(most, mb)
	}
	return most
}

// An account that was declined, and is paused by the time that the ledger is restored,
// stays skipped: its payment stops nobody else's charge, and is named until a person has
// looked. Once it is active again a rebuild finds the decline.
func TestAPaymentOfAnAccountThatIsPausedSinceStopsNoRun(t *testing.T) {
	t.Parallel()
	list := customers(3)
	list[0].card = "pm_card_chargeCustomerFail_a"
	r := chargedAndRestored(t, list)
	r.accountIs(list[0], "paused")
	if got := r.rebuilt(); got.code != 4 {
		t.Errorf("a rebuild with a payment of a paused account\n%s", got)
	}
	late := append(slices.Clone(list), customers(4)[3])
	r.must(0, "import", "accounts", "--file", r.file("late.csv", accountsCSV(late[3:])))
	r.must(0, "import", "invoices", "--period", october, "--file", r.file("late-invoices.csv", invoicesCSV(late)))
	r.must(0, "reopen", "--period", october, "--why", "a late invoice")
	r.month(4)
	if got := r.states(october); got["succeeded"] != 3 || got["skipped"] != 1 {
		t.Errorf("charges are %v; want three succeeded, and the paused one skipped", got)
	}
	if got := r.findings(); !strings.Contains(got, "a0001") {
		t.Errorf("nobody is told of the payment of a0001: findings %q", got)
	}

	r.accountIs(list[0], "active")
	r.must(0, "reopen", "--period", october, "--why", "a0001 is active again")
	r.month(3)
	r.rebuilt()
	r.mustHave("declined", "succeeded", "succeeded", "succeeded")
	if r.mustBeWhole(); len(r.emu.IntentsFor(ledger.BillingKey("monthly-billing", october, "a0001"))) != 1 {
		t.Error("a0001 was charged again")
	}
}

// accountIs imports one account with a status.
func (o *office) accountIs(c customer, status string) {
	o.t.Helper()
	o.must(0, "import", "accounts", "--file", o.file("account.csv", "account_id,stripe_customer,payment_method,currency,status\n"+
		strings.Join([]string{c.id, c.customer, c.card, c.currency, status}, ",")+"\n"))
}

// A charge that was never sent, as a restored ledger says, may be requeued, but not
// before Stripe can't complete any more what the ledger forgot.
func TestARequeueInARestoredLedgerWaitsForWhatItForgot(t *testing.T) {
	t.Parallel()
	list := customers(4)
	r := newRestored(t)
	r.list = list
	r.imports(october, list)
	r.accountIs(list[0], "paused")
	key := r.env["STRIPE_SECRET_KEY"]
	r.env["STRIPE_SECRET_KEY"] = readOnlyKey
	r.month(77, "--concurrency", "1") // so that others were never sent
	r.env["STRIPE_SECRET_KEY"] = key
	r.backup = r.db.Snapshot(t)
	r.month(0)
	r.db.RestoreSnapshot(t, r.backup)
	r.advance(time.Hour)
	r.rebuilt()
	r.mustHave("skipped", "succeeded", "succeeded", "succeeded")
	r.accountIs(list[0], "active")
	got := r.run("requeue", "--period", october, "--account", "a0001", "--why", "its card is there")
	if got.code != 75 || !strings.Contains(got.stdout, "nothing before") {
		t.Errorf("requeued at once\n%s", got)
	}
	r.advance(73 * time.Hour)
	r.must(0, "requeue", "--period", october, "--account", "a0001", "--why", "its card is there")
	r.month(0)
	r.mustBeWhole()
}
