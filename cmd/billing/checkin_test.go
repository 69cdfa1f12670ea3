package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chargeonce/billing/fixtures/stripeemu"
)

// watcher is a service that watches cron jobs, with an address of its own.
type watcher struct {
	*httptest.Server
	mu   sync.Mutex
	said []pinged
	// answer is asked for each ping, from 1; nil is 200.
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

// pinged is one message that arrived.
type pinged struct {
	method, path, body string
	query              url.Values
	header             http.Header
}

// checkinSecret is what must stand in no output.
const checkinSecret = "0d3e7d8a-secret"

func newWatcher(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *watcher {
	t.Helper()
	w := &watcher{answer: answer}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.said = append(w.said, pinged{r.Method, strings.TrimPrefix(r.URL.Path, "/"+checkinSecret), string(body), r.URL.Query(), r.Header})
		n := len(w.said)
		w.mu.Unlock()
		if w.answer != nil {
			w.answer(n, rw, r)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *watcher) pings() []pinged {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

// paths are what was asked for, in order.
func (w *watcher) paths() (list []string) {
	for _, p := range w.pings() {
		list = append(list, p.path)
	}
	return list
}

// watched is an office with n customers whose runs check in.
func watched(t *testing.T, n int, w *watcher) *office {
	t.Helper()
	o := newOffice(t)
	o.imports(october, customers(n))
	o.env["BILLING_CHECKIN"], o.env["BILLING_CHECKIN_URL"] = kindHealthchecks, w.URL+"/"+checkinSecret
	return o
}

func (p pinged) checkin(t *testing.T) (ev checkin) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.body), &ev); err != nil {
		t.Fatalf("the body is no JSON: %v\n%s", err, p.body)
	}
	return ev
}

// The run that owns the period says when it starts and what it came to, and no
// later one that finds it done says anything.
func TestTheOwnerChecksIn(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.month(0)
	o.month(0)
	if diff := cmp.Diff([]string{"/start", "/0"}, w.paths()); diff != "" {
		t.Fatalf("pings (-want +got):\n%s", diff)
	}
	id := one[string](o, `SELECT run_id::text FROM billing.job_runs`)
	for _, p := range w.pings() {
		if p.method != "POST" || p.query.Get("rid") != id {
			t.Errorf("%s %s?%s, want a POST of run %s", p.method, p.path, p.query.Encode(), id)
		}
	}
	want := newCheckin(eventComplete)
	want.Job, want.Period, want.RunID, want.Attempt, want.Outcome = "monthly-billing", october, id, 1, "done"
	want.RecordsProcessed, want.Sent, want.Settled, want.Charges["succeeded"] = 3, 3, 3, 3
	if diff := cmp.Diff(want, w.pings()[1].checkin(t)); diff != "" {
		t.Errorf("the last one (-want +got):\n%s", diff)
	}
	if ev := w.pings()[0].checkin(t); ev.Event != eventStart || ev.Sent != 0 || ev.RunID != id {
		t.Errorf("the first one: %+v", ev)
	}
}

// A run that was refused says nothing to the monitor and is counted in the ledger,
// from where the metrics of any host tell of it.
func TestARefusedRunChecksInNowhereAndIsCounted(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	owner := o.start("run", "--period", october)
	eventually(t, "an answer is held", func() bool { return o.emu.Held() == 1 })
	for range 2 {
		o.month(75, "--wait", "0s")
	}
	if n := one[int](o, `SELECT refused FROM billing.report_runs`); n != 2 {
		t.Errorf("%d refused claims are counted, want 2", n)
	}
	o.emu.Release()
	if r := owner.wait(); r.code != 0 {
		t.Fatalf("the owner\n%s", r)
	}
	if diff := cmp.Diff([]string{"/start", "/0"}, w.paths()); diff != "" {
		t.Errorf("pings (-want +got):\n%s", diff)
	}
}

// An owner that is killed leaves its start without an end, and the one that takes
// over checks in as itself.
func TestAKilledOwnerLeavesItsStartOpen(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	owner := o.start("run", "--period", october)
	eventually(t, "it is at work and the monitor knows", func() bool { return o.emu.Held() == 1 && len(w.paths()) == 1 })
	owner.kill()
	o.emu.Release()
	o.month(0)
	pings := w.pings()
	if diff := cmp.Diff([]string{"/start", "/start", "/0"}, w.paths()); diff != "" {
		t.Fatalf("pings (-want +got):\n%s", diff)
	}
	first, second, last := pings[0].query.Get("rid"), pings[1].query.Get("rid"), pings[2].query.Get("rid")
	if first == second || second != last {
		t.Errorf("runs %s, then %s, which ended as %s", first, second, last)
	}
	if ev := pings[2].checkin(t); ev.Attempt != 2 || ev.RecordsProcessed != 3 {
		t.Errorf("the end: %+v", ev)
	}
}

// An owner that was frozen and lost its period to another does not speak for it.
func TestAnOwnerThatLostItsPeriodSaysNothing(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 2, w)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	owner := o.start("run", "--period", october)
	eventually(t, "it is at work and the monitor knows", func() bool { return o.emu.Held() == 1 && len(w.paths()) == 1 })
	o.exec(`UPDATE billing.job_runs SET attempt = attempt + 1, run_id = gen_random_uuid(), owner = 'another host'`)
	o.emu.Release()
	if r := owner.wait(); r.code != 75 {
		t.Errorf("want exit 75\n%s", r)
	}
	if diff := cmp.Diff([]string{"/start"}, w.paths()); diff != "" {
		t.Errorf("pings (-want +got):\n%s", diff)
	}
}

