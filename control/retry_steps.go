package control

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// inheritSteps returns the steps of the operation that retries an ended one, nil for a job without steps. Steps that
// are done there are done here, except the step from, if it is not "", and its dependents. When all required steps are
// done, the operation is made for the optional ones, which become required.
func inheritSteps(def *catalog.Definition, old *statefs.Record, from string) ([]steps.Step, error) {
	list, graph := def.NewSteps(), def.Graph()
	if len(list) == 0 {
		if from != "" {
			return nil, front.Refuse(http.StatusBadRequest, "Invalid parameter 'step': job %s has no steps",
				def.Address()).With("parameter", "step")
		}
		return nil, nil
	}
	if from != "" && graph.Find(from) == nil {
		return nil, front.Refuse(http.StatusBadRequest, "Invalid parameter 'step': there is no step '%s'; the steps of %s are %s",
			front.Printable(from, 64), def.Address(), stepNames(list)).
			With("parameter", "step")
	}
	settled := steps.CarryOver(old.Steps)
	for i := range list {
		s := &list[i]
		if done := steps.Find(settled, s.Name); done != nil && done.Status.Done() {
			optional, lane, limits := s.Optional, s.Lane, s.Limits // of the current definition
			*s = *done
			s.Optional, s.Lane, s.Limits = optional, lane, limits
			s.ClearRuns()
			s.ItemsFrom, s.RedoFrom = 0, 0 // run numbers of the other operation
		}
	}
	for i := range list {
		if lacksOutputs(def, &list[i]) {
			graph.RestartFrom(list, list[i].Name)
		}
	}
	if from != "" {
		graph.RestartFrom(list, from)
	}
	if move, _ := graph.NextRequired(list); move == steps.Over {
		for i := range list {
			if !list[i].Status.Done() {
				list[i].Optional = false
			}
		}
	}
	return list, nil
}

// resetFailedSteps resets the steps with failed items, to repeat those items, and all dependents of these steps.
func (s *retries) resetFailedSteps(def *catalog.Definition, old *statefs.Record, list []steps.Step) error {
	failed := make(map[string]bool)
	err := s.tree.ReadItems(old.ID, func(line []byte) error {
		var result struct {
			OK   bool   `json:"ok"`
			Run  int    `json:"run"`
			Step string `json:"step"`
		}
		if json.Unmarshal(line, &result) != nil || result.OK || result.Step == "" {
			return nil //nolint:nilerr // a line that the daemon did not write is not a result
		}
		if of := steps.Find(old.Steps, result.Step); of != nil && result.Run >= max(of.ItemsFrom, of.RedoFrom) {
			failed[result.Step] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	graph := def.Graph()
	for i := range list { // in order: dependents of a reset step repeat all of their items
		at := &list[i]
		if !failed[at.Name] || !at.Status.Done() {
			continue
		}
		graph.RestartFrom(list, at.Name)
		at.ItemsFrom = 0 // successful items stay done
	}
	return nil
}

// lacksOutputs reports whether a step is done but lacks an output that the current definition requires.
func lacksOutputs(def *catalog.Definition, s *steps.Step) bool {
	if s.Status != steps.Succeeded {
		return false
	}
	step := def.Step(s.Name)
	return slices.ContainsFunc(step.Outputs, func(name string) bool { return s.Outputs[name] == nil })
}

// anyUndone reports whether any step is not done.
func anyUndone(list []steps.Step) bool {
	return slices.ContainsFunc(list, func(s steps.Step) bool { return !s.Status.Done() })
}

func stepNames(list []steps.Step) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, ", ")
}
