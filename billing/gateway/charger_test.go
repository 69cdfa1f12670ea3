package gateway

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// newEmulator starts a Stripe in which every customer and card exists; the fate
// of a card is its name.
func newEmulator(t *testing.T, cfg stripeemu.Config) (*stripeemu.Server, *Client) {
	t.Helper()
	cfg.AnyCustomer = true
	emu := stripeemu.New(cfg)
	base, err := emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	return emu, newTestClient(t, base)
}

// permitFor is a permit to charge 12.00 usd to an account's card.
func permitFor(account, card string) Permit {
	key := "monthly-billing/2026-10/" + account
	p := Permit{
		Key: key, BillingKey: key, Try: 1, Amount: 1200, Currency: "usd", Customer: "cus_" + account,
		Deadline: NewDeadline(time.Now(), 30*time.Second),
	}
	p.Body = Body(BodyParams{
		Amount: 1200, Currency: "usd", Customer: p.Customer, PaymentMethod: card, Description: "October", BillingKey: key,
		Job: "monthly-billing", Period: "2026-10", Account: account, Try: 1,
	})
	p.SHA256 = sha256.Sum256([]byte(p.Body))
	return p
}

// sends is what each card and each failure becomes.
var sends = []struct {
	name    string
	card    string
	fault   stripeemu.FaultKind
	verdict Verdict
	state   ledger.ChargeState
	reason  string
	flags   string
}{
	{"paid", "pm_card_visa", "", VerdictKnown, ledger.ChargeSucceeded, "", ""},
	{"declined", "pm_card_chargeCustomerFail", "", VerdictKnown, ledger.ChargeDeclined, "generic_decline", ""},
	{"no money", "pm_card_visa_chargeDeclinedInsufficientFunds", "", VerdictKnown, ledger.ChargeDeclined, "insufficient_funds", ""},
	{"3-D Secure", "pm_card_authenticationRequired", "", VerdictKnown, ledger.ChargeActionRequired, "authentication_required", ""},
	{"debit", "pm_usBankAccount_success", "", VerdictKnown, ledger.ChargeProcessing, "", ""},
	{"Indian card", "pm_card_in", "", VerdictKnown, ledger.ChargeProcessing, "", ""},

	{"request lost", "pm_card_visa", stripeemu.FaultLoseRequest, VerdictUnknown, "", ReasonNoAnswer, ""},
	{"answer lost", "pm_card_visa", stripeemu.FaultLoseAnswer, VerdictUnknown, "", ReasonNoAnswer, ""},
	{"body cut", "pm_card_visa", stripeemu.FaultCutBody, VerdictUnknown, "", ReasonUnreadable, ""},
	{"{}", "pm_card_visa", stripeemu.FaultEmptyObject, VerdictUnknown, "", ReasonUnreadable, ""},
	{"502 of a proxy", "pm_card_visa", stripeemu.FaultHTML502, VerdictUnknown, "", ReasonServerError, ""},
	{"200 of a proxy", "pm_card_visa", stripeemu.FaultHTML200, VerdictUnknown, "", ReasonUnreadable, ""},
	{"204", "pm_card_visa", stripeemu.FaultEmpty204, VerdictUnknown, "", ReasonUnexpected, ""},
	{"wrong amount", "pm_card_visa", stripeemu.FaultWrongAmount, VerdictUnknown, "", "not_as_asked: amount", ""},
	{"wrong currency", "pm_card_visa", stripeemu.FaultWrongCurrency, VerdictUnknown, "", "not_as_asked: currency", ""},
	{"wrong customer", "pm_card_visa", stripeemu.FaultWrongCustomer, VerdictUnknown, "", "not_as_asked: customer", ""},
	{"wrong key", "pm_card_visa", stripeemu.FaultWrongMetadata, VerdictUnknown, "", "not_as_asked: billing_key", ""},
	{"500, done", "pm_card_visa", stripeemu.FaultError500Done, VerdictUnknown, "", ReasonServerError, "5"},
	{"500, not done", "pm_card_visa", stripeemu.FaultError500Undone, VerdictUnknown, "", ReasonServerError, "5"},
	{"409", "pm_card_visa", stripeemu.FaultInUse409, VerdictUnknown, "", "idempotency_key_in_use", ""},
	{"429", "pm_card_visa", stripeemu.FaultRateLimit429, VerdictUnknown, "", "rate_limit", "n"},
	{"429 lock", "pm_card_visa", stripeemu.FaultLockTimeout429, VerdictUnknown, "", "lock_timeout", "n"},
	{"401", "pm_card_visa", stripeemu.FaultUnauthorized401, VerdictStop, "", ReasonUnauthorized, "n"},
	{"403", "pm_card_visa", stripeemu.FaultForbidden403, VerdictStop, "", ReasonForbidden, "n"},
	{"307", "pm_card_visa", stripeemu.FaultRedirect307, VerdictUnknown, "", ReasonRedirected, ""},
}

