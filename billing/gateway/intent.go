package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chargeonce/billing/ledger"
)

// Statuses of a PaymentIntent, as Stripe names them.
const (
	StatusSucceeded             = "succeeded"
	StatusProcessing            = "processing"
	StatusRequiresAction        = "requires_action"
	StatusRequiresCapture       = "requires_capture"
	StatusRequiresPaymentMethod = "requires_payment_method"
	StatusRequiresConfirmation  = "requires_confirmation"
	StatusCanceled              = "canceled"
)

// PaymentIntent is what the program believes of one of Stripe's. Amounts are in
// Stripe's unit.
type PaymentIntent struct {
	ID             string
	Status         string
	Amount         int64
	AmountReceived int64
	Currency       string
	Customer       string
	Created        time.Time
	Livemode       bool

	// BillingKey, Job, Period, Account and Try are read from Metadata; Try is 0
	// if it is missing or no number.
	BillingKey string
	Job        string
	Period     string
	Account    string
	Try        int
	Metadata   map[string]string

	// LatestCharge is set once a payment was attempted.
	LatestCharge string
	// ErrorCode, DeclineCode and AdviceCode tell why the last attempt failed.
	// ErrorCode is never empty if there was a failed attempt that Stripe still
	// shows.
	ErrorCode          string
	DeclineCode        string
	AdviceCode         string
	CancellationReason string

	// AmountRefundedMinor and Disputed are known only where the charge was asked
	// for too (ListQuery.Charges, Finder.GetWithCharge).
	AmountRefundedMinor int64
	Disputed            bool
}

// Reasons that StateOf gives besides Stripe's own codes.
const (
	ReasonCanceled        = "canceled"
	ReasonAwaitingCapture = "awaiting_capture"
	ReasonRequiresAction  = "requires_action"
)

// authenticationCodes say that the payment needs the customer in person: error
// codes and decline codes alike (docs.stripe.com/declines/codes).
var authenticationCodes = []string{
	"authentication_required", "authentication_not_handled",
	"payment_intent_action_required", "payment_intent_authentication_failure",
}

// StateOf says what a PaymentIntent means for its charge. It is the only place
// that does, so that the same payment leaves the same row whether it came by an
// answer, a decline, a GET, a list or a search. known is false if the
// PaymentIntent proves nothing yet: it was created but nobody has tried to take
// the money (Stripe shows that for an instant), or its status is a new one.
func StateOf(pi PaymentIntent) (state ledger.ChargeState, reason string, known bool) {
	switch pi.Status {
	case StatusSucceeded:
		return ledger.ChargeSucceeded, "", true
	case StatusProcessing:
		return ledger.ChargeProcessing, "", true
	case StatusRequiresCapture:
		return ledger.ChargeProcessing, ReasonAwaitingCapture, true
	case StatusRequiresAction:
		return ledger.ChargeActionRequired, ReasonRequiresAction, true
	case StatusCanceled:
		return ledger.ChargeDeclined, ReasonCanceled, true
	case StatusRequiresPaymentMethod, StatusRequiresConfirmation:
		return stateOfAttempt(pi)
	default:
		return "", "", false
	}
}

// stateOfAttempt decides by the last attempt, if there was one.
func stateOfAttempt(pi PaymentIntent) (state ledger.ChargeState, reason string, known bool) {
	switch {
	case slices.Contains(authenticationCodes, pi.DeclineCode):
		return ledger.ChargeActionRequired, pi.DeclineCode, true
	case slices.Contains(authenticationCodes, pi.ErrorCode):
		return ledger.ChargeActionRequired, pi.ErrorCode, true
	case pi.DeclineCode != "":
		return ledger.ChargeDeclined, pi.DeclineCode, true
	case pi.ErrorCode != "":
		return ledger.ChargeDeclined, pi.ErrorCode, true
	case pi.LatestCharge != "":
		return ledger.ChargeDeclined, "payment_failed", true
	default:
		return "", "", false
	}
}

// Asked is what a PaymentIntent must carry to be the payment of a charge.
type Asked struct {
	BillingKey string
	Amount     int64
	Currency   string
	Customer   string
	Livemode   bool
}

// Differs names the first thing in which a PaymentIntent is not as asked, ""
// if it is. All comparisons are byte for byte.
func (pi PaymentIntent) Differs(asked Asked) string {
	switch {
	case !strings.HasPrefix(pi.ID, "pi_"):
		return "id"
	case pi.Livemode != asked.Livemode:
		return "livemode"
	case pi.BillingKey != asked.BillingKey:
		return "billing_key"
	case pi.Amount != asked.Amount:
		return "amount"
	case pi.Currency != asked.Currency:
		return "currency"
	case pi.Customer != asked.Customer:
		return "customer"
	default:
		return ""
	}
}

