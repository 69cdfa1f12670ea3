package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// Payments come with what their charges brought, refunds and disputes with what they
// took, page by page to the end.
func TestMoneyIsReadWithItsObjects(t *testing.T) {
	emu, client := newEmulator(t, stripeemu.Config{})
	charge(t, client, 203, 2)
	all := emu.PaymentIntents()
	for i := range 3 {
		if err := emu.Refund(all[i].ID, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(emu.FailRefunds(all[2].ID), emu.Dispute(all[3].ID)); err != nil {
		t.Fatal(err)
	}
	since := Span{CreatedFrom: time.Now().Add(-time.Hour)}
	seen, pages := map[string]Payment{}, 0
	err := client.Finder().Payments(t.Context(), since, func(page []Payment, meta Meta) error {
		pages = meta.Page
		for _, p := range page {
			seen[p.ID] = p
		}
		return nil
	})
	if err != nil || len(seen) != 203 || pages != 3 {
		t.Errorf("%d payments in %d pages, %v", len(seen), pages, err)
	}
	for id, p := range seen {
		b := p.Balance
		if b.ID == "" || b.Amount != p.Amount || b.Fee != p.Amount*29/1000+30 || b.Net != b.Amount-b.Fee || b.Currency != p.Currency || !b.AvailableOn.After(p.Created) || p.BillingKey == "" {
			t.Fatalf("%s: %+v", id, p)
		}
	}
	returns := map[ReturnKind][]Return{}
	keep := func(page []Return, _ Meta) error {
		for _, r := range page {
			returns[r.Kind] = append(returns[r.Kind], r)
		}
		return nil
	}
	if err := errors.Join(client.Finder().Refunds(t.Context(), since, keep), client.Finder().Disputes(t.Context(), since, keep)); err != nil {
		t.Fatal(err)
	}
	if len(returns[ReturnRefund]) != 3 || len(returns[ReturnDispute]) != 1 {
		t.Fatalf("%+v", returns)
	}
	for _, r := range returns[ReturnRefund] {
		failed := r.PaymentIntent == all[2].ID
		if r.Stands() == failed || failed != (len(r.Balance) == 2) || r.Balance[0].Amount != -100 || r.Amount != 100 {
			t.Errorf("a refund: %+v", r)
		}
	}
	if d := returns[ReturnDispute][0]; d.PaymentIntent != all[3].ID || len(d.Balance) != 1 || d.Balance[0].Amount != -all[3].Amount || d.Balance[0].Fee != 1500 {
		t.Errorf("the dispute: %+v", d)
	}
}

// A list is gone on with behind the object that was read last.
func TestAListIsReadOnFromWhereItWasLeft(t *testing.T) {
	_, client := newEmulator(t, stripeemu.Config{})
	charge(t, client, 150, 1)
	since := Span{CreatedFrom: time.Now().Add(-time.Hour)}
	enough := errors.New("enough")
	seen := map[string]bool{}
	keep := func(page []Payment, _ Meta) error {
		for _, p := range page {
			seen[p.ID], since.After = true, p.ID
		}
		return enough
	}
	if err := client.Finder().Payments(t.Context(), since, keep); !errors.Is(err, enough) || len(seen) != 100 {
		t.Fatalf("%d payments, %v", len(seen), err)
	}
	if err := client.Finder().Payments(t.Context(), since, keep); !errors.Is(err, enough) || len(seen) != 150 {
		t.Errorf("%d payments, %v", len(seen), err)
	}
}

// A list of which a page fails, repeats itself, ends in nothing or holds what was not
// asked for is an error.
func TestAMoneyListThatIsNotCompleteIsAnError(t *testing.T) {
	for _, name := range []stripeemu.FaultKind{stripeemu.FaultListError, stripeemu.FaultListEmpty, stripeemu.FaultListRepeat, stripeemu.FaultListForgetsCreated, stripeemu.FaultOtherMode} {
		t.Run(fmt.Sprint(name), func(t *testing.T) {
			emu, client := newEmulator(t, stripeemu.Config{})
			emu.AddIntent(stripeemu.PaymentIntent{Customer: "cus_0", Created: time.Now().AddDate(-1, 0, 0)})
			charge(t, client, 150, 1)
			fault := stripeemu.Fault{Name: name, Page: 2}
			if name == stripeemu.FaultOtherMode {
				fault = stripeemu.Fault{Name: name, Customer: "cus_0"}
			}
			emu.Inject(fault)
			err := client.Finder().Payments(t.Context(), Span{CreatedFrom: time.Now().Add(-time.Hour)}, func([]Payment, Meta) error { return nil })
			if failure := (*Error)(nil); !errors.As(err, &failure) {
				t.Errorf("%v", err)
			}
		})
	}
}
