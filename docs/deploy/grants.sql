-- Three roles: one that owns the schema and migrates it, one that runs the month, one that reads.
-- The first four statements once, as a superuser, in the database of the application. Then
-- `billing migrate` as billing_owner, and after every migrate the rest, as billing_owner.

CREATE ROLE billing_owner LOGIN;
CREATE ROLE billing_run LOGIN;
CREATE ROLE billing_read LOGIN;
CREATE SCHEMA billing AUTHORIZATION billing_owner;

-- billing migrate

GRANT USAGE ON SCHEMA billing TO billing_run, billing_read;
GRANT SELECT ON ALL TABLES IN SCHEMA billing TO billing_run, billing_read;

-- No DELETE and no TRUNCATE anywhere; history takes rows and nothing else.
GRANT INSERT, UPDATE ON billing.job_runs, billing.job_run_attempts, billing.period_closes, billing.accounts,
    billing.invoices, billing.charges, billing.findings, billing.stripe_identity, billing.pauses TO billing_run;
GRANT INSERT ON billing.period_events, billing.charge_events, billing.charge_tries,
    billing.approvals, billing.approved_amounts TO billing_run;
GRANT USAGE ON SEQUENCE billing.charge_events_id_seq TO billing_run;
