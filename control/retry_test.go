package control

import (
	"net/http"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A retry of what has ended makes a new operation that knows which one it repeats; what ended well or lives is refused or only asked.
func TestRetry(t *testing.T) {
	t.Parallel()
	r := setup(t)
	done := r.submit().start()
	live := r.do("POST", done.path("/retry"), "")
	if got := live.json(t); live.status != http.StatusAccepted || got["took_effect"] != false {
		t.Errorf("a running one: %d %v", live.status, got)
	}
	must(t, r.owner.RemoveName(statefs.RequestName(done.id, statefs.Retry)))
	done.finish()
	r.problem(r.do("POST", done.path("/retry"), ""), http.StatusConflict, "Operation '"+done.id.String()+"' has ended well: there is nothing to do again")

	cancelled := r.submit()
	rec, err := r.tree.ReadRecord(cancelled.id)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
	rec.Result = statefs.CancelledResult
	must(t, r.owner.Finish(rec, statefs.Queued))
	r.problem(r.do("POST", cancelled.path("/retry?failed_items"), ""), http.StatusConflict, "Operation '"+cancelled.id.String()+"' has no failed items")
	r.problem(r.do("POST", cancelled.path("/retry?failed_items=perhaps"), ""), http.StatusBadRequest, "Invalid parameter 'failed_items': 'perhaps' must be true or false")
	a := r.do("POST", cancelled.path("/retry"), "")
	got := a.json(t)
	if a.status != http.StatusCreated || got["retry_of"] != cancelled.id.String() || got["state"] != "queued" {
		t.Errorf("%d %v", a.status, got)
	}
	if params, _ := got["params"].(map[string]any); params["files"] != 2.0 {
		t.Errorf("its parameters are %v", got["params"])
	}
	r.take(a.header.Get(operationHeader))
	r.problem(r.do("POST", "/api/v1/operations/testrouter-streaming01_2025-11-26_13-07-00_p5_r999999/retry", ""), http.StatusNotFound,
		"Operation 'testrouter-streaming01_2025-11-26_13-07-00_p5_r999999' not found")
}

// The control of the group retries what lives, as the file retry_requested does, and says where what has ended is done again.
func TestRetryByTheGroup(t *testing.T) {
	t.Parallel()
	r := setup(t)
	waiting := r.submit().start()
	url := "/testrouter/control?action=retry&id=" + waiting.id.String()
	if got := r.get(url).json(t); got["success"] != true || got["took_effect"] != false || got["state"] != "running" {
		t.Errorf("a running one: %v", got)
	}
	must(t, r.owner.RemoveName(statefs.RequestName(waiting.id, statefs.Retry)))
	must(t, r.owner.Move(waiting.id, statefs.Running, statefs.FailedManual))
	for _, method := range []string{"GET", "POST"} {
		a := r.do(method, url, "")
		if want := "Retry requested for operation '" + waiting.id.String() + "'"; a.status != 200 || a.json(t)["message"] != want {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
		must(t, r.owner.RemoveName(statefs.RequestName(waiting.id, statefs.Retry)))
	}
	done := r.submit().start()
	done.finish()
	r.problem(r.get("/testrouter/control?action=retry&id="+done.id.String()), 404,
		"Operation '"+done.id.String()+"' not found or already finished; POST /api/v1/operations/"+done.id.String()+"/retry makes a new one")
}

// A retry of what has ended takes effect with the new operation: whoever waits for that is not kept until the new one has ended.
func TestRetryOfWhatHasEndedWaitsForNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.submit()
	rec, err := r.tree.ReadRecord(old.id)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
	rec.Result = statefs.CancelledResult
	must(t, r.owner.Finish(rec, statefs.Queued))
	r.problem(r.do("POST", old.path("/retry?wait=long"), ""), http.StatusBadRequest, "Invalid parameter 'wait'")
	a := r.do("POST", old.path("/retry?wait=10m"), "") // nobody starts the new one
	if got := a.json(t); a.status != http.StatusCreated || got["state"] != "queued" || got["retry_of"] != old.id.String() {
		t.Errorf("%d %v", a.status, got)
	}
}

// What has ended is done again as its job is defined now, and where that cannot be the answer says so.
func TestRetryAfterTheJobHasChanged(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for want, change := range map[string]func(*statefs.Record){
		"cannot be done again: there is no job testrouter/gone any more":                                        func(rec *statefs.Record) { rec.Job = "gone" },
		"cannot be done again as its job is defined now: parameter 'files': 5000 is more than the maximum 1000": func(rec *statefs.Record) { rec.Params = []byte(`{"files":5000}`) },
		"cannot be done again as its job is defined now: unknown parameter 'pages'":                             func(rec *statefs.Record) { rec.Params = []byte(`{"pages":1}`) },
	} {
		old := r.submit()
		rec, err := r.tree.ReadRecord(old.id)
		must(t, err)
		change(rec)
		must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
		rec.Result = statefs.CancelledResult
		must(t, r.owner.Finish(rec, statefs.Queued))
		r.problem(r.do("POST", old.path("/retry"), ""), http.StatusConflict, want)
	}
}
