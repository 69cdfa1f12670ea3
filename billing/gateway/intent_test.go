package gateway

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chargeonce/billing/ledger"
)

// stateCases are the states that a PaymentIntent can be in, as Stripe writes
// them; each is fed through every way on which a PaymentIntent can come.
var stateCases = []struct {
	name   string
	status string
	rest   string // further fields
	state  ledger.ChargeState
	reason string
	known  bool
}{
	{"paid", "succeeded", `"latest_charge":"ch_1"`, ledger.ChargeSucceeded, "", true},
	{"paid after a decline", "succeeded", `"last_payment_error":{"type":"card_error","code":"card_declined"}`, ledger.ChargeSucceeded, "", true},
	{"under way", "processing", `"latest_charge":null`, ledger.ChargeProcessing, "", true},
	{"to be captured", "requires_capture", `"latest_charge":"ch_1"`, ledger.ChargeProcessing, "awaiting_capture", true},
	{"waits for the customer", "requires_action", `"next_action":{"type":"use_stripe_sdk"}`, ledger.ChargeActionRequired, "requires_action", true},
	{"canceled", "canceled", `"cancellation_reason":"abandoned"`, ledger.ChargeDeclined, "canceled", true},
	{"declined", "requires_payment_method",
		`"latest_charge":"ch_1","last_payment_error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds","advice_code":"try_again_later"}`,
		ledger.ChargeDeclined, "insufficient_funds", true},
	{"declined without a decline code", "requires_payment_method", `"last_payment_error":{"type":"card_error","code":"expired_card"}`,
		ledger.ChargeDeclined, "expired_card", true},
	{"declined, only the charge shows it", "requires_payment_method", `"latest_charge":"ch_1"`, ledger.ChargeDeclined, "payment_failed", true},
	{"3-D Secure needed", "requires_payment_method",
		`"last_payment_error":{"type":"card_error","code":"authentication_required","decline_code":"authentication_required"}`,
		ledger.ChargeActionRequired, "authentication_required", true},
	{"3-D Secure not handled", "requires_confirmation",
		`"last_payment_error":{"type":"card_error","code":"authentication_required","decline_code":"authentication_not_handled"}`,
		ledger.ChargeActionRequired, "authentication_not_handled", true},
	{"created, not yet confirmed", "requires_confirmation", `"latest_charge":null`, "", "", false},
	{"created without a payment method", "requires_payment_method", `"last_payment_error":null`, "", "", false},
	{"a status of next year", "requires_oracle", `"latest_charge":null`, "", "", false},
}

var asked = Asked{BillingKey: "monthly-billing/2026-10/a", Amount: 1200, Currency: "usd", Customer: "cus_a"}

func intentText(status, rest string) string {
	return fmt.Sprintf(`{"id":"pi_1","object":"payment_intent","status":%q,"amount":1200,"amount_received":0,"currency":"usd",
		"customer":"cus_a","created":1793491500,"livemode":false,"client_secret":"pi_1_secret_XYZ",
		"metadata":{"billing_key":"monthly-billing/2026-10/a","billing_job":"monthly-billing","billing_period":"2026-10",
		"billing_account":"a","billing_try":"1"},%s}`, status, rest)
}

func decodeIntent(t *testing.T, text string) PaymentIntent {
	t.Helper()
	var object intentJSON
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	pi, err := object.intent()
	if err != nil {
		t.Fatal(err)
	}
	return pi
}

func TestStateOf(t *testing.T) {
	for _, test := range stateCases {
		t.Run(test.name, func(t *testing.T) {
			state, reason, known := StateOf(decodeIntent(t, intentText(test.status, test.rest)))
			if state != test.state || reason != test.reason || known != test.known {
				t.Errorf("got %q %q %t, want %q %q %t", state, reason, known, test.state, test.reason, test.known)
			}
		})
	}
}

// The same payment leaves the same row by a 200, a 402 and a GET.
func TestOutcomeAgreesWithStateOf(t *testing.T) {
	for _, test := range stateCases {
		t.Run(test.name, func(t *testing.T) {
			a := Outcome(asked, reply(200, intentText(test.status, test.rest)))
			if test.known && (a.Verdict != VerdictKnown || a.State != test.state || a.Reason != test.reason) {
				t.Errorf("by a 200: %+v", a)
			}
			if !test.known && (a.Verdict != VerdictUnknown || a.State != "") {
				t.Errorf("by a 200: %+v", a)
			}
			if test.state != ledger.ChargeDeclined && test.state != ledger.ChargeActionRequired {
				return
			}
			a = Outcome(asked, reply(402, `{"error":{"type":"card_error","payment_intent":`+intentText(test.status, test.rest)+`}}`))
			if a.Verdict != VerdictKnown || a.State != test.state {
				t.Errorf("by a 402: %+v", a)
			}
		})
	}
}

func TestDiffersNamesWhatIsNotAsAsked(t *testing.T) {
	pi := decodeIntent(t, intentText("succeeded", `"x":1`))
	if got := pi.Differs(asked); got != "" {
		t.Fatalf("as asked, but differs in %q", got)
	}
	for want, change := range map[string]func(*Asked){
		"livemode":    func(a *Asked) { a.Livemode = true },
		"billing_key": func(a *Asked) { a.BillingKey = "monthly-billing/2026-10/A" },
		"amount":      func(a *Asked) { a.Amount = 1201 },
		"currency":    func(a *Asked) { a.Currency = "eur" },
		"customer":    func(a *Asked) { a.Customer = "cus_A" },
	} {
		other := asked
		change(&other)
		if got := pi.Differs(other); got != want {
			t.Errorf("differs in %q, want %q", got, want)
		}
	}
}

// Objects may stand where Stripe writes ids, if somebody asked for them.
func TestIntentReadsExpandedObjects(t *testing.T) {
	pi := decodeIntent(t, `{"id":"pi_1","object":"payment_intent","status":"succeeded","amount":1200,"currency":"usd","livemode":false,
		"customer":{"id":"cus_a","object":"customer"},"created":1793491500,
		"latest_charge":{"id":"ch_1","amount_refunded":500,"disputed":true,"outcome":{"advice_code":"do_not_try_again"}}}`)
	if pi.Customer != "cus_a" || pi.LatestCharge != "ch_1" || pi.AmountRefundedMinor != 500 || !pi.Disputed || pi.AdviceCode != "do_not_try_again" {
		t.Errorf("%+v", pi)
	}
}
