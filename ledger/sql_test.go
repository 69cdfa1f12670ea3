package ledger_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/chargeonce/billing/fixtures/testdb"
	"github.com/chargeonce/billing/ledger"
)

// Every SQL constant of this package is valid against the migrated schema: its
// tables, columns and types exist.
func TestEverySQLConstantPrepares(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	consts := sqlConstants(t)
	if len(consts) < 25 {
		t.Fatalf("found only %d SQL constants; is the search for them broken?", len(consts))
	}
	conn, err := testdb.New(t).Pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	for name, sql := range consts {
		if _, table, found := strings.Cut(sql, "CREATE TEMPORARY TABLE "); found {
			// Some are filled by what they are made of, with nothing as its arguments.
			text, args, err := (pgx.NamedArgs{}).RewriteQuery(ctx, tx.Conn(), sql, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			table, _, _ = strings.Cut(table, " ")
			if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS pg_temp."+table); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := tx.Exec(ctx, text, args...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			delete(consts, name)
		}
	}
	for name, sql := range consts {
		if strings.Contains(sql, "FROM billable_rows") || strings.HasPrefix(sql, "CLOSE ") {
			continue // needs an open cursor; every recording runs it
		}
		if _, after, found := strings.Cut(sql, "CURSOR WITHOUT HOLD FOR"); found {
			sql = after
		}
		text, _, err := (pgx.NamedArgs{}).RewriteQuery(ctx, tx.Conn(), sql, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := tx.Prepare(ctx, "", text); err != nil {
			t.Errorf("%s does not prepare: %v\n%s", name, err, sql)
			_ = tx.Rollback(ctx)
			t.FailNow()
		}
	}
}

// sqlConstants finds the constants named sql… in the package's source.
func sqlConstants(t *testing.T) map[string]string {
	t.Helper()
	pkgs, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // one folder, no build tags
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]ast.Expr{}
	for _, file := range pkgs["ledger"].Files {
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						all[name.Name] = v.Values[i]
					}
				}
			}
		}
	}
	out := map[string]string{}
	for name, expr := range all {
		if strings.HasPrefix(name, "sql") {
			out[name] = constText(t, all, expr)
		}
	}
	return out
}

func constText(t *testing.T, all map[string]ast.Expr, e ast.Expr) string {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	case *ast.Ident:
		return constText(t, all, all[e.Name])
	case *ast.BinaryExpr:
		return constText(t, all, e.X) + constText(t, all, e.Y)
	}
	t.Fatalf("a SQL constant is a %T; write it as text", e)
	return ""
}

// A month that was just imported and recorded has no statistics. What is left to
// record is found all the same without comparing every invoice with every charge.
func TestTheUnrecordedAreFoundWithoutStatistics(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := testdb.New(t)
	const n = 20_000
	for _, sql := range []string{
		`ALTER TABLE billing.charges SET (autovacuum_enabled = off)`, `ALTER TABLE billing.invoices SET (autovacuum_enabled = off)`,
		`INSERT INTO billing.invoices (job, period, account_id, amount, currency, source, content_hash)
		 SELECT 'monthly-billing', '2026-10', 'a' || i, 10, 'usd', 'test', '' FROM generate_series(1, 20000) i`,
		`INSERT INTO billing.charges (job, period, account_id, billing_key, amount, currency, amount_minor, state, idempotency_key, body, body_sha256,
			window_opened_at, recorded_by, created_at)
		 SELECT job, period, account_id, 'monthly-billing/2026-10/' || account_id, 10, 'usd', 1000, 'pending', 'monthly-billing/2026-10/' || account_id,
			'x', sha256('x'), billing.now(), gen_random_uuid(), billing.now() FROM billing.invoices WHERE account_id <> 'a7'`,
	} {
		if _, err := db.Pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	err := ledger.InReadTx(ctx, db.Pool, func(tx pgx.Tx) error {
		// Twenty thousand squared would take minutes.
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout TO '20s'`); err != nil {
			return err
		}
		var found []string
		err := ledger.EachUnrecorded(ctx, tx, ledger.DefaultJob, "2026-10", func(rows []ledger.Billable) error {
			for _, b := range rows {
				found = append(found, b.AccountID)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0] != "a7" {
			t.Errorf("found %d of %d: %v", len(found), n, found)
		}
		s, err := ledger.Summarize(ctx, tx, ledger.DefaultJob, "2026-10")
		if err == nil && s.Unrecorded != 1 {
			t.Errorf("%d unrecorded, want 1", s.Unrecorded)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
