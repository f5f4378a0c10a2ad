package statefs

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/wordtest"
)

var update = flag.Bool("update", false, "rewrite docs/states.md from the table of transitions")

// golden is the state machine of the design, written manually; any other pair is an error.
const golden = `
scheduled: due=queued expired=failed pause=paused cancel=cancelled marker_missing=cancelled record_unreadable=failed_manual
queued: start=running done=completed main_done=trailing gate=waiting_approval needs_person=failed_manual dependency=failed_manual expired=failed pause=paused cancel=cancelled marker_missing=cancelled failed=failed record_unreadable=failed_manual
running: next_step=queued expired=failed pause=paused cancel=cancelled marker_missing=cancelled interrupted=queued rescued=queued done=completed failed=failed retry_later=failed_retryable needs_person=failed_manual gate=waiting_approval main_done=trailing record_unreadable=failed_manual
paused: resume=running release=queued not_yet=scheduled retry_later=failed_retryable expired=failed cancel=cancelled marker_missing=cancelled done=completed main_done=trailing failed=failed needs_person=failed_manual record_unreadable=failed_manual
waiting_approval: approve=queued skip=queued expired=failed reject=failed cancel=cancelled marker_missing=cancelled record_unreadable=failed_manual
failed_retryable: due=queued expired=failed retry=queued skip=queued pause=paused cancel=cancelled marker_missing=cancelled record_unreadable=failed_manual
failed_manual: retry=queued skip=queued expired=failed cancel=cancelled marker_missing=cancelled
trailing: all_done=completed cancel=completed marker_missing=completed record_unreadable=failed_manual
completed:
cancelled:
failed:
`

func causes() []Cause {
	var all []Cause
	for cause := range wordtest.Meanings("transition.go") {
		all = append(all, Cause(cause))
	}
	slices.Sort(all)
	return all
}

func TestEveryPairOfStateAndCause(t *testing.T) {
	t.Parallel()
	want := make(map[string]string)
	for line := range strings.Lines(strings.TrimSpace(golden)) {
		from, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		for pair := range strings.FieldsSeq(rest) {
			cause, to, _ := strings.Cut(pair, "=")
			want[from+" "+cause] = to
		}
	}
	for _, from := range append(States(), "", "banana") {
		for _, cause := range append(causes(), "", "banana") {
			pair := fmt.Sprintf("%s %s", from, cause)
			to, err := Next(from, cause)
			if string(to) != want[pair] {
				t.Errorf("%s leads to %q, want %q", pair, to, want[pair])
			}
			refused, isRefused := errors.AsType[*TransitionError](err)
			if isRefused != (to == "") || isRefused && (refused.From != from || refused.Cause != cause) {
				t.Errorf("%s: %v", pair, err)
			}
			delete(want, pair)
		}
	}
	if len(want) > 0 {
		t.Errorf("pairs with an unknown state or cause: %v", want)
	}
}

func TestTheTableHasNoDeadEnds(t *testing.T) {
	t.Parallel()
	reached := map[State]bool{Scheduled: true, Queued: true} // by submit
	used := map[Cause]bool{CauseSubmit: true}
	seen := make(map[[2]string]bool)
	for _, row := range transitions {
		reached[row.To], used[row.Cause] = true, true
		if row.From.Terminal() || !row.From.Live() || !row.To.Live() && !row.To.Terminal() {
			t.Errorf("%+v does not lead from a live state to a state", row)
		}
		if key := [2]string{string(row.From), string(row.Cause)}; seen[key] {
			t.Errorf("two rows for %s", key)
		} else {
			seen[key] = true
		}
	}
	for _, state := range States() {
		if !reached[state] {
			t.Errorf("nothing leads to %s", state)
		}
		if state.Live() == state.Terminal() {
			t.Errorf("%s is live and terminal, or neither", state)
		}
		_, cancelErr := Next(state, CauseCancel)
		_, missingErr := Next(state, CauseMarkerMissing)
		if state.Live() != (cancelErr == nil) || state.Live() != (missingErr == nil) {
			t.Errorf("%s: cancel %v, marker missing %v", state, cancelErr, missingErr)
		}
	}
	for _, cause := range causes() {
		if !used[cause] {
			t.Errorf("nothing happens by %s", cause)
		}
	}
}

