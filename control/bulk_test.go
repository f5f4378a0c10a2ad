package control

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

func (r *rig) bulk(body string) map[string]any {
	r.t.Helper()
	a := r.do("POST", "/api/v1/bulk", body)
	if a.status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", body, a.status, a.body)
	}
	return a.json(r.t)
}

func (r *rig) wantBulk(body, want string) {
	r.t.Helper()
	out := r.bulk(body)
	if got := fmt.Sprintf("total %v %v done %v failures %v", out["total"], out["total_exact"], out["done"],
		out["failures"]); got != want {
		r.t.Errorf("%s:\n%s, want\n%s", body, got, want)
	}
}

func TestBulkActsOnWhatMatches(t *testing.T) {
	t.Parallel()
	r := setup(t)
	running, other, ended := r.submit().start(), r.submit().start(), r.submit().start()
	ended.finish()
	requested := func(op *work, ask statefs.Action) bool {
		sight, err := r.tree.ObserveAll(op.id)
		must(t, err)
		return len(sight.Requests) == 1 && sight.Requests[0] == ask
	}
	out := r.bulk(`{"action": "cancel", "filter": {"group": "testrouter"}, "dry_run": true}`)
	if ids := fmt.Sprint(out["operations"]); out["total"] != 2.0 || out["done"] != 0.0 ||
		!strings.Contains(ids, running.id.String()) || strings.Contains(ids, ended.id.String()) {
		t.Fatalf("%v", out)
	}
	if requested(running, statefs.Cancel) {
		t.Fatal("a dry run asked for something")
	}
	r.wantBulk(`{"action": "cancel", "filter": {"group": "testrouter", "status": ["queued", "paused"]}}`,
		"total 0 true done 0 failures []")
	r.wantBulk(`{"action": "cancel", "filter": {"group": "testrouter", "status": "completed"}}`,
		"total 0 true done 0 failures []")
	r.wantBulk(`{"action": "pause", "filter": {"status": ["running", "completed"]}}`, "total 2 true done 2 failures []")
	if !requested(running, statefs.Pause) || !requested(other, statefs.Pause) {
		t.Fatal("nothing was asked for")
	}
	// successful operations are not retried
	r.wantBulk(`{"action": "retry", "filter": {"job": "streaming01"}}`, "total 0 true done 0 failures []")
	r.wantBulk(`{"action": "delete", "filter": {"job": "streaming01"}}`, "total 1 true done 1 failures []")
	if a := r.get(ended.path("")); a.status != 410 && a.status != 404 {
		t.Errorf("the deleted one: %d %s", a.status, a.body)
	}
}

// More operations than fit into one call are processed through next, each once; a failure does not affect the others.
func TestBulkPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const count = bulkPage + 5
	for range count {
		rec, err := r.tree.Draft(statefs.Submission{Group: "media", Job: "tagged", Params: []byte("{}")})
		must(t, err)
		must(t, r.tree.Publish(rec))
	}
	out := r.bulk(`{"action": "cancel", "filter": {"job": "media/tagged"}}`)
	if out["total"] != float64(count) || out["done"] != float64(bulkPage) || out["next"] == nil {
		t.Fatalf("%v", out)
	}
	out = r.bulk(fmt.Sprintf(`{"action": "cancel", "filter": {"job": "media/tagged"}, "next": %q}`, out["next"]))
	if out["done"] != 5.0 || out["next"] != nil {
		t.Fatalf("%v", out)
	}
	listing, err := r.tree.List()
	must(t, err)
	if len(listing.Requests) != count {
		t.Errorf("%d requests for %d operations", len(listing.Requests), count)
	}
}

func TestBulkReportsEachFailure(t *testing.T) {
	t.Parallel()
	r := setup(t)
	done, failed := r.submit().start(), r.submit().start()
	done.finish()
	failed.finish()
	played := r.fakeDaemon()
	played.mu.Lock()
	played.guards.ReferRetry(failed.id, failed.id)
	played.mu.Unlock()
	out := r.bulk(`{"action": "delete", "filter": {"status": "completed"}}`)
	failures, ok := out["failures"].([]any)
	if out["done"] != 1.0 || !ok || len(failures) != 1 {
		t.Fatalf("%v", out)
	}
	if f := fmt.Sprint(failures[0]); !strings.Contains(f, "id:"+failed.id.String()) || !strings.Contains(f, "status:409") {
		t.Errorf("the failure is %s", f)
	}
}

