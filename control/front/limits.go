package front

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
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

// The limits of a request.
const (
	// MaxURL and MaxHeaders are the largest accepted URL and sum of headers, in bytes.
	MaxURL     = 64 << 10
	MaxHeaders = 64 << 10
	// MaxRequest is where net/http stops reading a head and refuses it by itself; see conn.
	MaxRequest = 1 << 20
	// MaxBody is the largest body, in bytes, and maxList the largest on routes that accept lists.
	MaxBody = 1 << 20
	maxList = 32 << 20
	// MaxDrain is how many bytes beyond the limit are read of a refused body.
	MaxDrain = 1 << 20
)

var (
	longURL      = fmt.Sprintf("The URL is longer than %d bytes; POST takes parameters as a JSON body", MaxURL)
	largeHeaders = fmt.Sprintf("The headers are larger than %d bytes", MaxHeaders)
)

// checkSize refuses a head that is too large, and a body on GET and HEAD.
func checkSize(r *http.Request) error {
	if len(r.RequestURI) > MaxURL {
		return Refuse(http.StatusRequestURITooLong, "%s", longURL)
	}
	size := len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	if size > MaxHeaders {
		return Refuse(http.StatusRequestHeaderFieldsTooLarge, "%s", largeHeaders)
	}
	if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return Refuse(http.StatusBadRequest, "A %s has no body here; parameters stand in the URL",
			r.Method).WithHeader("Connection", "close")
	}
	return nil
}
