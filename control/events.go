package control

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// eventParameters are the parameters of /api/v1/events and /api/v1/ws.
var eventParameters = []front.Parameter{
	list("job",
		"only those of this job, as JOB or GROUP/JOB; any of several, as of the following, which are separated by commas (but for key) or given again"),
	list("group", "only those of this group"),
	list("lane", "only those of operations in this lane, and of the lane itself"),
	list("key", "only those of operations with this key"),
	list("tag", "only those of operations with this tag"),
	list("id", "only events of this operation, with each reason for which it waits"),
	list("type",
		"only those of this type: transition, step, progress, waiting, stalled, lane, delivery, target, sweep; a gap always comes"),
	number("after",
		"first those with a higher number, as far back as they are kept, 0 for all; only new ones when not given; the header Last-Event-ID goes before"),
}

// eventStreams serves the event log.
type eventStreams struct {
	tree   *statefs.Tree
	events *events.Log
	daemon followStatus
	log    *slog.Logger
	// heartbeat is the interval of the heartbeats, and pong how long a WebSocket client has to answer a ping.
	heartbeat, pong time.Duration
}

// eventReader returns the reader for a request, and the operations that its filter names. The caller closes the reader.
func (s *eventStreams) eventReader(r *front.Request) (reader *events.Reader, ids []statefs.ID, err error) {
	if s.events == nil {
		return nil, nil, front.Refuse(http.StatusServiceUnavailable, "This daemon keeps no events")
	}
	q := r.Query()
	for _, p := range eventParameters {
		if p.List && p.Name != "key" { // a key may hold anything
			q.Values[p.Name] = splitList(q.Values[p.Name])
		}
	}
	filter := events.Filter{
		Jobs: q.Values["job"], Groups: q.Values["group"], Lanes: q.Values["lane"], Keys: q.Values["key"],
		Tags: q.Values["tag"], Types: front.Choices(q, "type", events.Types()),
	}
	for _, text := range q.Values["id"] {
		id, err := statefs.ParseID(text)
		if err != nil {
			q.Refuse(front.Invalid("id", "%s", err))
		}
		filter.IDs = append(filter.IDs, id)
	}
	after := positionFrom(r, q, true, "after", events.Now, "the number of an event, or 0")
	if err := q.Err(); err != nil {
		return nil, nil, err
	}
	return s.events.Follow(filter, after), filter.IDs, nil
}

// followAll registers a reader of these operations until leave is called: every change of their waiting reasons is
// published as an event; for other operations fewer are. The event reader must be open before, so that it misses none.
func (s *eventStreams) followAll(ids []statefs.ID) (leave func()) {
	var all []func()
	for _, id := range ids {
		all = append(all, s.daemon.Follow(id, nil))
	}
	return func() {
		for _, leave := range all {
			leave()
		}
	}
}

// splitList splits at commas and drops empty words.
func splitList(given []string) (out []string) {
	for _, text := range given {
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				out = append(out, word)
			}
		}
	}
	return out
}

// eventStream is GET /api/v1/events.
func (s *eventStreams) eventStream(w *front.Response, r *front.Request) error {
	reader, ids, err := s.eventReader(r)
	if err != nil {
		return err
	}
	defer reader.Close()
	streamHeaders(w.Header(), statefs.ID{}, "sse")
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.tree.Descriptors.ForReader(); err != nil {
		return err // before the first byte, while an answer is still possible
	}
	w.Header().Set("Connection", "close") // the stall timeout and the send buffer are set for this answer only
	stalled := r.BoundStall()
	defer s.followAll(ids)()
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{Writer: bufio.NewWriterSize(w, 16<<10), flush: http.NewResponseController(w).Flush, stalled: stalled}
	told := reader.Position()
	err = errors.Join(out.position(told), out.send()) // with the header of the answer: no event may follow for hours
	if err == nil {
		told, err = s.sendEvents(r.Context(), reader, out)
	}
	if errors.Is(err, front.ErrStalled) {
		err = s.disconnectSlow(r, reader.Cut(told), out)
	}
	if errors.Is(context.Cause(r.Context()), stream.ErrShutdown) {
		_, _ = out.WriteString(": shutting down\n\n") // at worst the client misses it
		_ = out.send()
	}
	if r.Context().Err() == nil && err != nil {
		s.log.Warn("events ended early", "error", err)
	}
	return nil
}

