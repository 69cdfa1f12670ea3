package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/billing/gateway"
	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

// cronJob is what these tests need of a CronJob of docs/deploy. Whether the API server takes the file is checked by
// `make deploy`.
type cronJob struct {
	Metadata struct{ Name string }
	Spec     struct {
		JobTemplate struct {
			Spec jobSpec
		} `yaml:"jobTemplate"`
	}
}

type jobSpec struct {
	ActiveDeadlineSeconds int `yaml:"activeDeadlineSeconds"`
	BackoffLimit          int `yaml:"backoffLimit"`
	PodFailurePolicy      struct {
		Rules []struct {
			Action      string
			OnExitCodes *struct{ Values []int } `yaml:"onExitCodes"`
		}
	} `yaml:"podFailurePolicy"`
	Template struct {
		Spec struct {
			TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
			Containers                    []struct {
				Args []string
				Env  []struct {
					Name, Value string
					ValueFrom   *struct {
						FieldRef struct {
							FieldPath string `yaml:"fieldPath"`
						} `yaml:"fieldRef"`
					} `yaml:"valueFrom"`
				}
			}
		}
	}
}

// deployed reads one CronJob of docs/deploy.
func deployed(t testing.TB, name string) jobSpec {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/cronjobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []cronJob }
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for _, job := range list.Items {
		if job.Metadata.Name == name {
			return job.Spec.JobTemplate.Spec
		}
	}
	t.Fatalf("docs/deploy/cronjobs.yaml has no %s", name)
	return jobSpec{}
}

// killed is the exit code of a container that the kernel killed.
const killed = 137

// verdict is what becomes of a Job when a pod of it has failed, in the words of its pod failure policy: Ignore
// starts another without counting, Count another unless that were too many, FailJob none. What no rule names is counted.
func (j jobSpec) verdict(code int) string {
	for _, rule := range j.PodFailurePolicy.Rules {
		if rule.OnExitCodes != nil && slices.Contains(rule.OnExitCodes.Values, code) {
			return rule.Action
		}
	}
	return "Count"
}

// job is one Job of a CronJob at work, as its controller sees it.
type job struct {
	office *office
	spec   jobSpec
	failed int // pods that were counted
	ended  string
}

// cluster has the office run what a CronJob of docs/deploy describes: its arguments, its settings, its secrets as
// files. The Job was scheduled for five past midnight on 1 November.
func (o *office) cluster(name string) *job {
	o.t.Helper()
	j := &job{office: o, spec: deployed(o.t, name)}
	scheduled := time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC)
	files := map[string]string{}
	for _, secret := range []string{"DATABASE_URL", "STRIPE_SECRET_KEY"} {
		files[secret+"_FILE"] = o.file(strings.ToLower(secret), o.env[secret]+"\n")
		delete(o.env, secret)
	}
	for _, e := range j.spec.Template.Spec.Containers[0].Env {
		switch file, secret := files[e.Name]; {
		case secret:
			o.env[e.Name] = file
		case e.ValueFrom != nil:
			o.env[e.Name] = fmt.Sprintf("%s-%d", name, scheduled.Unix()/60)
		default:
			o.env[e.Name] = e.Value
		}
	}
	// The rest is the program's own: what the manifest does not set stands at its default.
	delete(o.env, "BILLING_LEASE")
	delete(o.env, "BILLING_YES")
	return j
}

// pod starts the Job's next one.
func (j *job) pod() process {
	j.office.t.Helper()
	if j.ended != "" {
		j.office.t.Fatalf("a pod of a Job that has ended: %s", j.ended)
	}
	return j.office.start(j.spec.Template.Spec.Containers[0].Args...)
}

// exited tells the controller that a pod ended.
func (j *job) exited(code int) {
	j.office.t.Helper()
	verdict := "Complete"
	if code != 0 {
		verdict = j.spec.verdict(code)
	}
	switch verdict {
	case "Ignore":
	case "Count":
		if j.failed++; j.failed > j.spec.BackoffLimit {
			j.ended = "BackoffLimitExceeded"
		}
	default:
		j.ended = verdict
	}
}

// A pod that is killed for its memory, as often as its Job starts it again, loses at most the lease of its claim each
// time, by the ledger's clock, and the month ends as one clean run would have left it.
func TestAPodThatIsOOMKilledLosesAtMostALease(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(60))
	job := o.cluster("billing-first-days")
	for kill := 1; kill <= 3; kill++ {
		paid := func() int { return one[int](o, `SELECT count(*) FROM billing.charges WHERE state = 'succeeded'`) }
		before := paid()
		o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHang, Method: http.MethodPost, Skip: 10})
		pod := job.pod()
		o.takesOver(kill)
		eventually(t, "the pod has charged some, and waits for answers", func() bool { return paid() > before })
		pod.kill()
		job.exited(killed)
		o.emu.ClearFaults()
		if job.ended != "" || job.failed != kill {
			t.Fatalf("after %d kills %d are counted, the Job has ended: %q", kill, job.failed, job.ended)
		}
	}
	if left := o.states(october)["pending"]; left == 0 {
		t.Fatal("nothing is left for the last pod: the test shows nothing")
	}
	pod := job.pod()
	o.takesOver(4)
	r := pod.wait()
	job.exited(r.code)
	if job.ended != "Complete" {
		t.Fatalf("the Job has ended: %q\n%s", job.ended, r)
	}
	if got := o.states(october); got["succeeded"] != 60 || len(got) != 1 {
		t.Errorf("the month is %v, want 60 that succeeded", got)
	}
	o.mustHaveCountedSends()
	o.mustBeWhole()
}

