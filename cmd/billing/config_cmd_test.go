package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// configured is what config says, by name. The office has no database: none is needed.
func configured(t *testing.T, code int, env map[string]string, args ...string) (outcome, map[string]settingLine) {
	t.Helper()
	o := &office{t: t, env: env}
	r := o.must(code, append([]string{"config", "--json"}, args...)...)
	var res struct{ Details configJSON }
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, r)
	}
	lines := map[string]settingLine{}
	for _, s := range res.Details.Settings {
		if lines[s.Name].Name != "" {
			t.Errorf("%s stands there twice", s.Name)
		}
		lines[s.Name] = s
	}
	return r, lines
}

// Each setting is shown with the place that it comes from, and a flag counts before
// the environment.
func TestConfigSaysWhereEachSettingComesFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("rk_live_0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"STRIPE_SECRET_KEY_FILE": file, "DATABASE_URL": "postgres://billing:hidden-word@db.internal:5432/app?sslmode=verify-full&sslpassword=hidden-too",
		"BILLING_RATE": "40", "BILLING_JOB": "weekly", "BILLING_MAX_TOTAL": "usd=5,eur=4", "BILLING_ALLOW_SAME": "true", "BILLING_LEASE": "90s",
		"BILLING_CHECKIN_URL": "https://hc-ping.com/hidden-uuid", "BILLING_CHECKIN_HEADER": "X-API-Key: hidden-header",
		"PGUSER": "billing_run", "PGPASSWORD": "hidden-word",
	}
	r, lines := configured(t, 0, env, "--job", "monthly")
	for name, want := range map[string]settingLine{
		"DATABASE_URL":           {Value: "postgres://billing@db.internal:5432/app?sslmode=verify-full", Source: fromEnvironment},
		"STRIPE_SECRET_KEY":      {Value: "restricted key rk_live_…cdef", Source: fromFile},
		"STRIPE_API_KEY":         {Value: "", Source: fromDefault},
		"STRIPE_API_BASE":        {Value: "https://api.stripe.com", Source: fromDefault},
		"BILLING_JOB":            {Value: "monthly", Source: fromFlag},
		"BILLING_RATE":           {Value: "40", Source: fromEnvironment},
		"BILLING_LEASE":          {Value: "1m30s", Source: fromEnvironment},
		"BILLING_MAX_TOTAL":      {Value: "usd=5,eur=4", Source: fromEnvironment},
		"BILLING_ALLOW_SAME":     {Value: "true", Source: fromEnvironment},
		"BILLING_TIMEZONE":       {Value: "UTC", Source: fromDefault},
		"BILLING_ON_ABSENT":      {Value: "charge or hold", Source: fromDefault},
		"BILLING_CHECKIN_URL":    {Value: "https://hc-ping.com/…", Source: fromEnvironment},
		"PGUSER":                 {Value: "billing_run", Source: fromEnvironment},
		"PGPASSWORD":             {Value: "set", Source: fromEnvironment},
		"BILLING_CHECKIN_HEADER": {Value: "set", Source: fromEnvironment},
	} {
		if got := lines[name]; got.Value != want.Value || got.Source != want.Source {
			t.Errorf("%s: %q from %s, want %q from %s", name, got.Value, got.Source, want.Value, want.Source)
		}
	}
	people := (&office{t: t, env: env}).must(0, "config").stdout
	for _, text := range []string{r.String(), people} {
		for _, hidden := range []string{"hidden", "0123456789"} {
			if strings.Contains(text, hidden) {
				t.Errorf("a secret is shown:\n%s", text)
			}
		}
	}
	if !regexp.MustCompile(`BILLING_RATE +40 +environment`).MatchString(people) {
		t.Errorf("for people:\n%s", people)
	}
}

// A variable that no command knows is warned of, with the one that was meant, and a
// setting that can't be is refused.
func TestConfigFindsMistakes(t *testing.T) {
	t.Parallel()
	r, _ := configured(t, 0, map[string]string{
		"BILLING_RAET": "40", "BILLING_MAX_TOTALS": "usd=5", "BILLING_RATE_FILE": "/x", "BILLING_NOTHING_LIKE_ANY_OTHER": "1", "BILLINGS": "1",
	})
	want := []string{
		"BILLING_MAX_TOTALS is no setting of this program; BILLING_MAX_TOTAL is", "BILLING_NOTHING_LIKE_ANY_OTHER is no setting of this program",
		"BILLING_RAET is no setting of this program; BILLING_RATE is", "BILLING_RATE_FILE is no setting of this program; BILLING_RATE is, and only secrets stand in files",
	}
	if got := r.json(t).Warnings; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		code int
		env  map[string]string
		says string
	}{
		"two keys":       {78, map[string]string{"STRIPE_SECRET_KEY": "sk_test_a", "STRIPE_API_KEY": "sk_test_b"}, "STRIPE_SECRET_KEY and STRIPE_API_KEY are both set and differ"},
		"no such file":   {78, map[string]string{"DATABASE_URL_FILE": "/nowhere"}, "DATABASE_URL_FILE"},
		"file and text":  {78, map[string]string{"DATABASE_URL": "postgres://a/b", "DATABASE_URL_FILE": "config_cmd_test.go"}, "both set and differ"},
		"no number":      {64, map[string]string{"BILLING_RATE": "fast"}, "BILLING_RATE"},
		"no duration":    {64, map[string]string{"BILLING_LEASE": "2"}, "BILLING_LEASE"},
		"neither yes no": {64, map[string]string{"BILLING_REQUIRE_APPROVAL": "ja"}, "BILLING_REQUIRE_APPROVAL"},
	} {
		r, _ := configured(t, c.code, c.env)
		if message := r.json(t).Error.Message; !strings.Contains(message, c.says) {
			t.Errorf("%s: %q does not say %q", name, message, c.says)
		}
	}
}

// Every variable that a source file of this program names is known to config: one
// that is not would be called a mistake.
func TestConfigKnowsEverySetting(t *testing.T) {
	t.Parallel()
	_, lines := configured(t, 0, nil)
	known := func(name string) bool {
		_, there := lines[name]
		_, withFile := lines[strings.TrimSuffix(name, "_FILE")]
		return there || withFile
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"((?:BILLING|STRIPE)_[A-Z0-9_]+)"|envOf\("([a-z0-9-]+)"\)`)
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range names.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if name == "" {
				name = envOf(m[2])
			}
			if found++; !known(name) {
				t.Errorf("%s: config does not know %s", file, name)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d names; is the search for them broken?", found)
	}
}
