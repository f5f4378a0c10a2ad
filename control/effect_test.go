package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A client that waits is answered with the outcome that the daemon has, and not before.
func TestRequestsAreAnsweredByTheirOutcome(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	answers := make(chan reply, 1)
	await := func(ask statefs.Action, query string) {
		t.Helper()
		go func() { answers <- r.do("POST", w.path("/"+string(ask)+"?"+query), "") }()
		r.until("the request is there", func() bool { return r.tree.Requested(w.id, ask) })
		_, ok, err := r.owner.Requests.Take(w.id, ask)
		must(t, err)
		if !ok {
			t.Fatal("the request is gone")
		}
	}
	want := func(status int, state statefs.State, effective, pending bool) {
		t.Helper()
		a := <-answers
		out := a.json(t)
		isPending, _ := out["pending"].(bool)
		if a.status != status || out["state"] != string(state) || out["took_effect"] != effective || isPending != pending {
			t.Errorf("%d %s, want %d %s, %t", a.status, a.body, status, state, effective)
		}
	}
	await(statefs.Pause, "wait=5m")
	for range 3 {
		r.get(w.path(""))
	}
	select {
	case got := <-answers:
		t.Fatalf("answered before the outcome: %s", got.body)
	default:
	}
	w.settle(statefs.Paused, true)
	want(200, statefs.Paused, true, false)
	await(statefs.Prioritize, "wait=5m&priority=7")
	w.settle(statefs.Queued, false)
	want(200, statefs.Queued, false, false)
	await(statefs.Cancel, "wait=1ms")
	want(202, statefs.Queued, false, true)

	r.played.mu.Lock()
	r.played.undurable = statefs.ForceCancel
	r.played.mu.Unlock()
	a := r.do("POST", w.path("/cancel?wait=1ms&force=true"), "")
	out := a.json(t)
	message, _ := out["message"].(string)
	if a.status != 200 || out["took_effect"] != true || out["durable"] != false || out["pending"] != nil ||
		!strings.HasSuffix(message, ": its work has ended, and the daemon could not make that durable yet") {
		t.Errorf("on a full disk: %d %s", a.status, a.body)
	}
}

// Every change of an operation accepts wait, and refuses an invalid one.
func TestEveryActionTakesWait(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.finish()
	if a := r.do("POST", w.path("/pin?wait=5s"), ""); a.status != 200 || a.json(t)["pinned"] != true {
		t.Errorf("pin: %d %s", a.status, a.body)
	}
	live := r.film(statefs.FailedManual, atSplit)
	for _, act := range []string{
		"pause", "resume", "cancel", "retry", "skip", "set", "approve", "reject",
		"prioritize", "pin",
	} {
		r.problem(r.do("POST", live.path("/"+act+"?wait=soon"), ""), 400,
			"Invalid parameter 'wait': 'soon' must be a duration such as 5s, at most 10m0s")
	}
	if listing, err := r.tree.List(); err != nil || len(listing.Requests) > 0 {
		t.Errorf("requests were written: %v", errors.Join(err, fmt.Errorf("%v", listing.Requests)))
	}
}
