package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/stream"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// retryAfter is the Retry-After, in seconds, of a daemon that restarts or is short of resources.
const retryAfter = 5

// refusal is an error with its answer: a status, one line for people, and members for programs.
type refusal struct {
	status  int
	text    string
	members map[string]any // further members of the problem
	header  http.Header    // further headers of the answer
	cause   error          // logged; nil when the text is complete
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.cause }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// with adds a member to the problem.
func (e *refusal) with(member string, value any) *refusal {
	if e.members == nil {
		e.members = make(map[string]any)
	}
	e.members[member] = value
	return e
}

// withHeader adds a header to the answer.
func (e *refusal) withHeader(name, value string) *refusal {
	if e.header == nil {
		e.header = make(http.Header)
	}
	e.header.Add(name, value)
	return e
}

func (e *refusal) withRetryAfter() *refusal {
	return e.withHeader("Retry-After", strconv.Itoa(retryAfter))
}

func notLive(id statefs.ID) *refusal {
	return refuse(http.StatusNotFound, "Operation '%s' not found or already finished", id).with("id", id)
}

// notReady returns the refusal of an index that is not ready, with the time of the next try.
func notReady(err error) *refusal {
	known, ok := errors.AsType[*history.NotReadyError](err)
	if !ok {
		return refuse(http.StatusServiceUnavailable, "%s", history.ErrNotReady).withRetryAfter()
	}
	return refuse(http.StatusServiceUnavailable, "%s", known).withHeader("Retry-After",
		strconv.Itoa(int(known.After().Seconds())))
}

// refusalOf is the only mapping from errors to statuses.
func refusalOf(err error) *refusal {
	if known, ok := errors.AsType[*refusal](err); ok {
		return known
	}
	if answer := submitRefusal(err); answer != nil {
		return answer
	}
	if wrong, ok := errors.AsType[*catalog.ParamError](err); ok {
		answer := refuse(http.StatusBadRequest, "%s", wrong.Error())
		if wrong.Param == "" {
			return answer // the error concerns the whole body
		}
		return answer.with("parameter", wrong.Param)
	}
	if wrong, ok := errors.AsType[*statefs.ArgsError](err); ok {
		if wrong.Member == "" {
			return refuse(http.StatusBadRequest, "The body is not accepted: %s", printable(wrong.Why, 500))
		}
		member := printable(wrong.Member, 200)
		return refuse(http.StatusBadRequest, "Invalid parameter '%s': %s", member,
			printable(wrong.Why, 500)).with("parameter", member)
	}
	if large, ok := errors.AsType[*tooLargeError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "The body has %d bytes, the limit is %d", large.size,
			large.most).withHeader("Connection", "close")
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes",
			large.Limit).withHeader("Connection", "close")
	}
	if blocked, ok := errors.AsType[*statefs.BlockedError](err); ok {
		return refuse(http.StatusConflict, "%s", blocked.Error()).with("file", blocked.File)
	}
	if displaced, ok := errors.AsType[*statefs.JobsFolderReplacedError](err); ok {
		answer := refuse(http.StatusServiceUnavailable, "The daemon stops: %s", displaced.Error())
		answer.cause = err
		return answer
	}
	if diskFailed(err) {
		answer := refuse(http.StatusInternalServerError,
			"The disk of the daemon fails, and the daemon stops; its log has the reason")
		answer.cause = err
		return answer
	}
	if isUnreadable(err) {
		answer := refuse(http.StatusInternalServerError, "%s: repair the file, or move it away", printable(err.Error(), 1000))
		answer.cause = err
		return answer
	}
	var answer *refusal
	switch {
	case errors.Is(err, statefs.ErrBadID):
		return refuse(http.StatusBadRequest, "Invalid operation ID: %s", err)
	case errors.Is(err, history.ErrNotReady):
		return notReady(err)
	case errors.Is(err, statefs.ErrNotLive):
		return refuse(http.StatusNotFound, "%s", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "The request took too long to arrive").withHeader("Connection", "close")
	case errors.Is(err, stream.ErrShutdown):
		return refuse(http.StatusServiceUnavailable, "The daemon is shutting down").withRetryAfter()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		answer = refuse(http.StatusInsufficientStorage, "The storage of the daemon is full: make room, then try again")
	case machine.OutOfFiles(err):
		answer = refuse(http.StatusServiceUnavailable,
			"The daemon has too many files open: try again, or raise its limit (ulimit -n)").withRetryAfter()
	default:
		answer = refuse(http.StatusInternalServerError, "The daemon could not do this; its log has the reason")
	}
	answer.cause = err
	return answer
}

// diskFailed reports whether the state on disk is unknown after err, or the disk cannot be written any more.
func diskFailed(err error) bool {
	_, failed := errors.AsType[*statefs.SyncError](err)
	return failed || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// fail answers a request with a problem. Faults of the daemon are logged with a number, which the answer contains.
func (s *Server) fail(w *responseWriter, r *http.Request, err error) {
	known := refusalOf(err)
	if known.cause != nil {
		s.status.Health() // checks whether the daemon can go on
		s.reportDiskFailure(err)
		number := s.failures.Add(1)
		known = known.with("log_entry", number)
		s.log.Error("request failed", "log_entry", number, "method", r.Method, "path", r.URL.Path, "status",
			known.status, "error", err)
	}
	if w.started {
		// A part of another answer is sent already: only closing the connection can mark it as truncated.
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), known.header)
	body := problemOf(known.status, cut(known.text, maxMessage))
	for member, value := range known.members {
		if text, is := value.(string); is {
			value = cut(text, maxValue)
		}
		if _, ours := body[member]; !ours {
			body[member] = value
		}
	}
	send := func() { s.send(w, r, problemType, known.status, body) }
	if known.status == http.StatusRequestEntityTooLarge {
		s.drainBody(w, r, send)
		return
	}
	send()
}

// Limits of a message, and of a member of it such as the name of a parameter, in bytes: either may contain input of a
// client, up to a megabyte.
const (
	maxMessage = 2000
	maxValue   = 256
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

// reportDiskFailure stops the daemon if err means that the disk fails.
func (s *Server) reportDiskFailure(err error) {
	if diskFailed(err) {
		s.status.DiskFailed(err)
	}
}

// problemOf returns the members of a problem with this status and one line for people.
func problemOf(status int, text string) map[string]any {
	return map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"detail": text, "error": text,
	}
}

// sendJSON answers with a value as JSON.
func (s *Server) sendJSON(w http.ResponseWriter, r *http.Request, status int, value any) error {
	s.send(w, r, "application/json", status, value)
	return nil
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, contentType string, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		s.log.Error("answer is no JSON", "method", r.Method, "path", r.URL.Path, "error", err)
		status, contentType = http.StatusInternalServerError, problemType
		data = []byte(`{"title":"Internal Server Error","status":500,"error":"The answer could not be written as JSON"}`)
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	// An error means that the client is gone: there is nothing to report and no recipient.
	_, _ = w.Write(append(data, '\n'))
}
