package main

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
)

const configHelp = `Prints every setting of every command: what it is, and whether that comes from a
flag of this command, the environment, a file (NAME_FILE) or the program. Of
secrets it shows the kind and the last four characters. Variables named BILLING_…
that no command knows are warned of.

Example:
   billing config
   billing config --json

Exit codes: 0 shown   64 usage   78 a setting that can't be read, or two that differ`

func (a *app) configCommand(code *int) *cli.Command {
	return a.command(code, &cli.Command{
		Name: "config", Usage: "show what is set, and where", Description: configHelp,
	}, config)
}

// configJSON is what config adds to --json.
type configJSON struct {
	Settings []settingLine `json:"settings"`
}

func config(_ context.Context, a *app, c *cli.Context) (*result, error) {
	settings := settingsOf(c)
	out := &result{Details: configJSON{settings}}
	t := a.newTable(table.Row{"setting", "value", "from"})
	var problems []settingLine
	for _, s := range settings {
		value := s.Value
		if s.problem != nil {
			problems = append(problems, s)
			value = "?"
		}
		t.AppendRow(table.Row{s.Name, clean(orNone(value)), s.Source})
	}
	if err := a.emit(t.Render() + "\n"); err != nil {
		return out, err
	}
	for _, name := range unknownSettings(settings) {
		a.warn(out, "%s", name)
	}
	if len(problems) == 0 {
		return out, nil
	}
	for _, s := range problems[1:] {
		a.warn(out, "%s: %s", s.Name, s.problem)
	}
	return out, fmt.Errorf("%s: %w", problems[0].Name, problems[0].problem)
}
