package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Identity is the Stripe account and mode that this ledger belongs to.
type Identity struct {
	AccountID string
	Livemode  bool
	PinnedAt  time.Time
	PinnedBy  string
}

// IdentityError says that a command was given a key of another Stripe account or
// mode than the ledger's. Given has no account where Stripe was not asked for it.
type IdentityError struct{ Pinned, Given Identity }

func (e *IdentityError) Error() string {
	if e.Given.AccountID == "" {
		return fmt.Sprintf("this ledger belongs to Stripe account %s (%s mode), the key is of %s mode",
			e.Pinned.AccountID, mode(e.Pinned.Livemode), mode(e.Given.Livemode))
	}
	return fmt.Sprintf("this ledger belongs to Stripe account %s (%s mode), the key is of %s (%s mode)",
		e.Pinned.AccountID, mode(e.Pinned.Livemode), e.Given.AccountID, mode(e.Given.Livemode))
}

func mode(live bool) string {
	if live {
		return "live"
	}
	return "test"
}

const sqlPinIdentity = `
INSERT INTO billing.stripe_identity (account_id, livemode, pinned_by) VALUES ($1, $2, $3)
ON CONFLICT ON CONSTRAINT stripe_identity_pkey DO UPDATE
SET account_id = excluded.account_id, livemode = excluded.livemode, pinned_by = excluded.pinned_by, pinned_at = billing.now()
WHERE NOT EXISTS (SELECT FROM billing.charges)`

const sqlReadIdentity = `SELECT account_id, livemode, pinned_at, pinned_by FROM billing.stripe_identity`

// PinIdentity binds the ledger to a Stripe account and mode if it is free or has
// no charges yet, and returns an *IdentityError if it belongs to another.
func PinIdentity(ctx context.Context, tx pgx.Tx, given Identity) error {
	if _, err := tx.Exec(ctx, sqlPinIdentity, given.AccountID, given.Livemode, given.PinnedBy); err != nil {
		return fmt.Errorf("pin the Stripe account: %w", err)
	}
	return CheckIdentity(ctx, tx, given)
}

// CheckIdentity returns an *IdentityError if the ledger belongs to another account
// or mode. One that belongs to nobody yet is fine.
func CheckIdentity(ctx context.Context, q Querier, given Identity) error {
	pinned, err := ReadIdentity(ctx, q)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case pinned.AccountID != given.AccountID || pinned.Livemode != given.Livemode:
		return &IdentityError{Pinned: pinned, Given: given}
	}
	return nil
}

// CheckMode returns an *IdentityError if the ledger belongs to the other mode. A key
// says its mode by itself, so that Stripe need not be asked.
func CheckMode(ctx context.Context, q Querier, livemode bool) error {
	pinned, err := ReadIdentity(ctx, q)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case pinned.Livemode != livemode:
		return &IdentityError{Pinned: pinned, Given: Identity{Livemode: livemode}}
	}
	return nil
}

// ReadIdentity reads the pinned account, ErrNotFound while there is none.
func ReadIdentity(ctx context.Context, q Querier) (Identity, error) {
	rows, _ := q.Query(ctx, sqlReadIdentity)
	id, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Identity])
	if errors.Is(err, pgx.ErrNoRows) {
		return id, fmt.Errorf("Stripe account of this ledger: %w", ErrNotFound)
	}
	if err != nil {
		return id, fmt.Errorf("read the Stripe account of this ledger: %w", err)
	}
	return id, nil
}
