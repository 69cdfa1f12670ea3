package gateway

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// What a restricted key may do is found out by reading, each right by itself.
func TestEachRightOfAKeyIsFoundByReading(t *testing.T) {
	emu, _ := newEmulator(t, stripeemu.Config{})
	all := map[string]string{
		"list": stripeemu.OpList, "read": stripeemu.OpRead, "customers": stripeemu.OpReadCustomer, "search": stripeemu.OpSearch,
	}
	for lacking := range all {
		key := "rk_test_no_" + lacking
		var may []string
		for right, operation := range all {
			if right != lacking {
				may = append(may, operation)
			}
		}
		emu.AddRestrictedKey(key, may...)
		client, err := New(Config{SecretKey: key, APIBase: emu.URL(), ReadRate: -1})
		if err != nil {
			t.Fatal(err)
		}
		finder := client.Finder()
		for right, err := range map[string]error{
			"list": finder.MayList(t.Context(), time.Now().Add(-time.Hour)), "read": finder.MayRead(t.Context()),
			"customers": finder.MayReadCustomers(t.Context()), "search": finder.MaySearch(t.Context()),
		} {
			var failure *Error
			refused := errors.As(err, &failure) && failure.Kind == KindPermission
			if refused != (right == lacking) || !refused && err != nil {
				t.Errorf("a key without the right to %s: %s gives %v", lacking, right, err)
			}
		}
		client.Close()
	}
	if emu.Posts() != 0 {
		t.Errorf("%d POSTs", emu.Posts())
	}
}

// A key is shown by its kind and its last four characters, whatever it is.
func TestKeyKindShowsNoMoreThanStripeDoes(t *testing.T) {
	for key, want := range map[string]string{
		"sk_live_51AbCdEfGhIjKlMnOpQr": "secret key sk_live_…OpQr",
		"rk_test_51AbCdEfGhIjKlMnOpQr": "restricted key rk_test_…OpQr",
		"pk_test_51AbCdEfGhIjKlMnOpQr": "publishable key pk_test_…OpQr",
		"sk_test_short":                "secret key sk_test_…",
		"whsec_51AbCdEfGhIjKlMnOpQr":   "not a Stripe key …",
		"my password":                  "not a Stripe key …",
		"":                             "not a Stripe key …",
		"sk_averylongsecretwithout_x":  "not a Stripe key …",
	} {
		kind, shown := KeyKind(key)
		if got := kind + " " + shown; got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
		if secret := strings.TrimPrefix(key, "sk_live_"); len(secret) > 4 && strings.Contains(shown, secret) {
			t.Errorf("%q is shown whole", key)
		}
	}
}