func TestApplyKeepsTheHistory(t *testing.T) {
	t.Parallel()
	rec := &Record{Status: Queued}
	check(t, rec.Apply(Queued, CauseStart, testTime))
	// The marker is the state, so from need not be the status.
	check(t, rec.Apply(Paused, CauseRelease, testTime))
	if err := rec.Apply(Completed, CauseStart, testTime); err == nil {
		t.Error("a terminal state was left")
	}
	want := []PastTransition{{Queued, Running, CauseStart, testTime}, {Paused, Queued, CauseRelease, testTime}}
	if !slices.Equal(rec.Transitions, want) || rec.Status != Queued || !rec.UpdatedAt.Equal(testTime) {
		t.Errorf("the record has %+v", rec)
	}
}

func TestHandMovesAreTransitions(t *testing.T) {
	t.Parallel()
	moves := 0
	for _, from := range States() {
		for _, to := range States() {
			cause, ok := ManualMove(from, to)
			if !ok {
				continue
			}
			moves++
			if next, err := Next(from, cause); err != nil || next != to {
				t.Errorf("mv %s %s acts as %s, which leads to %q: %v", from, to, cause, next, err)
			}
		}
	}
	if moves != 9 {
		t.Errorf("%d moves by hand mean something, want 9", moves)
	}
}

func TestEveryWordHasADescription(t *testing.T) {
	t.Parallel()
	for _, state := range States() {
		if !strings.HasSuffix(state.Description(), ".") {
			t.Errorf("state %s means %q", state, state.Description())
		}
	}
	sentences := wordtest.Meanings("transition.go")
	for _, row := range transitions {
		if meaning := sentences[string(row.Cause)]; !strings.HasSuffix(meaning, ".") {
			t.Errorf("cause %s means %q", row.Cause, meaning)
		}
	}
	if State("banana").Description() != "" {
		t.Error("a word that is none has a meaning")
	}
}

// TestStatesPage compares docs/states.md with the table from which it is generated.
func TestStatesPage(t *testing.T) {
	t.Parallel()
	const page = "../docs/states.md"
	want := statesPage()
	if *update {
		check(t, os.WriteFile(page, want, 0o600))
		check(t, os.Chmod(page, 0o644))
	}
	got, err := os.ReadFile(page)
	check(t, err)
	if !bytes.Equal(got, want) {
		t.Error("docs/states.md differs from the table of transitions: run make generate")
	}
}

