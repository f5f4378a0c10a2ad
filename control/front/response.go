package front

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Response is the ResponseWriter of every handler. It records whether the status line is sent; after that an error can
// only be reported by closing the connection.
type Response struct {
	http.ResponseWriter
	server  *shared
	request *http.Request
	started bool
	// unlimitedBody is the body of the request without its limit. drain is how many bytes of it are read after an
	// answer that refuses it.
	unlimitedBody io.Reader
	drain         int64
}

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(status int) {
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Response) Write(p []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(p)
}

// ReadFrom preserves sendfile for logs and artifacts.
func (w *Response) ReadFrom(src io.Reader) (int64, error) {
	w.started = true
	return io.Copy(w.ResponseWriter, src)
}

// Started reports whether the status line is sent.
func (w *Response) Started() bool { return w.started }

// Unwrap implements the method that http.ResponseController looks for.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rangeWriter is the ResponseWriter for http.ServeContent. It discards the plain text of a refused Range.
type rangeWriter struct {
	*Response
	refused bool
}

// WriteHeader implements http.ResponseWriter.
func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.Response.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.Response.Write(p)
}

// ServeContent answers with a file, or with the part in the request's Range.
func (w *Response) ServeContent(changed time.Time, content io.ReadSeeker) error {
	out := &rangeWriter{Response: w}
	http.ServeContent(out, w.request, "", changed, content)
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
		return Refuse(http.StatusRequestedRangeNotSatisfiable, "The Range cannot be read: write it as in bytes=0-99")
	}
	return Refuse(http.StatusRequestedRangeNotSatisfiable, "The Range begins behind the end: there are %s bytes", size)
}

// SendJSON answers with a value as JSON.
func (w *Response) SendJSON(status int, value any) error {
	w.send(MediaJSON, status, value)
	return nil
}

func (w *Response) send(contentType string, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		w.server.config.Logger.Error("answer cannot be encoded as JSON", "method", w.request.Method, "path", w.request.URL.Path, "error", err)
		status, contentType = http.StatusInternalServerError, ProblemType
		data = []byte(`{"title":"Internal Server Error","status":500,"error":"The answer could not be written as JSON"}`)
	}
	_ = w.SendBytes(status, contentType, append(data, '\n')) // never fails
}

// SendBytes answers with data of a media type; with the headers alone to a HEAD. The result is nil.
func (w *Response) SendBytes(status int, media string, data []byte) error {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if w.request.Method != http.MethodHead {
		_, _ = w.Write(data) // an error means that the client is gone: there is nothing to report and no recipient
	}
	return nil
}

// limitBody bounds the body before a handler reads it, and refuses a Content-Length above the limit.
func (w *Response) limitBody(r *http.Request, row *Route) error {
	most := int64(MaxBody)
	if row.List > 0 {
		most = maxList
	}
	if r.ContentLength > most {
		w.unlimitedBody, w.drain = r.Body, most+MaxDrain
		return Refuse(http.StatusRequestEntityTooLarge, "The body has %d bytes, the limit is %d", r.ContentLength,
			most).WithHeader("Connection", "close")
	}
	if r.Body != nil && r.Body != http.NoBody {
		w.unlimitedBody, w.drain = r.Body, MaxDrain
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, most)
	}
	return nil
}

// drainBody sends the answer to a body that is too large, and then reads what the client still sends: many clients
// read the answer only after they have sent everything, and closing a connection with unread bytes resets it. A client
// that waits for 100 Continue sends nothing more.
func (w *Response) drainBody(send func()) {
	control := http.NewResponseController(w)
	if w.unlimitedBody == nil || w.request.Header.Get("Expect") != "" || control.EnableFullDuplex() != nil {
		send()
		return
	}
	send()
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(w.server.config.Limits.Body)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, w.unlimitedBody, w.drain) // at worst the client misses the answer
}
