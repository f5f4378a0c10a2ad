package control

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

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

// submit is POST /{group}/{job}.
func (s *starter) submit(w *front.Response, r *front.Request) error {
	if r.IsForm() {
		return s.startConfirmed(w, r)
	}
	def, err := submit.Find(s.catalog, r.Param("group"), r.Param("job"))
	if err != nil {
		return err
	}
	values, err := r.Values("tags", "after")
	if err != nil {
		return err
	}
	if err := submitOptions(def, values); err != nil {
		return err
	}
	q := &front.Query{Values: values}
	wait, applied := r.PreferredWait(q)
	if err := q.Err(); err != nil {
		return err
	}
	options, err := submit.FromQuery(values)
	if err != nil {
		return err
	}
	body, err := r.ReadBody()
	if err != nil {
		return err
	}
	params, err := def.BindJSON(body)
	if err != nil {
		return err
	}
	if err := idempotencyKey(r, &options); err != nil {
		return err
	}
	return s.submitOne(w, r, submit.Request{Definition: def, Params: params, Options: options}, wait, applied)
}

// submitOne submits an operation and answers as the client prefers.
func (s *starter) submitOne(w *front.Response, r *front.Request, request submit.Request, wait time.Duration,
	applied string,
) error {
	started, err := s.begin(r, request)
	if err != nil {
		return err
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	return s.sendStarted(w, r, started[0], wait)
}

// idempotencyKey adds the header Idempotency-Key to the options. The value may be a quoted string of a structured
// header.
func idempotencyKey(r *front.Request, o *submit.Options) error {
	given := r.Header.Values("Idempotency-Key")
	if len(given) == 0 {
		return nil
	}
	key := strings.TrimSpace(given[0])
	if unquoted, err := strconv.Unquote(key); err == nil && strings.HasPrefix(key, `"`) {
		key = unquoted
	}
	if len(given) > 1 {
		return front.Refuse(http.StatusBadRequest, "The header Idempotency-Key is given %d times: give it once", len(given))
	}
	return o.SetIdempotencyKey(key)
}

// sendStarted answers a submit when the operation has ended or the wait is over: 201 for a new operation, 200 for an
// existing one.
func (s *starter) sendStarted(w *front.Response, r *front.Request, started submit.Outcome, wait time.Duration) error {
	rec := started.Record
	w.Header().Set("Location", "/api/v1/operations/"+rec.ID.String())
	w.Header().Set(operationHeader, rec.ID.String())
	out := s.describeStarted(started)
	if wait > 0 && !started.State.Terminal() {
		out = s.wait.afterWait(r, out, wait)
		s.wait.setRetryAfter(w, out)
	}
	out.Durability = s.tree.Durability()
	status := http.StatusOK
	if started.New {
		status = http.StatusCreated
	}
	return w.SendJSON(status, out)
}

// describeStarted describes the operation of a submit as the submit found it.
func (s *starter) describeStarted(started submit.Outcome) api.Operation {
	rec := started.Record
	out := api.Operation{ID: rec.ID, Record: rec, Endpoint: rec.ID.Endpoint(), State: started.State, Status: started.State}
	s.view.showSteps(&out)
	if started.New {
		if why := s.view.waiting(out.State, rec.ID, rec); why != nil && why.Reason != statefs.WaitsToStart {
			// only if known already: a submit does not wait for a reconcile
			out.Waiting = why
		}
		return out
	}
	if found, err := s.view.describe(rec.ID); err == nil {
		return found
	}
	return out
}

// submitOptions refuses unknown options of a submit, and explains where a job parameter belongs.
func submitOptions(def *catalog.Definition, values url.Values) error {
	for name := range values {
		switch {
		case name == "wait", slices.Contains(submit.Names(), name):
		case def.Param(name) != nil:
			return front.Refuse(http.StatusBadRequest,
				"A POST takes the parameters of the job as a JSON body, not in the URL: send {\"%s\": ...}",
				name).With("parameter", name)
		default:
			return front.Refuse(http.StatusBadRequest,
				"Unknown option '%s' of a submit: the URL takes wait, %s, the JSON body the parameters of the job",
				front.Printable(name, 64), strings.Join(submit.Names(), ", ")).
				With("parameter", front.Printable(name, 64))
		}
	}
	return nil
}

// submitEntries is POST /api/v1/operations: one submit as a JSON object, or a list of submits, all or none.
func (s *starter) submitEntries(w *front.Response, r *front.Request) error {
	q := r.Query()
	wait, applied := r.PreferredWait(q)
	if err := q.Err(); err != nil {
		return err
	}
	body, err := r.ReadBody()
	if err != nil {
		return err
	}
	if submit.IsList(body) {
		if wait > 0 && applied == "" {
			return front.Invalid("wait", "a list of submits is answered at once")
		}
		return s.submitList(w, r, body)
	}
	entry, err := submit.ParseEntry(body)
	if err != nil {
		return err
	}
	if err := idempotencyKey(r, &entry.Options); err != nil {
		return err
	}
	request, err := entry.Request(s.catalog)
	if err != nil {
		return err
	}
	return s.submitOne(w, r, request, wait, applied)
}

// submitList answers 201 when any operation of the list is new.
func (s *starter) submitList(w *front.Response, r *front.Request, body []byte) error {
	if r.Header.Get("Idempotency-Key") != "" {
		return front.Refuse(http.StatusBadRequest,
			"The header Idempotency-Key names one submit: give each entry of a list its own \"idempotency_key\"").With("parameter", "idempotency_key")
	}
	entries, err := submit.ParseList(body)
	if err != nil {
		return err
	}
	requests, err := submit.Requests(s.catalog, entries)
	if err != nil {
		return err
	}
	started, err := s.begin(r, requests...)
	if err != nil {
		return err
	}
	out := api.SubmittedList{
		Operations: make([]api.Submitted, len(started)), Count: len(started), Durability: s.tree.Durability(),
	}
	status := http.StatusOK
	for i, one := range started {
		out.Operations[i] = api.Submitted{ID: one.Record.ID, State: one.State, Code: http.StatusOK}
		if one.New {
			out.Operations[i].Code = http.StatusCreated
			out.Created++
			status = http.StatusCreated
		}
	}
	return w.SendJSON(status, out)
}
