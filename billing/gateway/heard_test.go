package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/netproxy"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// An id is known as long as its copy may come, and memory does not grow.
func TestIDsAreRememberedForAWhile(t *testing.T) {
	var h heard
	for i := range 2*heardAnswers + 1 {
		if h.before(fmt.Sprint("req_", i)) {
			t.Fatalf("answer %d is new", i)
		}
	}
	if !h.before(fmt.Sprint("req_", heardAnswers+1)) || h.before("req_0") {
		t.Error("the last answers are not those that are remembered")
	}
	if len(h.ids) != heardAnswers {
		t.Errorf("%d ids are remembered, want %d", len(h.ids), heardAnswers)
	}
	for range 2 {
		if h.before("") {
			t.Error("answers without an id are no copies of each other")
		}
	}
}

// behindProxy is a client whose way to an emulator leads through a proxy.
func behindProxy(t *testing.T) (*netproxy.Proxy, *Client) {
	t.Helper()
	emu := stripeemu.New(stripeemu.Config{AnyCustomer: true})
	url, err := emu.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	p, err := netproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, newTestClient(t, p.URL)
}

// The empty list of one customer, delivered once more in answer to the next
// question on the same connection, is not taken for another customer's.
func TestACopyOfAnEmptyListProvesNothing(t *testing.T) {
	for _, act := range []netproxy.Act{netproxy.AnswerNext, netproxy.AnswerTwice, netproxy.AnswerBefore} {
		t.Run(string(act), func(t *testing.T) {
			p, client := behindProxy(t)
			charge(t, client, 1, 1)
			skip := 0
			if act == netproxy.AnswerBefore {
				skip = 1
			}
			p.Inject(netproxy.Rule{Act: act, Kind: stripeemu.OpList, Skip: skip, Times: 1})
			since := time.Now().Add(-time.Hour)
			none, _, err := list(t.Context(), client.Finder(), ListQuery{Customer: "cus_nobody", CreatedFrom: since})
			if err != nil || len(none) != 0 {
				t.Fatalf("%d payments of nobody, %v", len(none), err)
			}
			paid, _, err := list(t.Context(), client.Finder(), ListQuery{Customer: "cus_0", CreatedFrom: since})
			if err != nil || len(paid) != 1 || p.Fired() != 1 {
				t.Errorf("%d payments of cus_0, %v, %d faults; want one payment, after one fault", len(paid), err, p.Fired())
			}
		})
	}
}

// One charge never gets another's answer, and costs one more send at most.
func TestACopyOfAnAnswerIsNobodysAnswer(t *testing.T) {
	p, client := behindProxy(t)
	p.Inject(netproxy.Rule{Act: netproxy.AnswerNext, Kind: stripeemu.OpCreate, Times: 1})
	for i, want := range []Verdict{VerdictKnown, VerdictUnknown, VerdictKnown, VerdictKnown} {
		a := client.Charger().Send(t.Context(), permitFor(fmt.Sprint(i), "pm_card_visa"))
		if a.Verdict != want || want == VerdictKnown && a.State != ledger.ChargeSucceeded || want == VerdictUnknown && a.Reason != ReasonUnreadable {
			t.Errorf("charge %d: %+v; want the verdict %s", i, a, want)
		}
	}
}
