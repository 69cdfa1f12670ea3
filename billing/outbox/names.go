package outbox

import "github.com/chargeonce/billing/ledger"

// Names are what receivers know a message by: who must find out whether one has it looks
// for these. Empty where a way of sending has none.
type Names struct {
	// IdempotencyKey is Resend's, MessageID that of a mail by SMTP.
	IdempotencyKey, MessageID string
	WebhookID                 string
}

// NamesOf are those of a message; fromDomain is of a mail's sender.
func NamesOf(channel, dedupeKey, fromDomain string) Names {
	if channel == ledger.ChannelWebhook {
		return Names{WebhookID: WebhookID(dedupeKey)}
	}
	n := Names{IdempotencyKey: resendKey(dedupeKey)}
	if fromDomain != "" {
		n.MessageID = "<" + digest(dedupeKey) + "@" + fromDomain + ">"
	}
	return n
}