// takesOver waits until a pod that was just started owns the period, as the given attempt. From the second on it finds
// the claim of the one that was killed, which nobody may take before its lease is over: the clocks are moved there.
func (o *office) takesOver(attempt int) {
	o.t.Helper()
	if attempt > 1 {
		eventually(o.t, "the pod waits for the claim of the dead one", func() bool {
			return one[int](o, `SELECT refused FROM billing.job_run_attempts WHERE attempt = $1`, attempt-1) == 1
		})
		silent := one[time.Time](o, `SELECT heartbeat_at FROM billing.job_runs`)
		if got := one[int](o, `SELECT attempt FROM billing.job_runs`); got != attempt-1 {
			o.t.Fatalf("attempt %d owns the period before the lease is over", got)
		}
		o.advance(silent.Add(billing.DefaultLease).Sub(o.db.Now()))
		eventually(o.t, "the pod takes over", func() bool { return one[int](o, `SELECT attempt FROM billing.job_runs`) == attempt })
		// It looks once a second.
		lost := one[time.Time](o, `SELECT claimed_at FROM billing.job_runs`).Sub(silent)
		if most := billing.DefaultLease + 30*time.Second; lost < billing.DefaultLease || lost > most {
			o.t.Errorf("attempt %d owns the period %s after the last sign of life of the one before, want %s to %s", attempt, lost, billing.DefaultLease, most)
		}
	}
	eventually(o.t, "the pod owns the period", func() bool {
		return one[int](o, `SELECT count(*) FROM billing.job_runs WHERE attempt = $1`, attempt) == 1
	})
}

// Each way in which a run can end leads to what the policy says for it: after 69 and 75 the Job goes on, and its next
// pod finishes the month; after a code that needs somebody it ends at the first.
func TestAJobGoesOnOrEndsAsTheRunDid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code  int
		spoil func(*office)
		ended string // empty if the Job goes on
	}{
		"no invoices yet":      {3, func(o *office) { o.exec(`DELETE FROM billing.period_closes`) }, "FailJob"},
		"a rejected charge":    {4, func(o *office) { o.env["BILLING_BREAKER"] = "0"; o.emu.DeleteCustomer("cus_0002") }, "FailJob"},
		"started by hand":      {64, func(o *office) { o.env["BILLING_K8S_JOB_NAME"] = "billing-by-hand" }, "FailJob"},
		"two rows an account":  {65, twoRows, "FailJob"},
		"Stripe is not there":  {69, func(o *office) { o.emu.Stop() }, ""},
		"a run is at work":     {75, func(o *office) { o.env["BILLING_WAIT"] = "0s"; o.claimedByAnother() }, ""},
		"Stripe takes no key":  {77, func(o *office) { o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultUnauthorized401}) }, "FailJob"},
		"another time zone":    {78, func(o *office) { o.env["BILLING_TIMEZONE"] = "Mars/Phobos" }, "FailJob"},
		"the month is charged": {0, func(*office) {}, "Complete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.imports(october, customers(3))
			job := o.cluster("billing")
			c.spoil(o)
			r := job.pod().wait()
			job.exited(r.code)
			if r.code != c.code || job.ended != c.ended || job.failed != 0 {
				t.Fatalf("exit %d, the Job has ended: %q, and %d pods count; want exit %d, %q and none\n%s", r.code, job.ended, job.failed, c.code, c.ended, r)
			}
			if job.ended != "" {
				return
			}
			o.mended()
			if r = job.pod().wait(); r.code != 0 {
				t.Errorf("the next pod: want exit 0\n%s", r)
			}
			o.mustBeWhole()
		})
	}
}

// The policy has a word for every exit code of the program, and a pod that was killed is started again.
func TestThePodFailurePolicyKnowsEveryExitCode(t *testing.T) {
	t.Parallel()
	want := map[int]string{
		exitStopped: "FailJob", exitNeedsPerson: "FailJob", exitUsage: "FailJob", exitBadInput: "FailJob", exitUnreachable: "Ignore",
		exitBug: "FailJob", exitCannotCreate: "FailJob", exitIOError: "FailJob", exitUnknown: "Ignore", exitNoPermission: "FailJob",
		exitBadConfig: "FailJob", 130: "Ignore", 143: "Ignore", killed: "Count", 1: "Count", 2: "Count",
	}
	for _, name := range []string{"billing-first-days", "billing", "billing-reconcile"} {
		spec := deployed(t, name)
		for code, verdict := range want {
			if got := spec.verdict(code); got != verdict {
				t.Errorf("%s: exit %d: %s, want %s", name, code, got, verdict)
			}
		}
	}
}

