package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chargeonce/billing/fixtures/mailemu"
)

// Nothing that a sender says of a try names a secret, and no reason a person or what the
// receiver wrote: reasons are listed and logged.
func TestOutcomesAreFreeOfSecrets(t *testing.T) {
	resend, resendSender := newResendPair(t)
	server := startSMTP(t, withLogin)
	smtpSender := newSMTP(t, SMTPConfig{URL: server.URL()})
	receiver := newReceiver(t, currentSecret)
	hook := newLocalWebhook(t)
	forbidden := []string{mailemu.ResendKey, "hidden", currentSecret, "ada@", "Ada", "example", "127.0.0.1", "emulator", testDedupeKey}
	check := func(fault mailemu.Fault, send func(context.Context, Message) Outcome, m Message) {
		o := send(t.Context(), m)
		for _, secret := range []string{mailemu.ResendKey, "hidden", currentSecret} {
			if strings.Contains(o.Answer, secret) {
				t.Errorf("%s: the answer is kept with the secret: %s", fault, o.Answer)
			}
		}
		o.Answer = "" // is the receiver's own text
		text := fmt.Sprintf("%+v", o)
		for _, word := range forbidden {
			if strings.Contains(text, word) {
				t.Errorf("%s: %s names %q", fault, text, word)
			}
		}
		if o.Reason == "" || strings.Trim(o.Reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(o.Reason) > 40 {
			t.Errorf("%s: the reason %q is not short and in snake_case", fault, o.Reason)
		}
	}
	for _, fault := range []mailemu.Fault{mailemu.FaultLoseAnswer, mailemu.FaultGarbage, mailemu.FaultUndone500, mailemu.FaultRefused401, mailemu.FaultRate429} {
		resend.Inject(fault, 1)
		check(fault, resendSender.Send, testMail())
		receiver.Inject(fault, 1)
		check(fault, hook.Send, testEvent(receiver.URL()+"/hidden"))
	}
	for _, fault := range []mailemu.Fault{mailemu.FaultNobody550, mailemu.FaultLoginRefused, mailemu.FaultSender550, mailemu.FaultDropAfterDot, mailemu.FaultSpam554} {
		server.Inject(fault, 1)
		check(fault, smtpSender.Send, testMail())
	}
	resend.Stop()
	check("down", resendSender.Send, testMail())
	receiver.Stop()
	check("down", hook.Send, testEvent(receiver.URL()+"/hidden"))
}
