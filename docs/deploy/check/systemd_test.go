package check

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unit is a unit file: what is set, by name; repeated settings add up.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	settings := map[string][]string{}
	for line := range strings.Lines(string(read(t, "../"+name))) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			t.Fatalf("%s: %q sets nothing", name, line)
		}
		settings[key] = append(settings[key], strings.Fields(value)...)
	}
	return settings
}

func codes(t *testing.T, words []string) (list []int32) {
	t.Helper()
	for _, word := range words {
		code, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, int32(code))
	}
	return list
}

// The unit starts again what the README's table says mends itself, and nothing that needs somebody. A unit that was
// stopped has not failed.
func TestTheServiceFollowsTheTable(t *testing.T) {
	again, somebody := exitCodes(t)
	service := unit(t, "billing.service")
	if diff := cmp.Diff(somebody, codes(t, service["RestartPreventExitStatus"])); diff != "" {
		t.Errorf("RestartPreventExitStatus (-README +unit):\n%s", diff)
	}
	stopped := slices.DeleteFunc(slices.Clone(again), func(code int32) bool { return code < 128 })
	if diff := cmp.Diff(stopped, codes(t, service["SuccessExitStatus"])); diff != "" {
		t.Errorf("SuccessExitStatus (-README +unit):\n%s", diff)
	}
	want := map[string][]string{
		"Type": {"oneshot"}, "Restart": {"on-failure"}, "KillSignal": {"SIGTERM"}, "StartLimitIntervalSec": {"0"},
		"ProtectSystem": {"strict"}, "DynamicUser": {"yes"}, "NoNewPrivileges": {"yes"}, "ExecStart": {"/usr/local/bin/billing", "run", "--yes"},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, service[key]); diff != "" {
			t.Errorf("%s (-want +unit):\n%s", key, diff)
		}
	}
}

// What asks Stripe about open charges, and what sends messages, are the same unit as the month's but for what they do,
// and when. The first decides as a run does.
func TestTheOtherUnitsMayDoNoMoreThanTheRun(t *testing.T) {
	for name, want := range map[string][]string{
		"billing-reconcile": {"reconcile", "--on-absent", "charge"},
		"billing-outbox":    {"outbox", "send"},
	} {
		run, other := unit(t, "billing.service"), unit(t, name+".service")
		if diff := cmp.Diff(append([]string{"/usr/local/bin/billing"}, want...), other["ExecStart"]); diff != "" {
			t.Errorf("ExecStart (-want +unit):\n%s", diff)
		}
		for _, own := range []string{"Description", "ExecStart", "RestartSec", "TimeoutStartSec"} {
			if len(run[own]) == 0 || len(other[own]) == 0 {
				t.Errorf("%s is not set in both", own)
			}
			delete(run, own)
			delete(other, own)
		}
		if diff := cmp.Diff(run, other); diff != "" {
			t.Errorf("the rest (-billing.service +%s.service):\n%s", name, diff)
		}
	}
	timer := unit(t, "billing-reconcile.timer")
	if diff := cmp.Diff([]string{"*-*-*", "12:35:00", "UTC"}, timer["OnCalendar"]); diff != "" {
		t.Errorf("OnCalendar (-want +timer):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"yes"}, timer["Persistent"]); diff != "" {
		t.Errorf("a host that was off starts nothing when it is back:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"*-*-*", "*:00/5:00", "UTC"}, unit(t, "billing-outbox.timer")["OnCalendar"]); diff != "" {
		t.Errorf("messages: OnCalendar (-want +timer):\n%s", diff)
	}
}

// Each secret is a credential, and its setting names the credential's file; no variable holds one.
func TestTheServiceTakesSecretsAsCredentials(t *testing.T) {
	service := unit(t, "billing.service")
	for _, name := range []string{"STRIPE_SECRET_KEY", "DATABASE_URL"} {
		file := strings.ToLower(name)
		if !slices.Contains(service["LoadCredential"], file+":/etc/billing/"+file) || !slices.Contains(service["Environment"], name+"_FILE=%d/"+file) {
			t.Errorf("%s is no credential: %q %q", name, service["LoadCredential"], service["Environment"])
		}
	}
	for _, variable := range service["Environment"] {
		if strings.Contains(variable, "sk_") || strings.HasPrefix(variable, "DATABASE_URL=") {
			t.Errorf("the unit has a secret in %s", variable)
		}
	}
}

// The timer starts the month as often as the CronJobs do.
func TestTheTimerStartsHourlyThenDaily(t *testing.T) {
	timer := unit(t, "billing.timer")
	want := []string{"*-*-01..03", "*:05:00", "UTC", "*-*-04..27", "06:05:00", "UTC"}
	if diff := cmp.Diff(want, timer["OnCalendar"]); diff != "" {
		t.Errorf("OnCalendar (-want +timer):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"yes"}, timer["Persistent"]); diff != "" {
		t.Errorf("a host that was off starts nothing when it is back:\n%s", diff)
	}
}
