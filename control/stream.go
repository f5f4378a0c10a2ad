package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/stream"
)

// operationHeader is the header that carries the ID in a stream's answer.
const operationHeader = "X-Jobdir-Operation"

// followStatus registers readers of operations.
type followStatus interface {
	// Follow registers a reader of an operation, which need not exist, until leave is called. Until then every
	// change of the operation's waiting reason is an event. A reader of the stream passes wake, a reader of events
	// alone passes nil: only for the former does the log name the waiting reason. wake is called once, when the log
	// has that line, and must not block.
	Follow(id statefs.ID, wake func()) (leave func())
	// OnChange calls f after each change of an operation or of its marker, also of a foreign one, and when a request is
	// gone. f must not block. OnChange is called before the daemon runs.
	OnChange(f func(statefs.ID))
}

// streams serves what work has written: streams, logs and artifacts.
type streams struct {
	tree   *statefs.Tree
	hub    *hub
	view   *viewer
	wait   *awaiter
	daemon followStatus
	log    *slog.Logger
}

// formats are the values of the parameter format; the first is the default.
var formats = []string{"stream", "sse", "json"}

var views = map[string]view{"stream": viewLog, "sse": viewDetail, "json": viewEnd}

// writers are the functions that write the formats which are streams.
var writers = map[string]func(ctx context.Context, w io.Writer, flush func() error, src stream.Source, offset int64) error{
	"stream": stream.Text,
	"sse": func(ctx context.Context, w io.Writer, flush func() error, src stream.Source, offset int64) error {
		return stream.Events(ctx, w, flush, src, offset, stream.Heartbeat)
	},
}

// formatFrom reads the parameter format.
func formatFrom(values url.Values) (string, error) {
	format := values.Get("format")
	switch {
	case !values.Has("format"):
		return formats[0], nil
	case !slices.Contains(formats, format):
		return "", front.Invalid("format", "%s must be one of %s", front.Quote(format), strings.Join(formats, ", "))
	}
	return format, nil
}

// positionFrom returns where a stream continues: the header Last-Event-ID of server-sent events, or else the parameter
// with this name; fallback without either. kind describes a position in the refusal.
func positionFrom(r *front.Request, q *front.Query, sse bool, name string, fallback uint64, kind string) uint64 {
	text, from := r.Header.Get("Last-Event-ID"), "header Last-Event-ID"
	if !sse || text == "" {
		if !q.Has(name) {
			return fallback
		}
		text, from = q.Get(name), "parameter '"+name+"'"
	}
	position, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		q.Refuse(front.Refuse(http.StatusBadRequest, "Invalid %s: %s must be %s", from, front.Quote(text),
			kind).With("parameter", name))
	}
	return position
}

// streamHeaders sets the headers of every stream.
func streamHeaders(h http.Header, id statefs.ID, format string) {
	if !id.IsZero() {
		h.Set(operationHeader, id.String())
	}
	if format == "json" {
		h.Set("Content-Type", front.MediaJSON)
		return
	}
	h.Set("Content-Type", front.MediaSSE+"; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
}

// joinStream is GET /api/v1/operations/{id}/stream.
func (s *streams) joinStream(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r)
	format, err := formatFrom(q.Values)
	q.Refuse(err)
	offset := int64(positionFrom(r, q, format == "sse", "offset", 0, "a number of bytes, 0 or more"))
	if err := q.Err(); err != nil {
		return err
	}
	f := s.hub.follow(id, views[format])
	if _, err := f.Snapshot(); err != nil {
		f.close()
		return s.view.recordError(id, err)
	}
	if f.end == nil {
		f.unfollow = s.daemon.Follow(id, f.markChanged)
	}
	err = (&reading{streams: s, operation: f, format: format, offset: offset}).serve(w, r)
	if errors.Is(err, stream.ErrShutdown) && !w.Started() {
		return front.Refuse(http.StatusServiceUnavailable, "The daemon is shutting down; the operation is kept").With("id",
			id).WithRetryAfter()
	}
	return err
}

// streamStarted streams to the connection that started the operation, and applies on_disconnect when it closes early.
func (s *streams) streamStarted(w *front.Response, r *front.Request, id statefs.ID, onDisconnect, format string) error {
	f := s.hub.follow(id, views[format])
	if _, err := f.Snapshot(); err != nil {
		f.close()
		return err
	}
	f.unfollow = s.daemon.Follow(id, f.markChanged)
	return (&reading{streams: s, operation: f, format: format, onDisconnect: catalog.OnDisconnect(onDisconnect)}).serve(w, r)
}

// disconnectRequests are the requests of the values of on_disconnect that are not continue.
var disconnectRequests = map[catalog.OnDisconnect]statefs.Action{
	catalog.DisconnectCancel: statefs.Cancel, catalog.DisconnectPause: statefs.Pause,
}

// reusableBytes is how much log a stream of an ended operation may have for its connection to serve further requests.
const reusableBytes = 1 << 20

