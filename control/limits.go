package control

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// Limits bound what one client can cost. A zero member means the default.
type Limits struct {
	// Header is how long the headers of a request may take to arrive; default 10 s.
	Header time.Duration
	// Body is how long a body may take to arrive; default 30 s.
	Body time.Duration
	// Idle is how long a connection is kept without a request; default 2 min.
	Idle time.Duration
	// Take is how long a client that follows events may take nothing of them before it is let go; default 1 min.
	Take time.Duration
	// Stop is how long a stopping server waits for answers that are under way before it cuts them off; default 3 s.
	Stop time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Header = cmp.Or(l.Header, 10*time.Second)
	l.Body = cmp.Or(l.Body, 30*time.Second)
	l.Idle = cmp.Or(l.Idle, 2*time.Minute)
	l.Take = cmp.Or(l.Take, time.Minute)
	l.Stop = cmp.Or(l.Stop, 3*time.Second)
	return l
}

const (
	// maxURL and maxHeaders are the largest URL and the largest sum of headers that are answered, in bytes.
	maxURL     = 64 << 10
	maxHeaders = 64 << 10
	// maxRequest is where net/http stops to read a head at all and refuses it by itself, see conn.
	maxRequest = 1 << 20
	// maxBody is the largest body, in bytes, and maxList that of a route that takes lists.
	maxBody = 1 << 20
	maxList = 32 << 20
)

var (
	longURL      = fmt.Sprintf("The URL is longer than %d bytes; POST takes parameters as a JSON body", maxURL)
	largeHeaders = fmt.Sprintf("The headers are larger than %d bytes", maxHeaders)
)

// checkSize refuses a head that is too large, and a body where none is read.
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
		return refuse(http.StatusBadRequest, "A %s has no body here; parameters stand in the URL", r.Method).heads("Connection", "close")
	}
	return nil
}

// limitBody bounds the body of a request before a handler reads it, and refuses one that says it is larger.
func (s *Server) limitBody(w *answer, r *http.Request, row *route) error {
	most := int64(maxBody)
	if row.lists {
		most = maxList
	}
	if r.ContentLength > most {
		return &tooLargeError{r.ContentLength, most}
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, most)
	}
	return nil
}

// readBody returns the body of a request, which is empty or JSON.
func (s *Server) readBody(w *answer, r *http.Request) ([]byte, error) {
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
	// The deadline would end the context of the request while it is answered.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != mediaJSON {
		return nil, refuse(http.StatusUnsupportedMediaType, "The body must be JSON, sent with 'Content-Type: application/json'").heads("Accept", mediaJSON)
	}
	return data, nil
}

// tooLargeError says that a body is announced to be too large.
type tooLargeError struct{ size, most int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("a body of %d bytes, more than %d", e.size, e.most)
}

// bodyError tells what is the client's from what has a mapping already.
func bodyError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(http.StatusBadRequest, "The body ended early").heads("Connection", "close")
	}
	return err
}
