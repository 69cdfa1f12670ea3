-- +goose Up

-- fee and net had as many zeros as numeric's power gives: 0.3300000000000000.
CREATE OR REPLACE VIEW billing.report_charges AS
SELECT job, period, account_id, name, billing_key, try, idempotency_key, state, reason, amount, currency,
       amount_minor, payment_intent, stripe_customer, stripe_account, decline_code,
       CASE WHEN amount_minor > 0 THEN trim_scale(amount_refunded_minor * amount / amount_minor) ELSE 0 END AS amount_refunded,
       disputed, sends, created_at, window_opened_at, settled_at, recorded_by AS run_id, request_id,
       trim_scale(fee_minor * 0.1 ^ balance_digits) AS fee, trim_scale(net_minor * 0.1 ^ balance_digits) AS net, payout, available_on, refunds,
       balance_currency
FROM billing.charges;

-- A journal dates money by the day when it moved on Stripe's balance. A return may
-- move twice, such as a dispute that was won later: moves has each movement, and is
-- NULL where an older program noted the return.
ALTER TABLE billing.audit_payments ADD COLUMN booked_at timestamptz;
ALTER TABLE billing.audit_returns ADD COLUMN moves jsonb;
