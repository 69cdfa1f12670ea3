package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Payout is money that Stripe sends to a bank account, in minor units.
type Payout struct {
	ID string
	// Status is Stripe's: pending, in_transit, paid, failed or canceled.
	Status   string
	Currency string
	Amount   int64
	Created  time.Time
	// Automatic ones are made of balance transactions that Stripe can name; of those
	// that a person ordered nobody knows what is in them.
	Automatic bool
}

// Payouts reads payouts, newest first, as Payments does.
func (f *Finder) Payouts(ctx context.Context, s Span, each func([]Payout, Meta) error) error {
	return eachPage(ctx, f, s, listing[payoutJSON, Payout]{
		what: "payouts", path: "/v1/payouts",
		read: func(_ string, j *payoutJSON, _ Meta) (Payout, error) {
			if j.Object != "payout" || j.ID == "" || j.Amount == nil || j.Currency == "" {
				return Payout{}, fmt.Errorf("object %.40q is not a payout", j.ID)
			}
			return Payout{
				ID: clean(j.ID, 200), Status: clean(j.Status, longestCode), Currency: clean(j.Currency, longestCode), Amount: *j.Amount,
				Created: time.Unix(j.Created, 0).UTC(), Automatic: j.Automatic,
			}, nil
		},
		key: func(p *Payout) (string, time.Time) { return p.ID, p.Created },
	}, each)
}

// PaidOut names the PaymentIntents whose money is in an automatic payout. What the
// list shows must come to the payout's amount, or nothing is believed of it: a balance
// transaction does not say which payout it is in.
func (f *Finder) PaidOut(ctx context.Context, stripeAccount string, p Payout, alive func(Meta) error) (intents []string, err error) {
	var sum int64
	var last Meta
	err = eachPage(ctx, f, Span{StripeAccount: stripeAccount}, listing[bookedJSON, booked]{
		what: "balance transactions of " + p.ID, path: "/v1/balance_transactions",
		expand: "&payout=" + url.QueryEscape(p.ID) + "&expand[]=data.source",
		read: func(_ string, j *bookedJSON, _ Meta) (booked, error) {
			m := j.movement()
			if m.ID == "" {
				return booked{}, fmt.Errorf("object %.40q is not a balance transaction", j.ID)
			}
			return booked{m, j.Type, j.Source.PaymentIntent.ID, time.Unix(j.Created, 0).UTC()}, nil
		},
		key: func(b *booked) (string, time.Time) { return b.ID, b.created },
	}, func(page []booked, meta Meta) error {
		for _, b := range page {
			if b.kind == "payout" {
				continue // the payout itself
			}
			sum += b.Net
			if b.paymentIntent != "" {
				intents = append(intents, b.paymentIntent)
			}
		}
		last = meta
		return alive(meta)
	})
	if err == nil && sum != p.Amount {
		return nil, &Error{
			Doing: "list what is in " + p.ID, Kind: KindBadAnswer, RequestID: last.RequestID,
			Err: fmt.Errorf("its balance transactions come to %d %s and it is of %d: %w", sum, p.Currency, p.Amount, errNotWhole),
		}
	}
	return intents, err
}

var errNotWhole = errors.New("not the whole list")

// booked is a balance transaction with the payment that it is of.
type booked struct {
	Movement
	kind          string
	paymentIntent string
	created       time.Time
}

type payoutJSON struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Status    string `json:"status"`
	Amount    *int64 `json:"amount"`
	Currency  string `json:"currency"`
	Created   int64  `json:"created"`
	Automatic bool   `json:"automatic"`
}

// bookedJSON is a balance transaction whose source was expanded.
type bookedJSON struct {
	balanceJSON
	Type    string
	Created int64
	Source  sourceJSON
}

// UnmarshalJSON reads both parts of the object.
func (b *bookedJSON) UnmarshalJSON(data []byte) error {
	if err := b.balanceJSON.UnmarshalJSON(data); err != nil {
		return err
	}
	var rest struct {
		Type    string     `json:"type"`
		Created int64      `json:"created"`
		Source  sourceJSON `json:"source"`
	}
	err := json.Unmarshal(data, &rest)
	b.Type, b.Created, b.Source = rest.Type, rest.Created, rest.Source
	return err
}

// sourceJSON is what moved money. Only a charge is asked for its payment: a refund
// names one too, which was paid out at another time.
type sourceJSON struct {
	Object        string    `json:"object"`
	PaymentIntent reference `json:"payment_intent"`
}

// UnmarshalJSON takes the object, its id, or null.
func (s *sourceJSON) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	type object sourceJSON
	if err := json.Unmarshal(data, (*object)(s)); err != nil {
		return err
	}
	if s.Object != "charge" {
		s.PaymentIntent = reference{}
	}
	return nil
}
