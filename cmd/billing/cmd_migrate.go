package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/ledger"
	"github.com/chargeonce/billing/migrations"
)

const migrateHelp = `Brings the schema billing in Postgres up to what this program needs. It may run
on any number of hosts at once, and again at any time.

Example:
   billing migrate
   billing migrate --status

Exit codes: 0 up to date   69 Postgres unreachable   77 not allowed
   78 configuration, or a schema that is newer than this program`

func (a *app) migrateCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "migrate", Usage: "bring the database's schema up to date", Description: migrateHelp,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "status", Usage: "list the versions, change nothing"},
		},
	}, migrate)
}

// versionJSON is one version of the schema.
type versionJSON struct {
	Version   int64  `json:"version"`
	Name      string `json:"name"`
	AppliedAt string `json:"applied_at,omitempty"`
}

type migrateJSON struct {
	Version  int64         `json:"version"`
	Applied  []versionJSON `json:"applied"`
	Versions []versionJSON `json:"versions"`
}

func migrate(ctx context.Context, a *app, c *cli.Context) (*result, error) {
	url, err := databaseURL(c)
	if err != nil {
		return nil, err
	}
	have, err := schemaVersion(ctx, url)
	if err != nil {
		return nil, err
	}
	if c.Bool("status") {
		return migrateStatus(ctx, a, url, have)
	}
	if err := migrations.Up(ctx, url, a.log); err != nil {
		return nil, err
	}
	now, err := schemaVersion(ctx, url)
	if err != nil {
		return nil, err
	}
	details, err := listVersions(ctx, a, url, have, now)
	if err != nil {
		return nil, err
	}
	text := ""
	for _, v := range details.Applied {
		text += "applied " + v.Name + "\n"
	}
	if text == "" {
		text = "nothing to do: "
	}
	text += fmt.Sprintf("the schema is at version %d\n", now)
	return &result{Details: details}, a.emit(text)
}

// schemaVersion is what the database has, 0 for nothing. It refuses a standby and
// a schema that is newer than this program.
func schemaVersion(ctx context.Context, url string) (int64, error) {
	pool, err := ledger.Open(ctx, url)
	var schema *ledger.SchemaError
	switch {
	case errors.As(err, &schema) && schema.Have < schema.Want:
		return schema.Have, nil
	case err != nil:
		return 0, withoutUser(err, url)
	}
	pool.Close()
	return migrations.Latest(), nil
}

// listVersions tells versions that this command applied, or saw another host
// apply, from those that were there.
func listVersions(ctx context.Context, a *app, url string, before, now int64) (*migrateJSON, error) {
	list, err := migrations.List(ctx, url, a.log)
	if err != nil {
		return nil, err
	}
	details := &migrateJSON{Version: now, Applied: []versionJSON{}, Versions: []versionJSON{}}
	for _, s := range list {
		v := versionJSON{Version: s.Version, Name: s.Name, AppliedAt: rfc3339(&s.AppliedAt)}
		details.Versions = append(details.Versions, v)
		if s.Version > before && s.Version <= now {
			details.Applied = append(details.Applied, v)
		}
	}
	return details, nil
}

func migrateStatus(ctx context.Context, a *app, url string, have int64) (*result, error) {
	// Listing makes the table of versions, so a database without it is not asked.
	details := &migrateJSON{Applied: []versionJSON{}, Versions: []versionJSON{}}
	if have > 0 {
		var err error
		if details, err = listVersions(ctx, a, url, have, have); err != nil {
			return nil, err
		}
	}
	t := a.newTable(table.Row{"version", "file", "applied"}, 1)
	for _, v := range details.Versions {
		applied := v.AppliedAt
		if applied == "" {
			applied = "not yet"
		}
		t.AppendRow(table.Row{v.Version, v.Name, applied})
	}
	text := t.Render() + "\n"
	switch want := migrations.Latest(); {
	case have == 0:
		text = "the database has no billing schema yet\nnext: billing migrate\n"
	case have < want:
		text += fmt.Sprintf("version %d is needed\nnext: billing migrate\n", want)
	}
	return &result{Details: details}, a.emit(text)
}
