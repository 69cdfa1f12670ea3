package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v82"
)

// APIVersion is the version of Stripe's API that every request names.
const APIVersion = stripe.APIVersion

// Identity says which Stripe account a key belongs to. A ledger belongs to one
// identity: with another, nothing may be sent and no absence believed.
type Identity struct {
	AccountID string
	// Name is how the account calls itself, which may be empty.
	Name string
	// Country is the account's, in ISO's two letters. Search is missing in IN.
	Country string
	// ChargesDisabled says that Stripe lets the account charge nobody, as long as
	// its owner has not told enough about the business.
	ChargesDisabled bool
	// Livemode is the key's: Stripe's account has none.
	Livemode bool
	// Date is Stripe's clock when it answered.
	Date time.Time
}

const doingAccount = "read the Stripe account of the key"

type accountJSON struct {
	ID             string `json:"id"`
	Country        string `json:"country"`
	ChargesEnabled *bool  `json:"charges_enabled"` // a restricted key may not see it
	Profile        struct {
		Name string `json:"name"`
	} `json:"business_profile"`
}

// Account reads the identity of the key. The error is an *Error.
func (f *Finder) Account(ctx context.Context) (Identity, error) {
	account, meta, err := read[accountJSON](ctx, f.client, f.client.reads, get{doing: doingAccount, path: "/v1/account"})
	return f.identity(account, meta, err)
}

// AccountOnce is Account in a single attempt, so that its error says at once what
// is in the way.
func (f *Finder) AccountOnce(ctx context.Context) (Identity, error) {
	account, meta, err := readOnce[accountJSON](ctx, f.client, get{doing: doingAccount, path: "/v1/account"})
	return f.identity(account, meta, err)
}

func (f *Finder) identity(account accountJSON, meta Meta, err error) (Identity, error) {
	if err != nil {
		return Identity{}, err
	}
	if !strings.HasPrefix(account.ID, "acct_") {
		return Identity{}, &Error{Doing: doingAccount, Kind: KindBadAnswer, RequestID: meta.RequestID, Message: "the answer is not a Stripe account"}
	}
	return Identity{
		AccountID: account.ID, Name: clean(account.Profile.Name, 100), Country: account.Country,
		ChargesDisabled: account.ChargesEnabled != nil && !*account.ChargesEnabled,
		Livemode:        f.client.livemode, Date: meta.Date,
	}, nil
}

// errEnough ends a list early.
var errEnough = errors.New("enough")

// MayList makes sure that the key may list PaymentIntents: it reads one page, of
// what was created since a moment. The error is an *Error.
func (f *Finder) MayList(ctx context.Context, since time.Time) error {
	err := f.List(ctx, ListQuery{CreatedFrom: since, EachPage: func([]PaymentIntent, Meta) error { return errEnough }})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// nobody is an id that Stripe gave to no object.
const nobody = "billing_doctor"

// MayRead makes sure that the key may read a PaymentIntent, by asking for one that
// does not exist: a key that may not is refused first. The error is an *Error.
func (f *Finder) MayRead(ctx context.Context) error {
	_, _, err := f.GetWithCharge(ctx, "", "pi_"+nobody)
	return exceptNotFound(err)
}

// MayReadCustomers is MayRead for customers.
func (f *Finder) MayReadCustomers(ctx context.Context) error {
	_, err := f.CustomerExists(ctx, "", "cus_"+nobody)
	return err
}

// MaySearch makes sure that the key may search PaymentIntents. The error is an
// *Error, of KindRefused where Stripe has no search (India).
func (f *Finder) MaySearch(ctx context.Context) error {
	_, err := f.Search(ctx, "", []string{nobody})
	return err
}

func exceptNotFound(err error) error {
	if failure := (*Error)(nil); errors.As(err, &failure) && failure.Kind == KindNotFound {
		return nil
	}
	return err
}

// KeyKind says what a key is, and shows no more of it than Stripe does: its
// beginning and the last four characters. It is for display, of any text.
func KeyKind(key string) (kind, shown string) {
	prefix := ""
	if parts := strings.SplitAfterN(key, "_", 3); len(parts) == 3 && len(parts[0])+len(parts[1]) <= 12 {
		prefix = parts[0] + parts[1]
	}
	switch {
	case strings.HasPrefix(prefix, "sk_"):
		kind = "secret key"
	case strings.HasPrefix(prefix, "rk_"):
		kind = "restricted key"
	case strings.HasPrefix(prefix, "pk_"):
		kind = "publishable key"
	default:
		return "not a Stripe key", "…"
	}
	last := ""
	if len(key) >= len(prefix)+8 {
		last = key[len(key)-4:]
	}
	return kind, prefix + "…" + last
}
