-- Four roles: one that owns the schema and migrates it, one that runs the month, one for finance, one that reads.
-- The first five statements once, as a superuser, in the database of the application. Then
-- `billing migrate` as billing_owner, and after every migrate the rest, as billing_owner.

CREATE ROLE billing_owner LOGIN;
CREATE ROLE billing_run LOGIN;
CREATE ROLE billing_finance LOGIN;
CREATE ROLE billing_read LOGIN;
CREATE SCHEMA billing AUTHORIZATION billing_owner;

-- billing migrate

GRANT USAGE ON SCHEMA billing TO billing_run, billing_finance, billing_read;
GRANT SELECT ON ALL TABLES IN SCHEMA billing TO billing_run, billing_finance, billing_read;

-- No DELETE and no TRUNCATE of any record; history takes rows and nothing else. What stands in a
-- charge changes by an UPDATE; that its request stays as it is, and that no state changes without
-- an event, is then held by triggers, which these roles can't switch off.
GRANT INSERT, UPDATE ON billing.stripe_identity, billing.job_runs, billing.job_run_attempts, billing.findings,
    billing.accounts, billing.invoices, billing.period_closes TO billing_run, billing_finance;
GRANT UPDATE ON billing.charges TO billing_run, billing_finance;
GRANT INSERT ON billing.charge_events, billing.charge_tries, billing.charge_cancels, billing.period_events TO billing_run, billing_finance;
GRANT USAGE ON SEQUENCE billing.charge_events_id_seq TO billing_run, billing_finance;

-- Only the run records charges. It can't approve its own plan, nor go on when somebody paused it.
GRANT INSERT ON billing.charges TO billing_run;
GRANT INSERT ON billing.approvals, billing.approved_amounts TO billing_finance;
GRANT INSERT, UPDATE ON billing.pauses TO billing_finance;

-- The audit, findings and refunds. Only the notebook of an audit under way is emptied.
GRANT INSERT, UPDATE ON billing.audits, billing.refund_orders TO billing_run, billing_finance;
GRANT INSERT, UPDATE, DELETE ON billing.audit_lists, billing.audit_payments, billing.audit_returns,
    billing.audit_differences TO billing_run, billing_finance;
GRANT INSERT ON billing.finding_events TO billing_run, billing_finance;

-- Messages. Who charges writes them, and sends them; a person looks after them.
GRANT INSERT, UPDATE ON billing.outbox, billing.outbox_lanes TO billing_run, billing_finance;
GRANT INSERT ON billing.outbox_events TO billing_run, billing_finance;
