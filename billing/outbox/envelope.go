package outbox

import (
	"encoding/json"
	"net/mail"
)

// envelope is whom a mail comes from, as addresses with or without a name.
type envelope struct {
	From    string `json:"from,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
}

const wantAddress = "must be an address, such as Acme <billing@acme.example>"

func senderOf(from, replyTo string) (e envelope, err error) {
	a, err := mail.ParseAddress(from)
	if err != nil {
		return e, wrong("MAIL_FROM", wantAddress)
	}
	e.From = a.String()
	if replyTo == "" {
		return e, nil
	}
	if a, err = mail.ParseAddress(replyTo); err != nil {
		return e, wrong("MAIL_REPLY_TO", "must be an address")
	}
	e.ReplyTo = a.String()
	return e, nil
}

// SenderText is the sender as it is kept with the first try of a mail, so that one that was
// wrong is corrected for all that has not left yet. Without a From in the settings a mail
// goes as it was written, and that is kept too: another host may have other settings.
func SenderText(from, replyTo string) (string, error) {
	if from == "" {
		return compact(envelope{}), nil
	}
	e, err := senderOf(from, replyTo)
	return compact(e), err
}

// sentBy gives a mail the sender that was kept with its first try.
func (m *Email) sentBy(sender string) error {
	if sender == "" {
		return nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(sender), &e); err != nil {
		return err
	}
	if e.From != "" {
		m.From, m.ReplyTo = e.From, e.ReplyTo
	}
	return nil
}
