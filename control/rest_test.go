package control

import (
	"net/http"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// Whoever waits for the end of an operation is answered when it waits for a person, who may not come for days.
func TestWaitingEndsWithThePerson(t *testing.T) {
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
