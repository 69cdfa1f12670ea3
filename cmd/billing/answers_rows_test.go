package main

import (
	"time"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

const (
	noIntents, onePaid, oneOpen = "none", "1 succeeded", "1 requires_payment_method"
	stateSucceeded              = "succeeded"
)

func faultOnce(kind stripeemu.FaultKind) []stripeemu.Fault {
	return []stripeemu.Fault{{Name: kind, Method: "POST", Times: 1, Delay: time.Second}}
}

func faultAlways(kind stripeemu.FaultKind) []stripeemu.Fault {
	return []stripeemu.Fault{{Name: kind, Method: "POST", Delay: time.Second}}
}

// stripesWord are answers that the ledger may believe at once: they prove what
// became of the payment.
var stripesWord = answerOffice{exit: 0, rows: []answerCase{
	{id: "visa", says: "200, succeeded", state: stateSucceeded, sends: 1, intents: onePaid},
	{id: "debit", says: "200, processing (a bank debit)", card: "pm_usBankAccount_success", state: "processing", sends: 1, intents: "1 processing"},
	{id: "india", says: "200, processing (an Indian card: Stripe tells the customer 26 hours before)", card: "pm_card_in", state: "processing", sends: 1, intents: "1 processing"},
	{id: "microdeposits", says: "200, requires_action (a bank account to be verified)", card: "pm_usBankAccount_unverified",
		state: "action_required: requires_action", sends: 1, intents: "1 requires_action"},
	{id: "3ds", says: "402, authentication_required (3-D Secure)", card: "pm_card_authenticationRequired",
		state: "action_required: authentication_required", sends: 1, intents: oneOpen},
	{id: "3ds2", says: "402, authentication_required (3-D Secure 2)", card: "pm_card_threeDSecure2Required",
		state: "action_required: authentication_required", sends: 1, intents: oneOpen},
	{id: "customer_fail", says: "402, generic_decline (a saved card)", card: "pm_card_chargeCustomerFail", state: "declined: generic_decline", sends: 1, intents: oneOpen},
	{id: "declined", says: "402, generic_decline", card: "pm_card_visa_chargeDeclined", state: "declined: generic_decline", sends: 1, intents: oneOpen},
	{id: "insufficient", says: "402, insufficient_funds", card: "pm_card_visa_chargeDeclinedInsufficientFunds", state: "declined: insufficient_funds", sends: 1, intents: oneOpen},
	{id: "lost", says: "402, lost_card", card: "pm_card_visa_chargeDeclinedLostCard", state: "declined: lost_card", sends: 1, intents: oneOpen},
	{id: "stolen", says: "402, stolen_card", card: "pm_card_visa_chargeDeclinedStolenCard", state: "declined: stolen_card", sends: 1, intents: oneOpen},
	{id: "velocity", says: "402, card_velocity_exceeded", card: "pm_card_visa_chargeDeclinedVelocityLimitExceeded", state: "declined: card_velocity_exceeded", sends: 1, intents: oneOpen},
	{id: "expired", says: "402, expired_card", card: "pm_card_chargeDeclinedExpiredCard", state: "declined: expired_card", sends: 1, intents: oneOpen},
	{id: "cvc", says: "402, incorrect_cvc", card: "pm_card_chargeDeclinedIncorrectCvc", state: "declined: incorrect_cvc", sends: 1, intents: oneOpen},
	{id: "processing_error", says: "402, processing_error", card: "pm_card_chargeDeclinedProcessingError", state: "declined: processing_error", sends: 1, intents: oneOpen},
	{id: "fraudulent", says: "402, fraudulent", card: "pm_card_chargeDeclinedFraudulent", state: "declined: fraudulent", sends: 1, intents: oneOpen},
	{id: "radar", says: "402, highest_risk_level (blocked by Radar)", card: "pm_card_radarBlock", state: "declined: highest_risk_level", sends: 1, intents: oneOpen},
}}

// refusedAtOnce are those that Stripe makes before it does anything, for what is
// wrong with this one account or invoice.
var refusedAtOnce = answerOffice{exit: 4, cfg: stripeemu.Config{Unverified: stripeemu.Unverified{EightDigits: true}}, rows: []answerCase{
	{id: "no_customer", says: "400, no such customer", prepare: func(*office, customer) {}, state: "rejected: resource_missing", sends: 1, intents: noIntents},
	{id: "deleted_customer", says: "400, the customer was deleted", prepare: func(o *office, c customer) {
		o.seed(c)
		o.emu.DeleteCustomer(c.customer)
	}, state: "rejected: resource_missing", sends: 1, intents: noIntents},
	{id: "no_card", says: "400, no such payment method", prepare: func(o *office, c customer) {
		o.emu.AddCustomer(stripeemu.Customer{ID: c.customer})
	}, state: "rejected: resource_missing", sends: 1, intents: noIntents},
	{id: "detached", says: "400, the card was detached", prepare: func(o *office, c customer) {
		o.seed(c)
		o.emu.DetachPaymentMethod(c.card)
	}, state: "rejected: payment_method_detached", sends: 1, intents: noIntents},
	{id: "foreign_card", says: "400, the card is another customer's", prepare: func(o *office, c customer) {
		o.emu.AddCustomer(stripeemu.Customer{ID: c.customer})
		o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: c.card, Customer: "cus_other"})
	}, state: "rejected: invalid_payment_method", sends: 1, intents: noIntents},
	{id: "currencies", says: "400, the customer pays in another currency", prepare: func(o *office, c customer) {
		o.emu.AddCustomer(stripeemu.Customer{ID: c.customer, Currency: "eur"})
		o.emu.AddPaymentMethod(stripeemu.PaymentMethod{ID: c.card, Customer: c.customer})
	}, state: "rejected: payment_method_currency_mismatch", sends: 1, intents: noIntents},
	{id: "small", says: "400, amount_too_small (a minimum that only Stripe knows)", amount: "0.99", currency: "bgn", state: "rejected: amount_too_small", sends: 1, intents: noIntents},
	{id: "large", says: "400, amount_too_large", amount: "1000000.00", state: "rejected: amount_too_large", sends: 1, intents: noIntents},
}}

