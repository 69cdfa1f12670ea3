package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Movement is what a payment, refund or dispute did to Stripe's balance: one
// balance transaction, in minor units of the balance's currency, which need not be
// that of the payment. Its ID is empty until Stripe has booked it.
type Movement struct {
	ID          string
	Currency    string
	Amount      int64 // negative where money left
	Fee         int64
	Net         int64
	Created     time.Time // when it was booked
	AvailableOn time.Time
}

// Payment is a PaymentIntent with what its latest charge brought.
type Payment struct {
	PaymentIntent
	Balance Movement
}

// ReturnKind says why money went back.
type ReturnKind string

// The kinds of returns.
const (
	ReturnRefund  ReturnKind = "refund"
	ReturnDispute ReturnKind = "dispute"
)

// Return is money that went back: a refund, or a dispute.
type Return struct {
	Kind          ReturnKind
	ID            string
	PaymentIntent string // empty if it is of a charge without one
	// Status is Stripe's: of a refund pending, requires_action, succeeded, failed or
	// canceled.
	Status   string
	Amount   int64
	Currency string
	Created  time.Time
	// Balance is what was taken from the balance, and what came back to it: by a
	// refund that failed, or a dispute that was won.
	Balance []Movement
}

// Stands reports that the money is gone, or going.
func (r *Return) Stands() bool {
	return r.Kind != ReturnRefund || r.Status != "failed" && r.Status != "canceled"
}

// Span says which part of a list of everybody's objects to read.
type Span struct {
	// StripeAccount is a connected account, empty for one's own.
	StripeAccount string
	// CreatedFrom and CreatedTo are as in ListQuery.
	CreatedFrom, CreatedTo time.Time
	// After is the id of the last object that was read before; empty is from the
	// newest on.
	After string
}

// Payments reads PaymentIntents with their charges and what these brought, newest
// first, a page at a time: expanding the balance transaction costs no call, where
// its own list would cost as many again. The error of each ends the list and is
// returned wrapped; nil means that the list was read to its end.
func (f *Finder) Payments(ctx context.Context, s Span, each func([]Payment, Meta) error) error {
	return eachPage(ctx, f, s, listing[paymentJSON, Payment]{
		what: "PaymentIntents", path: intentsPath, expand: "&expand[]=data.latest_charge.balance_transaction",
		read: func(doing string, j *paymentJSON, meta Meta) (Payment, error) {
			j.intentJSON.LatestCharge = j.Charge.chargeJSON
			pi, err := f.check(doing, &j.intentJSON, meta)
			return Payment{pi, j.Charge.Balance.movement()}, err
		},
		key: func(p *Payment) (string, time.Time) { return p.ID, p.Created },
	}, each)
}

// Refunds reads refunds with what they moved on the balance, newest first, as
// Payments does.
func (f *Finder) Refunds(ctx context.Context, s Span, each func([]Return, Meta) error) error {
	return eachPage(ctx, f, s, returns(ReturnRefund, "&expand[]=data.balance_transaction&expand[]=data.failure_balance_transaction"), each)
}

// Disputes reads disputes, as Refunds does.
func (f *Finder) Disputes(ctx context.Context, s Span, each func([]Return, Meta) error) error {
	return eachPage(ctx, f, s, returns(ReturnDispute, ""), each)
}

func returns(kind ReturnKind, expand string) listing[returnJSON, Return] {
	return listing[returnJSON, Return]{
		what: string(kind) + "s", path: "/v1/" + string(kind) + "s", expand: expand,
		read: func(_ string, j *returnJSON, _ Meta) (Return, error) {
			if j.Object != string(kind) || j.ID == "" || j.Amount == nil || j.Currency == "" {
				return Return{}, fmt.Errorf("object %.40q is not a %s", j.ID, kind)
			}
			r := Return{
				Kind: kind, ID: clean(j.ID, 200), PaymentIntent: j.PaymentIntent.ID, Status: clean(j.Status, longestCode), Amount: *j.Amount,
				Currency: j.Currency, Created: time.Unix(j.Created, 0).UTC(),
			}
			for _, b := range append(j.Dispute, j.Refund, j.Failure) {
				if m := b.movement(); m.ID != "" {
					r.Balance = append(r.Balance, m)
				}
			}
			return r, nil
		},
		key: func(r *Return) (string, time.Time) { return r.ID, r.Created },
	}
}

// listing says how one kind of object is listed: J is Stripe's, T ours.
type listing[J, T any] struct {
	what, path, expand string
	read               func(doing string, j *J, meta Meta) (T, error)
	key                func(*T) (id string, created time.Time)
}