// intentJSON is the part of Stripe's object that is read. stripe-go's own
// struct lacks advice_code, and reads `{}` as a PaymentIntent.
type intentJSON struct {
	ID                 string            `json:"id"`
	Object             string            `json:"object"`
	Status             string            `json:"status"`
	Amount             *int64            `json:"amount"`
	AmountReceived     int64             `json:"amount_received"`
	Currency           string            `json:"currency"`
	Customer           reference         `json:"customer"`
	Created            int64             `json:"created"`
	Livemode           *bool             `json:"livemode"`
	Metadata           map[string]string `json:"metadata"`
	LatestCharge       chargeJSON        `json:"latest_charge"`
	LastPaymentError   *errorJSON        `json:"last_payment_error"`
	CancellationReason string            `json:"cancellation_reason"`
}

// intent checks that the object is a PaymentIntent, and returns it as ours.
func (j *intentJSON) intent() (PaymentIntent, error) {
	switch {
	case !strings.HasPrefix(j.ID, "pi_") || (j.Object != "payment_intent" && j.Object != ""):
		return PaymentIntent{}, fmt.Errorf("object %.40q is not a PaymentIntent", j.ID)
	case j.Status == "" || j.Amount == nil || j.Currency == "" || j.Livemode == nil:
		return PaymentIntent{}, fmt.Errorf("PaymentIntent %.80s is incomplete", j.ID)
	}
	pi := PaymentIntent{
		ID: clean(j.ID, 200), Status: clean(j.Status, 100), Amount: *j.Amount, AmountReceived: j.AmountReceived, Currency: j.Currency,
		Customer: j.Customer.ID, Created: time.Unix(j.Created, 0).UTC(), Livemode: *j.Livemode,
		BillingKey: j.Metadata[metaKey], Job: j.Metadata[metaJob], Period: j.Metadata[metaPeriod],
		Account: j.Metadata[metaAccount], Metadata: j.Metadata,
		LatestCharge: j.LatestCharge.ID, CancellationReason: j.CancellationReason,
		AmountRefundedMinor: j.LatestCharge.AmountRefunded, Disputed: j.LatestCharge.Disputed,
		AdviceCode: j.LatestCharge.Outcome.AdviceCode,
	}
	if try, err := strconv.Atoi(j.Metadata[metaTry]); err == nil {
		pi.Try = try
	}
	if e := j.LastPaymentError; e != nil {
		pi.failed(e)
	}
	return pi, nil
}

// failed writes down why the last attempt failed.
func (pi *PaymentIntent) failed(e *errorJSON) {
	e.clean()
	pi.ErrorCode, pi.DeclineCode = e.Code, e.DeclineCode
	if pi.ErrorCode == "" {
		pi.ErrorCode = e.Type
	}
	if e.AdviceCode != "" {
		pi.AdviceCode = e.AdviceCode
	}
}

// reference is an id, or the object itself where it was expanded, or null.
type reference struct {
	ID string `json:"id"`
}

// UnmarshalJSON takes both forms.
func (r *reference) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &r.ID)
	}
	type object reference
	return json.Unmarshal(data, (*object)(r))
}

// chargeJSON is a charge's id, or the charge where it was expanded.
type chargeJSON struct {
	ID             string `json:"id"`
	AmountRefunded int64  `json:"amount_refunded"`
	Disputed       bool   `json:"disputed"`
	Outcome        struct {
		AdviceCode string `json:"advice_code"`
	} `json:"outcome"`
}

// UnmarshalJSON takes both forms.
func (c *chargeJSON) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &c.ID)
	}
	type object chargeJSON
	return json.Unmarshal(data, (*object)(c))
}

// errorJSON is Stripe's error object, also within a PaymentIntent.
type errorJSON struct {
	Type          string      `json:"type"`
	Code          string      `json:"code"`
	DeclineCode   string      `json:"decline_code"`
	AdviceCode    string      `json:"advice_code"`
	Param         string      `json:"param"`
	Message       string      `json:"message"`
	PaymentIntent *intentJSON `json:"payment_intent"`
}

// longestCode is longer than any code of Stripe's.
const longestCode = 100

func (e *errorJSON) clean() {
	e.Type, e.Code, e.Param = clean(e.Type, longestCode), clean(e.Code, longestCode), clean(e.Param, longestCode)
	e.DeclineCode, e.AdviceCode = clean(e.DeclineCode, longestCode), clean(e.AdviceCode, longestCode)
}
