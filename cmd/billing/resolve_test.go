package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// resolutionText is what resolving can change, to be compared before and after.
func (o *office) resolutionText() string {
	o.t.Helper()
	return o.ledgerText() + one[string](o, `SELECT coalesce(string_agg(t, E'\n' ORDER BY t), '') FROM (
		SELECT 'finding event ' || e::text AS t FROM billing.finding_events e
		UNION ALL SELECT 'refund ' || r::text FROM billing.refund_orders r) x`)
}

// refused wants a command to be refused, with words, and nothing to be changed.
func (o *office) refused(words string, args ...string) {
	o.t.Helper()
	before := o.resolutionText()
	o.must(64, args...).says(o.t, words)
	if after := o.resolutionText(); after != before {
		o.t.Errorf("billing %v was refused and changed the ledger\n%s\n-- before\n%s", args, after, before)
	}
}

// paidTwice bills October for two customers, the first of whom paid a second time.
func (o *office) paidTwice() (right, second, finding string) {
	o.t.Helper()
	o.imports(october, customers(2))
	o.month(0)
	right = o.emu.IntentsFor(keyOf("a0001"))[0].ID
	o.advance(time.Minute)
	second = o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 1001, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	o.must(4, "reconcile", "--period", october, "--rebuild", "--why", "test")
	return right, second, o.finding("a0001")
}

// finding is the number of an account's only open finding.
func (o *office) finding(account string) string {
	o.t.Helper()
	return one[string](o, `SELECT id::text FROM billing.findings WHERE account_id = $1 AND resolved_at IS NULL`, account)
}

// inReview bills October for some customers for each of whom Stripe has a payment of
// another amount, which puts its charge into review.
func (o *office) inReview(n int, change func(i int, pi *stripeemu.PaymentIntent)) (payments []string) {
	o.t.Helper()
	list := customers(n + 1)
	o.imports(october, list)
	turned := faults{}
	for _, c := range list[:n] {
		turned[c.id] = stripeemu.FaultRateLimit429
	}
	o.meets(turned)
	for i, c := range list[:n] {
		pi := stripeemu.PaymentIntent{Amount: 500, Customer: c.customer, Metadata: ourKey(c.id, "1")}
		if change != nil {
			change(i, &pi)
		}
		payments = append(payments, o.emu.AddIntent(pi))
	}
	o.advance(26 * time.Hour)
	o.month(4)
	return payments
}

// resolveAs resolves one finding and wants an exit code.
func (o *office) resolveAs(code int, finding, as string, more ...string) outcome {
	o.t.Helper()
	return o.must(code, append([]string{"resolve", "--finding", finding, "--as", as, "--why", "agreed"}, more...)...)
}

