-- +goose Up

-- A try is renewed when Stripe was proven to have no payment for it: it gets a new
-- window under the same key. The second time a person decides.
ALTER TABLE billing.charges ADD COLUMN renewals integer NOT NULL DEFAULT 0;
ALTER TABLE billing.charge_tries ADD COLUMN renewals integer NOT NULL DEFAULT 0;
ALTER TABLE billing.charges ADD CONSTRAINT charges_renewals_check CHECK (renewals >= 0);

-- What a run asks Stripe about again each time: bank debits under way, and
-- payments that wait for the customer.
CREATE INDEX charges_unsettled_idx ON billing.charges (job, period, account_id)
    WHERE state IN ('processing', 'action_required');

-- A ledger that was restored from a backup may find a payment under way for a
-- charge that it never saw as a request.
ALTER TABLE billing.charges DROP CONSTRAINT charges_request_check;
ALTER TABLE billing.charges ADD CONSTRAINT charges_request_check CHECK (
    state = 'skipped'
    OR (state IN ('void', 'succeeded', 'processing') AND idempotency_key IS NULL)
    OR (idempotency_key IS NOT NULL AND body IS NOT NULL AND body_sha256 IS NOT NULL
        AND amount_minor IS NOT NULL AND window_opened_at IS NOT NULL));

-- The moves that a look at Stripe adds: a payment under way is found whatever was
-- believed before, and the look of a release may find what was held for.
ALTER TABLE billing.charge_events DROP CONSTRAINT charge_events_move_check;
ALTER TABLE billing.charge_events ADD CONSTRAINT charge_events_move_check CHECK ((from_state || '>' || to_state) IN (
    'pending>succeeded', 'pending>processing', 'pending>action_required', 'pending>declined',
    'pending>rejected', 'pending>review', 'pending>pending', 'pending>held', 'pending>void',
    'processing>succeeded', 'processing>action_required', 'processing>declined',
    'action_required>succeeded', 'action_required>processing', 'action_required>declined',
    'declined>succeeded', 'declined>processing', 'declined>pending', 'declined>void',
    'rejected>succeeded', 'rejected>processing', 'rejected>pending', 'rejected>void',
    'skipped>succeeded', 'skipped>processing', 'skipped>pending', 'skipped>skipped', 'skipped>void',
    'held>succeeded', 'held>processing', 'held>action_required', 'held>declined', 'held>review',
    'held>pending', 'held>void',
    'review>succeeded', 'review>held', 'review>void',
    'void>succeeded', 'void>processing', 'void>pending'));

-- Bringing a restored ledger up to what Stripe shows is something that a person
-- did to a whole period.
ALTER TABLE billing.period_events DROP CONSTRAINT period_events_action_check;
ALTER TABLE billing.period_events ADD CONSTRAINT period_events_action_check
    CHECK (action IN ('close', 'reopen', 'rebuild'));
