package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/ledger"
)

// checkDatabase connects, and keeps the connection for the checks that follow.
func (d *doctor) checkDatabase(ctx context.Context) finding {
	address, err := databaseURL(d.c)
	if err != nil {
		return broken(err, "")
	}
	pool, err := ledger.Connect(ctx, address)
	if err != nil {
		return broken(withoutUser(err, address), unreachableTodo(err))
	}
	d.pool = pool
	server, err := ledger.ReadServer(ctx, pool)
	if err != nil {
		return broken(withoutUser(err, address), unreachableTodo(err))
	}
	d.server = &server
	return fine("database %s as %s", server.Database, server.Role)
}

func unreachableTodo(err error) string {
	if ledger.IsUnreachable(err) {
		return "is it up, and does DATABASE_URL name its host and port?"
	}
	return ""
}

func (d *doctor) checkVersion(context.Context) finding {
	if d.server.VersionNumber < ledger.OldestPostgres {
		return misset("upgrade Postgres", "PostgreSQL %s is too old: 15 is needed", d.server.Version)
	}
	return fine("PostgreSQL %s", d.server.Version)
}

func (d *doctor) checkPrimary(context.Context) finding {
	if d.server.Standby {
		return broken(fmt.Errorf("this is a standby: %w", ledger.ErrReadOnly), "")
	}
	return fine("this is the primary")
}

func (d *doctor) checkSchema(ctx context.Context) finding {
	err := ledger.CheckServer(ctx, d.pool)
	var schema *ledger.SchemaError
	d.empty = errors.As(err, &schema) && schema.Have == 0
	switch {
	case errors.Is(err, ledger.ErrReadOnly):
		return worth("", notChecked+"this is a standby")
	case err != nil:
		return broken(err, "")
	}
	d.fits = true
	return fine("it is what this program needs")
}

// checkRole warns of a role that could undo what guards the ledger.
func (d *doctor) checkRole(ctx context.Context) finding {
	const todo = "run as billing_run of docs/deploy/grants.sql"
	if d.server.Superuser {
		return worth(todo, "%s is a superuser: it can switch off what guards the ledger", d.server.Role)
	}
	owner, _, err := ledger.ReadGuards(ctx, d.pool)
	switch {
	case err != nil:
		return broken(err, "")
	case owner:
		return worth(todo, "%s owns the ledger's tables: it can switch off what guards them", d.server.Role)
	}
	return fine("%s owns nothing of the ledger", d.server.Role)
}

// checkRights says which commands the role can do. One that may record charges is
// meant to run the month, and must have all of its rights; one that may not is
// somebody's who reads, or does some of the work.
func (d *doctor) checkRights(ctx context.Context) finding {
	const todo = "grant again what docs/deploy/grants.sql says: a new table has no rights"
	unreadable, commands, err := ledger.ReadRights(ctx, d.pool)
	if err != nil {
		return broken(err, "")
	}
	if len(unreadable) > 0 {
		return broken(fmt.Errorf("%s lacks %s: %w", d.server.Role, listRights(unreadable), fs.ErrPermission), todo)
	}
	var may, mayNot []string
	runs := false
	for _, c := range commands {
		names := strings.Join(c.Commands, ", ")
		if len(c.Missing) == 0 {
			may, runs = append(may, names), runs || c.Commands[0] == "run"
			continue
		}
		if c.Commands[0] == "run" && !slices.Contains(c.Missing, ledger.Right{Object: "charges", Privilege: "INSERT"}) {
			return broken(fmt.Errorf("%s may not run: it lacks %s: %w", d.server.Role, listRights(c.Missing), fs.ErrPermission), todo)
		}
		mayNot = append(mayNot, names)
	}
	switch {
	case len(mayNot) == 0:
		return fine("%s may run every command; migrate was not looked at", d.server.Role)
	case runs:
		return fine("%s may read and %s; not %s", d.server.Role, strings.Join(may, ", "), strings.Join(mayNot, ", "))
	case len(may) == 0:
		return worth("for a run, connect as billing_run", "%s may read, and change nothing", d.server.Role)
	}
	return worth("for the others, connect as a role that may", "%s may read and %s; not %s", d.server.Role, strings.Join(may, ", "), strings.Join(mayNot, ", "))
}

// maxNamed bounds how many of a kind are named in one line.
const maxNamed = 5

func listRights(rights []ledger.Right) string {
	var names []string
	for _, r := range rights[:min(len(rights), maxNamed)] {
		names = append(names, r.String())
	}
	text := strings.Join(names, ", ")
	if more := len(rights) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (d *doctor) checkTriggers(ctx context.Context) finding {
	const todo = "ALTER TABLE … ENABLE TRIGGER ALL, as the owner; and find out who did it, and what was changed meanwhile"
	if !d.server.TriggersFire {
		return misset("reset session_replication_role of the role and the database", "sessions of %s run without triggers: nothing guards the ledger", d.server.Role)
	}
	_, off, err := ledger.ReadGuards(ctx, d.pool)
	switch {
	case err != nil:
		return broken(err, "")
	case off > 0:
		return misset(todo, "%s that guard the ledger are switched off", plural(off, "trigger", "triggers"))
	}
	return fine("all of them guard the ledger")
}

// checkDurability looks for what could take back a commit after a power cut: a
// send that is forgotten is repeated under a new key.
func (d *doctor) checkDurability(context.Context) finding {
	s := d.server
	switch {
	case !s.Fsync:
		return misset("set fsync = on in postgresql.conf", "fsync is off: a power cut can take back commits, and a send that is forgotten may be sent again")
	case !s.FullPageWrites:
		return worth("set full_page_writes = on, unless the file system writes whole pages", "full_page_writes is off: a power cut can tear a page")
	case s.SynchronousCommit == "off":
		return worth("ALTER DATABASE … RESET synchronous_commit, if the invoices come from tables of your own",
			"synchronous_commit is off here: this program's own commits are durable all the same, those of others are not")
	}
	return fine("fsync, full_page_writes and synchronous_commit are on")
}

func (d *doctor) checkStandbys(context.Context) finding {
	s := d.server
	switch {
	case s.SynchronousStandbys != "" && s.SynchronousCommit == "local":
		return worth("RESET synchronous_commit", "commits wait for no standby unless they say so: synchronous_commit is local")
	case s.SynchronousStandbys != "":
		return fine("commits wait for a standby (%s)", s.SynchronousStandbys)
	case s.Standbys > 0:
		return worth("if one of them may be promoted, name it in synchronous_standby_names",
			"%s, and no commit waits for them: after a failover the last ones may be missing", plural(s.Standbys, "standby is connected", "standbys are connected"))
	}
	return fine("none is connected")
}

// checkPooler makes a transaction, which a pooler in statement mode refuses.
func (d *doctor) checkPooler(ctx context.Context) finding {
	err := ledger.InReadTx(ctx, d.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT 1")
		return err
	})
	switch {
	case err != nil && d.server.Pooled:
		return misset("set pool_mode = transaction", "a pooler stands between, and lets no transaction through: %w", err)
	case err != nil:
		return broken(err, "")
	case d.server.Pooled:
		return fine("a pooler stands between; transaction mode is enough, and migrate works through it too")
	}
	return fine("none stands between")
}
