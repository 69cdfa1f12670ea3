package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/chargeonce/billing/ledger"
)

// refused runs SQL as the program's transactions do and wants it refused by a
// constraint or trigger of this name, as this error.
func (w importWorld) refused(what, constraint string, want error, sql string, args ...any) {
	w.t.Helper()
	err := ledger.InTx(w.t.Context(), w.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	})
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		w.t.Errorf("%s: %v, want it refused by %s", what, err, constraint)
	case pg.ConstraintName != constraint:
		w.t.Errorf("%s: refused by %q (%s), want %s", what, pg.ConstraintName, pg.Message, constraint)
	case want != nil && !errors.Is(err, want):
		w.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// everyState is a charge in each state that one can be in, under its own name.
func everyState(t *testing.T) answersWorld {
	var ids []string
	for _, s := range ledger.ChargeStates {
		if s != ledger.ChargeSkipped {
			ids = append(ids, string(s))
		}
	}
	w := newAnswersWorld(t, ids...)
	for _, id := range ids {
		switch s := ledger.ChargeState(id); s {
		case ledger.ChargePending:
		case ledger.ChargeSucceeded:
			w.record(paid(w.permits[id], "pi_"+id))
		default:
			w.move(id, s)
		}
	}
	return w
}

// What was sent or may be sent under a key never changes, in any state.
func TestARequestIsFrozenInEveryState(t *testing.T) {
	w := everyState(t)
	for _, state := range ledger.ChargeStates {
		if state == ledger.ChargeSkipped {
			continue
		}
		for change, by := range map[string]string{
			`body = body || '&x=1', body_sha256 = sha256(convert_to(body || '&x=1', 'UTF8'))`: "charges_try_frozen",
			`body = NULL`:                          "charges_try_frozen",
			`body_sha256 = '\x00'`:                 "charges_try_frozen",
			`idempotency_key = 'another'`:          "charges_try_frozen",
			`idempotency_key = NULL`:               "charges_try_frozen",
			`stripe_account = 'acct_other'`:        "charges_try_frozen",
			`stripe_customer = 'cus_other'`:        "charges_try_frozen",
			`amount_minor = amount_minor + 1`:      "charges_try_frozen",
			`amount = amount + 1`:                  "charges_try_frozen",
			`currency = 'eur'`:                     "charges_try_frozen",
			`account_id = 'other'`:                 "charges_identity_frozen",
			`billing_key = 'other'`:                "charges_identity_frozen",
			`period = '2026-11'`:                   "charges_identity_frozen",
			`job = 'other'`:                        "charges_identity_frozen",
			`try = try + 1, idempotency_key = 'x'`: "charges_try_order",
			`try = try + 2, idempotency_key = 'x'`: "charges_try_order",
		} {
			w.refused(string(state)+": "+change, by, ledger.ErrTryFrozen, `UPDATE billing.charges SET `+change+` WHERE account_id = $1`, state)
		}
	}
}

// A new try needs the closed one in the history, the next number and a key of its
// own.
func TestANewTryNeedsTheOldOneClosed(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	w.record(answer(w.permits["a"], ledger.ChargeDeclined, "pi_a"))
	w.openTry("a") // closes the first
	key := w.permits["a"].BillingKey
	const open = `UPDATE billing.charges SET try = try + $1, idempotency_key = $2, body = 'other', body_sha256 = sha256('other') WHERE account_id = 'a'`
	w.refused("not closed", "charges_try_order", ledger.ErrTryFrozen, open, 1, key+"/r3")
	w.refused("back", "charges_try_order", ledger.ErrTryFrozen, open, -1, key+"/r3")
	w.refused("two at once", "charges_try_order", ledger.ErrTryFrozen, open, 2, key+"/r3")
	if _, err := w.Pool.Exec(t.Context(), `INSERT INTO billing.charge_tries (job, period, account_id, try, idempotency_key, body, body_sha256, stripe_account, stripe_customer,
			window_opened_at, sends, open_sends, server_errors, state, reason, stripe_status, decline_code, advice_code, request_id)
		SELECT job, period, account_id, try, idempotency_key, body, body_sha256, '', '', window_opened_at, 0, 0, 0, state, '', '', '', '', ''
		FROM billing.charges WHERE account_id = 'a'`); err != nil {
		t.Fatal(err)
	}
	w.refused("under the same key", "charges_try_order", ledger.ErrTryFrozen, open, 1, key+"/r2")
	w.refused("under another debt's key", "charges_idempotency_key_key", ledger.ErrKeyTaken, open, 1, w.permits["b"].BillingKey)
	w.refused("the closed one twice", "charge_tries_pkey", nil, `INSERT INTO billing.charge_tries SELECT * FROM billing.charge_tries WHERE try = 1`)
	w.refused("a closed one under a used key", "charge_tries_idempotency_key_key", ledger.ErrKeyTaken,
		`INSERT INTO billing.charge_tries SELECT job, period, account_id, 7, idempotency_key, body, body_sha256, stripe_account, stripe_customer, window_opened_at,
			sends, open_sends, server_errors, last_sent_at, state, reason, payment_intent, stripe_status, decline_code, advice_code, request_id, settled_at, closed_at
		FROM billing.charge_tries WHERE try = 1`)
	if _, err := w.Pool.Exec(t.Context(), open, 1, key+"/r3"); err != nil {
		t.Errorf("a third try: %v", err)
	}
}

