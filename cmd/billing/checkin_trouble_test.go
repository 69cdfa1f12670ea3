package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// A monitor that is down, slow or wrong changes nothing: the month is charged, the
// exit code is the same, and what it cost is bounded by the number of tries. Nobody
// waits for a monitor that holds its connections: the run ends while they are held.
func TestNoMonitorHoldsARunUp(t *testing.T) {
	t.Parallel()
	elsewhere := newWatcher(t, nil)
	for name, c := range map[string]struct {
		answer func(held <-chan struct{}, w http.ResponseWriter, r *http.Request)
		pings  int // at most, for the start and the end
	}{
		"hangs": {func(held <-chan struct{}, _ http.ResponseWriter, r *http.Request) { <-held }, 2 * pingTries},
		"500":   {func(_ <-chan struct{}, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 2 * pingTries},
		"404":   {func(_ <-chan struct{}, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 2},
		"no such check": {func(_ <-chan struct{}, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("OK (not found)"))
		}, 2},
		"redirects": {func(_ <-chan struct{}, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, 2},
		"garbage": {func(_ <-chan struct{}, w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("\x00\x01 no HTTP at all\r\n\r\n"))
				conn.Close()
			}
		}, 2 * pingTries},
		"never stops": {func(held <-chan struct{}, w http.ResponseWriter, _ *http.Request) {
			for {
				select {
				case <-held:
					return
				default:
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						return
					}
				}
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			w := newWatcher(t, func(_ int, rw http.ResponseWriter, r *http.Request) { c.answer(held, rw, r) })
			t.Cleanup(func() { close(held) }) // before the server is closed
			o := watched(t, 3, w)
			r := o.month(0, "--json")
			if n := len(w.pings()); n < 2 || n > c.pings {
				t.Errorf("%d pings, want 2 to %d", n, c.pings)
			}
			told := !strings.Contains(strings.Join(r.json(t).Warnings, "\n"), "check-in: healthchecks was not told of the complete")
			if told != (name == "never stops") {
				t.Errorf("warnings %q", r.json(t).Warnings)
			}
			if strings.Contains(r.stdout+r.stderr, checkinSecret) {
				t.Errorf("the URL stands in the output\n%s", r)
			}
			o.mustBeWhole()
		})
	}
	t.Cleanup(func() { // after the parallel ones
		if n := len(elsewhere.pings()); n != 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
	})
}

// A monitor that does not listen changes nothing either.
func TestAMonitorThatDoesNotListenChangesNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	o := newOffice(t)
	o.imports(october, customers(2))
	o.env["BILLING_CHECKIN"], o.env["BILLING_CHECKIN_URL"] = kindCronitor, "http://"+address+"/p/"+checkinSecret+"/billing"
	r := o.month(0)
	if !strings.Contains(r.stderr, "warning: check-in: cronitor was not told of the start") || !strings.Contains(r.stderr, "was not told of the complete") {
		t.Errorf("nobody is warned\n%s", r)
	}
	if strings.Contains(r.stdout+r.stderr, checkinSecret) {
		t.Errorf("the URL stands in the output\n%s", r)
	}
}

// A template says to any other monitor what that wants to hear; an event without a
// URL is not told.
func TestATemplateSpeaksToAnyMonitor(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := newOffice(t)
	o.imports(october, customers(3))
	o.env["BILLING_CHECKIN"] = kindTemplate
	o.env["BILLING_CHECKIN_URL_FILE"] = o.file("url",
		w.URL+`/ping/{{.Job}}/{{if eq .Event "complete"}}success{{else}}{{.Event}}{{end}}?run={{.RunID | urlquery}}`+"\n")
	o.env["BILLING_CHECKIN_HEADER_FILE"] = o.file("header", "X-API-Key: ck_live_1\nX-Team: finance\n")
	o.env["BILLING_CHECKIN_BODY"] = `{{if ne .Event "start"}}{"meta":{"rows":{{.RecordsProcessed}},"sent":{{.Sent}},"paid":{{.Charges.succeeded}}},"errorMessage":{{json .Reason}}}{{end}}`
	o.env["BILLING_CHECKIN_METHOD"] = "put"
	o.month(4, "--expect-min", "4")
	pings := w.pings()
	if len(pings) != 2 || pings[0].path != "/ping/monthly-billing/start" || pings[1].path != "/ping/monthly-billing/fail" {
		t.Fatalf("pings %q", w.paths())
	}
	p := pings[1]
	if p.method != "PUT" || p.header.Get("X-API-Key") != "ck_live_1" || p.header.Get("X-Team") != "finance" || p.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", p.method, p.header)
	}
	if want := `{"meta":{"rows":3,"sent":3,"paid":3},"errorMessage":"too_few"}`; p.body != want || pings[0].body != "" {
		t.Errorf("bodies %q and %q, want %q", pings[0].body, p.body, want)
	}
	if p.query.Get("run") != one[string](o, `SELECT run_id::text FROM billing.job_runs`) {
		t.Errorf("query %v", p.query)
	}
	// Only the end.
	o.env["BILLING_CHECKIN_URL"], o.env["BILLING_CHECKIN_METHOD"] = `{{if eq .Event "complete"}}`+w.URL+`/only{{end}}`, ""
	delete(o.env, "BILLING_CHECKIN_URL_FILE")
	o.must(0, "reopen", "--period", october, "--why", "test")
	o.month(0)
	if paths := w.paths(); len(paths) != 3 || paths[2] != "/only" || w.pings()[2].method != "POST" {
		t.Errorf("pings %q", paths)
	}
}

