package main

import (
	"context"
	"errors"
	"flag"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v2"

	"github.com/chargeonce/billing/billing"
	"github.com/chargeonce/billing/ledger/money"
)

// given is a command line with some flags set; err is what the flags themselves say.
func given(t *testing.T, flags []cli.Flag, values map[string]string) (*cli.Context, error) {
	t.Helper()
	set := flag.NewFlagSet("billing", flag.ContinueOnError)
	for _, f := range flags {
		if err := f.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range values {
		if err := set.Set(name, value); err != nil {
			return nil, err
		}
	}
	return cli.NewContext(cli.NewApp(), set, nil), nil
}

// A schedule that is taken has at most seven waits, each of an hour to ninety days.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"3d,5d,7d", "1h", "90d", "90.5d", "0.5d, 36h", "", ",", "3", "-3d", "nand", "infd", "1e400d", "0x1p3d", "1h30m,1d", "9223372036854775807h", "1d,1d,1d,1d,1d,1d,1d,1d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := given(t, []cli.Flag{scheduleFlag()}, map[string]string{"schedule": text})
		if err != nil {
			t.Fatal(err)
		}
		list, err := scheduleOf(c)
		if err != nil {
			if classify(err).code != exitUsage {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if len(list) != 1+strings.Count(text, ",") || len(list) >= billing.MaxTries {
			t.Errorf("%q is %v", text, list)
		}
		for _, d := range list {
			if d < time.Hour || d > 90*24*time.Hour {
				t.Errorf("%q is %v", text, list)
			}
		}
	})
}

// A cap that is taken is the amount as it was typed, in a currency that exists; a
// share is a number from 0 to a million.
func FuzzLimits(f *testing.F) {
	for _, pair := range [][2]string{{"usd=5000", "0.1"}, {"usd=5000,jpy=80", "0"}, {"usd=50,USD=60", "1e3"}, {"usd", "NaN"}, {"usd=-1", "-0"}, {"kwd=1.234", "Inf"},
		{"usd=1e9", "-1"}, {"=5", "1e7"}, {" usd=5 , ,", "0x1"}, {"usd=99999999999", "1_0"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, caps, share string) {
		c, err := given(t, limitFlags(), map[string]string{"max-charge": caps, "max-growth": share})
		if err != nil {
			if _, e := strconv.ParseFloat(share, 64); e == nil {
				t.Errorf("%q: %v", share, err)
			}
			return
		}
		l, err := limitsOf(c)
		if err != nil {
			if classify(err).code != exitUsage {
				t.Errorf("%q, %q: %v", caps, share, err)
			}
			return
		}
		if want, err := strconv.ParseFloat(share, 64); err != nil || l.MaxGrowth != want || math.IsNaN(want) || want < 0 || want > 1e6 {
			t.Errorf("%q is a share of %v", share, l.MaxGrowth)
		}
		for currency, minor := range l.MaxCharge {
			typed := false
			for one := range strings.SplitSeq(strings.ToLower(caps), ",") {
				name, amount, _ := strings.Cut(strings.TrimSpace(one), "=")
				value, err := money.Parse(amount)
				typed = typed || err == nil && name == string(currency) && value.Equal(money.FromMinor(minor, currency))
			}
			if !typed || minor < 0 || !currency.Known() {
				t.Errorf("%q: %d %s", caps, minor, currency)
			}
		}
	})
}

// A run is scheduled at the moment that was named, or by the minutes of its job's name
// if they are recent, and by nothing that only looks like one.
func FuzzScheduledAt(f *testing.F) {
	for _, pair := range [][2]string{{"", "billing-29895845"}, {"", ""}, {"", "billing"}, {"", "billing-00000000"}, {"", "billing-99999999"}, {"", "billing-29895845-x7k2p"},
		{"2026-11-01T00:05:00Z", ""}, {"2026-11-01T00:05:00+14:00", "x"}, {"2026-11-01", ""}, {"0000-01-01T00:00:00Z", ""}, {"", "29895845"}, {"", "-29895845\n"}} {
		f.Add(pair[0], pair[1])
	}
	now := time.Date(2026, 11, 1, 0, 5, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text, job string) {
		at, from, err := scheduledAt(text, job, now)
		switch {
		case err != nil:
			if classify(err).code != exitUsage || from != "" || text == "" && job == "" {
				t.Errorf("%q, %q: %v", text, job, err)
			}
		case text != "":
			if want, err := time.Parse(time.RFC3339, text); err != nil || !at.Equal(want) {
				t.Errorf("%q is %s", text, at)
			}
		case job == "":
			if !at.Equal(now) {
				t.Errorf("now is %s", at)
			}
		case at.Sub(now).Abs() > maxJobAge || !strings.HasSuffix(job, "-"+strconv.FormatInt(at.Unix()/60, 10)):
			t.Errorf("%q is %s", job, at)
		}
	})
}

