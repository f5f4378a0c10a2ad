package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
)

// Each row of the table is requested once over a real connection; a row without a case fails.
func TestEveryRouteAnswers(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	live, ended := r.submit().start(), r.submit().start()
	live.write("one\n")
	ended.write("one\ntwo\n")
	ended.finish()
	must(t, os.MkdirAll(filepath.Join(r.tree.ArtifactsPath(ended.id), "sub"), 0o750))
	must(t, os.WriteFile(filepath.Join(r.tree.ArtifactsPath(ended.id), "sub", "a.txt"), []byte("art"), 0o640))
	failed, gate := r.film(statefs.FailedManual, atSplit), r.film(statefs.WaitingApproval, atPublish)
	streamOf := func(header http.Header) { r.take(header.Get(operationHeader)).start().finish() }

	cases := map[string]struct {
		path   string
		status int
		media  string
		has    string
	}{
		"GET /":        {"/", 200, "text/html; charset=utf-8", "/media/decode"},
		"GET /healthz": {"/healthz", 200, "application/json", `"ok"`},
		"GET /readyz": {
			"/readyz", 200, "application/json",
			`"watch":{"name":"scan","reason":"a reason"}`,
		},
		"GET /metrics": {
			"/metrics", 200, "text/plain; version=0.0.4; charset=utf-8",
			"jobdir_ready 1\n",
		},
		"GET /api/v1/outbox": {"/api/v1/outbox", 200, "application/json", `"entries":[]`},
		"POST /api/v1/outbox": {
			"/api/v1/outbox", 400, "application/problem+json",
			"The body must be a JSON object as",
		},
		"POST /api/v1/outbox/:entry/retry": {
			"/api/v1/outbox/" + live.id.String() + "/retry", 409,
			"application/problem+json", "has not ended",
		},
		"POST /api/v1/outbox/:entry/drop": {
			"/api/v1/outbox/" + ended.id.String() + "/drop", 409,
			"application/problem+json", "nothing that waits",
		},
		"GET /openapi.json": {"/openapi.json", 200, "application/json", `"openapi":"3.1.0"`},
		"GET /api/v1/jobs":  {"/api/v1/jobs", 200, "application/json", `"endpoint":"media-decode"`},
		"GET /api/v1/jobs/:group/:job": {
			"/api/v1/jobs/media/decode", 200,
			"application/json", `"required":true`,
		},
		"GET /api/v1/schedules": {"/api/v1/schedules", 200, "application/json", `"job":"media/nightly"`},
		"POST /api/v1/schedules/:group/:job/enable": {
			"/api/v1/schedules/media/nightly/enable", 200,
			"application/json", `"enabled":true`,
		},
		"POST /api/v1/schedules/:group/:job/disable": {
			"/api/v1/schedules/media/nightly/disable", 200,
			"application/json", `"enabled":`,
		},
		"GET /api/v1/operations":          {"/api/v1/operations", 200, "application/json", live.id.String()},
		"POST /api/v1/operations":         {"/api/v1/operations", 201, "application/json", `"tags":["x","y"]`},
		"GET /api/v1/finished":            {"/api/v1/finished", 200, "application/json", `"last":`},
		"DELETE /api/v1/operations/:id":   {live.path(""), 409, "application/problem+json", "is running"},
		"POST /api/v1/operations/:id/pin": {ended.path("/pin"), 200, "application/json", `"pinned":true`},
		"POST /api/v1/prune": {
			"/api/v1/prune?dry_run=true", 200,
			"application/json", `"dry_run":true`,
		},
		"GET /api/v1/operations/:id": {live.path(""), 200, "application/json", `"state":"running"`},
		"GET /api/v1/operations/:id/stream": {
			ended.path("/stream"), 200, "text/event-stream; charset=utf-8",
			"one\ntwo\n</log>",
		},
		"GET /api/v1/operations/:id/log": {ended.path("/log"), 200, "text/plain; charset=utf-8", "one\ntwo\n"},
		"GET /api/v1/operations/:id/artifacts/*name": {
			ended.path("/artifacts/sub/a.txt"), 200,
			"application/octet-stream", "art",
		},
		"POST /api/v1/operations/:id/pause": {
			live.path("/pause"), 202, "application/json",
			"Pause requested for operation '" + live.id.String() + "'",
		},
		"POST /api/v1/operations/:id/resume": {
			live.path("/resume"), 202, "application/json",
			"Resume requested for operation '" + live.id.String() + "'",
		},
		"POST /api/v1/operations/:id/cancel": {
			live.path("/cancel"), 202, "application/json",
			"Cancel requested for operation '" + live.id.String() + "'",
		},
		"POST /api/v1/operations/:id/prioritize": {
			live.path("/prioritize?priority=3"), 202, "application/json",
			"Prioritize requested for operation '" + live.id.String() + "'",
		},
		"POST /api/v1/operations/:id/retry": {
			live.path("/retry"), 202, "application/json",
			"Retry requested for operation '" + live.id.String() + "'",
		},
		"POST /api/v1/operations/:id/skip": {
			failed.path("/skip"), 202, "application/json",
			"Skip requested for operation '" + failed.id.String() + "', step split",
		},
		"POST /api/v1/operations/:id/set": {
			failed.path("/set"), 400, "application/problem+json",
			"Invalid parameter 'values': it is missing",
		},
		"POST /api/v1/operations/:id/approve": {
			gate.path("/approve"), 202, "application/json",
			"Approve requested for operation '" + gate.id.String() + "', step publish",
		},
		"POST /api/v1/operations/:id/reject": {gate.path("/reject"), 202, "application/json", `"action":"reject"`},
		"POST /api/v1/bulk": {
			"/api/v1/bulk", 400, "application/problem+json",
			"The body must be a JSON object as",
		},
		"GET /api/v1/stats": {"/api/v1/stats", 200, "application/json", `"completed":1`},
		"GET /api/v1/events": {
			"/api/v1/events", 200,
			"text/event-stream; charset=utf-8", ": idle\nid: 0\n",
		},
		"GET /api/v1/ws":          {"/api/v1/ws", 426, "application/problem+json", "WebSocket"},
		"GET /api/v1/lanes":       {"/api/v1/lanes", 200, "application/json", `"lanes":[{"name":"cookie"`},
		"GET /api/v1/lanes/:lane": {"/api/v1/lanes/cookie", 200, "application/json", `{"name":"cookie"`},
		"PATCH /api/v1/lanes/:lane": {
			"/api/v1/lanes/cookie", 400, "application/problem+json",
			"Missing member 'capacity'",
		},
		"POST /api/v1/lanes/:lane/pause": {
			"/api/v1/lanes/cookie/pause?reason=tea", 200, "application/json",
			`"paused":{"reason":"tea"`,
		},
		"POST /api/v1/lanes/:lane/resume": {
			"/api/v1/lanes/cookie/resume", 200, "application/json",
			`{"name":"cookie"`,
		},
		"POST /api/v1/lanes/:lane/close": {"/api/v1/lanes/cookie/close", 200, "application/json", `"closed":{`},
		"POST /api/v1/lanes/:lane/open": {
			"/api/v1/lanes/cookie/open", 200, "application/json",
			`{"name":"cookie"`,
		},
		"POST /api/v1/sweep": {
			"/api/v1/sweep?dry_run=true", 200,
			"application/json", `"dry_run":true`,
		},
		"GET /ui":       {"/ui", 200, "text/html; charset=utf-8", `src="app.js"`},
		"GET /ui/*file": {"/ui/", 200, "text/html; charset=utf-8", `src="app.js"`},
		"GET /:group/control": {
			"/testrouter/control?action=pause&id=" + live.id.String(), 200,
			"application/json", `"success":true`,
		},
		"POST /:group/control": {
			"/testrouter/control?action=resume&id=" + live.id.String(), 200,
			"application/json", `"success":true`,
		},
		"GET /:group/operations": {
			"/testrouter/operations", 200, "application/json",
			`"operation_id":"` + live.id.String(),
		},
		"GET /:group/:job": {
			"/testrouter/streaming01?files=2", 200,
			"text/event-stream; charset=utf-8", "<end_json>",
		},
		"POST /:group/:job": {
			"/testrouter/streaming01", 201, "application/json",
			`"state":"queued"`,
		},
	}
	for _, row := range r.server.table() {
		name := row.Method + " " + row.Path
		c, ok := cases[name]
		if !ok {
			t.Errorf("%s has no case", name)
			continue
		}
		body := ""
		if row.List > 0 {
			body = `{"job":"media/tagged"}`
		}
		resp := r.open(row.Method, c.path, body)
		if name == "GET /:group/:job" {
			streamOf(resp.Header)
		}
		var text string
		if name == "GET /api/v1/events" { // never ends by itself
			begin := make([]byte, len(c.has))
			_, err := io.ReadFull(resp.Body, begin)
			must(t, errors.Join(err, resp.Body.Close()))
			text = string(begin)
		} else {
			text = readAll(t, resp)
		}
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.media || !strings.Contains(text, c.has) {
			t.Errorf("%s: %d %s %s, want %d %s with %q", name, resp.StatusCode, resp.Header.Get("Content-Type"), text,
				c.status, c.media, c.has)
		}
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Referrer-Policy": "no-referrer",
		} {
			if got := resp.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q", name, header, got)
			}
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: policy %q", name, resp.Header.Get("Content-Security-Policy"))
		}
	}
	if len(cases) != len(r.server.table()) {
		t.Errorf("%d cases for %d routes", len(cases), len(r.server.table()))
	}
}

