package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// Reply is what came back on the wire for one request.
type Reply struct {
	// Status is 0 if no answer began.
	Status int
	Header http.Header
	Body   []byte
	// Err says why there is no answer, or not the whole of it.
	Err error
	// NotSent is proof that no byte of the body left the process.
	NotSent    bool
	ReceivedAt time.Time
	Latency    time.Duration
}

// Verdict says what an answer is worth as evidence.
type Verdict string

// The verdicts.
const (
	// VerdictKnown: a PaymentIntent or a decline proves Answer.State.
	VerdictKnown Verdict = "known"
	// VerdictRefused: Stripe refused before doing anything, for a cause in this
	// charge's data. It says nothing about an earlier open send.
	VerdictRefused Verdict = "refused"
	// VerdictUnknown: the charge may have been executed. Repeat under the same
	// key, or look it up.
	VerdictUnknown Verdict = "unknown"
	// VerdictNotSent: nothing left the process.
	VerdictNotSent Verdict = "not_sent"
	// VerdictStop: unknown for the charge, and the next one would fare no
	// better: the key, its permissions or its mode are wrong.
	VerdictStop Verdict = "stop"
)

// Reasons that this package gives where Stripe gives no code.
const (
	ReasonPermitExpired = "permit_expired"
	ReasonNotPermitted  = "not_permitted"
	ReasonNoConnection  = "no_connection"
	ReasonNoAnswer      = "no_answer"
	ReasonTimeout       = "timeout"
	ReasonInterrupted   = "interrupted"
	ReasonUnreadable    = "unreadable_answer"
	ReasonRedirected    = "redirected"
	ReasonServerError   = "server_error"
	ReasonConflict      = "conflict"
	ReasonRateLimited   = "rate_limited"
	ReasonIdempotency   = "idempotency_error"
	ReasonNotAsAsked    = "not_as_asked"
	ReasonNotAttempted  = "not_attempted"
	ReasonContradiction = "contradiction"
	ReasonNotReread     = "replayed_and_not_read_again"
	ReasonWrongMode     = "wrong_mode"
	ReasonUnauthorized  = "unauthorized"
	ReasonForbidden     = "forbidden"
	ReasonUnexpected    = "unexpected_answer"
)

// Answer is the evidence of one send.
type Answer struct {
	Verdict Verdict
	// State is set when the verdict is VerdictKnown.
	State ledger.ChargeState
	// Reason is a short code in any case but a success: Stripe's decline or
	// error code, or one of the Reason constants.
	Reason string
	// PaymentIntent is the id that the answer named. With another verdict than
	// VerdictKnown it is a hint where to look, no evidence.
	PaymentIntent string
	StripeStatus  string
	DeclineCode   string
	AdviceCode    string
	Code          string
	// Message is Stripe's sentence, without secrets, at most 300 bytes.
	Message    string
	RequestID  string
	HTTPStatus int

	// Replayed: Stripe repeated the stored answer to an earlier request.
	Replayed bool
	// NotExecuted: proof that this send did nothing at Stripe.
	NotExecuted bool
	// NotSent: proof that nothing reached the wire; NotExecuted is then true too.
	NotSent bool
	// ServerError: a 5xx of Stripe's own, which it may still complete by itself.
	ServerError bool

	// StripeDate is the Date header, zero if there was none.
	StripeDate time.Time
	// ReceivedAt is this process's clock, with its monotonic reading.
	ReceivedAt time.Time
	Latency    time.Duration

	AmountRefundedMinor int64
	Disputed            bool
}

// refusals are the error codes with which Stripe refuses a request before it
// does anything, because of what the request says (docs.stripe.com/error-codes).
// Only a code in this list makes a charge rejected; any other stays unknown.
var refusals = []string{
	"resource_missing",
	"amount_too_small", "amount_too_large", "invalid_charge_amount",
	"currency_not_supported", "invalid_currency", "payment_method_currency_mismatch",
	"customer_deleted", "payment_method_detached", "payment_method_customer_mismatch",
	"payment_method_unactivated", "payment_method_invalid_parameter", "payment_method_type_not_supported",
	"payment_method_not_available", "invalid_characters", "string_too_long",
	"parameter_missing", "parameter_unknown", "parameters_exclusive",
	"parameter_invalid_empty", "parameter_invalid_integer",
	"parameter_invalid_string_blank", "parameter_invalid_string_empty",
}

