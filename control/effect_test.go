package control

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// pendingAction is a request that a client waits for, and that the test carries out as the daemon.
type pendingAction struct {
	*work
	action  statefs.Action
	answers chan reply
	taken   statefs.TakenRequest
}

// await sends a request with a wait, and takes it as the daemon does.
func (w *work) await(ask statefs.Action, query, body string) *pendingAction {
	w.rig.t.Helper()
	a := &pendingAction{work: w, action: ask, answers: make(chan reply, 1)}
	go func() { a.answers <- w.rig.do("POST", w.path("/"+string(ask)+"?wait=5m"+query), body) }()
	w.rig.until("the request is there", func() bool { return w.rig.tree.Requested(w.id, ask) })
	a.take()
	return a
}

func (a *pendingAction) take() {
	a.rig.t.Helper()
	var ok bool
	var err error
	a.taken, ok, err = a.rig.owner.Requests.Take(a.id, a.action)
	must(a.rig.t, err)
	if !ok {
		a.rig.t.Fatal("the request is gone")
	}
}

// wantPending fails the test if the client is answered before three later requests are.
func (a *pendingAction) wantPending(when string) {
	a.rig.t.Helper()
	for range 3 {
		a.rig.get(a.path(""))
	}
	select {
	case got := <-a.answers:
		a.rig.t.Fatalf("%s is answered %s: %s", a.action, when, got.body)
	default:
	}
}

// drop marks the request as carried out, with or without an effect, and checks the answer.
func (a *pendingAction) drop(state statefs.State, effect bool) {
	a.rig.t.Helper()
	must(a.rig.t, a.rig.owner.Requests.Drop(a.taken))
	a.wantAnswer(state, effect)
}

func (a *pendingAction) wantAnswer(state statefs.State, effect bool) {
	a.rig.t.Helper()
	got := <-a.answers
	if out := got.json(a.rig.t); got.status != 200 || out["state"] != string(state) || out["took_effect"] != effect ||
		out["success"] != true {
		a.rig.t.Errorf("%s: %d %s, want %s, %t", a.action, got.status, got.body, state, effect)
	}
}

// goes makes a transition: in the record and, unless it is the end, of the marker.
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

func (a *pendingAction) recordAction() {
	a.rig.t.Helper()
	a.change(func(rec *statefs.Record) {
		rec.ActionRecords = append(rec.ActionRecords, steps.ActionRecord{Action: string(a.action), At: time.Now()})
	})
}

// A client is answered when the effect is durable, not when the marker shows it, and not after a change with another
// cause.
func TestEffects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()

	a := w.await(statefs.Pause, "", "")
	w.goes(statefs.Queued, statefs.CausePause)
	a.wantPending("before the pause is durable")
	a.drop(statefs.Paused, true)

	a = w.await(statefs.Resume, "", "")
	w.goes(statefs.Paused, statefs.CauseRelease)
	a.wantPending("before the resume is durable")
	a.drop(statefs.Queued, true)

	a = w.await(statefs.Pause, "", "")
	w.goes(statefs.Queued, statefs.CausePause, statefs.CauseRelease) // resumed before the server observes the pause
	a.drop(statefs.Queued, false)

	a = w.await(statefs.Prioritize, "&priority=7", "")
	w.change(func(rec *statefs.Record) { rec.Priority = 7 })
	a.wantPending("before the priority is durable")
	a.drop(statefs.Queued, true)
	a = w.await(statefs.Prioritize, "", "") // already the first
	a.drop(statefs.Queued, true)
	a = w.await(statefs.Prioritize, "&priority=8", "")
	w.goes(statefs.Queued, statefs.CauseStart) // too late
	a.drop(statefs.Running, false)

	a = w.await(statefs.Cancel, "", "")
	a.wantPending("before the work has ended")
	must(t, r.owner.Requests.Drop(a.taken))
	a.wantPending("before the work has ended, and its marker is gone")
	w.goes(statefs.Running, statefs.CauseCancel)
	a.wantAnswer(statefs.Cancelled, true)
}

func TestOtherTransitionsAreNoEffect(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit()
	w.goes(statefs.Queued, statefs.CauseStart)
	w.goes(statefs.Running, statefs.CauseRetryLater)
	a := w.await(statefs.Retry, "", "")
	w.goes(statefs.FailedRetryable, statefs.CauseDue) // by its deadline, not by the request
	a.drop(statefs.Queued, false)

	w.goes(statefs.Queued, statefs.CauseStart)
	w.goes(statefs.Running, statefs.CauseRetryLater)
	a = w.await(statefs.Retry, "", "")
	// and fails again at once
	w.goes(statefs.FailedRetryable, statefs.CauseRetry, statefs.CauseStart, statefs.CauseRetryLater)
	a.drop(statefs.FailedRetryable, true)

	a = w.await(statefs.Pause, "", "")
	w.goes(statefs.FailedRetryable, statefs.CauseExpired)
	a.wantAnswer(statefs.Failed, false)

	gate := r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Approve, "", "{}")
	a.drop(statefs.WaitingApproval, false) // the daemon refuses it
	gate.goes(statefs.WaitingApproval, statefs.CauseCancel)
}

// A reject has taken effect when the operation has ended; the record contains the action earlier.
func TestStepActionEffects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	gate := r.film(statefs.WaitingApproval, atPublish)
	a := gate.await(statefs.Reject, "", "{}")
	a.recordAction()
	a.wantPending("before the operation has ended")
	gate.goes(statefs.WaitingApproval, statefs.CauseReject)
	a.wantAnswer(statefs.Failed, true)

	gate = r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Approve, "", "{}")
	a.recordAction()
	a.wantPending("before the marker says so")
	gate.goes(statefs.WaitingApproval, statefs.CauseApprove)
	// A starting daemon repeats requests that its predecessor had taken.
	_, err := r.owner.Requests.Restore()
	must(t, err)
	a.wantPending("before the next daemon has looked")
	a.take()
	a.drop(statefs.Queued, true)

	gate = r.film(statefs.WaitingApproval, atPublish)
	a = gate.await(statefs.Reject, "", "{}")
	gate.goes(statefs.WaitingApproval, statefs.CauseApprove) // by an earlier approve
	a.drop(statefs.Queued, false)
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
