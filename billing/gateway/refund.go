package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	refundsPath = "/v1/refunds"
	// metaFinding names the finding that a refund was ordered about.
	metaFinding = "billing_finding"
	// maxRefundPages bounds the refunds of one payment: a hundred thousand.
	maxRefundPages = 1000
)

// Statuses of a refund, as Stripe names them.
const (
	RefundSucceeded      = "succeeded"
	RefundPending        = "pending"
	RefundRequiresAction = "requires_action"
	RefundFailed         = "failed"
	RefundCanceled       = "canceled"
)

// ReasonAlreadyRefunded is Stripe's code for a payment that was given back, by this
// request under another key or by somebody else: it must be looked up.
const ReasonAlreadyRefunded = "charge_already_refunded"

// RefundParams is what a refund asks of Stripe.
type RefundParams struct {
	PaymentIntent string
	// Amount is in Stripe's unit.
	Amount int64
	// Duplicate tells Stripe why, where that is the reason.
	Duplicate bool
	// FindingID and BillingKey go into the refund's metadata.
	FindingID  int64
	BillingKey string
}

// RefundBody returns the form-encoded request of a refund. Like Body it depends on p
// alone: a key is only ever sent with the same bytes.
func RefundBody(p RefundParams) string {
	dst := append([]byte("payment_intent="), url.QueryEscape(p.PaymentIntent)...)
	dst = append(dst, "&amount="...)
	dst = strconv.AppendInt(dst, p.Amount, 10)
	if p.Duplicate {
		dst = append(dst, "&reason=duplicate"...)
	}
	dst = appendField(dst, "metadata["+metaFinding+"]", strconv.FormatInt(p.FindingID, 10))
	if p.BillingKey != "" {
		dst = appendField(dst, "metadata["+metaKey+"]", p.BillingKey)
	}
	return string(dst)
}

// Refund is what the program believes of one of Stripe's refunds.
type Refund struct {
	ID            string
	Status        string
	PaymentIntent string
	Amount        int64 // in Stripe's unit
	Currency      string
	Created       time.Time
	// FindingID is the finding that it was ordered about, 0 if by nobody here.
	FindingID int64
}

// GivesBack reports that the money is on its way back, or there.
func (r Refund) GivesBack() bool {
	return r.Status == RefundSucceeded || r.Status == RefundPending || r.Status == RefundRequiresAction
}

type refundJSON struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Status        string            `json:"status"`
	PaymentIntent reference         `json:"payment_intent"`
	Amount        *int64            `json:"amount"`
	Currency      string            `json:"currency"`
	Created       int64             `json:"created"`
	Metadata      map[string]string `json:"metadata"`
}

func (j *refundJSON) refund() (Refund, error) {
	if j.Object != "refund" || j.ID == "" || j.Status == "" || j.Amount == nil || j.Currency == "" {
		return Refund{}, fmt.Errorf("object %.40q is not a refund, or not whole", j.ID)
	}
	r := Refund{
		ID: clean(j.ID, 200), Status: clean(j.Status, 100), PaymentIntent: j.PaymentIntent.ID, Amount: *j.Amount, Currency: j.Currency,
		Created: time.Unix(j.Created, 0).UTC(),
	}
	if id, err := strconv.ParseInt(j.Metadata[metaFinding], 10, 64); err == nil {
		r.FindingID = id
	}
	return r, nil
}

// RefundPermit is the right to put one refund on the wire, given by a committed
// claim in the ledger. The caller hands it to Send once.
type RefundPermit struct {
	// Key is the idempotency key, Body the frozen request, SHA256 its hash.
	Key    string
	Body   string
	SHA256 [32]byte
	// StripeAccount is a connected account, empty for one's own.
	StripeAccount string
	// PaymentIntent, Amount, Currency and FindingID are what the refund that comes
	// back must carry.
	PaymentIntent string
	Amount        int64
	Currency      string
	FindingID     int64
	// Resend says that a send before this one may have been executed: a refusal then
	// proves nothing about it.
	Resend bool
	// Deadline is when the permit ends; no byte of the body leaves after it.
	Deadline Deadline
}

