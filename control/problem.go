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
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// retryAfter is the Retry-After of a daemon that will be back soon, in seconds.
const retryAfter = 5

// refusal is an error that knows the answer it is: a status, one line for people, and members for programs.
type refusal struct {
	status int
	text   string
	more   map[string]any // further members of the problem
	header http.Header    // further headers of the answer
	cause  error          // what the log gets; nil when the text says it all
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.cause }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// with adds a member to the problem.
func (e *refusal) with(member string, value any) *refusal {
	if e.more == nil {
		e.more = make(map[string]any)
	}
	e.more[member] = value
	return e
}

// heads adds a header to the answer.
func (e *refusal) heads(name, value string) *refusal {
	if e.header == nil {
		e.header = make(http.Header)
	}
	e.header.Add(name, value)
	return e
}

func (e *refusal) soon() *refusal { return e.heads("Retry-After", strconv.Itoa(retryAfter)) }

func notLive(id statefs.ID) *refusal {
	return refuse(http.StatusNotFound, "Operation '%s' not found or already finished", id).with("id", id)
}

func notFound(id statefs.ID) *refusal {
	return refuse(http.StatusNotFound, "Operation '%s' not found", id).with("id", id)
}

// notReady says why the history cannot be asked, and when to ask again.
func notReady(err error) *refusal {
	known, ok := errors.AsType[*history.NotReadyError](err)
	if !ok {
		return refuse(http.StatusServiceUnavailable, "%s", history.ErrNotReady).soon()
	}
	return refuse(http.StatusServiceUnavailable, "%s", known).heads("Retry-After", strconv.Itoa(int(known.After().Seconds())))
}

// refusalOf is the one mapping from errors to statuses.
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
			return answer // it is about the whole body
		}
		return answer.with("parameter", wrong.Param)
	}
	if wrong, ok := errors.AsType[*statefs.ArgsError](err); ok {
		if wrong.Member == "" {
			return refuse(http.StatusBadRequest, "The body cannot be taken: %s", printable(wrong.Why, 500))
		}
		member := printable(wrong.Member, 200)
		return refuse(http.StatusBadRequest, "Invalid parameter '%s': %s", member, printable(wrong.Why, 500)).with("parameter", member)
	}
	if large, ok := errors.AsType[*tooLargeError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "The body has %d bytes, and at most %d are taken here", large.size, large.most).heads("Connection", "close")
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes", large.Limit).heads("Connection", "close")
	}
	if blocked, ok := errors.AsType[*statefs.BlockedError](err); ok {
		return refuse(http.StatusConflict, "%s", blocked.Error()).with("file", blocked.File)
	}
	if displaced, ok := errors.AsType[*statefs.DisplacedError](err); ok {
		answer := refuse(http.StatusServiceUnavailable, "The daemon stops: %s", displaced.Error())
		answer.cause = err
		return answer
	}
	if diskFailed(err) {
		answer := refuse(http.StatusInternalServerError, "The disk of the daemon fails, and the daemon stops; its log says why")
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
		return refuse(http.StatusRequestTimeout, "The request took too long to arrive").heads("Connection", "close")
	case errors.Is(err, stream.ErrShutdown):
		return refuse(http.StatusServiceUnavailable, "The daemon is shutting down").soon()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		answer = refuse(http.StatusInsufficientStorage, "The storage of the daemon is full: make room, then try again")
	case statefs.OutOfFiles(err):
		answer = refuse(http.StatusServiceUnavailable, "The daemon has too many files open: try again, or raise its limit (ulimit -n)").soon()
	default:
		answer = refuse(http.StatusInternalServerError, "The daemon could not do this; its log says why")
	}
	answer.cause = err
	return answer
}

// diskFailed says that nobody knows what is on the disk after this error, or that nothing can be written to it any more.
func diskFailed(err error) bool {
	_, failed := errors.AsType[*statefs.SyncError](err)
	return failed || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// fail answers a request with a problem. What went wrong inside the daemon is logged, with a number that the answer names.
func (s *Server) fail(w *answer, r *http.Request, err error) {
	known := refusalOf(err)
	if known.cause != nil {
		s.status.Health() // which looks whether the daemon can go on
		s.tellDaemon(err)
		number := s.failures.Add(1)
		known = known.with("log_entry", number)
		s.log.Error("request failed", "log_entry", number, "method", r.Method, "path", r.URL.Path, "status", known.status, "error", err)
	}
	if w.started {
		// Bytes of another answer are on their way: only the end of the connection can say that they are not all.
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), known.header)
	body := problemOf(known.status, cut(known.text, mostSaid))
	for member, value := range known.more {
		if text, is := value.(string); is {
			value = cut(text, mostNamed)
		}
		if _, ours := body[member]; !ours {
			body[member] = value
		}
	}
	s.send(w, r, problemType, known.status, body)
}

// What a message, and a member of it such as the name of a parameter, has at most, in bytes: a client may have sent a megabyte of it.
const (
	mostSaid  = 2000
	mostNamed = 256
)

// cut shortens text to so many bytes at most, and says so with an ellipsis.
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

// tellDaemon ends the daemon when an error is one of a disk that fails.
func (s *Server) tellDaemon(err error) {
	if diskFailed(err) {
		s.status.DiskFailed(err)
	}
}

// problemOf makes a problem of a status and one line for people.
func problemOf(status int, text string) map[string]any {
	return map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": text, "error": text}
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
	// A client that is gone is no error of ours, and there is nobody left to tell.
	_, _ = w.Write(append(data, '\n'))
}
