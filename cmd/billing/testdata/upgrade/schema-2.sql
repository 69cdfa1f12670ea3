-- A ledger in the middle of a month, as the program left it whose schema was at version 2: 20 charges, 6 answered,
-- 8 sent without an answer, 5 never sent, 1 skipped. It was made by that program and pg_dump; its requests have another order of parameters.
SET check_function_bodies = false;

CREATE SCHEMA billing;

CREATE FUNCTION billing.guard_done() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM billing.charges c
        WHERE c.job = NEW.job AND c.period = NEW.period AND c.state = 'pending') THEN
        RAISE EXCEPTION 'period % of % has pending charges and is not done', NEW.period, NEW.job
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION billing.guard_invoice() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM billing.charges c
        WHERE c.job = OLD.job AND c.period = OLD.period AND c.account_id = OLD.account_id AND c.state <> 'void') THEN
        RAISE EXCEPTION 'the invoice of account % for % is recorded as a charge and frozen', OLD.account_id, OLD.period
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'invoices_frozen';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE FUNCTION billing.guard_try_order() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.try <> OLD.try + 1
        OR NEW.idempotency_key IS NOT DISTINCT FROM OLD.idempotency_key
        OR NOT EXISTS (SELECT FROM billing.charge_tries t
            WHERE t.job = OLD.job AND t.period = OLD.period AND t.account_id = OLD.account_id AND t.try = OLD.try) THEN
        RAISE EXCEPTION 'charge %: try % must close before try % opens', OLD.billing_key, OLD.try, NEW.try
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION billing.now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    AS $$ SELECT pg_catalog.clock_timestamp() + (SELECT c.ahead FROM billing_test.clock AS c) $$;

CREATE FUNCTION billing.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'billing.% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
END $$;

CREATE FUNCTION billing.refuse_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'charge %: %', NEW.billing_key, TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
END $$;

CREATE TABLE billing.accounts (
    account_id text NOT NULL COLLATE pg_catalog."C",
    stripe_account text DEFAULT ''::text NOT NULL,
    stripe_customer text DEFAULT ''::text NOT NULL,
    payment_method text DEFAULT ''::text NOT NULL,
    currency text DEFAULT ''::text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    email text DEFAULT ''::text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    card_expires date,
    updated_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    CONSTRAINT accounts_account_id_check CHECK (((account_id <> ''::text) AND (octet_length(account_id) <= 255))),
    CONSTRAINT accounts_status_check CHECK ((status = ANY (ARRAY['active'::text, 'paused'::text])))
);

