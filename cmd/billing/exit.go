package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/reconcile/export"
)

// Exit codes are an interface; the README has them as a table.
const (
	exitOK           = 0
	exitStopped      = 3
	exitNeedsPerson  = 4
	exitUsage        = 64
	exitBadInput     = 65
	exitUnreachable  = 69
	exitBug          = 70
	exitCannotCreate = 73
	exitIOError      = 74
	exitUnknown      = 75
	exitNoPermission = 77
	exitBadConfig    = 78
)

// readerGone is the name of a failure that nobody need be told of.
const readerGone = "reader_gone"

type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e usageError) Unwrap() error { return e.error }

// inputError is bad data in a file or a view.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// configError is a setting that can't work, with what to do about it.
type configError struct {
	error
	hint string
}

func (e configError) Unwrap() error { return e.error }

// outputError is a file or stream that could not be written.
type outputError struct {
	error
	creating bool
}

func (e outputError) Unwrap() error { return e.error }

// failure is an error as the user meets it.
type failure struct {
	code                int
	outcome, name, hint string
}

// classify is the one switch from errors to exit codes. Where several hold, the
// first in the order of design counts: 70, 78, 77, 64, 65, 73, 74, 3, 69, 75, 4.
func classify(err error) failure {
	var (
		schema    *ledger.SchemaError
		identity  *ledger.IdentityError
		config    configError
		keyErr    *gateway.ConfigError
		clock     *billing.ClockError
		auth      *billing.AuthError
		usage     usageError
		input     inputError
		badPlan   *billing.InputError
		output    outputError
		exported  *export.Error
		stopped   *billing.StoppedError
		stripe    *gateway.Error
		held      *ledger.HeldError
		signal    interrupted
		person    *billing.PersonError
		unsettled *billing.UnsettledError
		sending   stillSending
	)
	switch {
	case err == nil:
		return failure{code: exitOK}
	case errors.As(err, &signal):
		return failure{128 + int(signal.sig), "interrupted", "interrupted", "run the same command again"}
	case errors.As(err, &schema):
		return failure{exitBadConfig, "failed", "schema", schema.Hint()}
	case errors.As(err, &identity):
		return failure{exitBadConfig, "failed", "wrong_stripe_account", "use the key of the account that this ledger belongs to"}
	case errors.As(err, &config):
		return failure{exitBadConfig, "failed", "configuration", config.hint}
	case errors.As(err, &keyErr):
		return failure{exitBadConfig, "failed", "configuration", "correct " + keyErr.Setting}
	case errors.As(err, &clock):
		return failure{exitBadConfig, "failed", "clocks_differ", "set the clock of the database's host (NTP), then run again"}
	case errors.Is(err, ledger.ErrReadOnly):
		return failure{exitBadConfig, "failed", "read_only_database", "DATABASE_URL must name the primary"}
	case errors.As(err, &auth):
		return failure{exitNoPermission, "failed", "stripe_refused_key", auth.Hint()}
	case errors.As(err, &usage):
		return failure{exitUsage, "failed", "usage", ""}
	case errors.As(err, &input), errors.As(err, &badPlan):
		return failure{exitBadInput, "failed", "bad_input", ""}
	case errors.Is(err, ledger.ErrInvoiceFrozen):
		return failure{exitBadInput, "failed", "invoice_frozen", "a correction is a line of the next period"}
	case errors.As(err, &exported):
		return classifyExport(exported)
	case errors.As(err, &output):
		return classifyExport(&export.Error{Trouble: map[bool]export.Trouble{true: export.CannotCreate, false: export.CannotWrite}[output.creating]})
	case errors.As(err, &stopped):
		return failure{exitStopped, "stopped", stopped.Gate, stopped.Hint}
	case errors.As(err, &stripe):
		return classifyStripe(stripe)
	case errors.As(err, &sending):
		return failure{exitUnknown, "unknown", "still_sending", "run the same command again"}
	case errors.As(err, &unsettled):
		return failure{exitUnknown, "unknown", "unknown", unsettled.Hint()}
	case errors.As(err, &held):
		return failure{exitUnknown, "busy", "busy", "it goes on by itself; run again later, or see: billing status"}
	case errors.Is(err, ledger.ErrClaimLost):
		return failure{exitUnknown, "busy", "taken_over", "another run goes on with this period"}
	case errors.As(err, &person):
		return failure{exitNeedsPerson, "needs_person", cmp.Or(person.Code, "needs_person"), person.Hint}
	case errors.Is(err, ledger.ErrNotFound):
		return failure{exitUsage, "failed", "not_found", ""}
	default:
		return classifyOutbox(err)
	}
}

