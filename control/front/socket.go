package front

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Socket is an open WebSocket to which the server sends text.
type Socket struct {
	socket  *websocket.Conn
	ctx     context.Context //nolint:containedctx // both end with the connection
	writing context.Context //nolint:containedctx // see Accept
	end     func()
}

// Accept makes the request's connection a WebSocket, which the caller ends. The guard has checked host, origin and
// token, more strictly than for other reads: browsers let any page open a WebSocket anywhere. hint tells clients that
// speak no WebSocket where else to look.
func (r *Request) Accept(hint string) (*Socket, error) {
	w, open := r.response, &r.server.hijacked
	open.Add(1) // http.Server.Shutdown does not wait for hijacked connections
	shake := &handshake{Response: w}
	socket, err := websocket.Accept(shake, r.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the guard has checked the origin against the server's own names
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		open.Done()
		return nil, shake.refusal(err, hint)
	}
	w.started = true
	ctx, stop := context.WithCancel(r.Context())
	// heard ends when the client leaves or sends anything. It does not end with the server: that would close the
	// connection without a close frame.
	heard := socket.CloseRead(context.WithoutCancel(ctx))
	// When the server stops, a write that is under way gets lingerTime to finish: a context that ends during a write
	// closes the connection without a close frame, and a client may have read a whole message before its Write returns.
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	unhear := context.AfterFunc(heard, func() { stop(); giveUp() })
	unstop := context.AfterFunc(ctx, func() { time.AfterFunc(lingerTime, giveUp) })
	return &Socket{socket, ctx, writing, func() {
		unstop()
		unhear()
		giveUp()
		stop()
		_ = socket.CloseNow() // after the close frame, or when the client is gone
		open.Done()
	}}, nil
}

// Context ends when the client leaves or sends anything, and when the server stops.
func (s *Socket) Context() context.Context { return s.ctx }

// End closes the connection, if it is still open.
func (s *Socket) End() { s.end() }

// Send sends a text message.
func (s *Socket) Send(text []byte) error {
	return s.socket.Write(s.writing, websocket.MessageText, text)
}

// Ping waits for the answer to a ping. The error wraps context.DeadlineExceeded when the client does not answer in
// time: it is gone, or does not read.
func (s *Socket) Ping(answer time.Duration) error {
	ctx, stop := context.WithTimeout(s.writing, answer)
	defer stop()
	return s.socket.Ping(ctx)
}

// Close sends a close frame for a client that is too slow, or for a server that stops, and waits at most lingerTime for
// the answer. At worst the client misses it.
func (s *Socket) Close(slow bool, reason string) {
	code := websocket.StatusGoingAway
	if slow {
		code = websocket.StatusTryAgainLater
	}
	late := time.AfterFunc(lingerTime, func() { _ = s.socket.CloseNow() })
	defer late.Stop()
	_ = s.socket.Close(code, reason)
}

// handshake is the ResponseWriter for websocket.Accept. It captures the plain text of a refusal.
type handshake struct {
	*Response
	status int
	text   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *handshake) WriteHeader(status int) {
	if h.status = status; status < http.StatusBadRequest {
		h.Response.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (h *handshake) Write(p []byte) (int, error) { return h.text.Write(p) }

// refusal returns the problem for a failed handshake.
func (h *handshake) refusal(err error, hint string) error {
	if h.status < http.StatusBadRequest {
		return err
	}
	header := h.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options"} {
		header.Del(name)
	}
	secure(header)
	if h.status == http.StatusUpgradeRequired {
		return Refuse(h.status, "This address speaks WebSocket alone; %s", hint)
	}
	return Refuse(h.status, "%s", Printable(strings.TrimSpace(h.text.String()), 200))
}