// refusedParams are the parameters that Stripe names, without any code, when it
// refuses their value: "Invalid currency: …", or a payment method that is not
// attached to the customer.
var refusedParams = []string{"amount", "currency", "customer", "payment_method"}

// Outcome turns a reply to a charge's POST into an answer; it is the table of
// what Stripe's answers mean. asked is what the PaymentIntent must carry.
func Outcome(asked Asked, r Reply) Answer {
	a := answerOf(r)
	switch {
	case r.NotSent:
		return a.notSent(r.Err)
	case r.Err != nil || r.Status == 0:
		return a.noAnswer(r.Err)
	case r.Status == http.StatusOK:
		return a.succeeded(asked, r.Body)
	case r.Status >= 300 && r.Status < 400:
		return a.unknown(ReasonRedirected)
	case r.Status < 400:
		return a.unknown(ReasonUnexpected)
	default:
		return a.failed(asked, r)
	}
}

// answerOf fills in what is known before the body is read.
func answerOf(r Reply) Answer {
	a := Answer{HTTPStatus: r.Status, ReceivedAt: r.ReceivedAt, Latency: r.Latency}
	a.RequestID = clean(r.Header.Get("Request-Id"), 100)
	original := clean(r.Header.Get("Original-Request"), 100)
	a.Replayed = strings.EqualFold(r.Header.Get("Idempotent-Replayed"), "true") ||
		(original != "" && a.RequestID != "" && original != a.RequestID)
	if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		a.StripeDate = date
	}
	a.ServerError = r.Status >= 500 && strings.HasPrefix(a.RequestID, "req_")
	return a
}

func (a Answer) unknown(reason string) Answer {
	a.Verdict, a.State, a.Reason = VerdictUnknown, "", reason
	return a
}

func (a Answer) reject(reason string) Answer {
	a.Verdict, a.State, a.Reason, a.NotExecuted = VerdictRefused, "", reason, true
	return a
}

func (a Answer) stop(reason string) Answer {
	a.Verdict, a.State, a.Reason = VerdictStop, "", reason
	return a
}

// notSent says why nothing left the process.
func (a Answer) notSent(err error) Answer {
	a.Verdict, a.NotSent, a.NotExecuted = VerdictNotSent, true, true
	switch {
	case errors.Is(err, errPermitExpired):
		a.Reason = ReasonPermitExpired
	case errors.Is(err, errNotPermitted), errors.Is(err, errPermitUsed), errors.Is(err, errNoPermit), errors.Is(err, errNotBuilt):
		a.Reason = ReasonNotPermitted
	case errors.Is(err, context.Canceled):
		a.Reason = ReasonInterrupted
	default:
		a.Reason = ReasonNoConnection
	}
	return a
}

// noAnswer says why it is not known what Stripe did.
func (a Answer) noAnswer(err error) Answer {
	var timeout net.Error
	switch {
	case a.HTTPStatus != 0:
		return a.unknown(ReasonUnreadable)
	case errors.Is(err, context.Canceled):
		return a.unknown(ReasonInterrupted)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return a.unknown(ReasonTimeout)
	default:
		return a.unknown(ReasonNoAnswer)
	}
}

// succeeded reads a 200.
func (a Answer) succeeded(asked Asked, body []byte) Answer {
	var object intentJSON
	if err := json.Unmarshal(body, &object); err != nil {
		return a.unknown(ReasonUnreadable)
	}
	pi, err := object.intent()
	if err != nil {
		return a.unknown(ReasonUnreadable)
	}
	return a.believe(asked, pi)
}

// believe takes a PaymentIntent as evidence if it is as asked.
func (a Answer) believe(asked Asked, pi PaymentIntent) Answer {
	a.PaymentIntent, a.StripeStatus = pi.ID, pi.Status
	if different := pi.Differs(asked); different == "livemode" {
		return a.stop(ReasonWrongMode)
	} else if different != "" {
		return a.unknown(ReasonNotAsAsked + ": " + different)
	}
	state, reason, known := StateOf(pi)
	if !known {
		return a.unknown(ReasonNotAttempted)
	}
	a.Verdict, a.State, a.Reason = VerdictKnown, state, reason
	a.AmountRefundedMinor, a.Disputed = pi.AmountRefundedMinor, pi.Disputed
	if state == ledger.ChargeDeclined || state == ledger.ChargeActionRequired {
		a.Code, a.DeclineCode, a.AdviceCode = pi.ErrorCode, pi.DeclineCode, pi.AdviceCode
	}
	return a
}

