package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// cancelTries bounds how often a cancel is asked for that Stripe did not answer, or
// turned away for a cause that passes.
const cancelTries = 4

// Canceller cancels open PaymentIntents, so that nobody can pay them any more. It
// is the only thing besides a Charger that writes, and it never takes money.
type Canceller struct {
	client *Client
	finder *Finder
}

// Cancel asks Stripe to cancel a PaymentIntent and returns it as it is then, read
// again by its id: whatever the answer was, or if there was none, only that status
// counts. It may be succeeded: the customer was faster. What is still open could not
// be cancelled, and the caller must leave it so. No cancel leaves after the
// deadline. The error is an *Error.
func (x *Canceller) Cancel(ctx context.Context, stripeAccount string, pi PaymentIntent, deadline Deadline) (PaymentIntent, error) {
	if !plainID(pi.ID) {
		return pi, &Error{Doing: "cancel PaymentIntent", Kind: KindRefused, Message: "not a PaymentIntent id"}
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = x.client.firstPause, longestPause
	left := errors.New("it is open")
	now := pi
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		reply, err := x.post(ctx, stripeAccount, pi, deadline)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		read, _, err := x.finder.Get(ctx, stripeAccount, pi.ID)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		if now = read; isOpen(read) && mayCancelLater(reply) && !deadline.Expired(x.client.now()) {
			return struct{}{}, left
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(cancelTries), backoff.WithMaxElapsedTime(0))
	if err == nil || errors.Is(err, left) {
		return now, nil
	}
	return pi, asError("cancel PaymentIntent "+pi.ID, err)
}

// post sends one cancel. Its error is trouble of the key's, which nothing mends.
func (x *Canceller) post(ctx context.Context, stripeAccount string, pi PaymentIntent, deadline Deadline) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, x.client.life)
	defer cancel()
	if err := x.client.reads.Wait(ctx); err != nil {
		return Reply{}, &Error{Doing: "cancel PaymentIntent " + pi.ID, Kind: KindUnreachable, Err: err}
	}
	const body = "cancellation_reason=abandoned"
	reply := x.client.post(ctx, body, &ticket{
		path: intentsPath + "/" + pi.ID + "/cancel", key: cancelKey(pi), stripeAccount: stripeAccount, sha256: sha256.Sum256([]byte(body)),
		check: func() error {
			if x.client.expired(deadline) {
				return errPermitExpired
			}
			return nil
		},
	})
	if reply.Status == http.StatusUnauthorized || reply.Status == http.StatusForbidden {
		return reply, readError("cancel PaymentIntent "+pi.ID, reply)
	}
	return reply, nil
}

// cancelKey follows from the PaymentIntent and from what it was when the cancel was
// decided: a repeated cancel is the same request to Stripe, while a refusal that
// Stripe keeps for a day is not told again once the PaymentIntent has moved on.
func cancelKey(pi PaymentIntent) string {
	return "cancel/" + pi.ID + "/" + clean(pi.Status, 40) + "/" + clean(pi.LatestCharge, 60)
}

// isOpen reports that the customer can still pay it.
func isOpen(pi PaymentIntent) bool {
	return slices.Contains([]string{StatusRequiresPaymentMethod, StatusRequiresConfirmation, StatusRequiresAction}, pi.Status)
}

// mayCancelLater reports a reply after which the same cancel may be carried out.
func mayCancelLater(r Reply) bool {
	return r.Err != nil || r.Status == http.StatusConflict || r.Status == http.StatusTooManyRequests || r.Status >= 500
}

// CancelLife is how long a decision to cancel may be carried out: what was seen to
// be open is read again after it.
const CancelLife = 30 * time.Second
