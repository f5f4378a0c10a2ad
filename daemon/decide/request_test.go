package decide

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

var update = flag.Bool("update", false, "write testdata anew")

// situations are the columns of the table of requests.
var situations = []struct {
	name string
	set  func(*Operation)
}{
	{"without work", func(*Operation) {}},
	{"not due", func(o *Operation) { o.Resume = statefs.CauseRetryLater }},
	{"with work", func(o *Operation) { o.Working = true }},
	{"pausing", func(o *Operation) { o.Working, o.Pausing = true, true }},
	{"being cancelled", func(o *Operation) { o.Working, o.Ending = true, statefs.Cancel }},
	{"being killed", func(o *Operation) { o.Working, o.Ending = true, statefs.ForceCancel }},
	{"ended", func(o *Operation) { o.Ended = true }},
}

// The table in testdata has what each request does in each state. It is written by
// go test ./daemon/decide -run Requests -update.
func TestRequestsTable(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	cell := func(text string) { fmt.Fprintf(&table, "%-20s", text) }
	for _, action := range statefs.Actions() {
		if action.Spec().NeedsSteps {
			continue // package acts decides
		}
		cell(string(action))
		for _, s := range situations {
			cell(s.name)
		}
		table.WriteString("\n")
		for _, state := range statefs.LiveStates() {
			cell("  " + string(state))
			for _, s := range situations {
				o := Operation{State: state, Resume: statefs.CauseRelease}
				s.set(&o)
				a := RequestOf(o, action, false)
				switch to, err := statefs.Next(state, a.Cause); {
				case a.Effect == None:
					cell("-")
				case a.Effect == Transition && err != nil:
					t.Errorf("%s of what is %s, %s: %v", action, state, s.name, err)
				case a.Effect == Transition:
					cell("to " + string(to))
				default:
					cell(string(a.Effect))
				}
			}
			table.WriteString("\n")
		}
	}
	var lines []string
	for line := range strings.Lines(table.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	got := strings.Join(lines, "\n") + "\n"
	const file = "testdata/requests.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the requests do something else than %s says; the table is now\n%s", file, got)
	}
}

// A request that was made before the operation entered its state, or that the record has already, starts nothing twice.
func TestStaleRequest(t *testing.T) {
	t.Parallel()
	waits := Operation{State: statefs.FailedManual}
	steps := Operation{State: statefs.FailedManual, HasSteps: true}
	for _, c := range []struct {
		name   string
		of     Operation
		action statefs.Action
		stale  bool
		want   Effect
	}{
		{"retry", waits, statefs.Retry, false, Retry},
		{"stale retry", waits, statefs.Retry, true, None},
		{"stale cancel", waits, statefs.Cancel, true, EndWork},
		{"retry of a step", steps, statefs.Retry, false, Step},
		{"stale retry of a step", steps, statefs.Retry, true, None},
		{"stale skip", steps, statefs.Skip, true, None},
		{"skip without steps", waits, statefs.Skip, false, None},
	} {
		if got := RequestOf(c.of, c.action, c.stale).Effect; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMove(t *testing.T) {
	t.Parallel()
	waits := func(state statefs.State) Operation { return Operation{State: state, Resume: statefs.CauseRelease} }
	works := func(state statefs.State) Operation { return Operation{State: state, Working: true} }
	notYet := Operation{State: statefs.Paused, Resume: statefs.CauseNotYet}
	const pausing, resuming = "  Pause requested, pausing...", "  Resume requested, resuming..."
	const again = "  Resume requested, waiting for its time again..."
	for _, c := range []struct {
		name string
		of   Operation
		to   statefs.State
		want Answer
	}{
		{"work is paused", works(statefs.Running), statefs.Paused, Answer{StopWork, statefs.CausePause, pausing}},
		{"a queued one is paused", waits(statefs.Queued), statefs.Paused, Answer{Transition, statefs.CausePause, pausing}},
		{"work goes on", works(statefs.Paused), statefs.Running, Answer{Transition, statefs.CauseResume, resuming}},
		{"no work to go on", waits(statefs.Paused), statefs.Running, Answer{Start, statefs.CauseResume, resuming}},
		{"it is not due", notYet, statefs.Running, Answer{WaitAgain, statefs.CauseNotYet, again}},
		{"it may start, though not due", notYet, statefs.Queued, Answer{Transition, statefs.CauseRelease, resuming}},
		{"work is not queued", works(statefs.Paused), statefs.Queued, Answer{Effect: Undo}},
		{"it is due now", waits(statefs.Scheduled), statefs.Queued, Answer{Transition, statefs.CauseDue, ""}},
		{"no request", waits(statefs.Queued), statefs.Running, Answer{Effect: Undo}},
	} {
		if got := MoveOf(c.of, c.to); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Every rename by a person that means something leads along a transition, and all others are undone.
func TestMovesAreTransitions(t *testing.T) {
	t.Parallel()
	for _, from := range statefs.LiveStates() {
		for _, to := range statefs.LiveStates() {
			for _, o := range []Operation{{State: from, Resume: statefs.CauseRelease}, {State: from, Working: true}} {
				move := MoveOf(o, to)
				if move.Effect == Undo {
					continue
				}
				if row, err := statefs.TransitionFrom(from, move.Cause); err != nil || row.To != to {
					t.Errorf("%s to %s: %+v leads to %s, %v", from, to, move, row.To, err)
				}
			}
		}
	}
}
