package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/oracle"
	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// In random months, in which anything was done to anybody's payment, the audit finds
// fault with exactly those debts of which the oracle, which shares no code with it,
// says that the two sides differ. BILLING_PROOF tries more of them, BILLING_SEED one.
func TestInRandomMonthsTheAuditAgreesWithTheOracle(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1, 2}
	if os.Getenv("BILLING_PROOF") != "" {
		for seed := range uint64(30) {
			seeds = append(seeds, seed+3)
		}
	}
	if text := os.Getenv("BILLING_SEED"); text != "" {
		var seed uint64
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			w := auditWorld{o: o, r: rand.New(rand.NewPCG(seed, seed)), omitted: map[string]bool{}}
			w.month()
			for range 15 {
				w.tamper()
			}
			o.advance(2 * time.Hour)
			want := w.faults()
			o.run("reconcile", "--period", october, "--audit")
			if diff := gocmp.Diff(want, w.findings()); diff != "" {
				t.Errorf("debts (-oracle +audit):\n%s\nwhat was done: %s\nthe oracle says %s", diff, strings.Join(w.done, "; "), w.said)
			}
		})
	}
}

// auditWorld is a random month and what was done to it.
type auditWorld struct {
	o       *office
	r       *rand.Rand
	list    []customer
	omitted map[string]bool
	done    []string
	said    oracle.Verdict
}

func (w *auditWorld) month() {
	cards := []string{"pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_chargeCustomerFail", "pm_card_authenticationRequired", "pm_usBankAccount_success"}
	w.list = customers(40)
	for i := range w.list {
		w.list[i].card = fmt.Sprintf("%s_%d", cards[w.r.IntN(len(cards))], i)
		if w.r.IntN(10) == 0 {
			w.list[i].card = ""
		}
	}
	w.o.ungated()
	w.o.imports(october, w.list)
	w.o.run("run", "--period", october)
}

// tamper does something to one payment, where it can be done.
func (w *auditWorld) tamper() {
	all := w.o.emu.PaymentIntents()
	slices.SortFunc(all, func(a, b stripeemu.PaymentIntent) int {
		return cmp.Or(cmp.Compare(a.Metadata["billing_account"], b.Metadata["billing_account"]), a.Created.Compare(b.Created))
	})
	pi := all[w.r.IntN(len(all))]
	copied := pi
	copied.ID, copied.Status, copied.ErrorCode, copied.DeclineCode, copied.CancelReason = "", "succeeded", "", "", ""
	copied.AmountRefunded, copied.Disputed, copied.PaymentMethod = 0, false, "pm_card_visa"
	copied.Created, copied.Metadata = pi.Created.Add(time.Minute), maps.Clone(pi.Metadata)
	acts := map[string]func() error{
		"customer pays": func() error { return w.o.emu.CustomerPays(pi.ID) },
		"second payment": func() error {
			copied.Status = []string{"succeeded", "processing"}[w.r.IntN(2)]
			w.o.emu.AddIntent(copied)
			return nil
		},
		"orphan": func() error {
			copied.Metadata["billing_account"] = fmt.Sprintf("x%d", len(w.done))
			copied.Metadata["billing_key"] = "monthly-billing/2026-10/" + copied.Metadata["billing_account"]
			w.o.emu.AddIntent(copied)
			return nil
		},
		"omitted": func() error {
			w.omitted[pi.ID] = true
			w.o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultOmit, PaymentIntent: pi.ID})
			return nil
		},
		"part refunded":  func() error { return w.o.emu.Refund(pi.ID, 100) },
		"disputed":       func() error { return w.o.emu.Dispute(pi.ID) },
		"cancelled":      func() error { return w.o.emu.CancelIntent(pi.ID, "abandoned") },
		"settled":        func() error { return w.o.emu.SettleDebit(pi.ID, true) },
		"another's card": func() error { return w.o.emu.EditMetadata(pi.ID, map[string]string{"note": "x"}) },
	}
	name := slices.Sorted(maps.Keys(acts))[w.r.IntN(len(acts))]
	if acts[name]() == nil {
		w.done = append(w.done, name+" "+pi.Metadata["billing_account"])
	}
}

// faults are the debts that the oracle complains about before the audit.
func (w *auditWorld) faults() map[string]bool {
	w.o.t.Helper()
	month := oracle.Month{Job: "monthly-billing", Period: october}
	for _, c := range w.list {
		month.Debts = append(month.Debts, oracle.Debt{Account: c.id, Amount: c.amount, Currency: c.currency, Customer: c.customer, Card: c.card})
	}
	ledger, err := oracle.Read(context.Background(), w.o.db.Pool)
	if err != nil {
		w.o.t.Fatal(err)
	}
	stripe := oracle.FromEmulator(w.o.emu)
	stripe.Payments = slices.DeleteFunc(stripe.Payments, func(pi stripeemu.PaymentIntent) bool { return w.omitted[pi.ID] })
	w.said = oracle.Judge(oracle.Facts{Months: []oracle.Month{month}, Stripe: stripe, Ledger: ledger, ExitCode: -1})
	faults := map[string]bool{}
	for _, c := range slices.Concat(w.said.Duplicates, w.said.Losses, w.said.Differences) {
		faults[c.Key] = true
	}
	return faults
}

// findings are the debts with findings that need a person, or of which the ledger does
// not know that the payment was cancelled. Refunds and disputes are no business of the
// oracle's, and what is under way in the ledger may have ended.
func (w *auditWorld) findings() map[string]bool {
	w.o.t.Helper()
	found := map[string]bool{}
	for _, key := range strings.Fields(one[string](w.o, `SELECT coalesce(string_agg(f.billing_key, ' '), '') FROM billing.findings f LEFT JOIN billing.charges c USING (billing_key)
		WHERE f.kind NOT IN ('refunded', 'disputed') AND f.resolved_at IS NULL AND NOT (f.kind = 'canceled' AND c.state IN ('processing', 'action_required'))`)) {
		found[key] = true
	}
	return found
}
