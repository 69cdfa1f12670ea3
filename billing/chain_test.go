package billing

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/ledger"
)

func claimedOf(account, stripeAccount, customer string) claimed {
	return claimed{Permit: ledger.Permit{AccountID: account, StripeAccount: stripeAccount, StripeCustomer: customer}}
}

func accountsIn(batch []claimed) (list []string) {
	for _, c := range batch {
		list = append(list, c.AccountID)
	}
	return list
}

// Charges of one customer are one chain, in their order, and no longer than can be
// sent in time; the same id at another Stripe account is another customer.
func TestChargesOfOneCustomerAreOneChain(t *testing.T) {
	t.Parallel()
	batch := []claimed{claimedOf("a", "", "cus_1"), claimedOf("b", "", "cus_2"), claimedOf("c", "acct_x", "cus_1"), claimedOf("d", "", "cus_1")}
	for i := range longestChain {
		batch = append(batch, claimedOf("e"+strconv.Itoa(i), "", "cus_1"))
	}
	list, surplus := chains(batch)
	var got [][]string
	for _, chain := range list {
		got = append(got, accountsIn(chain))
	}
	if diff := cmp.Diff([][]string{{"a", "d", "e0", "e1", "e2"}, {"b"}, {"c"}}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"e3", "e4"}, accountsIn(surplus)); diff != "" {
		t.Errorf("given back: %s", diff)
	}
}

// A customer is left out of claims until the last of its charges is answered or
// given back, and while an earlier owner may send for it.
func TestACustomerInHandIsLeftOut(t *testing.T) {
	t.Parallel()
	h, now := newInHand(), time.Now()
	batch := []claimed{claimedOf("a", "", "cus_1"), claimedOf("b", "", "cus_1"), claimedOf("c", "", "cus_2")}
	leftOut := func(after time.Duration) (ids []string) {
		for _, c := range h.customers(now.Add(after)) {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return ids
	}
	h.take(batch)
	h.leased([]ledger.Lease{{Customer: ledger.StripeCustomer{ID: "cus_3"}, Left: time.Second}}, now)
	h.drop(batch[0])
	if diff := cmp.Diff([]string{"cus_1", "cus_2", "cus_3"}, leftOut(0)); diff != "" {
		t.Errorf("one of two answered: %s", diff)
	}
	h.drop(batch[1])
	if diff := cmp.Diff([]string{"cus_2"}, leftOut(2*time.Second)); diff != "" {
		t.Errorf("both answered, and the lease over: %s", diff)
	}
}

// The pauses of an outage double from one second to thirty, and stay there.
func TestThePausesOfAnOutageGrowToHalfAMinute(t *testing.T) {
	t.Parallel()
	want := []int{1, 2, 4, 8, 16, 30, 30, 30}
	pause := firstOutagePause
	for i, seconds := range want {
		if pause != time.Duration(seconds)*time.Second {
			t.Errorf("pause %d is %s, want %ds", i+1, pause, seconds)
		}
		pause = longer(pause)
	}
}
