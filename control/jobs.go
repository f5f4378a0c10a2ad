package control

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the pages and their style
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs/api"
)

// jobs is GET /api/v1/jobs.
func (s *pages) jobs(w *front.Response, r *front.Request) error {
	all := s.catalog.All()
	out := api.Jobs{Count: len(all), Jobs: make([]api.Job, len(all)), Problems: s.catalog.Problems()}
	for i, def := range all {
		out.Jobs[i] = def.Describe()
	}
	return w.SendJSON(http.StatusOK, out)
}

// job is GET /api/v1/jobs/{group}/{job}.
func (s *pages) job(w *front.Response, r *front.Request) error {
	def, err := submit.Find(s.catalog, r.Param("group"), r.Param("job"))
	if err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, def.DescribeWhole())
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pages renders the HTML that documents an address. A page contains its style and loads nothing; the
// Content-Security-Policy names the hash of that style, so injected style or script would not apply.
type pages struct {
	catalog  *catalog.Catalog
	template *template.Template
	policy   string
}

func newPages(jobs *catalog.Catalog) (*pages, error) {
	t, err := template.New("page").Funcs(template.FuncMap{"limits": limitsOf}).Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("read the page template: %w", err)
	}
	sum := sha256.Sum256([]byte(pageCSS))
	hash := base64.StdEncoding.EncodeToString(sum[:])
	return &pages{jobs, t, "default-src 'none'; style-src 'sha256-" + hash + "'; frame-ancestors 'none'; base-uri 'none'; "}, nil
}

// page is the data of a page.
type page struct {
	Style   template.CSS
	Kind    string // job, control, index or confirm
	Title   string
	Summary string
	Host    string
	Jobs    []*catalog.Definition
	Job     *catalog.Definition
	Group   string
	Query   string        // an example of its parameters
	Body    string        // the same as JSON
	Confirm *confirmation // of the confirmation page
}

func (s *pages) sendPage(w *front.Response, r *front.Request, p page) error {
	p.Style = template.CSS(pageCSS) //nolint:gosec // our own style sheet
	p.Host = r.Host
	if r.OverUnix() || p.Host == "" {
		p.Host = "127.0.0.1:8484"
	}
	var out bytes.Buffer
	if err := s.template.Execute(&out, p); err != nil {
		return fmt.Errorf("write the page of %s: %w", p.Title, err)
	}
	forms := "form-action 'none'"
	if p.Confirm != nil {
		forms = "form-action 'self'"
	}
	w.Header().Set("Content-Security-Policy", s.policy+forms)
	return w.SendBytes(http.StatusOK, front.MediaHTML+"; charset=utf-8", out.Bytes())
}

// index is GET /.
func (s *pages) index(w *front.Response, r *front.Request) error {
	return s.sendPage(w, r, page{
		Kind: "index", Title: "jobdir",
		Summary: "Long-running operations whose state is a directory.", Jobs: s.catalog.All(),
	})
}

// controlPage is GET /{group}/control without parameters.
func (s *pages) controlPage(w *front.Response, r *front.Request, group string) error {
	if err := knownGroup(s.catalog, group); err != nil {
		return err
	}
	return s.sendPage(w, r, page{
		Kind: "control", Title: group + "/control",
		Summary: "Pause, resume, cancel or retry a live operation of the group.", Group: group,
	})
}

// jobPage is GET /{group}/{job} without parameters.
func (s *pages) jobPage(w *front.Response, r *front.Request, def *catalog.Definition) error {
	p := page{Kind: "job", Title: def.Address(), Summary: def.Summary, Group: def.Group, Job: def}
	p.Query, p.Body = example(def)
	return s.sendPage(w, r, p)
}

// limitsOf describes which values of a parameter are allowed.
func limitsOf(p param.Param) string {
	var limits []string
	if !p.Minimum.IsZero() {
		limits = append(limits, "at least "+p.Minimum.Text())
	}
	if !p.Maximum.IsZero() {
		limits = append(limits, "at most "+p.Maximum.Text())
	}
	if len(p.Enum) > 0 {
		words := make([]string, len(p.Enum))
		for i, v := range p.Enum {
			words[i] = v.Text()
		}
		limits = append(limits, "one of "+strings.Join(words, ", "))
	}
	if p.Pattern != "" {
		limits = append(limits, "matches "+p.Pattern)
	}
	return strings.Join(limits, "; ")
}

// example returns parameters to copy and change: the required ones, and the first default.
func example(def *catalog.Definition) (query, body string) {
	pairs, members := []string{"format=stream"}, map[string]any{}
	shown := false
	for i := range def.Params {
		p := &def.Params[i]
		value := p.Default
		switch {
		case p.Required && len(p.Enum) > 0:
			value = p.Enum[0]
		case p.Required && !p.Minimum.IsZero():
			value = p.Minimum
		case p.Required:
			pairs = append(pairs, p.Name+"=VALUE")
			members[p.Name] = "VALUE"
			continue
		case value.IsZero() || shown:
			continue
		}
		shown = shown || !p.Required
		pairs = append(pairs, p.Name+"="+url.QueryEscape(value.Text()))
		members[p.Name] = value.Any()
	}
	data, err := json.Marshal(members)
	if err != nil {
		data = []byte("{}") // unreachable: values of a checked definition are JSON
	}
	return strings.Join(pairs, "&"), strings.ReplaceAll(string(data), "'", `'\''`) // inside single quotes of a shell
}

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

// knownGroup refuses a group without jobs.
func knownGroup(jobs *catalog.Catalog, group string) error {
	groups := jobs.Groups()
	if slices.Contains(groups, group) {
		return nil
	}
	return &submit.UnknownJobError{Group: group, Groups: groups}
}
