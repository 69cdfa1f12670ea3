package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"
)

const (
	// readTries bounds how often one thing is read.
	readTries = 6
	// longestPause between two of these reads.
	longestPause = 10 * time.Second
)

// get is one thing to read.
type get struct {
	doing, stripeAccount, path, query string
}

// read gets one object and decodes it. A GET harms nothing, so it is repeated
// after failures that pass by themselves: no answer, 429, 5xx, an answer cut
// short. Every attempt decodes into a fresh T: nothing of a broken answer stays.
// The last error is returned as it was.
func read[T any](ctx context.Context, c *Client, limiter *rate.Limiter, g get) (T, Meta, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = c.firstPause, longestPause
	var meta Meta
	object, err := backoff.Retry(ctx, func() (object T, err error) {
		if err := limiter.Wait(ctx); err != nil {
			return object, backoff.Permanent(&Error{Doing: g.doing, Kind: KindUnreachable, Err: err})
		}
		object, meta, err = readOnce[T](ctx, c, g)
		var failure *Error
		if errors.As(err, &failure) && (!failure.passes() || ctx.Err() != nil) {
			return object, backoff.Permanent(err)
		}
		return object, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(readTries), backoff.WithMaxElapsedTime(0))
	return object, meta, asError(g.doing, err)
}

// readOnce makes one attempt, bounded by the request life.
func readOnce[T any](ctx context.Context, c *Client, g get) (object T, meta Meta, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.life)
	defer cancel()
	reply := c.call(ctx, c.reader, request{method: http.MethodGet, path: g.path, body: g.query, stripeAccount: g.stripeAccount})
	meta = metaOf(reply)
	if reply.Err != nil || reply.Status != http.StatusOK {
		return object, meta, readError(g.doing, reply)
	}
	if err := json.Unmarshal(reply.Body, &object); err != nil {
		return object, meta, &Error{
			Doing: g.doing, Kind: KindBadAnswer, Status: reply.Status, RequestID: meta.RequestID,
			Message: "the answer is not the JSON of a Stripe object",
		}
	}
	return object, meta, nil
}

// asError keeps the promise that every error of a Finder is an *Error, also
// where the wait between two reads was cancelled.
func asError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if failure := (*Error)(nil); errors.As(err, &failure) {
		return failure
	}
	return &Error{Doing: doing, Kind: KindUnreachable, Err: err}
}

// passes reports whether the same read may succeed a little later.
func (e *Error) passes() bool {
	return e.Kind == KindUnreachable || e.Kind == KindRate || e.Kind == KindBadAnswer
}

// readError says what a reply to a GET means if it is not a 200.
func readError(doing string, r Reply) *Error {
	e, _ := stripeError(r.Body)
	if e == nil {
		e = &errorJSON{}
	}
	failure := &Error{
		Doing: doing, Status: r.Status, Code: e.Code, Param: e.Param, Message: redact(e.Message),
		RequestID: clean(r.Header.Get("Request-Id"), 100), Err: r.Err,
	}
	switch {
	case r.Err != nil || r.Status >= 500:
		failure.Kind = KindUnreachable
	case r.Status == http.StatusTooManyRequests:
		failure.Kind = KindRate
	case r.Status == http.StatusUnauthorized:
		failure.Kind = KindAuth
	case r.Status == http.StatusForbidden:
		failure.Kind = KindPermission
	case strings.Contains(e.Message, "a similar object exists in"):
		failure.Kind = KindWrongMode
	case r.Status == http.StatusNotFound && e.Type != "":
		failure.Kind = KindNotFound
	case r.Status >= 400 && e.Type != "":
		failure.Kind = KindRefused
	default:
		failure.Kind = KindBadAnswer
	}
	return failure
}
