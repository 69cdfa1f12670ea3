package gateway

import (
	"context"
	"strings"
	"time"
)

// Identity says which Stripe account a key belongs to. A ledger belongs to one
// identity: with another, nothing may be sent and no absence believed.
type Identity struct {
	AccountID string
	// Country is the account's, in ISO's two letters. Search is missing in IN.
	Country string
	// Livemode is the key's: Stripe's account has none.
	Livemode bool
	// Date is Stripe's clock when it answered.
	Date time.Time
}

// Account reads the identity of the key. The error is an *Error.
func (f *Finder) Account(ctx context.Context) (Identity, error) {
	const doing = "read the Stripe account of the key"
	type accountJSON struct {
		ID      string `json:"id"`
		Country string `json:"country"`
	}
	account, meta, err := read[accountJSON](ctx, f.client, f.client.reads, get{doing: doing, path: "/v1/account"})
	if err != nil {
		return Identity{}, err
	}
	if !strings.HasPrefix(account.ID, "acct_") {
		return Identity{}, &Error{Doing: doing, Kind: KindBadAnswer, RequestID: meta.RequestID, Message: "the answer is not a Stripe account"}
	}
	return Identity{AccountID: account.ID, Country: account.Country, Livemode: f.client.livemode, Date: meta.Date}, nil
}
