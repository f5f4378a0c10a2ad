package control

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/julienschmidt/httprouter"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// submit is POST /{group}/{job}.
func (s *Server) submit(w *answer, r *http.Request, p httprouter.Params) error {
	def, err := s.definition(p.ByName("group"), p.ByName("name"))
	if err != nil {
		return err
	}
	values, err := query(r)
	if err != nil {
		return err
	}
	if err := submitOptions(def, values); err != nil {
		return err
	}
	wait, applied, err := submitWait(r, values)
	if err != nil {
		return err
	}
	tags, err := tagsFrom(values["tags"])
	if err != nil {
		return err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	params, err := def.BindJSON(body)
	if err != nil {
		return err
	}
	rec, err := s.start(r, def, params, tags)
	if err != nil {
		return err
	}
	if applied != "" {
		w.Header().Set("Preference-Applied", applied)
	}
	return s.sendStarted(w, r, rec, wait)
}

// sendStarted answers with an operation that was just submitted, when it has ended or the time to wait is over.
func (s *Server) sendStarted(w *answer, r *http.Request, rec *statefs.Record, wait time.Duration) error {
	w.Header().Set("Location", "/api/v1/operations/"+rec.ID.String())
	w.Header().Set(operationHeader, rec.ID.String())
	out := operationJSON{ID: rec.ID, Record: rec, Endpoint: rec.ID.Endpoint(), State: rec.Status, Status: rec.Status}
	if wait > 0 {
		out = s.afterWait(r, out, wait)
	}
	out.Durability = s.tree.Durability()
	return s.sendJSON(w, r, http.StatusCreated, out)
}

// laterOptions are options of a submit that this version does not carry out.
var laterOptions = []string{"priority", "delay", "after", "key"}

// submitOptions refuses what is no option of a submit, and says where it belongs.
func submitOptions(def *catalog.Definition, values url.Values) error {
	for name := range values {
		switch {
		case name == "wait", name == "tags":
		case slices.Contains(laterOptions, name):
			return refuse(http.StatusBadRequest, "The option '%s' of a submit is not known to this version", name).with("parameter", name)
		case def.Param(name) != nil:
			return refuse(http.StatusBadRequest, "A POST takes the parameters of the job as a JSON body, not in the URL: send {\"%s\": ...}", name).with("parameter", name)
		default:
			return refuse(http.StatusBadRequest, "Unknown option '%s' of a submit: the URL takes 'wait' and 'tags', the JSON body the parameters of the job", printable(name, 64)).
				with("parameter", printable(name, 64))
		}
	}
	return nil
}

const (
	mostTags   = 32
	longestTag = 64 // characters, as in a job file
)

// tagsFrom reads the option tags: several are separated by commas.
func tagsFrom(values []string) ([]string, error) {
	wrong := func(format string, args ...any) error {
		return refuse(http.StatusBadRequest, "Invalid parameter 'tags': "+format, args...).with("parameter", "tags")
	}
	var tags []string
	for tag := range strings.SplitSeq(strings.Join(values, ","), ",") {
		switch {
		case tag == "":
			continue
		case utf8.RuneCountInString(tag) > longestTag:
			return nil, wrong("'%s...' is longer than %d characters", printable(tag, 32), longestTag)
		case strings.ContainsFunc(tag, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) || c == utf8.RuneError }):
			return nil, wrong("'%s' has a space or what cannot be printed", printable(tag, longestTag))
		}
		tags = append(tags, tag)
	}
	if len(tags) > mostTags {
		return nil, wrong("there are more than %d", mostTags)
	}
	return tags, nil
}

// joinTags returns the tags of a job and those of a submit, each once.
func joinTags(ofJob, more []string) []string {
	tags := slices.Clone(ofJob)
	for _, tag := range more {
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}