// Every move that exists is taken with its event, and every other is refused.
func TestOnlyKnownMovesAreTaken(t *testing.T) {
	w := newImportWorld(t)
	for _, from := range ledger.ChargeStates {
		for _, to := range ledger.ChargeStates {
			what := fmt.Sprintf("%s>%s", from, to)
			const add = `INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
				VALUES ('monthly-billing', '2026-10', 'a', 1, $1, $2, 'person', 'anna')`
			if !slices.ContainsFunc(ledger.Transitions, func(tr ledger.Transition) bool { return tr.From == from && tr.To == to }) {
				w.refused(what, "charge_events_move_check", ledger.ErrBadMove, add, from, to)
			} else if _, err := w.Pool.Exec(t.Context(), add, from, to); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	const odd = `INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person) VALUES ('j', '2026-10', 'a', 1, 'pending', 'held', $1, $2)`
	w.refused("without a cause", "charge_events_cause_check", nil, odd, "whim", "anna")
	w.refused("by nobody", "charge_events_actor_check", nil, odd, "person", "")
}

// A state never changes without an event of its own.
func TestAChangeOfStateNeedsAnEvent(t *testing.T) {
	w := everyState(t)
	for _, from := range ledger.ChargeStates {
		for _, to := range ledger.ChargeStates {
			if from == to || from == ledger.ChargeSkipped {
				continue
			}
			w.refused(fmt.Sprintf("%s to %s", from, to), "charges_change_has_event", ledger.ErrBadMove,
				`UPDATE billing.charges SET state = $2, reason = 'x', payment_intent = coalesce(payment_intent, 'pi_x'), settled_at = NULL WHERE account_id = $1`, from, to)
		}
	}
	w.refused("with an event that is not there", "charges_last_event_fkey", nil,
		`UPDATE billing.charges SET state = 'held', last_event = 999999 WHERE account_id = 'pending'`)
}

// History is kept: it takes rows and nothing else. No debt is forgotten.
func TestHistoryIsAppendOnly(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	w.record(answer(w.permits["a"], ledger.ChargeDeclined, "pi_a"))
	w.record(answer(w.permits["b"], ledger.ChargeProcessing, "pi_b"), paid(w.permits["b"], "pi_other"))
	w.finish(ledger.RunDone)
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		_, err := ledger.Reopen(ctx, tx, testJob, testPeriod, "anna", "late invoice")
		return err
	})
	w.openTry("a")
	for table, change := range map[string]string{
		"charge_events": `detail = 'other'`, "charge_tries": `reason = 'other'`, "period_events": `why = 'other'`,
	} {
		w.refused(table+" update", table+"_append_only", ledger.ErrAppendOnly, `UPDATE billing.`+table+` SET `+change)
		w.refused(table+" delete", table+"_append_only", ledger.ErrAppendOnly, `DELETE FROM billing.`+table)
		w.refused(table+" truncate", table+"_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.`+table+` CASCADE`)
		if n := value[int](w.importWorld, `SELECT count(*) FROM billing.`+table); n == 0 {
			t.Errorf("%s is empty; the test shows nothing", table)
		}
	}
	for _, table := range []string{"job_run_attempts", "findings"} {
		w.refused(table+" delete", table+"_no_delete", ledger.ErrAppendOnly, `DELETE FROM billing.`+table)
		w.refused(table+" truncate", table+"_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.`+table+` CASCADE`)
	}
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH f AS (SELECT id FROM billing.findings LIMIT 1),
			said AS (INSERT INTO billing.finding_events (finding_id, action, person, why) SELECT id, 'refund_ordered', 'anna', 'paid twice' FROM f)
			INSERT INTO billing.refund_orders (finding_id, try, idempotency_key, body, body_sha256, payment_intent, amount_minor, currency, ordered_by, why, window_opened_at)
			SELECT id, 1, 'finding/1/refund', 'a=b', sha256('a=b'), 'pi_other', 100, 'usd', 'anna', 'paid twice', billing.now() FROM f`)
		return err
	})
	w.mustIn(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO billing.charge_cancels (payment_intent, job, period, account_id, run_id) VALUES ('pi_a', 'j', '2026-10', 'a', gen_random_uuid())`)
		return err
	})
	w.refused("change what was cancelled", "charge_cancels_append_only", ledger.ErrAppendOnly, `UPDATE billing.charge_cancels SET account_id = 'b'`)
	w.refused("forget what was cancelled", "charge_cancels_append_only", ledger.ErrAppendOnly, `DELETE FROM billing.charge_cancels`)
	w.refused("forget all that was cancelled", "charge_cancels_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.charge_cancels`)
	w.refused("edit what a person said of a finding", "finding_events_append_only", ledger.ErrAppendOnly, `UPDATE billing.finding_events SET why = 'other'`)
	w.refused("forget it", "finding_events_append_only", ledger.ErrAppendOnly, `DELETE FROM billing.finding_events`)
	w.refused("forget all", "finding_events_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.finding_events CASCADE`)
	w.refused("change a refund", "refund_orders_frozen", ledger.ErrTryFrozen, `UPDATE billing.refund_orders SET amount_minor = amount_minor + 1`)
	w.refused("forget a refund", "refund_orders_no_delete", ledger.ErrAppendOnly, `DELETE FROM billing.refund_orders`)
	w.refused("forget all refunds", "refund_orders_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.refund_orders CASCADE`)
	w.refused("truncate invoices", "invoices_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.invoices CASCADE`)
	w.refused("delete a charge", "charges_no_delete", ledger.ErrAppendOnly, `DELETE FROM billing.charges`)
	w.refused("truncate charges", "charges_no_truncate", ledger.ErrAppendOnly, `TRUNCATE billing.charges`)
}

// A period with a pending charge is never done, and what paid for a charge is not
// exchanged without an event.
func TestDoneAndPaidMeanWhatTheySay(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	w.record(paid(w.permits["a"], "pi_a"))
	w.refused("done with a pending charge", "job_runs_done_is_settled", ledger.ErrBadMove,
		`UPDATE billing.job_runs SET state = 'done', finished_at = billing.now()`)
	w.refused("another payment", "charges_evidence_has_event", ledger.ErrBadMove,
		`UPDATE billing.charges SET payment_intent = 'pi_other' WHERE account_id = 'a'`)
	w.refused("no payment", "charges_evidence_has_event", ledger.ErrBadMove,
		`UPDATE billing.charges SET payment_intent = NULL WHERE account_id = 'a'`)
}

// A window is opened by a look, which is an event, and never ahead of time.
func TestAWindowIsNotMovedInPlace(t *testing.T) {
	w := newAnswersWorld(t, "a")
	for _, by := range []string{"- interval '1 hour'", "+ interval '1 second'"} {
		w.refused("moved by "+by, "charges_window_has_event", ledger.ErrWindow, `UPDATE billing.charges SET window_opened_at = window_opened_at `+by)
	}
	w.refused("in the future", "charges_window_not_ahead", ledger.ErrWindow, `
		WITH e AS (INSERT INTO billing.charge_events (job, period, account_id, try, from_state, to_state, cause, person)
			VALUES ('monthly-billing', '2026-10', 'a', 1, 'pending', 'pending', 'absent', 'anna') RETURNING id)
		UPDATE billing.charges SET window_opened_at = billing.now() + interval '1 minute', last_event = e.id FROM e`)
	w.refused("recorded in the future", "charges_window_not_ahead", ledger.ErrWindow, `
		INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			window_opened_at, recorded_by, created_at)
		VALUES ('monthly-billing', '2026-10', 'b', 'k', 10, 'usd', 1000, 'pending', 'k', 'x', sha256('x'), billing.now() + interval '1 minute', gen_random_uuid(), billing.now())`)
}

// The invoice of a charge is frozen, in every state but void, and for a delete as
// well; another period's is not.
func TestTheInvoiceOfAChargeIsFrozen(t *testing.T) {
	w := everyState(t)
	for _, state := range ledger.ChargeStates {
		for _, period := range []ledger.Period{testPeriod, "2026-11"} {
			if _, err := w.Pool.Exec(t.Context(), `INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
				VALUES ($1, $2, $3, 10, 'usd', 'test', '')`, testJob, period, state); err != nil {
				t.Fatal(err)
			}
		}
		const change, remove = `UPDATE billing.invoices SET amount = 11 WHERE account_id = $1 AND period = $2`,
			`DELETE FROM billing.invoices WHERE account_id = $1 AND period = $2`
		free := state == ledger.ChargeVoid || state == ledger.ChargeSkipped // which has no charge here
		if !free {
			w.refused("change "+string(state), "invoices_frozen", ledger.ErrInvoiceFrozen, change, state, testPeriod)
			w.refused("delete "+string(state), "invoices_frozen", ledger.ErrInvoiceFrozen, remove, state, testPeriod)
			continue
		}
		for _, sql := range []string{change, remove} {
			if tag, err := w.Pool.Exec(t.Context(), sql, state, testPeriod); err != nil || tag.RowsAffected() != 1 {
				t.Errorf("%s: %s: %v", state, sql, err)
			}
		}
	}
	if tag, err := w.Pool.Exec(t.Context(), `UPDATE billing.invoices SET amount = 11 WHERE period = '2026-11'`); err != nil || tag.RowsAffected() != int64(len(ledger.ChargeStates)) {
		t.Errorf("another period: %v", err)
	}
}

// What a row of charges may never be.
func TestWhatAChargeMayNeverBe(t *testing.T) {
	w := newAnswersWorld(t, "a", "b")
	w.record(paid(w.permits["a"], "pi_a"))
	for _, c := range []struct {
		what, by, change string
		want             error
	}{
		{"paid by another debt's payment", "charges_payment_intent_key", `payment_intent = 'pi_a'`, ledger.ErrPaymentIntentTaken},
		{"in no known state", "charges_state_check", `state = 'failed', last_event = (SELECT max(id) FROM billing.charge_events)`, nil},
		{"paid without evidence", "charges_evidence_check", `state = 'succeeded', last_event = (SELECT max(id) FROM billing.charge_events)`, nil},
		{"under way without evidence", "charges_evidence_check", `state = 'processing', last_event = (SELECT max(id) FROM billing.charge_events)`, nil},
		{"skipped without a reason", "charges_reason_check", `state = 'skipped', reason = '', last_event = (SELECT max(id) FROM billing.charge_events)`, nil},
		{"pending and settled", "charges_settled_check", `settled_at = billing.now()`, nil},
		{"sent less often than open", "charges_sends_check", `open_sends = sends + 1`, nil},
		{"sent less than never", "charges_sends_check", `sends = -1, open_sends = -1`, nil},
		{"pending without a window", "charges_request_check", `window_opened_at = NULL, last_event = (SELECT max(id) FROM billing.charge_events)`, nil},
	} {
		w.refused(c.what, c.by, c.want, `UPDATE billing.charges SET `+c.change+` WHERE account_id = 'b'`)
	}
	const add = `INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, reason, idempotency_key, body, body_sha256,
			window_opened_at, recorded_by, created_at)
		VALUES ('monthly-billing', '2026-10', $1, $2, 10, 'usd', $3, 'pending', '', $4, 'x', sha256($5), billing.now(), gen_random_uuid(), billing.now())`
	key := w.permits["a"].BillingKey
	w.refused("recorded twice", "charges_pkey", nil, add, "a", "k", 1000, "k", "x")
	w.refused("under another debt's identity", "charges_billing_key_key", ledger.ErrKeyTaken, add, "c", key, 1000, "k", "x")
	w.refused("under another debt's key", "charges_idempotency_key_key", ledger.ErrKeyTaken, add, "c", "k", 1000, key, "x")
	w.refused("for nothing", "charges_amount_minor_check", nil, add, "c", "k", 0, "k", "x")
	w.refused("for less than nothing", "charges_amount_minor_check", nil, add, "c", "k", -1, "k", "x")
	w.refused("with another hash than the body's", "charges_body_sha256_check", nil, add, "c", "k", 1000, "k", "y")
	w.refused("without a request", "charges_request_check", nil, add, "c", "k", 1000, nil, "x")
}
