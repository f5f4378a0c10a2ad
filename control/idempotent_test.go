package control

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// post submits and returns the ID, "" for a refusal.
func (r *rig) post(path, body string, headers ...string) (id string, a reply) {
	r.t.Helper()
	a = r.do("POST", path, body, headers...)
	if a.status > 201 {
		return "", a
	}
	got := a.json(r.t)
	id, _ = got["id"].(string)
	if location := a.header.Get("Location"); location != "/api/v1/operations/"+id {
		r.t.Errorf("%s: Location %q of %s", path, location, id)
	}
	if got["durability"] == nil || got["state"] == nil {
		r.t.Errorf("%s: answered %v", path, got)
	}
	return id, a
}

// endLive ends an operation as a daemon would.
func (r *rig) endLive(text string) {
	r.t.Helper()
	id, err := statefs.ParseID(text)
	must(r.t, err)
	rec, err := r.tree.ReadRecord(id)
	must(r.t, err)
	rec.Status, rec.Result, rec.FinishedSeq = statefs.Completed, statefs.Success, 1
	rec.Footer = []byte(`{"result":"success","state":"completed"}`)
	must(r.t, r.owner.WriteEnd(rec))
	must(r.t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
	r.config.Intake.Forget(rec)
}

func TestSubmitTheSameAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, a := r.post("/once/return", `{"a":" X "}`)
	if got := a.json(t); a.status != 201 || fmt.Sprint(got["params"]) != "map[a:x b:1]" ||
		got["canonical_params"] != `{"a":"x","b":1}` || len(fmt.Sprint(got["request_hash"])) != 64 {
		t.Fatalf("%d %v", a.status, got)
	}
	for body, status := range map[string]int{
		`{"b":1,"a":"x"}`: 200, `{"a":"x","b":null}`: 200,
		`{"a":"x","b":2}`: 201, `{"a":" "}`: 201,
	} {
		if id, a := r.post("/once/return", body); a.status != status || (status == 200) != (id == first) {
			t.Errorf("%s: %d %s, want %d", body, a.status, id, status)
		}
	}
	if _, a := r.post("/once/return", `{"a":null}`); a.status != 200 {
		t.Errorf("a null where a blank was dropped: %d", a.status)
	}
	stream := r.open("GET", "/once/return?a=x", "")
	if started := stream.Header.Get(operationHeader); started == first || started == "" {
		t.Errorf("a streaming GET gave %q", started)
	}
	must(t, stream.Body.Close())
	r.endLive(first)
	r.endLive(stream.Header.Get(operationHeader))
	if id, a := r.post("/once/return", `{"a":"x"}`); a.status != 201 || id == first {
		t.Errorf("after its end: %d %s", a.status, id)
	}
	one, _ := r.post("/once/by", `{"a":"x"}`)
	if id, a := r.post("/once/by", `{"a":"x","b":2}`); a.status != 200 || id != one {
		t.Errorf("by some parameters: %d %s, want %s", a.status, id, one)
	}
}

func TestSubmitOnHit(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, _ := r.post("/once/reject", "")
	refused := r.do("POST", "/once/reject", "")
	r.problem(refused, http.StatusConflict, "Operation '"+first+"' does the same and has not ended")
	if refused.json(t)["id"] != first || refused.header.Get("Location") != "/api/v1/operations/"+first {
		t.Errorf("the refusal says %s, %v", refused.body, refused.header)
	}
	next, _ := r.post("/once/next", "")
	id, err := statefs.ParseID(next)
	must(t, err)
	must(t, r.owner.Move(id, statefs.Queued, statefs.Running))
	second, a := r.post("/once/next", "")
	if got := a.json(t); a.status != 201 || second == next || fmt.Sprint(got["after"]) != "["+next+"]" ||
		got["require"] != "end" {
		t.Errorf("a successor: %d %v", a.status, got)
	}
	if third, a := r.post("/once/next", ""); a.status != 200 || third != second {
		t.Errorf("a second successor: %d %s, want %s", a.status, third, second)
	}
}

