package ledger

import "slices"

// ChargeState says where a charge stands. The first state is written when the
// charge is recorded; every later change is one row of Transitions and one
// charge event.
type ChargeState string

const (
	// ChargePending is recorded, outcome not known: never sent, or sent with
	// an unknown answer.
	ChargePending ChargeState = "pending"
	// ChargeSkipped was never to be sent; the reason says why.
	ChargeSkipped ChargeState = "skipped"
	// ChargeSucceeded is paid.
	ChargeSucceeded ChargeState = "succeeded"
	// ChargeProcessing is under way at Stripe (bank debits take days). It is
	// never sent again.
	ChargeProcessing ChargeState = "processing"
	// ChargeActionRequired waits for the customer (3-D Secure).
	ChargeActionRequired ChargeState = "action_required"
	// ChargeDeclined was refused by the customer's bank; nobody was charged.
	ChargeDeclined ChargeState = "declined"
	// ChargeRejected was refused by Stripe before it did anything; the data of
	// this charge must be mended.
	ChargeRejected ChargeState = "rejected"
	// ChargeReview has a payment at Stripe that carries our key but not our
	// amount, currency or customer.
	ChargeReview ChargeState = "review"
	// ChargeHeld is absent at Stripe, and a person must say whether to charge.
	ChargeHeld ChargeState = "held"
	// ChargeVoid was withdrawn by a person; its invoice is free again.
	ChargeVoid ChargeState = "void"
)

// ChargeStates lists every state, in the order in which reports print them.
var ChargeStates = []ChargeState{
	ChargeSucceeded, ChargeProcessing, ChargePending, ChargeActionRequired,
	ChargeDeclined, ChargeRejected, ChargeReview, ChargeHeld, ChargeSkipped, ChargeVoid,
}

// Transition is one allowed change of state of a recorded charge.
type Transition struct {
	From, To ChargeState
	// On is the evidence or decision that the move needs, in the words of
	// docs/states.md.
	On string
}

// Transitions is every move that exists; pending to pending is a renewal. The
// CHECK on charge_events and the chart in docs/states.md are compared with it
// by a test.
var Transitions = []Transition{
	{ChargePending, ChargeSucceeded, "an answer or a found PaymentIntent that is paid"},
	{ChargePending, ChargeProcessing, "an answer or a found PaymentIntent under way"},
	{ChargePending, ChargeActionRequired, "an answer or a found PaymentIntent that waits for the customer"},
	{ChargePending, ChargeDeclined, "a 402 card error, or a found PaymentIntent that proves it"},
	{ChargePending, ChargeRejected, "a refusal that Stripe makes before doing anything"},
	{ChargePending, ChargeReview, "a PaymentIntent with our key that is not as asked"},
	{ChargePending, ChargePending, "proven absent: renewed, a new window under the same key"},
	{ChargePending, ChargeHeld, "proven absent, and a person must decide"},
	{ChargePending, ChargeVoid, "a person, and never sent"},
	{ChargeProcessing, ChargeSucceeded, "the PaymentIntent's status"},
	{ChargeProcessing, ChargeActionRequired, "the PaymentIntent's status"},
	{ChargeProcessing, ChargeDeclined, "the PaymentIntent's status"},
	{ChargeActionRequired, ChargeSucceeded, "the PaymentIntent's status"},
	{ChargeActionRequired, ChargeProcessing, "the PaymentIntent's status"},
	{ChargeActionRequired, ChargeDeclined, "the PaymentIntent's status"},
	{ChargeDeclined, ChargeSucceeded, "paid wins"},
	{ChargeDeclined, ChargeProcessing, "a found PaymentIntent under way: the customer paid another way"},
	{ChargeDeclined, ChargePending, "retry-declined: a new try"},
	{ChargeDeclined, ChargeVoid, "a person"},
	{ChargeRejected, ChargeSucceeded, "paid wins"},
	{ChargeRejected, ChargeProcessing, "a found PaymentIntent under way: a restored ledger"},
	{ChargeRejected, ChargePending, "requeue, the cause is mended"},
	{ChargeRejected, ChargeVoid, "a person"},
	{ChargeSkipped, ChargeSucceeded, "paid wins"},
	{ChargeSkipped, ChargeProcessing, "a found PaymentIntent under way: a restored ledger"},
	{ChargeSkipped, ChargePending, "the cause is mended"},
	{ChargeSkipped, ChargeSkipped, "decided again, for another reason"},
	{ChargeSkipped, ChargeVoid, "a person"},
	{ChargeHeld, ChargeSucceeded, "paid wins"},
	{ChargeHeld, ChargeProcessing, "a found PaymentIntent under way"},
	{ChargeHeld, ChargeActionRequired, "a found PaymentIntent that waits for the customer"},
	{ChargeHeld, ChargeDeclined, "a found PaymentIntent that proves it"},
	{ChargeHeld, ChargeReview, "a PaymentIntent with our key that is not as asked"},
	{ChargeHeld, ChargePending, "release: a person, renewed"},
	{ChargeHeld, ChargeVoid, "a person"},
	{ChargeReview, ChargeSucceeded, "resolve by a person, or paid wins"},
	{ChargeReview, ChargeHeld, "resolve by a person"},
	{ChargeReview, ChargeVoid, "resolve by a person"},
	{ChargeVoid, ChargeSucceeded, "paid wins"},
	{ChargeVoid, ChargeProcessing, "a found PaymentIntent under way: a restored ledger"},
	{ChargeVoid, ChargePending, "requeue, the invoice is mended: a new try"},
}

// MayMove reports whether a charge may move between two states at all.
func MayMove(from, to ChargeState) bool {
	return slices.ContainsFunc(Transitions, func(t Transition) bool { return t.From == from && t.To == to })
}
