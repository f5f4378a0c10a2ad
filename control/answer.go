package control

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// answer is the ResponseWriter of every handler. It remembers whether the status line has left, after which an error can only
// be told by ending the connection.
type answer struct {
	http.ResponseWriter
	started bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.started = true
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.started = true
	return a.ResponseWriter.Write(p)
}

// ReadFrom keeps the kernel's copy from file to socket for logs and artifacts.
func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	a.started = true
	return io.Copy(a.ResponseWriter, src)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// ranged is the ResponseWriter for http.ServeContent. It keeps back the plain text with which that refuses a Range.
type ranged struct {
	*answer
	refused bool
}

// WriteHeader implements http.ResponseWriter.
func (w *ranged) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.answer.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *ranged) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.answer.Write(p)
}

// serveContent answers with a file or with the part of it that the request asks for.
func serveContent(w *answer, r *http.Request, changed time.Time, content io.ReadSeeker) error {
	out := &ranged{answer: w}
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
