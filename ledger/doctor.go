package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OldestPostgres is the oldest version that the ledger works on, as Postgres
// numbers them.
const OldestPostgres = 150000

// Server is what Postgres says of itself and of the role that asks: what the
// promises of the ledger rest on.
type Server struct {
	VersionNumber  int    // such as 150010
	Version        string // such as 15.10
	Database, Role string
	Superuser      bool
	Standby        bool
	Fsync          bool
	FullPageWrites bool
	// SynchronousCommit is the default of this role in this database; the ledger
	// switches it on for its own transactions.
	SynchronousCommit string
	// SynchronousStandbys is empty if no standby is waited for; Standbys counts
	// those that are connected.
	SynchronousStandbys string
	Standbys            int64
	// TriggersFire is false if this role's sessions run without triggers.
	TriggersFire bool
	// Now is the server's own clock, which billing.now() shows in production.
	Now time.Time
	// Pooled says that what answers is not Postgres itself but a pooler.
	Pooled bool `db:"-"`
}

const sqlServerFacts = `
SELECT current_setting('server_version_num')::integer AS version_number, split_part(current_setting('server_version'), ' ', 1) AS version,
       current_database()::text AS database, current_user::text AS role, pg_is_in_recovery() AS standby,
       coalesce((SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user), false) AS superuser,
       current_setting('fsync')::boolean AS fsync, current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standbys,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys,
       current_setting('session_replication_role') = 'origin' AS triggers_fire,
       clock_timestamp() AS now`

const sqlBackend = `SELECT pg_backend_pid()`

// ReadServer asks Postgres about itself. It needs no schema and no rights.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (s Server, err error) {
	rows, _ := pool.Query(ctx, sqlServerFacts)
	if s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Server]); err != nil {
		return s, fmt.Errorf("ask Postgres about itself: %w", err)
	}
	// A pooler gives its clients process numbers of its own.
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var backend uint32
		err := conn.QueryRow(ctx, sqlBackend).Scan(&backend)
		s.Pooled = backend != conn.Conn().PgConn().PID()
		return err
	})
	if err != nil {
		return s, fmt.Errorf("ask Postgres who answers: %w", err)
	}
	return s, nil
}

// CheckServer returns ErrReadOnly for a standby, and a *SchemaError for a schema
// that does not fit this program.
func CheckServer(ctx context.Context, q Querier) error { return checkServer(ctx, q) }

const sqlGuards = `
SELECT coalesce(bool_or(pg_has_role(c.relowner, 'USAGE')) FILTER (WHERE c.relname = 'charges'), false),
       (SELECT count(*) FROM pg_catalog.pg_trigger t
        WHERE t.tgrelid = ANY (array_agg(c.oid)) AND NOT t.tgisinternal AND t.tgenabled NOT IN ('O', 'A'))
FROM pg_catalog.pg_class c WHERE c.relnamespace = to_regnamespace('billing')::oid AND c.relkind = 'r'`

// ReadGuards says whether this role owns the ledger's tables, and could switch
// off what guards them, and how many of its triggers are switched off.
func ReadGuards(ctx context.Context, q Querier) (owner bool, triggersOff int64, err error) {
	if err := q.QueryRow(ctx, sqlGuards).Scan(&owner, &triggersOff); err != nil {
		return false, 0, fmt.Errorf("look at the ledger's triggers: %w", err)
	}
	return owner, triggersOff, nil
}

// Right is a privilege on a table or sequence of the schema billing, on the schema
// itself, or on the database.
type Right struct{ Object, Privilege string }

func (r Right) String() string { return r.Privilege + " on " + r.Object }

const (
	schemaObject   = "the schema billing"
	databaseObject = "the database"
)

// CommandRights says which rights a role lacks for some commands.
type CommandRights struct {
	Commands []string
	Missing  []Right // none: the role may
}