// Every kind of finding meets every resolution: what makes sense is done once, with who
// and why, and whatever else is refused changes nothing.
func TestEveryKindAndEveryResolution(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		scene func(o *office) // one account, a0001
		codes [4]int          // release, void, accept, refund
		after [4]string       // the charge's state where it was done
	}{
		"not_as_asked, paid": {func(o *office) { o.inReview(1, nil) }, [4]int{0, 0, 0, 0}, [4]string{"held not_its_payment", "void", "succeeded", "held payment_refunded"}},
		"not_as_asked, open": {func(o *office) {
			o.inReview(1, func(_ int, pi *stripeemu.PaymentIntent) {
				pi.Status, pi.DeclineCode = "requires_payment_method", "generic_decline"
			})
		}, [4]int{64, 64, 64, 64}, [4]string{}},
		"unknown_try": {func(o *office) {
			o.inReview(1, func(_ int, pi *stripeemu.PaymentIntent) {
				pi.Amount, pi.Status, pi.Metadata = 1001, "canceled", ourKey("a0001", "7")
			})
		}, [4]int{0, 0, 64, 64}, [4]string{"held not_its_payment", "void"}},
		"idempotency_error": {func(o *office) {
			o.inReview(1, nil)
			o.exec(`UPDATE billing.charges SET reason = 'idempotency_error', payment_intent = NULL, last_event = NULL WHERE account_id = 'a0001'`)
			o.exec(`UPDATE billing.findings SET kind = 'idempotency_error', payment_intent = ''`)
		}, [4]int{0, 0, 64, 64}, [4]string{"held not_its_payment", "void"}},
		"duplicate":        {func(o *office) { o.paidTwice() }, [4]int{64, 64, 0, 0}, [4]string{2: "succeeded", 3: "succeeded"}},
		"processing_long":  {aFinding("processing_long", own), [4]int{64, 64, 0, 64}, [4]string{2: "succeeded"}},
		"missing":          {aFinding("missing", nothing), [4]int{64, 64, 0, 64}, [4]string{2: "succeeded"}},
		"late_paid":        {aFinding("late_paid", own), [4]int{64, 64, 0, 64}, [4]string{2: "succeeded"}},
		"amount_mismatch":  {aFinding("amount_mismatch", own), [4]int{64, 64, 0, 64}, [4]string{2: "succeeded"}},
		"orphan":           {aFinding("orphan", another), [4]int{64, 64, 0, 0}, [4]string{2: "succeeded", 3: "succeeded"}},
		"not_recorded":     {aFinding("not_recorded", another), [4]int{64, 64, 0, 0}, [4]string{2: "succeeded", 3: "succeeded"}},
		"adjacent_double":  {aFinding("adjacent_double", another), [4]int{64, 64, 0, 0}, [4]string{2: "succeeded", 3: "succeeded"}},
		"a payment unseen": {aFinding("orphan", func(*office) string { return "pi_nowhere" }), [4]int{64, 64, 0, 64}, [4]string{2: "succeeded"}},
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o *office // what is refused leaves it as it was
			for i, as := range []string{"release", "void", "accept", "refund"} {
				if o == nil {
					o = newOffice(t)
					o.ungated()
					k.scene(o)
				}
				id, before := o.finding("a0001"), o.resolutionText()
				args := []string{"resolve", "--finding", id, "--as", as, "--why", "agreed"}
				if o.must(k.codes[i], append(args, "--dry-run")...); o.resolutionText() != before {
					t.Errorf("%s: the dry run changed the ledger", as)
				}
				if as == "refund" {
					args = append(args, "--yes")
				}
				if k.codes[i] != 0 {
					o.refused("", args...)
					continue
				}
				r := o.must(0, args...)
				if o.is("a0001", k.after[i]); t.Failed() {
					t.Fatal(r)
				}
				o.resolvedOnce(id, as)
				o.refused("was resolved before", args...)
				o = nil
			}
		})
	}
}

// resolvedOnce wants a finding to be resolved by the tester, with one event that says so.
func (o *office) resolvedOnce(id, as string) {
	o.t.Helper()
	if got := one[string](o, `SELECT coalesce(string_agg(e.action || ' ' || e.person || ' ' || e.why || ' ' || f.resolved_by || ' ' || f.why, ', '), '')
		FROM billing.findings f JOIN billing.finding_events e ON e.finding_id = f.id AND e.action <> 'refund_ordered'
		WHERE f.id = $1::bigint AND f.resolved_at IS NOT NULL`, id); got != as+" tester agreed tester agreed" {
		o.t.Errorf("finding %s: %q", id, got)
	}
}

