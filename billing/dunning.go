package billing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

const (
	// MaxTries is how often one debt is tried in all, the first try included. Stripe
	// recommends no more retries (docs.stripe.com/declines/card).
	MaxTries = 8
	// NetworkTries is how often one payment method may be tried within NetworkSpan
	// without being paid: the card networks fine whoever goes beyond.
	NetworkTries = 15
	// NetworkSpan is the networks' thirty days.
	NetworkSpan = 30 * 24 * time.Hour
	// rateLimited is how long a bank that counts tries is left alone
	// (docs.stripe.com/error-codes: card_decline_rate_limit_exceeded).
	rateLimited = 24 * time.Hour
)

// DefaultSchedule is how long after each declined try the next one is due.
var DefaultSchedule = []time.Duration{3 * 24 * time.Hour, 5 * 24 * time.Hour, 7 * 24 * time.Hour}

// Dunning says when a declined charge may be tried again.
type Dunning struct {
	// Schedule is how long after each try the next one is due; after the last there
	// is none without a person's order.
	Schedule []time.Duration
	// Ordered is by a person, who need not wait for the schedule; all else holds.
	// Named is for this charge alone.
	Ordered, Named bool
}

// DeclinedCharge is what is known of a declined charge.
type DeclinedCharge struct {
	Job       ledger.Job
	AccountID string
	// Try is the last one, from 1.
	Try int
	// Asked is the payment method that it asked for, Today the account's now.
	Asked, Today string
	// Reason is what the charge says, DeclineCode and AdviceCode are Stripe's.
	Reason, DeclineCode, AdviceCode string
	SettledAt                       time.Time
	// Card are the tries of today's payment method within NetworkSpan, the earliest
	// first, in all jobs.
	Card []ledger.CardTry
}

// Refusal says why a charge is not tried again. Until is when it may be, zero if time
// alone mends nothing; Next is what can be done, "" for nothing.
type Refusal struct {
	Why, Next string
	Until     time.Time
}

// hardDeclines need another card, or the customer: Stripe's own list of what it never
// retries (docs.stripe.com/billing/revenue-recovery/smart-retries), and codes whose
// meaning says the same (docs.stripe.com/declines/codes).
var hardDeclines = []string{
	"incorrect_number", "lost_card", "pickup_card", "stolen_card", "revocation_of_authorization", "revocation_of_all_authorizations",
	"authentication_required", "highest_risk_level", "transaction_not_allowed",
	"expired_card", "incorrect_cvc", "incorrect_pin", "incorrect_zip", "incorrect_address", "card_not_supported", "currency_not_supported",
	"not_permitted", "restricted_card", "security_violation", "service_not_allowed", "stop_payment_order", "fraudulent", "merchant_blacklist",
	"new_account_information_available", "pin_try_exceeded", "authentication_not_handled", "payment_intent_authentication_failure",
	"payment_intent_action_required", "duplicate_transaction", "do_not_try_again",
}

// slowDeclines say that the bank counts tries.
var slowDeclines = []string{"card_velocity_exceeded", "withdrawal_count_limit_exceeded", "card_decline_rate_limit_exceeded"}

// hardAdvice is the banks' own word against another try of the same card.
var hardAdvice = []string{"do_not_try_again", "confirm_card_data"}

// Refuse says why a declined charge may not be tried again now; ok is true if it may.
func (d Dunning) Refuse(c DeclinedCharge, now time.Time) (refusal Refusal, ok bool) {
	if c.Try >= MaxTries {
		return Refusal{Why: fmt.Sprintf("it was tried %d times, which is the most", c.Try), Next: "ask the customer to pay another way"}, false
	}
	if until, full := networkLimit(c, now); full {
		return Refusal{Why: fmt.Sprintf("the card was tried %d times in 30 days, and the card networks allow %d", len(c.Card), NetworkTries), Until: until}, false
	}
	if c.Asked != c.Today {
		return Refusal{}, true // another card: what was said of the old one does not count
	}
	if r, ok := d.refuseCard(c); !ok {
		return r, false
	}
	return d.refuseEarly(c, now)
}

// refuseCard goes by what the bank said of this card.
func (d Dunning) refuseCard(c DeclinedCharge) (Refusal, bool) {
	for _, code := range []string{c.DeclineCode, c.Reason} {
		if slices.Contains(hardDeclines, code) || strings.HasPrefix(code, "invalid_") {
			return Refusal{Why: "the bank refuses this card for good (" + code + ")", Next: "ask the customer for another card"}, false
		}
	}
	if slices.Contains(hardAdvice, c.AdviceCode) {
		return Refusal{Why: "the bank advises against another try (" + c.AdviceCode + ")", Next: "ask the customer for another card"}, false
	}
	if c.Reason == gateway.ReasonCanceled && !d.Named {
		return Refusal{Why: "somebody cancelled it at Stripe; was it paid another way?", Next: "name it with --account to try it again"}, false
	}
	return Refusal{}, true
}

// refuseEarly goes by the schedule, counted from the last decline, which a person need
// not wait for; but a bank that counts tries is left alone for a day by everybody.
func (d Dunning) refuseEarly(c DeclinedCharge, now time.Time) (Refusal, bool) {
	if !d.Ordered && c.Try > len(d.Schedule) {
		return Refusal{Why: "its schedule is over", Next: "name it with --account to try it again"}, false
	}
	if !d.Ordered {
		if until := c.SettledAt.Add(d.Schedule[c.Try-1]); until.After(now) {
			return Refusal{Why: "its next try is not due", Until: until}, false
		}
	}
	if until := c.SettledAt.Add(rateLimited); (slices.Contains(slowDeclines, c.DeclineCode) || slices.Contains(slowDeclines, c.Reason)) && until.After(now) {
		return Refusal{Why: "the bank counts tries (" + c.Reason + ")", Until: until}, false
	}
	return Refusal{}, true
}

// debtor is an account of a job, with a first try each month.
type debtor struct {
	job     ledger.Job
	account string
}

// networkLimit reports a card that was tried as often as the networks allow, and until
// when. One try is kept for each debtor who was tried with it, and for this one: the next
// month's first, which no rule holds back, may come within the same thirty days.
func networkLimit(c DeclinedCharge, now time.Time) (until time.Time, full bool) {
	debtors, recent := map[debtor]bool{{c.Job, c.AccountID}: true}, []ledger.CardTry{}
	for _, t := range c.Card {
		if t.At.Add(NetworkSpan).After(now) {
			recent = append(recent, t)
			debtors[debtor{t.Job, t.AccountID}] = true
		}
	}
	most := NetworkTries - len(debtors)
	switch {
	case len(recent) < most:
		return time.Time{}, false
	case most <= 0: // a card of so many has its first tries alone
		return recent[0].At.Add(NetworkSpan), true
	}
	return recent[len(recent)-most].At.Add(NetworkSpan), true
}
