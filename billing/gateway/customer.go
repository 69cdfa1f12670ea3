package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

const customersPath = "/v1/customers"

// CustomerExists reports whether Stripe still has a customer, in the key's mode.
// A list of the payments of one that was deleted may be empty, so that its
// silence proves nothing. The key must be allowed to read customers; the error is
// an *Error.
func (f *Finder) CustomerExists(ctx context.Context, stripeAccount, id string) (bool, error) {
	doing := fmt.Sprintf("read customer %.80s", id)
	if id == "" {
		return false, &Error{Doing: doing, Kind: KindRefused, Message: "no customer id"}
	}
	type customerJSON struct {
		ID       string `json:"id"`
		Deleted  bool   `json:"deleted"`
		Livemode *bool  `json:"livemode"`
	}
	customer, meta, err := read[customerJSON](ctx, f.client, f.client.reads, get{doing, stripeAccount, customersPath + "/" + url.PathEscape(id), ""})
	if failure := (*Error)(nil); errors.As(err, &failure) && failure.Kind == KindNotFound {
		return false, nil
	}
	switch {
	case err != nil:
		return false, err
	case customer.ID != id:
		return false, &Error{Doing: doing, Kind: KindForeign, RequestID: meta.RequestID, Err: fmt.Errorf("%w: %.80s", ErrForeign, customer.ID)}
	case customer.Deleted:
		return false, nil
	case customer.Livemode != nil && *customer.Livemode != f.client.livemode:
		return false, &Error{Doing: doing, Kind: KindWrongMode, RequestID: meta.RequestID, Message: "the customer is of the other mode than the key"}
	}
	return true, nil
}