// A run that fails says so with its exit code and the reason, and nothing that was
// said has an account, an amount of one, or the key in it.
func TestAFailedRunSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.month(3, "--max-total", "usd=1")
	if diff := cmp.Diff([]string{"/start", "/3"}, w.paths()); diff != "" {
		t.Fatalf("pings (-want +got):\n%s", diff)
	}
	r := o.month(3, "--max-total", "usd=1", "--json").json(t)
	if ev := w.pings()[3].checkin(t); ev.Event != eventFail || ev.ExitCode != 3 || ev.Outcome != "stopped" || ev.Reason != r.Error.Code || ev.Reason == "" {
		t.Errorf("%+v, want the reason %q", ev, r.Error.Code)
	}
	for _, p := range w.pings() {
		for _, never := range []string{"a0001", "cus_", "10.01", "sk_test"} {
			if strings.Contains(p.body, never) {
				t.Errorf("%q is in what the monitor was told:\n%s", never, p.body)
			}
		}
	}
}

// A run that somebody stopped says so before it goes.
func TestAnInterruptedRunSaysSo(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.emu.Inject(stripeemu.Fault{Name: stripeemu.FaultLate, Method: "POST", Times: 1})
	p := o.start("run", "--period", october, "--concurrency", "1")
	eventually(t, "an answer is held", func() bool { return o.emu.Held() == 1 })
	p.signal(syscall.SIGTERM)
	o.emu.Release()
	if r := p.wait(); r.code != 143 {
		t.Errorf("want exit 143\n%s", r)
	}
	if diff := cmp.Diff([]string{"/start", "/143"}, w.paths()); diff != "" {
		t.Fatalf("pings (-want +got):\n%s", diff)
	}
	if ev := w.pings()[1].checkin(t); ev.Event != eventFail || ev.Reason != "interrupted" || ev.RecordsProcessed < 1 {
		t.Errorf("%+v", ev)
	}
}

