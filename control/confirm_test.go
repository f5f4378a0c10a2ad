package control

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/control/front"
)

// A browser that navigates to a GET which starts or controls something gets a page, and nothing happens until its
// button is clicked.
func TestLinkIsConfirmed(t *testing.T) {
	r := setup(t, func(c *Config) { c.Hosts = []string{"jobs.example"} })
	op := r.submit().start()
	start, pause := "/testrouter/streaming01?files=3", "/testrouter/control?action=pause&id="+op.id.String()
	const mozilla, named = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0", "Host: jobs.example"
	// Requests that get through are answered at once.
	navigate := []string{
		"Prefer: respond-async", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document",
		"Sec-Fetch-Site: none",
	}
	for name, headers := range map[string][]string{
		"redirected link": navigate,
		"other site":      {"Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"},
		"own site":        {"Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: same-origin"},
		"a frame":         {"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe", "Sec-Fetch-Site: cross-site"},
		"dest alone":      {"Sec-Fetch-Dest: document"},
		// Over plain http to another host a browser sends no Sec-Fetch header.
		"plain http, accepts HTML": {named, "Accept: text/html,application/xhtml+xml;q=0.9"},
		"plain http, Mozilla":      {named, mozilla, "Accept: */*"},
	} {
		for _, target := range []string{start, pause} {
			a := r.get(target, append(headers, "Prefer: respond-async")...)
			if media := a.header.Get("Content-Type"); a.status != http.StatusOK || !strings.HasPrefix(media, front.MediaHTML) {
				t.Errorf("%s, %s: %d %s %.200s, want a page", name, target, a.status, media, a.body)
				continue
			}
			for _, want := range []string{"Nothing has happened yet", `<form method="post">`, "<button>"} {
				if !strings.Contains(a.body, want) {
					t.Errorf("%s, %s: the page lacks %q: %s", name, target, want, a.body)
				}
			}
			policy, frame := a.header.Get("Content-Security-Policy"), a.header.Get("X-Frame-Options")
			if frame != "DENY" || !strings.Contains(policy, "frame-ancestors 'none'") ||
				!strings.Contains(policy, "form-action 'self'") {
				t.Errorf("%s: %s %s", name, frame, policy)
			}
		}
	}
	if a := r.get("/testrouter/streaming01?files=many", navigate...); a.status != http.StatusBadRequest {
		t.Errorf("wrong parameters: %d %s", a.status, a.body)
	}
	if a := r.get("/testrouter/streaming01", navigate...); !strings.Contains(a.body, "<h2>Parameters</h2>") {
		t.Errorf("without parameters: %s", a.body)
	}
	r.nothingElse(op)

	// The button.
	page := r.get(start, navigate...).body
	if !strings.Contains(page, "<td><code>3</code></td>") {
		t.Errorf("the page does not show what would run: %s", page)
	}
	form := func(page string) string {
		found := regexp.MustCompile(`name="confirmation" value="([^"]+)"`).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("no token in %s", page)
		}
		return url.Values{"confirmation": {found[1]}}.Encode()
	}
	const formType = "Content-Type: application/x-www-form-urlencoded"
	token := form(page)
	for name, c := range map[string]struct {
		target, body string
		headers      []string
		want         int
	}{
		"another site's form": {start, token, []string{formType, "Sec-Fetch-Site: cross-site"}, 403},
		"a forged token":      {start, "confirmation=1.2.3", []string{formType}, 403},
		"a changed token":     {start, strings.Replace(token, "=", "=9", 1), []string{formType}, 403},
		"another address":     {"/testrouter/streaming01?files=4", token, []string{formType}, 403},
		"another kind":        {pause, token, []string{formType}, 403},
		"no token":            {start, "x=1", []string{formType}, 415},
		"no form":             {start, token, []string{"Content-Type: text/plain"}, 400}, // files is no option of a submit
	} {
		if a := r.do("POST", c.target, c.body, c.headers...); a.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.body, c.want)
		}
	}
	r.nothingElse(op)
	a := r.do("POST", pause, form(r.get(pause, navigate...).body), formType)
	if a.status != http.StatusOK || a.json(t)["action"] != "pause" {
		t.Errorf("the button of pause: %d %s", a.status, a.body)
	}
	clicked := r.click(start, token)
	if again := r.click(start, token); again != clicked {
		t.Errorf("the button clicked twice started %s and %s", clicked, again)
	}

	// Programs and the scripts of our own page are not affected.
	for name, headers := range map[string][]string{
		"curl":             {"User-Agent: curl/8.5.0", "Accept: */*"},
		"curl, named":      {named, "User-Agent: curl/8.5.0", "Accept: */*"},
		"fetch":            {"Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty", "Sec-Fetch-Site: same-origin", mozilla},
		"fetch, by name":   {named, "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty", "Sec-Fetch-Site: same-origin", mozilla},
		"script with HTML": {"Accept: text/html", mozilla}, // a browser would send more headers to this host
	} {
		resp := r.open("GET", "/testrouter/streaming01?files=1", "", headers...)
		if resp.Header.Get(operationHeader) == "" {
			t.Errorf("%s: %s %s", name, resp.Status, resp.Header.Get("Content-Type"))
		}
		must(t, resp.Body.Close())
	}
}

