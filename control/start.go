package control

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/stream"
)

// knownGroup refuses a group without jobs.
func knownGroup(jobs *catalog.Catalog, group string) error {
	groups := jobs.Groups()
	if slices.Contains(groups, group) {
		return nil
	}
	return &submit.UnknownJobError{Group: group, Groups: groups}
}

// starter submits operations.
type starter struct {
	tree    *statefs.Tree
	catalog *catalog.Catalog
	intake  *submit.Intake
	view    *viewer
	wait    *awaiter
	streams *streams
	pages   *pages
}

// startRequest is a GET of /{group}/{job} that starts an operation, or the button of its confirmation page.
type startRequest struct {
	submit.Request

	format string
}

// readStart parses a startRequest. If it has no parameters, readStart sends the page of the job and returns nil.
func (s *starter) readStart(w *front.Response, r *front.Request) (*startRequest, error) {
	def, err := submit.Find(s.catalog, r.Param("group"), r.Param("job"))
	if err != nil {
		return nil, err
	}
	values, err := r.Values()
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, s.pages.jobPage(w, r, def)
	}
	format, err := formatFrom(values)
	if err != nil {
		return nil, err
	}
	delete(values, "format")
	if format == "sse" && r.Header.Get("Last-Event-ID") != "" {
		// A browser's EventSource reconnects by itself, and would start a second operation.
		return nil, front.Refuse(http.StatusConflict,
			"This address starts a new operation; a stream goes on at /api/v1/operations/{id}/stream?format=sse")
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return nil, front.Refuse(http.StatusBadRequest,
			"This address always starts a new operation: send the Idempotency-Key with a POST").With("parameter",
			"idempotency_key")
	}
	params, err := def.Bind(values)
	return &startRequest{submit.Request{Definition: def, Params: params, ForceNew: true}, format}, err
}

// startStream is GET /{group}/{job}: without parameters the page of the job, else a new operation and its stream.
func (s *starter) startStream(w *front.Response, r *front.Request) error {
	request, err := s.readStart(w, r)
	if err != nil || request == nil {
		return err
	}
	if r.Method == http.MethodHead {
		streamHeaders(w.Header(), statefs.ID{}, request.format)
		return nil
	}
	started, err := s.begin(r, request.Request)
	if err != nil {
		return err
	}
	rec := started[0].Record
	if wait, applied := r.PreferredWait(new(front.Query)); front.RespondsAsync(applied) {
		w.Header().Set("Preference-Applied", applied)
		out := s.describeStarted(started[0])
		if wait > 0 {
			out = s.wait.afterWait(r, out, wait)
		}
		if out.State.Live() {
			return s.sendAccepted(w, out)
		}
	}
	return s.streams.streamStarted(w, r, rec.ID, rec.OnDisconnect, request.format)
}

// sendAccepted answers 202 with the operation and its address, instead of the stream.
func (s *starter) sendAccepted(w *front.Response, out api.Operation) error {
	w.Header().Set("Location", "/api/v1/operations/"+out.ID.String())
	w.Header().Set(operationHeader, out.ID.String())
	s.wait.setRetryAfter(w, out)
	out.Durability = s.tree.Durability()
	return w.SendJSON(http.StatusAccepted, out)
}

// begin submits operations, all of them or none, on behalf of the client.
func (s *starter) begin(r *front.Request, requests ...submit.Request) ([]submit.Outcome, error) {
	if r.Draining() {
		return nil, front.Refuse(http.StatusServiceUnavailable, "The daemon is stopping and starts nothing new").WithRetryAfter()
	}
	by, err := r.Creator()
	if err != nil {
		return nil, err
	}
	scope := r.Scope()
	for i := range requests {
		requests[i].By, requests[i].Scope = by, scope
	}
	return s.intake.Submit(r.Context(), requests...)
}