CREATE TABLE billing.invoices (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    account_id text NOT NULL COLLATE pg_catalog."C",
    invoice_id text DEFAULT ''::text NOT NULL,
    amount numeric NOT NULL,
    currency text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    source text NOT NULL,
    content_hash bytea NOT NULL,
    imported_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    CONSTRAINT invoices_amount_check CHECK (((amount > '-Infinity'::numeric) AND (amount < 'Infinity'::numeric))),
    CONSTRAINT invoices_currency_check CHECK ((currency ~ '^[a-z]{3}$'::text)),
    CONSTRAINT invoices_job_check CHECK ((job ~ '^[a-z0-9-]{1,40}$'::text)),
    CONSTRAINT invoices_period_check CHECK ((period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'::text))
);

CREATE VIEW billing.billable AS
 SELECT i.job,
    i.period,
    i.account_id,
    i.amount,
    i.currency,
    i.description,
    a.stripe_account,
    a.stripe_customer,
    a.payment_method,
    a.name,
    a.email,
    a.status
   FROM (billing.invoices i
     LEFT JOIN billing.accounts a ON ((a.account_id = i.account_id)));

COMMENT ON VIEW billing.billable IS 'shipped e2c12ff7e1148be79b478b69d744765d';

CREATE TABLE billing.charge_events (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT billing.now() NOT NULL,
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    account_id text NOT NULL COLLATE pg_catalog."C",
    try integer NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    cause text NOT NULL,
    run_id uuid,
    person text DEFAULT ''::text NOT NULL,
    payment_intent text DEFAULT ''::text NOT NULL,
    request_id text DEFAULT ''::text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    CONSTRAINT charge_events_actor_check CHECK (((run_id IS NOT NULL) OR (person <> ''::text))),
    CONSTRAINT charge_events_cause_check CHECK ((cause = ANY (ARRAY['answer'::text, 'found'::text, 'absent'::text, 'decided'::text, 'person'::text]))),
    CONSTRAINT charge_events_move_check CHECK ((((from_state || '>'::text) || to_state) = ANY (ARRAY['pending>succeeded'::text, 'pending>processing'::text, 'pending>action_required'::text, 'pending>declined'::text, 'pending>rejected'::text, 'pending>review'::text, 'pending>pending'::text, 'pending>held'::text, 'pending>void'::text, 'processing>succeeded'::text, 'processing>action_required'::text, 'processing>declined'::text, 'action_required>succeeded'::text, 'action_required>processing'::text, 'action_required>declined'::text, 'declined>succeeded'::text, 'declined>processing'::text, 'declined>pending'::text, 'declined>void'::text, 'rejected>succeeded'::text, 'rejected>processing'::text, 'rejected>pending'::text, 'rejected>void'::text, 'skipped>succeeded'::text, 'skipped>processing'::text, 'skipped>pending'::text, 'skipped>skipped'::text, 'skipped>void'::text, 'held>succeeded'::text, 'held>processing'::text, 'held>action_required'::text, 'held>declined'::text, 'held>review'::text, 'held>pending'::text, 'held>void'::text, 'review>succeeded'::text, 'review>held'::text, 'review>void'::text, 'void>succeeded'::text, 'void>processing'::text, 'void>pending'::text])))
);

ALTER TABLE billing.charge_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME billing.charge_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE billing.charge_tries (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    account_id text NOT NULL COLLATE pg_catalog."C",
    try integer NOT NULL,
    idempotency_key text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL,
    body_sha256 bytea NOT NULL,
    stripe_account text NOT NULL,
    stripe_customer text NOT NULL,
    window_opened_at timestamp with time zone NOT NULL,
    sends integer NOT NULL,
    open_sends integer NOT NULL,
    server_errors integer NOT NULL,
    last_sent_at timestamp with time zone,
    state text NOT NULL,
    reason text NOT NULL,
    payment_intent text COLLATE pg_catalog."C",
    stripe_status text NOT NULL,
    decline_code text NOT NULL,
    advice_code text NOT NULL,
    request_id text NOT NULL,
    settled_at timestamp with time zone,
    closed_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    renewals integer DEFAULT 0 NOT NULL
);

CREATE TABLE billing.charges (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    account_id text NOT NULL COLLATE pg_catalog."C",
    billing_key text NOT NULL COLLATE pg_catalog."C",
    name text DEFAULT ''::text NOT NULL,
    amount numeric NOT NULL,
    currency text NOT NULL,
    amount_minor bigint,
    state text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    try integer DEFAULT 1 NOT NULL,
    idempotency_key text COLLATE pg_catalog."C",
    body text,
    body_sha256 bytea,
    stripe_account text DEFAULT ''::text NOT NULL,
    stripe_customer text DEFAULT ''::text NOT NULL,
    window_opened_at timestamp with time zone,
    lease_owner uuid,
    lease_until timestamp with time zone,
    next_send_at timestamp with time zone,
    sends integer DEFAULT 0 NOT NULL,
    open_sends integer DEFAULT 0 NOT NULL,
    run_sends integer DEFAULT 0 NOT NULL,
    server_errors integer DEFAULT 0 NOT NULL,
    last_sent_at timestamp with time zone,
    payment_intent text COLLATE pg_catalog."C",
    stripe_status text DEFAULT ''::text NOT NULL,
    decline_code text DEFAULT ''::text NOT NULL,
    advice_code text DEFAULT ''::text NOT NULL,
    request_id text DEFAULT ''::text NOT NULL,
    settled_at timestamp with time zone,
    amount_refunded_minor bigint DEFAULT 0 NOT NULL,
    disputed boolean DEFAULT false NOT NULL,
    recorded_by uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    last_event bigint,
    renewals integer DEFAULT 0 NOT NULL,
    CONSTRAINT charges_amount_minor_check CHECK ((amount_minor > 0)),
    CONSTRAINT charges_body_sha256_check CHECK ((body_sha256 = sha256(convert_to(body, 'UTF8'::name)))),
    CONSTRAINT charges_evidence_check CHECK (((state <> ALL (ARRAY['succeeded'::text, 'processing'::text, 'action_required'::text])) OR (payment_intent IS NOT NULL))),
    CONSTRAINT charges_reason_check CHECK (((state <> 'skipped'::text) OR (reason <> ''::text))),
    CONSTRAINT charges_renewals_check CHECK ((renewals >= 0)),
    CONSTRAINT charges_request_check CHECK (((state = 'skipped'::text) OR ((state = ANY (ARRAY['void'::text, 'succeeded'::text, 'processing'::text])) AND (idempotency_key IS NULL)) OR ((idempotency_key IS NOT NULL) AND (body IS NOT NULL) AND (body_sha256 IS NOT NULL) AND (amount_minor IS NOT NULL) AND (window_opened_at IS NOT NULL)))),
    CONSTRAINT charges_sends_check CHECK (((sends >= 0) AND ((open_sends >= 0) AND (open_sends <= sends)))),
    CONSTRAINT charges_settled_check CHECK (((state <> ALL (ARRAY['pending'::text, 'skipped'::text])) OR (settled_at IS NULL))),
    CONSTRAINT charges_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'skipped'::text, 'succeeded'::text, 'processing'::text, 'action_required'::text, 'declined'::text, 'rejected'::text, 'review'::text, 'held'::text, 'void'::text]))),
    CONSTRAINT charges_try_check CHECK ((try >= 1))
);

CREATE TABLE billing.findings (
    id bigint NOT NULL,
    kind text NOT NULL,
    severity text NOT NULL,
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    account_id text NOT NULL COLLATE pg_catalog."C",
    billing_key text NOT NULL COLLATE pg_catalog."C",
    payment_intent text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    currency text DEFAULT ''::text NOT NULL,
    expected text DEFAULT ''::text NOT NULL,
    seen text DEFAULT ''::text NOT NULL,
    opened_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    resolved_at timestamp with time zone,
    resolved_by text DEFAULT ''::text NOT NULL,
    resolution text DEFAULT ''::text NOT NULL,
    why text DEFAULT ''::text NOT NULL,
    CONSTRAINT findings_severity_check CHECK ((severity = ANY (ARRAY['act'::text, 'note'::text])))
);

