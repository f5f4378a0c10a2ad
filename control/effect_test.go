package control

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// asking is a request that a client waits for, in the hands of the daemon that the test plays.
type asking struct {
	*work
	ask     statefs.Ask
	answers chan reply
	taken   statefs.Taken
}

// await sends a request that waits, and takes it as the daemon does.
func (w *work) await(ask statefs.Ask, query, body string) *asking {
	w.rig.t.Helper()
	a := &asking{work: w, ask: ask, answers: make(chan reply, 1)}
	go func() { a.answers <- w.rig.do("POST", w.path("/"+string(ask)+"?wait=5m"+query), body) }()
	w.rig.until("the request is there", func() bool { return w.rig.tree.Requested(w.id, ask) })
	a.take()
	return a
}

func (a *asking) take() {
	a.rig.t.Helper()
	var ok bool
	var err error
	a.taken, ok, err = a.rig.owner.Take(a.id, a.ask)
	must(a.rig.t, err)
	if !ok {
		a.rig.t.Fatal("the request is gone")
	}
}

// unanswered fails the test when the client was answered already, after another one has been.
func (a *asking) unanswered(when string) {
	a.rig.t.Helper()
	for range 3 {
		a.rig.get(a.path(""))
	}
	select {
	case got := <-a.answers:
		a.rig.t.Fatalf("%s is answered %s: %s", a.ask, when, got.body)
	default:
	}
}

// drop says that the effect of the request is durable, or that there is none, and checks the answer.
func (a *asking) drop(state statefs.State, effect bool) {
	a.rig.t.Helper()
	must(a.rig.t, a.rig.owner.Drop(a.taken))
	a.answered(state, effect)
}

func (a *asking) answered(state statefs.State, effect bool) {
	a.rig.t.Helper()
	got := <-a.answers
	if out := got.json(a.rig.t); got.status != 200 || out["state"] != string(state) || out["took_effect"] != effect || out["success"] != true {
		a.rig.t.Errorf("%s: %d %s, want %s, %t", a.ask, got.status, got.body, state, effect)
	}
}

// goes makes a transition: in the record and, unless it has ended, by its marker.
func (w *work) goes(from statefs.State, causes ...statefs.Cause) statefs.State {
	w.rig.t.Helper()
	at := from
	w.change(func(rec *statefs.Record) {
		for _, cause := range causes {
			must(w.rig.t, rec.Apply(at, cause, time.Now()))
			at = rec.Status
		}
	})
	if at.Live() && at != from {
		must(w.rig.t, w.rig.owner.Move(w.id, from, at))
	} else if !at.Live() {
		must(w.rig.t, w.rig.owner.RemoveMarker(w.id, from))
	}
	return at
}

func (a *asking) acts() {
	a.rig.t.Helper()
	a.change(func(rec *statefs.Record) { rec.Acts = append(rec.Acts, steps.Act{Ask: string(a.ask), At: time.Now()}) })
}

// A client is answered when the effect is durable, not when the marker shows it, and not when the operation has changed for another reason.
func TestEffects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()

	a := w.await(statefs.Pause, "", "")
	w.goes(statefs.Queued, statefs.CausePause)
	a.unanswered("before the pause is durable")
	a.drop(statefs.Paused, true)

	a = w.await(statefs.Resume, "", "")
	w.goes(statefs.Paused, statefs.CauseRelease)
	a.unanswered("before the resume is durable")
	a.drop(statefs.Queued, true)

	a = w.await(statefs.Pause, "", "")
	w.goes(statefs.Queued, statefs.CausePause, statefs.CauseRelease) // somebody resumes it before anybody looks
	a.drop(statefs.Queued, false)

	a = w.await(statefs.Prioritize, "&priority=7", "")
	w.change(func(rec *statefs.Record) { rec.Priority = 7 })
	a.unanswered("before the priority is durable")
	a.drop(statefs.Queued, true)
	a = w.await(statefs.Prioritize, "", "") // it is the first already
	a.drop(statefs.Queued, true)
	a = w.await(statefs.Prioritize, "&priority=8", "")
	w.goes(statefs.Queued, statefs.CauseStart) // too late
	a.drop(statefs.Running, false)

	a = w.await(statefs.Cancel, "", "")
	a.unanswered("before the work has ended")
	must(t, r.owner.Drop(a.taken))
	a.unanswered("before the work has ended, and its marker is gone")
	w.goes(statefs.Running, statefs.CauseCancel)
	a.answered(statefs.Cancelled, true)
}