// RefundAnswer is the evidence of one send of a refund.
type RefundAnswer struct {
	// Verdict is VerdictKnown with a Refund that is as asked, VerdictRefused if Stripe
	// did nothing and would not, else as for a charge.
	Verdict Verdict
	Refund  Refund
	// Reason is Stripe's code or one of the Reason constants, "" for VerdictKnown.
	Reason string
	// Message is Stripe's sentence, without secrets.
	Message    string
	RequestID  string
	HTTPStatus int
	// NotExecuted: proof that this send did nothing at Stripe.
	NotExecuted bool
}

// Refunder gives money back, and can do nothing else.
type Refunder struct{ client *Client }

// Refunder returns what makes refunds.
func (c *Client) Refunder() *Refunder { return &Refunder{client: c} }

// Send puts exactly one POST on the wire for a permit, or none if it has expired,
// and says what is then known. It never repeats a POST.
func (f *Refunder) Send(ctx context.Context, p RefundPermit) RefundAnswer {
	ctx, cancel := context.WithTimeout(ctx, f.client.life)
	defer cancel()
	check := func() error {
		if f.client.expired(p.Deadline) {
			return errPermitExpired
		}
		return nil
	}
	reply := Reply{Err: errPermitExpired, NotSent: true, ReceivedAt: f.client.now()}
	if check() == nil {
		reply = f.client.post(ctx, p.Body, &ticket{path: refundsPath, key: p.Key, stripeAccount: p.StripeAccount, sha256: p.SHA256, check: check})
	}
	a := RefundOutcome(p, reply)
	f.client.log.LogAttrs(ctx, slog.LevelInfo, "refund",
		slog.Int64("finding", p.FindingID), slog.String("payment_intent", p.PaymentIntent), slog.String("verdict", string(a.Verdict)),
		slog.String("reason", a.Reason), slog.Int("status", a.HTTPStatus), slog.String("refund", a.Refund.ID), slog.String("request_id", a.RequestID))
	return a
}

// refundRefusals are the codes with which Stripe refuses a refund before it does
// anything, because of the payment or the request (docs.stripe.com/error-codes).
var refundRefusals = []string{
	"charge_disputed", "refund_disputed_payment", "charge_not_refundable", "resource_missing", "balance_insufficient",
	"insufficient_funds", "amount_too_small", "amount_too_large", "invalid_charge_amount",
	"parameter_missing", "parameter_unknown", "parameter_invalid_integer", "parameter_invalid_empty", "parameters_exclusive",
}

// RefundOutcome turns a reply to a refund's POST into an answer. What is not listed
// is unknown: the money may be on its way back.
func RefundOutcome(p RefundPermit, r Reply) RefundAnswer {
	seen := answerOf(r)
	a := RefundAnswer{Verdict: VerdictUnknown, RequestID: seen.RequestID, HTTPStatus: r.Status}
	switch {
	case r.NotSent:
		b := seen.notSent(r.Err)
		a.Verdict, a.Reason, a.NotExecuted = b.Verdict, b.Reason, true
	case r.Err != nil || r.Status == 0:
		a.Reason = seen.noAnswer(r.Err).Reason
	case r.Status == http.StatusOK:
		a.believe(p, r.Body, seen.Replayed)
	case r.Status < 400:
		a.Reason = ReasonUnexpected
	default:
		a.failed(p, r, seen.Replayed)
	}
	return a
}

// believe takes a 200 as evidence if it is the refund that was asked for. A replayed
// one says what was, not what is.
func (a *RefundAnswer) believe(p RefundPermit, body []byte, replayed bool) {
	var object refundJSON
	if err := json.Unmarshal(body, &object); err != nil {
		a.Reason = ReasonUnreadable
		return
	}
	refund, err := object.refund()
	switch {
	case err != nil:
		a.Reason = ReasonUnreadable
	case replayed:
		a.Reason = ReasonNotReread
	case refund.PaymentIntent != p.PaymentIntent || refund.Amount != p.Amount || refund.Currency != p.Currency || refund.FindingID != p.FindingID:
		a.Reason = ReasonNotAsAsked
	default:
		a.Verdict, a.Refund = VerdictKnown, refund
	}
}

