package billing

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/chargeonce/billing/ledger"
)

func row(change func(*ledger.Billable)) *ledger.Billable {
	b := &ledger.Billable{
		AccountID: "a", Amount: "12.34", Currency: "usd", StripeCustomer: "cus_a", PaymentMethod: "pm_a", Status: "active",
	}
	if change != nil {
		change(b)
	}
	return b
}

// Each row is decided by what it lacks first, and only a row that lacks nothing
// is charged.
func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*ledger.Billable)
		reason string
		minor  int64
	}{
		"a charge":                 {nil, "", 1234},
		"yen":                      {func(b *ledger.Billable) { b.Amount, b.Currency = "1234", "JPY" }, "", 1234},
		"dinar":                    {func(b *ledger.Billable) { b.Amount, b.Currency = "1.230", "kwd" }, "", 1230},
		"nothing owed":             {func(b *ledger.Billable) { b.Amount = "0.00" }, SkipZero, 0},
		"a credit":                 {func(b *ledger.Billable) { b.Amount = "-5.00" }, SkipCredit, 0},
		"less than Stripe takes":   {func(b *ledger.Billable) { b.Amount = "0.49" }, SkipBelowMinimum, 0},
		"the least that it takes":  {func(b *ledger.Billable) { b.Amount = "0.50" }, "", 50},
		"half a cent":              {func(b *ledger.Billable) { b.Amount = "12.345" }, SkipBadAmount, 0},
		"no number":                {func(b *ledger.Billable) { b.Amount = "NaN" }, SkipBadAmount, 0},
		"without end":              {func(b *ledger.Billable) { b.Amount = "Infinity" }, SkipBadAmount, 0},
		"more than a card pays":    {func(b *ledger.Billable) { b.Amount = "10000000000.00" }, SkipBadAmount, 0},
		"no currency":              {func(b *ledger.Billable) { b.Currency = "" }, SkipBadCurrency, 0},
		"a currency that is none":  {func(b *ledger.Billable) { b.Currency = "zzz" }, SkipBadCurrency, 0},
		"a blank id":               {func(b *ledger.Billable) { b.AccountID = "  " }, SkipBadAccountID, 0},
		"an id with a line break":  {func(b *ledger.Billable) { b.AccountID = "a\nb" }, SkipBadAccountID, 0},
		"an invoice of nobody":     {func(b *ledger.Billable) { b.Status = "" }, SkipNoAccount, 0},
		"a paused account":         {func(b *ledger.Billable) { b.Status = "paused" }, SkipPaused, 0},
		"no customer at Stripe":    {func(b *ledger.Billable) { b.StripeCustomer = " " }, SkipNoCustomer, 0},
		"no card":                  {func(b *ledger.Billable) { b.PaymentMethod = "" }, SkipNoPaymentMethod, 0},
		"a connected account":      {func(b *ledger.Billable) { b.StripeAccount = "acct_1" }, "", 1234},
		"no connected account":     {func(b *ledger.Billable) { b.StripeAccount = "acct_1\n" }, SkipBadStripeAccount, 0},
		"zero of a paused account": {func(b *ledger.Billable) { b.Amount, b.Status = "0", "paused" }, SkipZero, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decider{job: ledger.DefaultJob, period: "2026-10"}
			got, _ := d.decide(row(c.change))
			want := ledger.ChargePending
			if c.reason != "" {
				want = ledger.ChargeSkipped
			}
			if got.State != want || got.Reason != c.reason || got.AmountMinor != c.minor {
				t.Errorf("%s %q %d, want %s %q %d", got.State, got.Reason, got.AmountMinor, want, c.reason, c.minor)
			}
			if sent := got.Body != ""; sent != (want == ledger.ChargePending) || sent && got.BodySHA256 != sha256.Sum256([]byte(got.Body)) {
				t.Errorf("body %q with hash %x", got.Body, got.BodySHA256)
			}
		})
	}
}

// A preview decides as the run does, without making the requests.
func TestABareDecisionIsTheSame(t *testing.T) {
	t.Parallel()
	full, bare := decider{job: ledger.DefaultJob, period: "2026-10"}, decider{job: ledger.DefaultJob, period: "2026-10", bare: true}
	for _, amount := range []string{"12.34", "0", "-1", "0.01", "NaN"} {
		b := row(func(b *ledger.Billable) { b.Amount = amount })
		f, _ := full.decide(b)
		g, _ := bare.decide(b)
		f.Body, f.BodySHA256 = "", [32]byte{}
		if f != g {
			t.Errorf("%s: run decides %+v, preview %+v", amount, f, g)
		}
	}
}

// The plan's hash is over who pays how much: a changed card or name does not
// change it, a changed amount, currency or account does.
func TestThePlanHashIsOverWhoPaysHowMuch(t *testing.T) {
	t.Parallel()
	hash := func(change func(*ledger.Billable)) string {
		p := newPlanner(ledger.DefaultJob, "2026-10")
		if _, err := p.add(row(change)); err != nil {
			t.Fatal(err)
		}
		return p.plan().Hash
	}
	was := hash(nil)
	for name, change := range map[string]func(*ledger.Billable){
		"card": func(b *ledger.Billable) { b.PaymentMethod = "pm_b" }, "name": func(b *ledger.Billable) { b.Name = "B" },
		"zeros": func(b *ledger.Billable) { b.Amount = "12.340" }, "case": func(b *ledger.Billable) { b.Currency = "USD" },
	} {
		if hash(change) != was {
			t.Errorf("another %s changes the plan's hash", name)
		}
	}
	for name, change := range map[string]func(*ledger.Billable){
		"amount": func(b *ledger.Billable) { b.Amount = "12.35" }, "currency": func(b *ledger.Billable) { b.Currency = "eur" },
		"account": func(b *ledger.Billable) { b.AccountID = "b" },
	} {
		if hash(change) == was {
			t.Errorf("another %s leaves the plan's hash as it was", name)
		}
	}
}

// Two rows of one account are refused by name.
func TestTwoRowsOfOneAccountAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlanner(ledger.DefaultJob, "2026-10")
	if _, err := p.add(row(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.add(row(nil)); err == nil || !strings.Contains(err.Error(), "account a") {
		t.Errorf("two rows of one account: %v", err)
	}
}