// click posts the form of a page and returns the ID of the operation.
func (r *rig) click(target, form string) string {
	r.t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	//nolint:noctx // it is answered at once
	resp, err := client.Post(r.url(target), "application/x-www-form-urlencoded", strings.NewReader(form))
	must(r.t, err)
	id := resp.Header.Get(operationHeader)
	if text := readAll(r.t, resp); resp.StatusCode != http.StatusSeeOther || id == "" {
		r.t.Fatalf("the button: %s %s", resp.Status, text)
	}
	if to := resp.Header.Get("Location"); to != "../api/v1/operations/"+id+"/stream?format=stream" {
		r.t.Errorf("the button leads to %s", to)
	}
	return id
}

// nothingElse checks that an operation is the only one, without requests.
func (r *rig) nothingElse(op *work) {
	r.t.Helper()
	listing, err := r.tree.List()
	must(r.t, err)
	if len(listing.Markers) != 1 || listing.Markers[0].ID != op.id || len(listing.Requests) != 0 {
		r.t.Errorf("something got through: %+v", listing)
	}
}

// Names that begin with _ are no parameters of the job: a start ignores them, also when there are no others, and so
// does every other endpoint.
func TestCacheBustersAreIgnored(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if a := r.get("/testrouter/streaming01?_=17"); !strings.Contains(a.body, "<h2>Parameters</h2>") {
		t.Errorf("alone: %d %s", a.status, a.body)
	}
	for _, target := range []string{
		"/testrouter/streaming01?files=1&_=17&_=18",
		"/testrouter/streaming01?_x=&format=stream",
	} {
		resp := r.open("GET", target, "", "Prefer: respond-async")
		if text := readAll(t, resp); resp.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %s %s", target, resp.Status, text)
		}
	}
	op := r.submit()
	for target, want := range map[string]int{
		"GET /api/v1/operations?_=17":                                          http.StatusOK,
		"GET " + op.path("?_=17"):                                              http.StatusOK,
		"POST " + op.path("/pause?_=17"):                                       http.StatusAccepted,
		"POST /testrouter/streaming01?_=17":                                    http.StatusCreated,
		"GET /api/v1/lanes?_=17":                                               http.StatusOK,
		"GET /testrouter/control?_=17&id=" + op.id.String() + "&action=resume": http.StatusOK,
	} {
		method, path, _ := strings.Cut(target, " ")
		if a := r.do(method, path, ""); a.status != want {
			t.Errorf("%s: %d %s", target, a.status, a.body)
		}
	}
}
