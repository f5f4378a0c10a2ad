package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// conn is a connection that knows whether the head of a request is arriving.
type conn struct {
	net.Conn
	// heard counts the bytes since the last answer, or is negative while a request is in the hands of a handler.
	heard atomic.Int64
	// line says that the first line of the head has arrived.
	line atomic.Bool
	// handled says that our handler has the request, so that what is written is its answer. net/http calls a connection active also
	// while it refuses the request by itself.
	handled atomic.Bool
	// taking is how long, in nanoseconds, the client may take nothing of what is written; 0: for ever. stuck says that it did not.
	taking atomic.Int64
	stuck  atomic.Bool
}

// connKey is the key of the conn in the context of its requests.
type connKey struct{}

// keepConn is http.Server.ConnContext.
func keepConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// noteHandler notes that a handler has the request.
func noteHandler(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.handled.Store(true)
	}
}

const beingAnswered = -1 << 62

// noteState follows http.Server.ConnState: a new or idle connection waits for a head, an active one has been read a whole head of.
func noteState(c net.Conn, state http.ConnState) {
	own, ok := c.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateNew, http.StateIdle:
		own.heard.Store(0)
		own.line.Store(false)
		own.handled.Store(false)
	case http.StateActive, http.StateHijacked, http.StateClosed:
		own.heard.Store(beingAnswered)
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Add(int64(n))
		if !c.line.Load() && bytes.IndexByte(p[:n], '\n') >= 0 {
			c.line.Store(true)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.heard.Load() > 0 {
		c.heard.Store(beingAnswered)
		c.lastWord(http.StatusRequestTimeout, "The headers of the request took too long to arrive", lingerTime)
	}
	return n, err
}

// ReadFrom keeps the kernel's copy from file to socket: net/http looks for it on the connection.
func (c *conn) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.Conn, src) }

const (
	// lingerTime and lingerBytes bound what is read from a client after its last answer: closing with unread bytes makes the
	// kernel reset the connection, and a reset can overtake the answer.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

// Write implements net.Conn. What is written before a handler has the request is a refusal of net/http.
func (c *conn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		if taking := time.Duration(c.taking.Load()); taking > 0 {
			return c.writeTaken(p, taking)
		}
		return c.Conn.Write(p)
	}
	status, text := c.refused(p)
	if status == 0 {
		return c.Conn.Write(p)
	}
	c.heard.Store(beingAnswered)
	c.lastWord(status, text, lingerTime)
	return len(p), nil
}

// refused reads a refusal of net/http, as "HTTP/1.1 400 Bad Request: missing required Host header"; 0 when it is none.
func (c *conn) refused(p []byte) (status int, text string) {
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	code, said, _ := strings.Cut(strings.TrimPrefix(string(line), "HTTP/1.1 "), " ")
	status, err := strconv.Atoi(code)
	if err != nil || status < http.StatusBadRequest {
		return 0, ""
	}
	_, reason, _ := strings.Cut(said, ": ")
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge && !c.line.Load():
		return http.StatusRequestURITooLong, longURL
	case status == http.StatusRequestHeaderFieldsTooLarge:
		return status, largeHeaders
	case status == http.StatusExpectationFailed:
		return status, "The only Expect that is known here is 100-continue"
	case status == http.StatusNotImplemented:
		return status, "The only Transfer-Encoding that is known here is chunked"
	case reason != "":
		return status, "The request cannot be read: " + reason
	}
	return status, "The request cannot be read: its first line or a header is malformed, Host is there twice, or it is not HTTP"
}

// lastWord answers a request that reaches no handler with a problem. The connection is good for nothing after it. The rest of
// the request may take the time linger to arrive.
func (c *conn) lastWord(status int, text string, linger time.Duration) {
	body, err := json.Marshal(problemOf(status, text))
	if err != nil {
		return // text is a few words of ours or of net/http
	}
	later := ""
	if status == http.StatusServiceUnavailable {
		later = "Retry-After: 1\r\n"
	}
	_ = c.SetWriteDeadline(time.Now().Add(lingerTime)) // the worst is that the client is not told
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s"+
		"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), problemType, len(body)+1, later, body)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(linger)) // the worst is that the linger is left out
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}
