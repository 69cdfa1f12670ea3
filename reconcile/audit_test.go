package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/ledger"
)

const auditKey = "monthly-billing/2026-10/4182"

// auditedCharge is one of 49 usd, in a state.
func auditedCharge(state ledger.ChargeState, change ...func(*ledger.AuditCharge)) *ledger.AuditCharge {
	opened := time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC)
	c := &ledger.AuditCharge{OpenCharge: ledger.OpenCharge{
		AccountID: "4182", BillingKey: auditKey, State: state, Try: 1, Amount: "49", Currency: "usd", AmountMinor: 4900, StripeCustomer: "cus_1",
		PaymentIntent: "pi_1", WindowOpenedAt: &opened, Sends: 1,
	}}
	for _, f := range change {
		f(c)
	}
	return c
}

// auditedPayment is as that charge asks.
func auditedPayment(id, status string, change ...func(*ledger.AuditPayment)) ledger.AuditPayment {
	p := ledger.AuditPayment{
		PaymentIntent: id, BillingKey: auditKey, Job: "monthly-billing", Period: "2026-10", AccountID: "4182", Try: 1, Status: status, Amount: 4900,
		Currency: "usd", StripeCustomer: "cus_1", Created: time.Date(2026, 11, 1, 0, 6, 0, 0, time.UTC),
	}
	for _, f := range change {
		f(&p)
	}
	if status == "succeeded" {
		p.Received = p.Amount
	}
	return p
}

// The differences of one charge and what carries its key, whatever they are: the sums
// lead from what is paid in the ledger to what is paid at Stripe in each of them.
func TestWhatDiffersOfOneCharge(t *testing.T) {
	t.Parallel()
	amount := func(n int64) func(*ledger.AuditPayment) { return func(p *ledger.AuditPayment) { p.Amount = n } }
	euro := func(p *ledger.AuditPayment) { p.Currency = "eur" }
	other := func(p *ledger.AuditPayment) { p.StripeCustomer = "cus_2" }
	try2 := func(p *ledger.AuditPayment) { p.Try = 2 }
	givenBack := func(p *ledger.AuditPayment) { p.Refunded, p.Refunds = p.Amount, 1 }
	moved := func(c *ledger.AuditCharge) { c.Moved = true }
	sending := func(c *ledger.AuditCharge) { c.Sending = true }
	atTry2 := func(c *ledger.AuditCharge) {
		c.Try, c.Tries, c.TryCustomers = 2, []int{1}, []string{"cus_1"}
		c.StripeCustomer, c.PaymentIntent = "cus_2", "" // the closed try has it
	}
	for _, test := range []struct {
		name   string
		charge *ledger.AuditCharge
		set    []ledger.AuditPayment
		want   string // kinds, in order
		settle bool
	}{
		{"paid", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded")}, "[]", false},
		{"another amount", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded", amount(5000))}, "[amount_mismatch]", false},
		{"another currency", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded", euro)}, "[currency_mismatch]", false},
		{"another customer", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded", other)}, "[wrong_customer]", false},
		{"not paid", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "canceled")}, "[missing]", false},
		{"gone", auditedCharge("succeeded"), nil, "[missing]", false},
		{"gone, and it moved", auditedCharge("succeeded", moved), nil, "[]", false},
		{"gone, and another one is there", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_2", "succeeded")}, "[duplicate missing]", false},
		{"under way and gone", auditedCharge("processing"), nil, "[missing]", false},
		{"twice", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "succeeded", amount(100))}, "[duplicate]", false},
		{"twice, given back", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "succeeded", givenBack)}, "[]", false},
		{"and one under way", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "processing")}, "[duplicate]", false},
		{"and an open one", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "requires_payment_method")}, "[]", false},
		{"given back", auditedCharge("succeeded"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded", givenBack)}, "[refunded]", false},
		{"late", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded")}, "[late_paid]", true},
		{"late, twice", auditedCharge("void"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "succeeded")}, "[duplicate late_paid]", true},
		{"late, of the try before", auditedCharge("declined", atTry2), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded")}, "[late_paid]", true},
		{"late, and under way", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "processing")}, "[late_paid]", true},
		{"under way another way", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "requires_payment_method"), auditedPayment("pi_2", "processing")}, "[late_paid]", true},
		{"under way twice", auditedCharge("void"), []ledger.AuditPayment{auditedPayment("pi_1", "processing"), auditedPayment("pi_2", "processing")}, "[duplicate late_paid]", true},
		{"late, and its own was given back", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded", givenBack), auditedPayment("pi_2", "succeeded")}, "[late_paid]", true},
		{"moved, beside one that was open", auditedCharge("succeeded", moved), []ledger.AuditPayment{auditedPayment("pi_0", "requires_action"), auditedPayment("pi_1", "succeeded")}, "[]", false},
		{"moved, and paid twice", auditedCharge("succeeded", moved), []ledger.AuditPayment{auditedPayment("pi_0", "succeeded"), auditedPayment("pi_1", "succeeded")}, "[duplicate]", false},
		{"in review, and under way", auditedCharge("review"), []ledger.AuditPayment{auditedPayment("pi_1", "processing")}, "[late_paid]", false},
		{"of another customer", auditedCharge("declined", atTry2), []ledger.AuditPayment{auditedPayment("pi_2", "succeeded", try2)}, "[wrong_customer]", false},
		{"came good by another, and its own is gone", auditedCharge("processing"), []ledger.AuditPayment{auditedPayment("pi_2", "succeeded")}, "[missing]", true},
		{"came good", auditedCharge("processing"), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded")}, "[]", true},
		{"being sent", auditedCharge("pending", sending), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded")}, "[]", false},
		{"being sent, twice", auditedCharge("pending", sending), []ledger.AuditPayment{auditedPayment("pi_1", "succeeded"), auditedPayment("pi_2", "succeeded")}, "[duplicate]", false},
		{"declined", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "requires_payment_method")}, "[]", false},
		{"declined and gone", auditedCharge("declined"), nil, "[missing]", false},
		{"declined and gone, and it moved", auditedCharge("declined", moved), nil, "[]", false},
		{"cancelled", auditedCharge("declined"), []ledger.AuditPayment{auditedPayment("pi_1", "canceled")}, "[canceled]", false},
		{"cancelled before a new try", auditedCharge("pending", atTry2), []ledger.AuditPayment{auditedPayment("pi_0", "canceled", other)}, "[]", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newTestAuditor()
			if err := a.one(t.Context(), test.charge, test.set); err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, f := range a.batch {
				kinds = append(kinds, f.Kind)
			}
			settled := false
			for _, v := range a.late {
				settled = settled || v.found != nil
				for _, f := range v.findings {
					kinds = append(kinds, f.Kind)
				}
			}
			slices.Sort(kinds)
			if got := fmt.Sprint(kinds); got != test.want || settled != test.settle {
				t.Errorf("%s, settles: %t; want %s, %t", got, settled, test.want, test.settle)
			}
			mustAddUp(t, a, test.charge, test.set)
		})
	}
}