const hidden = "S3cretW0rd"

// A template that is taken makes a message for every event or says why not, and no
// mistake in it shows what else stands there.
func FuzzCheckinTemplate(f *testing.F) {
	for _, text := range []string{"{{.Event}}", "{{if eq .Event `fail`}}{{.ExitCode}}{{end}}", "{{json .}}", "{{.Nothing}}", "{{", "{{end}}", "{{range .Charges}}{{.}}{{end}}", "{{with .Job}}{{.X}}{{end}}",
		"{{define `a`}}{{template `a`}}{{end}}{{template `a`}}", "{{.Charges.nothing}}", "{{index .Charges 1}}", "{{range 9999999}}{{printf `%9999d` .}}{{end}}", "{{slice .Job 99}}", "{{/* a", "{{printf `%s`}}", "{{call .Event}}", "{{.Event.X}}", "{{`\n`}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, err := parseTemplate(setting{"https://monitor.example/" + hidden + "/" + text, "BILLING_CHECKIN_URL"})
		for _, event := range []string{eventStart, eventComplete, eventFail} {
			if err == nil {
				var made string
				if made, err = render(template, newCheckin(event)); len(made) > maxPing {
					t.Errorf("%q makes %d bytes", text, len(made))
				}
			}
		}
		if err == nil {
			return
		}
		if f := classify(err); f.code != exitBadConfig || f.hint != templateHint || strings.Contains(err.Error(), hidden) || !strings.Contains(err.Error(), "BILLING_CHECKIN_URL") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// Headers that are taken can be sent, and a refusal names the line and not the secret.
func FuzzCheckinHeader(f *testing.F) {
	for _, text := range []string{"X-API-Key: secret", "a: b\n\nc: d", "no colon", ": x", "X Y: z", "Xé: z", "X: a\x01b", "X: \xff", "X\x00: a", "Host: h"} {
		f.Add(text)
	}
	dialed := errors.New("dialed")
	client := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, dialed }}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseHeaders(setting{text + "\n" + hidden, "BILLING_CHECKIN_HEADER"})
		if err == nil || classify(err).code != exitBadConfig || strings.Contains(err.Error(), hidden) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("a line without a colon: %v", err)
		}
		headers, err := parseHeaders(setting{text, "BILLING_CHECKIN_HEADER"})
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://monitor.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = headers
		if _, err := client.RoundTrip(req); !errors.Is(err, dialed) {
			t.Errorf("%q can't be sent: %v", text, err)
		}
	})
}

// An address is shown, and complained of, without the password that Postgres's driver
// finds in it; and a flag that is taken has none.
func FuzzDatabaseURL(f *testing.F) {
	for _, text := range []string{
		"postgres://u:" + hidden + "@h:5432/db", "postgresql://u:" + hidden + "@h/db?sslmode=disable", "postgres://h/db?user=u&password=" + hidden, "postgres://h/db?pass%77ord=" + hidden,
		"host=h user=u password=" + hidden, "host=h password = " + hidden, "host=h password='a " + hidden + "'", `host=h password=a\ ` + hidden, `host=h password='a\' ` + hidden + `'`,
		"host=/run password=a://" + hidden, "host=h sslpassword=" + hidden, "password=" + hidden + " host='", "host=h password='" + hidden, "postgres://u:%zz" + hidden + "@h/db", "postgres://u:1/" + hidden + "@h/db",
		"postgres://u:1?" + hidden + "@h/db", "postgres://u:1#" + hidden + "@h/db", "postgres://u:" + hidden + "@h:x/db", "mysql://u:" + hidden + "@h/db", hidden, "host=h\tpassword\n=\n" + hidden, "postgres://" + hidden,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := pgconn.ParseConfig(text)
		secret := err == nil && strings.Contains(cfg.Password, hidden) && strings.Count(text, hidden) == 1
		shown := hidePassword(text)
		if secret && strings.Contains(shown, hidden) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		_, refusal := withoutPassword(text)
		if secret && refusal == nil {
			t.Errorf("%q is taken as a flag", text)
		}
		if refusal != nil && (classify(refusal).code != exitUsage || strings.Contains(refusal.Error(), hidden)) {
			t.Errorf("%q: %v", text, refusal)
		}
		// What can't be read as an address, but has an @ behind something, may have a password before it.
		if at := strings.Index(text, hidden+"@"); at > 0 && strings.ContainsRune(text[:at], ':') && strings.Contains(shown, hidden) && strings.Count(text, hidden) == 1 {
			if u, err := url.Parse(text); err != nil || u.User == nil || !strings.Contains(u.User.Username(), hidden) {
				t.Errorf("%q is shown as %q", text, shown)
			}
		}
	})
}
