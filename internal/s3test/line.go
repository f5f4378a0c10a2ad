package s3test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Line forwards connections to a server, as slowly and for as long as a test wants. Its methods are safe for
// concurrent use.
type Line struct {
	listener net.Listener
	to       string
	rate     atomic.Int64 // bytes a second to the server; 0 is as many as there are
	// how many bytes may still go to the server before every connection is cut; negative is any number
	room   atomic.Int64
	passed atomic.Int64
	conns  sync.WaitGroup

	ctx    context.Context //nolint:containedctx // it ends the connections
	cancel context.CancelFunc
}

// shallow is how much the kernel takes in advance on a line that is shallow, which the line has not let pass yet:
// little, as on a real slow line.
const shallow = 2 << 10

// NewLine listens on loopback and forwards to an address. isShallow has the kernel take little in advance, so that
// what is slow is seen as slow.
func NewLine(to string, isShallow bool) (*Line, error) {
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		if !isShallow {
			return nil
		}
		return c.Control(func(fd uintptr) {
			// a larger one makes it less slow, not wrong
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, shallow)
		})
	}}
	listener, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{listener: listener, to: to}
	l.room.Store(-1)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.conns.Go(l.accept)
	return l, nil
}

// URL is where it listens.
func (l *Line) URL() string { return "http://" + l.listener.Addr().String() }

// Slow lets so many bytes a second through to the server; 0 is as many as there are.
func (l *Line) Slow(rate int64) { l.rate.Store(rate) }

// CutAfter cuts every connection when so many bytes more have gone to the server, and until it is called again;
// negative is never.
func (l *Line) CutAfter(n int64) { l.room.Store(n) }

// Passed is how many bytes have gone to the server.
func (l *Line) Passed() int64 { return l.passed.Load() }

// Close ends all connections.
func (l *Line) Close() {
	l.cancel()
	_ = l.listener.Close()
	l.conns.Wait()
}

func (l *Line) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.conns.Go(func() { l.serve(conn) })
	}
}

func (l *Line) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	server, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	stop := context.AfterFunc(l.ctx, func() {
		_ = conn.Close()
		_ = server.Close()
	})
	defer stop()
	back := make(chan struct{})
	go func() { // serve waits for it
		defer close(back)
		_, _ = io.Copy(conn, server)
		_ = conn.Close()
	}()
	l.forward(server, conn)
	_ = server.Close()
	<-back
}

// forward copies to the server until either side ends, or there is no more room.
func (l *Line) forward(server, conn net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		piece := buffer
		if rate := l.rate.Load(); rate > 0 {
			piece = buffer[:min(int64(len(buffer)), max(rate/10, 1))]
		}
		n, err := conn.Read(piece)
		if n > 0 && !l.pass(server, piece[:n]) || err != nil {
			return
		}
		if rate := l.rate.Load(); rate > 0 {
			select {
			case <-time.After(time.Duration(n) * time.Second / time.Duration(rate)): // this is how slow the line is
			case <-l.ctx.Done():
				return
			}
		}
	}
}

func (l *Line) pass(server net.Conn, piece []byte) bool {
	cut := false
	if room := l.room.Load(); room >= 0 {
		left := l.room.Add(-int64(len(piece)))
		if cut = left <= 0; cut {
			l.room.Store(0)
			piece = piece[:max(0, int64(len(piece))+left)]
		}
	}
	n, err := server.Write(piece)
	l.passed.Add(int64(n))
	return err == nil && !cut
}
