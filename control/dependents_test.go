package control

import (
	"net/http"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A client that waits for the end of an operation is answered when the operation waits for a person.
func TestWaitEndsWhenAttentionIsNeeded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	submitted := make(chan reply, 1)
	go func() { submitted <- r.do("POST", "/testrouter/streaming01?wait=10m", "") }()
	w := r.next().start()
	asked := make(chan reply, 2)
	go func() { asked <- r.do("GET", w.path("?wait=10m"), "") }()
	go func() { asked <- r.do("GET", w.path(""), "", "Prefer: wait=600") }()
	must(t, r.owner.Move(w.id, statefs.Running, statefs.FailedManual))
	for _, a := range []reply{<-submitted, <-asked, <-asked} {
		if got := a.json(t); got["state"] != "failed_manual" {
			t.Errorf("%d: state %v", a.status, got["state"])
		}
	}
	if a := r.do("GET", w.path("?wait=10m"), ""); a.json(t)["state"] != "failed_manual" {
		t.Errorf("asked afterwards: %d %s", a.status, a.body)
	}
	must(t, r.owner.Move(w.id, statefs.FailedManual, statefs.Running))
	go func() { asked <- r.do("GET", w.path(""), "", "Prefer: wait=600, respond-async") }()
	w.finish()
	if a := <-asked; a.json(t)["state"] != "completed" || a.header.Get("Preference-Applied") != "wait=600, respond-async" {
		t.Errorf("at the end: %d %s, %q", a.status, a.body, a.header.Get("Preference-Applied"))
	}
	r.problem(r.do("GET", w.path("?wait=soon"), ""), http.StatusBadRequest, "Invalid parameter 'wait'")
	r.problem(r.do("GET", w.path("?await=5s"), ""), http.StatusBadRequest, "await")
}

// A client that waits until an operation runs is answered when it runs, or when it ends without running.
func TestWaitingUntilItRuns(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w, gone := r.submit(), r.submit()
	asked := make(chan reply, 1)
	wait := func(w *work) { asked <- r.do("GET", w.path("?wait=10m&for=running"), "") }
	go wait(w)
	w.start()
	if a := <-asked; a.json(t)["state"] != "running" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.do("GET", w.path("?wait=10m&for=running"), ""); a.json(t)["state"] != "running" {
		t.Errorf("asked afterwards: %d %s", a.status, a.body)
	}
	must(t, r.owner.Move(gone.id, statefs.Queued, statefs.FailedManual))
	if wait(gone); (<-asked).json(t)["state"] != "failed_manual" {
		t.Error("it waits for a person, and so does who waits for it")
	}
	go func() { asked <- r.do("GET", w.path("?wait=10m&for=end"), "") }()
	w.finish()
	if a := <-asked; a.json(t)["state"] != "completed" {
		t.Errorf("at the end: %d %s", a.status, a.body)
	}
	r.problem(r.do("GET", w.path("?wait=1s&for=ever"), ""), http.StatusBadRequest,
		"Invalid parameter 'for': 'ever' must be end or running")
}

// The answer to a wait names a direct or indirect dependency that needs a person.
func TestWaitEndsWhenADependencyNeedsAttention(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first := r.submit().start()
	after := func(w *work) *work {
		return r.take(r.do("POST", "/testrouter/streaming01?require=end&after="+w.id.String(),
			"").header.Get(operationHeader))
	}
	last := after(after(first))
	asked, footers := make(chan reply, 1), make(chan reply, 1)
	go func() { asked <- r.do("GET", last.path("?wait=10m"), "") }()
	go func() { footers <- r.get(last.path("/stream?format=json")) }()
	must(t, r.owner.Move(first.id, statefs.Running, statefs.FailedManual))
	for _, a := range []reply{<-asked, <-footers} {
		got := a.json(t)
		if why, ok := got["waiting"].(map[string]any); !ok || got["state"] != "queued" || why["reason"] != "after" ||
			why["needs_person"] != first.id.String() {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	must(t, r.owner.Move(first.id, statefs.FailedManual, statefs.Running))
	go func() { asked <- r.do("GET", last.path("?wait=10m"), "") }()
	first.finish()
	must(t, r.owner.Move(last.id, statefs.Queued, statefs.FailedManual))
	if got := (<-asked).json(t); got["state"] != "failed_manual" || got["waiting"] != nil {
		t.Errorf("%v", got)
	}
}

// A request for the footer is answered without it when a person has to act first, or when its wait is over.
func TestNoFooterBeforeAPersonActs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	answers := make(chan reply, 2)
	go func() { answers <- r.get("/testrouter/streaming01?files=2&format=json") }()
	w := r.next().start()
	if a := r.get(w.path("/stream?format=json"), "Prefer: wait=1"); a.status != http.StatusAccepted ||
		a.header.Get("Preference-Applied") != "wait=1" ||
		a.json(t)["state"] != "running" || !strings.Contains(a.body, "has not ended: it is running") {
		t.Errorf("the time is over: %d %s", a.status, a.body)
	}
	go func() { answers <- r.get(w.path("/stream?format=json")) }()
	rec, err := r.tree.ReadRecord(w.id)
	must(t, err)
	rec.Reason, rec.Error = "exit", &statefs.Fault{Code: "exit_code", Message: "exit code 77"}
	must(t, r.owner.WriteRecord(rec))
	must(t, r.owner.Move(w.id, statefs.Running, statefs.FailedManual))
	for _, a := range []reply{<-answers, <-answers} {
		got := a.json(t)
		if a.status != http.StatusAccepted || got["state"] != "failed_manual" || got["reason"] != "exit" ||
			got["result"] != nil || a.header.Get("Location") != w.path("") {
			t.Errorf("%d %s", a.status, a.body)
		}
		want := "operation " + w.id.String() + " waits for a person: exit code 77; when that is mended, 'jobdir retry " +
			w.id.String() + "' goes on"
		if message, ok := got["message"].(string); !ok || !strings.HasPrefix(message, want) {
			t.Errorf("message %v, want %s", got["message"], want)
		}
	}
}