// eachPage reads a list to its end, as List does: nothing foreign in it, no page
// twice, or an error.
func eachPage[J, T any](ctx context.Context, f *Finder, s Span, l listing[J, T], each func([]T, Meta) error) error {
	seen := make(map[string]bool)
	for n, after := 1, s.After; ; n++ {
		doing := fmt.Sprintf("list %s, page %d", l.what, n)
		bad := func(meta Meta, kind Kind, err error) error {
			return &Error{Doing: doing, Kind: kind, RequestID: meta.RequestID, Err: err}
		}
		list, meta, err := read[pageJSON[J]](ctx, f.client, f.client.reads, get{doing, s.StripeAccount, l.path, s.encode(l.expand, after)})
		switch {
		case err != nil:
			return err
		case list.Data == nil || list.HasMore == nil:
			return bad(meta, KindBadAnswer, errors.New("not a list"))
		case *list.HasMore && len(*list.Data) == 0:
			return bad(meta, KindBadAnswer, errors.New("an empty page says that there is more"))
		case n > maxPages:
			return bad(meta, KindBadAnswer, errors.New("the list does not end"))
		}
		page := make([]T, 0, len(*list.Data))
		for i := range *list.Data {
			object, err := l.read(doing, &(*list.Data)[i], meta)
			if failure := (*Error)(nil); err != nil && !errors.As(err, &failure) {
				err = bad(meta, KindBadAnswer, err)
			}
			if err != nil {
				return err
			}
			id, created := l.key(&object)
			if seen[id] {
				return bad(meta, KindBadAnswer, fmt.Errorf("%s came twice", id))
			}
			if !s.covers(created) {
				return bad(meta, KindForeign, fmt.Errorf("%w: %s by its creation", ErrForeign, id))
			}
			seen[id] = true
			page, after = append(page, object), id
		}
		meta.Page, meta.Last = n, !*list.HasMore
		if err := each(page, meta); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if meta.Last {
			return nil
		}
		forget(seen, l.key, page)
	}
}

// forget keeps only the ends of a page: a list that does not lead on shows one of
// them again, and memory stays flat.
func forget[T any](seen map[string]bool, key func(*T) (string, time.Time), page []T) {
	for i := 1; i < len(page)-1; i++ {
		id, _ := key(&page[i])
		delete(seen, id)
	}
}

func (s Span) encode(expand, after string) string {
	query := ListQuery{CreatedFrom: s.CreatedFrom, CreatedTo: s.CreatedTo}.encode("") + expand
	if after != "" {
		query += "&starting_after=" + url.QueryEscape(after)
	}
	return query
}

func (s Span) covers(created time.Time) bool {
	return ListQuery{CreatedFrom: s.CreatedFrom, CreatedTo: s.CreatedTo}.foreign(PaymentIntent{Created: created}) == ""
}

// pageJSON is a page of a list.
type pageJSON[J any] struct {
	Data    *[]J  `json:"data"`
	HasMore *bool `json:"has_more"`
}

// paymentJSON is a PaymentIntent whose charge was expanded.
type paymentJSON struct {
	intentJSON
	Charge paidJSON `json:"latest_charge"`
}

// paidJSON is a charge with its balance transaction, or its id where it was not
// expanded, or null.
type paidJSON struct {
	chargeJSON
	Balance balanceJSON
}

// UnmarshalJSON reads both parts of the object.
func (p *paidJSON) UnmarshalJSON(data []byte) error {
	if err := p.chargeJSON.UnmarshalJSON(data); err != nil {
		return err
	}
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	var rest struct {
		Balance balanceJSON `json:"balance_transaction"`
	}
	err := json.Unmarshal(data, &rest)
	p.Balance = rest.Balance
	return err
}

// returnJSON is a refund, which has one balance transaction and another one if it
// failed, or a dispute, which has a list of them.
type returnJSON struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	Status        string        `json:"status"`
	Amount        *int64        `json:"amount"`
	Currency      string        `json:"currency"`
	Created       int64         `json:"created"`
	PaymentIntent reference     `json:"payment_intent"`
	Refund        balanceJSON   `json:"balance_transaction"`
	Failure       balanceJSON   `json:"failure_balance_transaction"`
	Dispute       []balanceJSON `json:"balance_transactions"`
}

// balanceJSON is a balance transaction, or its id, or null.
type balanceJSON struct {
	ID          string `json:"id"`
	Amount      *int64 `json:"amount"`
	Currency    string `json:"currency"`
	Fee         int64  `json:"fee"`
	Net         int64  `json:"net"`
	Created     int64  `json:"created"`
	AvailableOn int64  `json:"available_on"`
}

// UnmarshalJSON takes all three forms.
func (b *balanceJSON) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &b.ID)
	}
	type object balanceJSON
	return json.Unmarshal(data, (*object)(b))
}

// movement is empty where Stripe did not show what moved.
func (b *balanceJSON) movement() Movement {
	if b.Amount == nil || b.Currency == "" {
		return Movement{}
	}
	return Movement{
		ID: clean(b.ID, 200), Currency: strings.ToLower(clean(b.Currency, longestCode)), Amount: *b.Amount, Fee: b.Fee, Net: b.Net,
		Created: time.Unix(b.Created, 0).UTC(), AvailableOn: time.Unix(b.AvailableOn, 0).UTC(),
	}
}
