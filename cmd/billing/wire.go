package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// databaseURL finds Postgres. An empty URL is fine: the PG* variables count.
func databaseURL(c *cli.Context) (string, error) {
	if c.IsSet("database-url") && c.String("database-url") != os.Getenv("DATABASE_URL") {
		return withoutPassword(c.String("database-url"))
	}
	url, err := secret("DATABASE_URL")
	if err != nil {
		return "", err
	}
	if url == "" && os.Getenv("PGHOST") == "" && os.Getenv("PGSERVICE") == "" && os.Getenv("PGDATABASE") == "" {
		return "", configError{errors.New("no database is configured"), "set DATABASE_URL, such as postgres://billing@db.internal:5432/app"}
	}
	return url, nil
}

// withoutPassword refuses a password in a flag, which ps shows to everybody on the host.
func withoutPassword(address string) (string, error) {
	u, err := url.Parse(address)
	inURL := false
	if err == nil {
		_, inURL = u.User.Password()
		inURL = inURL || strayAt(u)
		for name := range u.Query() {
			inURL = inURL || strings.Contains(strings.ToLower(name), "password")
		}
	}
	// What can't be read may hold one.
	if inURL || passwordWords.MatchString(address) || err != nil && strings.Contains(address, "@") {
		return "", usagef("--database-url has a password, which ps would show: set DATABASE_URL or DATABASE_URL_FILE, or PGPASSWORD beside the flag")
	}
	return address, nil
}

// openLedger connects to Postgres and checks that its schema fits this program.
func openLedger(ctx context.Context, c *cli.Context) (*pgxpool.Pool, error) {
	address, err := databaseURL(c)
	if err != nil {
		return nil, err
	}
	pool, err := ledger.Open(ctx, address)
	return pool, withoutUser(err, address)
}

// userError is an error without the user of the address: where the colon between them
// was lost, that is the password too.
type userError struct {
	error
	user string
}

func (e userError) Error() string {
	return strings.NewReplacer("user="+e.user, "user=…", `"`+e.user+`"`, `"…"`).Replace(e.error.Error())
}

func (e userError) Unwrap() error { return e.error }

// withoutUser hides the user of an address that has no password.
func withoutUser(err error, address string) error {
	u, parseErr := url.Parse(address)
	if err == nil || parseErr != nil || u.User.Username() == "" {
		return err
	}
	if _, there := u.User.Password(); there {
		return err
	}
	return userError{err, u.User.Username()}
}

// stripeKey reads the secret key, by either of its usual names.
func stripeKey() (string, error) {
	key, err := secret("STRIPE_SECRET_KEY", "STRIPE_API_KEY")
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", configError{errors.New("no Stripe key is configured"), "set STRIPE_SECRET_KEY or STRIPE_SECRET_KEY_FILE"}
	}
	return key, nil
}

// openGateway makes the client of Stripe. Nothing is sent yet.
func openGateway(a *app, maxConns int, readRate float64) (*gateway.Client, error) {
	key, err := stripeKey()
	if err != nil {
		return nil, err
	}
	return gateway.New(gateway.Config{
		SecretKey: key,
		APIBase:   strings.TrimSpace(os.Getenv("STRIPE_API_BASE")),
		Live:      os.Getenv("BILLING_LIVE") == "true",
		MaxConns:  maxConns,
		ReadRate:  readRate,
		Logger:    a.log,
	})
}

// pinIdentity asks Stripe whose key it is and compares with the account that the
// ledger belongs to, and Stripe's clock with Postgres's, before anything else is
// asked or sent. With readOnly nothing is written: a ledger that belongs to nobody
// yet stays free.
func pinIdentity(ctx context.Context, pool *pgxpool.Pool, client *gateway.Client, readOnly bool) (gateway.Identity, error) {
	seen, err := client.Finder().Account(ctx)
	if err != nil {
		return seen, fmt.Errorf("ask Stripe whose key this is: %w", err)
	}
	if err := billing.CheckClock(ctx, pool, seen.Date); err != nil {
		return seen, err
	}
	id := ledger.Identity{AccountID: seen.AccountID, Livemode: seen.Livemode, PinnedBy: ownerOf()}
	if readOnly {
		return seen, ledger.CheckIdentity(ctx, pool, id)
	}
	err = ledger.InTx(ctx, pool, func(tx pgx.Tx) error { return ledger.PinIdentity(ctx, tx, id) })
	return seen, err
}
