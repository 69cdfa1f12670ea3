// Package migrations holds the schema as forward-only SQL files and applies
// them. Any number of hosts may apply them at once.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// FS holds the migration files.
//
//go:embed *.sql
var FS embed.FS

const (
	versionTable = "billing.schema_migrations"
	lockTable    = "billing.schema_lock"
)

// Status is one migration and whether this database has it.
type Status struct {
	Version   int64
	Name      string
	AppliedAt time.Time // zero while it is not applied
}

// Latest is the schema version that this build of the program works with.
func Latest() int64 {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil || len(names) == 0 {
		panic("migrations: no files are embedded")
	}
	v, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic("migrations: " + err.Error())
	}
	return v
}

// Up brings the schema of the database at url up to date. It may run on any
// number of hosts at once: a lease in a table lets one of them work, so that it
// also does behind a pooler in transaction mode.
func Up(ctx context.Context, url string, log *slog.Logger) error {
	return withProvider(ctx, url, log, true, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// List says of every migration whether the database at url has it. It takes no lock,
// so that a role which may only read can ask.
func List(ctx context.Context, url string, log *slog.Logger) (list []Status, err error) {
	err = withProvider(ctx, url, log, false, func(p *goose.Provider) error {
		all, err := p.Status(ctx)
		for _, s := range all {
			list = append(list, Status{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
		}
		return err
	})
	return list, err
}

func withProvider(ctx context.Context, url string, log *slog.Logger, alone bool, do func(*goose.Provider) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// No prepared statements: a pooler in transaction mode may stand between.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("migrate: create schema billing: %w", err)
	}
	p, err := provider(db, log, alone)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// Two hosts that create the same bookkeeping table at once collide in
	// Postgres's catalog; the one that lost finds it there the next time.
	for range 5 {
		if err = do(p); !isCatalogRace(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// provider is goose's; alone makes it take the lock first.
func provider(db *sql.DB, log *slog.Logger, alone bool) (*goose.Provider, error) {
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{goose.WithStore(store), goose.WithSlog(log), goose.WithDisableGlobalRegistry(true)}
	if alone {
		locker, err := lock.NewPostgresTableLocker(
			lock.WithTableName(lockTable),
			lock.WithTableLockTimeout(200*time.Millisecond, 1500), // five minutes
			lock.WithTableLogger(log),
			// A role that may not use the table never will, however often it asks.
			lock.WithTableRetryPolicy(func(err error) bool { return !isRefused(err) }),
		)
		if err != nil {
			return nil, err
		}
		options = append(options, goose.WithLocker(locker))
	}
	return goose.NewProvider("", db, FS, options...)
}

func createSchema(ctx context.Context, db *sql.DB) (err error) {
	for range 5 {
		var there bool
		err = db.QueryRowContext(ctx, `SELECT to_regnamespace('billing') IS NOT NULL`).Scan(&there)
		if err != nil || there {
			return err
		}
		if _, err = db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS billing`); !isCatalogRace(err) {
			return err
		}
	}
	return err
}

func isRefused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// isCatalogRace reports the errors of two CREATE … IF NOT EXISTS at once.
func isCatalogRace(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "23505", "42P06", "42P07", "42710":
		return true
	}
	return false
}