// aFinding is a month that was paid, and a finding about a payment of its customer.
func aFinding(kind string, payment func(o *office) string) func(o *office) {
	return func(o *office) {
		o.imports(october, customers(1))
		o.month(0)
		o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key, payment_intent, currency)
			VALUES ($1, 'act', 'monthly-billing', $2, 'a0001', $3, $4, 'usd')`, kind, october, keyOf("a0001"), payment(o))
	}
}

func nothing(*office) string { return "" }

func own(o *office) string { return o.emu.IntentsFor(keyOf("a0001"))[0].ID }

func another(o *office) string {
	return o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 777, Customer: "cus_0001"})
}

// A payment that a person accepts pays the debt: the month is done with it, every report
// has the charge with that payment, and no look moves it again.
func TestAnAcceptedPaymentPaysItsDebt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	payment := o.inReview(1, nil)[0]
	id := o.finding("a0001")
	r := o.resolveAs(0, id, "accept")
	r.says(t, "its charge is succeeded", "paid 5.00 usd by customer cus_0001 for 10.01 usd", "next: billing status --period 2026-10")
	if got := one[string](o, `SELECT state || ' ' || payment_intent || ' ' || stripe_status || ' ' || amount_minor FROM billing.charges WHERE account_id = 'a0001'`); got != "succeeded "+payment+" succeeded 1001" {
		t.Errorf("the charge is %s", got)
	}
	if got := one[string](o, `SELECT e.from_state || '>' || e.to_state || ' ' || e.cause || ' ' || e.person || ' ' || e.payment_intent || ' ' || e.detail FROM billing.charge_events e
		JOIN billing.charges c ON c.last_event = e.id WHERE c.account_id = 'a0001'`); !strings.HasPrefix(got, "review>succeeded person tester "+payment+" agreed (accepted: ") {
		t.Errorf("the event says %s", got)
	}
	sums := o.must(0, "status", "--period", october, "--json").json(t)
	if len(sums.Charges) != 1 || sums.Charges[0].State != "succeeded" || sums.Charges[0].Count != 2 || sums.Charges[0].Amount != "20.03" || sums.Outcome != "done" {
		t.Errorf("status has %+v, %s", sums.Charges, sums.Outcome)
	}
	if csv := o.must(0, "export", "charges", "--period", october).stdout; !strings.Contains(csv, ",succeeded,,10.01,usd,1001,"+payment+",") {
		t.Errorf("the export has\n%s", csv)
	}
	before := o.states(october)
	o.must(0, "reconcile", "--period", october, "--rebuild", "--why", "test")
	o.month(0)
	o.posts(0)
	if after := o.states(october); after["succeeded"] != 2 || before["succeeded"] != 2 {
		t.Errorf("%v, then %v", before, after)
	}
	o.refused("was resolved before: accepted by tester", "resolve", "--finding", id, "--as", "accept", "--why", "again")
}

// A resolved finding comes back only if what was seen changed, and who resolved it
// before is kept.
func TestAFindingComesBackOnlyIfWhatWasSeenChanges(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.month(0)
	second := o.emu.AddIntent(stripeemu.PaymentIntent{Status: "processing", Amount: 1001, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	rebuild := []string{"reconcile", "--period", october, "--rebuild", "--why", "test"}
	o.must(4, rebuild...)
	id := o.finding("a0001")
	o.refused("is processing: there is nothing to give back", "resolve", "--finding", id, "--as", "refund", "--why", "twice", "--yes")
	o.resolveAs(0, id, "accept")
	o.must(0, rebuild...)
	if err := o.emu.SettleDebit(second, true); err != nil {
		t.Fatal(err)
	}
	o.must(4, rebuild...)
	if got := o.finding("a0001"); got != id {
		t.Errorf("finding %s came back as %s", id, got)
	}
	o.resolveAs(0, id, "refund", "--yes")
	if got := one[string](o, `SELECT string_agg(action, ' ' ORDER BY id) FROM billing.finding_events`); got != "accept refund_ordered refund" {
		t.Errorf("its history is %s", got)
	}
	o.must(0, rebuild...)
}

// A charge whose payment is not its own is held, and billing release charges it: no
// look takes that payment for a reason against it any more.
func TestAReleasedChargeIsCharged(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(2, nil)
	o.resolveAs(0, o.finding("a0001"), "release").says(t, "next: billing release --period 2026-10 --account a0001")
	o.is("a0001", "held not_its_payment")
	o.resolveAs(0, o.finding("a0002"), "refund", "--yes")
	o.is("a0002", "held payment_refunded")
	if n := one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'held' AND payment_intent IS NOT NULL`); n > 0 {
		t.Errorf("%d held charges have a payment", n)
	}
	o.must(4, "reconcile", "--period", october)
	o.must(0, "release", "--period", october, "--all", "--why", "not ours").says(t, "renewed: 2 charges")
	o.emu.ResetLog()
	o.month(0)
	o.posts(2)
	if got := o.states(october); got["succeeded"] != 3 {
		t.Errorf("%v", got)
	}
}

// A charge that is released inside its window is not charged and says until when it must
// wait, also in what to type after the finding was resolved; then it is charged.
func TestAReleaseInsideTheWindowSaysUntilWhen(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.imports(october, customers(1))
	o.meets(faults{"a0001": stripeemu.FaultRateLimit429})
	o.emu.AddIntent(stripeemu.PaymentIntent{Amount: 500, Customer: "cus_0001", Metadata: ourKey("a0001", "1")})
	o.must(4, "reconcile", "--period", october)
	o.is("a0001", "review not_as_asked")
	dead := one[time.Time](o, `SELECT window_opened_at FROM billing.charges`).Add(23*time.Hour + 15*time.Minute)
	at := dead.UTC().Format("2006-01-02 15:04 UTC")
	o.resolveAs(0, o.finding("a0001"), "release").says(t, "   # charges it; not before "+at+"\n      billing void --period 2026-10 --account a0001 --why W   # withdraws it")
	o.must(75, "release", "--period", october, "--account", "a0001", "--why", "not ours").says(t,
		"nothing before "+at, "1 charge can't be decided yet", "-> run the same command again after "+at)
	o.is("a0001", "held not_its_payment")
	o.setNow(dead.Add(time.Second))
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "not ours").says(t, "renewed: 1 charge")
	o.month(0)
	o.is("a0001", "succeeded")
}