// failed reads a 4xx or 5xx. An answer that does not look like Stripe's came
// from something in between, and proves nothing about the request.
func (a Answer) failed(asked Asked, r Reply) Answer {
	e, isStripes := stripeError(r.Body)
	if e == nil {
		e = &errorJSON{}
	}
	a.Code, a.DeclineCode, a.AdviceCode, a.Message = e.Code, e.DeclineCode, e.AdviceCode, redact(e.Message)
	a.ServerError = a.ServerError || (r.Status >= 500 && isStripes)
	before := isStripes && !a.Replayed
	switch {
	case r.Status == http.StatusPaymentRequired && e.Type == "card_error":
		return a.declined(asked, e)
	case r.Status == http.StatusUnauthorized:
		a.NotExecuted = before
		return a.stop(ReasonUnauthorized)
	case r.Status == http.StatusForbidden && before && e.Code == "account_invalid":
		// The connected account of this one charge, not the key.
		return a.reject(e.Code)
	case r.Status == http.StatusForbidden:
		a.NotExecuted = before
		return a.stop(ReasonForbidden)
	case r.Status == http.StatusTooManyRequests:
		a.NotExecuted = before
		return a.unknown(orElse(e.Code, ReasonRateLimited))
	case r.Status == http.StatusConflict:
		return a.unknown(orElse(e.Code, ReasonConflict))
	case e.Type == "idempotency_error":
		return a.unknown(ReasonIdempotency)
	case r.Status >= 500:
		return a.unknown(ReasonServerError)
	case r.Status == http.StatusBadRequest || r.Status == http.StatusNotFound:
		return a.refused(e, before)
	default:
		return a.unknown(orElse(e.Code, ReasonUnexpected))
	}
}

// declined reads a 402 card error. Its PaymentIntent decides, by the same
// function as everywhere; the error fills in what the PaymentIntent leaves out.
func (a Answer) declined(asked Asked, e *errorJSON) Answer {
	if e.PaymentIntent == nil {
		// Nothing to compare: believed only if it can be no older answer.
		if a.Replayed {
			return a.unknown(ReasonNotReread)
		}
		a.State, a.Reason, _ = stateOfAttempt(PaymentIntent{ErrorCode: orElse(e.Code, e.Type), DeclineCode: e.DeclineCode})
		if a.State != ledger.ChargeDeclined {
			// The customer can act only on a PaymentIntent, and there is none.
			a.State = ""
			return a.unknown(ReasonContradiction)
		}
		a.Verdict = VerdictKnown
		return a
	}
	pi, err := e.PaymentIntent.intent()
	if err != nil {
		return a.unknown(ReasonUnreadable)
	}
	if pi.ErrorCode == "" {
		pi.failed(e)
	}
	advice := a.AdviceCode
	a = a.believe(asked, pi)
	a.AdviceCode = orElse(a.AdviceCode, advice)
	if a.Verdict == VerdictKnown && a.State != ledger.ChargeDeclined && a.State != ledger.ChargeActionRequired {
		return a.unknown(ReasonContradiction)
	}
	return a
}

// refused reads a 400 or 404: rejected only for a listed cause, with no
// PaymentIntent in it, and never for a replay, which shows that something was
// executed under this key.
func (a Answer) refused(e *errorJSON, before bool) Answer {
	switch {
	case e.PaymentIntent != nil:
		a.PaymentIntent = e.PaymentIntent.ID
		return a.unknown(orElse(e.Code, ReasonUnexpected))
	case strings.Contains(e.Message, "a similar object exists in"):
		// "…in live mode, but a test mode key was used": nothing else tells.
		a.NotExecuted = before
		return a.stop(ReasonWrongMode)
	case before && slices.Contains(refusals, e.Code):
		return a.reject(e.Code)
	case before && e.Type == "invalid_request_error" && e.Code == "" && slices.Contains(refusedParams, e.Param):
		return a.reject("invalid_" + e.Param)
	case before && e.Code == "" && strings.Contains(e.Message, "may not be used again"):
		// A payment method that was detached: neither code nor param.
		return a.reject("payment_method_detached")
	default:
		return a.unknown(orElse(e.Code, ReasonUnexpected))
	}
}

// stripeError reads an error body. isStripes is true if it has the shape that
// only Stripe's answers have.
func stripeError(body []byte) (e *errorJSON, isStripes bool) {
	var envelope struct {
		Error *errorJSON `json:"error"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Error == nil || envelope.Error.Type == "" {
		return nil, false
	}
	envelope.Error.clean()
	return envelope.Error, true
}

func orElse(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
