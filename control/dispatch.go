package control

import (
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// reserved are the first path segments that cannot be groups.
var reserved = []string{"api", "ui", "healthz", "readyz", "metrics", "openapi.json"}

// routers finds the route of a request. httprouter allows no :group/:job next to fixed first segments, so there are two
// routers. names[NAME] are the routes whose name takes precedence over a job of the group.
type routers struct {
	fixed, group *httprouter.Router
	names        map[string]map[string]*route // control or operations, then method
}

// methods are the known methods; any other is answered with 501 (RFC 9110, section 15.6.2).
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

func newRouters(table []route) *routers {
	d := &routers{fixed: newRouter(), group: newRouter(), names: make(map[string]map[string]*route)}
	for i := range table {
		row := &table[i]
		rest, ofGroup := strings.CutPrefix(row.path, "/:group/")
		switch {
		case !ofGroup:
			d.fixed.Handle(row.method, row.path, carry(row))
		case strings.HasPrefix(rest, ":"):
			d.group.Handle(row.method, "/:group/:name", carry(row))
		default:
			if d.names[rest] == nil {
				d.names[rest] = make(map[string]*route)
			}
			d.names[rest][row.method] = row
		}
	}
	return d
}

func newRouter() *httprouter.Router {
	router := httprouter.New()
	router.RedirectTrailingSlash = false // clients would repeat a POST at another address
	router.RedirectFixedPath = false
	return router
}

// carrier extracts a route from httprouter, which stores only functions.
type carrier struct {
	http.ResponseWriter
	row *route
}

func carry(row *route) httprouter.Handle {
	return func(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
		if out, ok := w.(*carrier); ok {
			out.row = row
		}
	}
}

// find returns the route for a method and a decoded path, or nil.
func (d *routers) find(method, path string) (*route, httprouter.Params) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	router := d.group
	if path == "/" || slices.Contains(reserved, first) {
		router = d.fixed
	} else if named := d.names[rest]; named != nil {
		return named[method], httprouter.Params{{Key: "group", Value: first}}
	}
	handle, params, _ := router.Lookup(method, path)
	if handle == nil {
		return nil, nil
	}
	var out carrier
	handle(&out, nil, nil)
	return out.row, params
}

// allowed lists the methods that a path supports.
func (d *routers) allowed(path string) []string {
	var allowed []string
	for _, method := range methods {
		if method == http.MethodHead && slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, method)
		} else if row, _ := d.find(method, path); row != nil {
			allowed = append(allowed, method)
		}
	}
	if allowed != nil {
		allowed = append(allowed, http.MethodOptions)
	}
	return allowed
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	markHandled(r)
	w := &responseWriter{ResponseWriter: out}
	defer s.recover(w, r)
	secure(w.Header())
	row, params, err := s.admit(r)
	if err == nil && row == nil { // OPTIONS
		w.Header().Set("Allow", strings.Join(s.routers.allowed(r.URL.Path), ", "))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err == nil {
		err = s.limitBody(w, r, row)
	}
	if err == nil {
		err = row.handle(w, r, params)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// admit finds the route of a request and refuses requests that may not reach a handler. For OPTIONS the route is nil.
func (s *Server) admit(r *http.Request) (*route, httprouter.Params, error) {
	if err := s.checkSize(r); err != nil {
		return nil, nil, err
	}
	if err := s.guard.checkHost(r); err != nil {
		return nil, nil, err
	}
	if !slices.Contains(methods, r.Method) {
		return nil, nil, refuse(http.StatusNotImplemented, "The method %.32q is not known here", r.Method)
	}
	if err := checkPath(r); err != nil {
		return nil, nil, err
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	row, params := s.routers.find(method, r.URL.Path)
	if row == nil || !row.public {
		if err := s.guard.checkToken(r); err != nil {
			return nil, nil, err
		}
	}
	if row == nil {
		return nil, nil, s.noRoute(r)
	}
	changes := row.confirm != nil && r.URL.RawQuery != ""
	if changes && s.guard.navigates(r) {
		asks := *row
		asks.handle = row.confirm
		return &asks, params, nil
	}
	return row, params, s.guard.checkSite(r, row.socket || changes)
}

// noRoute returns the refusal of a path or method without a route; nil for OPTIONS of an existing path.
func (s *Server) noRoute(r *http.Request) error {
	allowed := s.routers.allowed(r.URL.Path)
	switch {
	case allowed == nil:
		return refuse(http.StatusNotFound,
			"There is nothing at %s; jobs are at /{group}/{job}, all routes are in /openapi.json", printable(r.URL.Path, 200))
	case r.Method == http.MethodOptions:
		return nil
	}
	list := strings.Join(allowed, ", ")
	return refuse(http.StatusMethodNotAllowed, "%s is not possible here; possible are %s", r.Method,
		list).withHeader("Allow", list)
}

// recover confines a panic to its own request.
func (s *Server) recover(w *responseWriter, r *http.Request) {
	thrown := recover()
	if thrown == nil {
		return
	}
	if err, ok := thrown.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	s.log.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "panic", thrown, "stack",
		string(debug.Stack()))
	s.fail(w, r, refuse(http.StatusInternalServerError, "The daemon could not do this; its log has the reason"))
}
