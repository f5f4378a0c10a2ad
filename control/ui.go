package control

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/control/web"
	"github.com/jobdir/jobdir/statefs"
)

// pageButton is a button as the page reads it. Action is the last segment of the path of its request.
type pageButton struct {
	statefs.Button

	Action     statefs.Action        `json:"action"`
	OnStep     bool                  `json:"step,omitempty"`
	NeedsSteps bool                  `json:"staged,omitempty"`
	Params     []statefs.ActionParam `json:"params,omitempty"`
}

var buttonsScript = func() []byte {
	var list []pageButton
	for _, spec := range statefs.ActionSpecs() {
		for _, button := range spec.Buttons {
			b := pageButton{button, cmp.Or(button.Instead, spec.Action), spec.OnStep, spec.NeedsSteps, spec.Params}
			b.Name = cmp.Or(b.Name, string(spec.Action))
			if b.States == nil {
				b.States = slices.DeleteFunc(statefs.States(), func(s statefs.State) bool { return !spec.Action.AppliesIn(s) })
			}
			list = append(list, b)
		}
	}
	slices.SortStableFunc(list, func(a, b pageButton) int { return a.Rank - b.Rank })
	data, _ := json.Marshal(list) // texts and numbers always encode
	return slices.Concat([]byte("export const buttons = "), data, []byte(";\n"))
}()

// ui is GET /ui/{file}: a file of the web page. It needs no token: the page must load before a person can enter one,
// and its files contain no data.
func ui(w *front.Response, r *front.Request) error {
	name := strings.TrimPrefix(r.Param("file"), "/")
	if name == "" {
		name = web.Index
	}
	file, ok := web.Open(name)
	if name == web.Buttons {
		file, ok = web.File{Media: "text/javascript; charset=utf-8", Data: buttonsScript}, true
	}
	if !ok {
		return front.Refuse(http.StatusNotFound, "There is nothing at %s; the page is at /ui/", front.Printable(r.URL.Path, 200))
	}
	w.Header().Set("Content-Security-Policy", web.Policy)
	return w.SendBytes(http.StatusOK, file.Media, file.Data)
}

// uiFolder is GET /ui. The Location is relative, so that a proxy may serve the daemon below a path of its own.
func uiFolder(w *front.Response, _ *front.Request) error {
	w.Header().Set("Location", "ui/")
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

func uiRoutes() []front.Route {
	return []front.Route{
		{
			Method: "GET", Path: "/ui", Handle: uiFolder, Public: true, Summary: "Leads to /ui/",
			Answers: []front.Answer{answer(307, front.MediaHTML, "The address of the page")},
		},
		{
			Method: "GET", Path: "/ui/*file", Handle: ui, Public: true,
			Summary: "A page to watch and control operations, and its files; /ui/ is the page itself",
			Answers: []front.Answer{answer(200, front.MediaHTML, "The file, with the type that it has")},
		},
	}
}
