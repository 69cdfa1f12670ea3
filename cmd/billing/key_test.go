package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// A charge whose answer was lost is sent again under the same key and as the same
// request, by another process, on the next day, and whatever card is on file by then.
func TestAKeyIsTheSameOnAnotherDayWithAnotherCard(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(3)
	o.setNow(time.Date(2026, 11, 1, 23, 50, 0, 0, time.UTC))
	o.imports(october, list)
	o.meets(faults{"a0002": stripeemu.FaultLoseAnswer})
	list[1].card = "pm_card_visa_other"
	o.must(0, "import", "accounts", "--file", o.file("accounts.csv", accountsCSV(list)))
	o.advance(time.Hour)
	r := o.month(0)
	sent := o.bodiesByKey()
	if keys := slices.Sorted(maps.Keys(sent)); !slices.Equal(keys, []string{keyOf("a0002")}) {
		t.Errorf("sent again under the keys %q\n%s", keys, r)
	}
	for body := range sent[keyOf("a0002")] {
		if !strings.Contains(body, "payment_method=pm_card_visa_0002&") {
			t.Errorf("sent again: %s", body)
		}
	}
	o.mustBeWhole()
}
