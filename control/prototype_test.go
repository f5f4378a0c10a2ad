package control

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// The field names, messages and statuses of the three endpoints that existing clients use.

func TestControlEndpoint(t *testing.T) {
	r := setup(t)
	op := r.submit().start()
	other, err := statefs.ParseID(strings.Replace(op.id.String(), "testrouter-streaming01", "media-decode", 1))
	must(t, err)
	id := op.id.String()
	long := strings.Repeat("a", 5000)
	for _, c := range []struct {
		name, path string
		status     int
		message    string
	}{
		{"no action", "/testrouter/control?id=" + id, 400, "Missing required parameter 'action'"},
		{"no ID", "/testrouter/control?action=pause", 400, "Missing required parameter 'id'"},
		{"empty ID", "/testrouter/control?action=pause&id=", 400, "Missing required parameter 'id'"},
		{"two IDs", "/testrouter/control?action=pause&id=" + id + "&id=" + id, 400, "Parameter 'id' is given 2 times"},
		{
			"another action", "/testrouter/control?action=explode&id=" + id, 400,
			"Invalid action 'explode': must be one of pause, resume, cancel",
		},
		{"another parameter", "/testrouter/control?action=pause&force=1&id=" + id, 400, "Unknown parameter 'force'"},
		{"no ID but text", "/testrouter/control?action=pause&id=nonsense", 400, "Invalid operation ID"},
		{"an ID that climbs", "/testrouter/control?action=pause&id=../../etc/passwd", 400, "Invalid operation ID"},
		{"an ID with a NUL", "/testrouter/control?action=pause&id=" + id + "%00", 400, "Invalid operation ID"},
		{"an ID with a suffix", "/testrouter/control?action=pause&id=" + id + ".running", 400, "Invalid operation ID"},
		{"a huge ID", "/testrouter/control?action=pause&id=" + long, 400, "Invalid operation ID"},
		{"a broken query", "/testrouter/control?action=pause&id=%zz", 400, "The query of the URL cannot be read"},
		{
			"another group", "/media/control?action=pause&id=" + id, 404,
			"Operation '" + id + "' is not of group 'media': control it by /testrouter/control",
		},
		{"no such operation", "/media/control?action=pause&id=" + other.String(), 404, "Operation '" + other.String() +
			"' not found or already finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.get(c.path)
			p := (&rig{t: t}).problem(a, c.status, c.message)
			if c.status == 404 && p["error"] != c.message {
				t.Errorf("error is %q, want exactly %q", p["error"], c.message)
			}
		})
	}
	if listing, err := r.tree.List(); err != nil || len(listing.Requests) != 0 || listing.Stray != 0 {
		t.Fatalf("a refused request left something: %+v %v", listing, err)
	}
	for _, action := range []string{"pause", "resume", "cancel"} {
		for _, method := range []string{"GET", "POST"} {
			a := r.do(method, "/testrouter/control?id="+id+"&action="+action, "")
			want := fmt.Sprintf(`{"success":true,"id":"%s","action":"%s","message":"%s requested for operation '%s'"}`+"\n",
				id, action, strings.ToUpper(action[:1])+action[1:], id)
			if a.status != 200 || a.body != want {
				t.Errorf("%s %s: %d %s, want %s", method, action, a.status, a.body, want)
			}
			if _, err := os.Stat(filepath.Join(r.tree.JobsDir(), id+"."+action+"_requested")); err != nil {
				t.Error(err)
			}
		}
	}
	body := fmt.Sprintf(`{"id":%q,"action":"cancel"}`, id)
	if a := r.do("POST", "/testrouter/control", body); a.status != 200 {
		t.Errorf("POST with a body: %d %s", a.status, a.body)
	}
	r.problem(r.do("POST", "/testrouter/control", body, "Content-Type: text/plain"), 415, "application/json")
	r.problem(r.do("POST", "/testrouter/control", "[]"), 400, "must be a JSON object of strings")
	if a := r.get("/testrouter/control"); a.status != 200 || !strings.Contains(a.body, "<h1>testrouter/control</h1>") {
		t.Errorf("the page: %d %s", a.status, a.body)
	}
	op.finish()
	r.problem(r.get("/testrouter/control?action=pause&id="+id), 404,
		"Operation '"+id+"' not found or already finished: it is already completed")
}

