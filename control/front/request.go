package front

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/julienschmidt/httprouter"
)

// Request is a request that has passed the guard and has a route.
type Request struct {
	*http.Request
	server   *shared
	response *Response
	row      *Route
	params   httprouter.Params
}

// Param returns the segment of the path that the route names.
func (r *Request) Param(name string) string { return r.params.ByName(name) }

// OverUnix reports whether the request came over a unix socket.
func (r *Request) OverUnix() bool { return overUnix(r.Request) }

// Draining is that of the server.
func (r *Request) Draining() bool { return r.server.draining.Load() }

// maxCreator is the length of the longest created_by, in bytes.
const maxCreator = 128

// Creator returns who made the request: the name of its token, or without a token the header X-Created-By; "" if
// unknown.
func (r *Request) Creator() (string, error) {
	if name, ok := r.server.guard.tokens.lookup(r.Request); ok {
		return Printable(name, maxCreator), nil
	}
	if r.Header.Get("Authorization") != "" {
		return "", nil // an unknown token: X-Created-By is not believed either
	}
	by := r.Header.Get("X-Created-By")
	if len(by) > maxCreator || Printable(by, maxCreator) != by {
		return "", Refuse(http.StatusBadRequest, "X-Created-By must be printable and at most %d bytes long", maxCreator)
	}
	return by, nil
}

// Scope returns the namespace of the request's idempotency keys: one per token name, and one for all requests without a
// token.
func (r *Request) Scope() string {
	name, ok := r.server.guard.tokens.lookup(r.Request)
	if !ok {
		return ""
	}
	return "token " + Printable(name, maxCreator)
}

// notJSON is the refusal of a body that is not JSON.
func notJSON() *RefusalError {
	const text = "The body must be JSON, sent with 'Content-Type: application/json'"
	return Refuse(http.StatusUnsupportedMediaType, text).WithHeader("Accept", MediaJSON)
}

// ReadBody returns the body, which is empty or JSON.
func (r *Request) ReadBody() ([]byte, error) {
	data, err := r.readAll()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != MediaJSON {
		return nil, notJSON()
	}
	return data, nil
}

// readAll returns the body.
func (r *Request) readAll() ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	control := http.NewResponseController(r.response)
	deadline := time.Now().Add(r.server.config.Limits.Body)
	if err := control.SetReadDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, r.bodyError(err)
	}
	// Left in place, the deadline would cancel the context of the request.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return data, nil
}

// bodyError maps an error of reading the body to a refusal: all such errors are the client's fault.
func (r *Request) bodyError(err error) error {
	answer := Refuse(http.StatusBadRequest, "The body cannot be read: %s", Printable(err.Error(), 200))
	large, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		answer = Refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		answer = Refuse(http.StatusRequestTimeout, "The request took too long to arrive")
	case errors.Is(err, r.server.config.Stopped):
		return err // it has a refusal of its own
	case errors.Is(err, io.ErrUnexpectedEOF):
		answer = Refuse(http.StatusBadRequest, "The body ended early")
	}
	return answer.WithHeader("Connection", "close")
}

// BoundStall bounds how long writes to the client may make no progress, for the lifetime of the connection; the
// connection must not be used for another request. The result returns ErrStalled once the client read nothing for
// too long: then one more short write gets through.
func (r *Request) BoundStall() (stalled func() error) {
	return boundStall(r.Context(), r.server.config.Limits.WriteStall)
}
