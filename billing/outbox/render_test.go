package outbox_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
)

func writerOf(t *testing.T, change ...func(*outbox.Config)) *outbox.Writer {
	t.Helper()
	c := outbox.Config{Mails: outbox.MailKinds, From: "Acme <billing@acme.example>", PayURL: "https://acme.example/pay?a={account_id}&p={period}"}
	for _, do := range change {
		do(&c)
	}
	w, err := outbox.NewWriter(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mailOf(t *testing.T, w *outbox.Writer, c ledger.Change) (m ledger.Message, mail outbox.Email) {
	t.Helper()
	list := w.Outbox().Messages([]ledger.Change{c})
	if len(list) != 1 {
		t.Fatalf("%d messages, want one", len(list))
	}
	if list[0].Payload != "" {
		if err := json.Unmarshal([]byte(list[0].Payload), &mail); err != nil {
			t.Fatal(err)
		}
	}
	return list[0], mail
}

// Whatever an account is called, it becomes no header, no tag and no other address.
func TestANameIsNothingButAName(t *testing.T) {
	t.Parallel()
	c := outbox.Sample(outbox.KindReceipt)
	c.Name = "Eve\r\nBcc: all@example.com\r\n\r\n<script>x</script> \"é\" <eve@example.com>"
	m, mail := mailOf(t, writerOf(t), c)
	if strings.ContainsAny(mail.To+mail.Subject+mail.From, "\r\n") || m.Destination != "ada@example.com" || !strings.HasSuffix(mail.To, "<ada@example.com>") {
		t.Errorf("to %q, %+v", m.Destination, mail)
	}
	if strings.Contains(mail.HTML, "<script>") || strings.Contains(mail.Text, "\nBcc") || !strings.Contains(mail.HTML, "&lt;script&gt;") {
		t.Errorf("%s\n%s", mail.Text, mail.HTML)
	}
}

// An address that is none, or is several, is not written to.
func TestAnAddressThatIsNoneIsUndeliverable(t *testing.T) {
	t.Parallel()
	w := writerOf(t)
	for address, reason := range map[string]string{
		"": "no_address", " ": "no_address", "ada": "bad_address", "a@x.example, b@x.example": "bad_address",
		"Ada <ada@example.com>": "bad_address", "ada@example.com\nBcc: b@example.com": "bad_address",
	} {
		c := outbox.Sample(outbox.KindReceipt)
		c.Email = address
		if m, _ := mailOf(t, w, c); m.State != ledger.MessageUndeliverable || m.Reason != reason || m.Destination != "" {
			t.Errorf("%q: %s %s, want undeliverable %s", address, m.State, m.Reason, reason)
		}
	}
}

// A customer is written to about what is the customer's matter, never about ours.
func TestFaultsOfOursAreNotWrittenAbout(t *testing.T) {
	t.Parallel()
	w := writerOf(t)
	for reason, want := range map[string]int{
		"insufficient_funds": 1, "expired_card": 1, "generic_decline": 1, "fraudulent": 1, "processing_error": 0, "issuer_not_available": 0,
		"canceled": 0, "duplicate_transaction": 0, "try_again_later": 0, "test_mode_live_card": 0,
	} {
		c := outbox.Sample(outbox.KindPaymentFailed)
		c.Reason, c.DeclineCode = reason, ""
		if got := len(w.Outbox().Messages([]ledger.Change{c})); got != want {
			t.Errorf("%s: %d mails, want %d", reason, got, want)
		}
	}
	for _, to := range []ledger.ChargeState{ledger.ChargeRejected, ledger.ChargeReview, ledger.ChargeHeld, ledger.ChargePending, ledger.ChargeVoid, ledger.ChargeSkipped} {
		c := outbox.Sample(outbox.KindReceipt)
		c.To = to
		if got := w.Outbox().Messages([]ledger.Change{c}); len(got) != 0 {
			t.Errorf("a customer is written to about %s", to)
		}
	}
	c := outbox.Sample(outbox.KindReceipt)
	c.Accepted = true
	if got := w.Outbox().Messages([]ledger.Change{c}); len(got) != 0 {
		t.Error("a receipt is written for a payment that is not as the charge says")
	}
}

// A link leads where it was set to lead, whatever an account is called.
func TestALinkStaysInItsPlace(t *testing.T) {
	t.Parallel()
	c := outbox.Sample(outbox.KindActionRequired)
	c.AccountID = "x&admin=1#/../é"
	_, mail := mailOf(t, writerOf(t), c)
	if want := "https://acme.example/pay?a=x%26admin%3D1%23%2F..%2F%C3%A9&p=2026-10"; !strings.Contains(mail.Text, want) {
		t.Errorf("no %s in\n%s", want, mail.Text)
	}
}

// What is wrong with a setting or a template is found before anything happens.
func TestWrongSettingsAreFoundAtOnce(t *testing.T) {
	t.Parallel()
	folder := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/receipt.txt", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	good := outbox.Config{Mails: []string{outbox.KindReceipt}, From: "a@x.example"}
	for name, change := range map[string]func(*outbox.Config){
		"an unknown kind":         func(c *outbox.Config) { c.Mails = []string{"receipts"} },
		"an unknown event":        func(c *outbox.Config) { c.Events, c.Endpoints = []string{"x"}, []string{"https://x.example/"} },
		"events and no endpoint":  func(c *outbox.Config) { c.Events = []string{outbox.EventSucceeded} },
		"an endpoint of a file":   func(c *outbox.Config) { c.Endpoints = []string{"file:///etc/passwd"} },
		"an endpoint with a name": func(c *outbox.Config) { c.Endpoints = []string{"https://u:p@x.example/"} },
		"no sender":               func(c *outbox.Config) { c.From = "" },
		"no page to pay":          func(c *outbox.Config) { c.Mails = []string{outbox.KindActionRequired} },
		"an unknown placeholder": func(c *outbox.Config) {
			c.Mails, c.PayURL = []string{outbox.KindActionRequired}, "https://x.example/{client_secret}"
		},
		"a template without a subject": func(c *outbox.Config) { c.Templates = folder("Hello {{.Name}}\n") },
		"a template of another field":  func(c *outbox.Config) { c.Templates = folder("Subject: x\n\n{{.Secret}}\n") },
		"a template that is broken":    func(c *outbox.Config) { c.Templates = folder("Subject: x\n\n{{.Name\n") },
		"a template without end": func(c *outbox.Config) {
			c.Templates = folder("Subject: x\n\n{{define \"a\"}}xxxxxxxx{{template \"a\"}}{{end}}{{template \"a\"}}")
		},
	} {
		c := good
		change(&c)
		_, err := outbox.NewWriter(c)
		var setting *outbox.ConfigError
		var template *outbox.TemplateError
		if !errors.As(err, &setting) && !errors.As(err, &template) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := outbox.NewWriter(good); err != nil {
		t.Error(err)
	}
}
