package control

import (
	"net/http"
	"strings"

	"github.com/jobdir/jobdir/control/front"
)

// confirmation is the data of the confirmation page.
type confirmation struct {
	Verb  string
	Rows  [][2]string
	Token string
}

// sendConfirmation sends the confirmation page.
func (s *pages) sendConfirmation(w *front.Response, r *front.Request, p *page) error {
	p.Kind = "confirm"
	p.Confirm.Token = r.ConfirmationToken()
	h := w.Header()
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, the Origin of the form would be null
	return s.sendPage(w, r, *p)
}

// confirmStart answers a navigation to GET /{group}/{job} with parameters.
func (s *starter) confirmStart(w *front.Response, r *front.Request) error {
	def, values, err := s.jobAndQuery(r)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return s.pages.jobPage(w, r, def)
	}
	request, _, err := startOf(r, def, values)
	if err != nil {
		return err
	}
	c := &confirmation{Verb: "Start"}
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
	def, values, err := s.jobAndQuery(r)
	if err != nil {
		return err
	}
	request, format, err := startOf(r, def, values)
	if err != nil {
		return err
	}
	request.Options.IdempotencyKey = "page " + nonce // a second click starts nothing
	started, err := s.begin(r, request)
	if err != nil {
		return err
	}
	id := started[0].Record.ID.String()
	w.Header().Set(operationHeader, id)
	w.Header().Set("Location", "../api/v1/operations/"+id+"/stream?format="+format)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// confirmControl answers a navigation to GET /{group}/control with parameters.
func (s *actions) confirmControl(w *front.Response, r *front.Request) error {
	c, err := s.readControl(w, r)
	if err != nil || c == nil {
		return err
	}
	verb := strings.ToUpper(c.action[:1]) + c.action[1:]
	shown := &confirmation{Verb: verb, Rows: [][2]string{{"id", c.id.String()}, {"action", c.action}}}
	for _, name := range []string{"step", "force", "strict", "reason", "by"} {
		if c.values.Has(name) {
			shown.Rows = append(shown.Rows, [2]string{name, c.values.Get(name)})
		}
	}
	return s.pages.sendConfirmation(w, r, &page{Title: verb + " an operation of " + r.Param("group") + "?", Confirm: shown})
}
