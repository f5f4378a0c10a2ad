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

	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/stream"
)

// eventSocket is GET /api/v1/ws: the events of /api/v1/events, each as one text message that holds its JSON. The guard has looked at the
// host, the origin and the token before, more strictly than for other reads: a browser lets any page open a WebSocket to anywhere.
func (s *Server) eventSocket(w *answer, r *http.Request, _ httprouter.Params) error {
	reader, ids, err := s.eventReader(r)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := s.tree.RoomForReader(); err != nil {
		return err
	}
	s.sockets.Add(1) // the server does not wait for what has left net/http
	defer s.sockets.Done()
	shake := &handshake{answer: w}
	socket, err := websocket.Accept(shake, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the guard has decided, by the daemon's own names
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return shake.refusal(err)
	}
	w.started = true
	defer s.followAll(ids)()
	defer func() { _ = socket.CloseNow() }() // after a goodbye, or when there is nobody to say it to
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	// It ends when the client leaves, or says anything. It does not end with the server: that would close the connection without a word.
	heard := socket.CloseRead(context.WithoutCancel(ctx))
	defer context.AfterFunc(heard, stop)()
	// What is being written when the server stops gets a moment: a context that ends in the middle closes the connection without a word, and a client may
	// have read all of a message before the write of it has returned.
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(heard, giveUp)()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lingerTime, giveUp) })()
	out := &socketWriter{ctx: writing, socket: socket, pong: s.pong, taker: s.boundTaking(r)}
	told, err := s.tellEvents(ctx, reader, out)
	if errors.Is(err, errSlow) {
		err = s.cutSlow(r, reader.Cut(told), out)
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

// closeSocket says goodbye and does not wait long for an answer. The worst is that the client is not told.
func closeSocket(socket *websocket.Conn, code websocket.StatusCode, reason string) {
	late := time.AfterFunc(lingerTime, func() { _ = socket.CloseNow() })
	defer late.Stop()
	_ = socket.Close(code, reason)
}

// socketWriter sends events over a WebSocket.
type socketWriter struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one connection
	socket *websocket.Conn
	pong   time.Duration
	taker  *conn
}

func (o *socketWriter) event(f *events.Frame) error {
	if err := o.socket.Write(o.ctx, websocket.MessageText, f.JSON); err != nil {
		return err
	}
	return o.send()
}

func (o *socketWriter) send() error {
	if o.taker.gaveUp() {
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

// handshake is the ResponseWriter for websocket.Accept. It keeps back the plain text with which that refuses a request.
type handshake struct {
	*answer
	status int
	text   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *handshake) WriteHeader(status int) {
	if h.status = status; status < http.StatusBadRequest {
		h.answer.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (h *handshake) Write(p []byte) (int, error) { return h.text.Write(p) }

// refusal is the problem for a request that is no handshake.
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
		return refuse(h.status, "This address speaks WebSocket alone; the same events come from /api/v1/events as server-sent events")
	}
	return refuse(h.status, "%s", printable(strings.TrimSpace(h.text.String()), 200))
}