// passingTrouble is trouble that happens once: the same request, sent again, gets the
// answer.
var passingTrouble = answerOffice{exit: 0, rows: []answerCase{
	{id: "lose_request", says: "the connection dies before Stripe reads it, once", faults: faultOnce(stripeemu.FaultLoseRequest), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "lose_answer", says: "the connection dies after the payment, once", faults: faultOnce(stripeemu.FaultLoseAnswer), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "late", says: "the answer is late", faults: faultAlways(stripeemu.FaultLate), state: stateSucceeded, sends: 1, intents: onePaid},
	{id: "slow", says: "Stripe shows the payment before it is confirmed", faults: faultAlways(stripeemu.FaultSlowExecution), state: stateSucceeded, sends: 1, intents: onePaid},
	{id: "cut_body", says: "the answer breaks off, once", faults: faultOnce(stripeemu.FaultCutBody), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "empty_object", says: "200 with `{}`, once", faults: faultOnce(stripeemu.FaultEmptyObject), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "html_502", says: "502 from a proxy, once", faults: faultOnce(stripeemu.FaultHTML502), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "html_200", says: "200 with a proxy's web page, once", faults: faultOnce(stripeemu.FaultHTML200), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "empty_204", says: "204 without a word, once", faults: faultOnce(stripeemu.FaultEmpty204), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "redirect_307", says: "307, once", faults: faultOnce(stripeemu.FaultRedirect307), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "in_use_409", says: "409, the key is in use, once", faults: faultOnce(stripeemu.FaultInUse409), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "rate_limit_429", says: "429, rate limit, once", faults: faultOnce(stripeemu.FaultRateLimit429), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "lock_timeout_429", says: "429, lock_timeout, once", faults: faultOnce(stripeemu.FaultLockTimeout429), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "wrong_amount", says: "200 with another amount, once", faults: faultOnce(stripeemu.FaultWrongAmount), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "wrong_currency", says: "200 with another currency, once", faults: faultOnce(stripeemu.FaultWrongCurrency), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "wrong_customer", says: "200 with another customer, once", faults: faultOnce(stripeemu.FaultWrongCustomer), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "wrong_metadata", says: "200 with another billing key, once", faults: faultOnce(stripeemu.FaultWrongMetadata), state: stateSucceeded, sends: 2, intents: onePaid},
	{id: "lost_decline", says: "402, generic_decline, lost once and told again", card: "pm_card_visa_chargeDeclined", faults: faultOnce(stripeemu.FaultLoseAnswer), state: "declined: generic_decline", sends: 2, intents: oneOpen},
	{id: "lost_3ds", says: "402, authentication_required, lost once and told again", card: "pm_card_authenticationRequired", faults: faultOnce(stripeemu.FaultLoseAnswer),
		state: "action_required: authentication_required", sends: 2, intents: oneOpen},
	{id: "lost_debit", says: "200, processing, lost once and told again", card: "pm_usBankAccount_success", faults: faultOnce(stripeemu.FaultLoseAnswer), state: "processing", sends: 2, intents: "1 processing"},
	{id: "same_pi", says: "200 with the payment of somebody else, once", faults: faultOnce(stripeemu.FaultSamePI), state: stateSucceeded, sends: 2, intents: onePaid},
}}

