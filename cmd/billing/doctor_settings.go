package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing/gateway"
)

// Where a setting comes from.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromFile        = "file"
	fromDefault     = "default"
)

// settingLine is one thing that can be set, for config and doctor.
type settingLine struct {
	// Name is the environment variable; Flag is empty where there is none.
	Name string `json:"name"`
	Flag string `json:"flag,omitempty"`
	// Value is shown without its secret.
	Value    string   `json:"value"`
	Source   string   `json:"source"`
	Default  string   `json:"default"`
	Commands []string `json:"commands,omitempty"`

	// problem is why a command that uses it would refuse.
	problem error
	// file says that NAME_FILE may hold it.
	file bool
	// hide shows a value without its secret.
	hide func(string) string
}

// plainSettings are those without a flag, or whose value is secret. Those of
// Postgres's own library are shown where they are set.
func plainSettings() []settingLine {
	list := []settingLine{
		{Name: "DATABASE_URL", Flag: "--database-url", file: true, hide: hidePassword},
		{Name: "STRIPE_SECRET_KEY", file: true, hide: hideKey},
		{Name: "STRIPE_API_KEY", file: true, hide: hideKey},
		{Name: "STRIPE_API_BASE", Default: "https://api.stripe.com", hide: hidePassword},
		{Name: "BILLING_LIVE", Default: "false"},
		{Name: "BILLING_K8S_JOB_NAME"},
		{Name: "BILLING_CHECKIN_URL", file: true, hide: hideAddress},
		{Name: "BILLING_CHECKIN_HEADER", file: true, hide: hideText},
		{Name: "BILLING_CHECKIN_BODY", Flag: "--checkin-body", hide: hideText},
		{Name: "BILLING_MESSAGES"},
		{Name: "BILLING_MESSAGES_TWICE"},
		{Name: "BILLING_MAIL_FROM"},
		{Name: "BILLING_MAIL_REPLY_TO"},
		{Name: "BILLING_PAY_URL"},
		{Name: "BILLING_TEMPLATES"},
		{Name: "BILLING_RESEND_API_KEY", file: true, hide: hideText},
		{Name: "BILLING_RESEND_BASE", hide: hidePassword},
		{Name: "BILLING_SMTP_URL", file: true, hide: hidePassword},
		{Name: "BILLING_WEBHOOK_EVENTS"},
		{Name: "BILLING_WEBHOOK_URL", file: true, hide: hideAddresses},
		{Name: "BILLING_WEBHOOK_SECRET", file: true, hide: hideText},
		{Name: "BILLING_WEBHOOK_ALLOW"},
		{Name: "BILLING_WEBHOOK_HTTP", Default: "false"},
		{Name: "BILLING_PUSHGATEWAY", Flag: "--pushgateway", hide: hidePassword},
	}
	for _, name := range []string{"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE", "PGOPTIONS"} {
		if os.Getenv(name) == "" {
			continue
		}
		s := settingLine{Name: name}
		if name == "PGPASSWORD" {
			s.hide = hideText
		}
		list = append(list, s)
	}
	return list
}

// settingsOf lists every setting of every command with its present value.
func settingsOf(c *cli.Context) []settingLine {
	list := plainSettings()
	for i := range list {
		list[i].read(c)
	}
	at := map[string]int{}
	for i, s := range list {
		at[s.Name] = i
	}
	eachCommand(c.App.Commands, "billing", func(path string, cmd *cli.Command) {
		command := strings.TrimPrefix(path, "billing ")
		if cmd == c.Command {
			return // its flags are read already, and no longer tell their defaults
		}
		for _, f := range cmd.Flags {
			s, ok := flagSetting(c, f)
			if !ok {
				continue
			}
			i, seen := at[s.Name]
			if !seen {
				i, at[s.Name] = len(list), len(list)
				list = append(list, s)
			} else if list[i].Flag == s.Flag && !slices.Contains(strings.Split(list[i].Default, " or "), s.Default) && list[i].hide == nil {
				list[i].merge(s)
			}
			list[i].Commands = append(list[i].Commands, command)
		}
	})
	return list
}

// merge adds the default that another command has for the same setting.
func (s *settingLine) merge(other settingLine) {
	if s.Source == fromDefault {
		s.Value += " or " + other.Value
	}
	s.Default += " or " + other.Default
}

// eachCommand visits the commands that do something, with the words that start them.
func eachCommand(commands []*cli.Command, above string, visit func(path string, cmd *cli.Command)) {
	for _, cmd := range commands {
		path := above + " " + cmd.Name
		if len(cmd.Subcommands) > 0 {
			eachCommand(cmd.Subcommands, path, visit)
		} else if !cmd.Hidden {
			visit(path, cmd)
		}
	}
}

