-- +goose Up

-- A run that finds its period owned by another is counted at the attempt that owns
-- it, whichever host asked: that is how schedules that overlap are seen.
ALTER TABLE billing.job_run_attempts ADD COLUMN refused bigint NOT NULL DEFAULT 0;
ALTER TABLE billing.job_run_attempts ADD CONSTRAINT job_run_attempts_refused_check CHECK (refused >= 0);

CREATE OR REPLACE VIEW billing.report_runs AS
SELECT a.job, a.period, a.attempt, a.run_id, a.owner, a.build, a.claimed_at, a.finished_at, a.result,
       a.exit_code, a.recorded, a.sent, a.settled, a.renewed, a.refused
FROM billing.job_run_attempts a;
