package statefs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The table of requests in docs/http-control.md is that of the code.
func TestRequestsAreDocumented(t *testing.T) {
	t.Parallel()
	const page, head = "../docs/http-control.md", "| request | while it is | bulk | took effect when |\n|---|---|---|---|\n"
	text, err := os.ReadFile(page)
	check(t, err)
	before, rest, found := strings.Cut(string(text), head)
	rows, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has lost the head of its table %q", page, head)
	}
	var want []string
	for _, spec := range requests {
		var states []string
		for _, state := range LiveStates() {
			if spec.Action.AppliesIn(state) {
				states = append(states, "`"+string(state)+"`")
			}
		}
		if len(states) == len(liveStates) {
			states = []string{"any"}
		}
		bulk := "no"
		if spec.Bulk {
			bulk = "yes"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", spec.Action, strings.Join(states, ", "), bulk, spec.Effect))
	}
	if now := strings.Join(want, "\n"); *update {
		check(t, os.WriteFile(page, []byte(before+head+now+"\n\n"+after), 0o600))
		check(t, os.Chmod(page, 0o644))
	} else if rows != now {
		t.Errorf("the table of requests in %s differs from statefs/action.go: run make generate", page)
	}
}

// The rows of the table of actions fit together: a hole in one shows at the place that is made from it.
func TestTableOfActionsIsWhole(t *testing.T) {
	t.Parallel()
	forced, ranks := map[Action]bool{}, map[int]string{}
	for _, spec := range ActionSpecs() {
		forced[spec.Force] = true
		if other := spec.Opposite; other != "" && other.Spec().Opposite != spec.Action {
			t.Errorf("%s is the opposite of %s, which is not its own", other, spec.Action)
		}
		if spec.NeedsSteps && !spec.OnStep || spec.OnStep && len(spec.Params) > 0 {
			t.Errorf("%s: OnStep %v, NeedsSteps %v, Params %v", spec.Action, spec.OnStep, spec.NeedsSteps, spec.Params)
		}
		for _, button := range spec.Buttons {
			if other := ranks[button.Rank]; button.Text == "" || button.Rank == 0 || other != "" && button.Instead == "" {
				t.Errorf("%s: the button %+v, beside %q", spec.Action, button, other)
			}
			ranks[button.Rank] = button.Text
		}
	}
	var unblocking []Action
	for _, spec := range requests {
		if spec.unblocks() {
			unblocking = append(unblocking, spec.Action)
		}
		if spec.Effect == "" || len(spec.Causes)+len(spec.States) == 0 {
			t.Errorf("%s: when it applies or has taken effect is missing", spec.Action)
		}
		if (spec.Endpoint == "") != forced[spec.Action] {
			t.Errorf("%s: endpoint %q, parameter of another action: %v", spec.Action, spec.Endpoint, forced[spec.Action])
		}
	}
	if want := []Action{Cancel, ForceCancel, Retry, Skip, Approve, Reject}; !slices.Equal(unblocking, want) {
		t.Errorf("a wait for a person is ended by %v, want %v", unblocking, want)
	}
}
