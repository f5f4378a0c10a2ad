package front

import (
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// Handler answers one request. An error becomes a problem, so a handler that has written something must end its own
// answer and return nil.
type Handler func(w *Response, r *Request) error

// Parameter is a query parameter of a route.
type Parameter struct {
	Name    string
	Kind    string // a type of JSON Schema
	Summary string
	Values  []string // the only valid values, if not empty
	Needed  bool
	List    bool // comma-separated words, which may be given as several parameters too
}

// Answer is one possible answer of a route.
type Answer struct {
	Status  int
	Media   string
	Summary string
}

// Route is one row of the route table.
type Route struct {
	Method  string
	Path    string // :name is one segment, *name the rest
	Handle  Handler
	Summary string
	Query   []Parameter
	Answers []Answer
	Body    string // what the body is, "" for none
	// Confirm is set for a GET that changes something when it has parameters: pages of other sites may not send it, and
	// a browser that navigates to it gets a confirmation page from this handler.
	Confirm Handler
	// Socket marks a WebSocket, which browsers let a page of any site open and read.
	Socket bool
	// Streams means that the answer may last as long as what it tells of.
	Streams bool
	// List is the largest number of elements when the body may also be a list, which has a higher size limit.
	List int
	// Public means that no token is needed.
	Public bool
}

// Media types.
const (
	MediaJSON = "application/json"
	MediaHTML = "text/html"
	MediaSSE  = "text/event-stream"
	MediaText = "text/plain"
	MediaFile = "application/octet-stream"
)

// routers finds the route of a request. httprouter allows no variable segment next to fixed ones, so the paths that
// begin with one have routers of their own: of /:group/:job it is varied, and named has /:group/control as
// /control/:group.
type routers struct {
	fixed, varied, named *httprouter.Router
	first, rest          []string // the fixed first segments, and what follows a variable one in named
}

// methods are the known methods; any other is answered with 501 (RFC 9110, section 15.6.2).
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

func newRouters(table []Route) *routers {
	d := &routers{fixed: newRouter(), varied: newRouter(), named: newRouter()}
	for i := range table {
		row := &table[i]
		first, rest, _ := strings.Cut(row.Path[1:], "/")
		switch {
		case !strings.HasPrefix(first, ":"):
			d.fixed.Handle(row.Method, row.Path, carry(row))
			if first != "" {
				d.first = append(d.first, first)
			}
		case strings.HasPrefix(rest, ":"):
			d.varied.Handle(row.Method, row.Path, carry(row))
		default:
			d.named.Handle(row.Method, "/"+rest+"/"+first, carry(row))
			d.rest = append(d.rest, rest)
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
	row *Route
}

func carry(row *Route) httprouter.Handle {
	return func(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) {
		if out, ok := w.(*carrier); ok {
			out.row = row
		}
	}
}

// find returns the route for a method and a decoded path, or nil.
func (d *routers) find(method, path string) (*Route, httprouter.Params) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	router := d.varied
	if path == "/" || slices.Contains(d.first, first) {
		router = d.fixed
	} else if slices.Contains(d.rest, rest) {
		router, path = d.named, "/"+rest+"/"+first
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
