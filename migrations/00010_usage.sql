-- +goose Up

-- metrics are what can be counted and priced, such as api_calls. They come with the
-- prices; an event of another is set aside, because nobody could say what it costs.
CREATE TABLE billing.metrics (
    metric text COLLATE "C" NOT NULL,
    unit   text NOT NULL DEFAULT '',
    CONSTRAINT metrics_pkey PRIMARY KEY (metric),
    CONSTRAINT metrics_metric_check CHECK (metric <> '' AND octet_length(metric) <= 255)
);

-- usage_events is what customers used, one row for each event, as the applications
-- write it: at least once, from many processes, without waiting for one another. So there is
-- no unique key on event_id, and no reference to accounts: an INSERT does not fail for
-- what a meter can set aside. occurred_at is null where the event has no time of
-- its own; then the moment of its arrival counts. received_at and xid are the database's:
-- whoever reads by xid behind the oldest transaction that still runs passes nothing over. An
-- empty event_id is refused, because all of them would be copies of one event.
CREATE TABLE billing.usage_events (
    arrival     bigint GENERATED ALWAYS AS IDENTITY,
    event_id    text COLLATE "C" NOT NULL,
    account_id  text COLLATE "C" NOT NULL,
    metric      text COLLATE "C" NOT NULL,
    quantity    numeric NOT NULL,
    occurred_at timestamptz,
    received_at timestamptz NOT NULL,
    xid         xid8 NOT NULL,
    CONSTRAINT usage_events_pkey PRIMARY KEY (arrival),
    CONSTRAINT usage_events_event_id_check CHECK (event_id <> '')
);
-- What arrived since, what has the same id, and what belongs to some days.
CREATE INDEX usage_events_xid_idx ON billing.usage_events (xid);
CREATE INDEX usage_events_id_idx ON billing.usage_events (hashtextextended(event_id, 0));
CREATE INDEX usage_events_instant_idx ON billing.usage_events ((coalesce(occurred_at, received_at)));
-- +goose StatementBegin
-- The transaction's id is taken first: what was received before a moment has an id
-- below every one that is given out after it. The moments of meters rest on that.
CREATE FUNCTION billing.usage_arrives() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.xid := pg_catalog.pg_current_xact_id();
    NEW.received_at := billing.now();
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_events_arrive BEFORE INSERT ON billing.usage_events
    FOR EACH ROW EXECUTE FUNCTION billing.usage_arrives();
-- One thing may change, by `billing meter --moved` alone: the transaction ids of another
-- cluster mean nothing here.
CREATE TRIGGER usage_events_append_only BEFORE UPDATE ON billing.usage_events
    FOR EACH ROW WHEN (
        coalesce(current_setting('billing.usage_moves', true), '') <> 'yes'
        OR (NEW.arrival, NEW.event_id, NEW.account_id, NEW.metric, NEW.quantity, NEW.occurred_at, NEW.received_at)
           IS DISTINCT FROM
           (OLD.arrival, OLD.event_id, OLD.account_id, OLD.metric, OLD.quantity, OLD.occurred_at, OLD.received_at))
    EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_events_no_delete BEFORE DELETE ON billing.usage_events
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_events_no_truncate BEFORE TRUNCATE ON billing.usage_events
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- job_watermarks says how far the usage of a job is counted: every event with
-- xid < job_watermarks.xid is, if it is not set aside. arrival is the highest that was counted,
-- which tells them from later ones where transaction ids began anew. Whoever counts,
-- releases or invoices locks this row first. While target_xid is set a range is under
-- work: its events are judged, some of its days (usage_due) are not counted yet, and nothing may be invoiced.
-- Everything that was received before "through" is counted. The time zone is pinned
-- by the first meter; settle is how long after a month's end it is waited for
-- what is on its way. system_identifier is the cluster that the ids are of.
CREATE TABLE billing.job_watermarks (
    job               text COLLATE "C" NOT NULL,
    xid               xid8 NOT NULL DEFAULT '0',
    arrival           bigint NOT NULL DEFAULT 0,
    target_xid        xid8,
    target_arrival    bigint,
    through           timestamptz,
    time_zone         text NOT NULL,
    settle            interval NOT NULL DEFAULT '1 hour',
    system_identifier text NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT billing.now(),
    CONSTRAINT job_watermarks_pkey PRIMARY KEY (job),
    CONSTRAINT job_watermarks_job_check CHECK (job ~ '^[a-z0-9-]{1,40}$'),
    CONSTRAINT job_watermarks_settle_check CHECK (settle >= interval '0' AND settle <= interval '31 days'),
    CONSTRAINT job_watermarks_target_check CHECK ((target_xid IS NULL) = (target_arrival IS NULL))
);
CREATE TRIGGER job_watermarks_no_delete BEFORE DELETE ON billing.job_watermarks
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER job_watermarks_no_truncate BEFORE TRUNCATE ON billing.job_watermarks
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- usage_marks are moments of meters: every event that was received before "at" is of a transaction
-- below xid. As soon as the watermark has reached that, "at" is its through, and the row goes.
CREATE TABLE billing.usage_marks (
    job text COLLATE "C" NOT NULL,
    xid xid8 NOT NULL,
    at  timestamptz NOT NULL,
    CONSTRAINT usage_marks_pkey PRIMARY KEY (job, xid)
);

