package outbox

import (
	"slices"

	"github.com/chargeonce/billing/ledger"
)

// The kinds of mail. Each is off until it is named.
const (
	KindReceipt        = "receipt"
	KindPaymentFailed  = "payment_failed"
	KindActionRequired = "action_required"
	KindDebitStarted   = "debit_started"
	KindRefundNoted    = "refund_noted"
)

// MailKinds lists every kind of mail.
var MailKinds = []string{KindReceipt, KindPaymentFailed, KindActionRequired, KindDebitStarted, KindRefundNoted}

// The kinds of webhooks. Each is off until it is named.
const (
	EventSucceeded      = "charge.succeeded"
	EventDeclined       = "charge.declined"
	EventActionRequired = "charge.action_required"
	EventProcessing     = "charge.processing"
	EventReview         = "charge.review"
	EventRunFinished    = "run.finished"
)

// EventKinds lists every kind of webhook.
var EventKinds = []string{EventSucceeded, EventDeclined, EventActionRequired, EventProcessing, EventReview, EventRunFinished}

// notTheCustomers are the declines that no customer can do anything about: a bank or a
// network that could not answer, what we did ourselves, and keys and cards that are for
// testing (docs.stripe.com/declines/codes). They are not written to about.
var notTheCustomers = []string{
	"processing_error", "issuer_not_available", "reenter_transaction", "try_again_later", "no_action_taken", "approve_with_id",
	"card_decline_rate_limit_exceeded", "duplicate_transaction", "invalid_amount", "currency_not_supported", "service_not_allowed",
	"merchant_blacklist", "live_mode_test_card", "test_mode_live_card", "testmode_decline", "canceled",
	"payment_method_provider_timeout", "payment_method_provider_decline_temporary",
}

// mailKind is the mail that a change causes, empty for none.
func mailKind(c *ledger.Change) string {
	switch {
	case c.Happened == ledger.HappenedRefund && !c.Accepted:
		return KindRefundNoted
	case c.Happened != ledger.HappenedMove:
		return ""
	}
	switch c.To {
	case ledger.ChargeSucceeded:
		// What was paid is not what the charge says; a person knows, and writes.
		if !c.Accepted {
			return KindReceipt
		}
	case ledger.ChargeDeclined:
		if !slices.Contains(notTheCustomers, c.Reason) && !slices.Contains(notTheCustomers, c.DeclineCode) {
			return KindPaymentFailed
		}
	case ledger.ChargeActionRequired:
		return KindActionRequired
	case ledger.ChargeProcessing:
		return KindDebitStarted
	}
	return ""
}

// eventKind is the webhook that a change causes, empty for none.
func eventKind(c *ledger.Change) string {
	switch {
	case c.Happened == ledger.HappenedDone:
		return EventRunFinished
	case c.Happened != ledger.HappenedMove:
		return ""
	}
	switch c.To {
	case ledger.ChargeSucceeded:
		return EventSucceeded
	case ledger.ChargeDeclined:
		return EventDeclined
	case ledger.ChargeActionRequired:
		return EventActionRequired
	case ledger.ChargeProcessing:
		return EventProcessing
	case ledger.ChargeReview:
		return EventReview
	}
	return ""
}