// failed reads a 4xx or 5xx. Only what has the shape of Stripe's own answers, and is
// no replay, proves anything.
func (a *RefundAnswer) failed(p RefundPermit, r Reply, replayed bool) {
	e, isStripes := stripeError(r.Body)
	if e == nil {
		e = &errorJSON{}
	}
	a.Message, a.Reason = redact(e.Message), orElse(e.Code, ReasonUnexpected)
	before := isStripes && !replayed
	switch {
	case r.Status == http.StatusUnauthorized:
		a.Verdict, a.Reason, a.NotExecuted = VerdictStop, ReasonUnauthorized, before
	case r.Status == http.StatusForbidden:
		a.Verdict, a.Reason, a.NotExecuted = VerdictStop, ReasonForbidden, before
	case r.Status == http.StatusTooManyRequests:
		a.Reason, a.NotExecuted = orElse(e.Code, ReasonRateLimited), before
	case r.Status == http.StatusConflict:
		a.Reason = orElse(e.Code, ReasonConflict)
	case r.Status >= 500:
		a.Reason = ReasonServerError
	case e.Type == "idempotency_error":
		a.Reason = ReasonIdempotency
	case strings.Contains(e.Message, "a similar object exists in"):
		a.Verdict, a.Reason, a.NotExecuted = VerdictStop, ReasonWrongMode, before
	case e.Code == ReasonAlreadyRefunded:
		a.NotExecuted = before
	case !before || r.Status != http.StatusBadRequest && r.Status != http.StatusNotFound:
	case slices.Contains(refundRefusals, e.Code), e.Code == "" && (e.Param == "amount" || e.Param == "payment_intent"):
		a.Reason, a.NotExecuted = orElse(e.Code, "invalid_"+e.Param), true
		if !p.Resend {
			a.Verdict = VerdictRefused
		}
	}
}

type refundListJSON struct {
	Data    *[]refundJSON `json:"data"`
	HasMore *bool         `json:"has_more"`
}

// RefundsOf reads all refunds of a payment, newest first, to the last page. Nothing is
// returned from a list that was not complete, or that held another payment's. The error
// is an *Error; the key must be allowed to read refunds.
func (f *Finder) RefundsOf(ctx context.Context, stripeAccount, paymentIntent string) (list []Refund, err error) {
	doing := fmt.Sprintf("list the refunds of %.80s", paymentIntent)
	if !plainID(paymentIntent) {
		return nil, &Error{Doing: doing, Kind: KindRefused, Message: "not a PaymentIntent id"}
	}
	seen := map[string]bool{}
	for range maxRefundPages {
		query := "payment_intent=" + paymentIntent + "&limit=" + strconv.Itoa(pageSize)
		if len(list) > 0 {
			query += "&starting_after=" + url.QueryEscape(list[len(list)-1].ID)
		}
		page, meta, err := read[refundListJSON](ctx, f.client, f.client.reads, get{doing, stripeAccount, refundsPath, query})
		if err != nil {
			return nil, err
		}
		bad := &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID}
		if page.Data == nil || page.HasMore == nil || *page.HasMore && len(*page.Data) == 0 {
			bad.Message = "not a list"
			return nil, bad
		}
		for i := range *page.Data {
			refund, err := (*page.Data)[i].refund()
			if err == nil && (refund.PaymentIntent != paymentIntent || seen[refund.ID]) {
				err = fmt.Errorf("%w: %.80s", ErrForeign, refund.ID)
			}
			if err != nil {
				bad.Err = err
				return nil, bad
			}
			seen[refund.ID] = true
			list = append(list, refund)
		}
		if !*page.HasMore {
			return list, nil
		}
	}
	return nil, &Error{Doing: doing, Kind: KindBadAnswer, Message: "the list does not end"}
}