func TestEffectsThatAreNone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	w.goes(statefs.Queued, statefs.CauseStart)
	w.goes(statefs.Running, statefs.CauseRetryLater)
	a := w.await(statefs.Retry, "", "")
	w.goes(statefs.FailedRetryable, statefs.CauseDue) // its time has come, whoever asks
	a.drop(statefs.Queued, false)

	w.goes(statefs.Queued, statefs.CauseStart)
	w.goes(statefs.Running, statefs.CauseRetryLater)
	a = w.await(statefs.Retry, "", "")
	w.goes(statefs.FailedRetryable, statefs.CauseRetry, statefs.CauseStart, statefs.CauseRetryLater) // and it fails again at once
	a.drop(statefs.FailedRetryable, true)

	a = w.await(statefs.Pause, "", "")
	w.goes(statefs.FailedRetryable, statefs.CauseExpired)
	a.answered(statefs.Failed, false)

	gate := r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Approve, "", "{}")
	a.drop(statefs.WaitingApproval, false) // the daemon refuses it
	gate.goes(statefs.WaitingApproval, statefs.CauseCancel)
}

// A reject has taken effect when the operation has ended: the record says before that it was made.
func TestEffectsOfActs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	gate := r.film(statefs.WaitingApproval, atPublish)
	a := gate.await(statefs.Reject, "", "{}")
	a.acts()
	a.unanswered("before the operation has ended")
	gate.goes(statefs.WaitingApproval, statefs.CauseReject)
	a.answered(statefs.Failed, true)

	gate = r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Approve, "", "{}")
	a.acts()
	a.unanswered("before the marker says so")
	gate.goes(statefs.WaitingApproval, statefs.CauseApprove)
	// A daemon that begins carries out again what the last one had in hand.
	_, err := r.owner.Untake()
	must(t, err)
	a.unanswered("before the next daemon has looked")
	a.take()
	a.drop(statefs.Queued, true)

	gate = r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Reject, "", "{}")
	gate.goes(statefs.WaitingApproval, statefs.CauseApprove) // somebody else was first
	a.drop(statefs.Queued, false)
}

// What can be waited for says what it is, in the documentation too.
func TestEffectsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/http.md")
	must(t, err)
	for _, ask := range statefs.Asks() {
		e, ok := effects[ask]
		if !ok || e.what == "" || e.shows == nil {
			t.Errorf("nobody says what counts as the effect of %s", ask)
		}
		if row := fmt.Sprintf("| `%s` | %s |", ask, e.what); !strings.Contains(string(page), row) {
			t.Errorf("docs/http.md does not have the row\n%s", row)
		}
	}
}

// A wait is taken by all that changes an operation, and refused where it is no time.
func TestEveryActTakesAWait(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.finish()
	if a := r.do("POST", w.path("/pin?wait=5s"), ""); a.status != 200 || a.json(t)["pinned"] != true {
		t.Errorf("pin: %d %s", a.status, a.body)
	}
	live := r.film(statefs.FailedManual, atSplit)
	for _, act := range []string{"pause", "resume", "cancel", "retry", "skip", "set", "approve", "reject", "prioritize", "pin"} {
		r.problem(r.do("POST", live.path("/"+act+"?wait=soon"), ""), 400, "Invalid parameter 'wait': 'soon' must be a duration such as 5s, at most 10m0s")
	}
	if listing, err := r.tree.List(); err != nil || len(listing.Requests) > 0 {
		t.Errorf("requests were written: %v", errors.Join(err, fmt.Errorf("%v", listing.Requests)))
	}
}
