package reconcile

import (
	"strings"
	"testing"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

func findingOf(kind string, charge ledger.ChargeState, payment string) ledger.FindingState {
	f := ledger.FindingState{ChargeState: charge}
	f.ID, f.Kind, f.Severity, f.Period, f.AccountID, f.PaymentIntent = 7, kind, ledger.SeverityAct, "2026-10", "a b", payment
	if charge == ledger.ChargeReview {
		f.ChargeReason, f.ChargePayment = kind, payment
	}
	return f
}

// A note about a charge in review, or a finding about another payment of it, neither
// accepts nor releases the charge.
func TestOnlyWhatPutAChargeIntoReviewEndsIt(t *testing.T) {
	t.Parallel()
	f := findingOf("not_as_asked", ledger.ChargeReview, "pi_1")
	note, other := f, f
	note.Severity = ledger.SeverityNote
	other.Kind, other.PaymentIntent = "duplicate", "pi_2"
	if !f.InReview() || note.InReview() || other.InReview() {
		t.Errorf("%t, %t, %t", f.InReview(), note.InReview(), other.InReview())
	}
	for _, f := range []ledger.FindingState{note, other} {
		if err := mayResolve(&f, ledger.ResolutionVoided, ordered{}, nil); err == nil || !strings.Contains(err.Error(), "put no charge into review") {
			t.Errorf("%s: %v", f.Kind, err)
		}
	}
}

// A payment that pays for another charge, or was given back, is nobody's payment to
// accept.
func TestWhatMayBeAccepted(t *testing.T) {
	t.Parallel()
	paid := gateway.PaymentIntent{ID: "pi_1", Status: gateway.StatusSucceeded, Amount: 100}
	back, partly := paid, paid
	back.AmountRefundedMinor, partly.AmountRefundedMinor = 100, 99
	f := findingOf("not_as_asked", ledger.ChargeReview, "pi_1")
	taken := f
	taken.PaysFor = "other"
	for name, c := range map[string]struct {
		f    ledger.FindingState
		pi   gateway.PaymentIntent
		says string
	}{
		"paid": {f, paid, ""}, "partly given back": {f, partly, ""}, "given back": {f, back, "was given back"}, "another's": {taken, paid, "for one debt only"},
	} {
		err := mayResolve(&c.f, ledger.ResolutionAccepted, ordered{}, &c.pi)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each finding says what to type, and a resolved one nothing.
func TestWhatToTypeAboutAFinding(t *testing.T) {
	t.Parallel()
	under := findingOf("duplicate", ledger.ChargeSucceeded, "pi_2")
	under.Order = ledger.RefundPending
	second := findingOf("adjacent_double", ledger.ChargeSucceeded, "pi_2")
	second.PaysFor = "a b"
	for want, f := range map[string]ledger.FindingState{
		"--as accept\nbilling resolve --finding 7 --why W --as refund\nbilling resolve --finding 7 --why W --as release\nbilling resolve --finding 7 --why W --as void": findingOf("not_as_asked", ledger.ChargeReview, "pi_1"),
		"--as release\nbilling resolve --finding 7 --why W --as void":  findingOf("idempotency_error", ledger.ChargeReview, ""),
		"--as refund\nbilling resolve --finding 7 --why W --as accept": findingOf("duplicate", ledger.ChargeSucceeded, "pi_2"),
		"--as refund --yes": under,
		"billing reconcile": findingOf("processing_long", ledger.ChargeProcessing, "pi_1"),
		"billing show --period 2026-10 --account 'a b'   # ":                                                  findingOf("missing", ledger.ChargeSucceeded, ""),
		"--rebuild --why W   # once its invoice is imported\nbilling resolve --finding 7 --why W --as refund": findingOf("orphan", "", "pi_2"),
		"--as refund --amount A   # of the second":                                                            second,
	} {
		if got := NextAbout(f); !strings.Contains(got, want) {
			t.Errorf("%s: %q", want, got)
		}
	}
}

// What a person disowned is left out only while it looks the same, and what is exactly
// as asked never.
func TestDisownedPayments(t *testing.T) {
	t.Parallel()
	c := ledger.OpenCharge{BillingKey: "k", Currency: "usd", AmountMinor: 100}
	odd := gateway.PaymentIntent{ID: "pi_1", BillingKey: "k", Status: gateway.StatusSucceeded, Amount: 50, Currency: "usd"}
	j := judge{}
	seen := j.notAsAsked(&c, odd, evidence{})
	j.disowned = map[ledger.Disowned]bool{{Kind: "not_as_asked", BillingKey: "k", PaymentIntent: "pi_1", Seen: seen.Seen}: true}
	changed := odd
	changed.Amount = 60
	if s := j.withoutDisowned(&c, sorted{odd: []gateway.PaymentIntent{odd}, paid: []gateway.PaymentIntent{odd}}, evidence{}); len(s.odd) != 0 || len(s.paid) != 1 {
		t.Errorf("%d odd, %d paid", len(s.odd), len(s.paid))
	}
	if s := j.withoutDisowned(&c, sorted{odd: []gateway.PaymentIntent{changed}}, evidence{}); len(s.odd) != 1 {
		t.Error("a changed payment was left out")
	}
}

// The amount of a finding is in its currency: what was given back, what was paid, or what
// was invoiced; where nobody knows there is none.
func TestTheAmountThatAFindingIsAbout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		seen, currency string
		invoiced, want int64 // 0 is none
	}{
		{"a second payment, pi_1 (succeeded, 777 jpy, customer cus_16)", "jpy", 500, 777},
		{"500 of 1725 usd were refunded", "usd", 1725, 500},
		{"another currency (succeeded, 777 eur, customer cus_16)", "usd", 500, 500},
		{"cancelled at Stripe", "usd", 500, 500},
		{"a payment, pi_1, and no charge", "usd", 0, 0},
		{"a payment, pi_1 (succeeded, 777 zzz), and no charge", "zzz", 0, 0},
		{"Stripe has no such payment", "", 500, 0},
	} {
		minor, known := AmountAbout(ledger.FindingState{PastFinding: ledger.PastFinding{Finding: ledger.Finding{Seen: tt.seen, Currency: tt.currency}}, ChargeMinor: tt.invoiced})
		if minor != tt.want || known != (tt.want != 0) {
			t.Errorf("%q in %s: %d, %t, want %d", tt.seen, tt.currency, minor, known, tt.want)
		}
	}
}

// Amounts are told in major units with their currency's digits, whatever was written down
// to be compared; what is no amount stays as it is.
func TestWhatAFindingSawIsToldInMajorUnits(t *testing.T) {
	t.Parallel()
	for seen, want := range map[string]string{
		"a second payment, pi_1 (succeeded, 777 usd, customer cus_16)": "a second payment, pi_1 (succeeded, 7.77 usd, customer cus_16)",
		"another amount (succeeded, 777 jpy, customer cus_16)":         "another amount (succeeded, 777 jpy, customer cus_16)",
		"a payment, pi_1 (succeeded, 1250 kwd), and no charge":         "a payment, pi_1 (succeeded, 1.250 kwd), and no charge",
		"500 of 1725 usd were refunded":                                "5.00 of 17.25 usd were refunded",
		"another currency (succeeded, 777 zzz, customer cus_16)":       "another currency (succeeded, 777 zzz, customer cus_16)",
		"processing since 2026-10-01 00:05 UTC":                        "processing since 2026-10-01 00:05 UTC",
	} {
		if got := SeenText(ledger.Finding{Seen: seen}); got != want {
			t.Errorf("%q: %q, want %q", seen, got, want)
		}
	}
}
