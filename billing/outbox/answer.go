package outbox

import (
	"html"
	"net/url"
	"strings"
	"unicode/utf8"
)

const (
	// readAnswer is what is looked at of a refusal, and keptAnswer what is kept of it.
	readAnswer, keptAnswer = 4 << 10, 200
	// shortest is how long a part of an address is that may be secret. Shorter ones are
	// words of an answer by themselves.
	shortest = 6
)

// beginning is the first of what a receiver said, on one line, for the person who looks
// after the dead letter. Secrets in it are left out.
func beginning(answer string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= shortest {
			answer = strings.ReplaceAll(answer, secret, "…")
		}
	}
	answer = oneLine(strings.ToValidUTF8(answer, "?"))
	if len(answer) <= keptAnswer {
		return answer
	}
	cut := keptAnswer
	for !utf8.RuneStart(answer[cut]) {
		cut--
	}
	return answer[:cut] + "…"
}

// secretParts are the parts of an endpoint's URL that may be its secret. Many servers
// repeat the path in their 404.
func secretParts(endpoint string) (parts []string) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil
	}
	add := func(part string) { parts = append(parts, part, html.EscapeString(part)) }
	for _, path := range []string{u.EscapedPath(), u.Path} {
		for part := range strings.SplitSeq(path, "/") {
			add(part)
		}
	}
	for part := range strings.FieldsFuncSeq(u.RawQuery, func(r rune) bool { return r == '&' || r == '=' }) {
		add(part)
		if plain, err := url.QueryUnescape(part); err == nil {
			add(plain)
		}
	}
	return parts
}