// What is not ours counts no more only as long as it looks as it did.
func TestADisownedPaymentThatChangesIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(1, nil)
	id := o.finding("a0001")
	o.resolveAs(0, id, "release")
	o.exec(`UPDATE billing.findings SET seen = replace(seen, '500 usd', '400 usd')`)
	o.must(4, "release", "--period", october, "--all", "--why", "not ours")
	o.is("a0001", "review not_as_asked")
	if got := o.finding("a0001"); got != id {
		t.Errorf("the open finding is %s, not %s", got, id)
	}
}

// Of two people who resolve one finding at the same time one is refused, and the charge
// moves once; several findings are resolved all or not at all.
func TestOfTwoPeopleOneWins(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(2, nil)
	first, second := o.finding("a0001"), o.finding("a0002")
	var running []process
	for _, as := range []string{"accept", "release", "void", "accept"} {
		running = append(running, o.start("resolve", "--finding", first, "--as", as, "--why", "agreed"))
	}
	var codes []int
	for _, p := range running {
		codes = append(codes, p.wait().code)
	}
	slices.Sort(codes)
	if fmt.Sprint(codes) != "[0 64 64 64]" {
		t.Errorf("exit codes %v", codes)
	}
	if n := one[int](o, `SELECT count(*) FROM billing.charge_events WHERE account_id = 'a0001' AND from_state = 'review'`); n != 1 {
		t.Errorf("the charge left review %d times", n)
	}
	o.refused("was resolved before", "resolve", "--finding", second, "--finding", first, "--as", "void", "--why", "agreed")
	o.must(0, "resolve", "--period", october, "--account", "a0002", "--as", "void", "--why", "agreed")
	o.is("a0002", "void")
}

// A charge moves only under the period's row, and while a run holds that row for long
// the period is busy.
func TestResolvingWaitsForWhoeverRecords(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.ungated()
	o.inReview(1, nil)
	id := o.finding("a0001")
	tx, err := o.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM billing.job_runs FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	before := o.resolutionText()
	o.resolveAs(75, id, "void").says(t, "a run that is recording it")
	if o.resolutionText() != before {
		t.Error("it changed the ledger")
	}
}

// Orders that say too little, or too much, are refused with what to type.
func TestUnclearResolutionsAreRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, _, id := o.paidTwice()
	o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key)
		SELECT 'canceled', 'note', 'monthly-billing', $1, 'a0001', 'k' || n FROM generate_series(1, 2) n`, october)
	for words, args := range map[string][]string{
		"--as is missing: type what":       {"--finding", id, "--why", "x"},
		"--as \"pay\"":                     {"--finding", id, "--why", "x", "--as", "pay"},
		"--why is missing":                 {"--finding", id, "--as", "accept", "--why", "  "},
		"--finding is missing":             {"--as", "accept", "--why", "x"},
		"there is no finding 999":          {"--finding", "999", "--as", "accept", "--why", "x"},
		"want a number":                    {"--finding", "one", "--as", "accept", "--why", "x"},
		"is there twice":                   {"--finding", id, "--finding", id, "--as", "accept", "--why", "x"},
		"take one":                         {"--finding", id, "--account", "a0001", "--as", "accept", "--why", "x"},
		"--account needs --period":         {"--account", "a0001", "--as", "accept", "--why", "x"},
		"has 3 findings open":              {"--account", "a0001", "--period", october, "--as", "accept", "--why", "x"},
		"has 0 findings open":              {"--account", "a0002", "--period", october, "--as", "accept", "--why", "x"},
		"is about 2026-10, not 2026-09":    {"--finding", id, "--period", "2026-09", "--as", "accept", "--why", "x"},
		"are about --as refund":            {"--finding", id, "--as", "accept", "--why", "x", "--yes"},
		"there are 10.01 usd to give":      {"--finding", id, "--as", "refund", "--why", "x", "--yes", "--amount", "10.02"},
		"not a plain number":               {"--finding", id, "--as", "refund", "--why", "x", "--yes", "--amount", "1,5"},
		"fraction of the smallest unit":    {"--finding", id, "--as", "refund", "--why", "x", "--yes", "--amount", "1.001"},
		"--amount is about one finding":    {"--finding", id, "--finding", "2", "--as", "refund", "--why", "x", "--amount", "1"},
		"unexpected argument":              {"--as", "accept", id},
		"there are 10.01 usd to give back": {"--finding", id, "--as", "refund", "--why", "x", "--yes", "--amount", "0"},
	} {
		o.refused(words, append([]string{"resolve"}, args...)...)
	}
	if n := o.emu.Count("POST refunds"); n > 0 {
		t.Errorf("%d refunds were sent", n)
	}
}
