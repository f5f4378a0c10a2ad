package control

import (
	"net/http"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A retry of an ended operation makes a new operation that refers to it; for successful and live operations it is
// refused or becomes a request.
func TestRetry(t *testing.T) {
	t.Parallel()
	r := setup(t)
	done := r.submit().start()
	live := r.do("POST", done.path("/retry"), "")
	if got := live.json(t); live.status != http.StatusOK || got["took_effect"] != false || got["changed"] != false {
		t.Errorf("a running one: %d %v", live.status, got)
	}
	done.finish()
	r.problem(r.do("POST", done.path("/retry"), ""), http.StatusConflict,
		"Operation '"+done.id.String()+"' has succeeded: there is nothing to retry")

	cancelled := r.submit()
	rec, err := r.tree.ReadRecord(cancelled.id)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
	rec.Result = statefs.CancelledResult
	must(t, r.owner.WriteEnd(rec))
	must(t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
	r.problem(r.do("POST", cancelled.path("/retry?failed_items"), ""), http.StatusConflict,
		"Operation '"+cancelled.id.String()+"' has no failed items")
	r.problem(r.do("POST", cancelled.path("/retry?failed_items=perhaps"), ""), http.StatusBadRequest,
		"Invalid parameter 'failed_items': 'perhaps' must be true or false")
	a := r.do("POST", cancelled.path("/retry"), "")
	got := a.json(t)
	if a.status != http.StatusCreated || got["retry_of"] != cancelled.id.String() || got["state"] != "queued" {
		t.Errorf("%d %v", a.status, got)
	}
	if params, _ := got["params"].(map[string]any); params["files"] != 2.0 {
		t.Errorf("its parameters are %v", got["params"])
	}
	r.take(a.header.Get(operationHeader))
	r.problem(r.do("POST", "/api/v1/operations/testrouter-streaming01_2025-11-26_13-07-00_p5_r999999/retry", ""),
		http.StatusNotFound,
		"Operation 'testrouter-streaming01_2025-11-26_13-07-00_p5_r999999' not found")
}

// The group's control retries live operations, as the file retry_requested does, and names the address that retries
// ended ones.
func TestRetryByTheGroup(t *testing.T) {
	t.Parallel()
	r := setup(t)
	waiting := r.submit().start()
	url := "/testrouter/control?action=retry&id=" + waiting.id.String()
	if got := r.get(url).json(t); got["success"] != true || got["took_effect"] != false || got["state"] != "running" {
		t.Errorf("a running one: %v", got)
	}
	must(t, r.owner.Move(waiting.id, statefs.Running, statefs.FailedManual))
	for _, method := range []string{"GET", "POST"} {
		a := r.do(method, url, "")
		if want := "Retry requested for operation '" + waiting.id.String() + "'"; a.status != 200 ||
			a.json(t)["message"] != want {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
		must(t, r.owner.RemoveName(statefs.RequestName(waiting.id, statefs.Retry)))
	}
	done := r.submit().start()
	done.finish()
	r.problem(r.get("/testrouter/control?action=retry&id="+done.id.String()), 404,
		"Operation '"+done.id.String()+"' not found or already finished: it is already completed; POST /api/v1/operations/"+done.id.String()+"/retry repeats a finished operation as a new one")
}

// A retry of an ended operation takes effect with the new operation: its wait does not last until the new one has
// ended.
func TestRetryOfEndedOperationWaitsForNothing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.submit()
	rec, err := r.tree.ReadRecord(old.id)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
	rec.Result = statefs.CancelledResult
	must(t, r.owner.WriteEnd(rec))
	must(t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
	r.problem(r.do("POST", old.path("/retry?wait=long"), ""), http.StatusBadRequest, "Invalid parameter 'wait'")
	a := r.do("POST", old.path("/retry?wait=10m"), "") // no daemon starts the new one
	if got := a.json(t); a.status != http.StatusCreated || got["state"] != "queued" || got["retry_of"] != old.id.String() {
		t.Errorf("%d %v", a.status, got)
	}
}

// A retry of an ended operation uses the current definition of its job, and is refused where that is impossible.
func TestRetryAfterTheJobHasChanged(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for want, change := range map[string]func(*statefs.Record){
		"cannot be retried: there is no job testrouter/gone any more":                                                     func(rec *statefs.Record) { rec.Job = "gone" },
		"cannot be retried with the current definition of its job: parameter 'files': 5000 is more than the maximum 1000": func(rec *statefs.Record) { rec.Params = []byte(`{"files":5000}`) },
		"cannot be retried with the current definition of its job: unknown parameter 'pages'":                             func(rec *statefs.Record) { rec.Params = []byte(`{"pages":1}`) },
	} {
		old := r.submit()
		rec, err := r.tree.ReadRecord(old.id)
		must(t, err)
		change(rec)
		must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, rec.CreatedAt))
		rec.Result = statefs.CancelledResult
		must(t, r.owner.WriteEnd(rec))
		must(t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
		r.problem(r.do("POST", old.path("/retry"), ""), http.StatusConflict, want)
	}
}
