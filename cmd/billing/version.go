package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/migrations"
)

// commit is the commit that this program was built from: set when it is linked,
// else what the Go tool knows.
var commit = ""

// The library prints one line otherwise.
func init() { cli.VersionPrinter = printVersion }

func printVersion(c *cli.Context) {
	fmt.Fprintf(c.App.Writer, "billing %s\ncommit      %s\nbuilt with  %s for %s/%s\nStripe API  %s\nschema      version %d\n",
		version, commitName(), runtime.Version(), runtime.GOOS, runtime.GOARCH, gateway.APIVersion, migrations.Latest())
}

func commitName() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	name, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			name = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", with changes"
		}
	}
	if name == "" {
		return "unknown"
	}
	return name + changed
}
