package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// clockLimit is how far two clocks may be apart (billing.CheckClock holds a run to it).
const clockLimit = 2 * time.Minute

// checkKey says what the key is, and makes the client with it.
func (d *doctor) checkKey(context.Context) finding {
	client, err := openGateway(d.a, 1, 0)
	if err != nil {
		return broken(err, "")
	}
	d.client = client
	key, err := stripeKey()
	if err != nil {
		return broken(err, "")
	}
	kind, shown := gateway.KeyKind(key)
	text := fmt.Sprintf("a %s of %s mode, %s", kind, client.Mode(), shown)
	switch live := os.Getenv("BILLING_LIVE"); {
	case live != "" && live != "true" && live != "false":
		return worth("BILLING_LIVE=true, or none", "%s; BILLING_LIVE=%s means nothing", text, shorten(live))
	case live == "true" && !client.Livemode():
		return worth("is a test key meant?", "%s, though BILLING_LIVE=true", text)
	}
	return fine("%s", text)
}

func (d *doctor) checkStripeAddress(context.Context) finding {
	if base := strings.TrimSpace(os.Getenv("STRIPE_API_BASE")); base != "" && base != "https://api.stripe.com" {
		return worth("unset STRIPE_API_BASE to talk to Stripe", "%s instead of Stripe: an emulator?", base)
	}
	return fine("https://api.stripe.com")
}

// checkAccount asks Stripe whose key it is, once: its error says what is in the way.
func (d *doctor) checkAccount(ctx context.Context) finding {
	id, err := d.client.Finder().AccountOnce(ctx)
	if err != nil {
		d.stripeErr = err
		return broken(err, refusedTodo(err, "Accounts: read (Connect, or all resources)"))
	}
	d.stripe, d.stripeSaid = &id, time.Now()
	name := id.AccountID
	if id.Name != "" {
		name += " (" + id.Name + ")"
	}
	text := fmt.Sprintf("%s, %s, %s mode", name, orNone(id.Country), d.client.Mode())
	switch {
	case id.ChargesDisabled && id.Livemode:
		return misset("complete the account in Stripe's dashboard", "%s: Stripe lets it charge nobody (charges_enabled is false)", text)
	case id.ChargesDisabled:
		return worth("complete it before it goes live", "%s: live, it could charge nobody yet (charges_enabled is false)", text)
	}
	return fine("%s", text)
}

// refusedTodo names the right that a restricted key lacks, as the dashboard does.
func refusedTodo(err error, right string) string {
	var failure *gateway.Error
	if errors.As(err, &failure) && failure.Kind == gateway.KindPermission {
		return "give the restricted key " + right
	}
	return ""
}

const intentsRead = "PaymentIntents: read"

func (d *doctor) checkList(ctx context.Context) finding {
	if err := d.client.Finder().MayList(ctx, time.Time{}); err != nil {
		return broken(err, refusedTodo(err, intentsRead))
	}
	return fine("the key may list PaymentIntents")
}

func (d *doctor) checkRead(ctx context.Context) finding {
	if err := d.client.Finder().MayRead(ctx); err != nil {
		return broken(err, refusedTodo(err, intentsRead+", and Charges: read"))
	}
	return fine("the key may read a PaymentIntent")
}

func (d *doctor) checkCustomers(ctx context.Context) finding {
	if err := d.client.Finder().MayReadCustomers(ctx); err != nil {
		return broken(err, refusedTodo(err, "Customers: read"))
	}
	return fine("the key may read customers")
}

// checkSearch warns at most: whoever can't search lists.
func (d *doctor) checkSearch(ctx context.Context) finding {
	if d.stripe != nil && d.stripe.Country == "IN" {
		return worth("", "Stripe has no search in India: lists are read instead, which takes longer")
	}
	if err := d.client.Finder().MaySearch(ctx); err != nil {
		return worth(refusedTodo(err, intentsRead), "no search: lists are read instead, which takes longer: %v", err)
	}
	return fine("the key may search PaymentIntents")
}

