package control

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/jobdir/jobdir/stream"
)

// Limits bound what one client can cost. A zero field means the default.
type Limits struct {
	// Header is how long the headers of a request may take to arrive; default 10 s.
	Header time.Duration
	// Body is how long a body may take to arrive; default 30 s.
	Body time.Duration
	// Idle is how long a connection stays open without a request; default 2 min.
	Idle time.Duration
	// WriteStall is how long a client of an event stream may read nothing before it is disconnected; default 1 min.
	WriteStall time.Duration
	// Stop is how long a stopping server waits for answers that are under way before it closes them; default 3 s.
	Stop time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Header = cmp.Or(l.Header, 10*time.Second)
	l.Body = cmp.Or(l.Body, 30*time.Second)
	l.Idle = cmp.Or(l.Idle, 2*time.Minute)
	l.WriteStall = cmp.Or(l.WriteStall, time.Minute)
	l.Stop = cmp.Or(l.Stop, 3*time.Second)
	return l
}

const (
	// maxURL and maxHeaders are the largest accepted URL and sum of headers, in bytes.
	maxURL     = 64 << 10
	maxHeaders = 64 << 10
	// maxRequest is where net/http stops reading a head and refuses it by itself; see conn.
	maxRequest = 1 << 20
	// maxBody is the largest body, in bytes, and maxList the largest on routes that accept lists.
	maxBody = 1 << 20
	maxList = 32 << 20
	// maxDrain is how many bytes beyond the limit are read of a refused body.
	maxDrain = 1 << 20
)

var (
	longURL      = fmt.Sprintf("The URL is longer than %d bytes; POST takes parameters as a JSON body", maxURL)
	largeHeaders = fmt.Sprintf("The headers are larger than %d bytes", maxHeaders)
)

// checkSize refuses a head that is too large, and a body on GET and HEAD.
func (s *Server) checkSize(r *http.Request) error {
	if len(r.RequestURI) > maxURL {
		return refuse(http.StatusRequestURITooLong, "%s", longURL)
	}
	size := len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	if size > maxHeaders {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "%s", largeHeaders)
	}
	if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return refuse(http.StatusBadRequest, "A %s has no body here; parameters stand in the URL",
			r.Method).withHeader("Connection", "close")
	}
	return nil
}

// limitBody bounds the body before a handler reads it, and refuses a Content-Length above the limit.
func (s *Server) limitBody(w *responseWriter, r *http.Request, row *route) error {
	most := int64(maxBody)
	if row.lists {
		most = maxList
	}
	if r.ContentLength > most {
		w.unlimitedBody, w.drain = r.Body, most+maxDrain
		return &tooLargeError{r.ContentLength, most}
	}
	if r.Body != nil && r.Body != http.NoBody {
		w.unlimitedBody, w.drain = r.Body, maxDrain
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, most)
	}
	return nil
}

// notJSON is the refusal of a body that is not JSON.
func notJSON() *refusal {
	const text = "The body must be JSON, sent with 'Content-Type: application/json'"
	return refuse(http.StatusUnsupportedMediaType, text).withHeader("Accept", mediaJSON)
}

// readBody returns the body of a request, which is empty or JSON.
func (s *Server) readBody(w *responseWriter, r *http.Request) ([]byte, error) {
	data, err := s.readAll(w, r)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != mediaJSON {
		return nil, notJSON()
	}
	return data, nil
}

// readAll returns the body of a request.
func (s *Server) readAll(w *responseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	control := http.NewResponseController(w)
	deadline := time.Now().Add(s.limits.Body)
	if err := control.SetReadDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	// Left in place, the deadline would cancel the context of the request.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return data, nil
}

// drainBody sends the answer to a body that is too large, and then reads what the client still sends: many clients
// read the answer only after they have sent everything, and closing a connection with unread bytes resets it. A client
// that waits for 100 Continue sends nothing more.
func (s *Server) drainBody(w *responseWriter, r *http.Request, send func()) {
	control := http.NewResponseController(w)
	if w.unlimitedBody == nil || r.Header.Get("Expect") != "" || control.EnableFullDuplex() != nil {
		send()
		return
	}
	send()
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(s.limits.Body)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, w.unlimitedBody, w.drain) // at worst the client misses the answer
}

// tooLargeError means that Content-Length exceeds the limit.
type tooLargeError struct{ size, most int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("a body of %d bytes, more than %d", e.size, e.most)
}

// bodyError maps an error of reading the body to a refusal: all such errors are the client's fault.
func bodyError(err error) error {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, stream.ErrShutdown):
		return err // refusalOf maps these itself
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(http.StatusBadRequest, "The body ended early").withHeader("Connection", "close")
	}
	return refuse(http.StatusBadRequest, "The body cannot be read: %s",
		printable(err.Error(), 200)).withHeader("Connection", "close")
}
