package gateway

import (
	"fmt"
	"regexp"
	"strings"
)

// Kind says what a failed read means for whoever asked.
type Kind string

// The kinds, with the exit code that a command ends with.
const (
	// KindUnreachable: no answer, or 5xx, after all retries (69).
	KindUnreachable Kind = "unreachable"
	// KindRate: 429 after all retries (69).
	KindRate Kind = "rate"
	// KindAuth: the key is wrong (77).
	KindAuth Kind = "auth"
	// KindPermission: the key may not do this (77).
	KindPermission Kind = "permission"
	// KindWrongMode: the object is of the other mode than the key (78).
	KindWrongMode Kind = "wrong_mode"
	// KindNotFound: Stripe has no such object, in this account and mode.
	KindNotFound Kind = "not_found"
	// KindRefused: Stripe did not take the request for another reason.
	KindRefused Kind = "refused"
	// KindBadAnswer: an answer that is not Stripe's, or not complete (69).
	KindBadAnswer Kind = "bad_answer"
	// KindForeign: a list held an object that was not asked for, so that its
	// silence about others is worth nothing. errors.Is(err, ErrForeign) is true.
	KindForeign Kind = "foreign"
)

// Error is a read that failed. Its text contains no secret.
type Error struct {
	// Doing says what was being read.
	Doing string
	Kind  Kind
	// Status is the HTTP status, 0 without an answer.
	Status    int
	Code      string
	Param     string
	RequestID string
	Message   string
	// Err is the cause where it is an error of Go or of this package.
	Err error
}

func (e *Error) Error() string {
	text := e.Doing + ": " + string(e.Kind)
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Err != nil {
		text += ": " + redact(e.Err.Error())
	}
	if e.RequestID != "" {
		text += " [" + e.RequestID + "]"
	}
	return text
}

// Unwrap returns the cause, so that a cancelled context can be told.
func (e *Error) Unwrap() error { return e.Err }

// secrets are keys, client secrets and webhook secrets.
var secrets = regexp.MustCompile(`(?:sk|rk|pk|ek|whsec)_[A-Za-z0-9_]+|_secret_[A-Za-z0-9]+|(?i:bearer\s+\S+)`)

// redact removes secrets from a text of Stripe's and makes it short and clean.
func redact(text string) string {
	return clean(secrets.ReplaceAllString(text, "[secret]"), 300)
}

// clean makes a text from outside fit for the ledger: at most so many bytes,
// valid UTF-8, no control characters. A database that refuses a text would lose
// the answer that it belongs to.
func clean(text string, longest int) string {
	if len(text) > longest {
		text = text[:longest]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