// lastingTrouble rows meet their trouble on each of the six sends that one run makes;
// three to an office, so that the run does not take it for an outage.
func lastingTrouble(rows ...answerCase) answerOffice {
	for i := range rows {
		rows[i].sends, rows[i].open = 6, 6
	}
	return answerOffice{exit: 75, rows: rows}
}

// answerOffices is the whole table, in the order of the page.
func answerOffices() []*answerOffice {
	list := []answerOffice{
		stripesWord, refusedAtOnce, passingTrouble,
		lastingTrouble(
			answerCase{id: "lose_request", says: "the connection dies before Stripe reads it, always", faults: faultAlways(stripeemu.FaultLoseRequest), state: "pending: no_answer", intents: noIntents, later: stateSucceeded},
			answerCase{id: "lose_answer", says: "the connection dies after the payment, always", faults: faultAlways(stripeemu.FaultLoseAnswer), state: "pending: no_answer", intents: onePaid, later: stateSucceeded},
			answerCase{id: "cut_body", says: "the answer breaks off, always", faults: faultAlways(stripeemu.FaultCutBody), state: "pending: unreadable_answer", intents: onePaid, later: stateSucceeded},
		),
		lastingTrouble(
			answerCase{id: "empty_object", says: "200 with `{}`, always", faults: faultAlways(stripeemu.FaultEmptyObject), state: "pending: unreadable_answer", intents: onePaid, later: stateSucceeded},
			answerCase{id: "html_502", says: "502 from a proxy, always", faults: faultAlways(stripeemu.FaultHTML502), state: "pending: server_error", intents: onePaid, later: stateSucceeded},
			answerCase{id: "html_200", says: "200 with a proxy's web page, always", faults: faultAlways(stripeemu.FaultHTML200), state: "pending: unreadable_answer", intents: onePaid, later: stateSucceeded},
		),
		lastingTrouble(
			answerCase{id: "empty_204", says: "204 without a word, always", faults: faultAlways(stripeemu.FaultEmpty204), state: "pending: unexpected_answer", intents: onePaid, later: stateSucceeded},
			answerCase{id: "redirect_307", says: "307, always", faults: faultAlways(stripeemu.FaultRedirect307), state: "pending: redirected", intents: noIntents, later: stateSucceeded},
			answerCase{id: "in_use_409", says: "409, the key is in use, always", faults: faultAlways(stripeemu.FaultInUse409), state: "pending: idempotency_key_in_use", intents: noIntents, later: stateSucceeded},
		),
		lastingTrouble(
			answerCase{id: "wrong_amount", says: "200 with another amount, always", faults: faultAlways(stripeemu.FaultWrongAmount), state: "pending: not_as_asked: amount", intents: onePaid, later: stateSucceeded},
			answerCase{id: "wrong_currency", says: "200 with another currency, always", faults: faultAlways(stripeemu.FaultWrongCurrency), state: "pending: not_as_asked: currency", intents: onePaid, later: stateSucceeded},
			answerCase{id: "wrong_customer", says: "200 with another customer, always", faults: faultAlways(stripeemu.FaultWrongCustomer), state: "pending: not_as_asked: customer", intents: onePaid, later: stateSucceeded},
		),
		lastingTrouble(
			answerCase{id: "wrong_metadata", says: "200 with another billing key, always", faults: faultAlways(stripeemu.FaultWrongMetadata), state: "pending: not_as_asked: billing_key", intents: onePaid, later: stateSucceeded},
			answerCase{id: "same_pi", says: "200 with the payment of somebody else, always", faults: faultAlways(stripeemu.FaultSamePI), state: "pending: not_as_asked: billing_key", intents: noIntents, later: stateSucceeded},
		),
		// Stripe refuses, and leaves a PaymentIntent behind each time: not proof of
		// anything, and money that nobody took. One run makes one.
		{exit: 75, rows: []answerCase{{id: "mandate", says: "400 with a PaymentIntent in it (a bank debit without a mandate)", card: "pm_usBankAccount_noMandate",
			state: "pending: unexpected_answer", sends: 1, open: 1, intents: "1 requires_confirmation"}}},
		// The id of another payment on a payment that is right otherwise: a finding.
		{exit: 4, rows: []answerCase{{id: "same_pi_id", says: "200 with the id of another payment, once", faults: faultOnce(stripeemu.FaultSamePIID), state: stateSucceeded, sends: 2, intents: onePaid}}},
		lastingTrouble(answerCase{id: "same_pi_id", says: "200 with the id of another payment, always", faults: faultAlways(stripeemu.FaultSamePIID), state: "pending: payment_intent_taken", intents: onePaid, later: stateSucceeded}),
		// A 500 that Stripe stored is replayed for a day: it is not asked for again.
		{exit: 75, rows: []answerCase{
			{id: "error_500_done", says: "500 after the payment, kept under the key", faults: faultAlways(stripeemu.FaultError500Done), state: "pending: server_error", sends: 2, open: 2, intents: onePaid, later: "pending: server_error"},
			{id: "error_500_undone", says: "500 without a payment, kept under the key", faults: faultAlways(stripeemu.FaultError500Undone), state: "pending: server_error", sends: 2, open: 2, intents: noIntents, later: "pending: server_error"},
			{id: "rollforward", says: "500, and Stripe completes the payment an hour later", state: "pending: server_error", sends: 2, open: 2, intents: noIntents, later: "pending: server_error",
				faults: []stripeemu.Fault{{Name: stripeemu.FaultRollforward, Method: "POST", Delay: time.Hour}}},
			{id: "refuse_paid", says: "the answer is lost, then 400, no such payment method", state: "pending: resource_missing", sends: 2, open: 1, intents: onePaid, later: stateSucceeded,
				faults: append(faultOnce(stripeemu.FaultLoseAnswer), faultAlways(stripeemu.FaultRefuseResend400)...)},
			{id: "refuse_unpaid", says: "the request is lost, then 400, no such payment method", state: "pending: resource_missing", sends: 2, open: 1, intents: noIntents, later: stateSucceeded,
				faults: append(faultOnce(stripeemu.FaultLoseRequest), faultAlways(stripeemu.FaultRefuseResend400)...)},
			{id: "idempotency_error", says: "400, idempotency_error: the key was used with another body before", prepare: useKeyBefore, state: "pending: idempotency_error", sends: 1, open: 1, intents: noIntents, later: "pending: idempotency_error"},
		}},
		{exit: 75, flags: []string{"--timeout", "20s"}, rows: []answerCase{
			{id: "rate_limit_429", says: "429, rate limit, until the time is over", faults: faultAlways(stripeemu.FaultRateLimit429), state: "pending: rate_limit", sends: -1, intents: noIntents, later: stateSucceeded},
			{id: "lock_timeout_429", says: "429, lock_timeout, until the time is over", faults: faultAlways(stripeemu.FaultLockTimeout429), state: "pending: lock_timeout", sends: -1, intents: noIntents, later: stateSucceeded},
		}},
		{exit: 77, rows: []answerCase{{id: "unauthorized_401", says: "401: the run stops", faults: faultAlways(stripeemu.FaultUnauthorized401), state: "pending: unauthorized", sends: 1, intents: noIntents, later: stateSucceeded}}},
		{exit: 77, rows: []answerCase{{id: "forbidden_403", says: "403: the run stops", faults: faultAlways(stripeemu.FaultForbidden403), state: "pending: forbidden", sends: 1, intents: noIntents, later: stateSucceeded}}},
	}
	out := make([]*answerOffice, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
