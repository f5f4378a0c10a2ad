package control

import (
	"context"
	"errors"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/stream"
)

// eventSocket is GET /api/v1/ws: the events of /api/v1/events, each as the JSON of one text message.
func (s *eventStreams) eventSocket(_ *front.Response, r *front.Request) error {
	reader, ids, err := s.eventReader(r)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := s.tree.Descriptors.ForReader(); err != nil {
		return err
	}
	socket, err := r.Accept("the same events come from /api/v1/events as server-sent events")
	if err != nil {
		return err
	}
	defer socket.End()
	defer s.followAll(ids)()
	ctx := socket.Context()
	out := &socketWriter{socket: socket, pong: s.pong, stalled: r.BoundStall()}
	told, err := s.sendEvents(ctx, reader, out)
	if errors.Is(err, errSlow) {
		err = s.disconnectSlow(r, reader.Cut(told), out)
		socket.Close(true, "the events were not read")
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("events over a WebSocket ended early", "error", err)
	}
	if errors.Is(context.Cause(r.Context()), stream.ErrShutdown) {
		socket.Close(false, "shutting down")
	}
	return nil
}

// socketWriter sends events over a WebSocket.
type socketWriter struct {
	socket  *front.Socket
	pong    time.Duration
	stalled func() bool
}

func (o *socketWriter) event(f *events.Frame) error {
	if err := o.socket.Send(f.JSON); err != nil {
		return err
	}
	return o.send()
}

func (o *socketWriter) send() error {
	if o.stalled() {
		return errSlow
	}
	return nil
}

func (*socketWriter) begin(uint64) error { return nil }

// position pings: a client that does not answer is gone, or does not read.
func (o *socketWriter) position(uint64) error {
	err := o.socket.Ping(o.pong)
	if errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}
