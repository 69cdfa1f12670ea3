package gateway

import (
	"errors"
	"testing"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A customer that Stripe does not have any more is told from one that it has, and
// what can't be told is an error.
func TestCustomerExists(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	emu.AddCustomer(stripeemu.Customer{ID: "cus_kept"})
	emu.AddCustomer(stripeemu.Customer{ID: "cus_deleted"})
	emu.DeleteCustomer("cus_deleted")
	for id, want := range map[string]bool{"cus_kept": true, "cus_deleted": false, "cus/../kept?x": false} {
		if got, err := client.Finder().CustomerExists(t.Context(), "", id); got != want || err != nil {
			t.Errorf("%s: %t, %v, want %t", id, got, err, want)
		}
	}
	var failure *Error
	if _, err := client.Finder().CustomerExists(t.Context(), "", ""); !errors.As(err, &failure) || failure.Kind != KindRefused {
		t.Errorf("no id: %v", err)
	}
	_, client = newEmulator(t, stripeemu.Config{Keys: []string{"sk_test_another"}})
	if _, err := client.Finder().CustomerExists(t.Context(), "", "cus_kept"); !errors.As(err, &failure) || failure.Kind != KindAuth {
		t.Errorf("a key that Stripe does not know: %v", err)
	}
}
