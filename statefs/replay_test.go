package statefs

import (
	"slices"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/commit"
)

// history is the lines of one operation: its first state, and a transition for each further line.
type history struct {
	id    ID
	lines []change
}

// histories calls do with every history of at most some transitions.
func histories(t *testing.T, id ID, transitionsAtMost int, do func(h history)) {
	t.Helper()
	at := func(n int) time.Time { return testTime.Add(time.Duration(2*n) * time.Second) }
	var extend func(h history)
	extend = func(h history) {
		do(h)
		last := h.lines[len(h.lines)-1]
		if len(h.lines) > transitionsAtMost || last.marker() == "" {
			return
		}
		for _, row := range transitions {
			if row.From != last.Status {
				continue
			}
			next := change{
				ID: id, Status: row.To, UpdatedAt: at(len(h.lines)), journalLine: journalLine{number: last.number + 1},
				Transitions: append(slices.Clip(last.Transitions), PastTransition{From: row.From, To: row.To, Cause: row.Cause}),
			}
			extend(history{id, append(slices.Clip(h.lines), next)})
		}
	}
	for _, first := range []State{Queued, Scheduled} {
		extend(history{id, []change{{
			ID: id, Status: first, UpdatedAt: at(0), journalLine: journalLine{number: 1},
			Transitions: []PastTransition{{To: first, Cause: CauseSubmit}},
		}}})
	}
}

// TestJudgeOfEveryCrash goes through every history of four lines: each prefix that is durable, each prefix that is
// known to be in the folder, each moment that the folder may show, and whatever a person does with the marker then.
func TestJudgeOfEveryCrash(t *testing.T) {
	t.Parallel()
	id, err := MakeID("g-j", testTime, 1, 1)
	check(t, err)
	cases := 0
	histories(t, id, 3, func(h history) {
		for viewed := 0; viewed <= len(h.lines); viewed++ {
			known := make(map[ID]*replayed)
			for _, e := range h.lines {
				note(known, e, uint64(viewed))
			}
			r := known[id]
			want := r.last.marker()
			for shown := viewed; shown <= len(h.lines); shown++ {
				var folder []commit.Marker
				if shown > 0 && h.lines[shown-1].marker() != "" {
					// A marker is moved after its line and before the next one.
					folder = []commit.Marker{{
						State: string(h.lines[shown-1].marker()), Changed: h.lines[shown-1].UpdatedAt.Add(time.Second),
					}}
				}
				cases++
				got := r.judge(folder, false)
				if result(got, folder, want) != want && want != "" {
					t.Fatalf("%d lines, %d viewed, the folder is that of line %d: %s makes %q, want %q", len(h.lines), viewed, shown,
						got, result(got, folder, want), want)
				}
				if want == "" && got != commit.Leave {
					t.Fatalf("it has ended, and the answer is %s", got)
				}
				// A person acts before the next start.
				if len(folder) == 0 {
					continue
				}
				for state := range allLiveStates() {
					cases++
					moved := []commit.Marker{{State: string(state), Changed: r.last.UpdatedAt.Add(time.Hour)}}
					if got := r.judge(moved, false); got != commit.Leave {
						t.Fatalf("%d lines, %d viewed: a person moves the marker of line %d to %s, and the answer is %s",
							len(h.lines), viewed, shown, state, got)
					}
				}
				if viewed == len(h.lines) {
					if got := r.judge(nil, false); got != commit.Leave {
						t.Fatalf("a person removes the marker, and the answer is %s", got)
					}
				}
			}
		}
	})
	if cases < 40_000 {
		t.Errorf("%d cases are too few", cases)
	}
	t.Logf("%d cases", cases)
}

// allLiveStates returns the states that a marker can have.
func allLiveStates() map[State]bool {
	states := make(map[State]bool)
	for _, row := range transitions {
		states[row.From] = true
	}
	return states
}

// result is the marker that an answer leads to.
func result(answer commit.Answer, folder []commit.Marker, state State) State {
	switch answer {
	case commit.Make, commit.Rename:
		return state
	case commit.Leave:
	}
	if len(folder) == 0 {
		return ""
	}
	return State(folder[0].State)
}
