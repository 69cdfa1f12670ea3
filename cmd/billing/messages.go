package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/chargeonce/billing/billing/outbox"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile"
)

// words reads a setting that is a list, separated by blanks or commas.
func words(name string) []string {
	return strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}

// messagesOf reads which messages are written, and how.
func messagesOf() (c outbox.Config, err error) {
	urls, err := secret("BILLING_WEBHOOK_URL")
	if err != nil {
		return c, err
	}
	c = outbox.Config{
		Mails: words("BILLING_MESSAGES"), Events: words("BILLING_WEBHOOK_EVENTS"),
		From: strings.TrimSpace(os.Getenv("BILLING_MAIL_FROM")), ReplyTo: strings.TrimSpace(os.Getenv("BILLING_MAIL_REPLY_TO")),
		PayURL: strings.TrimSpace(os.Getenv("BILLING_PAY_URL")), Templates: os.Getenv("BILLING_TEMPLATES"),
		Endpoints: strings.Fields(urls),
	}
	if c.AllowHTTP, err = httpAllowed(); err != nil {
		return c, err
	}
	if c.AllowNetworks, err = allowedNetworks(); err != nil {
		return c, err
	}
	if slices.Equal(c.Mails, []string{"all"}) {
		c.Mails = outbox.MailKinds
	}
	if slices.Equal(c.Events, []string{"all"}) {
		c.Events = outbox.EventKinds
	}
	return c, nil
}

// openWriter checks everything that a message will need.
func openWriter() (*outbox.Writer, error) {
	c, err := messagesOf()
	if err != nil {
		return nil, err
	}
	w, err := outbox.NewWriter(c)
	return w, asSetting(err)
}

// openOutbox is what a command tells its changes by, nil if every kind is off. It is
// asked before anything changes; a dry run writes nothing, and needs no right to.
func (a *app) openOutbox(ctx context.Context, q ledger.Querier, job ledger.Job, dryRun bool) (*ledger.Outbox, error) {
	w, err := openWriter()
	if err != nil {
		return nil, err
	}
	out := w.Outbox()
	switch {
	case dryRun:
		return out, nil
	case out == nil:
		// A host where the settings were forgotten would leave customers untold. Who may
		// not read that is told by what it reads next.
		if told, err := ledger.HasTold(ctx, q, job); err == nil && told {
			a.log.Warn("messages are off here: this job has written some before, and what changes now is told to nobody; set BILLING_MESSAGES and BILLING_WEBHOOK_EVENTS as elsewhere")
		}
		return nil, nil
	}
	may, err := ledger.MayTell(ctx, q)
	if err == nil && !may {
		err = errMayNotTell
	}
	return out, err
}

var errMayNotTell = configError{
	errors.New("messages are on, and this role may not write them"),
	"grant it what docs/deploy/grants.sql says, or unset BILLING_MESSAGES and BILLING_WEBHOOK_EVENTS",
}

// asSetting names the setting as it is typed.
func asSetting(err error) error {
	var setting *outbox.ConfigError
	var template *outbox.TemplateError
	switch {
	case errors.As(err, &setting):
		return configError{fmt.Errorf("BILLING_%s %s", setting.Setting, setting.Problem), "correct BILLING_" + setting.Setting}
	case errors.As(err, &template):
		return configError{err, "correct the file, or unset BILLING_TEMPLATES; billing outbox preview shows what it makes"}
	}
	return err
}

// outboxOf is what the look at a period tells by. A ledger that was restored has lost
// what was told since the backup; its customers have not.
func (l *looking) outboxOf(work reconcile.Work) *ledger.Outbox {
	if work.Rebuild {
		return nil
	}
	return l.outbox
}

// mailSender is what sends mail, nil if none is set.
func mailSender() (outbox.Sender, error) {
	key, err := secret("BILLING_RESEND_API_KEY")
	if err != nil {
		return nil, err
	}
	server, err := secret("BILLING_SMTP_URL")
	if err != nil {
		return nil, err
	}
	switch {
	case key != "" && server != "":
		return nil, configError{errors.New("BILLING_RESEND_API_KEY and BILLING_SMTP_URL are both set"), "set one of them"}
	case key != "":
		s, err := outbox.NewResend(outbox.ResendConfig{APIKey: key, Base: strings.TrimSpace(os.Getenv("BILLING_RESEND_BASE"))})
		if err != nil {
			return nil, asSetting(err)
		}
		return s, nil
	case server != "":
		s, err := outbox.NewSMTP(outbox.SMTPConfig{URL: server})
		if err != nil {
			return nil, asSetting(err)
		}
		return s, nil
	}
	return nil, nil
}

// webhookSender is what sends webhooks, nil if no secret is set.
func webhookSender() (*outbox.Webhook, error) {
	secrets, err := secret("BILLING_WEBHOOK_SECRET")
	if err != nil || secrets == "" {
		return nil, err
	}
	c := outbox.WebhookConfig{Secrets: strings.Fields(secrets)}
	if c.AllowHTTP, err = httpAllowed(); err != nil {
		return nil, err
	}
	if c.AllowNetworks, err = allowedNetworks(); err != nil {
		return nil, err
	}
	s, err := outbox.NewWebhook(c)
	if err != nil {
		return nil, asSetting(err)
	}
	return s, nil
}

// allowedNetworks are networks that are not public and may be sent to all the same.
func allowedNetworks() (list []netip.Prefix, err error) {
	for _, word := range words("BILLING_WEBHOOK_ALLOW") {
		network, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, configError{fmt.Errorf("BILLING_WEBHOOK_ALLOW has %q", shorten(word)), "name networks, such as 10.1.0.0/16"}
		}
		list = append(list, network)
	}
	return list, nil
}

// twiceKinds are the kinds that are rather sent twice than never.
func twiceKinds() ([]string, error) {
	kinds := words("BILLING_MESSAGES_TWICE")
	for _, kind := range kinds {
		if !isMailKind(kind) && !isEventKind(kind) {
			return nil, configError{fmt.Errorf("BILLING_MESSAGES_TWICE has %q, which is no kind of message", kind),
				"name some of " + strings.Join(append(append([]string{}, outbox.MailKinds...), outbox.EventKinds...), ", ")}
		}
	}
	return kinds, nil
}

// httpAllowed reads whether endpoints without TLS may be sent to.
func httpAllowed() (bool, error) {
	switch text := os.Getenv("BILLING_WEBHOOK_HTTP"); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, configError{fmt.Errorf("BILLING_WEBHOOK_HTTP %q", shorten(text)), "want true or false"}
	}
}
