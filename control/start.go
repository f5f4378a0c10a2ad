package control

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// definition returns the job that a path names.
func (s *Server) definition(group, name string) (*catalog.Definition, error) {
	return submit.Find(s.catalog, group, name)
}

func (s *Server) knownGroup(group string) error {
	groups := s.catalog.Groups()
	if slices.Contains(groups, group) {
		return nil
	}
	return &submit.UnknownJobError{Group: group, Groups: groups}
}

// query returns the parameters of a URL. It refuses malformed text, and repeated parameters that are not in many. It
// drops names that begin with _: clients add them to bypass caches, as in ?_=1732368000.
func query(r *http.Request, many ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "The query of the URL cannot be read: %s", err)
	}
	maps.DeleteFunc(values, func(name string, _ []string) bool { return strings.HasPrefix(name, "_") })
	return values, once(values, many...)
}

// once refuses parameters that are given more than once and are not in many.
func once(values url.Values, many ...string) error {
	for name, given := range values {
		if len(given) > 1 && !slices.Contains(many, name) {
			return repeated(name, len(given))
		}
	}
	return nil
}

// repeated refuses a parameter that is given more than once.
func repeated(name string, times int) *refusal {
	name = printable(name, 64)
	return refuse(http.StatusBadRequest, "Parameter '%s' is given %d times: give it once", name,
		times).with("parameter", name)
}

// jobAndQuery reads the job and the query of GET /{group}/{job} and of its confirmation page.
func (s *Server) jobAndQuery(r *http.Request, p httprouter.Params) (*catalog.Definition, url.Values, error) {
	def, err := s.definition(p.ByName("group"), p.ByName("name"))
	if err != nil {
		return nil, nil, err
	}
	values, err := query(r)
	return def, values, err
}

// startOf parses a GET that starts an operation.
func startOf(r *http.Request, def *catalog.Definition, values url.Values) (request submit.Request,
	format string, err error,
) {
	if format, err = formatFrom(values["format"]); err != nil {
		return request, "", err
	}
	delete(values, "format")
	if format == "sse" && r.Header.Get("Last-Event-ID") != "" {
		// A browser's EventSource reconnects by itself, and would start a second operation.
		return request, "", refuse(http.StatusConflict,
			"This address starts a new operation; a stream goes on at /api/v1/operations/{id}/stream?format=sse")
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return request, "", refuse(http.StatusBadRequest,
			"This address always starts a new operation: send the Idempotency-Key with a POST").with("parameter",
			"idempotency_key")
	}
	params, err := def.Bind(values)
	return submit.Request{Definition: def, Params: params, ForceNew: true}, format, err
}

// startStream is GET /{group}/{job}: without parameters the page of the job, else a new operation and its stream.
func (s *Server) startStream(w *responseWriter, r *http.Request, p httprouter.Params) error {
	def, values, err := s.jobAndQuery(r, p)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return s.jobPage(w, r, def)
	}
	request, format, err := startOf(r, def, values)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		streamHeaders(w.Header(), statefs.ID{}, format)
		return nil
	}
	started, err := s.start(r, request)
	if err != nil {
		return err
	}
	rec := started[0].Record
	if wait, applied, err := submitWait(r, nil); err == nil && respondsAsync(applied) {
		w.Header().Set("Preference-Applied", applied)
		out := s.describeStarted(started[0])
		if wait > 0 {
			out = s.afterWait(r, out, wait)
		}
		if out.State.Live() {
			return s.sendAccepted(w, r, out)
		}
	}
	return s.streamStarted(w, r, rec.ID, rec.OnDisconnect, format)
}

// sendAccepted answers 202 with the operation and its address, instead of the stream.
func (s *Server) sendAccepted(w *responseWriter, r *http.Request, out operationJSON) error {
	w.Header().Set("Location", "/api/v1/operations/"+out.ID.String())
	w.Header().Set(operationHeader, out.ID.String())
	s.setRetryAfter(w, out)
	out.Durability = s.tree.Durability()
	return s.sendJSON(w, r, http.StatusAccepted, out)
}

// start submits operations, all of them or none, on behalf of the client.
func (s *Server) start(r *http.Request, requests ...submit.Request) ([]submit.Outcome, error) {
	if s.draining.Load() {
		return nil, refuse(http.StatusServiceUnavailable, "The daemon is stopping and starts nothing new").withRetryAfter()
	}
	by, err := s.guard.creator(r)
	if err != nil {
		return nil, err
	}
	scope := s.guard.scope(r)
	for i := range requests {
		requests[i].By, requests[i].Scope = by, scope
	}
	return s.intake.Submit(r.Context(), requests...)
}

// streamStarted streams to the connection that started the operation, and applies on_disconnect when it closes early.
func (s *Server) streamStarted(w *responseWriter, r *http.Request, id statefs.ID, onDisconnect, format string) error {
	f := s.hub.follow(id, viewOf(format))
	defer f.close()
	if _, err := f.Snapshot(); err != nil {
		return err
	}
	defer s.status.Follow(id, f.markChanged)()
	err := s.serveStream(w, r, f, format, 0)
	if errors.Is(err, errGone) && !s.draining.Load() {
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
func (s *Server) disconnected(ctx context.Context, id statefs.ID, do catalog.OnDisconnect) {
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
func (s *Server) joinStream(w *responseWriter, r *http.Request, p httprouter.Params) error {
	id, values, err := idAndQuery(r, p, "format", "offset")
	if err != nil {
		return err
	}
	format, err := formatFrom(values["format"])
	if err != nil {
		return err
	}
	offset, err := offsetFrom(r, values["offset"], format)
	if err != nil {
		return err
	}
	f := s.hub.follow(id, viewOf(format))
	defer f.close()
	if _, err := f.Snapshot(); err != nil {
		return s.recordError(id, err)
	}
	if f.end == nil {
		defer s.status.Follow(id, f.markChanged)()
	}
	err = s.serveStream(w, r, f, format, offset)
	if errors.Is(err, stream.ErrShutdown) && !w.started {
		return refuse(http.StatusServiceUnavailable, "The daemon is shutting down; the operation is kept").with("id",
			id).withRetryAfter()
	}
	return s.endStream(w, r, id, err)
}

// allowParameters refuses query parameters that a route does not have.
func allowParameters(values url.Values, known ...string) error {
	for name := range values {
		if !slices.Contains(known, name) {
			return unknownParameter(name, known)
		}
	}
	return nil
}

// idAndQuery parses the ID and the query of a request about one operation. It refuses parameters not in known.
func idAndQuery(r *http.Request, p httprouter.Params, known ...string) (id statefs.ID, values url.Values, err error) {
	if id, err = statefs.ParseID(p.ByName("id")); err != nil {
		return id, nil, err
	}
	if values, err = query(r); err != nil {
		return id, nil, err
	}
	return id, values, allowParameters(values, known...)
}

func unknownParameter(name string, known []string) *refusal {
	name = printable(name, 64)
	if len(known) == 0 {
		return refuse(http.StatusBadRequest, "Unknown parameter '%s'; none is known here", name).with("parameter", name)
	}
	return refuse(http.StatusBadRequest, "Unknown parameter '%s'; known here: %s", name,
		strings.Join(known, ", ")).with("parameter", name).with("parameters", known)
}