// flagSetting reads a flag that can be set by the environment, of a command that
// is not the present one.
func flagSetting(c *cli.Context, f cli.Flag) (s settingLine, ok bool) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok || len(doc.GetEnvVars()) == 0 {
		return s, false
	}
	name := f.Names()[0]
	s = settingLine{Name: doc.GetEnvVars()[0], Flag: "--" + name, Default: doc.GetValue(), Source: fromDefault}
	if b, isBool := f.(*cli.BoolFlag); isBool {
		s.Default = fmt.Sprint(b.Value)
	}
	text, set := os.LookupEnv(s.Name)
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	if err := f.Apply(flags); err != nil {
		// The error of the flag shows the value, which may have got there by mistake.
		s.problem = usagef("%q is not what it must be: see --%s", shorten(text), name)
		s.Source = fromEnvironment
		return s, true
	}
	s.Value = flags.Lookup(name).Value.String()
	if _, isList := f.(*cli.StringSliceFlag); isList {
		s.Value = text
	}
	if set {
		s.Source = fromEnvironment
	}
	if slices.Contains(c.FlagNames(), name) {
		if given := fmt.Sprint(c.Value(name)); !set || given != s.Value {
			s.Value, s.Source = given, fromFlag
		}
	}
	return s, true
}

// read reads a setting by its variable or file.
func (s *settingLine) read(c *cli.Context) {
	value := strings.TrimSpace(os.Getenv(s.Name))
	s.Source = fromEnvironment
	if s.file {
		v, err := secretOf(s.Name)
		if err != nil {
			s.problem = err
			return
		}
		if os.Getenv(s.Name) == "" && v != "" {
			s.Source = fromFile
		}
		value = v
	}
	if s.Flag != "" {
		if given := c.String(strings.TrimPrefix(s.Flag, "--")); given != "" && given != os.Getenv(s.Name) {
			value, s.Source = given, fromFlag
		}
	}
	if s.Name == "STRIPE_API_KEY" {
		// Two names for one setting must not say two things.
		if _, err := secret("STRIPE_SECRET_KEY", "STRIPE_API_KEY"); err != nil {
			s.problem = err
		}
	}
	if value == "" {
		value, s.Source = s.Default, fromDefault
	}
	s.Value = value
	if s.hide != nil && value != "" {
		s.Value = s.hide(value)
	}
}

// unknownSettings says of each variable named BILLING_… that no command knows it.
func unknownSettings(known []settingLine) (warnings []string) {
	var names []string
	for _, s := range known {
		if names = append(names, s.Name); s.file {
			names = append(names, s.Name+"_FILE")
		}
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "BILLING_") || slices.Contains(names, name) {
			continue
		}
		text := name + " is no setting of this program"
		if base, isFile := strings.CutSuffix(name, "_FILE"); isFile && slices.Contains(names, base) {
			text += "; " + base + " is, and only secrets stand in files"
		} else if near := nearest(name, names); near != "" {
			text += "; " + near + " is"
		}
		warnings = append(warnings, text)
	}
	slices.Sort(warnings)
	return warnings
}

// nearest is the name that a mistyped one most likely means, "" for none.
func nearest(name string, names []string) (near string) {
	best := 1 + max(2, len(name)/4)
	for _, other := range names {
		if d := distance(name, other); d < best {
			best, near = d, other
		}
	}
	return near
}

// distance is how many letters must be put in, taken out or changed to get from
// one word to another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// hideKey shows what a key is, and not the key.
func hideKey(key string) string {
	kind, shown := gateway.KeyKind(key)
	return kind + " " + shown
}

// wordValue is a value among key=value words: in quotes, or up to a blank; a backslash
// takes the next character along.
const wordValue = `(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*\\?|\\?)`

var (
	passwordWords = regexp.MustCompile(`(?is)(password\s*=\s*)` + wordValue)
	keyWords      = regexp.MustCompile(`(?is)^(?:\s*[a-z_]+\s*=\s*` + wordValue + `)+\s*$`)
	urlScheme     = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.-]*://`)
)

// hidePassword shows an address without the password that may stand in it.
func hidePassword(text string) string {
	if !urlScheme.MatchString(text) {
		// Something else than words may be anything, a password too.
		if !keyWords.MatchString(text) {
			return "not an address"
		}
		return passwordWords.ReplaceAllString(text, "${1}…")
	}
	u, err := url.Parse(text)
	if err != nil || strayAt(u) {
		return "not an address"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Del(name)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// strayAt reports an @ behind the host: most likely the one that should end a password
// with a /, ? or # in it.
func strayAt(u *url.URL) bool { return strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") }

// hideAddress shows where an address leads, and nothing of what makes it secret.
func hideAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "not an address"
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// hideAddresses is hideAddress of several.
func hideAddresses(text string) string {
	list := strings.Fields(text)
	for i := range list {
		list[i] = hideAddress(list[i])
	}
	return strings.Join(list, " ")
}

// hideText shows that a text is there.
func hideText(string) string { return "set" }

// shorten shows the beginning of a text that may be long, or secret.
func shorten(text string) string {
	const longest = 12
	if r := []rune(text); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return text
}
