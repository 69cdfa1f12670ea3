package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The monitors that are built in, and the one for any other.
const (
	kindHealthchecks = "healthchecks"
	kindCronitor     = "cronitor"
	kindTemplate     = "template"
)

const (
	// pingTries and pingTime bound what one message is worth; a pause that grows
	// lies between two tries.
	pingTries = 3
	pingTime  = 3 * time.Second
	pingPause = 300 * time.Millisecond
	// maxPingAnswer is what is read of an answer: it says OK, or why not.
	maxPingAnswer = 4 << 10
)

// ping is a message in the words of one monitor. Without a URL nothing is sent.
type ping struct {
	method, url, body string
	header            http.Header
}

// pingError is why a monitor was not told. It never has the URL, which is a secret.
type pingError struct {
	text  string
	again bool // the next try may do better
}

func (e *pingError) Error() string { return e.text }

// newMonitorClient makes a client that goes where it was told and nowhere else, and
// shares nothing with the one that moves money.
func newMonitorClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: pingTime}).DialContext, TLSHandshakeTimeout: pingTime,
			ForceAttemptHTTP2: true, DisableKeepAlives: true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// builtInShape speaks to Healthchecks.io (https://healthchecks.io/docs/http_api/) or
// to Cronitor (https://cronitor.io/docs/telemetry-api).
func builtInShape(kind string, at setting) (func(checkin) (ping, error), error) {
	base, err := parsePingURL(at.text)
	if err != nil {
		return nil, configError{fmt.Errorf("%s: %w", at.from, err), "copy the ping URL as " + kind + " shows it"}
	}
	if kind == kindCronitor {
		return func(ev checkin) (ping, error) { return cronitorPing(*base, ev), nil }, nil
	}
	return func(ev checkin) (ping, error) { return healthchecksPing(*base, ev), nil }, nil
}

// parsePingURL checks that a URL can be sent to, and never repeats it.
func parsePingURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("a URL with the scheme %q: want https", u.Scheme)
	case u.Host == "":
		return nil, errors.New("a URL without a host")
	}
	return u, nil
}

// healthchecksPing names the exit code, by which Healthchecks.io tells success from
// failure, and the run, so that it can match a start with its end.
func healthchecksPing(u url.URL, ev checkin) ping {
	last := strconv.Itoa(ev.ExitCode)
	if ev.Event == eventStart {
		last = "start"
	}
	at := u.JoinPath(last)
	query := at.Query()
	query.Set("rid", ev.RunID)
	at.RawQuery = query.Encode()
	return ping{
		method: http.MethodPost, url: at.String(), body: ev.json(),
		header: http.Header{"Content-Type": {"application/json"}},
	}
}

func cronitorPing(u url.URL, ev checkin) ping {
	query := u.Query()
	query.Set("series", ev.RunID)
	query.Set("state", map[string]string{eventStart: "run", eventComplete: "complete", eventFail: "fail"}[ev.Event])
	message := ev.Job + " " + ev.Period
	if ev.Event != eventStart {
		query.Set("metric", "count:"+strconv.FormatInt(ev.RecordsProcessed, 10))
		query.Set("status_code", strconv.Itoa(ev.ExitCode))
		message += fmt.Sprintf(": %s, %d settled, %d sent by attempt %d, %d pending", ev.Outcome, ev.RecordsProcessed, ev.Sent, ev.Attempt, ev.Pending)
		if ev.Reason != "" {
			message += ", reason " + ev.Reason
		}
	}
	query.Set("message", message)
	u.RawQuery = query.Encode()
	return ping{method: http.MethodGet, url: u.String()}
}

// deliver tells the monitor one thing, and repeats it if it was lost. The error
// never has the URL in it.
func (m *monitor) deliver(ctx context.Context, ev checkin) error {
	p, err := m.shape(ev)
	if err != nil || p.url == "" {
		return err
	}
	for try := 1; ; try++ {
		err := m.once(ctx, p)
		var failed *pingError
		if !errors.As(err, &failed) || !failed.again || try == pingTries {
			return err
		}
		m.log.Debug("the monitor is told again", "event", ev.Event, "error", err)
		pause := time.NewTimer(time.Duration(try) * pingPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// once sends a ping one time.
func (m *monitor) once(ctx context.Context, p ping) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, p.method, p.url, bytes.NewReader([]byte(p.body)))
	if err != nil {
		return &pingError{text: "its URL can't be requested"}
	}
	for name, values := range p.header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "billing/"+version)
	res, err := m.client.Do(req)
	if err != nil {
		return &pingError{text: withoutURL(err), again: true}
	}
	defer res.Body.Close()
	// That the answer was cut short does not make it untold.
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxPingAnswer))
	switch {
	case res.StatusCode >= 500, res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout:
		return &pingError{text: fmt.Sprintf("it answered HTTP %d", res.StatusCode), again: true}
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return &pingError{text: fmt.Sprintf("it answered HTTP %d, and a redirect is not followed: is the URL right?", res.StatusCode)}
	case res.StatusCode < 200 || res.StatusCode >= 400:
		return &pingError{text: fmt.Sprintf("it answered HTTP %d: is the URL right?", res.StatusCode)}
	case m.kind == kindHealthchecks && strings.HasPrefix(string(answer), "OK ("):
		// Healthchecks.io says 200 to a UUID that it does not know, and why in the body.
		return &pingError{text: fmt.Sprintf("it answered %.40q: is the URL right?", answer)}
	}
	return nil
}

// withoutURL is the text of an error of net/http, which names the URL.
func withoutURL(err error) string {
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + pingTime.String()
	case errors.Is(err, context.Canceled):
		return "no answer before the run was over"
	}
	return err.Error()
}
