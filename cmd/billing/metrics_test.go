package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/chargeonce/billing/fixtures/stripeemu"
	"github.com/chargeonce/billing/ledger"
)

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metricsFile lets an office write metrics, and returns where.
func (o *office) metricsFile() string {
	path := filepath.Join(o.t.TempDir(), "billing.prom")
	o.env["BILLING_METRICS_FILE"] = path
	return path
}

// metricFamilies reads metrics as Prometheus does.
func metricFamilies(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus can't read it: %v\n%s", err, text)
	}
	return families
}

// hasLine wants series with their values to stand in the text.
func hasLine(t *testing.T, text string, lines ...string) {
	t.Helper()
	all := strings.Split(text, "\n")
	for _, line := range lines {
		if !slices.Contains(all, line) {
			t.Errorf("%s is missing in\n%s", line, text)
		}
	}
}

// A month with something of everything is told to Prometheus to the cent, in names
// and types that its linter has nothing to say about, and reconcile tells the same.
func TestTheMetricsOfAMonth(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	list := customers(5)
	list[1].card, list[2].card = "pm_card_chargeDeclined", ""
	list[3].currency, list[3].amount = "jpy", "500"
	o.imports(october, list)
	path := o.metricsFile()
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultRateLimit429, Method: "POST", Account: "a0005", Times: 2})
	o.month(0)
	text := fileText(t, path)
	const labels = `{billing_job="monthly-billing",`
	hasLine(t, text,
		metricCharges+labels+`currency="usd",period="2026-10",state="succeeded"} 2`,
		metricAmount+labels+`currency="usd",period="2026-10",state="succeeded"} 2006`,
		metricCharges+labels+`currency="jpy",period="2026-10",state="succeeded"} 1`,
		metricAmount+labels+`currency="jpy",period="2026-10",state="succeeded"} 500`,
		metricCharges+labels+`currency="usd",period="2026-10",state="declined"} 1`,
		metricCharges+labels+`currency="usd",period="2026-10",state="skipped"} 1`,
		metricUnknown+labels+`period="2026-10"} 0`,
		metricOldestPending+labels+`period="2026-10"} 0`,
		metricClaimsRefused+labels+`period="2026-10"} 0`,
		metricRateLimited+labels+`command="run"} 2`,
		metricLastExitCode+labels+`command="run"} 0`)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("litter beside the file: %v, %v", entries, err)
	}
	success := metricFamilies(t, text)[metricLastSuccess].GetMetric()[0].GetGauge().GetValue()
	done := one[time.Time](o, `SELECT finished_at FROM billing.job_run_attempts`)
	if difference := success - float64(done.UnixMicro())/1e6; difference > 0.01 || difference < -0.01 {
		t.Errorf("the last success is %f, want %s", success, done)
	}

	o.must(0, "reconcile")
	again := fileText(t, path)
	hasLine(t, again, metricLastExitCode+labels+`command="reconcile"} 0`,
		metricAmount+labels+`currency="usd",period="2026-10",state="succeeded"} 2006`)
}

// What is not known, what waits, and what needs a person are numbers too.
func TestTheMetricsOfTrouble(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(3))
	path := o.metricsFile()
	o.chargesUnder(stripeemu.Fault{Name: stripeemu.FaultLoseRequest, Account: "a0002"})
	const labels = `{billing_job="monthly-billing",`
	hasLine(t, fileText(t, path), metricUnknown+labels+`period="2026-10"} 1`, metricLastExitCode+labels+`command="run"} 143`)
	o.exec(`INSERT INTO billing.findings (kind, severity, job, period, account_id, billing_key) VALUES ('duplicate', 'act', 'monthly-billing', '2026-10', 'a0001', 'k')`)
	o.advance(2 * time.Hour)
	o.month(4)
	o.advance(time.Hour)
	text := fileText(t, path)
	hasLine(t, text, metricOpenFindings+labels+`kind="duplicate",period="2026-10",severity="act"} 1`, metricLastExitCode+labels+`command="run"} 4`)
	if strings.Contains(text, "a0001") {
		t.Errorf("an account is in the metrics:\n%s", text)
	}
	families := metricFamilies(t, text)
	var names []string
	var all []*dto.MetricFamily
	for name, family := range families {
		names, all = append(names, name), append(all, family)
	}
	slices.Sort(names)
	want := slices.Sorted(slices.Values(slices.Concat(commandMetrics, ledgerMetrics)))
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-constants +file):\n%s", diff)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
}