// The refusal for another group's path names the group and the state of an ended operation.
func TestControlByAnotherGroupNamesTheEnd(t *testing.T) {
	t.Parallel()
	r := setup(t)
	op := r.submit().start()
	op.finish()
	id := op.id.String()
	says := "Operation '" + id +
		"' is not of group 'media' but of 'testrouter', and it is already completed: see /api/v1/operations/" + id
	again := "; POST /api/v1/operations/" + id + "/retry repeats a finished operation as a new one"
	for action, want := range map[string]string{
		"pause": says, "resume": says, "cancel": says, "skip": says,
		"retry": says + again,
	} {
		p := r.problem(r.get("/media/control?action="+action+"&id="+id), 404, says)
		if p["error"] != want || p["state"] != "completed" || p["location"] != "/api/v1/operations/"+id {
			t.Errorf("%s: %v, want %q", action, p, want)
		}
	}
	if a := r.do("DELETE", op.path(""), ""); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.problem(r.get("/media/control?action=pause&id="+id), 410, "it was pruned or deleted")
}

func TestOperationsEndpoint(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if a := r.get("/testrouter/operations"); a.body != `{"count":0,"operations":[]}`+"\n" {
		t.Errorf("nothing live: %s", a.body)
	}
	first := r.submit().start()
	second := r.take(r.do("POST", "/testrouter/pausing", "").header.Get(operationHeader))
	r.do("POST", "/media/decode", `{"title":"x"}`)
	stranger := r.foreign("testrouter-own")
	for path, want := range map[string][]string{
		"/testrouter/operations": {
			first.id.String() + " running",
			second.id.String() + " queued", stranger.String() + " running foreign",
		},
		"/testrouter/operations?endpoint=testrouter-streaming01": {first.id.String() + " running"},
		"/testrouter/operations?endpoint=pausing":                {second.id.String() + " queued"},
		"/testrouter/operations?endpoint=nothing":                nil,
	} {
		var out struct {
			Operations []struct {
				ID      string `json:"operation_id"`
				State   string
				Foreign bool
			}
			Count int
		}
		must(t, json.Unmarshal([]byte(r.get(path).body), &out))
		var got []string
		for _, op := range out.Operations {
			line := op.ID + " " + op.State
			if op.Foreign {
				line += " foreign"
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) || out.Count != len(want) {
			t.Errorf("%s: %v (%d), want %v", path, got, out.Count, want)
		}
	}
	r.problem(r.get("/testrouter/operations?state=running"), 400, "Unknown parameter 'state'")
	// A foreign operation takes requests, and the API shows it.
	if a := r.get("/testrouter/control?action=pause&id=" + stranger.String()); a.status != 200 {
		t.Errorf("request for a foreign operation: %d %s", a.status, a.body)
	}
	shown := r.get("/api/v1/operations/" + stranger.String()).json(t)
	if shown["foreign"] != true || shown["state"] != "running" || shown["id"] != stranger.String() {
		t.Errorf("foreign operation: %v", shown)
	}
	r.problem(r.get("/api/v1/operations/"+stranger.String()+"/stream"), 404, "kept by another program")
}

func TestStartEndpoint(t *testing.T) {
	r := setup(t)
	for _, c := range []struct {
		name, path string
		status     int
		message    string
	}{
		{"text for a number", "/testrouter/streaming01?files=many", 400, "parameter 'files'"},
		{"too large", "/testrouter/streaming01?files=1001", 400, "parameter 'files'"},
		{"twice", "/testrouter/streaming01?files=1&files=2", 400, "Parameter 'files' is given 2 times"},
		{"unknown parameter", "/testrouter/streaming01?fils=1", 400, "unknown parameter 'fils'"},
		{"missing parameter", "/media/decode?format=stream", 400, "missing parameter 'title'"},
		{"not in the list", "/media/decode?title=a&kind=play", 400, "parameter 'kind'"},
		{"unknown format", "/testrouter/streaming01?format=xml", 400, "Invalid parameter 'format'"},
		{
			"cache buster beside a wrong one", "/testrouter/streaming01?_=1&_=2&__x&files=many", 400,
			"parameter 'files': 'many'",
		},
		{"two formats", "/testrouter/streaming01?format=json&format=sse", 400, "Parameter 'format' is given 2 times"},
		{"a broken query", "/testrouter/streaming01?files=%", 400, "cannot be read"},
		{
			"a browser that comes back by itself", "/testrouter/streaming01?format=sse", 409,
			"This address starts a new operation",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&rig{t: t}).problem(r.get(c.path, "Last-Event-ID: 5"), c.status, c.message)
		})
	}
	if listing, err := r.tree.List(); err != nil || len(listing.Markers) != 0 {
		t.Fatalf("a refused call started something: %+v %v", listing, err)
	}

	page := r.get("/testrouter/streaming01")
	for _, has := range []string{
		"<h1>testrouter/streaming01</h1>", "Works through some files &amp; says so", "<code>files</code>", "at most 1000",
		"prefers-color-scheme",
		"curl -N 'http://" + r.tcp.Addr().String() + "/testrouter/streaming01?format=stream&amp;files=20'",
		"/testrouter/control?id=ID&amp;action=pause", "/testrouter/operations?endpoint=testrouter-streaming01",
	} {
		if !strings.Contains(page.body, has) {
			t.Errorf("the page lacks %q:\n%s", has, page.body)
		}
	}
	if !strings.Contains(page.header.Get("Content-Security-Policy"), "style-src 'sha256-") {
		t.Errorf("policy of the page: %s", page.header.Get("Content-Security-Policy"))
	}

	resp := r.open("GET", "/testrouter/streaming01?format=stream", "", "X-Created-By: a person")
	w := r.take(resp.Header.Get(operationHeader)).start()
	w.write("line\n")
	w.finish()
	want := "<start_json>\n{\"id\": \"" + w.id.String() +
		"\", \"total\": 20}\n</start_json>\n<log>\nline\n</log>\n<end_json>\n"
	if text := readAll(t, resp); !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "\n</end_json>\n") {
		t.Errorf("stream:\n%s", text)
	}
	if resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Error("a stream may be buffered on its way")
	}
	rec, err := r.tree.ReadRecord(w.id)
	must(t, err)
	if string(rec.Params) != `{"files":20}` || rec.CreatedBy != "a person" || rec.OnDisconnect != "continue" {
		t.Errorf("record: params %s, created by %q, on disconnect %q", rec.Params, rec.CreatedBy, rec.OnDisconnect)
	}
}