-- usage_due are the days that the range under work touches and that are still to be
-- counted; events is how many of the range they have.
CREATE TABLE billing.usage_due (
    job    text COLLATE "C" NOT NULL,
    day    date NOT NULL,
    events bigint NOT NULL,
    CONSTRAINT usage_due_pkey PRIMARY KEY (job, day)
);

-- usage_set_aside are events that are not counted, and why: until a person releases
-- one. Nothing is deleted. A repeat (same id and content as an event that
-- arrived before) is no trouble, and stays here for good so that it is not counted; a
-- conflict has the id of another event and other content.
CREATE TABLE billing.usage_set_aside (
    job     text COLLATE "C" NOT NULL,
    arrival bigint NOT NULL,
    reason  text NOT NULL,
    detail  text NOT NULL DEFAULT '',
    since   timestamptz NOT NULL DEFAULT billing.now(),
    decided text,
    person  text NOT NULL DEFAULT '',
    why     text NOT NULL DEFAULT '',
    at      timestamptz,
    CONSTRAINT usage_set_aside_pkey PRIMARY KEY (job, arrival),
    CONSTRAINT usage_set_aside_reason_check CHECK (reason IN (
        'repeat', 'conflict', 'nan', 'huge', 'negative', 'future', 'ancient', 'unknown_account', 'unknown_metric')),
    CONSTRAINT usage_set_aside_decided_check CHECK (decided IN ('released', 'dropped')),
    CONSTRAINT usage_set_aside_repeat_check CHECK (reason <> 'repeat' OR decided IS NULL),
    CONSTRAINT usage_set_aside_person_check CHECK (
        CASE WHEN decided IS NULL THEN person = '' AND why = '' AND at IS NULL ELSE person <> '' AND why <> '' AND at IS NOT NULL END)
);
-- The list for people: few, however many repeats there are.
CREATE INDEX usage_set_aside_open_idx ON billing.usage_set_aside (job, reason, arrival) WHERE decided IS NULL AND reason <> 'repeat';
CREATE TRIGGER usage_set_aside_frozen BEFORE UPDATE ON billing.usage_set_aside
    FOR EACH ROW WHEN (
        (NEW.job, NEW.arrival, NEW.reason, NEW.detail, NEW.since) IS DISTINCT FROM (OLD.job, OLD.arrival, OLD.reason, OLD.detail, OLD.since)
        OR (OLD.decided = 'released' AND NEW.decided IS DISTINCT FROM 'released'))
    EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_set_aside_no_delete BEFORE DELETE ON billing.usage_set_aside
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_set_aside_no_truncate BEFORE TRUNCATE ON billing.usage_set_aside
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- usage_history is what people did to usage: which event they released or dropped,
-- that a ledger came to another cluster, and why. arrival is null where it was no single event.
CREATE TABLE billing.usage_history (
    id      bigint GENERATED BY DEFAULT AS IDENTITY,
    at      timestamptz NOT NULL DEFAULT billing.now(),
    job     text COLLATE "C" NOT NULL,
    arrival bigint,
    action  text NOT NULL,
    person  text NOT NULL,
    why     text NOT NULL,
    CONSTRAINT usage_history_pkey PRIMARY KEY (id),
    CONSTRAINT usage_history_action_check CHECK (action IN ('release', 'drop', 'moved')),
    CONSTRAINT usage_history_person_check CHECK (person <> ''),
    CONSTRAINT usage_history_why_check CHECK (why <> '')
);
CREATE INDEX usage_history_arrival_idx ON billing.usage_history (job, arrival);
CREATE TRIGGER usage_history_append_only BEFORE UPDATE OR DELETE ON billing.usage_history
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_history_no_truncate BEFORE TRUNCATE ON billing.usage_history
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- usage_carried are late events: their own month was invoiced when they were counted, so
-- that they are a line of a later one. The key carries each once, for good.
CREATE TABLE billing.usage_carried (
    job         text COLLATE "C" NOT NULL,
    arrival     bigint NOT NULL,
    from_period text COLLATE "C" NOT NULL,
    to_period   text COLLATE "C" NOT NULL,
    account_id  text COLLATE "C" NOT NULL,
    metric      text COLLATE "C" NOT NULL,
    quantity    numeric NOT NULL,
    since       timestamptz NOT NULL DEFAULT billing.now(),
    CONSTRAINT usage_carried_pkey PRIMARY KEY (job, arrival),
    CONSTRAINT usage_carried_from_check CHECK (from_period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'),
    CONSTRAINT usage_carried_to_check CHECK (to_period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$' AND to_period > from_period)
);
CREATE INDEX usage_carried_to_idx ON billing.usage_carried (job, to_period, account_id);
CREATE INDEX usage_carried_from_idx ON billing.usage_carried (job, from_period, account_id);
CREATE TRIGGER usage_carried_append_only BEFORE UPDATE OR DELETE ON billing.usage_carried
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_carried_no_truncate BEFORE TRUNCATE ON billing.usage_carried
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- usage_invoiced says that the usage of a period became invoices, and how far it was counted then:
-- (xid, arrival) is the watermark's position. Its days are frozen; what is counted
-- later is carried.
CREATE TABLE billing.usage_invoiced (
    job     text COLLATE "C" NOT NULL,
    period  text COLLATE "C" NOT NULL,
    at      timestamptz NOT NULL DEFAULT billing.now(),
    person  text NOT NULL,
    xid     xid8 NOT NULL,
    arrival bigint NOT NULL,
    CONSTRAINT usage_invoiced_pkey PRIMARY KEY (job, period),
    CONSTRAINT usage_invoiced_period_check CHECK (period ~ '^[0-9]{4}-(0[1-9]|1[0-2])$')
);
CREATE TRIGGER usage_invoiced_no_delete BEFORE DELETE ON billing.usage_invoiced
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER usage_invoiced_no_truncate BEFORE TRUNCATE ON billing.usage_invoiced
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- daily_usage is what an account used on a day of the billing time zone. It is counted
-- anew from the events of the whole day and overwritten, never added to.
CREATE TABLE billing.daily_usage (
    job        text COLLATE "C" NOT NULL,
    account_id text COLLATE "C" NOT NULL,
    metric     text COLLATE "C" NOT NULL,
    day        date NOT NULL,
    quantity   numeric NOT NULL,
    events     bigint NOT NULL,
    CONSTRAINT daily_usage_pkey PRIMARY KEY (job, account_id, metric, day),
    CONSTRAINT daily_usage_quantity_check CHECK (abs(quantity) < 1e40),
    CONSTRAINT daily_usage_events_check CHECK (events > 0)
);
CREATE INDEX daily_usage_day_idx ON billing.daily_usage (job, day);
-- +goose StatementBegin
CREATE FUNCTION billing.refuse_invoiced_days() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT job, day FROM changed) c
        JOIN billing.usage_invoiced i ON i.job = c.job AND i.period = to_char(c.day, 'YYYY-MM'))
    THEN
        RAISE EXCEPTION 'billing.daily_usage: days of an invoiced period are frozen: % refused', TG_OP
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER daily_usage_frozen AFTER INSERT ON billing.daily_usage
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_invoiced_days();
CREATE TRIGGER daily_usage_frozen_update AFTER UPDATE ON billing.daily_usage
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_invoiced_days();
CREATE TRIGGER daily_usage_frozen_delete AFTER DELETE ON billing.daily_usage
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_invoiced_days();
CREATE TRIGGER daily_usage_no_truncate BEFORE TRUNCATE ON billing.daily_usage
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- +goose StatementBegin
-- While a range is under work some of its events are in their days and others are not: nothing is
-- invoiced from that.
CREATE FUNCTION billing.refuse_half_counted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM billing.job_watermarks w WHERE w.job = NEW.job AND w.target_xid IS NOT NULL) THEN
        RAISE EXCEPTION 'billing.usage_invoiced: the usage of % is half counted; billing meter finishes it', NEW.job
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_invoiced_whole BEFORE INSERT ON billing.usage_invoiced
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_half_counted();
