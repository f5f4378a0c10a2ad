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
	r.problem(r.do("POST", cancelled.path("/retry?failed_items=perhaps"), ""), http.StatusBadRequest, "Invalid parameter 'failed_items': must be true or false")
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
