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
	err = s.serve(w, r, f, format, offset, "")
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
	return s.serve(w, r, f, format, 0, catalog.OnDisconnect(onDisconnect))
}

// disconnectRequests are the requests of the values of on_disconnect that are not continue.
var disconnectRequests = map[catalog.OnDisconnect]statefs.Action{
	catalog.DisconnectCancel: statefs.Cancel, catalog.DisconnectPause: statefs.Pause,
}

// disconnected applies on_disconnect of the job if the client that started an operation left before its end.
func (s *streams) disconnected(ctx context.Context, id statefs.ID, do catalog.OnDisconnect, err error, draining bool) {
	ask, known := disconnectRequests[do]
	if !known || draining || !errors.Is(err, errGone) {
		return
	}
	err = s.tree.Request(context.WithoutCancel(ctx), id, ask, nil)
	if err != nil && !errors.Is(err, statefs.ErrNotLive) {
		s.log.Error("request after a disconnect failed", "id", id.String(), "action", string(ask), "error", err)
	}
}

// errGone means that the reader of a stream disconnected before its end.
var errGone = errors.New("the reader has disconnected")

// reusableBytes is how much log a stream of an ended operation may have for its connection to serve further requests.
const reusableBytes = 1 << 20

// serve answers with the stream of f's operation, or with its footer alone, and closes f. If the client disconnects
// before the end, it applies do, which is "" for a client that did not start the operation. The error is one of the
// operation's files, or stream.ErrShutdown; nil if the answer has begun.
func (s *streams) serve(w *front.Response, r *front.Request, f *follower, format string, offset int64,
	do catalog.OnDisconnect,
) error {
	streamHeaders(w.Header(), f.id, format)
	closeFollower := f.close
	defer func() { closeFollower() }()
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.tree.Descriptors.ForReader(); err != nil {
		return err // before the first byte, while there can still be an answer
	}
	path := r.URL.Path
	if format != "json" && (f.end == nil || f.snap.LogBytes-offset > reusableBytes) {
		closeFollower = func() {} // the stream does it
		return w.Stream(func(ctx context.Context, out *front.Stream) {
			defer f.close()
			err := send(ctx, out, nil, f, format, offset)
			s.disconnected(ctx, f.id, do, err, out.Draining())
			s.logEnd(path, f.id, err)
		})
	}
	var err error
	if ctx := r.Context(); format == "json" {
		err = s.serveFooter(w, r, f)
	} else {
		w.WriteHeader(http.StatusOK)
		err = send(ctx, w, http.NewResponseController(w).Flush, f, format, offset)
	}
	s.disconnected(r.Context(), f.id, do, err, r.Draining())
	if !w.Started() && !errors.Is(err, errGone) {
		return err
	}
	s.logEnd(path, f.id, err)
	return nil
}

// send writes the stream of f's operation. It returns nil after the footer, stream.ErrShutdown, errGone, or an error of
// the operation's files.
func send(ctx context.Context, w io.Writer, flush func() error, f *follower, format string, offset int64) error {
	if format == "sse" {
		return streamError(ctx, stream.Events(ctx, w, flush, f, offset, stream.Heartbeat))
	}
	return streamError(ctx, stream.Text(ctx, w, flush, f, offset))
}

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

// logEnd logs a stream that ended before its footer for another reason than its client or a shutdown. The client sees
// that the footer is missing.
func (s *streams) logEnd(path string, id statefs.ID, err error) {
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, stream.ErrShutdown) {
		s.log.Warn("stream ended early", "id", id.String(), "path", path, "error", err)
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
