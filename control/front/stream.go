package front

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// Stream is an answer that grows for as long as its client waits. It takes the connection from net/http, which would
// keep 10 KiB of buffers and the grown stack of the handler's goroutine during that time, and would write each chunk in
// three system calls. The connection is closed after the answer.
//
// One goroutine calls the methods.
type Stream struct {
	conn    net.Conn
	socket  net.Conn // below the wrapper of our listener, so that several parts are one system call
	server  *shared
	leave   func()      // ends the context of the stream: the client has disconnected
	unstop  func() bool // ends the wait for the end of that context
	chunked bool        // false for a client that speaks HTTP/1.0: its answer ends with the connection
	broken  bool        // a write has failed, or the stream has panicked
	size    [16]byte
	parts   [3][]byte // of a chunk: its size, its data and a line end
	unsent  net.Buffers
}

// Stream sends status 200 and the headers of w, and calls serve in a new goroutine; the handler must return without
// another use of w. The context of serve ends with the cause context.Canceled when the client disconnects, and with
// Config.Stopped when the server stops. Without a connection to take, which only another server than ours can cause,
// it returns an error and does not call serve.
func (w *Response) Stream(serve func(context.Context, *Stream)) error {
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusOK)
	w.server.hijacked.Add(1) // http.Server.Shutdown does not wait for hijacked connections
	c, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		w.server.hijacked.Done()
		return err
	}
	s := &Stream{conn: c, socket: c, server: w.server, chunked: w.request.ProtoAtLeast(1, 1)}
	if own, ok := c.(*conn); ok {
		s.socket = own.Conn
	}
	go s.run(serve)
	return nil
}

func (s *Stream) run(serve func(context.Context, *Stream)) {
	ctx, leave := context.WithCancel(s.server.base)
	s.leave = leave
	// From the end of ctx on, a client that reads nothing has as long as Server.Serve gives the clients of net/http.
	s.unstop = context.AfterFunc(ctx, func() {
		_ = s.socket.SetWriteDeadline(time.Now().Add(s.server.config.Limits.Stop)) // fails if it is closed
	})
	s.server.hijacked.Go(s.awaitClose)
	defer s.end()
	serve(ctx, s)
}

// end ends the answer and the connection.
func (s *Stream) end() {
	if thrown := recover(); thrown != nil { // it ends this stream alone, whose client sees that it is truncated
		s.broken = true
		s.server.config.Logger.Error("stream panicked", "panic", thrown, "stack", string(debug.Stack()))
	}
	if s.chunked && !s.broken {
		_, _ = s.socket.Write([]byte("0\r\n\r\n")) // an error means that the client is gone
	}
	s.unstop()
	_ = s.conn.Close() // the client has everything, or is gone
	s.leave()
	s.server.hijacked.Done()
}

// awaitClose ends the context when the client closes its side of the connection. It discards what the client sends.
func (s *Stream) awaitClose() {
	defer s.leave()
	for discarded := make([]byte, 64); ; {
		if _, err := s.socket.Read(discarded); err != nil {
			return
		}
	}
}

// Draining is that of the server.
func (s *Stream) Draining() bool { return s.server.draining.Load() }

// Write implements io.Writer. It sends p without a copy and without a buffer.
func (s *Stream) Write(p []byte) (int, error) {
	if s.broken {
		return 0, net.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil // a chunk of size 0 is the last one
	}
	s.parts[1] = p
	s.unsent = s.parts[1:2]
	if s.chunked {
		s.parts[0] = append(strconv.AppendInt(s.size[:0], int64(len(p)), 16), "\r\n"...)
		s.parts[2] = []byte("\r\n")
		s.unsent = s.parts[:]
	}
	_, err := s.unsent.WriteTo(s.socket)
	clear(s.parts[:])
	if err != nil {
		s.broken = true
		s.leave()
		return 0, err // how much of p has arrived is unknown
	}
	return len(p), nil
}