// newTestAuditor believes that what is missing is missing.
func newTestAuditor() *auditor {
	r := New(nil, nil, Options{Job: ledger.DefaultJob})
	return &auditor{r: r, w: AuditWork{Period: "2026-10"}, judge: judge{job: ledger.DefaultJob, period: "2026-10"}, sums: sums{}, confirmed: maxConfirmed}
}

// mustAddUp adds what was recorded, and compares the lines' end with what is paid.
func mustAddUp(t *testing.T, a *auditor, c *ledger.AuditCharge, set []ledger.AuditPayment) {
	t.Helper()
	amount, currency := recorded(c)
	a.sums.add(currency, "invoiced", 1, amount)
	var balance []ledger.BalanceSum
	for _, p := range set {
		if p.Status == "succeeded" {
			balance = append(balance, ledger.BalanceSum{Kind: "payment", Currency: p.Currency, Count: 1, Amount: p.Received})
		}
	}
	for _, sum := range a.sums.report(balance) {
		for _, line := range sum.Lines {
			if line.What == "unexplained" {
				t.Errorf("%s: %s is unexplained: %+v", sum.Currency, line.Amount, sum.Lines)
			}
		}
	}
}

// What is paid in one currency and booked in another leaves the one section and comes
// into the other; what is not booked yet is no net; what went back of payments that nobody
// owed is a line of its own.
func TestSumsOfTwoCurrencies(t *testing.T) {
	t.Parallel()
	s := sums{}
	s.add("eur", "invoiced", 2, decimal.RequireFromString("30"))
	got := s.report([]ledger.BalanceSum{
		{Kind: "payment", Currency: "eur", BalanceCurrency: "usd", Count: 1, Amount: 2000, Gross: 2200, Fee: 90},
		{Kind: "payment", Currency: "eur", Count: 1, Amount: 1000},
		{Kind: "refund", Own: true, Currency: "eur", BalanceCurrency: "usd", Count: 1, Amount: 500, Gross: -550},
		{Kind: "refund", Currency: "eur", BalanceCurrency: "usd", Count: 1, Amount: 100, Gross: -110},
		{Kind: "dispute", Own: true, Currency: "eur", BalanceCurrency: "usd", Count: 1, Amount: 1500, Gross: -1650, Fee: 1500},
	})
	lines := map[string]string{}
	for _, sum := range got {
		for _, l := range sum.Lines {
			lines[sum.Currency+" "+l.What] = l.Amount.StringFixed(2)
		}
	}
	want := map[string]string{
		"eur invoiced": "30.00", "eur recorded": "30.00", "eur paid in the ledger": "30.00", "eur paid at Stripe": "30.00",
		"eur paid into another currency": "-20.00", "eur not booked yet": "-10.00", "eur net": "0.00",
		"usd invoiced": "0.00", "usd recorded": "0.00", "usd paid in the ledger": "0.00", "usd paid at Stripe": "0.00",
		"usd paid in it from another currency": "22.00", "usd refunded": "-5.50", "usd refunded, not owed": "-1.10", "usd disputed": "-16.50", "usd fees": "-15.90", "usd net": "-17.00",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
