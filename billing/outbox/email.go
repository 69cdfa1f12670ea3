package outbox

import (
	"net/mail"
	"strings"
	"time"
)

// emailTimeout is for a whole try of a mail, whatever carries it.
const emailTimeout = 30 * time.Second

// badEmail says why a mail cannot be sent by anybody, or "".
func badEmail(m Message) string {
	switch {
	case m.Email == nil:
		return "no_email"
	case !isAddress(m.Email.From):
		return "bad_sender"
	case !isAddress(m.Email.To):
		return "bad_recipient"
	case m.Email.ReplyTo != "" && !isAddress(m.Email.ReplyTo):
		return "bad_reply_to"
	case m.Email.Text == "" && m.Email.HTML == "":
		return "empty"
	}
	return ""
}

func isAddress(text string) bool {
	_, err := mail.ParseAddress(text)
	return err == nil
}

// domain is what follows the @ of an address that isAddress.
func domain(address string) string {
	parsed, err := mail.ParseAddress(address)
	if err != nil {
		return ""
	}
	return parsed.Address[strings.LastIndexByte(parsed.Address, '@')+1:]
}