func TestOpenAPIDescribesTheTable(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var doc struct {
		Info  struct{ Version string }
		Paths map[string]map[string]struct {
			Summary    string
			Parameters []struct {
				Name, In string
				Required bool
			}
			Responses map[string]any
		}
	}
	must(t, json.Unmarshal([]byte(r.get("/openapi.json").body), &doc))
	if doc.Info.Version != "v1.2.3" {
		t.Errorf("version %q", doc.Info.Version)
	}
	for _, row := range r.server.table() {
		path, names := front.Templated(row.Path)
		op, ok := doc.Paths[path][strings.ToLower(row.Method)]
		if !ok || op.Summary != row.Summary || len(op.Parameters) != len(names)+len(row.Query) || len(op.Responses) < 2 {
			t.Errorf("%s %s is described as %+v", row.Method, row.Path, op)
		}
	}
}

// A client may range over the groups of the answer, also when there is none.
func TestAnUnknownGroupWithoutJobs(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Catalog = catalog.New(catalog.Options{}) })
	for _, path := range []string{"/nope/streaming01", "/nope/control", "/nope/operations"} {
		if a := r.get(path); a.status != 404 || !strings.Contains(a.body, `"groups":[]`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestWhatDoesNotExist(t *testing.T) {
	r := setup(t)
	op := r.submit()
	gone, err := statefs.MakeID("testrouter-streaming01", op.id.Time(time.Local), 1, 77)
	must(t, err)
	for _, c := range []struct {
		name, method, path string
		status             int
		message, header    string
	}{
		{"unknown job", "GET", "/testrouter/nope", 404, "There is no job nope in group testrouter", ""},
		{"unknown group", "GET", "/nope/streaming01?files=1", 404, "There is no group nope", ""},
		{"unknown group's page of control", "GET", "/nope/control", 404, "There is no group nope", ""},
		{"unknown group's operations", "GET", "/nope/operations", 404, "There is no group nope", ""},
		{"trailing slash", "GET", "/testrouter/streaming01/", 404, "There is nothing at", ""},
		{"letter case", "GET", "/Testrouter/streaming01", 404, "There is no group Testrouter", ""},
		{"one segment", "GET", "/testrouter", 404, "There is nothing at", ""},
		{"reserved segment as a group", "GET", "/ui/page", 404, "There is nothing at", ""},
		{"metrics", "GET", "/metrics/x", 404, "There is nothing at", ""},
		{"unknown operation", "GET", "/api/v1/operations/" + gone.String(), 404, "Operation '" + gone.String() +
			"' not found: the storage has no operation with this ID", ""},
		{
			"its stream", "GET", "/api/v1/operations/" + gone.String() + "/stream", 404,
			"not found: the storage has no operation with this ID", "",
		},
		{
			"its log", "GET", "/api/v1/operations/" + gone.String() + "/log", 404,
			"not found: the storage has no operation with this ID", "",
		},
		{"its artifact", "GET", "/api/v1/operations/" + gone.String() + "/artifacts/a", 404, "not found", ""},
		{"its pause", "POST", "/api/v1/operations/" + gone.String() + "/pause", 404, "Operation '" + gone.String() +
			"' not found or already finished", ""},
		{"an artifact", "GET", op.path("/artifacts/a"), 404, "has no artifact 'a'", ""},
		{"an action", "POST", op.path("/explode"), 404, "There is nothing at", ""},
		{"method of an operation", "PUT", op.path(""), 405, "PUT is not possible here", "GET, HEAD, DELETE, OPTIONS"},
		{"method of an action", "GET", op.path("/pause"), 405, "GET is not possible here", "POST, OPTIONS"},
		{
			"method of a job", "DELETE", "/testrouter/streaming01", 405, "DELETE is not possible here",
			"GET, HEAD, POST, OPTIONS",
		},
		{
			"method of a group's operations", "POST", "/testrouter/operations", 405, "POST is not possible here",
			"GET, HEAD, OPTIONS",
		},
		{"unknown method", "BREW", "/testrouter/streaming01", 501, `The method "BREW" is not known here`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.do(c.method, c.path, "")
			r := &rig{t: t}
			r.problem(a, c.status, c.message)
			if c.header != a.header.Get("Allow") {
				t.Errorf("Allow is %q, want %q", a.header.Get("Allow"), c.header)
			}
		})
	}
	if p := r.problem(r.get("/testrouter/nope"), 404, "no job"); len(items(p["jobs"])) != 3 {
		t.Errorf("the problem does not name the jobs: %v", p)
	}
	if a := r.do("OPTIONS", "/testrouter/control", ""); a.status != 204 ||
		a.header.Get("Allow") != "GET, HEAD, POST, OPTIONS" {
		t.Errorf("OPTIONS: %d %q", a.status, a.header.Get("Allow"))
	}
}

func TestHeadStartsNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	op := r.submit().start()
	for path, want := range map[string]int{
		"/testrouter/streaming01?files=1":                              200,
		"/testrouter/streaming01?files=x":                              400,
		"/testrouter/streaming01":                                      200,
		"/testrouter/control?action=cancel&id=" + op.id.String():       200,
		"/testrouter/control?action=cancel&id=" + op.id.String() + "9": 404,
		op.path(""):        200,
		op.path("/stream"): 200,
		op.path("/log"):    200,
		"/readyz":          200,
	} {
		if a := r.do("HEAD", path, ""); a.status != want || a.body != "" {
			t.Errorf("HEAD %s: %d %q, want %d", path, a.status, a.body, want)
		}
	}
	listing, err := r.tree.List()
	must(t, err)
	if len(listing.Markers) != 1 || len(listing.Requests) != 0 {
		t.Errorf("HEAD changed something: %+v", listing)
	}
}
