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

-- Prices, and invoices from usage. Lines go with a change of their invoice by a trigger, and an
-- invoice of which no usage is left by a function, while nothing is charged: no DELETE here either.
GRANT INSERT ON billing.price_lists, billing.invoice_lines, billing.usage_invoiced TO billing_run, billing_finance;
GRANT INSERT, UPDATE ON billing.metrics TO billing_run, billing_finance;
GRANT EXECUTE ON FUNCTION billing.remove_usage_invoices(text, text, text[]) TO billing_run, billing_finance;

-- Usage. A meter writes what it counted over, and its notebook of days and moments is emptied; nothing
-- else is deleted. `billing meter --moved` is for the owner. Applications write events and read
-- nothing; give each a login of its own:
--   GRANT USAGE ON SCHEMA billing TO shop; GRANT INSERT ON billing.usage_events TO shop;
GRANT INSERT ON billing.usage_events, billing.usage_carried, billing.usage_history TO billing_run, billing_finance;
GRANT INSERT, UPDATE ON billing.job_watermarks, billing.usage_set_aside TO billing_run, billing_finance;
GRANT INSERT, UPDATE, DELETE ON billing.daily_usage TO billing_run, billing_finance;
GRANT INSERT, DELETE ON billing.usage_marks, billing.usage_due TO billing_run, billing_finance;
