package outbox

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Every try ends with its connection and its goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDedupeKey = "invoice/2026-10/acme-1/receipt"

// testMail is a mail with everything in it that a header or a body can trip
// over.
func testMail() Message {
	return Message{
		ID: 7, DedupeKey: testDedupeKey, Kind: "receipt", Destination: "ada@customer.example",
		Created: time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC),
		Email: &Email{
			From: "Billing <billing@company.example>", To: "Ada Lovelace <ada@customer.example>", ReplyTo: "help@company.example",
			Subject: "Rechnung für Oktober\r\nBcc: eve@evil.example", Text: "Dear Ada,\r\n.\r\n.hidden\r\nPaid: 12,50 €", HTML: "<p>Paid: 12,50 €</p>",
		},
	}
}

// cancelledOnceHeld is a context that ends when the other side holds the
// request: the caller stops waiting after it was sent.
func cancelledOnceHeld(t *testing.T, held func() int) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		for held() == 0 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	return ctx
}

func wantOutcome(t *testing.T, name string, got Outcome, verdict Verdict, reason string) {
	t.Helper()
	if got.Verdict != verdict || got.Reason != reason {
		t.Errorf("%s: %s (%s), want %s (%s)", name, got.Verdict, got.Reason, verdict, reason)
	}
}
