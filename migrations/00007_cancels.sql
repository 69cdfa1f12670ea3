-- +goose Up

-- charge_cancels is what retry-declined asks Stripe to cancel, written down before it
-- asks. A payment that is cancelled and not here was cancelled by somebody, who may
-- have been paid another way.
CREATE TABLE billing.charge_cancels (
    payment_intent text COLLATE "C" NOT NULL,
    job            text COLLATE "C" NOT NULL,
    period         text COLLATE "C" NOT NULL,
    account_id     text COLLATE "C" NOT NULL,
    ordered_at     timestamptz NOT NULL DEFAULT billing.now(),
    run_id         uuid NOT NULL,
    CONSTRAINT charge_cancels_pkey PRIMARY KEY (payment_intent)
);
CREATE TRIGGER charge_cancels_append_only BEFORE UPDATE OR DELETE ON billing.charge_cancels
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER charge_cancels_no_truncate BEFORE TRUNCATE ON billing.charge_cancels
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();
