// Package check holds the checks of the files in docs/deploy, by the code that will read them: the
// API server's, Prometheus's, BuildKit's, cron's.
package check

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install" // defaults and conversions
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // defaults and conversions
	apivalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/robfig/cron/v3"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// cronJobs reads cronjobs.yaml as `kubectl apply` would, and refuses what the API server would drop: unknown
// fields and fields given twice.
func cronJobs(t *testing.T) map[string]*batchv1.CronJob {
	t.Helper()
	var list corev1.List
	if err := yaml.UnmarshalStrict(read(t, "../cronjobs.yaml"), &list); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]*batchv1.CronJob{}
	for _, item := range list.Items {
		decoder := json.NewDecoder(bytes.NewReader(item.Raw))
		decoder.DisallowUnknownFields()
		var job batchv1.CronJob
		if err := decoder.Decode(&job); err != nil {
			t.Fatal(err)
		}
		if job.Kind != "CronJob" || job.APIVersion != "batch/v1" {
			t.Errorf("%s: %s %s, want a CronJob of batch/v1", job.Name, job.APIVersion, job.Kind)
		}
		jobs[job.Name] = &job
	}
	return jobs
}

// What the API server checks before it stores a CronJob, it finds right: names, schedules, zones, the rules of the
// pod failure policy, field paths.
func TestTheAPIServerTakesTheCronJobs(t *testing.T) {
	for name, job := range cronJobs(t) {
		job.Namespace = "billing"
		legacyscheme.Scheme.Default(job)
		var internal batch.CronJob
		if err := legacyscheme.Scheme.Convert(job, &internal, nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range validation.ValidateCronJobCreate(&internal, apivalidation.PodValidationOptions{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A namespace that enforces the strictest Pod Security Standard admits the pods.
func TestThePodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, job := range cronJobs(t) {
		pod := job.Spec.JobTemplate.Spec.Template
		results := evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
		for _, r := range results {
			if !r.Allowed {
				t.Errorf("%s: %s %s", name, r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		for _, c := range pod.Spec.Containers {
			if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: the root file system can be written to", name)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: requests and a limit of memory are missing", name)
			}
		}
	}
}

// The pod of a person is the pod of a timer but for its command, its secret, what tells a timer its period, and a
// place for a long file that comes by stdin. Strict decoding finds what the API server would drop.
func TestThePodByHandIsLikeThatOfATimer(t *testing.T) {
	decoder := json.NewDecoder(bytes.NewReader(read(t, "../by-hand.json")))
	decoder.DisallowUnknownFields()
	var pod corev1.Pod
	if err := decoder.Decode(&pod); err != nil {
		t.Fatal(err)
	}
	timer := cronJobs(t)["billing-reconcile"].Spec.JobTemplate.Spec.Template
	if diff := cmp.Diff(timer.Labels, pod.Labels); diff != "" {
		t.Errorf("labels (-timer +by hand):\n%s", diff)
	}
	want := *timer.Spec.DeepCopy()
	want.RestartPolicy, want.TerminationGracePeriodSeconds = "", nil // those that kubectl run gives
	container := &want.Containers[0]
	container.Image, container.Args = "", nil
	container.Env = container.Env[1:] // BILLING_K8S_JOB_NAME
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	want.Volumes[0].Secret.SecretName = "NAME-OF-SECRET" // as the README's by_hand replaces it
	limit := pod.Spec.Volumes[1].EmptyDir.SizeLimit
	want.Volumes = append(want.Volumes, corev1.Volume{
		Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: limit}},
	})
	if diff := cmp.Diff(want, pod.Spec); diff != "" {
		t.Errorf("-timer +by hand:\n%s", diff)
	}
}

// Exit codes lead to what the README's table says: what mends itself is started again without being counted, what
// needs somebody ends the Job, and what the program never ends with (a kill) is counted.
func TestThePodFailurePolicyFollowsTheTable(t *testing.T) {
	again, somebody := exitCodes(t)
	for name, job := range cronJobs(t) {
		spec := job.Spec.JobTemplate.Spec
		rules := spec.PodFailurePolicy.Rules
		disrupted := rules[0]
		if disrupted.Action != batchv1.PodFailurePolicyActionIgnore || len(disrupted.OnPodConditions) != 1 ||
			disrupted.OnPodConditions[0].Type != corev1.DisruptionTarget {
			t.Errorf("%s: the first rule must be that of a disruption, which may come with any exit code", name)
		}
		got := map[batchv1.PodFailurePolicyAction][]int32{}
		for _, rule := range rules[1:] {
			if rule.OnExitCodes.Operator != batchv1.PodFailurePolicyOnExitCodesOpIn || *rule.OnExitCodes.ContainerName != spec.Template.Spec.Containers[0].Name {
				t.Errorf("%s: a rule that is not about the exit codes of the program: %+v", name, rule)
			}
			got[rule.Action] = append(got[rule.Action], rule.OnExitCodes.Values...)
		}
		want := map[batchv1.PodFailurePolicyAction][]int32{batchv1.PodFailurePolicyActionIgnore: again, batchv1.PodFailurePolicyActionFailJob: somebody}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-README +%s):\n%s", name, name, diff)
		}
		if spec.BackoffLimit == nil || *spec.BackoffLimit < 1 {
			t.Errorf("%s: a pod that was killed is not started again", name)
		}
		if spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: with another restart policy the rules count for nothing", name)
		}
	}
}

