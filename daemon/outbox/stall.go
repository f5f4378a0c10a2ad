package outbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// expectAbove is the size above which a request waits for the server's consent (100-continue)
// before it sends the body. A server that refuses then answers at once; otherwise it may close the
// connection in the middle of the body, and its answer is lost.
const expectAbove = 1 << 20

// stall cancels a context when a transfer makes no progress for its timeout, however long the
// transfer takes in all.
type stall struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	conn   net.Conn   // the connection in use
	queued int        // bytes that the kernel had left to send when the timer last fired
}

// watchStall returns a context that is cancelled when no progress is reported to the stall for
// timeout.
func watchStall(ctx context.Context, timeout time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stall{timeout: timeout, cancel: cancel}
	s.mu.Lock() // the timer may fire before the field is set
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(timeout, s.check)
	return ctx, s
}

// check cancels the context, unless the kernel is still sending: on a slow line one write takes
// long.
func (s *stall) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		if queued, ok := unsent(s.conn); ok && queued != s.queued {
			s.queued = queued
			s.timer.Reset(s.timeout)
			return
		}
	}
	s.cancel(fmt.Errorf("nothing moved for %s", s.timeout))
}

func (s *stall) moved() { s.timer.Reset(s.timeout) }

func (s *stall) use(conn net.Conn) {
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = inner.NetConn()
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	s.moved()
}

// stop ends the watching and cancels the context.
func (s *stall) stop() {
	s.timer.Stop()
	s.cancel(context.Canceled)
}

// stallTransport makes requests that report progress to a stall, and keeps the last Retry-After of
// the server.
type stallTransport struct {
	base       http.RoundTripper
	stall      *stall
	retryAfter atomic.Int64 // a time.Duration
}

// RoundTrip implements http.RoundTripper.
func (r *stallTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { r.stall.use(info.Conn) },
	}))
	if request.Body != nil {
		request.Body = movingBody{request.Body, r.stall}
		if request.ContentLength > expectAbove {
			request.Header.Set("Expect", "100-continue")
		}
	}
	response, err := r.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	r.stall.moved()
	r.retryAfter.Store(int64(retryAfter(response.Header.Get("Retry-After"), time.Now())))
	response.Body = movingBody{response.Body, r.stall}
	return response, nil
}

// movingBody reports reads to a stall.
type movingBody struct {
	io.ReadCloser
	stall *stall
}

// Read implements io.Reader.
func (b movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.stall.moved()
	}
	return n, err
}

// unsent returns how many bytes of a connection the peer has not acknowledged; false when that is
// unknown.
func unsent(conn net.Conn) (n int, ok bool) {
	c, isRaw := conn.(syscall.Conn)
	if !isRaw {
		return 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil ||
		failed != nil {
		return 0, false
	}
	return n, true
}
