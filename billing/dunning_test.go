package billing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chargeonce/billing/ledger"
)

const day = 24 * time.Hour

var declinedAt = time.Date(2026, 11, 1, 0, 10, 0, 0, time.UTC)

// poor is a charge that was declined at declinedAt for lack of money.
func poor(change func(*DeclinedCharge)) DeclinedCharge {
	c := DeclinedCharge{
		Job: "a", AccountID: "1", Try: 1, Asked: "pm_1", Today: "pm_1", Reason: "insufficient_funds", DeclineCode: "insufficient_funds", AdviceCode: "try_again_later", SettledAt: declinedAt,
		Card: []ledger.CardTry{{PaymentMethod: "pm_1", Job: "a", AccountID: "1", At: declinedAt}},
	}
	if change != nil {
		change(&c)
	}
	return c
}

// cardTries are n tries of one job, an hour apart, the last an hour before a moment.
func cardTries(n int, before time.Time) (list []ledger.CardTry) {
	for i := range n {
		list = append(list, ledger.CardTry{PaymentMethod: "pm_1", Job: "a", AccountID: "1", At: before.Add(-time.Duration(n-i) * time.Hour)})
	}
	return list
}

// Each rule of when a declined charge may be tried again, for the schedule and for a
// person, at its edges.
func TestWhenADeclinedChargeMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after           time.Duration
		change          func(*DeclinedCharge)
		schedule, order string // why not, "" for yes
	}{
		"a day":                   {day, nil, "not due", ""},
		"just before three days":  {3*day - time.Second, nil, "not due", ""},
		"three days":              {3 * day, nil, "", ""},
		"the second waits longer": {3 * day, func(c *DeclinedCharge) { c.Try = 2 }, "not due", ""},
		"five days":               {5 * day, func(c *DeclinedCharge) { c.Try = 2 }, "", ""},
		"seven days":              {7 * day, func(c *DeclinedCharge) { c.Try = 3 }, "", ""},
		"its schedule is over":    {90 * day, func(c *DeclinedCharge) { c.Try = 4 }, "schedule is over", ""},
		"seven tries":             {90 * day, func(c *DeclinedCharge) { c.Try = 7 }, "schedule is over", ""},
		"eight tries":             {90 * day, func(c *DeclinedCharge) { c.Try = 8 }, "tried 8 times", "tried 8 times"},
		"eight, and a new card":   {90 * day, func(c *DeclinedCharge) { c.Try, c.Today = 8, "pm_2" }, "tried 8 times", "tried 8 times"},
		"lost card":               {90 * day, func(c *DeclinedCharge) { c.Reason, c.DeclineCode = "lost_card", "lost_card" }, "lost_card", "lost_card"},
		"by its error code":       {90 * day, func(c *DeclinedCharge) { c.Reason, c.DeclineCode = "expired_card", "" }, "expired_card", "expired_card"},
		"invalid":                 {90 * day, func(c *DeclinedCharge) { c.DeclineCode = "invalid_account" }, "invalid_account", "invalid_account"},
		"authentication":          {90 * day, func(c *DeclinedCharge) { c.DeclineCode = "authentication_required" }, "authentication", "authentication"},
		"advice: never":           {90 * day, func(c *DeclinedCharge) { c.AdviceCode = "do_not_try_again" }, "do_not_try_again", "do_not_try_again"},
		"advice: other data":      {90 * day, func(c *DeclinedCharge) { c.AdviceCode = "confirm_card_data" }, "confirm_card_data", "confirm_card_data"},
		"lost, and a new card":    {time.Minute, func(c *DeclinedCharge) { c.DeclineCode, c.Today = "lost_card", "pm_2" }, "", ""},
		"advice, and a new card":  {time.Minute, func(c *DeclinedCharge) { c.AdviceCode, c.Today = "do_not_try_again", "pm_2" }, "", ""},
		"cancelled by somebody":   {90 * day, func(c *DeclinedCharge) { c.Reason, c.DeclineCode = "canceled", "" }, "cancelled", "cancelled"},
		"the bank counts":         {23 * time.Hour, func(c *DeclinedCharge) { c.Reason, c.DeclineCode = "card_velocity_exceeded", "card_velocity_exceeded" }, "not due", "counts tries"},
		"it counted, a day ago":   {day, func(c *DeclinedCharge) { c.DeclineCode = "card_velocity_exceeded" }, "not due", ""},
		"a code nobody knows":     {3 * day, func(c *DeclinedCharge) { c.DeclineCode = "bad_hair_day" }, "", ""},
		"13 tries of the card":    {3 * day, func(c *DeclinedCharge) { c.Card = cardTries(13, declinedAt) }, "", ""},
		"14 tries of the card":    {3 * day, func(c *DeclinedCharge) { c.Card = cardTries(14, declinedAt) }, "card networks", "card networks"},
		"13, and a second account": {3 * day, func(c *DeclinedCharge) {
			c.Card = cardTries(13, declinedAt)
			c.Card[0].AccountID = "2"
		}, "card networks", "card networks"},
		"12, and a second account": {3 * day, func(c *DeclinedCharge) {
			c.Card = cardTries(12, declinedAt)
			c.Card[0].AccountID = "2"
		}, "", ""},
		"13 of another account": {3 * day, func(c *DeclinedCharge) { c.AccountID, c.Card = "2", cardTries(13, declinedAt) }, "card networks", "card networks"},
		"14, a month ago":       {31 * day, func(c *DeclinedCharge) { c.Card = cardTries(14, declinedAt) }, "", ""},
		"13, and a second job": {3 * day, func(c *DeclinedCharge) {
			c.Card = cardTries(13, declinedAt)
			c.Card[0].Job = "b"
		}, "card networks", "card networks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for ordered, want := range map[bool]string{false: c.schedule, true: c.order} {
				d := Dunning{Schedule: DefaultSchedule, Ordered: ordered}
				r, ok := d.Refuse(poor(c.change), declinedAt.Add(c.after))
				if ok != (want == "") || !strings.Contains(r.Why, want) {
					t.Errorf("ordered %t: %t, %+v, want %q", ordered, ok, r, want)
				}
				if !r.Until.IsZero() {
					if _, ok := d.Refuse(poor(c.change), r.Until); !ok {
						t.Errorf("ordered %t: refused until %s, and then refused again", ordered, r.Until)
					}
				}
			}
		})
	}
}