// reading is a client that reads the stream of an operation.
type reading struct {
	*streams
	operation *follower
	format    string
	offset    int64
	path      string // of its request
	// onDisconnect is applied if the client leaves early; "" for a client that did not start the operation.
	onDisconnect catalog.OnDisconnect
}

// serve answers with the stream, or with the footer alone, and closes the follower. The error is one of the operation's
// files, or stream.ErrShutdown; nil if the answer has begun.
func (s *reading) serve(w *front.Response, r *front.Request) error {
	streamHeaders(w.Header(), s.operation.id, s.format)
	detached := false
	defer func() {
		if !detached {
			s.operation.close()
		}
	}()
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.tree.Descriptors.ForReader(); err != nil {
		return err // before the first byte, while there can still be an answer
	}
	s.path = r.URL.Path
	write, streams := writers[s.format]
	if snap := &s.operation.snap; streams && (!snap.Ended || snap.LogBytes-s.offset > reusableBytes) {
		err := w.Stream(func(ctx context.Context, out *front.Stream) {
			defer s.operation.close()
			err := write(ctx, out, nil, s.operation, s.offset) // a waiting stream keeps this stack: it must stay small
			s.logEnd(s.ended(ctx, err, out.Draining()))
		})
		detached = err == nil
		return err
	}
	var err error
	if streams {
		w.WriteHeader(http.StatusOK)
		err = write(r.Context(), w, http.NewResponseController(w).Flush, s.operation, s.offset)
	} else {
		err = s.serveFooter(w, r, s.operation)
	}
	if err = s.ended(r.Context(), err, r.Draining()); w.Started() {
		s.logEnd(err)
		return nil
	}
	return err
}

// errGone means that the reader of a stream disconnected before its end.
var errGone = errors.New("the reader has disconnected")

// streamError distinguishes a reader that left, a server that stops, and files that cannot be read.
func streamError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), stream.ErrShutdown):
		return stream.ErrShutdown
	case ctx.Err() != nil:
		return errGone
	}
	return err
}

// ended applies onDisconnect if the client has left. It returns err, the end of the stream, unless that was the reason.
func (s *reading) ended(ctx context.Context, err error, draining bool) error {
	if err = streamError(ctx, err); !errors.Is(err, errGone) {
		return err
	}
	ask, known := disconnectRequests[s.onDisconnect]
	if !known || draining {
		return nil
	}
	id := s.operation.id
	err = s.tree.Request(context.WithoutCancel(ctx), id, ask, nil)
	if err != nil && !errors.Is(err, statefs.ErrNotLive) {
		s.log.Error("request after a disconnect failed", "id", id.String(), "action", string(ask), "error", err)
	}
	return nil
}

// logEnd logs a stream whose operation has files that cannot be read. Its client sees that the footer is missing.
func (s *reading) logEnd(err error) {
	if err != nil && !errors.Is(err, stream.ErrShutdown) {
		s.log.Warn("stream ended early", "id", s.operation.id.String(), "path", s.path, "error", err)
	}
}

// serveFooter answers with the footer when the operation has ended. It answers 202 with the current state when the
// operation waits for a person, as the client could wait for ever, and when the preference wait has expired.
func (s *streams) serveFooter(w *front.Response, r *front.Request, f *follower) error {
	ctx := r.Context()
	wait, applied := r.PreferredWait(new(front.Query))
	limited, stop := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		limited, stop = context.WithTimeout(ctx, wait)
	}
	defer stop()
	err := s.wait.awaitEndOrPerson(limited, f)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return streamError(ctx, err)
	}
	if wait > 0 {
		w.Header().Set("Preference-Applied", applied)
	}
	if snap, err := f.Snapshot(); err != nil {
		return err
	} else if snap.Ended {
		footer, err := stream.WaitFooter(ctx, f)
		if err != nil {
			return streamError(ctx, err)
		}
		_, err = w.Write(append(footer, '\n'))
		return streamError(ctx, err)
	}
	out, err := s.view.describe(f.id)
	if err != nil {
		return err
	}
	s.wait.setRetryAfter(w, out)
	w.Header().Set("Location", "/api/v1/operations/"+f.id.String())
	return w.SendJSON(http.StatusAccepted, noFooterOf(out))
}

// noFooterOf explains why an operation has no footer.
func noFooterOf(out api.Operation) api.NoFooter {
	u := api.NoFooter{ID: out.ID, State: out.State, Waiting: out.Waiting}
	if out.Record != nil {
		u.Reason, u.Error = out.Reason, out.Error
	}
	switch {
	case out.Attention != nil && !out.Attention.Optional:
		u.Attention = out.Attention
		u.Message = fmt.Sprintf("operation %s %s", out.ID, out.Attention.Sentence(out.ID))
	case u.Waiting != nil:
		u.Message = fmt.Sprintf("operation %s has not ended: %s", out.ID, u.Waiting.Sentence())
	default:
		u.Message = fmt.Sprintf("operation %s has not ended: it is %s", out.ID, out.State)
	}
	return u
}