// Two starts of one CronJob never overlap, a late one is still started, and everything ends.
func TestStartsAreBounded(t *testing.T) {
	for name, job := range cronJobs(t) {
		if job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent {
			t.Errorf("%s: concurrency %q, want Forbid", name, job.Spec.ConcurrencyPolicy)
		}
		if job.Spec.TimeZone == nil || job.Spec.StartingDeadlineSeconds == nil || job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds == nil {
			t.Errorf("%s: timeZone, startingDeadlineSeconds and activeDeadlineSeconds must be given", name)
			continue
		}
		if late := *job.Spec.StartingDeadlineSeconds; late < 3600 {
			t.Errorf("%s: a start that is %d s late is lost", name, late)
		}
		if n := len(job.Name) + len("-29704325"); n > 63 {
			t.Errorf("%s: the name of its Jobs has %d bytes, too many for the label that the program reads", name, n)
		}
	}
}

// The runs of a month are those that the documents promise: hourly on the first three days, daily until the 27th,
// after which a run without --period is refused.
func TestTheMonthIsStartedHourlyThenDaily(t *testing.T) {
	jobs := cronJobs(t)
	var schedules []string
	for _, name := range []string{"billing-first-days", "billing"} {
		schedules = append(schedules, jobs[name].Spec.Schedule)
		if zone := *jobs[name].Spec.TimeZone; zone != "Etc/UTC" {
			t.Errorf("%s: the zone is %s; BILLING_TIMEZONE is UTC", name, zone)
		}
	}
	mustStartHourlyThenDaily(t, schedules)
	if diff := cmp.Diff(jobs["billing-first-days"].Spec.JobTemplate, jobs["billing"].Spec.JobTemplate); diff != "" {
		t.Errorf("the two that run the month differ:\n%s", diff)
	}
}

// Messages are sent every five minutes, once somebody has switched kinds of them on and resumes what sends them.
func TestMessagesWaitUntilTheyAreOn(t *testing.T) {
	outbox := cronJobs(t)["billing-outbox"]
	if outbox.Spec.Schedule != "*/5 * * * *" || outbox.Spec.Suspend == nil || !*outbox.Spec.Suspend {
		t.Errorf("schedule %q, suspended %v", outbox.Spec.Schedule, outbox.Spec.Suspend)
	}
	if diff := cmp.Diff([]string{"outbox", "send"}, outbox.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("args (-want +CronJob):\n%s", diff)
	}
}

// mustStartHourlyThenDaily counts the starts of November 2026 by day.
func mustStartHourlyThenDaily(t *testing.T, schedules []string) {
	t.Helper()
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	starts := map[int]int{}
	for _, text := range schedules {
		schedule, err := cron.ParseStandard(text)
		if err != nil {
			t.Fatal(err)
		}
		for at := schedule.Next(first.Add(-time.Second)); at.Month() == first.Month(); at = schedule.Next(at) {
			starts[at.Day()]++
		}
	}
	want := map[int]int{}
	for day := 1; day <= 27; day++ {
		want[day] = 1
		if day <= 3 {
			want[day] = 24
		}
	}
	if diff := cmp.Diff(want, starts); diff != "" {
		t.Errorf("starts by day (-want +got):\n%s", diff)
	}
}

// Secrets are files of a Secret that is mounted where the settings look for them, the name of the Job comes from the
// label that Kubernetes sets, and no variable holds a secret.
func TestSecretsAreMountedFiles(t *testing.T) {
	for name, job := range cronJobs(t) {
		pod := job.Spec.JobTemplate.Spec.Template.Spec
		container := pod.Containers[0]
		mount := container.VolumeMounts[0]
		if !mount.ReadOnly || pod.Volumes[0].Name != mount.Name || pod.Volumes[0].Secret == nil {
			t.Errorf("%s: no secret is mounted read-only", name)
		}
		env := map[string]string{}
		for _, e := range container.Env {
			env[e.Name] = e.Value
			if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
				env[e.Name] = e.ValueFrom.FieldRef.FieldPath
			}
		}
		for _, secret := range []string{"DATABASE_URL", "STRIPE_SECRET_KEY"} {
			if want := mount.MountPath + "/" + strings.ToLower(secret); env[secret+"_FILE"] != want {
				t.Errorf("%s: %s_FILE is %q, want %q", name, secret, env[secret+"_FILE"], want)
			}
			if _, there := env[secret]; there {
				t.Errorf("%s: %s is a variable", name, secret)
			}
		}
		if got, want := env["BILLING_K8S_JOB_NAME"], "metadata.labels['batch.kubernetes.io/job-name']"; got != want {
			t.Errorf("%s: the Job's name comes from %q, want %q", name, got, want)
		}
	}
}