func TestIdempotencyKeyHeader(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const header = "Idempotency-Key: "
	first, a := r.post("/testrouter/streaming01", `{"files":3}`, header+`"one"`)
	if a.status != 201 || a.json(t)["idempotency_key"] != "one" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	again, a := r.post("/testrouter/streaming01", `{"files":3}`, header+"one")
	if a.status != 200 || again != first {
		t.Errorf("again: %d %s", a.status, again)
	}
	other := r.do("POST", "/testrouter/streaming01", `{"files":4}`, header+"one")
	r.problem(other, http.StatusUnprocessableEntity,
		"The idempotency key 'one' names operation '"+first+"', which has another job or other parameters: use a new key")
	r.endLive(first)
	again, a = r.post("/testrouter/streaming01", `{"files":3}`, header+"one")
	if a.status != 200 || again != first || a.json(t)["state"] != "completed" {
		t.Errorf("after its end: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/testrouter/streaming01?wait=10m", `{"files":3}`, header+"one"); a.status != 200 {
		t.Errorf("waiting for what has ended: %d", a.status)
	}
	r.problem(r.do("GET", "/testrouter/streaming01?files=3", "", header+"one"), http.StatusBadRequest,
		"This address always starts a new operation")
	for key, message := range map[string]string{
		`""`:                     "Invalid parameter 'idempotency_key': it is empty",
		strings.Repeat("k", 256): "Invalid parameter 'idempotency_key': it is longer than 255 bytes",
		`"a\u0007"`:              "Invalid parameter 'idempotency_key': it has a control character",
	} {
		r.problem(r.do("POST", "/testrouter/streaming01", `{"files":3}`, header+key), http.StatusBadRequest, message)
	}
}

// Two hundred concurrent submits with the same key get one 201 and 199 times 200.
func TestSubmitAtOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var made, found atomic.Int32
	var ids sync.Map
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			id, a := r.post("/once/return", `{"a":"x"}`)
			ids.Store(id, true)
			switch a.status {
			case 201:
				made.Add(1)
			case 200:
				found.Add(1)
			}
		})
	}
	all.Wait()
	different := 0
	ids.Range(func(any, any) bool { different++; return true })
	if made.Load() != 1 || found.Load() != 199 || different != 1 {
		t.Errorf("%d were new, %d not, %d different ones", made.Load(), found.Load(), different)
	}
}

func TestSubmitBadInput(t *testing.T) {
	t.Parallel()
	r := setup(t)
	before, err := r.tree.List()
	must(t, err)
	for name, c := range map[string]struct {
		path, body string
		status     int
		message    string
	}{
		"no such job":   {"/once/no", `{}`, 404, "There is no job no in group once"},
		"no such group": {"/none/no", `{}`, 404, "There is no group none"},
		"no JSON":       {"/once/return", `{"a":`, 400, "the parameters are not a JSON object: it is cut off"},
		"no object":     {"/once/return", `[1]`, 400, "the parameters are not a JSON object: it begins with '['"},
		"2 MiB": {
			"/once/return", `{"a":"` + strings.Repeat("x", 2<<20) + `"}`, 413,
			"The body has 2097160 bytes, the limit is 1048576",
		},
		"10,000 levels": {
			"/once/return", strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), 400,
			"it nests deeper than 64 levels",
		},
		"a key twice":       {"/once/return", `{"a":"x","a":"x"}`, 400, "parameter 'a': it is given twice"},
		"an unknown member": {"/once/return", `{"c":"x"}`, 400, "unknown parameter 'c'"},
		"a missing parent": {
			"/once/return?after=a-b_2026-11-22_10-00-00_p1_r1", `{}`, 400,
			"Invalid parameter 'after': there is no operation 'a-b_2026-11-22_10-00-00_p1_r1', or it was deleted",
		},
		"a parent of no name": {
			"/once/return?after=x", `{}`, 400,
			"Invalid parameter 'after': 'x' is not the ID of an operation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.do("POST", c.path, c.body)
			r.problem(a, c.status, c.message)
		})
	}
	after, err := r.tree.List()
	must(t, err)
	if len(after.Markers) != len(before.Markers) {
		t.Errorf("refused submits left %d operations", len(after.Markers)-len(before.Markers))
	}
}
