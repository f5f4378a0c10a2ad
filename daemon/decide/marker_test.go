package decide

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func TestResumeCause(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	later, earlier := now.Add(time.Hour), now.Add(-time.Hour)
	for _, c := range []struct {
		name   string
		due    *time.Time
		starts int
		want   statefs.Cause
	}{
		{"no time", nil, 1, statefs.CauseRelease},
		{"its time has come", &earlier, 0, statefs.CauseRelease},
		{"scheduled", &later, 0, statefs.CauseNotYet},
		{"between two attempts", &later, 1, statefs.CauseRetryLater},
	} {
		if got := ResumeCause(&statefs.Record{DueAt: c.due, Starts: c.starts}, now); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMarkers(t *testing.T) {
	t.Parallel()
	const queued, running, paused = statefs.Queued, statefs.Running, statefs.Paused
	for _, c := range []struct {
		state statefs.State
		seen  []statefs.State
		want  Effect
	}{
		{running, nil, Confirm},
		{running, []statefs.State{running}, None},
		{running, []statefs.State{running, paused}, RemoveExtra},
		{running, []statefs.State{paused}, AcceptStop},
		{running, []statefs.State{paused, queued}, ObserveAgain},
	} {
		if got := Decide(Snapshot{State: c.state, Working: true}, MarkersSeen{c.seen}, Env{}).Effect; got != c.want {
			t.Errorf("%s, seen %v: %s, want %s", c.state, c.seen, got, c.want)
		}
	}
}

func TestLostMarkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		found Place
		e     Env
		want  Effect
	}{
		{"one of several", Nowhere, Env{Markers: 2, Lost: 1}, Cancel},
		{"some of several", Nowhere, Env{Markers: 1, Lost: 2}, Cancel},
		{"the only one", Nowhere, Env{Lost: 1}, Cancel},
		{"all of several", Nowhere, Env{Lost: 2}, Restore},
		{"all, another one renamed", Nowhere, Env{Lost: 2, Misnamed: 1}, Cancel},
		{"renamed", Misnamed, Env{Lost: 2, Misnamed: 1}, PutBack},
		{"over another one", Misplaced, Env{Markers: 1, Lost: 2}, Restore},
	} {
		if got := Decide(Snapshot{State: statefs.Queued}, MarkerLost{c.found}, c.e).Effect; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMove(t *testing.T) {
	t.Parallel()
	waits := func(state statefs.State) Snapshot { return Snapshot{State: state, Resume: statefs.CauseRelease} }
	works := func(state statefs.State) Snapshot { return Snapshot{State: state, Working: true} }
	notYet := Snapshot{State: statefs.Paused, Resume: statefs.CauseNotYet}
	for _, c := range []struct {
		name string
		of   Snapshot
		to   statefs.State
		want Answer
	}{
		{"work is paused", works(statefs.Running), statefs.Paused, answer(AcceptStop, statefs.CausePause)},
		{"a queued one is paused", waits(statefs.Queued), statefs.Paused, answer(Accept, statefs.CausePause)},
		{"work goes on", works(statefs.Paused), statefs.Running, answer(Accept, statefs.CauseResume)},
		{"no work to go on", waits(statefs.Paused), statefs.Running, answer(AcceptStart, statefs.CauseResume)},
		{"it is not due", notYet, statefs.Running, answer(WaitAgain, statefs.CauseNotYet)},
		{"it may start, though not due", notYet, statefs.Queued, answer(Accept, statefs.CauseRelease)},
		{"work is not queued", works(statefs.Paused), statefs.Queued, do(Undo)},
		{"it is due now", waits(statefs.Scheduled), statefs.Queued, by(Accept, statefs.CauseDue)},
		{"no request", waits(statefs.Queued), statefs.Running, do(Undo)},
	} {
		if got := Decide(c.of, MarkersSeen{[]statefs.State{c.to}}, Env{}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Every rename by a person that means something leads along a transition, and all others are undone.
func TestMovesAreTransitions(t *testing.T) {
	t.Parallel()
	for _, from := range statefs.LiveStates() {
		for _, to := range statefs.LiveStates() {
			for _, o := range []Snapshot{{State: from, Resume: statefs.CauseRelease}, {State: from, Working: true}} {
				move := Decide(o, MarkersSeen{[]statefs.State{to}}, Env{})
				if from == to || move.Effect == Undo {
					continue
				}
				if row, err := statefs.TransitionFrom(from, move.Cause); err != nil || row.To != to {
					t.Errorf("%s to %s: %+v leads to %s, %v", from, to, move, row.To, err)
				}
			}
		}
	}
}