func TestBulkRefuses(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for body, message := range map[string]string{
		`{"action": "stop", "filter": {"job": "x"}}`:                        "Invalid action 'stop': must be one of pause, resume, cancel, retry, delete",
		`{"action": "cancel"}`:                                              "The filter is empty: name what to cancel by one of status, ",
		`{"action": "cancel", "filter": {}}`:                                "The filter is empty",
		`{"action": "cancel", "filter": {"job": ""}}`:                       "Invalid parameter 'job': it is empty",
		`{"action": "cancel", "filter": {"job": []}}`:                       "Invalid parameter 'job': it is empty",
		`{"action": "cancel", "filter": {"job": ["a", "b"]}}`:               "Parameter 'job' is given 2 times",
		`{"action": "cancel", "filter": {"colour": "red"}}`:                 "Unknown parameter 'colour'; known here: status",
		`{"action": "cancel", "filter": {"limit": "5"}}`:                    "Unknown parameter 'limit'",
		`{"action": "cancel", "filter": {"status": "joy"}}`:                 "'joy' is none of",
		`{"action": "cancel", "filter": {"job": 5}}`:                        "Invalid parameter 'job': '5' must be a text or a list of texts",
		`{"action": "cancel", "filter": {"foo": 1}}`:                        "Unknown parameter 'foo'; known here: status",
		`{"action": "cancel", "filter": 5}`:                                 "Invalid parameter 'filter': '5' must be an object",
		`{"action": "cancel", "filter": {"job": "x"}, "dry_run": "yes"}`:    "Invalid parameter 'dry_run': '\\\"yes\\\"' must be true or false",
		`{"action": "cancel", "filter": {"job": "x"}, "force": true}`:       "The body must be a JSON object as",
		`{"action": "cancel", "filter": {"job": "x"}, "next": "elsewhere"}`: "Invalid parameter 'next'",
		`[]`: "The body must be a JSON object as",
	} {
		if a := r.do("POST", "/api/v1/bulk", body); a.status != 400 || !strings.Contains(a.body, message) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, message)
		}
	}
	r.problem(r.do("POST", "/api/v1/bulk?dry_run=true", `{"action": "cancel", "filter": {"job": "x"}}`), 400,
		"Unknown parameter 'dry_run'; none is known here")
}

// Chosen operations are processed in one call; an operation to which the action does not apply is a failure.
func TestBulkOfChosenOperations(t *testing.T) {
	t.Parallel()
	r := setup(t)
	live, done, other := r.submit().start(), r.submit().start(), r.submit().start()
	done.finish()
	other.finish()
	ids := func(of ...*work) string {
		var quoted []string
		for _, w := range of {
			quoted = append(quoted, fmt.Sprintf("%q", w.id))
		}
		return "[" + strings.Join(quoted, ",") + "]"
	}
	out := r.bulk(`{"action": "delete", "ids": ` + ids(done, live, done) + `}`)
	if got := fmt.Sprint(out["total"], out["done"]); got != "2 1" {
		t.Errorf("total and done are %s: %v", got, out)
	}
	failures, ok := out["failures"].([]any)
	if text := fmt.Sprint(failures); !ok || len(failures) != 1 || !strings.Contains(text, "id:"+live.id.String()) ||
		!strings.Contains(text, "status:409") {
		t.Errorf("the failures are %s", text)
	}
	if a := r.get(done.path("")); a.status != 410 && a.status != 404 {
		t.Errorf("the deleted one: %d %s", a.status, a.body)
	}
	if a := r.get(other.path("")); a.status != 200 {
		t.Errorf("the one that was not chosen: %d %s", a.status, a.body)
	}
	out = r.bulk(`{"action": "retry", "ids": ` + ids(live, other) + `}`)
	if text := fmt.Sprint(out["failures"]); out["done"] != 0.0 ||
		!strings.Contains(text, "is running: a retry changes nothing") ||
		!strings.Contains(text, "there is nothing to retry") {
		t.Errorf("%v", out)
	}
	for body, message := range map[string]string{
		`{"action": "delete", "ids": []}`:                                 "Invalid parameter 'ids': there are 0, and it takes 1 to 1000",
		`{"action": "delete", "ids": ["no-id"]}`:                          "Invalid parameter 'ids'",
		`{"action": "delete", "ids": 5}`:                                  "Invalid parameter 'ids': '5' must be a list of IDs",
		`{"action": "delete", "ids": ` + ids(live) + `, "filter": {}}`:    "'ids' name the operations",
		`{"action": "delete", "ids": ` + ids(live) + `, "dry_run": true}`: "'ids' name the operations",
	} {
		if a := r.do("POST", "/api/v1/bulk", body); a.status != 400 || !strings.Contains(a.body, message) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, message)
		}
	}
}
