package control

import (
	"encoding/json"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/control/web"
	"github.com/jobdir/jobdir/statefs"
)

// The page needs no token. Its policy allows only its own files; it requests all data elsewhere.
func TestPageToWatchOn(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Tokens = []front.Token{{Name: "alice", Secret: aliceSecret}} })
	for path, media := range map[string]string{
		"/ui/": "text/html; charset=utf-8", "/ui/index.html": "text/html; charset=utf-8",
		"/ui/app.js":    "text/javascript; charset=utf-8",
		"/ui/style.css": "text/css; charset=utf-8", "/ui/icon.svg": "image/svg+xml",
	} {
		a, head := r.get(path), r.do("HEAD", path, "")
		if a.status != 200 || a.body == "" || head.status != 200 || head.body != "" ||
			head.header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: %d with %d bytes, HEAD %d with %d and the length %s", path, a.status, len(a.body), head.status,
				len(head.body), head.header.Get("Content-Length"))
		}
		for name, want := range map[string]string{
			"Content-Type": media, "Content-Security-Policy": web.Policy, "X-Content-Type-Options": "nosniff",
			"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := a.header.Get(name); got != want || head.header.Get(name) != want {
				t.Errorf("%s: %s is %q, and %q of HEAD; want %q", path, name, got, head.header.Get(name), want)
			}
		}
	}
	policy := web.Policy
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy %q does not say %s", web.Policy, part)
		}
	}
	for _, path := range []string{"/ui/nothing.js", "/ui/sub/app.js", "/ui/web.go"} {
		r.problem(r.get(path), 404, "There is nothing at "+path)
	}
	r.problem(r.do("POST", "/ui/", "{}", "Authorization: Bearer "+aliceSecret), 405, "POST is not possible here")
	if a := r.get("/ui/", "Host: other.example"); a.status != 421 {
		t.Errorf("under a name that is not the daemon's: %d", a.status)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url("/ui"), http.NoBody)
	must(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req) // does not follow redirects
	must(t, err)
	if text := readAll(t, resp); resp.StatusCode != http.StatusTemporaryRedirect ||
		resp.Header.Get("Location") != "ui/" || text != "" {
		t.Errorf("/ui: %d to %q %q", resp.StatusCode, resp.Header.Get("Location"), text)
	}
}

// Every script of the page finds the scripts that it imports, also the one made by the daemon.
func TestScriptsOfThePageFindTheirImports(t *testing.T) {
	t.Parallel()
	r := setup(t)
	imported := regexp.MustCompile(`from '\./([^']+)'`)
	found := []string{"app.js"}
	for i := 0; i < len(found); i++ {
		a := r.get("/ui/" + found[i])
		if a.status != 200 || a.header.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("%s: %d %s", found[i], a.status, a.header.Get("Content-Type"))
		}
		for _, name := range imported.FindAllStringSubmatch(a.body, -1) {
			if !slices.Contains(found, name[1]) {
				found = append(found, name[1])
			}
		}
	}
	if !slices.Contains(found, "buttons.js") || len(found) < 20 {
		t.Errorf("the page loads %v", found)
	}
}

// Every endpoint of an action has a button, which is shown where the action applies.
func TestPageHasAButtonForEveryAction(t *testing.T) {
	t.Parallel()
	r := setup(t)
	text, ok := strings.CutPrefix(r.get("/ui/buttons.js").body, "export const buttons = ")
	var buttons []struct {
		Name, Text, Action string
		States             []statefs.State
		Query              map[string]bool
	}
	if err := json.Unmarshal([]byte(strings.TrimSuffix(text, ";\n")), &buttons); err != nil || !ok {
		t.Fatalf("%v: %s", err, text)
	}
	shown := map[string]map[string][]statefs.State{}
	for _, b := range buttons {
		if shown[b.Action] == nil {
			shown[b.Action] = map[string][]statefs.State{}
		}
		shown[b.Action][b.Name] = b.States
	}
	for _, row := range r.server.actionRoutes() {
		name := path.Base(row.Path)
		if row.Method == http.MethodDelete {
			name = "delete"
		}
		if len(shown[name]) == 0 {
			t.Errorf("%s %s has no button", row.Method, row.Path)
		}
	}
	if got := shown["resume"]["resume"]; !slices.Equal(got, []statefs.State{statefs.Paused}) {
		t.Errorf("resume is shown while %v", got)
	}
	if got := shown["cancel"]; len(got["cancel"]) != len(statefs.LiveStates()) || got["force"] == nil {
		t.Errorf("cancel is shown as %v", got)
	}
}
