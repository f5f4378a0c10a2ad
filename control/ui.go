package control

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/web"
)

// ui is GET /ui/{file}: a file of the page on which operations are watched and controlled. No token is asked for: the page has to be there before somebody
// can type one, and its files hold nothing.
func (s *Server) ui(w *answer, r *http.Request, p httprouter.Params) error {
	name := strings.TrimPrefix(p.ByName("file"), "/")
	if name == "" {
		name = web.Index
	}
	file, ok := web.Open(name)
	if !ok {
		return refuse(http.StatusNotFound, "There is nothing at %s; the page is at /ui/", printable(r.URL.Path, 200))
	}
	h := w.Header()
	h.Set("Content-Type", file.Media)
	h.Set("Content-Security-Policy", web.Policy)
	h.Set("Content-Length", strconv.Itoa(len(file.Data)))
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = w.Write(file.Data) // a reader that is gone is no error of ours
	return nil
}

// uiFolder is GET /ui. The address of the folder is relative, so that a proxy may have the daemon below a path of its own.
func (s *Server) uiFolder(w *answer, _ *http.Request, _ httprouter.Params) error {
	w.Header().Set("Location", "ui/")
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

func (s *Server) uiRoutes() []route {
	return []route{
		{
			method: "GET", path: "/ui", handle: s.uiFolder, public: true, summary: "Leads to /ui/",
			answers: []response{{307, mediaHTML, "The address of the page"}},
		},
		{
			method: "GET", path: "/ui/*file", handle: s.ui, public: true, summary: "A page to watch and control operations, and its files; /ui/ is the page itself",
			answers: []response{{200, mediaHTML, "The file, with the type that it has"}},
		},
	}
}
