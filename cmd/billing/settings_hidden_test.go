package main

import (
	"strings"
	"testing"
)

// A password is not shown because somebody wrote it without escaping it, with blanks
// around it, or in another way that Postgres's driver reads.
func TestNoSpellingOfAPasswordIsShown(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:" + hidden + "@h:5432/db":                "postgres://u@h:5432/db",
		"postgres://u:1/" + hidden + "@h/db":                   "not an address",
		"postgres://u:1?" + hidden + "@h/db":                   "not an address",
		"postgres://u:1#" + hidden + "@h/db":                   "not an address",
		"postgres://h/db?pass%77ord=" + hidden:                 "postgres://h/db",
		"host=h password = " + hidden + " user=u":              "host=h password = … user=u",
		`host=h password=a\ ` + hidden + ` user=u`:             "host=h password=… user=u",
		`host=h password='a\' ` + hidden + `' user=u`:          "host=h password=… user=u",
		"host=/run password=a://" + hidden:                     "host=/run password=…",
		"host=h password='" + hidden + " of which no end":      "not an address",
		"host=h password='a' " + hidden:                        "not an address",
		"host=h sslpassword=" + hidden + " password=" + hidden: "host=h sslpassword=… password=…",
		"host=db.internal dbname=app":                          "host=db.internal dbname=app",
	} {
		if got := hidePassword(address); got != want {
			t.Errorf("%q is shown as %q, want %q", address, got, want)
		}
		_, err := withoutPassword(address)
		if secret := strings.Contains(address, hidden); (err != nil) != secret || err != nil && strings.Contains(err.Error(), hidden) {
			t.Errorf("%q as a flag: %v", address, err)
		}
	}
}

// A header that HTTP does not take is refused before the month, not at its end.
func TestAHeaderThatCannotBeSentIsRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"X-Kéy: a", "X-Key: a\x01" + hidden, "X\x00: a", "X-Key: \x7f"} {
		headers, err := parseHeaders(setting{"X-Good: a\n" + line, "BILLING_CHECKIN_HEADER"})
		if err == nil || headers != nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), hidden) {
			t.Errorf("%q: %v, %v", line, headers, err)
		}
	}
	if headers, err := parseHeaders(setting{"X-API-Key: a\tb, ü", "BILLING_CHECKIN_HEADER"}); err != nil || headers.Get("X-API-Key") != "a\tb, ü" {
		t.Errorf("%v, %v", headers, err)
	}
}

// A template whose loop does not end is refused, and takes no memory.
func TestATemplateWithoutAnEndIsRefused(t *testing.T) {
	t.Parallel()
	template, err := parseTemplate(setting{"https://monitor.example/" + hidden + "{{range 9999999999}}{{printf `%9999d` .}}{{end}}", "BILLING_CHECKIN_URL"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = render(template, newCheckin(eventFail))
	if f := classify(err); f.code != exitBadConfig || !strings.Contains(err.Error(), "BILLING_CHECKIN_URL") || strings.Contains(err.Error(), hidden) {
		t.Errorf("%v", err)
	}
}
