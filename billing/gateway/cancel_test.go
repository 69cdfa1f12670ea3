package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// open is a PaymentIntent as a list showed it.
func open(id string) PaymentIntent { return PaymentIntent{ID: id, Status: StatusRequiresPaymentMethod} }

func soon() Deadline { return NewDeadline(time.Now(), CancelLife) }

// A cancel tells what the PaymentIntent is afterwards, not what was answered.
func TestCancelTellsWhatIs(t *testing.T) {
	t.Parallel()
	emu, client := newEmulator(t, stripeemu.Config{})
	paid := client.Charger().Send(t.Context(), permitFor("a", "pm_card_visa"))
	declined := client.Charger().Send(t.Context(), permitFor("b", "pm_card_chargeCustomerFail"))
	canceller := client.Canceller()
	if pi, err := canceller.Cancel(t.Context(), "", open(paid.PaymentIntent), soon()); err != nil || pi.Status != StatusSucceeded {
		t.Errorf("cancelling what is paid: %+v, %v", pi, err)
	}
	// The answer is lost; what counts is read.
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "POST"})
	if pi, err := canceller.Cancel(t.Context(), "", open(declined.PaymentIntent), soon()); err != nil || pi.Status != StatusCanceled {
		t.Errorf("cancelling what is open: %+v, %v", pi, err)
	}
	emu.ClearFaults()
	for _, id := range []string{"", "ch_1", "pi_1/../../customers", "pi_1?x=y"} {
		if _, err := canceller.Cancel(t.Context(), "", open(id), soon()); err == nil {
			t.Errorf("%q was accepted", id)
		}
	}
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultForbidden403, Method: "POST"})
	var failure *Error
	if _, err := canceller.Cancel(t.Context(), "", open(declined.PaymentIntent), soon()); !errors.As(err, &failure) || failure.Kind != KindPermission {
		t.Error(err)
	}
}

// What Stripe did not get, or turned away for the moment, is asked for again under
// the same key, a bounded number of times.
func TestACancelThatDidNotArriveIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault stripeemu.Fault
		want  string
		posts int
	}{
		"lost once":      {stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST", Times: 1}, StatusCanceled, 2},
		"turned away":    {stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Method: "POST", Times: 2}, StatusCanceled, 3},
		"never answered": {stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Method: "POST"}, StatusRequiresPaymentMethod, cancelTries},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			emu, client := newEmulator(t, stripeemu.Config{})
			client.firstPause = time.Millisecond
			declined := client.Charger().Send(t.Context(), permitFor("b", "pm_card_chargeCustomerFail"))
			emu.ResetLog()
			emu.Inject(c.fault)
			pi, err := client.Canceller().Cancel(t.Context(), "", open(declined.PaymentIntent), soon())
			if err != nil || pi.Status != c.want {
				t.Errorf("%+v, %v", pi, err)
			}
			keys, posts := map[string]bool{}, 0
			for _, r := range emu.Requests() {
				if r.Method == "POST" {
					posts, keys[r.IdempotencyKey] = posts+1, true
				}
			}
			if posts != c.posts || len(keys) != 1 {
				t.Errorf("%d POSTs under %v, want %d under one key", posts, keys, c.posts)
			}
		})
	}
}

// After its deadline no cancel leaves: a process that stood still cancels nothing
// that another one has opened since.
func TestNoCancelLeavesAfterItsDeadline(t *testing.T) {
	t.Parallel()
	emu, client := newEmulator(t, stripeemu.Config{})
	declined := client.Charger().Send(t.Context(), permitFor("b", "pm_card_chargeCustomerFail"))
	past := NewDeadline(time.Now().Add(-time.Hour), CancelLife)
	pi, err := client.Canceller().Cancel(t.Context(), "", open(declined.PaymentIntent), past)
	if err != nil || pi.Status != StatusRequiresPaymentMethod || emu.Count("POST payment_intents/{id}/cancel") != 0 {
		t.Errorf("%+v, %v", pi, err)
	}
}
