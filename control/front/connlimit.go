package front

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Near the limit of open files, a new connection would take a descriptor from running work, and a connection that is
// not accepted would wait without an explanation. So it is accepted, answered with 503, and closed. If no descriptor is
// left, because work or watches have taken the last ones, a spare one is closed for that.

// maxRejecting bounds how many connections are being rejected at once: each holds a descriptor until it is closed.
const maxRejecting = 2

const spareTime = 10 * time.Millisecond // how long the spare descriptor is free for a connection

// connLimiter rejects connections near the limit of open files.
type connLimiter struct {
	quota     func() error // wraps EMFILE when no descriptor may be used for a client
	refusal   func(error) *RefusalError
	rejecting chan struct{}           // with room for maxRejecting
	spare     atomic.Pointer[os.File] // the spare descriptor, nil while it is closed
	running   *sync.WaitGroup
	memory    memoryReleaser
}

// admit reports whether a connection may be served. If not, it is answered and closed in the background.
func (c *connLimiter) admit(accepted *conn) bool {
	err := c.quota()
	if !errors.Is(err, syscall.EMFILE) {
		return true
	}
	c.rejecting <- struct{}{} // blocks Accept while maxRejecting are under way
	c.running.Go(func() {
		defer func() { <-c.rejecting }()
		accepted.reject(c.refusal(err).Text)
		c.keepSpare()
	})
	return false
}

// accept accepts a connection, in place of the spare descriptor if no other is free.
func (c *connLimiter) accept(from net.Listener) (net.Conn, error) {
	c.keepSpare()
	accepted, err := from.Accept()
	if errors.Is(err, syscall.EMFILE) && c.closeSpare() {
		defer time.AfterFunc(spareTime, c.keepSpare).Stop() // there may be no client yet: Accept fails then too
		return from.Accept()
	}
	return accepted, err
}

// keepSpare opens the spare descriptor, if it is not open. If none is free, the next connection or its end tries again.
func (c *connLimiter) keepSpare() {
	if c.spare.Load() == nil {
		if file, err := os.Open(os.DevNull); err == nil {
			_ = c.spare.Swap(file).Close() // of another listener that was faster, or nil
		}
	}
}

// closeSpare closes the spare descriptor, and reports whether it was open.
func (c *connLimiter) closeSpare() bool { return c.spare.Swap(nil).Close() == nil }

// drainTimeout is how long reject waits for the request: when the connection is closed with the request unread, the
// kernel resets it and the client loses the answer.
const drainTimeout = 100 * time.Millisecond

func (c *conn) reject(text string) {
	defer func() { _ = c.Close() }() // the client has its answer, or is gone
	_ = c.SetReadDeadline(time.Now().Add(drainTimeout))
	head := make([]byte, 4096)
	linger := drainTimeout
	if n, _ := c.Conn.Read(head); n > 0 { // the answer does not depend on the request
		linger = lingerTime
	}
	c.headBytes.Store(inHandler)
	c.writeProblem(http.StatusServiceUnavailable, text, linger)
}

// listener wraps the connections it accepts. net/http closes a connection without an answer when its headers take too
// long, and refuses malformed requests in plain text; a wrapped connection answers both with a problem.
type listener struct {
	net.Listener
	limiter *connLimiter
}

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.limiter.accept(l.Listener)
		if errors.Is(err, syscall.EMFILE) { // the spare descriptor is in use; net/http would wait a second for it
			<-time.After(spareTime)
			continue
		}
		if err != nil {
			return nil, err
		}
		accepted := &conn{Conn: c, memory: &l.limiter.memory}
		accepted.memory.opened()
		if l.limiter.admit(accepted) {
			return accepted, nil
		}
	}
}