ALTER TABLE billing.findings ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME billing.findings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE billing.job_run_attempts (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    run_id uuid NOT NULL,
    owner text NOT NULL,
    build text NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    result text DEFAULT 'claimed'::text NOT NULL,
    exit_code integer,
    recorded bigint DEFAULT 0 NOT NULL,
    sent bigint DEFAULT 0 NOT NULL,
    settled bigint DEFAULT 0 NOT NULL,
    renewed bigint DEFAULT 0 NOT NULL,
    CONSTRAINT job_run_attempts_finished_check CHECK (((result = 'claimed'::text) = (finished_at IS NULL))),
    CONSTRAINT job_run_attempts_result_check CHECK ((result = ANY (ARRAY['claimed'::text, 'done'::text, 'failed'::text, 'taken_over'::text])))
);

CREATE TABLE billing.job_runs (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    attempt integer NOT NULL,
    run_id uuid NOT NULL,
    owner text NOT NULL,
    lease interval NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    early boolean DEFAULT false NOT NULL,
    time_zone text NOT NULL,
    period_starts_at timestamp with time zone NOT NULL,
    period_ends_at timestamp with time zone NOT NULL,
    CONSTRAINT job_runs_attempt_check CHECK ((attempt >= 1)),
    CONSTRAINT job_runs_bounds_check CHECK ((period_starts_at < period_ends_at)),
    CONSTRAINT job_runs_finished_check CHECK (((state = 'claimed'::text) = (finished_at IS NULL))),
    CONSTRAINT job_runs_job_check CHECK ((job ~ '^[a-z0-9-]{1,40}$'::text)),
    CONSTRAINT job_runs_lease_check CHECK ((lease > '00:00:00'::interval)),
    CONSTRAINT job_runs_period_check CHECK ((period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'::text)),
    CONSTRAINT job_runs_state_check CHECK ((state = ANY (ARRAY['claimed'::text, 'done'::text, 'failed'::text])))
);

CREATE TABLE billing.period_closes (
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    closed_by text NOT NULL,
    closed_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    invoices bigint NOT NULL,
    sums jsonb NOT NULL,
    CONSTRAINT period_closes_job_check CHECK ((job ~ '^[a-z0-9-]{1,40}$'::text)),
    CONSTRAINT period_closes_period_check CHECK ((period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'::text))
);

CREATE TABLE billing.period_events (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT billing.now() NOT NULL,
    job text NOT NULL COLLATE pg_catalog."C",
    period text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL,
    person text NOT NULL,
    why text NOT NULL,
    CONSTRAINT period_events_action_check CHECK ((action = ANY (ARRAY['close'::text, 'reopen'::text, 'rebuild'::text]))),
    CONSTRAINT period_events_person_check CHECK ((person <> ''::text)),
    CONSTRAINT period_events_why_check CHECK (((action = 'close'::text) OR (why <> ''::text)))
);

ALTER TABLE billing.period_events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME billing.period_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW billing.report_charges AS
 SELECT charges.job,
    charges.period,
    charges.account_id,
    charges.name,
    charges.billing_key,
    charges.try,
    charges.idempotency_key,
    charges.state,
    charges.reason,
    charges.amount,
    charges.currency,
    charges.amount_minor,
    charges.payment_intent,
    charges.stripe_customer,
    charges.stripe_account,
    charges.decline_code,
        CASE
            WHEN (charges.amount_minor > 0) THEN trim_scale((((charges.amount_refunded_minor)::numeric * charges.amount) / (charges.amount_minor)::numeric))
            ELSE (0)::numeric
        END AS amount_refunded,
    charges.disputed,
    charges.sends,
    charges.created_at,
    charges.window_opened_at,
    charges.settled_at,
    charges.recorded_by AS run_id,
    charges.request_id
   FROM billing.charges;

CREATE VIEW billing.report_findings AS
 SELECT findings.id,
    findings.kind,
    findings.severity,
    findings.job,
    findings.period,
    findings.account_id,
    findings.billing_key,
    findings.payment_intent,
    findings.currency,
    findings.expected,
    findings.seen,
    findings.opened_at,
    findings.resolved_at,
    findings.resolved_by,
    findings.resolution,
    findings.why
   FROM billing.findings;

CREATE VIEW billing.report_runs AS
 SELECT a.job,
    a.period,
    a.attempt,
    a.run_id,
    a.owner,
    a.build,
    a.claimed_at,
    a.finished_at,
    a.result,
    a.exit_code,
    a.recorded,
    a.sent,
    a.settled,
    a.renewed
   FROM billing.job_run_attempts a;

CREATE TABLE billing.schema_lock (
    lock_id bigint NOT NULL,
    locked boolean DEFAULT false NOT NULL,
    locked_at timestamp with time zone,
    locked_by text,
    lease_expires_at timestamp with time zone,
    updated_at timestamp with time zone
);

CREATE TABLE billing.schema_migrations (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);

ALTER TABLE billing.schema_migrations ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME billing.schema_migrations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE billing.stripe_identity (
    only_row boolean DEFAULT true NOT NULL,
    account_id text NOT NULL,
    livemode boolean NOT NULL,
    pinned_at timestamp with time zone DEFAULT billing.now() NOT NULL,
    pinned_by text NOT NULL,
    CONSTRAINT stripe_identity_account_check CHECK ((account_id ~~ 'acct\_%'::text)),
    CONSTRAINT stripe_identity_only_row_check CHECK (only_row)
);

INSERT INTO billing.accounts VALUES ('a0001', '', 'cus_0001', 'pm_card_visa_0001', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0002', '', 'cus_0002', 'pm_card_visa_0002', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0003', '', 'cus_0003', 'pm_card_chargeCustomerFail_3', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0004', '', 'cus_0004', 'pm_usBankAccount_4', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0005', '', 'cus_0005', 'pm_card_visa_0005', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0006', '', 'cus_0006', 'pm_card_visa_0006', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0007', '', 'cus_0007', 'pm_card_visa_0007', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0008', '', 'cus_0008', 'pm_card_visa_0008', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0009', '', 'cus_0009', 'pm_card_visa_0009', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0010', '', 'cus_0010', 'pm_card_visa_0010', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0011', '', 'cus_0011', 'pm_card_visa_0011', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0012', '', 'cus_0012', 'pm_card_visa_0012', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0013', '', 'cus_0013', 'pm_card_visa_0013', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0014', '', 'cus_0014', 'pm_card_visa_0014', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0015', '', 'cus_0015', 'pm_card_visa_0015', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0016', '', 'cus_0016', 'pm_card_visa_0016', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0017', '', 'cus_0017', 'pm_card_visa_0017', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0018', '', 'cus_0018', 'pm_card_visa_0018', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0019', '', 'cus_0019', '', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');
INSERT INTO billing.accounts VALUES ('a0020', '', 'cus_0020', 'pm_card_visa_0020', 'usd', '', '', 'active', NULL, '2026-11-01 00:05:00.176009+00');

INSERT INTO billing.charge_events VALUES (1, '2026-11-01 00:05:05.376831+00', 'monthly-billing', '2026-10', 'a0001', 1, 'pending', 'succeeded', '', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_30000040000009ZgjXAD2MFI', 'req_000003hWbtJ8lA', '');
INSERT INTO billing.charge_events VALUES (2, '2026-11-01 00:05:06.375409+00', 'monthly-billing', '2026-10', 'a0002', 1, 'pending', 'succeeded', '', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_3000008000000LaZfY0QjIFp', 'req_000007v0nwbFj9', '');
INSERT INTO billing.charge_events VALUES (3, '2026-11-01 00:05:07.438942+00', 'monthly-billing', '2026-10', 'a0003', 1, 'pending', 'declined', 'generic_decline', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_300000C000000Hhnp4BzQ4vu', 'req_00000BbkVemiMW', '');
INSERT INTO billing.charge_events VALUES (4, '2026-11-01 00:05:08.379069+00', 'monthly-billing', '2026-10', 'a0004', 1, 'pending', 'succeeded', '', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_300000F000000EVNFBZiTSXO', 'req_00000E2M4ooUvw', '');
INSERT INTO billing.charge_events VALUES (5, '2026-11-01 00:05:11.376006+00', 'monthly-billing', '2026-10', 'a0007', 1, 'pending', 'succeeded', '', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_300000O000000IMKQaGFYGRL', 'req_00000N1T5SIyQe', '');
INSERT INTO billing.charge_events VALUES (6, '2026-11-01 00:05:12.375867+00', 'monthly-billing', '2026-10', 'a0008', 1, 'pending', 'succeeded', '', 'answer', '01a22a33-7d19-78d7-be33-69a01eb96814', '', 'pi_300000S000000GZHCqvQgR5b', 'req_00000RGzVFyxK0', '');

INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0009', 'monthly-billing/2026-10/a0009', '', 10.09, 'usd', 1009, 'pending', '', 1, 'monthly-billing/2026-10/a0009', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1009&currency=usd&customer=cus_0009&payment_method=pm_card_visa_0009&metadata[billing_account]=a0009&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0009&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xba640d70dd1982242c0d03eb3e413f3e33d33ec26ec5e2dcebf6e771e82ec2b7', '', 'cus_0009', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:35.33511+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:05.33511+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0011', 'monthly-billing/2026-10/a0011', '', 10.11, 'usd', 1011, 'pending', '', 1, 'monthly-billing/2026-10/a0011', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1011&currency=usd&customer=cus_0011&payment_method=pm_card_visa_0011&metadata[billing_account]=a0011&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0011&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x7ff15fc3f8f5813c2418c3e6f657cbdf40e2aab50f6e2c5568b907058753157f', '', 'cus_0011', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:39.334824+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:09.334824+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0012', 'monthly-billing/2026-10/a0012', '', 10.12, 'usd', 1012, 'pending', '', 1, 'monthly-billing/2026-10/a0012', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1012&currency=usd&customer=cus_0012&payment_method=pm_card_visa_0012&metadata[billing_account]=a0012&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0012&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x29a75116788634a54a49a6f18b67fd3bef27960ee43151c21661e0b9faa3511f', '', 'cus_0012', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:39.334824+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:09.334824+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0006', 'monthly-billing/2026-10/a0006', '', 10.06, 'usd', 1006, 'pending', 'no_answer', 1, 'monthly-billing/2026-10/a0006', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1006&currency=usd&customer=cus_0006&payment_method=pm_card_visa_0006&metadata[billing_account]=a0006&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0006&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xffed1032c07f89d0b72dd25409c7a64feead360feec46bda421a8ae35380672a', '', 'cus_0006', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, '2026-11-01 00:05:11.225953+00', 1, 1, 1, 0, '2026-11-01 00:05:05.33511+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0007', 'monthly-billing/2026-10/a0007', '', 10.07, 'usd', 1007, 'succeeded', '', 1, 'monthly-billing/2026-10/a0007', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1007&currency=usd&customer=cus_0007&payment_method=pm_card_visa_0007&metadata[billing_account]=a0007&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0007&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x937b6e8cb51eb9414026dd4d1abb6f29974c40495c1b0bd1dbaa0453838bc8f3', '', 'cus_0007', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.33511+00', 'pi_300000O000000IMKQaGFYGRL', 'succeeded', '', '', 'req_00000N1T5SIyQe', '2026-11-01 00:05:11.376006+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 5, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0008', 'monthly-billing/2026-10/a0008', '', 10.08, 'usd', 1008, 'succeeded', '', 1, 'monthly-billing/2026-10/a0008', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1008&currency=usd&customer=cus_0008&payment_method=pm_card_visa_0008&metadata[billing_account]=a0008&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0008&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x7b4fbfac84be3b9870515d1ddb2a169d37a0c7c7bee9d958293bc48ea1111d95', '', 'cus_0008', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.33511+00', 'pi_300000S000000GZHCqvQgR5b', 'succeeded', '', '', 'req_00000RGzVFyxK0', '2026-11-01 00:05:12.375867+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 6, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0015', 'monthly-billing/2026-10/a0015', '', 10.15, 'usd', 1015, 'pending', '', 1, 'monthly-billing/2026-10/a0015', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1015&currency=usd&customer=cus_0015&payment_method=pm_card_visa_0015&metadata[billing_account]=a0015&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0015&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xf72a655f1884b04374c2880a7ace1a59698bb40242a131e2666b3b3d86e31330', '', 'cus_0015', '2026-10-31 23:55:00.403911+00', NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0016', 'monthly-billing/2026-10/a0016', '', 10.16, 'usd', 1016, 'pending', '', 1, 'monthly-billing/2026-10/a0016', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1016&currency=usd&customer=cus_0016&payment_method=pm_card_visa_0016&metadata[billing_account]=a0016&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0016&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x02109986e017fc899f50b42b74b17bd5a8a90c56828ad1b5f3f6013a6e9ce99c', '', 'cus_0016', '2026-10-31 23:55:00.403911+00', NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0017', 'monthly-billing/2026-10/a0017', '', 10.17, 'usd', 1017, 'pending', '', 1, 'monthly-billing/2026-10/a0017', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1017&currency=usd&customer=cus_0017&payment_method=pm_card_visa_0017&metadata[billing_account]=a0017&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0017&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x4dc4728828b0c09a6abf49200c20e47f9fb283481547044536304a01fe6e4622', '', 'cus_0017', '2026-10-31 23:55:00.403911+00', NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0018', 'monthly-billing/2026-10/a0018', '', 10.18, 'usd', 1018, 'pending', '', 1, 'monthly-billing/2026-10/a0018', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1018&currency=usd&customer=cus_0018&payment_method=pm_card_visa_0018&metadata[billing_account]=a0018&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0018&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x516b9e5a2090c6b57eb5791b88bcd49f973de37dc4a8bc799a183fcb8a9014e8', '', 'cus_0018', '2026-10-31 23:55:00.403911+00', NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0019', 'monthly-billing/2026-10/a0019', '', 10.19, 'usd', NULL, 'skipped', 'no_payment_method', 1, NULL, NULL, NULL, '', 'cus_0019', NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0020', 'monthly-billing/2026-10/a0020', '', 10.20, 'usd', 1020, 'pending', '', 1, 'monthly-billing/2026-10/a0020', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1020&currency=usd&customer=cus_0020&payment_method=pm_card_visa_0020&metadata[billing_account]=a0020&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0020&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xdb5ce955f4c782e929e2033e9a9fbe0676549cc968ed817b6d9b37bbe9320c27', '', 'cus_0020', '2026-10-31 23:55:00.403911+00', NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0002', 'monthly-billing/2026-10/a0002', '', 10.02, 'usd', 1002, 'succeeded', '', 1, 'monthly-billing/2026-10/a0002', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1002&currency=usd&customer=cus_0002&payment_method=pm_card_visa_0002&metadata[billing_account]=a0002&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0002&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x5db861995a1a175c613b75091e2f2f4c18e4200e1e4654471506f229e34adea9', '', 'cus_0002', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.325643+00', 'pi_3000008000000LaZfY0QjIFp', 'succeeded', '', '', 'req_000007v0nwbFj9', '2026-11-01 00:05:06.375409+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 2, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0003', 'monthly-billing/2026-10/a0003', '', 10.03, 'usd', 1003, 'declined', 'generic_decline', 1, 'monthly-billing/2026-10/a0003', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1003&currency=usd&customer=cus_0003&payment_method=pm_card_chargeCustomerFail_3&metadata[billing_account]=a0003&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0003&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x4cf6fc7262ed4f02ddef8402e25451385b56850d79d15f987857285e978501d7', '', 'cus_0003', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.325643+00', 'pi_300000C000000Hhnp4BzQ4vu', 'requires_payment_method', 'generic_decline', 'try_again_later', 'req_00000BbkVemiMW', '2026-11-01 00:05:07.438942+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 3, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0004', 'monthly-billing/2026-10/a0004', '', 10.04, 'usd', 1004, 'succeeded', '', 1, 'monthly-billing/2026-10/a0004', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1004&currency=usd&customer=cus_0004&payment_method=pm_usBankAccount_4&metadata[billing_account]=a0004&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0004&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xa45bcae77783a779eb8f7855095b6a1669a98deaf8a0fff8ce3257422fe84cab', '', 'cus_0004', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.325643+00', 'pi_300000F000000EVNFBZiTSXO', 'succeeded', '', '', 'req_00000E2M4ooUvw', '2026-11-01 00:05:08.379069+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 4, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0013', 'monthly-billing/2026-10/a0013', '', 10.13, 'usd', 1013, 'pending', '', 1, 'monthly-billing/2026-10/a0013', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1013&currency=usd&customer=cus_0013&payment_method=pm_card_visa_0013&metadata[billing_account]=a0013&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0013&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xb9fee872de6dd645152b32a26c30f5d3f676eebe4d69709eca47f19013ba76b2', '', 'cus_0013', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:39.334824+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:09.334824+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0010', 'monthly-billing/2026-10/a0010', '', 10.10, 'usd', 1010, 'pending', '', 1, 'monthly-billing/2026-10/a0010', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1010&currency=usd&customer=cus_0010&payment_method=pm_card_visa_0010&metadata[billing_account]=a0010&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0010&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\x5df9c7ab97dbc4ba9f39eb1f8dce83953e2c6ed81848e2f43dc1c8118a007bd2', '', 'cus_0010', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:35.33511+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:05.33511+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0001', 'monthly-billing/2026-10/a0001', '', 10.01, 'usd', 1001, 'succeeded', '', 1, 'monthly-billing/2026-10/a0001', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1001&currency=usd&customer=cus_0001&payment_method=pm_card_visa_0001&metadata[billing_account]=a0001&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0001&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xfb2aad1ac0a4f3fb02e1960d424e1190ee710270e20154dd05d1b738ef7200d2', '', 'cus_0001', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, NULL, 1, 0, 1, 0, '2026-11-01 00:05:05.325643+00', 'pi_30000040000009ZgjXAD2MFI', 'succeeded', '', '', 'req_000003hWbtJ8lA', '2026-11-01 00:05:05.376831+00', 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', 1, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0014', 'monthly-billing/2026-10/a0014', '', 10.14, 'usd', 1014, 'pending', '', 1, 'monthly-billing/2026-10/a0014', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1014&currency=usd&customer=cus_0014&payment_method=pm_card_visa_0014&metadata[billing_account]=a0014&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0014&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xdbde367253855a7de17e30b6b2a229d0edb2e19c059ce49220eea3cabe072dd7', '', 'cus_0014', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:39.334824+00', NULL, 1, 1, 1, 0, '2026-11-01 00:05:09.334824+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);
INSERT INTO billing.charges VALUES ('monthly-billing', '2026-10', 'a0005', 'monthly-billing/2026-10/a0005', '', 10.05, 'usd', 1005, 'pending', 'no_answer', 1, 'monthly-billing/2026-10/a0005', 'confirm=true&off_session=true&automatic_payment_methods[allow_redirects]=never&automatic_payment_methods[enabled]=true&amount=1005&currency=usd&customer=cus_0005&payment_method=pm_card_visa_0005&metadata[billing_account]=a0005&metadata[billing_key]=monthly-billing%2F2026-10%2Fa0005&metadata[billing_job]=monthly-billing&metadata[billing_period]=2026-10&metadata[billing_try]=1', '\xf6123855cf9a1b56cc8f724c26757bf409007aa000f112435f65bea51bb763f9', '', 'cus_0005', '2026-10-31 23:55:00.403911+00', '01a22a33-7d19-78d7-be33-69a01eb96814', NULL, '2026-11-01 00:05:10.248011+00', 1, 1, 1, 0, '2026-11-01 00:05:05.325643+00', NULL, '', '', '', '', NULL, 0, false, '01a22a33-7d19-78d7-be33-69a01eb96814', '2026-11-01 00:05:02.136474+00', NULL, 0);

INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0001', '', 10.01, 'usd', '', 'invoices.csv', '\xd14df23e5177cc4eff0d8461d7e71d78876034d9c46f22a21abcf17d78fa3e00', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0002', '', 10.02, 'usd', '', 'invoices.csv', '\xd7923785c02f8415ca606690e8200fdf9e4e8d8cf583e0bc4b132d713358b026', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0003', '', 10.03, 'usd', '', 'invoices.csv', '\x07aef55db4ace67a59b321ae1b5426193d134b1f4db1d51660db10ec8bc3070d', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0004', '', 10.04, 'usd', '', 'invoices.csv', '\xd5d715ad2d91a2ffb6839085a3b3c785b3dc9c85ee3e69dd555b5f92e9523764', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0005', '', 10.05, 'usd', '', 'invoices.csv', '\x0970b73b08c242f9e9fb527990d71ab1c6acfc52d4fe5a7629ca20bee945717c', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0006', '', 10.06, 'usd', '', 'invoices.csv', '\xb2051e2af0771d2fdbe3f292b21d86e31f00134f552a6be237dba8c126621e18', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0007', '', 10.07, 'usd', '', 'invoices.csv', '\x5e635c96b0a8c70c0f0f3eef889c8fa2dbe634e98cfafcaf89a54bbba40f64e2', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0008', '', 10.08, 'usd', '', 'invoices.csv', '\xa2833726b43711d8e5754c6e6856c33c8ce48ea9add97989487718d589eb6653', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0009', '', 10.09, 'usd', '', 'invoices.csv', '\x726089ac56d04774b58dff7be4bef09d6fd1979ddaa1c5200f9127d06c53e98f', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0010', '', 10.10, 'usd', '', 'invoices.csv', '\x25c9134f4f2623d8b97e4c72ba467aeaf6cbeb4af184c932e9f0697cd0c93115', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0011', '', 10.11, 'usd', '', 'invoices.csv', '\x2dc727f5834d6a13edf062dee7002f2bcc37898a63e3ee0a49df6a785c77b162', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0012', '', 10.12, 'usd', '', 'invoices.csv', '\xf696c948876cfa6afac2c6473700d0086b805338fbf106d8eeaaf0d9bd68abbf', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0013', '', 10.13, 'usd', '', 'invoices.csv', '\x25e39ead5a353cb1eedaf68f4e4bdc5e165336f026e8d8ba7caac738839f1eb2', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0014', '', 10.14, 'usd', '', 'invoices.csv', '\xa9914ca8bc260c2453e2893565d1645a2169b572871f5b3efe0cf3679f8e45d8', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0015', '', 10.15, 'usd', '', 'invoices.csv', '\x35e6652cf88a208921f39d6ebf93f08f8d2f7a45525ec477af72aa28bf50d829', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0016', '', 10.16, 'usd', '', 'invoices.csv', '\x24dfa31b41c85bd094b218ca718254353c596d1f1e646158ce16e7f1f3c9f199', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0017', '', 10.17, 'usd', '', 'invoices.csv', '\xf7657ec8aed372b9ae9e446315b59a5c41d82c2a3389a2926286881e442c60c0', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0018', '', 10.18, 'usd', '', 'invoices.csv', '\xfb4d9ed2ecc2bf7bb277cf5a9747c922ed9eef87ae8d4ba1b5396a01fe57d9a4', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0019', '', 10.19, 'usd', '', 'invoices.csv', '\x2149ccdec8289bb4f98fb30369065f6ce34f034601a6c010d1b71591bd9cd49b', '2026-11-01 00:05:00.272788+00');
INSERT INTO billing.invoices VALUES ('monthly-billing', '2026-10', 'a0020', '', 10.20, 'usd', '', 'invoices.csv', '\x6bae8b25e1f5aee7a54a6a3b1b669615da93ad1e6d94f2321bdf2c8d811c9244', '2026-11-01 00:05:00.272788+00');

INSERT INTO billing.job_run_attempts VALUES ('monthly-billing', '2026-10', 1, '01a22a33-7d19-78d7-be33-69a01eb96814', 'vm, process 10771', 'development', '2026-11-01 00:05:00.399395+00', NULL, 'claimed', NULL, 0, 0, 0, 0);

INSERT INTO billing.job_runs VALUES ('monthly-billing', '2026-10', 'claimed', 1, '01a22a33-7d19-78d7-be33-69a01eb96814', 'vm, process 10771', '00:02:00', '2026-11-01 00:05:00.399395+00', '2026-11-01 00:05:05.267894+00', '2026-11-01 20:05:00.399395+00', NULL, false, 'UTC', '2026-10-01 00:00:00+00', '2026-11-01 00:00:00+00');

INSERT INTO billing.period_closes VALUES ('monthly-billing', '2026-10', 'tester', '2026-11-01 00:05:00.293594+00', 20, '{"usd": {"count": 20, "amount": "202.1"}}');

INSERT INTO billing.period_events VALUES (1, '2026-11-01 00:05:00.294551+00', 'monthly-billing', '2026-10', 'close', 'tester', '');

INSERT INTO billing.schema_lock VALUES (4097083626, false, NULL, NULL, NULL, '2026-11-30 02:05:46.344344+00');

INSERT INTO billing.schema_migrations VALUES (1, 0, true, '2026-11-30 02:05:46.018897');
INSERT INTO billing.schema_migrations VALUES (2, 1, true, '2026-11-30 02:05:46.078879');
INSERT INTO billing.schema_migrations VALUES (3, 2, true, '2026-11-30 02:05:46.303475');

INSERT INTO billing.stripe_identity VALUES (true, 'acct_emulator', false, '2026-11-01 00:05:00.397035+00', 'vm, process 10771');

SELECT pg_catalog.setval('billing.charge_events_id_seq', 6, true);

SELECT pg_catalog.setval('billing.findings_id_seq', 1, false);

SELECT pg_catalog.setval('billing.period_events_id_seq', 1, true);

SELECT pg_catalog.setval('billing.schema_migrations_id_seq', 3, true);

ALTER TABLE ONLY billing.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (account_id);

ALTER TABLE ONLY billing.charge_events
    ADD CONSTRAINT charge_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY billing.charge_tries
    ADD CONSTRAINT charge_tries_idempotency_key_key UNIQUE (idempotency_key);

ALTER TABLE ONLY billing.charge_tries
    ADD CONSTRAINT charge_tries_pkey PRIMARY KEY (job, period, account_id, try);

ALTER TABLE ONLY billing.charges
    ADD CONSTRAINT charges_billing_key_key UNIQUE (billing_key);

ALTER TABLE ONLY billing.charges
    ADD CONSTRAINT charges_idempotency_key_key UNIQUE (idempotency_key);

ALTER TABLE ONLY billing.charges
    ADD CONSTRAINT charges_pkey PRIMARY KEY (job, period, account_id);

ALTER TABLE ONLY billing.findings
    ADD CONSTRAINT findings_cause_key UNIQUE (kind, billing_key, payment_intent);

ALTER TABLE ONLY billing.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY billing.invoices
    ADD CONSTRAINT invoices_pkey PRIMARY KEY (job, period, account_id);

ALTER TABLE ONLY billing.job_run_attempts
    ADD CONSTRAINT job_run_attempts_pkey PRIMARY KEY (job, period, attempt);

ALTER TABLE ONLY billing.job_run_attempts
    ADD CONSTRAINT job_run_attempts_run_id_key UNIQUE (run_id);

ALTER TABLE ONLY billing.job_runs
    ADD CONSTRAINT job_runs_pkey PRIMARY KEY (job, period);

ALTER TABLE ONLY billing.job_runs
    ADD CONSTRAINT job_runs_run_id_key UNIQUE (run_id);

ALTER TABLE ONLY billing.period_closes
    ADD CONSTRAINT period_closes_pkey PRIMARY KEY (job, period);

ALTER TABLE ONLY billing.period_events
    ADD CONSTRAINT period_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY billing.schema_lock
    ADD CONSTRAINT schema_lock_pkey PRIMARY KEY (lock_id);

ALTER TABLE ONLY billing.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY billing.stripe_identity
    ADD CONSTRAINT stripe_identity_pkey PRIMARY KEY (only_row);

CREATE INDEX charge_events_charge_idx ON billing.charge_events USING btree (job, period, account_id, id);

CREATE UNIQUE INDEX charges_payment_intent_key ON billing.charges USING btree (payment_intent) WHERE (payment_intent IS NOT NULL);

CREATE INDEX charges_pending_idx ON billing.charges USING btree (job, period, sends, account_id) WHERE (state = 'pending'::text);

CREATE INDEX charges_sums_idx ON billing.charges USING btree (job, period, state, currency) INCLUDE (amount_minor, account_id);

CREATE INDEX charges_unsettled_idx ON billing.charges USING btree (job, period, account_id) WHERE (state = ANY (ARRAY['processing'::text, 'action_required'::text]));

CREATE INDEX findings_period_idx ON billing.findings USING btree (job, period);

CREATE TRIGGER charge_events_append_only BEFORE DELETE OR UPDATE ON billing.charge_events FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charge_events_no_truncate BEFORE TRUNCATE ON billing.charge_events FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charge_tries_append_only BEFORE DELETE OR UPDATE ON billing.charge_tries FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charge_tries_no_truncate BEFORE TRUNCATE ON billing.charge_tries FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charges_change_has_event BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN (((new.state <> old.state) AND (NOT (new.last_event IS DISTINCT FROM old.last_event)))) EXECUTE FUNCTION billing.refuse_update('a change of state needs an event');

CREATE TRIGGER charges_evidence_has_event BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN (((old.payment_intent IS NOT NULL) AND (new.payment_intent IS DISTINCT FROM old.payment_intent) AND (NOT (new.last_event IS DISTINCT FROM old.last_event)))) EXECUTE FUNCTION billing.refuse_update('another PaymentIntent needs an event');

CREATE TRIGGER charges_identity_frozen BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN (((((new.job IS DISTINCT FROM old.job) OR (new.period IS DISTINCT FROM old.period)) OR (new.account_id IS DISTINCT FROM old.account_id)) OR (new.billing_key IS DISTINCT FROM old.billing_key))) EXECUTE FUNCTION billing.refuse_update('its identity never changes');

CREATE TRIGGER charges_no_delete BEFORE DELETE ON billing.charges FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charges_no_truncate BEFORE TRUNCATE ON billing.charges FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER charges_try_frozen BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN (((new.try = old.try) AND (old.idempotency_key IS NOT NULL) AND ((((((((new.idempotency_key IS DISTINCT FROM old.idempotency_key) OR (new.body IS DISTINCT FROM old.body)) OR (new.body_sha256 IS DISTINCT FROM old.body_sha256)) OR (new.stripe_account IS DISTINCT FROM old.stripe_account)) OR (new.stripe_customer IS DISTINCT FROM old.stripe_customer)) OR (new.amount_minor IS DISTINCT FROM old.amount_minor)) OR (new.amount IS DISTINCT FROM old.amount)) OR (new.currency IS DISTINCT FROM old.currency)))) EXECUTE FUNCTION billing.refuse_update('the request of a try never changes');

CREATE TRIGGER charges_try_order BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN ((new.try <> old.try)) EXECUTE FUNCTION billing.guard_try_order();

CREATE TRIGGER charges_window_has_event BEFORE UPDATE ON billing.charges FOR EACH ROW WHEN (((new.window_opened_at IS DISTINCT FROM old.window_opened_at) AND (new.window_opened_at IS NOT NULL) AND (NOT (new.last_event IS DISTINCT FROM old.last_event)))) EXECUTE FUNCTION billing.refuse_update('a window is opened by a look, with an event');

CREATE TRIGGER charges_window_not_ahead BEFORE INSERT OR UPDATE OF window_opened_at ON billing.charges FOR EACH ROW WHEN ((new.window_opened_at > billing.now())) EXECUTE FUNCTION billing.refuse_update('a window in the future is none');

CREATE TRIGGER findings_no_delete BEFORE DELETE ON billing.findings FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER findings_no_truncate BEFORE TRUNCATE ON billing.findings FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER invoices_frozen BEFORE DELETE OR UPDATE ON billing.invoices FOR EACH ROW EXECUTE FUNCTION billing.guard_invoice();

CREATE TRIGGER invoices_no_truncate BEFORE TRUNCATE ON billing.invoices FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER job_run_attempts_no_delete BEFORE DELETE ON billing.job_run_attempts FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER job_run_attempts_no_truncate BEFORE TRUNCATE ON billing.job_run_attempts FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER job_runs_done_is_settled BEFORE INSERT OR UPDATE OF state ON billing.job_runs FOR EACH ROW WHEN ((new.state = 'done'::text)) EXECUTE FUNCTION billing.guard_done();

CREATE TRIGGER period_events_append_only BEFORE DELETE OR UPDATE ON billing.period_events FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();

CREATE TRIGGER period_events_no_truncate BEFORE TRUNCATE ON billing.period_events FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

ALTER TABLE ONLY billing.charges
    ADD CONSTRAINT charges_last_event_fkey FOREIGN KEY (last_event) REFERENCES billing.charge_events(id);

