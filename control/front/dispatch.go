package front

import (
	"errors"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	markHandled(in)
	r := &Request{Request: in, server: &s.shared}
	w := &Response{ResponseWriter: out, server: &s.shared, request: in}
	r.response = w
	defer w.recover()
	secure(w.Header())
	row, params, err := s.admit(in)
	if err == nil && row == nil { // OPTIONS
		w.Header().Set("Allow", strings.Join(s.routers.allowed(in.URL.Path), ", "))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err == nil {
		err = w.limitBody(in, row)
	}
	if err == nil {
		r.row, r.params = row, params
		err = row.Handle(w, r)
	}
	if err != nil {
		w.fail(err)
	}
}

// admit finds the route of a request and refuses requests that may not reach a handler. For OPTIONS the route is nil.
func (s *Server) admit(r *http.Request) (*Route, httprouter.Params, error) {
	if err := checkSize(r); err != nil {
		return nil, nil, err
	}
	if err := s.guard.checkHost(r); err != nil {
		return nil, nil, err
	}
	if !slices.Contains(methods, r.Method) {
		return nil, nil, Refuse(http.StatusNotImplemented, "The method %.32q is not known here", r.Method)
	}
	if err := checkPath(r); err != nil {
		return nil, nil, err
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	row, params := s.routers.find(method, r.URL.Path)
	if row == nil || !row.Public {
		if err := s.guard.checkToken(r); err != nil {
			return nil, nil, err
		}
	}
	if row == nil {
		return nil, nil, s.noRoute(r)
	}
	changes := row.Confirm != nil && r.URL.RawQuery != ""
	if changes && s.guard.navigates(r) {
		asks := *row
		asks.Handle = row.Confirm
		return &asks, params, nil
	}
	return row, params, s.guard.checkSite(r, row.Socket || changes)
}

// noRoute returns the refusal of a path or method without a route; nil for OPTIONS of an existing path.
func (s *Server) noRoute(r *http.Request) error {
	allowed := s.routers.allowed(r.URL.Path)
	switch {
	case allowed == nil:
		return Refuse(http.StatusNotFound, "There is nothing at %s; %s", Printable(r.URL.Path, 200), s.config.Hint)
	case r.Method == http.MethodOptions:
		return nil
	}
	list := strings.Join(allowed, ", ")
	return Refuse(http.StatusMethodNotAllowed, "%s is not possible here; possible are %s", r.Method,
		list).WithHeader("Allow", list)
}

// fail answers a request with a problem. Faults of the daemon are logged with a number, which the answer contains.
func (w *Response) fail(err error) {
	s, r := w.server, w.request
	known := s.config.Refusal(err)
	if known.Cause != nil {
		s.config.Fault(err)
		number := s.failures.Add(1)
		known = known.With("log_entry", number)
		s.config.Logger.Error("request failed", "log_entry", number, "method", r.Method, "path", r.URL.Path, "status",
			known.Status, "error", err)
	}
	if w.started {
		// A part of another answer is sent already: only closing the connection can mark it as truncated.
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), known.Header)
	body := problemOf(known.Status, cut(known.Text, MaxMessage))
	for member, value := range known.Members {
		if text, is := value.(string); is {
			value = cut(text, MaxValue)
		}
		if _, ours := body[member]; !ours {
			body[member] = value
		}
	}
	send := func() { w.send(ProblemType, known.Status, body) }
	if known.Status == http.StatusRequestEntityTooLarge {
		w.drainBody(send)
		return
	}
	send()
}

// recover confines a panic to its own request.
func (w *Response) recover() {
	thrown := recover()
	if thrown == nil {
		return
	}
	if err, ok := thrown.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	w.server.config.Logger.Error("handler panicked", "method", w.request.Method, "path", w.request.URL.Path, "panic",
		thrown, "stack", string(debug.Stack()))
	w.fail(Refuse(http.StatusInternalServerError, "The daemon could not do this; its log has the reason"))
}