// The gateway and Stripe's rules, over the wire: one POST for each send, and
// the answer is believed as far as it proves something.
func TestSendAgainstStripe(t *testing.T) {
	for _, test := range sends {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			emu, client := newEmulator(t, stripeemu.Config{})
			if test.fault != "" {
				emu.Inject(stripeemu.Fault{Name: test.fault})
			}
			a := client.Charger().Send(t.Context(), permitFor("a", test.card))
			if a.Verdict != test.verdict || a.State != test.state || a.Reason != test.reason || flags(a) != test.flags {
				t.Errorf("got %s %q %q flags %q, want %s %q %q %q", a.Verdict, a.State, a.Reason, flags(a), test.verdict, test.state, test.reason, test.flags)
			}
			if emu.Posts() != 1 {
				t.Errorf("%d POSTs for one send", emu.Posts())
			}
			if all := emu.PaymentIntents(); a.Verdict == VerdictKnown && (len(all) != 1 || all[0].ID != a.PaymentIntent) {
				t.Errorf("answer names %s, Stripe has %+v", a.PaymentIntent, all)
			}
		})
	}
}

// What Stripe refuses before doing anything is refused, by its cause.
func TestSendRefused(t *testing.T) {
	emu := stripeemu.New(stripeemu.Config{})
	base, err := emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	emu.AddCustomer(stripeemu.Customer{ID: "cus_a"})
	emu.AddCustomer(stripeemu.Customer{ID: "cus_b"})
	emu.AddCustomer(stripeemu.Customer{ID: "cus_live", Mode: "live"})
	emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: "pm_a", Customer: "cus_a", Alias: "pm_card_visa"})
	emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: "pm_b", Customer: "cus_b", Alias: "pm_card_visa"})
	emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: "pm_gone", Detached: true, Alias: "pm_card_visa"})
	client := newTestClient(t, base)
	for _, test := range []struct {
		name, account, card, from, to string
		verdict                       Verdict
		reason                        string
	}{
		{"no such customer", "x", "pm_a", "", "", VerdictRefused, "resource_missing"},
		{"no such card", "a", "pm_x", "", "", VerdictRefused, "resource_missing"},
		{"card of another customer", "a", "pm_b", "", "", VerdictRefused, "invalid_payment_method"},
		{"card detached", "a", "pm_gone", "", "", VerdictRefused, "payment_method_detached"},
		{"too small", "a", "pm_a", "amount=1200", "amount=49", VerdictRefused, "amount_too_small"},
		{"bad currency", "a", "pm_a", "currency=usd", "currency=zzz", VerdictRefused, "invalid_currency"},
		{"customer of the other mode", "live", "pm_a", "", "", VerdictStop, ReasonWrongMode},
	} {
		p := permitFor(test.account, test.card)
		p.Body = strings.Replace(p.Body, test.from, test.to, 1)
		p.SHA256 = sha256.Sum256([]byte(p.Body))
		p.Key += test.name
		a := client.Charger().Send(t.Context(), p)
		if a.Verdict != test.verdict || a.Reason != test.reason || !a.NotExecuted {
			t.Errorf("%s: %s %q %q %+v, want %s %q", test.name, a.Verdict, a.Reason, a.Message, a, test.verdict, test.reason)
		}
	}
	if n := len(emu.PaymentIntents()); n != 0 {
		t.Errorf("%d PaymentIntents", n)
	}
}

