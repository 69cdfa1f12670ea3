// Package outbox tells customers and other programs what happened: it renders messages into
// the transaction of the change that causes them, and sends them later, each once where the
// receiver can tell, whatever becomes of the sender.
package outbox

import (
	"context"
	"time"
)

// Message is one thing to send, frozen when it was recorded: every try of it
// puts the same bytes on the wire, so that a receiver can tell a repetition
// from a second message. Exactly one of Email and Body is set.
type Message struct {
	ID int64
	// DedupeKey names the message for good. Senders derive from it Resend's
	// idempotency key, the Message-ID of a mail and the webhook-id.
	DedupeKey string
	Kind      string
	// Destination is the address of a mail or the URL of an endpoint.
	Destination string
	// Created is when the message was recorded, by Postgres: the Date of a mail.
	Created time.Time

	Email *Email
	Body  []byte // a webhook's exact bytes
}

// Email is a mail before it is put into a format. It is stored as JSON. From,
// To and ReplyTo are single addresses as RFC 5322 writes them, with or without
// a name; ReplyTo and HTML may be empty.
type Email struct {
	From    string `json:"from"`
	To      string `json:"to"`
	ReplyTo string `json:"reply_to,omitempty"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	HTML    string `json:"html,omitempty"`
}

// Verdict is what one try says about the message.
type Verdict string

// The verdicts of a try.
const (
	// Sent: the receiver has said that it has the message.
	Sent Verdict = "sent"
	// Temporary: not accepted; another try may be.
	Temporary Verdict = "temporary"
	// Permanent: not accepted, and no try of the same bytes ever will be.
	Permanent Verdict = "permanent"
	// Unknown: it may have been sent. A receiver that knows the dedupe key may
	// be sent it again (a webhook; Resend within ResendKeyLife of the first
	// try); over SMTP a person may get the mail twice.
	Unknown Verdict = "unknown"
	// Gone: the receiver wants no more messages at this endpoint, ever.
	Gone Verdict = "gone"
	// Stop: our key or our settings are refused. It says nothing about this
	// message, which does not count a try, and the sender sends no more.
	Stop Verdict = "stop"
)

// ResendKeyLife is how long Resend keeps an idempotency key from the first
// request under it. After it, a mail whose outcome is unknown would be sent
// twice if it was sent again: https://resend.com/docs/dashboard/emails/idempotency-keys.
const ResendKeyLife = 24 * time.Hour

// Outcome is what is known after one try.
type Outcome struct {
	Verdict Verdict
	// Reason is short and in snake_case, for an operator and for statistics. It
	// holds no secret, no address and no text of the receiver's.
	Reason string
	// Answer is the beginning of what the receiver said where it did not take the
	// message, on one line, for a person. It holds no secret of ours or of the address.
	Answer string
	// ProviderID is what the receiver calls the message, where it says so.
	ProviderID string
	// TurnedAway says of a Permanent refusal that it may be the receiver's and not the
	// message's fault: what stands before it redirects, wants a login, or knows no such
	// place. Many in a row are no verdict on as many messages.
	TurnedAway bool
	// TooFast says of a Temporary refusal that only the rate was too high.
	TooFast bool
	// RetryAfter is what the receiver asked to wait before the next try of any
	// message to it; zero if it said nothing. At most MaxRetryAfter.
	RetryAfter time.Duration
}

// MaxRetryAfter bounds what a receiver may ask for, so that a mistake of its
// does not keep a message back for ever.
const MaxRetryAfter = 24 * time.Hour

// Sender sends messages of one channel. Send makes at most one attempt on the
// wire, never repeats it, and returns in bounded time whatever the receiver
// does. A cancelled context ends the wait: what was under way is then Unknown.
// Every Sender may be used by several goroutines at once.
type Sender interface {
	Send(ctx context.Context, m Message) Outcome
}
