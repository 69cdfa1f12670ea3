package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// charge sends n charges to customers in turn, and returns their keys.
func charge(t *testing.T, client *Client, n, customers int) []string {
	t.Helper()
	var keys []string
	for i := range n {
		p := permitFor(fmt.Sprintf("%d", i), "pm_card_visa")
		customer := fmt.Sprintf("cus_%d", i%customers)
		p.Body = strings.Replace(p.Body, "customer="+p.Customer, "customer="+customer, 1)
		p.Customer, p.SHA256 = customer, sha256.Sum256([]byte(p.Body))
		if a := client.Charger().Send(t.Context(), p); a.State != ledger.ChargeSucceeded {
			t.Fatalf("charge %d: %+v", i, a)
		}
		keys = append(keys, p.Key)
	}
	return keys
}

func list(ctx context.Context, f *Finder, q ListQuery) (all []PaymentIntent, pages int, err error) {
	q.EachPage = func(page []PaymentIntent, meta Meta) error {
		all, pages = append(all, page...), meta.Page
		return nil
	}
	return all, pages, f.List(ctx, q)
}

func TestListReadsEveryPage(t *testing.T) {
	_, client := newEmulator(t, stripeemu.Config{})
	keys := charge(t, client, 203, 2)
	since := time.Now().Add(-time.Hour)
	all, pages, err := list(t.Context(), client.Finder(), ListQuery{CreatedFrom: since})
	if err != nil || len(all) != 203 || pages != 3 {
		t.Errorf("%d in %d pages, %v", len(all), pages, err)
	}
	found := make(map[string]bool)
	for _, pi := range all {
		found[pi.BillingKey] = true
	}
	for _, key := range keys {
		if !found[key] {
			t.Errorf("%s is missing", key)
		}
	}
	ofOne, pages, err := list(t.Context(), client.Finder(), ListQuery{Customer: "cus_1", CreatedFrom: since, CreatedTo: time.Now().Add(time.Hour)})
	if err != nil || len(ofOne) != 101 || pages != 2 {
		t.Errorf("of one customer: %d in %d pages, %v", len(ofOne), pages, err)
	}
	none, pages, err := list(t.Context(), client.Finder(), ListQuery{CreatedTo: since})
	if err != nil || len(none) != 0 || pages != 1 {
		t.Errorf("before: %d in %d pages, %v", len(none), pages, err)
	}
}

// A list that is not complete is an error, never a shorter list.
func TestListIsCompleteOrAnError(t *testing.T) {
	for name, test := range map[string]struct {
		fault stripeemu.Fault
		want  Kind
	}{
		"page 2 fails for ever":        {stripeemu.Fault{Name: stripeemu.FaultListError, Page: 2}, KindUnreachable},
		"page 2 is page 1 again":       {stripeemu.Fault{Name: stripeemu.FaultListRepeat, Page: 2}, KindBadAnswer},
		"page 2 forgets the filter":    {stripeemu.Fault{Name: stripeemu.FaultListForgetsFilter, Page: 2}, KindForeign},
		"page 1 forgets the filter":    {stripeemu.Fault{Name: stripeemu.FaultListForgetsFilter, Page: 1}, KindForeign},
		"the connection dies for ever": {stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Method: "GET", Skip: 1}, KindUnreachable},
		"{} instead of a page":         {stripeemu.Fault{Name: stripeemu.FaultEmptyObject, Method: "GET", Skip: 1}, KindBadAnswer},
		"HTML instead of a page":       {stripeemu.Fault{Name: stripeemu.FaultHTML200, Method: "GET", Skip: 1}, KindBadAnswer},
		"too many requests for ever":   {stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Method: "GET", Skip: 1}, KindRate},
		"the key is revoked":           {stripeemu.Fault{Name: stripeemu.FaultUnauthorized401, Method: "GET", Skip: 1}, KindAuth},
		"the key may not":              {stripeemu.Fault{Name: stripeemu.FaultForbidden403, Method: "GET"}, KindPermission},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			emu, client := newEmulator(t, stripeemu.Config{})
			charge(t, client, 220, 2)
			emu.Inject(test.fault)
			all, _, err := list(t.Context(), client.Finder(), ListQuery{Customer: "cus_0", CreatedFrom: time.Now().Add(-time.Hour)})
			var failure *Error
			if !errors.As(err, &failure) || failure.Kind != test.want || errors.Is(err, ErrForeign) != (test.want == KindForeign) {
				t.Errorf("%d PaymentIntents, %v; want %s", len(all), err, test.want)
			}
		})
	}
}

// A read is not led elsewhere either: the key would go along.
func TestAReadIsNotRedirected(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRedirect307, Times: readTries})
	var failure *Error
	if _, err := client.Finder().Account(t.Context()); !errors.As(err, &failure) || failure.Kind != KindBadAnswer || failure.Status != 307 {
		t.Error(err)
	}
}

// Failures that pass are waited for.
func TestListGoesOnAfterAFailure(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	charge(t, client, 150, 1)
	for _, name := range []stripeemu.FaultKind{
		stripeemu.FaultListError, stripeemu.FaultLoseAnswer, stripeemu.FaultCutBody, stripeemu.FaultRateLimit429, stripeemu.FaultHTML502,
	} {
		emu.Inject(stripeemu.Fault{Name: name, Method: "GET", Times: 1})
	}
	all, pages, err := list(t.Context(), client.Finder(), ListQuery{})
	if err != nil || len(all) != 150 || pages != 2 {
		t.Errorf("%d in %d pages, %v", len(all), pages, err)
	}
}

