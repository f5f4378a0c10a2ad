package front

import (
	"bytes"
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

// conn is a connection that tracks whether the head of a request is arriving.
type conn struct {
	net.Conn
	// headBytes counts the bytes since the last answer; it is negative while a handler has the request.
	headBytes atomic.Int64
	// hasRequestLine is set once the first line of the head has arrived.
	hasRequestLine atomic.Bool
	// handled is set once our handler has the request: bytes written from then on are its answer. net/http reports the
	// connection as active also while it refuses the request by itself.
	handled atomic.Bool
	// stallTimeout is how long, in nanoseconds, a write may make no progress; 0: no limit. stalled is set when the
	// client exceeded it.
	stallTimeout atomic.Int64
	stalled      atomic.Bool
	// memory counts the open connections. closed makes Close count this one once.
	memory *memoryReleaser
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.memory != nil && !c.closed.Swap(true) {
		c.memory.closed()
	}
	return c.Conn.Close()
}

// connKey is the context key of the conn of a request.
type connKey struct{}

// markHandled marks the connection of r as handled.
func markHandled(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.handled.Store(true)
	}
}

const inHandler = -1 << 62

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.headBytes.Add(int64(n))
		if !c.hasRequestLine.Load() && bytes.IndexByte(p[:n], '\n') >= 0 {
			c.hasRequestLine.Store(true)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.headBytes.Load() > 0 {
		c.headBytes.Store(inHandler)
		c.writeProblem(http.StatusRequestTimeout, "The headers of the request took too long to arrive", lingerTime)
	}
	return n, err
}

// ReadFrom preserves sendfile: net/http looks for io.ReaderFrom on the connection.
func (c *conn) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.Conn, src) }

const (
	// lingerTime and lingerBytes bound how much is read from a client after its last answer: closing with unread bytes
	// makes the kernel reset the connection, and a reset can overtake the answer.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

// Write implements net.Conn. Bytes written before a handler has the request are a refusal by net/http.
func (c *conn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		if taking := time.Duration(c.stallTimeout.Load()); taking > 0 {
			return c.writeUnlessStalled(p, taking)
		}
		return c.Conn.Write(p)
	}
	status, text := c.parseRefusal(p)
	if status == 0 {
		return c.Conn.Write(p)
	}
	c.headBytes.Store(inHandler)
	c.writeProblem(status, text, lingerTime)
	return len(p), nil
}

// parseRefusal parses a refusal of net/http, such as "HTTP/1.1 400 Bad Request: missing required Host header"; it
// returns 0 for anything else.
func (c *conn) parseRefusal(p []byte) (status int, text string) {
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	code, said, _ := strings.Cut(strings.TrimPrefix(string(line), "HTTP/1.1 "), " ")
	status, err := strconv.Atoi(code)
	if err != nil || status < http.StatusBadRequest {
		return 0, ""
	}
	_, reason, _ := strings.Cut(said, ": ")
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge && !c.hasRequestLine.Load():
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
	return status,
		"The request cannot be read: its first line or a header is malformed, Host is there twice, or it is not HTTP"
}

// writeProblem answers a request that reaches no handler with a problem. The connection cannot be used afterwards. The
// rest of the request may arrive within linger.
func (c *conn) writeProblem(status int, text string, linger time.Duration) {
	body, err := json.Marshal(problemOf(status, text))
	if err != nil {
		return // text is a short constant or comes from net/http
	}
	later := ""
	if status == http.StatusServiceUnavailable {
		later = "Retry-After: 1\r\n"
	}
	_ = c.SetWriteDeadline(time.Now().Add(lingerTime)) // at worst the client misses the answer
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s"+
		"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), ProblemType, len(body)+1, later, body)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(linger)) // at worst there is no linger
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}