// Messages that wait, that nobody takes, or that have no address are numbers too, also
// when nothing but the sender runs.
func TestTheMetricsOfMessages(t *testing.T) {
	t.Parallel()
	o := newOutboxOffice(t)
	path := o.metricsFile()
	o.importMailed(customers(3), "a0002")
	o.month(0)
	const labels = `{billing_job="monthly-billing",`
	waiting := one[int](o.office, `SELECT count(*) FROM billing.outbox WHERE state = 'queued'`)
	hasLine(t, fileText(t, path), fmt.Sprintf(metricMessages+labels+`state="queued"} %d`, waiting), metricMessages+labels+`state="undeliverable"} 1`)
	if waiting < 5 { // two receipts, three webhooks
		t.Errorf("%d messages wait", waiting)
	}
	o.forward(2 * time.Hour)
	o.hook.Stop()
	o.must(75, "outbox", "send")
	text := fileText(t, path)
	hasLine(t, text, metricLastExitCode+labels+`command="outbox send"} 75`, metricMessages+labels+`state="dead"} 0`)
	if age := metricFamilies(t, text)[metricOldestMessage].GetMetric()[0].GetGauge().GetValue(); age < 7200 || age > 7800 {
		t.Errorf("the oldest message has waited for %f s, want two hours", age)
	}
	if err := o.hook.Restart(); err != nil {
		t.Fatal(err)
	}
	o.forward(time.Hour)
	o.must(0, "outbox", "send", "--wait-due", "10s")
	text = fileText(t, path)
	hasLine(t, text, metricMessages+labels+`state="queued"} 0`, metricOldestMessage+`{billing_job="monthly-billing"} 0`)
}

// Where the ledger can't be read, what the file said of it stays, so that an alert
// on the last success does not fall silent with Postgres.
func TestMetricsOutliveThePostgresTheyComeFrom(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(2))
	path := o.metricsFile()
	o.month(0)
	before := metricFamilies(t, fileText(t, path))
	o.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"
	o.month(69)
	text := fileText(t, path)
	hasLine(t, text, metricLastExitCode+`{billing_job="monthly-billing",command="run"} 69`)
	after := metricFamilies(t, text)
	for _, name := range ledgerMetrics {
		if before[name].String() != after[name].String() {
			t.Errorf("%s was %s and is %s", name, before[name], after[name])
		}
	}
}

// Metrics that can't be written are a warning: the money has moved or not.
func TestMetricsThatCantBeWrittenAreAWarning(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	w := newWatcher(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-held })
	t.Cleanup(func() { close(held) })
	o := newOffice(t)
	o.imports(october, customers(2))
	o.env["BILLING_METRICS_FILE"], o.env["BILLING_PUSHGATEWAY"] = filepath.Join(t.TempDir(), "nowhere", "billing.prom"), w.URL
	r := o.month(0, "--json").json(t)
	warnings := strings.Join(r.Warnings, "\n")
	if !strings.Contains(warnings, "the metrics could not be written: --metrics-file: create") || !strings.Contains(warnings, "could not be pushed: --pushgateway: no answer within 3s") {
		t.Errorf("warnings %q", r.Warnings)
	}
	if n := len(w.pings()); n != 1 {
		t.Errorf("the Pushgateway was asked %d times", n)
	}
	for _, bad := range []string{"pushgateway", "ftp://pushgateway:9091", "http://user:secret@pushgateway:9091"} {
		if r := o.month(64, "--pushgateway", bad); strings.Contains(r.stderr, "secret") {
			t.Errorf("the password stands in the output\n%s", r)
		}
	}
}

// A Pushgateway gets the same: the whole group while the ledger can be read, and
// what the command knows of itself where it can't.
func TestAPushgatewayGetsTheSame(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := newOffice(t)
	o.imports(october, customers(2))
	o.env["BILLING_PUSHGATEWAY"] = w.URL
	o.month(0)
	o.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"
	o.month(69)
	pings := w.pings()
	if len(pings) != 2 || pings[0].method != "PUT" || pings[1].method != "POST" || pings[0].path != "/metrics/job/monthly-billing" || pings[1].path != pings[0].path {
		t.Fatalf("%d pushes: %+v", len(pings), w.paths())
	}
	hasLine(t, pings[0].body, metricCharges+`{billing_job="monthly-billing",currency="usd",period="2026-10",state="succeeded"} 2`)
	var names []string
	for name := range metricFamilies(t, pings[1].body) {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(slices.Sorted(slices.Values(commandMetrics)), names); diff != "" {
		t.Errorf("without a ledger (-want +got):\n%s", diff)
	}
}

// Text from a company's own view makes one series of all that is no currency, and
// nothing that it can hold breaks the metrics.
func TestNoTextFromOutsideMakesSeriesWithoutEnd(t *testing.T) {
	t.Parallel()
	charges := []ledger.ChargeMeasure{{State: ledger.ChargeSucceeded, Currency: "usd", Count: 1, AmountMinor: 100}}
	for _, currency := range []string{"", "dollars", "\xff\xfe", "a\"}\n# TYPE x counter"} {
		charges = append(charges, ledger.ChargeMeasure{State: ledger.ChargeSkipped, Currency: currency, Count: 2})
	}
	m := &measurements{
		command: "run", job: "monthly-billing", rateLimited: func() int64 { return 0 }, read: true,
		periods: []ledger.Measures{{Period: october, Charges: charges}},
	}
	m.file = filepath.Join(t.TempDir(), "billing.prom")
	if err := m.writeFile(); err != nil {
		t.Fatal(err)
	}
	text := fileText(t, m.file)
	hasLine(t, text, metricCharges+`{billing_job="monthly-billing",currency="none",period="2026-10",state="skipped"} 8`)
	if n := len(metricFamilies(t, text)[metricCharges].GetMetric()); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}