// An end that was lost is told again.
func TestALostEndIsToldAgain(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, func(n int, rw http.ResponseWriter, _ *http.Request) {
		if n == 2 {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	o := watched(t, 2, w)
	r := o.month(0, "--json").json(t)
	if diff := cmp.Diff([]string{"/start", "/0", "/0"}, w.paths()); diff != "" {
		t.Errorf("pings (-want +got):\n%s", diff)
	}
	if len(r.Warnings) != 1 { // of the first period, which every first month has
		t.Errorf("warnings %q", r.Warnings)
	}
}

// A month with fewer settled charges than it must have needs a person, each time
// that it is asked, and the attempt is kept with that code.
func TestFewerChargesThanExpectedNeedAPerson(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	r := o.month(4, "--expect-min", "4", "--json").json(t)
	if r.Outcome != "needs_person" || r.Error.Code != "too_few" || r.Run.State != "done" {
		t.Errorf("%s %+v, run %+v", r.Outcome, r.Error, r.Run)
	}
	if ev := w.pings()[1].checkin(t); ev.Event != eventFail || ev.Reason != "too_few" || ev.RecordsProcessed != 3 || w.pings()[1].path != "/4" {
		t.Errorf("%s %+v", w.pings()[1].path, ev)
	}
	if code := one[int](o, `SELECT exit_code FROM billing.job_run_attempts`); code != 4 {
		t.Errorf("the attempt is kept with exit code %d", code)
	}
	o.month(4, "--expect-min", "4")
	o.month(0, "--expect-min", "3")
	o.month(64, "--expect-min", "-1")
}

// Cronitor is told in its own words.
func TestCronitorIsToldInItsWords(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 3, w)
	o.env["BILLING_CHECKIN"] = kindCronitor
	o.env["BILLING_CHECKIN_URL"] += "?env=production"
	o.month(0)
	id := one[string](o, `SELECT run_id::text FROM billing.job_runs`)
	want := []url.Values{
		{"state": {"run"}, "series": {id}, "env": {"production"}, "message": {"monthly-billing 2026-10"}},
		{"state": {"complete"}, "series": {id}, "env": {"production"}, "metric": {"count:3"}, "status_code": {"0"},
			"message": {"monthly-billing 2026-10: done, 3 settled, 3 sent by attempt 1, 0 pending"}},
	}
	for i, p := range w.pings() {
		if diff := cmp.Diff(want[i], p.query); diff != "" || p.method != "GET" || p.path != "" {
			t.Errorf("ping %d: %s %s (-want +got):\n%s", i, p.method, p.path, diff)
		}
	}
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(4, "--expect-min", "9")
	if got := w.pings()[3].query; got.Get("state") != "fail" || got.Get("status_code") != "4" || !strings.Contains(got.Get("message"), "reason too_few") {
		t.Errorf("the failure: %v", got)
	}
}

// The page about monitoring names every metric and every field, and its templates
// work as they stand there.
func TestTheMonitoringPageIsRight(t *testing.T) {
	t.Parallel()
	page := fileText(t, "../../docs/monitoring.md")
	for _, name := range slices.Concat(commandMetrics, ledgerMetrics) {
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("the metric %s is not in the page", name)
		}
	}
	for _, name := range checkinFields {
		if !strings.Contains(page, "."+name) {
			t.Errorf("the field %s is not in the page", name)
		}
	}
	found := regexp.MustCompile(`(?m)^BILLING_CHECKIN_(URL|BODY)=(.*{{.*)$`).FindAllStringSubmatch(page, -1)
	if len(found) < 3 {
		t.Fatalf("only %d templates are in the page", len(found))
	}
	for _, one := range found {
		template, err := parseTemplate(setting{one[2], one[1]})
		if err != nil {
			t.Error(err)
			continue
		}
		for _, event := range []string{eventStart, eventComplete, eventFail} {
			text, err := render(template, newCheckin(event))
			if _, urlErr := parsePingURL(text); err != nil || one[1] == "URL" && urlErr != nil || one[1] == "BODY" && text != "" && !json.Valid([]byte(text)) {
				t.Errorf("%s for %s: %q, %v, %v", one[1], event, text, err, urlErr)
			}
		}
	}
}
