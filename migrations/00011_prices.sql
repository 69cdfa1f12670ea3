-- +goose Up

-- price_lists are what things cost: one list for a currency and the month from which it is
-- valid, until the next one of the currency. Content is the list as JSON, as
-- `import prices` writes it, whatever the file looked like. A list that was imported
-- again with other prices is a new version; nothing is changed or deleted, so that an
-- invoice can always be computed again from what it was made with.
CREATE TABLE billing.price_lists (
    valid_from  text COLLATE "C" NOT NULL,
    currency    text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    content     text NOT NULL,
    sha256      bytea NOT NULL,
    source      text NOT NULL,
    imported_by text NOT NULL,
    imported_at timestamptz NOT NULL DEFAULT billing.now(),
    CONSTRAINT price_lists_pkey PRIMARY KEY (valid_from, currency, version),
    CONSTRAINT price_lists_valid_from_check CHECK (valid_from ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'),
    CONSTRAINT price_lists_currency_check CHECK (currency ~ '^[a-z]{3}$'),
    CONSTRAINT price_lists_version_check CHECK (version >= 1),
    CONSTRAINT price_lists_sha256_check CHECK (sha256 = sha256(convert_to(content, 'UTF8')))
);
CREATE TRIGGER price_lists_append_only BEFORE UPDATE OR DELETE ON billing.price_lists
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER price_lists_no_truncate BEFORE TRUNCATE ON billing.price_lists
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- invoice_lines are how the amount of an invoice was computed from usage: an invoice with
-- lines is one of `billing invoice`. Quantity is what was used; before is what was
-- invoiced earlier, of late usage; exact is the line's amount with all its digits, and
-- amount its share of the rounded total, which the lines add up to. list_from, currency and
-- list_version name the prices. Lines go with a change of their invoice and are
-- written anew; once it is recorded as a charge they are frozen like it.
CREATE TABLE billing.invoice_lines (
    job          text COLLATE "C" NOT NULL,
    period       text COLLATE "C" NOT NULL,
    account_id   text COLLATE "C" NOT NULL,
    line         integer NOT NULL,
    kind         text NOT NULL,
    metric       text COLLATE "C" NOT NULL DEFAULT '',
    from_period  text COLLATE "C" NOT NULL DEFAULT '',
    before       numeric NOT NULL DEFAULT 0,
    quantity     numeric NOT NULL,
    included     numeric NOT NULL DEFAULT 0,
    unit_price   numeric NOT NULL,
    exact        numeric NOT NULL,
    amount       numeric NOT NULL,
    currency     text COLLATE "C" NOT NULL,
    list_from    text COLLATE "C" NOT NULL,
    list_version integer NOT NULL,
    CONSTRAINT invoice_lines_pkey PRIMARY KEY (job, period, account_id, line),
    CONSTRAINT invoice_lines_invoice_fkey FOREIGN KEY (job, period, account_id) REFERENCES billing.invoices ON DELETE CASCADE,
    CONSTRAINT invoice_lines_list_fkey FOREIGN KEY (list_from, currency, list_version) REFERENCES billing.price_lists,
    CONSTRAINT invoice_lines_line_check CHECK (line >= 1),
    CONSTRAINT invoice_lines_kind_check CHECK (kind IN ('base_fee', 'usage', 'late')),
    CONSTRAINT invoice_lines_metric_check CHECK ((kind = 'base_fee') = (metric = '')),
    CONSTRAINT invoice_lines_from_check CHECK ((kind = 'late') = (from_period <> ''))
);
-- +goose StatementBegin
-- The lines of an invoice that is recorded as a charge are history.
CREATE FUNCTION billing.guard_invoice_line() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    r billing.invoice_lines := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF EXISTS (SELECT FROM billing.charges c
        WHERE c.job = r.job AND c.period = r.period AND c.account_id = r.account_id AND c.state <> 'void') THEN
        RAISE EXCEPTION 'the lines of the invoice of account % for % are recorded as a charge and frozen', r.account_id, r.period
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'invoice_lines_frozen';
    END IF;
    RETURN r;
END $$;
-- +goose StatementEnd
CREATE TRIGGER invoice_lines_frozen BEFORE INSERT OR DELETE ON billing.invoice_lines
    FOR EACH ROW EXECUTE FUNCTION billing.guard_invoice_line();
-- A line never changes: it goes with its invoice's amount, and another is written.
CREATE TRIGGER invoice_lines_no_update BEFORE UPDATE ON billing.invoice_lines
    FOR EACH ROW EXECUTE FUNCTION billing.refuse_change();
CREATE TRIGGER invoice_lines_no_truncate BEFORE TRUNCATE ON billing.invoice_lines
    FOR EACH STATEMENT EXECUTE FUNCTION billing.refuse_change();

-- +goose StatementBegin
-- Lines explain the invoice that they were written for. When a file, or a later
-- `billing invoice`, changes it, they go. Roles have no DELETE of their own, so that it
-- is no function for tables of theirs either.
CREATE FUNCTION billing.drop_stale_lines() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF TG_RELID <> 'billing.invoices'::regclass THEN
        RAISE EXCEPTION 'billing.drop_stale_lines is for billing.invoices alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    DELETE FROM billing.invoice_lines l USING changed c
    WHERE l.job = c.job AND l.period = c.period AND l.account_id = c.account_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION billing.drop_stale_lines() FROM PUBLIC;
CREATE TRIGGER invoices_drop_lines AFTER UPDATE ON billing.invoices
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION billing.drop_stale_lines();

-- +goose StatementBegin
-- The one way to remove an invoice: it came from usage, and of that nothing is left.
-- One that is recorded as a charge is refused by its trigger. Roles have no DELETE of
-- their own.
CREATE FUNCTION billing.remove_usage_invoices(of_job text, of_period text, accounts text[]) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH removed AS (
        DELETE FROM billing.invoices i
        WHERE i.job = of_job AND i.period = of_period AND i.account_id = ANY (accounts)
          AND EXISTS (SELECT FROM billing.invoice_lines l WHERE l.job = i.job AND l.period = i.period AND l.account_id = i.account_id)
        RETURNING 1)
    SELECT count(*) FROM removed;
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION billing.remove_usage_invoices(text, text, text[]) FROM PUBLIC;
