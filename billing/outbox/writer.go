package outbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/chargeonce/billing/ledger"
)

// MailLane is the lane of all mail. Each endpoint has one of its own.
const MailLane = "email"

// Config says which messages are written. What is written is frozen: a change here
// counts for what happens after it.
type Config struct {
	// Mails and Events are the kinds that are on.
	Mails, Events []string
	// From and ReplyTo are addresses with or without a name; ReplyTo may be empty.
	From, ReplyTo string
	// PayURL is where a customer can pay, with {account_id}, {period}, {billing_key} and
	// {payment_intent} in it. Action_required needs it.
	PayURL string
	// Templates is a folder whose files replace those of the program, "" for none.
	Templates string
	// Endpoints are the URLs that every event goes to, and what they may be.
	Endpoints     []string
	AllowHTTP     bool
	AllowNetworks []netip.Prefix
}

// Writer renders what changes have to be told.
type Writer struct {
	config    Config
	sender    envelope
	company   string
	templates map[string]mailTemplate
}

func wrong(setting, format string, args ...any) error {
	return &ConfigError{setting, fmt.Sprintf(format, args...)}
}

// NewWriter checks everything that a message will need, and renders a sample of each
// kind: what is wrong is found before money moves. The error is a *ConfigError or a
// *TemplateError.
func NewWriter(c Config) (*Writer, error) {
	w := &Writer{config: c}
	if err := checkKinds(c); err != nil {
		return nil, err
	}
	// In one order, so that two transactions that tell the same do not wait for each other.
	w.config.Endpoints = slices.Sorted(slices.Values(c.Endpoints))
	for i, endpoint := range w.config.Endpoints {
		if err := checkEndpoint(endpoint, c.AllowHTTP, c.AllowNetworks); err != nil {
			return nil, err
		}
		if i > 0 && endpoint == w.config.Endpoints[i-1] {
			return nil, wrong("WEBHOOK_URL", "names an endpoint twice")
		}
	}
	if len(c.Mails) == 0 {
		return w, nil
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil {
		return nil, wrong("MAIL_FROM", wantAddress)
	}
	if w.company = oneLine(from.Name); w.company == "" {
		_, w.company, _ = strings.Cut(from.Address, "@")
	}
	if w.sender, err = senderOf(c.From, c.ReplyTo); err != nil {
		return nil, err
	}
	if err := w.checkPayURL(); err != nil {
		return nil, err
	}
	if w.templates, err = loadTemplates(c.Templates, c.Mails); err != nil {
		return nil, err
	}
	for _, kind := range c.Mails {
		if _, err := w.Sample(kind, Sample(kind)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func checkKinds(c Config) error {
	for _, kind := range c.Mails {
		if !slices.Contains(MailKinds, kind) {
			return wrong("MESSAGES", "has %q; there are %s", kind, strings.Join(MailKinds, ", "))
		}
	}
	for _, kind := range c.Events {
		if !slices.Contains(EventKinds, kind) {
			return wrong("WEBHOOK_EVENTS", "has %q; there are %s", kind, strings.Join(EventKinds, ", "))
		}
	}
	if len(c.Events) > 0 && len(c.Endpoints) == 0 {
		return wrong("WEBHOOK_URL", "is missing, and WEBHOOK_EVENTS names some")
	}
	return nil
}

func (w *Writer) checkPayURL() error {
	if !slices.Contains(w.config.Mails, KindActionRequired) {
		return nil
	}
	sample := Sample(KindActionRequired)
	u, err := url.Parse(w.payURL(&sample))
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return wrong("PAY_URL", "must be like https://host/pay?account={account_id}, because action_required is on")
	}
	if strings.ContainsAny(u.String(), "{}") || strings.Contains(u.String(), "%7B") {
		return wrong("PAY_URL", "has a placeholder that does not exist; there are {account_id}, {period}, {billing_key} and {payment_intent}")
	}
	return nil
}

// Outbox is what the ledger asks for messages, nil if every kind is off.
func (w *Writer) Outbox() *ledger.Outbox {
	if len(w.config.Mails) == 0 && len(w.config.Events) == 0 {
		return nil
	}
	return &ledger.Outbox{Messages: w.messages}
}

func (w *Writer) messages(changes []ledger.Change) (list []ledger.Message) {
	for i := range changes {
		c := &changes[i]
		if kind := mailKind(c); slices.Contains(w.config.Mails, kind) {
			list = append(list, w.mail(kind, c))
		}
		if kind := eventKind(c); slices.Contains(w.config.Events, kind) {
			for _, endpoint := range w.config.Endpoints {
				list = append(list, event(kind, endpoint, c))
			}
		}
	}
	return list
}

// mail writes one mail. What can't be rendered or has no address is kept and seen.
func (w *Writer) mail(kind string, c *ledger.Change) ledger.Message {
	m := ledger.Message{
		DedupeKey: mailKey(kind, c), Kind: kind, Channel: ledger.ChannelEmail, Lane: MailLane,
		Job: c.Job, Period: c.Period, AccountID: c.AccountID, BillingKey: c.BillingKey, Origin: originOf(c),
		State: ledger.MessageQueued,
	}
	address, err := addressOf(c)
	if err != nil {
		m.State, m.Reason = ledger.MessageUndeliverable, err.Error()
		return m
	}
	m.Destination = address.Address
	email, err := w.Sample(kind, *c)
	if err != nil {
		m.State, m.Reason = ledger.MessageDead, "template_failed"
		return m
	}
	m.Payload = compact(email)
	return m
}

// Why a mail has nobody to go to.
var (
	errNoAddress  = errors.New("no_address")
	errBadAddress = errors.New("bad_address")
)

// addressOf is the account's single, plain address.
func addressOf(c *ledger.Change) (*mail.Address, error) {
	text := strings.TrimSpace(c.Email)
	if text == "" {
		return nil, errNoAddress
	}
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || oneLine(text) != text || len(text) > 254 {
		return nil, errBadAddress
	}
	a.Name = oneLine(c.Name)
	return a, nil
}

// mailKey names a mail: once for each try, and a refund once for each sum of money that
// was given back.
func mailKey(kind string, c *ledger.Change) string {
	if kind == KindRefundNoted {
		return fmt.Sprintf("%s/%s/%d/%d", kind, c.BillingKey, c.Try, c.RefundedMinor)
	}
	return fmt.Sprintf("%s/%s/%d", kind, c.BillingKey, c.Try)
}

// Sample renders the mail of a kind for a change.
func (w *Writer) Sample(kind string, c ledger.Change) (Email, error) {
	t, on := w.templates[kind]
	if !on {
		return Email{}, wrong("MESSAGES", "does not have %q", kind)
	}
	subject, text, html, err := t.render(w.data(&c))
	if err != nil {
		return Email{}, &TemplateError{kind, err}
	}
	email := Email{From: w.sender.From, ReplyTo: w.sender.ReplyTo, Subject: subject, Text: text, HTML: html}
	if to, err := addressOf(&c); err == nil {
		email.To = to.String()
	}
	return email, nil
}

// Lane is the lane of an endpoint: its host for people, and enough of a hash to tell
// endpoints of one host apart.
func Lane(endpoint string) string { return hostOf(endpoint) + "-" + endpointID(endpoint) }

func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "?"
	}
	return u.Hostname()
}

func endpointID(endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	return hex.EncodeToString(sum[:4])
}

// compact is JSON as it is kept: one line, and a < is a <.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("outbox: " + err.Error()) // only strings and numbers are in it
	}
	return strings.TrimSuffix(b.String(), "\n")
}
