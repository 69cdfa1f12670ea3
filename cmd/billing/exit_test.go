package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
)

// Every error that a command can end with has its exit code, also when it is
// wrapped, and never another.
func TestEveryErrorHasItsExitCode(t *testing.T) {
	t.Parallel()
	bug := errors.New("a bug")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{&billing.StoppedError{Gate: "not_closed"}, 3},
		{&billing.PersonError{Msg: "rejected"}, 4},
		{usagef("no such flag"), 64},
		{fmt.Errorf("charge: %w", ledger.ErrNotFound), 64},
		{inputError{errors.New("line 4")}, 65},
		{&billing.InputError{}, 65},
		{ledger.ErrInvoiceFrozen, 65},
		{&gateway.Error{Kind: gateway.KindUnreachable}, 69},
		{&gateway.Error{Kind: gateway.KindRate}, 69},
		{&gateway.Error{Kind: gateway.KindBadAnswer}, 69},
		{&pgconn.PgError{Code: "57P01"}, 69},
		{&pgconn.ConnectError{}, 69},
		{bug, 70},
		{&pgconn.PgError{Code: "XX000"}, 70},
		{&pgconn.PgError{Code: "22012"}, 65},
		{outputError{error: bug, creating: true}, 73},
		{outputError{error: bug}, 74},
		{&ledger.HeldError{}, 75},
		{ledger.ErrClaimLost, 75},
		{&billing.UnsettledError{Pending: 1}, 75},
		{context.DeadlineExceeded, 75},
		{&billing.AuthError{Status: 401}, 77},
		{&gateway.Error{Kind: gateway.KindAuth}, 77},
		{&gateway.Error{Kind: gateway.KindPermission}, 77},
		{&pgconn.PgError{Code: "42501"}, 77},
		{&pgconn.PgError{Code: "28P01"}, 77},
		{fs.ErrPermission, 77},
		{&ledger.SchemaError{Want: 1}, 78},
		{&ledger.IdentityError{}, 78},
		{configError{error: bug}, 78},
		{&gateway.ConfigError{}, 78},
		{&gateway.Error{Kind: gateway.KindWrongMode}, 78},
		{&billing.ClockError{}, 78},
		{ledger.ErrReadOnly, 78},
		{&pgconn.PgError{Code: "3D000"}, 78},
		{&pgconn.PgError{Code: "42P01"}, 78},
		{interrupted{syscall.SIGINT}, 130},
		{interrupted{syscall.SIGTERM}, 143},
	} {
		for _, err := range []error{c.err, wrapped(c.err)} {
			if got := classify(err); got.code != c.want {
				t.Errorf("%T %v: exit %d, want %d", c.err, err, got.code, c.want)
			} else if got.code != 0 && (got.outcome == "" || got.name == "") {
				t.Errorf("%T: an outcome %q and a name %q are missing", c.err, got.outcome, got.name)
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("while something was done: %w", err)
}

// The README's table has the exit codes of the program, all and only those.
func TestTheREADMEHasEveryExitCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)\n## [^\n]*[Ee]xit codes.*?(\n## |$)`).FindString(string(text))
	var got []int
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9 /]+) \|`).FindAllStringSubmatch(table, -1) {
		for _, code := range regexp.MustCompile(`[0-9]+`).FindAllString(row[1], -1) {
			n, _ := strconv.Atoi(code)
			got = append(got, n)
		}
	}
	slices.Sort(got)
	want := []int{0, 3, 4, 64, 65, 69, 70, 73, 74, 75, 77, 78, 130, 143}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README's exit codes (-program +README):\n%s", diff)
	}
}
