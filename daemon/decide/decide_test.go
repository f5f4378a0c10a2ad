package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/queue"
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
		want  Marker
	}{
		{running, nil, Missing},
		{running, []statefs.State{running}, Kept},
		{running, []statefs.State{running, paused}, Extra},
		{running, []statefs.State{paused}, Moved},
		{running, []statefs.State{paused, queued}, Moving},
	} {
		if got := Markers(c.state, c.seen); got != c.want {
			t.Errorf("%s, seen %v: %d, want %d", c.state, c.seen, got, c.want)
		}
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	const queued, running, paused, trailing = statefs.Queued, statefs.Running, statefs.Paused, statefs.Trailing
	const submit, priority, none = queue.BySubmit, queue.ByPriority, queue.AnyOrder
	for _, c := range []struct {
		name   string
		of     Operation
		now    Standing
		shares bool
		key    string
		order  queue.KeyOrder
		want   Standing
	}{
		{"running", Operation{State: running, Working: true}, Waiting, false, "", submit, Holding},
		{"ended", Operation{State: running, Ended: true}, Holding, false, "k", submit, Outside},
		{"queued, for a start", Operation{State: queued}, Waiting, false, "", submit, Waiting},
		{"admitted", Operation{State: queued}, Holding, false, "", submit, Holding},
		{"queued, for its parents", Operation{State: queued}, Outside, false, "", submit, Outside},
		{"queued, for its parents, with a key", Operation{State: queued}, Outside, false, "k", submit, KeepsTurn},
		{"queued, for its parents, in any order", Operation{State: queued}, KeepsTurn, false, "k", none, Outside},
		{"queued, for its parents, by priority", Operation{State: queued}, Outside, false, "k", priority, Outside},
		{"queued, and it has kept its turn", Operation{State: queued}, KeepsTurn, false, "k", priority, KeepsTurn},
		{"queued, its run is not over", Operation{State: queued, Working: true}, Outside, false, "", submit, Holding},
		{"paused with work", Operation{State: paused, Working: true}, Holding, false, "", submit, Holding},
		{"paused without work", Operation{State: paused}, Holding, false, "", submit, Outside},
		{"paused without work, with a key", Operation{State: paused}, Holding, false, "k", priority, KeepsTurn},
		{"trailing", Operation{State: trailing}, Holding, false, "k", submit, Outside},
		{"trailing, a step uses its places", Operation{State: trailing}, Outside, true, "", submit, Holding},
	} {
		if got := StandingOf(c.of, c.now, c.shares, c.key, c.order); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestLostMarkers(t *testing.T) {
	t.Parallel()
	removed, renamed, under := Lost{}, Lost{Renamed: "x.bak"}, Lost{Under: "y.queued"}
	for _, c := range []struct {
		name  string
		lost  []Lost
		found int
		want  []Effect
	}{
		{"one of several", []Lost{removed}, 2, []Effect{Cancel}},
		{"some of several", []Lost{removed, removed}, 1, []Effect{Cancel, Cancel}},
		{"the only one", []Lost{removed}, 0, []Effect{Cancel}},
		{"all of several", []Lost{removed, removed}, 0, []Effect{Restore, Restore}},
		{"all, one of them renamed", []Lost{removed, renamed}, 0, []Effect{Cancel, Undo}},
		{"over another one", []Lost{under, removed}, 1, []Effect{Restore, Cancel}},
		{"none", nil, 0, []Effect{}},
	} {
		if got := LostMarkers(c.lost, c.found); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
