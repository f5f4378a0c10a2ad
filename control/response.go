package control

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// responseWriter is the ResponseWriter of every handler. It records whether the status line is sent; after that an
// error can only be reported by closing the connection.
type responseWriter struct {
	http.ResponseWriter
	started bool
	// unlimitedBody is the body of the request without its limit. drain is how many bytes of it are read after an
	// answer that refuses it.
	unlimitedBody io.Reader
	drain         int64
}

// WriteHeader implements http.ResponseWriter.
func (a *responseWriter) WriteHeader(status int) {
	a.started = true
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *responseWriter) Write(p []byte) (int, error) {
	a.started = true
	return a.ResponseWriter.Write(p)
}

// ReadFrom preserves sendfile for logs and artifacts.
func (a *responseWriter) ReadFrom(src io.Reader) (int64, error) {
	a.started = true
	return io.Copy(a.ResponseWriter, src)
}

// Unwrap implements the method that http.ResponseController looks for.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// rangeWriter is the ResponseWriter for http.ServeContent. It discards the plain text of a refused Range.
type rangeWriter struct {
	*responseWriter
	refused bool
}

// WriteHeader implements http.ResponseWriter.
func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.responseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.responseWriter.Write(p)
}

// serveContent answers with a file, or with the part in the request's Range.
func serveContent(w *responseWriter, r *http.Request, changed time.Time, content io.ReadSeeker) error {
	out := &rangeWriter{responseWriter: w}
	http.ServeContent(out, r, "", changed, content)
	if !out.refused {
		return nil
	}
	h := w.Header()
	size := strings.TrimPrefix(h.Get("Content-Range"), "bytes */")
	for _, name := range []string{"Content-Disposition", "Content-Length", "Accept-Ranges"} {
		h.Del(name)
	}
	secure(h)
	if size == "" {
		return refuse(http.StatusRequestedRangeNotSatisfiable, "The Range cannot be read: write it as in bytes=0-99")
	}
	return refuse(http.StatusRequestedRangeNotSatisfiable, "The Range begins behind the end: there are %s bytes", size)
}