// A lost answer is found again under the same key; other parameters under it
// are an error that proves that the key was used.
func TestSendAgainUnderTheSameKey(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Times: 1})
	charger := client.Charger()
	if a := charger.Send(t.Context(), permitFor("a", "pm_card_visa")); a.Verdict != VerdictUnknown {
		t.Fatalf("%+v", a)
	}
	a := charger.Send(t.Context(), permitFor("a", "pm_card_visa"))
	if a.State != ledger.ChargeSucceeded || !a.Replayed {
		t.Errorf("%+v", a)
	}
	if a := charger.Send(t.Context(), permitFor("a", "pm_card_mastercard")); a.Verdict != VerdictUnknown || a.Reason != ReasonIdempotency || a.NotExecuted {
		t.Errorf("with another card: %+v", a)
	}
	if n := len(emu.PaymentIntents()); n != 1 {
		t.Errorf("%d PaymentIntents", n)
	}
}

// A decline that is replayed after the customer paid, or after a person
// cancelled, is read again: the old answer says what was, not what is.
func TestAReplayedDeclineIsReadAgain(t *testing.T) {
	for _, test := range []struct {
		name, card string
		meanwhile  func(t *testing.T, emu *stripeemu.Server, client *Client, id string)
		verdict    Verdict
		state      ledger.ChargeState
		reason     string
	}{
		{"nothing happened", "pm_card_authenticationRequired", nil, VerdictKnown, ledger.ChargeActionRequired, "authentication_required"},
		{"still declined", "pm_card_chargeCustomerFail", nil, VerdictKnown, ledger.ChargeDeclined, "generic_decline"},
		{"the customer paid", "pm_card_authenticationRequired", func(t *testing.T, emu *stripeemu.Server, _ *Client, id string) {
			if err := emu.CustomerPays(id); err != nil {
				t.Fatal(err)
			}
		}, VerdictKnown, ledger.ChargeSucceeded, ""},
		{"a person cancelled", "pm_card_chargeCustomerFail", func(t *testing.T, _ *stripeemu.Server, client *Client, id string) {
			pi, err := client.Canceller().Cancel(t.Context(), "", open(id), soon())
			if err != nil || pi.Status != StatusCanceled {
				t.Fatal(pi, err)
			}
		}, VerdictKnown, ledger.ChargeDeclined, ReasonCanceled},
		{"it cannot be read", "pm_card_chargeCustomerFail", func(_ *testing.T, emu *stripeemu.Server, _ *Client, _ string) {
			emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "GET"})
		}, VerdictUnknown, "", ReasonNotReread},
		{"the key may not read", "pm_card_chargeCustomerFail", func(_ *testing.T, emu *stripeemu.Server, _ *Client, _ string) {
			emu.Inject(stripeemu.Fault{Name: stripeemu.FaultForbidden403, Method: "GET"})
		}, VerdictStop, "", ReasonForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			emu, client := newEmulator(t, stripeemu.Config{})
			p := permitFor("a", test.card)
			first := client.Charger().Send(t.Context(), p)
			if first.Verdict != VerdictKnown {
				t.Fatalf("%+v", first)
			}
			if test.meanwhile != nil {
				test.meanwhile(t, emu, client, first.PaymentIntent)
			}
			a := client.Charger().Send(t.Context(), p)
			if a.Verdict != test.verdict || a.State != test.state || a.Reason != test.reason || !a.Replayed || a.PaymentIntent != first.PaymentIntent {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Where the replay header is lost on the way, a second send is read again too.
func TestASecondSendIsReadAgain(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	p := permitFor("a", "pm_card_chargeCustomerFail")
	p.Resend = true
	if a := client.Charger().Send(t.Context(), p); a.State != ledger.ChargeDeclined {
		t.Fatalf("%+v", a)
	}
	requests := emu.Requests()
	if len(requests) != 2 || requests[1].Method != "GET" {
		t.Errorf("%+v", requests)
	}
}
