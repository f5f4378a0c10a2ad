package front

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ProblemType is the media type of RFC 9457.
const ProblemType = "application/problem+json"

// RetryAfter is the Retry-After, in seconds, of a daemon that restarts or is short of resources.
const RetryAfter = 5

// RefusalError is an error with its answer: a status, one line for people, and members for programs.
type RefusalError struct {
	Status  int
	Text    string
	Members map[string]any // further members of the problem
	Header  http.Header    // further headers of the answer
	Cause   error          // logged; nil when the text is complete
}

func (e *RefusalError) Error() string { return e.Text }
func (e *RefusalError) Unwrap() error { return e.Cause }

// Refuse returns a refusal with one line for people.
func Refuse(status int, format string, args ...any) *RefusalError {
	return &RefusalError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Because sets the fault that is logged.
func (e *RefusalError) Because(cause error) *RefusalError {
	e.Cause = cause
	return e
}

// With adds a member to the problem.
func (e *RefusalError) With(member string, value any) *RefusalError {
	if e.Members == nil {
		e.Members = make(map[string]any)
	}
	e.Members[member] = value
	return e
}

// WithHeader adds a header to the answer.
func (e *RefusalError) WithHeader(name, value string) *RefusalError {
	if e.Header == nil {
		e.Header = make(http.Header)
	}
	e.Header.Add(name, value)
	return e
}

// WithRetryAfter adds the header Retry-After for a server that restarts or is short of resources.
func (e *RefusalError) WithRetryAfter() *RefusalError {
	return e.WithHeader("Retry-After", strconv.Itoa(RetryAfter))
}

// Limits of a message, and of a member of it such as the name of a parameter, in bytes: either may contain input of a
// client, up to a megabyte.
const (
	MaxMessage = 2000
	MaxValue   = 256
)

// cut shortens text to at most so many bytes, with an ellipsis at the end.
func cut(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	end := most - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// problemOf returns the members of a problem with this status and one line for people.
func problemOf(status int, text string) map[string]any {
	return map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"detail": text, "error": text,
	}
}

// Quote quotes a value that a client sent, for messages.
func Quote(text string) string { return "'" + Printable(text, 64) + "'" }

// Printable cuts text to most bytes and replaces unprintable characters by question marks.
func Printable(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}
