package ledger

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors that callers decide by. They are found with errors.Is.
var (
	// ErrClaimLost says that this run no longer owns the period: it may record
	// answers, and nothing else.
	ErrClaimLost = errors.New("another run owns the period")
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("not in the ledger")
	// ErrPaymentIntentTaken says that a PaymentIntent already pays for another
	// debt.
	ErrPaymentIntentTaken = errors.New("the PaymentIntent already belongs to another charge")
	// ErrInvoiceFrozen says that the invoice's charge is recorded; a correction
	// is a line of the next period.
	ErrInvoiceFrozen = errors.New("the invoice is recorded as a charge and frozen")
	// ErrTryFrozen says that somebody tried to change a request under a key
	// that exists.
	ErrTryFrozen = errors.New("the request of a try never changes")
	// ErrAppendOnly says that somebody tried to change history.
	ErrAppendOnly = errors.New("history is append-only")
	// ErrKeyTaken says that two debts came to the same key.
	ErrKeyTaken = errors.New("another charge has this key")
	// ErrBadMove says that a change of state is not in Transitions.
	ErrBadMove = errors.New("a charge may not move this way")
	// ErrWindow says that somebody tried to move a window without a look, or into
	// the future.
	ErrWindow = errors.New("a window is opened by a look at Stripe, and never ahead of time")
	// ErrMessageFrozen says that somebody tried to change a message, or to send one
	// again that was sent.
	ErrMessageFrozen = errors.New("a message never changes, and what was sent stays sent")
	// ErrReadOnly says that the database is a standby or read-only.
	ErrReadOnly = errors.New("the database is read-only or a standby")
)

// constraintErrors is the one place where a constraint's name becomes an error.
var constraintErrors = map[string]error{
	"charges_payment_intent_key":        ErrPaymentIntentTaken,
	"charges_billing_key_key":           ErrKeyTaken,
	"charges_idempotency_key_key":       ErrKeyTaken,
	"charge_tries_idempotency_key_key":  ErrKeyTaken,
	"invoices_frozen":                   ErrInvoiceFrozen,
	"charges_try_frozen":                ErrTryFrozen,
	"charges_identity_frozen":           ErrTryFrozen,
	"charges_try_order":                 ErrTryFrozen,
	"charges_change_has_event":          ErrBadMove,
	"charge_events_move_check":          ErrBadMove,
	"charge_events_append_only":         ErrAppendOnly,
	"charge_events_no_truncate":         ErrAppendOnly,
	"charge_tries_append_only":          ErrAppendOnly,
	"charge_tries_no_truncate":          ErrAppendOnly,
	"period_events_append_only":         ErrAppendOnly,
	"period_events_no_truncate":         ErrAppendOnly,
	"charges_no_delete":                 ErrAppendOnly,
	"invoices_no_truncate":              ErrAppendOnly,
	"job_run_attempts_no_delete":        ErrAppendOnly,
	"job_run_attempts_no_truncate":      ErrAppendOnly,
	"findings_no_delete":                ErrAppendOnly,
	"findings_no_truncate":              ErrAppendOnly,
	"charges_window_has_event":          ErrWindow,
	"charges_window_not_ahead":          ErrWindow,
	"job_runs_done_is_settled":          ErrBadMove,
	"charges_evidence_has_event":        ErrBadMove,
	"charges_no_truncate":               ErrAppendOnly,
	"charge_cancels_append_only":        ErrAppendOnly,
	"charge_cancels_no_truncate":        ErrAppendOnly,
	"finding_events_append_only":        ErrAppendOnly,
	"finding_events_no_truncate":        ErrAppendOnly,
	"refund_orders_frozen":              ErrTryFrozen,
	"refund_orders_no_delete":           ErrAppendOnly,
	"refund_orders_no_truncate":         ErrAppendOnly,
	"refund_orders_idempotency_key_key": ErrKeyTaken,
	"outbox_frozen":                     ErrMessageFrozen,
	"outbox_sent_is_final":              ErrMessageFrozen,
	"outbox_no_delete":                  ErrAppendOnly,
	"outbox_no_truncate":                ErrAppendOnly,
	"outbox_events_append_only":         ErrAppendOnly,
	"outbox_events_no_truncate":         ErrAppendOnly,
	"usage_events_append_only":          ErrAppendOnly,
	"usage_events_no_delete":            ErrAppendOnly,
	"usage_events_no_truncate":          ErrAppendOnly,
	"usage_history_append_only":         ErrAppendOnly,
	"usage_history_no_truncate":         ErrAppendOnly,
	"usage_carried_append_only":         ErrAppendOnly,
	"usage_carried_no_truncate":         ErrAppendOnly,
	"usage_set_aside_frozen":            ErrAppendOnly,
	"usage_set_aside_no_delete":         ErrAppendOnly,
	"usage_set_aside_no_truncate":       ErrAppendOnly,
	"usage_invoiced_no_delete":          ErrAppendOnly,
	"usage_invoiced_no_truncate":        ErrAppendOnly,
	"job_watermarks_no_delete":          ErrAppendOnly,
	"job_watermarks_no_truncate":        ErrAppendOnly,
	"usage_invoiced_whole":              ErrHalfCounted,
	"daily_usage_frozen":                ErrInvoiceFrozen,
	"daily_usage_frozen_update":         ErrInvoiceFrozen,
	"daily_usage_frozen_delete":         ErrInvoiceFrozen,
	"invoice_lines_frozen":              ErrInvoiceFrozen,
	"invoice_lines_no_update":           ErrInvoiceFrozen,
	"invoice_lines_no_truncate":         ErrAppendOnly,
	"price_lists_append_only":           ErrAppendOnly,
	"price_lists_no_truncate":           ErrAppendOnly,
}

// mapError adds the domain's error to one of Postgres that names a constraint.
func mapError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	if known, ok := constraintErrors[pg.ConstraintName]; ok {
		return fmt.Errorf("%w: %w", known, err)
	}
	if pg.Code == "25006" {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// HeldError says why a claim could not be had.
type HeldError struct {
	Job    Job
	Period Period
	// Holder is the row of the claim as it stands.
	Holder Run
}

func (e *HeldError) Error() string {
	if e.Holder.State == RunDone {
		return fmt.Sprintf("period %s of %s is done", e.Period, e.Job)
	}
	return fmt.Sprintf("period %s of %s is claimed by %s", e.Period, e.Job, e.Holder.Owner)
}

// SchemaError says that the schema and this program do not fit.
type SchemaError struct {
	// Have is the database's version, 0 if it has none; Want is the program's.
	Have, Want int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return "the database has no billing schema yet"
	case e.Have < e.Want:
		return fmt.Sprintf("the schema is at version %d, this program needs %d", e.Have, e.Want)
	default:
		return fmt.Sprintf("the schema is at version %d, newer than the %d that this program knows", e.Have, e.Want)
	}
}

// Hint says what to type.
func (e *SchemaError) Hint() string {
	if e.Have < e.Want {
		return "run: billing migrate"
	}
	return "install the newer billing on this host"
}
