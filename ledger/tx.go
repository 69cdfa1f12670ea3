package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/chargeonce/billing/migrations"
)

// Querier reads: a pool, a connection or a transaction. Writes take a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const (
	// beginWrite makes a commit durable whatever the server's default is: a
	// send must never leave for a row that a power cut can take back. A process
	// that stands still in the middle of a transaction must not keep its locks
	// from the one that takes over. Recording a large month takes minutes in one
	// statement, whatever the database allows the application beside it.
	beginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit TO on;" +
		" SET LOCAL idle_in_transaction_session_timeout TO '5s'; SET LOCAL statement_timeout TO 0"
	// beginQueue is beginWrite for statements that take or settle a few rows of a
	// large queue. A table that was just filled has no statistics yet, and the
	// planner then reads all that is pending for each of them. They must go by
	// index, whatever it thinks; that it counts what it must not do as dear is no
	// reason to compile anything.
	beginQueue = beginWrite + "; SET LOCAL jit TO off; SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off;" +
		" SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off; SET LOCAL enable_sort TO off"
	beginRead = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout TO 0"

	// maxTxTries bounds how often a transaction is repeated after a deadlock or
	// a serialization failure. Both are rare here; more means a bug.
	maxTxTries = 6
	// connectTimeout bounds one attempt to reach Postgres.
	connectTimeout = 10 * time.Second
)

// Open connects to Postgres by a URL or by key=value words; an empty one takes
// the PG* variables. It refuses a standby (ErrReadOnly) and a schema that does
// not fit this program (*SchemaError).
func Open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := checkServer(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// addressError is that of an address which can't be used. What pgx says of one quotes
// it, and in one that can't be read nobody can tell the password from the rest.
type addressError struct{ error }

func (e addressError) Error() string {
	text := e.error.Error()
	reason := text[strings.LastIndex(text, "`: ")+1:]
	if reason == text || strings.Contains(reason, "failed to parse as") {
		return "the address is neither a URL nor key=value words; what is no letter or digit in a password is written as %XX in a URL"
	}
	return "the address can't be used" + reason
}

func (e addressError) Unwrap() error { return e.error }

// Connect connects without looking at what is there.
func Connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", addressError{err})
	}
	// Statements are described, not prepared, so that a pooler in transaction
	// mode may stand between.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "billing"
	}
	// A run uses one connection for claiming, one for recording answers, one
	// for the heartbeat and one to spare.
	cfg.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	return pool, nil
}

const sqlServer = `
SELECT pg_is_in_recovery(), to_regclass('billing.schema_migrations') IS NOT NULL`

const sqlSchemaVersion = `
SELECT coalesce(max(version_id), 0) FROM billing.schema_migrations WHERE is_applied`

func checkServer(ctx context.Context, q Querier) error {
	var standby, migrated bool
	if err := q.QueryRow(ctx, sqlServer).Scan(&standby, &migrated); err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	if standby {
		return fmt.Errorf("%w: connect to the primary", ErrReadOnly)
	}
	have, want := int64(0), migrations.Latest()
	if migrated {
		if err := q.QueryRow(ctx, sqlSchemaVersion).Scan(&have); err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
	}
	if have != want {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}

// InTx runs do in one durable read-committed transaction and commits it if do
// returns nil. A deadlock or a serialization failure repeats do, so do must
// touch nothing but the database; no request to Stripe belongs in it.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	return retryTx(ctx, pool, beginWrite, do)
}

// InQueueTx is InTx for ClaimCharges and RecordAnswers: its plans go by index.
func InQueueTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	return retryTx(ctx, pool, beginQueue, do)
}

func retryTx(ctx context.Context, pool *pgxpool.Pool, begin string, do func(tx pgx.Tx) error) error {
	var err error
	for n := range maxTxTries {
		if err = inTx(ctx, pool, pgx.TxOptions{BeginQuery: begin}, do); !isTransient(err) {
			break
		}
		if pause(ctx, time.Duration(n+1)*10*time.Millisecond) != nil {
			break
		}
	}
	return mapError(err)
}

// InReadTx runs do on one snapshot that can't be written to.
func InReadTx(ctx context.Context, pool *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	return mapError(inTx(ctx, pool, pgx.TxOptions{BeginQuery: beginRead}, do))
}

func inTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, do func(tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// A cancelled context must not keep the rollback from reaching the server.
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(clean)
	}()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// isTransient reports a deadlock or a serialization failure: the transaction did
// nothing and may be repeated.
func isTransient(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// IsUnreachable reports that Postgres could not be reached or went away, so that
// what was asked may or may not have happened. A primary that was just demoted is
// away too: the address will lead to the new one.
func IsUnreachable(err error) bool {
	if errors.Is(err, ErrReadOnly) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// Shutting down, crashed, starting up, out of connections, or cut off
		// after standing still in a transaction.
		return pg.Code[:2] == "57" && pg.Code != "57014" || pg.Code[:2] == "08" || pg.Code == "53300" || pg.Code == "25P03"
	}
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) || isConnectionLost(err)
}

// pause waits between d/2 and d.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const sqlNow = `SELECT billing.now()`

// Now is the one clock: what Postgres says the time is.
func Now(ctx context.Context, q Querier) (t time.Time, err error) {
	if err := q.QueryRow(ctx, sqlNow).Scan(&t); err != nil {
		return t, fmt.Errorf("ask Postgres for the time: %w", err)
	}
	return t.UTC(), nil
}