func TestListStopsWhereItsReaderStops(t *testing.T) {
	_, client := newEmulator(t, stripeemu.Config{})
	charge(t, client, 1, 1)
	enough := errors.New("enough")
	err := client.Finder().List(t.Context(), ListQuery{EachPage: func([]PaymentIntent, Meta) error { return enough }})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Finder().List(ctx, ListQuery{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestGetReadsWhatIs(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	a := client.Charger().Send(t.Context(), permitFor("a", "pm_card_visa"))
	pi, meta, err := client.Finder().GetWithCharge(t.Context(), "", a.PaymentIntent)
	if err != nil || pi.Status != StatusSucceeded || pi.BillingKey != "monthly-billing/2026-10/a" || pi.Try != 1 || pi.Account != "a" ||
		pi.Period != "2026-10" || pi.Job != "monthly-billing" || pi.AmountReceived != 1200 || pi.LatestCharge == "" || meta.Date.IsZero() || meta.RequestID == "" {
		t.Errorf("%+v %+v %v", pi, meta, err)
	}
	var failure *Error
	if _, _, err := client.Finder().Get(t.Context(), "", "pi_none"); !errors.As(err, &failure) || failure.Kind != KindNotFound {
		t.Error(err)
	}
	if _, _, err := client.Finder().Get(t.Context(), "", ""); err == nil {
		t.Error("an empty id is the list")
	}
	if emu.Posts() != 1 {
		t.Errorf("%d POSTs", emu.Posts())
	}
}

// A search value cannot end its string; what only looks alike is not returned.
func TestSearchFindsExactlyTheKeys(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	strange := []string{`oneil`, `o'neil`, `x" OR created>0 OR metadata["a"]:"b`, `back\slash`, `trailing\`, `Case`}
	for _, account := range strange {
		if a := client.Charger().Send(t.Context(), permitFor(account, "pm_card_visa")); a.State != ledger.ChargeSucceeded {
			t.Fatalf("%s: %+v", account, a)
		}
	}
	for _, account := range append(strange, `case`, `back`, `none`) {
		key := "monthly-billing/2026-10/" + account
		found, err := client.Finder().Search(t.Context(), "", []string{key})
		want := 1
		if account == "case" || account == "back" || account == "none" {
			want = 0
		}
		if err != nil || len(found) != want || (want == 1 && found[0].BillingKey != key) {
			t.Errorf("%s: %+v, %v", account, found, err)
		}
	}
	all, err := client.Finder().Search(t.Context(), "", []string{
		"monthly-billing/2026-10/oneil", "monthly-billing/2026-10/Case", "monthly-billing/2026-10/none",
	})
	if err != nil || len(all) != 2 {
		t.Errorf("%d found for three keys of which two exist, %v", len(all), err)
	}
	for name, keys := range map[string][]string{"none": nil, "eleven": make([]string, 11), "empty": {""}, "control": {"a\nb"}} {
		if _, err := client.Finder().Search(t.Context(), "", keys); err == nil {
			t.Errorf("%s keys were accepted", name)
		}
	}
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchForeign})
	if found, err := client.Finder().Search(t.Context(), "", []string{"monthly-billing/2026-10/none"}); err != nil || len(found) != 0 {
		t.Errorf("a foreign hit: %+v, %v", found, err)
	}
	emu.ClearFaults()
	emu.Inject(stripeemu.Fault{Name: stripeemu.FaultSearchUnavailable})
	var failure *Error
	if _, err := client.Finder().Search(t.Context(), "", []string{"a"}); !errors.As(err, &failure) || failure.Kind != KindRefused {
		t.Error(err)
	}
}

func TestAccountTellsWhoseKeyItIs(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{AccountID: "acct_ours"})
	identity, err := client.Finder().Account(t.Context())
	if err != nil || identity.AccountID != "acct_ours" || identity.Livemode || identity.Date.IsZero() {
		t.Errorf("%+v, %v", identity, err)
	}
	emu.RevokeKey(testKey)
	var failure *Error
	if _, err := client.Finder().Account(t.Context()); !errors.As(err, &failure) || failure.Kind != KindAuth || strings.Contains(err.Error(), testKey) {
		t.Error(err)
	}
	emu.Stop()
	if _, err := client.Finder().Account(t.Context()); !errors.As(err, &failure) || failure.Kind != KindUnreachable {
		t.Error(err)
	}
}

// A read-only key is enough for a Finder, and a run with it stops.
func TestAReadOnlyKeyReadsAndCannotSend(t *testing.T) {
	emu := stripeemu.New(stripeemu.Config{AnyCustomer: true, RestrictedReadOnlyKeys: []string{"rk_test_reader"}})
	base, err := emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	client, err := New(Config{SecretKey: "rk_test_reader", APIBase: base, ReadRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if _, _, err := list(t.Context(), client.Finder(), ListQuery{}); err != nil {
		t.Error(err)
	}
	if a := client.Charger().Send(t.Context(), permitFor("a", "pm_card_visa")); a.Verdict != VerdictStop || a.Reason != ReasonForbidden || !a.NotExecuted {
		t.Errorf("%+v", a)
	}
}