func statesPage() []byte {
	sentences := wordtest.Meanings("transition.go")
	var page bytes.Buffer
	page.WriteString(`<!-- Generated from statefs/transition.go by "make generate"; do not edit. -->

# States of an operation

While an operation is live its state is the suffix of its one marker in ` + "`jobs/`" + `, and a transition is one rename of that file.
When it has ended its state is in the record, and there is no marker.

## Drawing

` + "```mermaid\nstateDiagram-v2\n    [*] --> queued: submit\n    [*] --> scheduled: submit\n")
	for _, from := range LiveStates() {
		for _, to := range States() {
			var by []string
			for _, row := range transitions {
				if row.From == from && row.To == to {
					by = append(by, string(row.Cause))
				}
			}
			if len(by) > 0 {
				fmt.Fprintf(&page, "    %s --> %s: %s\n", from, to, strings.Join(by, ", "))
			}
		}
	}
	for _, state := range terminalStates {
		fmt.Fprintf(&page, "    %s --> [*]\n", state)
	}
	page.WriteString("```\n\n## States\n\n| state | | what it means |\n|---|---|---|\n")
	for _, state := range States() {
		kind := "live"
		if state.Terminal() {
			kind = "ended"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", state, kind, state.Description())
	}
	page.WriteString("\n## Transitions\n\nAny pair of state and cause that is not here is refused and changes nothing. A crash between the two\n" +
		"writes of a transition loses nothing: the next start completes it.\n\n" +
		"| from | cause | to | written | when |\n|---|---|---|---|---|\n")
	fmt.Fprintf(&page, "| | `%s` | `%s` | record, marker | %s |\n", CauseSubmit, Queued, sentences[string(CauseSubmit)])
	fmt.Fprintf(&page, "| | `%s` | `%s` | record, marker | %s |\n", CauseSubmit, Scheduled,
		"A client submits it for a later time.")
	for _, row := range transitions {
		fmt.Fprintf(&page, "| `%s` | `%s` | `%s` | %s | %s |\n", row.From, row.Cause, row.To, row.Order, sentences[string(row.Cause)])
	}
	page.WriteString("\n## Manual moves\n\nRenaming a marker with `mv` acts as the request. The daemon undoes and reports any other move.\n\n" +
		"| from | to | acts as |\n|---|---|---|\n")
	for _, from := range LiveStates() {
		for _, to := range LiveStates() {
			if cause, ok := ManualMove(from, to); ok {
				fmt.Fprintf(&page, "| `%s` | `%s` | `%s` |\n", from, to, cause)
			}
		}
	}
	page.WriteString("\nMoving `paused` to `running` puts the operation into `queued` (cause `release`) when it has no process to go on with, and back to\n" +
		"`scheduled` or `failed_retryable` when its time has not come. Moving `paused` to `queued` is put back when there is a process: that goes on, or is cancelled.\n" +
		"Removing a live marker with `rm` cancels (cause `marker_missing`).\n")
	return page.Bytes()
}

func TestActionAppliesInEachState(t *testing.T) {
	t.Parallel()
	want := map[Action][]State{
		Pause:       {Scheduled, Queued, Running, FailedRetryable},
		Resume:      {Paused},
		Cancel:      LiveStates(),
		ForceCancel: LiveStates(),
		Retry:       {FailedRetryable, FailedManual},
		Skip:        {WaitingApproval, FailedRetryable, FailedManual},
		Set:         {WaitingApproval, FailedRetryable, FailedManual},
		Approve:     {WaitingApproval},
		Reject:      {WaitingApproval},

		Prioritize: {Scheduled, Queued, Paused, WaitingApproval, FailedRetryable, FailedManual},
	}
	for _, ask := range Actions() {
		var means []State
		for _, state := range States() {
			if ask.AppliesIn(state) {
				means = append(means, state)
			}
		}
		if !slices.Equal(means, want[ask]) {
			t.Errorf("%s means something in %v, want %v", ask, means, want[ask])
		}
	}
}

// TestPausedTimeAddsUp: the paused time is the sum of all pauses.
func TestPausedTimeAddsUp(t *testing.T) {
	t.Parallel()
	begin := time.Date(2025, 11, 26, 13, 0, 0, 0, time.UTC)
	rec := &Record{CreatedAt: begin}
	rec.transit("", Queued, CauseSubmit, begin)
	state := Queued
	for _, step := range []struct {
		cause Cause
		after time.Duration
	}{
		{CauseStart, time.Second},
		{CausePause, 2 * time.Second},
		{CauseResume, 12 * time.Second},
		{CausePause, 20 * time.Second},
		{CauseResume, 25 * time.Second},
		{CauseDone, 30 * time.Second},
	} {
		if err := rec.Apply(state, step.cause, begin.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		state = rec.Status
	}
	if rec.PausedSeconds != 15 {
		t.Errorf("paused for %v s, want 15", rec.PausedSeconds)
	}
}