// disconnectSlow ends the answer to a client that does not read: its last event is a gap that covers all events it
// missed, which it finds when it reads again.
func (s *eventStreams) disconnectSlow(r *front.Request, last events.Frame, out eventSink) error {
	s.log.Warn("disconnecting slow event subscriber; it can resume", "client",
		r.RemoteAddr, "after", last.Seq, "missing", last.Gap.To-last.Seq)
	if err := out.event(&last); err != nil && !errors.Is(err, front.ErrStalled) {
		return err
	}
	if err := out.send(); err != nil && !errors.Is(err, front.ErrStalled) {
		return err
	}
	return nil
}

// eventSink sends events to one client. An error ends the answer; after front.ErrStalled one more event may follow.
type eventSink interface {
	// event takes one event, also when it returns front.ErrStalled; it may buffer the event until send.
	event(f *events.Frame) error
	// position sends the number up to which all events were considered, as a heartbeat.
	position(seq uint64) error
	// send flushes buffered events.
	send() error
}

// sendEvents sends events until the client or the server is gone. told is the last number that the client was sent.
func (s *eventStreams) sendEvents(ctx context.Context, reader *events.Reader, out eventSink) (told uint64, err error) {
	beat := time.NewTicker(s.heartbeat)
	defer beat.Stop()
	for {
		wake := reader.Wake()
		frames, more := reader.Take()
		for i := range frames {
			err := out.event(&frames[i])
			told = frames[i].Seq
			if err != nil {
				return told, err
			}
		}
		told = reader.Position()
		if len(frames) > 0 {
			if err := out.send(); err != nil {
				return told, err
			}
		}
		if ctx.Err() != nil {
			return told, nil
		}
		if more {
			continue
		}
		select {
		case <-wake:
		case <-beat.C:
			if err := errors.Join(out.position(told), out.send()); err != nil {
				return told, err
			}
		case <-ctx.Done():
			return told, nil
		}
	}
}

// eventWriter writes events as server-sent events (WHATWG HTML, section 9.2).
type eventWriter struct {
	*bufio.Writer
	flush   func() error
	stalled func() error
}

func (e *eventWriter) event(f *events.Frame) error {
	_, _ = e.WriteString("event: " + f.Type + "\ndata: ") // bufio keeps the first error
	_, _ = e.Write(f.JSON)
	_, _ = e.WriteString("\nid: ")
	_, _ = e.Write(strconv.AppendUint(e.AvailableBuffer(), f.Seq, 10))
	if _, err := e.WriteString("\n\n"); err != nil {
		return err
	}
	return e.stalled()
}

// position sends a comment and an id without data: browsers dispatch no event, but resume after this id.
func (e *eventWriter) position(seq uint64) error {
	_, err := e.WriteString(": idle\nid: " + strconv.FormatUint(seq, 10) + "\n\n")
	return err
}

func (e *eventWriter) send() error {
	if err := e.Flush(); err != nil {
		return err
	}
	if err := e.flush(); err != nil {
		return err
	}
	return e.stalled()
}

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
	if errors.Is(err, front.ErrStalled) {
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
	stalled func() error
}

func (o *socketWriter) event(f *events.Frame) error {
	if err := o.socket.Send(f.JSON); err != nil {
		return err
	}
	return o.send()
}

func (o *socketWriter) send() error { return o.stalled() }

// position pings: a client that does not answer is gone, or does not read.
func (o *socketWriter) position(uint64) error {
	err := o.socket.Ping(o.pong)
	if errors.Is(err, context.DeadlineExceeded) {
		return front.ErrStalled
	}
	return err
}