// What could not work at the end of a month is refused before anything is done:
// which setting, where in it, and what is wrong there.
func TestAWrongCheckInIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.imports(october, customers(1))
	const good = "https://hc.example/" + checkinSecret
	for name, c := range map[string]struct {
		env  map[string]string
		code int
		want string
	}{
		"kind":            {map[string]string{"CHECKIN": "crontify", "CHECKIN_URL": good}, 64, `--checkin "crontify": want healthchecks, cronitor or template`},
		"no kind":         {map[string]string{"CHECKIN_URL": good}, 64, "BILLING_CHECKIN_URL is set, and --checkin (BILLING_CHECKIN) does not say"},
		"no URL":          {map[string]string{"CHECKIN": "cronitor"}, 78, "--checkin cronitor needs a URL"},
		"no file":         {map[string]string{"CHECKIN": "cronitor", "CHECKIN_URL_FILE": "/nowhere"}, 78, "BILLING_CHECKIN_URL_FILE: open /nowhere"},
		"scheme":          {map[string]string{"CHECKIN": "healthchecks", "CHECKIN_URL": "ftp://" + checkinSecret}, 78, `BILLING_CHECKIN_URL: a URL with the scheme "ftp": want https`},
		"no host":         {map[string]string{"CHECKIN": "healthchecks", "CHECKIN_URL": "https:/" + checkinSecret}, 78, "BILLING_CHECKIN_URL: a URL without a host"},
		"no URL at all":   {map[string]string{"CHECKIN": "healthchecks", "CHECKIN_URL": "https://%zz" + checkinSecret}, 78, "BILLING_CHECKIN_URL: not a URL"},
		"body of another": {map[string]string{"CHECKIN": "healthchecks", "CHECKIN_URL": good, "CHECKIN_BODY": "x"}, 64, "--checkin-body is for --checkin template"},
		"method":          {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_METHOD": "DELETE"}, 64, `--checkin-method "DELETE"`},
		"header":          {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_HEADER": "X-Key 12"}, 78, "BILLING_CHECKIN_HEADER, line 1: want a header"},
		"field":           {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_BODY": "a\n{{.Sent}} {{.Emails}}"}, 78, "BILLING_CHECKIN_BODY:2:12: there is no field .Emails"},
		"hidden field":    {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_BODY": "{{if gt .Sent 1000}}{{.Email}}{{end}}"}, 78, "BILLING_CHECKIN_BODY:1:22: there is no field .Email"},
		"state":           {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_BODY": "{{.Charges.paid}}"}, 78, `BILLING_CHECKIN_BODY:1:10: executing "BILLING_CHECKIN_BODY" at <.Charges.paid>`},
		"function":        {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good, "CHECKIN_BODY": "{{upper .Event}}"}, 78, `BILLING_CHECKIN_BODY:1: function "upper" not defined`},
		"syntax":          {map[string]string{"CHECKIN": "template", "CHECKIN_URL": good + "/{{.Event"}, 78, "BILLING_CHECKIN_URL:1: unclosed action"},
		"some URL":        {map[string]string{"CHECKIN": "template", "CHECKIN_URL": `{{if eq .Event "fail"}}x{{else}}` + good + "{{end}}"}, 78, `BILLING_CHECKIN_URL, for the event "fail": a URL with the scheme ""`},
		"no event":        {map[string]string{"CHECKIN": "template", "CHECKIN_URL": `{{if eq .Event "end"}}` + good + "{{end}}"}, 78, "BILLING_CHECKIN_URL gives no URL for any event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := *o
			here.t, here.env = t, map[string]string{}
			for key, value := range o.env {
				here.env[key] = value
			}
			for key, value := range c.env {
				here.env["BILLING_"+key] = value
			}
			r := here.month(c.code)
			if !strings.Contains(r.stderr, c.want) {
				t.Errorf("want %q\n%s", c.want, r)
			}
			if strings.Contains(r.stdout+r.stderr, checkinSecret) {
				t.Errorf("the URL stands in the output\n%s", r)
			}
		})
	}
	t.Cleanup(func() {
		if n := one[int](o, `SELECT count(*) FROM billing.job_runs`); n != 0 {
			t.Errorf("%d runs began", n)
		}
	})
}

// A dry run tells nobody and writes nothing.
func TestADryRunTellsNobody(t *testing.T) {
	t.Parallel()
	w := newWatcher(t, nil)
	o := watched(t, 2, w)
	o.env["BILLING_METRICS_FILE"], o.env["BILLING_PUSHGATEWAY"] = o.file("billing.prom", "as it was\n"), w.URL
	before := o.ledgerText()
	o.month(0, "--dry-run")
	o.must(64, "reconcile", "--period", october, "--dry-run")
	if n := len(w.pings()); n != 0 {
		t.Errorf("%d pings", n)
	}
	if got := fileText(t, o.env["BILLING_METRICS_FILE"]); got != "as it was\n" {
		t.Errorf("the file was written:\n%s", got)
	}
	if o.ledgerText() != before {
		t.Error("the ledger changed")
	}
}
