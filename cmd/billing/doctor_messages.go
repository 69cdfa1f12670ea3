package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
)

// checkMessages makes what a run would write messages with, and a sample of each kind.
func (d *doctor) checkMessages(ctx context.Context) finding {
	config, err := messagesOf()
	if err != nil {
		return broken(err, "")
	}
	if _, err := openWriter(); err != nil {
		return broken(err, "")
	}
	if len(config.Mails) == 0 && len(config.Events) == 0 {
		return fine("every kind is off")
	}
	if d.fits {
		if may, err := ledger.MayTell(ctx, d.pool); err == nil && !may {
			return broken(errMayNotTell, "")
		}
	}
	text := fmt.Sprintf("mails: %s; webhooks: %s", orNone(strings.Join(config.Mails, ", ")), orNone(strings.Join(config.Events, ", ")))
	mails, mailErr := mailSender()
	hooks, hookErr := webhookSender()
	switch {
	case len(config.Mails) > 0 && mails == nil && mailErr == nil:
		return worth("set BILLING_RESEND_API_KEY or BILLING_SMTP_URL where outbox send runs", "%s; no mail can be sent from here", text)
	case len(config.Events) > 0 && hooks == nil && hookErr == nil:
		return worth("set BILLING_WEBHOOK_SECRET where outbox send runs", "%s; no webhook can be sent from here", text)
	}
	return fine("%s", text)
}

// checkMail looks at what carries mail: of Resend the form of the key, because only a
// mail would show more; of a mail server that it takes our login.
func (d *doctor) checkMail(ctx context.Context) finding {
	sender, err := mailSender()
	switch s := sender.(type) {
	case nil:
		if err != nil {
			return broken(err, "")
		}
		return fine("nothing that sends mail is set")
	case *outbox.SMTP:
		o := s.Check(ctx)
		switch o.Verdict {
		case outbox.Sent:
			return fine("the mail server takes the login (no mail was sent)")
		case outbox.Stop:
			return worth("correct BILLING_SMTP_URL: user, password, and whether the server speaks TLS at this port", "the mail server refuses us: %s", o.Reason)
		}
		return worth("is it up, and are its name and port right in BILLING_SMTP_URL?", "the mail server was not reached: %s", o.Reason)
	}
	return fine("Resend's key has the right form (not tried: only a mail would be)")
}

// checkWebhooks looks at each endpoint's address, and where its name leads.
func (d *doctor) checkWebhooks(ctx context.Context) finding {
	config, err := messagesOf()
	if err != nil {
		return broken(err, "")
	}
	hooks, err := webhookSender()
	switch {
	case err != nil:
		return broken(err, "")
	case len(config.Endpoints) == 0:
		return fine("no endpoint is set")
	case hooks == nil:
		return worth("set BILLING_WEBHOOK_SECRET where outbox send runs", "an endpoint is set and no secret to sign with")
	}
	var hosts []string
	for _, endpoint := range config.Endpoints {
		if err := hooks.CheckEndpoint(endpoint); err != nil {
			return broken(asSetting(err), "")
		}
		var refused *outbox.ConfigError
		switch err := hooks.Resolves(ctx, endpoint); {
		case errors.As(err, &refused):
			return worth("name its network in BILLING_WEBHOOK_ALLOW if it is one of yours", "no webhook goes to %s: %v", outbox.Lane(endpoint), asSetting(err))
		case err != nil:
			return worth("is the name right in BILLING_WEBHOOK_URL?", "%v", err)
		}
		hosts = append(hosts, outbox.Lane(endpoint))
	}
	return fine("%s (nothing was sent)", strings.Join(hosts, ", "))
}

// messageSecrets are those of senders and endpoints.
func messageSecrets() (secrets []string) {
	for _, name := range []string{"BILLING_RESEND_API_KEY", "BILLING_WEBHOOK_SECRET", "BILLING_WEBHOOK_URL", "BILLING_SMTP_URL"} {
		value, err := secretOf(name)
		if err != nil {
			continue
		}
		secrets = append(secrets, strings.Fields(value)...)
		if u, err := url.Parse(value); err == nil && u.User != nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	return secrets
}