// What was cancelled at Stripe by somebody is tried again only by name.
func TestWhatSomebodyCancelledIsTriedAgainByName(t *testing.T) {
	t.Parallel()
	c := poor(func(c *DeclinedCharge) { c.Reason, c.DeclineCode, c.AdviceCode = "canceled", "", "" })
	if r, ok := (Dunning{Ordered: true, Named: true}).Refuse(c, declinedAt.Add(day)); !ok {
		t.Errorf("%+v", r)
	}
}

// Over a year of months, with any schedule, any number of debtors up to three on one card,
// and orders on any day, no thirty days ever have more tries of it than the card
// networks allow, and no debt has more than eight.
func TestAYearOfDeclinesStaysWithinTheNetworksLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []debtor{{"a", "1"}, {"a", "2"}, {"b", "1"}}[:rapid.IntRange(1, 3).Draw(t, "debtors")]
		d := Dunning{Ordered: rapid.Bool().Draw(t, "ordered")}
		for range rapid.IntRange(1, 7).Draw(t, "waits") {
			d.Schedule = append(d.Schedule, time.Duration(rapid.IntRange(1, 8).Draw(t, "days"))*day)
		}
		var card []ledger.CardTry
		debts := []*DeclinedCharge{}
		try := func(c *DeclinedCharge, now time.Time) {
			c.Try, c.SettledAt = c.Try+1, now
			card = append(card, ledger.CardTry{PaymentMethod: "pm_1", Job: c.Job, AccountID: c.AccountID, At: now})
		}
		for now := declinedAt; now.Before(declinedAt.AddDate(1, 0, 0)); now = now.Add(day) {
			if now.Day() == 1 {
				for _, who := range all {
					c := poor(func(c *DeclinedCharge) { c.Job, c.AccountID, c.Try = who.job, who.account, 0 })
					debts = append(debts, &c)
					try(&c, now)
				}
			}
			for _, c := range debts {
				if c.Try == MaxTries && now.Sub(c.SettledAt) > NetworkSpan {
					continue
				}
				last := card[max(0, len(card)-2*NetworkTries):]
				c.Card = slices.DeleteFunc(slices.Clone(last), func(t ledger.CardTry) bool { return now.Sub(t.At) >= NetworkSpan })
				if _, ok := d.Refuse(*c, now); ok {
					try(c, now)
				}
				if c.Try > MaxTries {
					t.Fatalf("a debt was tried %d times", c.Try)
				}
			}
		}
		for i := NetworkTries; i < len(card); i++ {
			if card[i].At.Sub(card[i-NetworkTries].At) < NetworkSpan {
				t.Fatalf("%d tries from %s to %s", NetworkTries+1, card[i-NetworkTries].At, card[i].At)
			}
		}
	})
}