// classifyOutbox maps what receivers of messages say.
func classifyOutbox(err error) failure {
	var refused refusedError
	var waiting waitingError
	switch {
	case errors.As(err, &refused):
		return failure{exitNoPermission, "failed", "receiver_refused_us", "check the key and the settings of this receiver"}
	case errors.As(err, &waiting):
		return failure{exitUnknown, "unknown", "messages_waiting", "they are tried again by the next billing outbox send"}
	default:
		return classifySystem(err)
	}
}

func classifyExport(err *export.Error) failure {
	switch err.Trouble {
	case export.NotAllowed:
		return failure{exitNoPermission, "failed", "storage_refused_key", err.Hint}
	case export.ReaderGone:
		return failure{exitIOError, "failed", readerGone, ""}
	case export.Unfit:
		return failure{exitIOError, "failed", "write_failed", err.Hint}
	case export.CannotCreate:
		return failure{exitCannotCreate, "failed", "cannot_write", cmp.Or(err.Hint, "check the folder and its rights")}
	default:
		return failure{exitIOError, "failed", "write_failed", cmp.Or(err.Hint, "the old file is untouched; check the disk")}
	}
}

func classifyStripe(err *gateway.Error) failure {
	switch err.Kind {
	case gateway.KindAuth, gateway.KindPermission:
		return failure{exitNoPermission, "failed", "stripe_refused_key", "check STRIPE_SECRET_KEY and its rights in the Stripe dashboard"}
	case gateway.KindWrongMode:
		return failure{exitBadConfig, "failed", "wrong_mode", "the key is of the other mode than what it was asked for"}
	default:
		return failure{exitUnreachable, "unreachable", "stripe_unreachable", "run again later"}
	}
}

// classifySystem maps what the operating system and Postgres say.
func classifySystem(err error) failure {
	var pg *pgconn.PgError
	var parse *pgconn.ParseConfigError
	switch {
	case errors.Is(err, ledger.ErrHalfCounted):
		return failure{exitUnknown, "busy", "half_counted", "billing meter finishes it; then run again"}
	case errors.As(err, &parse):
		return failure{exitBadConfig, "failed", "configuration", "DATABASE_URL looks like postgres://user@host:5432/database"}
	case errors.As(err, &pg) && (pg.Code == "42501" || pg.Code[:2] == "28"):
		return failure{exitNoPermission, "failed", "postgres_refused", "connect as a role that may, or grant this one what docs/deploy/grants.sql says"}
	case errors.As(err, &pg) && pg.Code == "57014":
		return failure{exitUnreachable, "unreachable", "postgres_cancelled", "Postgres cancelled a statement; run again"}
	case errors.As(err, &pg) && pg.Code == "3D000":
		return failure{exitBadConfig, "failed", "no_such_database", "create it, or correct DATABASE_URL"}
	case errors.As(err, &pg) && pg.Code[:2] == "42":
		// The program's own statements are tested against its schema.
		return failure{exitBadConfig, "failed", "schema", "the view billing.billable, or the schema, is not what is needed; run: billing migrate --status"}
	case errors.As(err, &pg) && pg.Code[:2] == "22":
		return failure{exitBadInput, "failed", "bad_view", "the view billing.billable gives what it can't compute; mend it"}
	case ledger.IsUnreachable(err):
		return failure{exitUnreachable, "unreachable", "postgres_unreachable", "run again later"}
	case errors.Is(err, fs.ErrPermission):
		return failure{exitNoPermission, "failed", "permission", ""}
	case errors.Is(err, context.DeadlineExceeded):
		return failure{exitUnknown, "unknown", "time_ran_out", "run again"}
	default:
		return failure{exitBug, "failed", "bug", "please report it with the log"}
	}
}
