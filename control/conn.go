package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// listener wraps the connections it accepts. net/http closes a connection whose headers take too long without a word; the client
// of a wrapped one is told.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn is a connection that knows whether the head of a request is arriving.
type conn struct {
	net.Conn
	// heard counts the bytes since the last answer, or is negative while a request is in the hands of a handler.
	heard atomic.Int64
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
	case http.StateActive, http.StateHijacked, http.StateClosed:
		own.heard.Store(beingAnswered)
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Add(int64(n))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.heard.Load() > 0 {
		c.heard.Store(beingAnswered)
		c.tooSlow()
	}
	return n, err
}

// ReadFrom keeps the kernel's copy from file to socket: net/http looks for it on the connection.
func (c *conn) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.Conn, src) }

const (
	// lingerTime and lingerBytes bound what is read from a client after its last answer: closing with unread bytes makes the
	// kernel reset the connection, and a reset can overtake the answer.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// tooSlow answers a head that did not arrive in time. The caller's error then makes net/http close the connection.
func (c *conn) tooSlow() {
	body := `{"type":"about:blank","title":"Request Timeout","status":408,` +
		`"detail":"The headers of the request took too long to arrive","error":"The headers of the request took too long to arrive"}` + "\n"
	_ = c.SetWriteDeadline(time.Now().Add(lingerTime)) // the worst is that the client is not told
	_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 408 Request Timeout\r\nContent-Type: %s\r\nContent-Length: %d\r\n"+
		"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n%s", problemType, len(body), body)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime)) // the worst is that the linger is left out
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}
