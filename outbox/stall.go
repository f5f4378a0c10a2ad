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
	"time"
)

// expectAbove is the size from which on a server is asked before the body is sent: one that refuses says so at once, where it would
// otherwise close the connection in the middle of the body and its answer be lost.
const expectAbove = 1 << 20

// stall ends a context when nothing moves for a while, however long it takes in all.
type stall struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	conn   net.Conn   // the connection in use
	queued int        // how many bytes the kernel had left to send when the timer went off last
}

// watchStall returns a context that ends when nothing moves for timeout, and what has to be told of each movement.
func watchStall(ctx context.Context, timeout time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stall{timeout: timeout, cancel: cancel}
	s.mu.Lock() // the timer may go off before it is in its field
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(timeout, s.look)
	return ctx, s
}

// look ends the context, unless the kernel still gets rid of what it was given: a slow line takes long for one write.
func (s *stall) look() {
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

// stop ends the watching, and the context.
func (s *stall) stop() {
	s.timer.Stop()
	s.cancel(context.Canceled)
}

// rounds makes requests whose movements a stall is told of, and remembers how long the server asked to be left alone.
type rounds struct {
	base  http.RoundTripper
	stall *stall
	later atomic.Int64 // a time.Duration
}

// RoundTrip is of http.RoundTripper.
func (r *rounds) RoundTrip(request *http.Request) (*http.Response, error) {
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
	r.later.Store(int64(retryAfter(response.Header.Get("Retry-After"), time.Now())))
	response.Body = movingBody{response.Body, r.stall}
	return response, nil
}

// movingBody tells a stall of what is read.
type movingBody struct {
	io.ReadCloser
	stall *stall
}

// Read is of io.Reader.
func (b movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.stall.moved()
	}
	return n, err
}
