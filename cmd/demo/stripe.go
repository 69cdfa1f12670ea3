//go:build unix

package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shopspring/decimal"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/fixtures/world"
	"github.com/chargeonce/billing/ledger"
)

// tripwire calls a function at the n-th charge that Stripe has worked on and not
// yet answered: the worst moment for the program to die.
type tripwire struct {
	left atomic.Int64
	trip func()
}

// set arms the wire. It must be called while no request is on its way.
func (w *tripwire) set(n int, trip func()) {
	w.trip = trip
	w.left.Store(int64(n))
}

// onAnswer is the emulator's hook.
func (w *tripwire) onAnswer(r *stripeemu.Request) {
	if r.Method == "POST" && r.Path == "/v1/payment_intents" && w.left.Add(-1) == 0 {
		w.trip()
	}
}

// startStripe starts the emulator with the customers of the company in it.
func startStripe(w world.World, wire *tripwire) (*stripeemu.Server, error) {
	s := stripeemu.New(stripeemu.Config{Seed: 1, OnAnswer: wire.onAnswer})
	for _, c := range w.Customers() {
		s.AddCustomer(stripeemu.Customer{ID: c.ID, Name: c.Name, Email: c.Email})
	}
	for _, m := range w.PaymentMethods() {
		s.AddPaymentMethod(stripeemu.PaymentMethod{ID: m.ID, Customer: m.Customer, Alias: m.Alias, Detached: m.Detached})
	}
	if _, err := s.Start(); err != nil {
		return nil, err
	}
	return s, nil
}

// trouble is what happens to charges on their way, and how often. All of it
// leaves the program in doubt, and all of it heals when the same request is
// repeated under the same key.
var trouble = []struct {
	fault stripeemu.Fault
	says  string
}{
	{stripeemu.Fault{Name: stripeemu.FaultLoseAnswer, Probability: 0.03}, "answers lost after the card was charged"},
	{stripeemu.Fault{Name: stripeemu.FaultHTML502, Probability: 0.01}, "502s after the card was charged"},
	{stripeemu.Fault{Name: stripeemu.FaultHTML502, Probability: 0.01, WithoutWork: true}, "502s before anything happened"},
	{stripeemu.Fault{Name: stripeemu.FaultCutBody, Probability: 0.01}, "answers cut in half"},
	{stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Probability: 0.01}, "requests lost on the way there"},
	{stripeemu.Fault{Name: stripeemu.FaultLockTimeout429, Probability: 0.01}, "429s for a lock"},
	// Each of these halves the program's rate for a while.
	{stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Probability: 0.01, Times: 2}, "429s for the rate"},
}

// misbehave makes the emulator fail from now on, and returns a function that
// says what happened.
func misbehave(s *stripeemu.Server, w world.World) (report func() string) {
	spareRefused(s, w)
	ids := make([]int, len(trouble))
	for i, t := range trouble {
		t.fault.Method, t.fault.Path = "POST", "/v1/payment_intents"
		ids[i] = s.Inject(t.fault)
	}
	return func() string {
		var said []string
		for i, t := range trouble {
			said = append(said, fmt.Sprintf("%d %s", s.FaultFired(ids[i]), t.says))
		}
		return strings.Join(said, ", ")
	}
}

// spareRefused keeps trouble away from the few accounts that Stripe refuses: a
// refusal proves nothing about an earlier request that got lost, so the program
// would rightly keep asking for days. The first fault that matches wins, and
// this one does nothing.
func spareRefused(s *stripeemu.Server, w world.World) {
	usable := map[string]bool{}
	for _, m := range w.PaymentMethods() {
		usable[m.ID] = !m.Detached
	}
	for _, a := range w.Accounts {
		if a.PaymentMethod != "" && !usable[a.PaymentMethod] {
			s.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Account: a.ID, Delay: time.Nanosecond})
		}
	}
}

// stripeSide adds up Stripe's own PaymentIntents of the period.
func stripeSide(s *stripeemu.Server) side {
	all := side{}
	for _, p := range s.PaymentIntents() {
		amount := decimal.New(p.Amount, -world.Digits(p.Currency))
		all.add(line{stateAtStripe(p), p.Currency}, 1, amount)
	}
	return all
}

// stateAtStripe says where a PaymentIntent stands, in the ledger's words. It is
// deliberately not the program's own function.
func stateAtStripe(p stripeemu.PaymentIntent) ledger.ChargeState {
	switch {
	case p.Status == "succeeded" || p.Status == "processing":
		return ledger.ChargeState(p.Status)
	case p.Status == "requires_action", p.ErrorCode == "authentication_required":
		return ledger.ChargeActionRequired
	default:
		return ledger.ChargeDeclined
	}
}

// payments counts the payments that took or may take money, by billing key.
func payments(s *stripeemu.Server) map[string]int {
	byKey := map[string]int{}
	for _, p := range s.PaymentIntents() {
		if p.Live() {
			byKey[p.Metadata["billing_key"]]++
		}
	}
	return byKey
}
