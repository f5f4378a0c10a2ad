package control

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/stream"
)

// eventSocket is GET /api/v1/ws: the events of /api/v1/events, each as the JSON of one text message. The guard has
// checked host, origin and token, more strictly than for other reads: browsers let any page open a WebSocket anywhere.
func (s *Server) eventSocket(w *responseWriter, r *http.Request, _ httprouter.Params) error {
	reader, ids, err := s.eventReader(r)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := s.tree.Descriptors.ForReader(); err != nil {
		return err
	}
	s.sockets.Add(1) // http.Server.Shutdown does not wait for hijacked connections
	defer s.sockets.Done()
	shake := &handshake{responseWriter: w}
	socket, err := websocket.Accept(shake, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the guard has checked the origin against the daemon's own names
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return shake.refusal(err)
	}
	w.started = true
	defer s.followAll(ids)()
	defer func() { _ = socket.CloseNow() }() // after the close frame, or when the client is gone
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	// heard ends when the client leaves or sends anything. It does not end with the server: that would close the
	// connection without a close frame.
	heard := socket.CloseRead(context.WithoutCancel(ctx))
	defer context.AfterFunc(heard, stop)()
	// When the server stops, a write that is under way gets lingerTime to finish: a context that ends during a write
	// closes the connection without a close frame, and a client may have read a whole message before its Write returns.
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(heard, giveUp)()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lingerTime, giveUp) })()
	out := &socketWriter{ctx: writing, socket: socket, pong: s.pong, conn: s.boundStall(r)}
	told, err := s.sendEvents(ctx, reader, out)
	if errors.Is(err, errSlow) {
		err = s.disconnectSlow(r, reader.Cut(told), out)
		closeSocket(socket, websocket.StatusTryAgainLater, "the events were not read")
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("events over a WebSocket ended early", "error", err)
	}
	if errors.Is(context.Cause(r.Context()), stream.ErrShutdown) {
		closeSocket(socket, websocket.StatusGoingAway, "shutting down")
	}
	return nil
}

// closeSocket sends a close frame and waits at most lingerTime for the answer. At worst the client misses it.
func closeSocket(socket *websocket.Conn, code websocket.StatusCode, reason string) {
	late := time.AfterFunc(lingerTime, func() { _ = socket.CloseNow() })
	defer late.Stop()
	_ = socket.Close(code, reason)
}

// socketWriter sends events over a WebSocket.
type socketWriter struct {
	ctx    context.Context //nolint:containedctx // the writer lives as long as one connection
	socket *websocket.Conn
	pong   time.Duration
	conn   *conn
}

func (o *socketWriter) event(f *events.Frame) error {
	if err := o.socket.Write(o.ctx, websocket.MessageText, f.JSON); err != nil {
		return err
	}
	return o.send()
}

func (o *socketWriter) send() error {
	if o.conn.writeStalled() {
		return errSlow
	}
	return nil
}

func (*socketWriter) begin(uint64) error { return nil }

// position pings: a client that does not answer is gone, or does not read.
func (o *socketWriter) position(uint64) error {
	ctx, stop := context.WithTimeout(o.ctx, o.pong)
	defer stop()
	err := o.socket.Ping(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}

// handshake is the ResponseWriter for websocket.Accept. It captures the plain text of a refusal.
type handshake struct {
	*responseWriter
	status int
	text   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *handshake) WriteHeader(status int) {
	if h.status = status; status < http.StatusBadRequest {
		h.responseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (h *handshake) Write(p []byte) (int, error) { return h.text.Write(p) }

// refusal returns the problem for a failed handshake.
func (h *handshake) refusal(err error) error {
	if h.status < http.StatusBadRequest {
		return err
	}
	header := h.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options"} {
		header.Del(name)
	}
	secure(header)
	if h.status == http.StatusUpgradeRequired {
		return refuse(h.status,
			"This address speaks WebSocket alone; the same events come from /api/v1/events as server-sent events")
	}
	return refuse(h.status, "%s", printable(strings.TrimSpace(h.text.String()), 200))
}