// checkWrite says what nobody can find out without charging.
func (d *doctor) checkWrite(context.Context) finding {
	key, err := stripeKey()
	if err != nil {
		return broken(err, "")
	}
	if kind, _ := gateway.KeyKind(key); kind != "secret key" {
		return worth("for a run it needs PaymentIntents: write; to look, none", "whether a %s may create PaymentIntents can't be told without creating one", kind)
	}
	return fine("a secret key may create PaymentIntents (not tried)")
}

// checkIdentity compares the key's account and mode with those of the ledger, and
// pins nothing.
func (d *doctor) checkIdentity(ctx context.Context) finding {
	pinned, err := ledger.ReadIdentity(ctx, d.pool)
	free := errors.Is(err, ledger.ErrNotFound)
	if err != nil && !free {
		return broken(err, "")
	}
	belongs := func() string {
		return "the ledger belongs to " + pinned.AccountID + ", " + modeName(pinned.Livemode) + " mode"
	}
	switch {
	case d.stripe == nil && free:
		return worth("", "the ledger belongs to no Stripe account yet; whose the key is, is not known")
	case d.stripe == nil && d.client != nil && d.client.Livemode() != pinned.Livemode:
		return misset("use a key of that mode, or another database", "%s, and the key is of %s mode", belongs(), d.client.Mode())
	case d.stripe == nil:
		return worth("", "%s; whose the key is, is not known", belongs())
	case free:
		return fine("the ledger belongs to no Stripe account yet; the first run pins %s", d.stripe.AccountID)
	}
	given := ledger.Identity{AccountID: d.stripe.AccountID, Livemode: d.stripe.Livemode}
	if err := ledger.CheckIdentity(ctx, d.pool, given); err != nil {
		return broken(err, "")
	}
	return fine("%s, as the key", belongs())
}

func modeName(live bool) string {
	if live {
		return "live"
	}
	return "test"
}

// checkClocks compares this host's clock, Postgres's and Stripe's. Only between the
// last two a difference stops a run.
func (d *doctor) checkClocks(ctx context.Context) finding {
	var ahead time.Duration // of Postgres before this host
	if d.pool != nil && d.server != nil {
		now, err := d.databaseNow(ctx)
		if err != nil {
			return broken(err, "")
		}
		ahead = time.Until(now)
	}
	switch {
	case d.server == nil && d.stripe == nil:
		return worth("", notChecked+"neither Postgres nor Stripe was reached")
	case d.server == nil:
		return d.compareHost(d.stripe.Date.Sub(d.stripeSaid), "Stripe")
	case d.stripe == nil:
		return d.compareHost(ahead, "Postgres")
	}
	if d.stripe.Date.IsZero() {
		return broken(&billing.ClockError{}, "")
	}
	stripe := d.stripe.Date.Add(time.Since(d.stripeSaid))
	if now := time.Now().Add(ahead); now.Sub(stripe).Abs() > clockLimit {
		return broken(&billing.ClockError{Postgres: now, Stripe: stripe}, "")
	}
	return d.compareHost(ahead, "Postgres and Stripe")
}

// databaseNow is billing.now() where it can be asked, which is what counts.
func (d *doctor) databaseNow(ctx context.Context) (time.Time, error) {
	if now, err := ledger.Now(ctx, d.pool); err == nil {
		return now, nil
	}
	server, err := ledger.ReadServer(ctx, d.pool)
	return server.Now, err
}

// compareHost warns where this host's clock differs: its log lines mislead.
func (d *doctor) compareHost(ahead time.Duration, who string) finding {
	if ahead.Abs() > clockLimit {
		return worth("set this host's clock (NTP); runs go by Postgres's", "this host's clock is %s off %s", ahead.Abs().Round(time.Second), who)
	}
	who = "this host and " + who
	if strings.Count(who, " and ") > 1 {
		who = strings.Replace(who, " and ", ", ", 1)
	}
	return fine("%s agree within %s", who, max(ahead.Abs().Round(time.Second), time.Second))
}