// streamStarted streams to the connection that started the operation, and applies on_disconnect when it closes early.
func (s *streams) streamStarted(w *front.Response, r *front.Request, id statefs.ID, onDisconnect, format string) error {
	f := s.hub.follow(id, viewOf(format))
	defer f.close()
	if _, err := f.Snapshot(); err != nil {
		return err
	}
	defer s.daemon.Follow(id, f.markChanged)()
	err := s.serveStream(w, r, f, format, 0)
	if errors.Is(err, errGone) && !r.Draining() {
		s.disconnected(r.Context(), id, catalog.OnDisconnect(onDisconnect))
	}
	return s.endStream(w, r, id, err)
}

func viewOf(format string) view {
	switch format {
	case "json":
		return viewEnd
	case "sse":
		return viewDetail
	}
	return viewLog
}

// disconnected applies on_disconnect of the job: the reader that started an operation left before its end.
func (s *streams) disconnected(ctx context.Context, id statefs.ID, do catalog.OnDisconnect) {
	var ask statefs.Action
	switch do {
	case catalog.DisconnectCancel:
		ask = statefs.Cancel
	case catalog.DisconnectPause:
		ask = statefs.Pause
	case catalog.DisconnectContinue:
	}
	if ask == "" {
		return
	}
	err := s.tree.Request(context.WithoutCancel(ctx), id, ask, nil)
	if err != nil && !errors.Is(err, statefs.ErrNotLive) {
		s.log.Error("request after a disconnect failed", "id", id.String(), "action", string(ask), "error", err)
	}
}

// joinStream is GET /api/v1/operations/{id}/stream.
func (s *streams) joinStream(w *front.Response, r *front.Request) error {
	id, q := idAndQuery(r)
	format, err := formatFrom(q.Values)
	q.Refuse(err)
	offset, err := offsetFrom(r, q, format)
	q.Refuse(err)
	if err := q.Err(); err != nil {
		return err
	}
	f := s.hub.follow(id, viewOf(format))
	defer f.close()
	if _, err := f.Snapshot(); err != nil {
		return s.view.recordError(id, err)
	}
	if f.end == nil {
		defer s.daemon.Follow(id, f.markChanged)()
	}
	err = s.serveStream(w, r, f, format, offset)
	if errors.Is(err, stream.ErrShutdown) && !w.Started() {
		return front.Refuse(http.StatusServiceUnavailable, "The daemon is shutting down; the operation is kept").With("id",
			id).WithRetryAfter()
	}
	return s.endStream(w, r, id, err)
}

// idAndQuery parses the ID and the query of a request about one operation, as front.Request.Query does.
func idAndQuery(r *front.Request, only ...string) (statefs.ID, *front.Query) {
	q := r.Query(only...)
	id, err := statefs.ParseID(r.Param("id"))
	q.Refuse(err)
	return id, q
}

// confirmStart answers a navigation to GET /{group}/{job} with parameters.
func (s *starter) confirmStart(w *front.Response, r *front.Request) error {
	request, err := s.readStart(w, r)
	if err != nil || request == nil {
		return err
	}
	c, def := &confirmation{Verb: "Start"}, request.Definition
	for name, value := range request.Params.All() {
		c.Rows = append(c.Rows, [2]string{name, value.Text()})
	}
	return s.pages.sendConfirmation(w, r, &page{Title: "Start " + def.Address() + "?", Summary: def.Summary, Confirm: c})
}

// startConfirmed is POST /{group}/{job} from the page's button: it starts the operation that the GET described and
// redirects to its stream.
func (s *starter) startConfirmed(w *front.Response, r *front.Request) error {
	nonce, err := r.Confirmed()
	if err != nil {
		return err
	}
	request, err := s.readStart(w, r)
	if err != nil || request == nil {
		return err
	}
	request.Options.IdempotencyKey = "page " + nonce // a second click starts nothing
	started, err := s.begin(r, request.Request)
	if err != nil {
		return err
	}
	id := started[0].Record.ID.String()
	w.Header().Set(operationHeader, id)
	w.Header().Set("Location", "../api/v1/operations/"+id+"/stream?format="+request.format)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}