// A Job lives longer than its run, so that the program ends by itself and says what is left; and a pod that is asked
// to end has the time to record the answers that are under way.
func TestADeployedRunHasTheTimeItNeeds(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]time.Duration{
		"billing-first-days": billing.DefaultTimeout + billing.DefaultWait,
		"billing":            billing.DefaultTimeout + billing.DefaultWait,
		"billing-reconcile":  claimTimeout,
	} {
		spec := deployed(t, name)
		if deadline := time.Duration(spec.ActiveDeadlineSeconds) * time.Second; deadline <= own {
			t.Errorf("%s: activeDeadlineSeconds is %s, the program takes up to %s", name, deadline, own)
		}
		if grace := time.Duration(spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; grace < gateway.DefaultRequestLife+ledger.PermitLife {
			t.Errorf("%s: terminationGracePeriodSeconds is %s, a request under way lives %s", name, grace, gateway.DefaultRequestLife)
		}
	}
	for name, own := range map[string]time.Duration{"billing.service": billing.DefaultTimeout + billing.DefaultWait, "billing-reconcile.service": claimTimeout} {
		unit, err := os.ReadFile("../../docs/deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for key, least := range map[string]time.Duration{"TimeoutStartSec": own, "TimeoutStopSec": gateway.DefaultRequestLife + ledger.PermitLife} {
			_, rest, _ := strings.Cut(string(unit), "\n"+key+"=")
			value, _, _ := strings.Cut(rest, "\n")
			got, err := time.ParseDuration(strings.NewReplacer("min", "m").Replace(value))
			if err != nil || got < least {
				t.Errorf("%s: %s=%s is less than %s", name, key, value, least)
			}
		}
	}
}

// mended is an office a lease later: Stripe is back, and whoever was at work has gone silent.
func (o *office) mended() {
	o.t.Helper()
	o.emu.ClearFaults()
	if err := o.emu.Restart(); err != nil {
		o.t.Fatal(err)
	}
	o.advance(billing.DefaultLease)
	delete(o.env, "BILLING_WAIT")
}

// twoRows makes the view give one account two debts.
func twoRows(o *office) {
	o.t.Helper()
	o.exec(`ALTER VIEW billing.billable RENAME TO billable_once`)
	o.exec(`CREATE VIEW billing.billable AS SELECT * FROM billing.billable_once UNION ALL SELECT * FROM billing.billable_once`)
}

// claimedByAnother lets another host own the period.
func (o *office) claimedByAnother() {
	o.t.Helper()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultHang, Method: http.MethodPost})
	o.start("run", "--period", october, "--yes")
	eventually(o.t, "another run is at work", func() bool { return o.emu.Posts() > 0 })
}

// restrictedKeys gives the emulator two keys with the rights that the table in docs/deploy lists: one for the run, and
// one that only reads.
func restrictedKeys(t testing.TB) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| (Write|Read) \| (Read) \| (.*) \|$`).FindAllStringSubmatch(string(text), -1) {
		for _, m := range regexp.MustCompile("`((POST|GET) [a-z_*]+)`").FindAllStringSubmatch(row[3], -1) {
			operation, method := m[1], m[2]
			if method == http.MethodGet {
				keys["rk_test_finance"] = append(keys["rk_test_finance"], operation)
			} else if row[1] != "Write" {
				t.Errorf("%s needs more than the right to read", operation)
			}
			keys["rk_test_run"] = append(keys["rk_test_run"], operation)
		}
	}
	return keys
}

// A restricted key with the rights that docs/deploy lists is enough for a month, and one with those of finance for
// everything that only looks; with that one nobody is charged.
func TestARestrictedKeyNeedsOnlyTheRightsThatAreListed(t *testing.T) {
	t.Parallel()
	o := newOffice(t, stripeemu.Config{AnyCustomer: true, RestrictedKeys: restrictedKeys(t)})
	o.imports(october, customers(6))
	o.env["STRIPE_SECRET_KEY"] = "rk_test_run"
	o.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0001"})
	o.env["STRIPE_SECRET_KEY"] = "rk_test_finance"
	o.month(77)
	if n := len(o.emu.PaymentIntents()); n != 5 {
		t.Fatalf("%d payments after a run with a key that may only read, want 5", n)
	}
	o.advance(26 * time.Hour)
	o.must(4, "reconcile", "--period", october)
	o.must(0, "release", "--period", october, "--account", "a0001", "--why", "test")
	o.env["STRIPE_SECRET_KEY"] = "rk_test_run"
	o.month(0)
	if got := o.states(october); got["succeeded"] != 6 || len(got) != 1 {
		t.Errorf("the month is %v, want 6 that succeeded", got)
	}
	o.mustBeWhole()
}
