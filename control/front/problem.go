package front

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
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

// fail answers a request with a problem. Faults of the daemon are logged with a number, which the answer contains.
func (w *Response) fail(err error) {
	s, r := w.server, w.request
	known := s.config.Refusal(err)
	if known.Cause != nil {
		s.config.Fault(err)
		number := s.failures.Add(1)
		known = known.With("log_entry", number)
		s.config.Logger.Error("request failed", "log_entry", number, "method", r.Method, "path", r.URL.Path, "status",
			known.Status, "error", err)
	}
	if w.started {
		// A part of another answer is sent already: only closing the connection can mark it as truncated.
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), known.Header)
	body := problemOf(known.Status, cut(known.Text, MaxMessage))
	for member, value := range known.Members {
		if text, is := value.(string); is {
			value = cut(text, MaxValue)
		}
		if _, ours := body[member]; !ours {
			body[member] = value
		}
	}
	send := func() { w.send(ProblemType, known.Status, body) }
	if known.Status == http.StatusRequestEntityTooLarge {
		w.drainBody(send)
		return
	}
	send()
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