func TestSubmit(t *testing.T) {
	r := setup(t)
	a := r.do("POST", "/media/decode", `{"title":"x","kind":"film"}`)
	out := a.json(t)
	id, _ := out["id"].(string)
	if a.status != 201 || a.header.Get("Location") != "/api/v1/operations/"+id || a.header.Get(operationHeader) != id {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	for member, want := range map[string]any{
		"state": "queued", "group": "media", "job": "decode",
		"endpoint": "media-decode", "durability": "process",
	} {
		if out[member] != want {
			t.Errorf("%s is %v, want %v", member, out[member], want)
		}
	}
	for _, c := range []struct {
		name, path, body, kind string
		status                 int
		message                string
	}{
		{"missing", "/media/decode", "", "application/json", 400, "missing parameter 'title'"},
		{"no object", "/media/decode", "[1]", "application/json", 400, "not a JSON object"},
		{"wrong type", "/media/decode", `{"title":1}`, "application/json", 400, "parameter 'title'"},
		{"unknown", "/media/decode", `{"title":"a","x":1}`, "application/json", 400, "unknown parameter 'x'"},
		{"in the URL", "/media/decode?title=a", "", "application/json", 400, "as a JSON body"},
		{"a form", "/media/decode", "title=a", "application/x-www-form-urlencoded", 415, "application/json"},
		{"no type", "/media/decode", `{"title":"a"}`, "", 415, "application/json"},
		{"reserved name", "/testrouter/operations", `{}`, "application/json", 405, "POST is not possible here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&rig{t: t}).problem(r.do("POST", c.path, c.body, "Content-Type: "+c.kind), c.status, c.message)
		})
	}
	if a := r.do("POST", "/testrouter/streaming01", ""); a.status != 201 {
		t.Errorf("a POST without a body: %d %s", a.status, a.body)
	}
	r.problem(r.do("POST", "/media/decode", `{"title":"a"}`, "X-Created-By: "+strings.Repeat("x", 200)),
		400, "X-Created-By")
}
