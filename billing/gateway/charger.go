package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/chargeonce/billing/ledger"
)

const intentsPath = "/v1/payment_intents"

// Charger sends charges.
type Charger struct {
	client *Client
	finder *Finder
}

// Send puts exactly one POST on the wire for a permit, or none if it has
// expired by the time there is a connection, and says what is then known. It
// never repeats a POST. An answer that may be an old one (replayed, or to a
// second send) and is not a success is read again by id: the customer may have
// paid or cancelled since. Send returns within the request life. A cancelled
// context ends the wait, not what Stripe does: the answer is then unknown.
func (c *Charger) Send(ctx context.Context, p Permit) Answer {
	ctx, cancel := context.WithTimeout(ctx, c.client.life)
	defer cancel()
	asked := p.asked(c.client.livemode)
	a := Outcome(asked, c.post(ctx, p))
	if a.mustReread(p.Resend) {
		a = c.reread(ctx, p, a)
	}
	c.log(ctx, p, a)
	return a
}

// post sends the frozen body.
func (c *Charger) post(ctx context.Context, p Permit) Reply {
	if c.client.expired(p.Deadline) {
		return Reply{Err: errPermitExpired, NotSent: true, ReceivedAt: c.client.now()}
	}
	return c.client.post(ctx, p.Body, &ticket{
		path: intentsPath, key: p.Key, stripeAccount: p.StripeAccount, sha256: p.SHA256,
		check: func() error {
			if c.client.expired(p.Deadline) {
				return errPermitExpired
			}
			return nil
		},
	})
}

func (c *Client) expired(d Deadline) bool { return d.Expired(c.now()) }

// post sends one POST under its ticket.
func (c *Client) post(ctx context.Context, body string, t *ticket) Reply {
	reply := c.call(ctx, c.sender, request{
		method: http.MethodPost, path: t.path, body: body, stripeAccount: t.stripeAccount, ticket: t,
	})
	if errors.Is(reply.Err, errNotBuilt) {
		reply.NotSent, reply.ReceivedAt = true, c.now()
	}
	return reply
}

// mustReread reports whether the answer names a PaymentIntent whose status may
// have changed since Stripe wrote the answer.
func (a Answer) mustReread(resend bool) bool {
	if a.PaymentIntent == "" || !strings.HasPrefix(a.PaymentIntent, "pi_") {
		return false
	}
	switch a.Verdict {
	case VerdictKnown:
		return a.State != ledger.ChargeSucceeded && (a.Replayed || resend)
	case VerdictUnknown:
		return a.Reason == ReasonContradiction || (a.Reason == ReasonNotAttempted && (a.Replayed || resend))
	default:
		return false
	}
}

// reread replaces the state of an answer by the PaymentIntent's of now. What
// cannot be read is unknown: the old answer is no evidence any more.
func (c *Charger) reread(ctx context.Context, p Permit, a Answer) Answer {
	pi, meta, err := c.finder.Get(ctx, p.StripeAccount, a.PaymentIntent)
	var failure *Error
	switch {
	case err == nil:
	case errors.As(err, &failure) && failure.Kind == KindAuth:
		return a.stop(ReasonUnauthorized)
	case errors.As(err, &failure) && failure.Kind == KindPermission:
		return a.stop(ReasonForbidden)
	case errors.As(err, &failure) && failure.Kind == KindWrongMode:
		return a.stop(ReasonWrongMode)
	default:
		return a.unknown(ReasonNotReread)
	}
	if pi.ID != a.PaymentIntent {
		return a.unknown(ReasonNotAsAsked + ": id")
	}
	a.Code, a.DeclineCode, a.AdviceCode, a.Message = "", "", "", ""
	a.RequestID, a.StripeDate = meta.RequestID, meta.Date
	return a.believe(p.asked(c.client.livemode), pi)
}

// logLevel is how loud one answer is: what was not paid has a line, and the pace
// answers to 429 by itself.
func (a Answer) logLevel() slog.Level {
	switch {
	case a.Verdict == VerdictStop:
		return slog.LevelError
	case a.NotSent, a.HTTPStatus == http.StatusTooManyRequests, a.State == ledger.ChargeSucceeded, a.State == ledger.ChargeProcessing:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// log tells one send; the keys and the request id find it here and in Stripe's
// dashboard.
func (c *Charger) log(ctx context.Context, p Permit, a Answer) {
	level := a.logLevel()
	if !c.client.log.Enabled(ctx, level) {
		return
	}
	c.client.log.LogAttrs(ctx, level, "send",
		slog.String("billing_key", p.BillingKey), slog.Int("try", p.Try), slog.String("verdict", string(a.Verdict)), slog.String("state", string(a.State)),
		slog.String("reason", a.Reason), slog.Int("status", a.HTTPStatus), slog.Bool("replayed", a.Replayed),
		slog.String("request_id", a.RequestID), slog.String("payment_intent", a.PaymentIntent),
		slog.Duration("latency", a.Latency))
}