// commandRights is what commands need besides reading every table. Whoever locks a
// row or a table needs UPDATE on it.
var commandRights = []struct {
	commands        []string
	insert, update  []string
	event, tempfile bool
}{
	{commands: []string{"run"}, event: true, tempfile: true,
		insert: []string{"stripe_identity", "job_runs", "job_run_attempts", "charges", "charge_events", "charge_tries", "findings"},
		update: []string{"stripe_identity", "job_runs", "job_run_attempts", "charges", "findings"}},
	{commands: []string{"reconcile"}, event: true,
		insert: []string{"stripe_identity", "job_runs", "job_run_attempts", "charge_events", "charge_tries", "findings", "period_events"},
		update: []string{"stripe_identity", "job_runs", "job_run_attempts", "charges", "findings", "outbox"}}, // a rebuild leaves what is queued to a person
	{commands: []string{"release", "requeue", "retry-declined"}, event: true,
		insert: []string{"stripe_identity", "job_runs", "job_run_attempts", "charge_events", "charge_tries", "charge_cancels", "findings", "period_events"},
		update: []string{"stripe_identity", "job_runs", "job_run_attempts", "charges", "findings"}},
	{commands: []string{"resolve"}, event: true,
		insert: []string{"stripe_identity", "charge_events", "finding_events", "refund_orders"},
		update: []string{"stripe_identity", "job_runs", "charges", "findings", "refund_orders"}},
	{commands: []string{"void"}, event: true, insert: []string{"charge_events"}, update: []string{"charges"}},
	{commands: []string{"import accounts"}, tempfile: true, insert: []string{"accounts"}, update: []string{"accounts"}},
	{commands: []string{"import invoices"}, tempfile: true,
		insert: []string{"invoices", "period_closes", "period_events"}, update: []string{"invoices", "period_closes", "job_runs"}},
	{commands: []string{"import prices"}, insert: []string{"price_lists", "metrics"}, update: []string{"metrics", "job_watermarks"}},
	{commands: []string{"import usage"}, tempfile: true, insert: []string{"usage_events"}},
	{commands: []string{"meter"}, tempfile: true,
		insert: []string{"job_watermarks", "usage_marks", "usage_due", "usage_set_aside", "usage_carried", "daily_usage"},
		update: []string{"job_watermarks", "daily_usage"}},
	{commands: []string{"usage release", "usage drop"}, tempfile: true,
		insert: []string{"usage_history", "usage_carried", "daily_usage"}, update: []string{"job_watermarks", "usage_set_aside", "daily_usage"}},
	{commands: []string{"invoice"}, tempfile: true,
		insert: []string{"invoices", "invoice_lines", "usage_invoiced", "period_closes", "period_events"},
		update: []string{"invoices", "period_closes", "job_runs", "job_watermarks"}},
	{commands: []string{"close"}, insert: []string{"period_closes", "period_events"}, update: []string{"period_closes", "job_runs"}},
	{commands: []string{"reopen"}, insert: []string{"period_events"}, update: []string{"job_runs"}},
	{commands: []string{"approve"}, insert: []string{"approvals", "approved_amounts"}},
	{commands: []string{"outbox send"}, insert: []string{"outbox_lanes"}, update: []string{"outbox", "outbox_lanes"}},
	{commands: []string{"outbox release", "outbox drop"}, insert: []string{"outbox_events"}, update: []string{"outbox", "outbox_lanes"}},
	{commands: []string{"pause", "resume"}, insert: []string{"pauses"}, update: []string{"pauses"}},
}

const sqlMissingRights = `
SELECT w.object, w.privilege FROM unnest($1::text[], $2::text[]) AS w(object, privilege)
LEFT JOIN pg_catalog.pg_class c ON c.relname = w.object AND c.relnamespace = to_regnamespace('billing')::oid
WHERE NOT coalesce(CASE
    WHEN w.object = 'the schema billing' THEN has_schema_privilege(to_regnamespace('billing')::oid, w.privilege)
    WHEN w.object = 'the database' THEN has_database_privilege(current_database(), w.privilege)
    WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, w.privilege)
    ELSE has_any_column_privilege(c.oid, w.privilege) END, false)`

// The lock of migrations is no part of the ledger.
const sqlUnreadable = `
SELECT c.relname::text FROM pg_catalog.pg_class c
WHERE c.relnamespace = to_regnamespace('billing')::oid AND c.relkind IN ('r', 'v', 'm', 'p', 'f') AND c.relname <> 'schema_lock'
  AND NOT has_any_column_privilege(c.oid, 'SELECT')
ORDER BY 1`

