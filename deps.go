//go:build deps

package billing

import (
	_ "github.com/bojanz/currency"
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/fergusstrange/embedded-postgres"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-cmp/cmp/cmpopts"
	_ "github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/jedib0t/go-pretty/v6/table"
	_ "github.com/jedib0t/go-pretty/v6/text"
	_ "github.com/lmittmann/tint"
	_ "github.com/peterldowns/pgtestdb"
	_ "github.com/pressly/goose/v3"
	_ "github.com/pressly/goose/v3/database"
	_ "github.com/pressly/goose/v3/lock"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/shopspring/decimal"
	_ "github.com/stripe/stripe-go/v82"
	_ "github.com/testcontainers/testcontainers-go"
	_ "github.com/testcontainers/testcontainers-go/modules/postgres"
	_ "github.com/urfave/cli/v2"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/term"
	_ "golang.org/x/time/rate"
	_ "pgregory.net/rapid"
)