// ReadRights says what this role may do: which tables and views it can't read, and
// what it lacks for each command that writes.
func ReadRights(ctx context.Context, q Querier) (unreadable []Right, commands []CommandRights, err error) {
	unreadable, err = missingRights(ctx, q, []Right{{schemaObject, "USAGE"}})
	if err != nil {
		return nil, nil, err
	}
	rows, _ := q.Query(ctx, sqlUnreadable)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, nil, fmt.Errorf("look at what this role may read: %w", err)
	}
	for _, table := range tables {
		unreadable = append(unreadable, Right{table, "SELECT"})
	}
	for _, c := range commandRights {
		var want []Right
		for _, table := range c.insert {
			want = append(want, Right{table, "INSERT"})
		}
		for _, table := range c.update {
			want = append(want, Right{table, "UPDATE"})
		}
		if c.event {
			want = append(want, Right{"charge_events_id_seq", "USAGE"})
		}
		if c.tempfile {
			want = append(want, Right{databaseObject, "TEMPORARY"})
		}
		missing, err := missingRights(ctx, q, want)
		if err != nil {
			return nil, nil, err
		}
		commands = append(commands, CommandRights{Commands: c.commands, Missing: missing})
	}
	return unreadable, commands, nil
}

func missingRights(ctx context.Context, q Querier, want []Right) ([]Right, error) {
	objects, privileges := make([]string, len(want)), make([]string, len(want))
	for i, r := range want {
		objects[i], privileges[i] = r.Object, r.Privilege
	}
	rows, _ := q.Query(ctx, sqlMissingRights, objects, privileges)
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Right])
	if err != nil {
		return nil, fmt.Errorf("look at what this role may do: %w", err)
	}
	return missing, nil
}

// Column is one of a table or view, with its type as Postgres writes it; of a
// domain the type below it.
type Column struct{ Name, Type string }

const sqlBillableColumns = `
SELECT a.attname::text AS name, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL) AS type
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = to_regnamespace('billing')::oid AND c.relname = 'billable' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum`

// ReadBillableColumns reads the columns of the view billing.billable, none if
// there is no such view.
func ReadBillableColumns(ctx context.Context, q Querier) ([]Column, error) {
	rows, _ := q.Query(ctx, sqlBillableColumns)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Column])
	if err != nil {
		return nil, fmt.Errorf("read the columns of billing.billable: %w", err)
	}
	return list, nil
}

const sqlTryBillable = `
SELECT` + billableColumns + ` FROM billing.billable b WHERE b.job = $1 AND b.period = $2 LIMIT 0`

// TryBillable asks billing.billable what a run asks it, for no rows: its error is
// the one that the run would end with, rights and types included.
func TryBillable(ctx context.Context, q Querier, job Job, period Period) error {
	rows, err := q.Query(ctx, sqlTryBillable, job, period)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return fmt.Errorf("read billing.billable: %w", err)
	}
	return nil
}

// BillableKind is rows of one period that are alike in what can be wrong.
type BillableKind struct {
	Period   string
	Currency string // in lower case
	// Digits is how many an amount has behind the point; nil is no number.
	Digits   *int32
	Nameless bool // without an account id
	Rows     int64
	Example  string // one of the accounts
}

// maxKinds bounds what is read of a view full of nonsense.
const maxKinds = 1000

const sqlBillableKinds = `
SELECT b.period::text AS period, lower(coalesce(b.currency, '')) AS currency, scale(trim_scale(b.amount::numeric)) AS digits,
       b.account_id IS NULL AS nameless, count(*) AS rows, coalesce(min(b.account_id::text), '') AS example
FROM billing.billable b WHERE b.job = $1 AND b.period = ANY ($2)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $3`

// ReadBillableKinds counts what some periods are billed by what can be wrong with it.
func ReadBillableKinds(ctx context.Context, q Querier, job Job, periods []string) ([]BillableKind, error) {
	rows, _ := q.Query(ctx, sqlBillableKinds, job, periods, maxKinds)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[BillableKind])
	if err != nil {
		return nil, fmt.Errorf("read billing.billable: %w", err)
	}
	return list, nil
}

const sqlBillableTwice = `
SELECT b.period::text, b.account_id::text FROM billing.billable b
WHERE b.job = $1 AND b.period = ANY ($2) AND b.account_id IS NOT NULL
GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2 LIMIT 1`

// FindBillableTwice finds an account that billing.billable has twice in a period;
// ErrNotFound if there is none.
func FindBillableTwice(ctx context.Context, q Querier, job Job, periods []string) (period, accountID string, err error) {
	err = q.QueryRow(ctx, sqlBillableTwice, job, periods).Scan(&period, &accountID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", "", fmt.Errorf("an account with two rows: %w", ErrNotFound)
	case err != nil:
		return "", "", fmt.Errorf("look for accounts that billing.billable has twice: %w", err)
	}
	return period, accountID, nil
}
