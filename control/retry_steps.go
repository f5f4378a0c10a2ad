package control

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// inheritSteps returns the steps of the operation that does again what an ended one has not done, nil for a job without steps: what is done
// there is done here, but for the step from which it is to begin, "" for none, and all that need that one. When all required steps are done the
// optional ones are what it is for, and are required.
func inheritSteps(def *catalog.Definition, old *statefs.Record, from string) ([]steps.Step, error) {
	list, graph := def.NewSteps(), def.Graph()
	if len(list) == 0 {
		if from != "" {
			return nil, refuse(http.StatusBadRequest, "Invalid parameter 'step': job %s has no steps", def.Address()).with("parameter", "step")
		}
		return nil, nil
	}
	if from != "" && graph.Find(from) == nil {
		return nil, refuse(http.StatusBadRequest, "Invalid parameter 'step': there is no step '%s'; the steps of %s are %s", printable(from, 64), def.Address(), stepNames(list)).
			with("parameter", "step")
	}
	settled := steps.Settled(old.Steps)
	for i := range list {
		s := &list[i]
		if done := steps.Find(settled, s.Name); done != nil && done.Status.Done() {
			optional, lane, limits := s.Optional, s.Lane, s.Limits // those of the job as it is defined now
			*s = *done
			s.Optional, s.Lane, s.Limits = optional, lane, limits
			s.NewHere()
			s.ItemsFrom, s.RedoFrom = 0, 0 // those are of the other operation too
		}
	}
	for i := range list {
		if lacksOutputs(def, &list[i]) {
			graph.Back(list, list[i].Name)
		}
	}
	if from != "" {
		graph.Back(list, from)
	}
	if move, _ := graph.Main(list); move == steps.Over {
		for i := range list {
			if !list[i].Status.Done() {
				list[i].Optional = false
			}
		}
	}
	return list, nil
}

// redoFailed has the steps that have failed items begin again, to do those, and all that need such a step.
func (s *Server) redoFailed(def *catalog.Definition, old *statefs.Record, list []steps.Step) error {
	failed := make(map[string]bool)
	err := s.tree.ReadItems(old.ID, func(line []byte) error {
		var result struct {
			OK   bool   `json:"ok"`
			Run  int    `json:"run"`
			Step string `json:"step"`
		}
		if json.Unmarshal(line, &result) != nil || result.OK || result.Step == "" {
			return nil //nolint:nilerr // a line that is not the daemon's is no result
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
	for i := range list { // in their order: what needs one that begins again does all of its items
		at := &list[i]
		if !failed[at.Name] || !at.Status.Done() {
			continue
		}
		graph.Back(list, at.Name)
		at.ItemsFrom = 0 // what went well stays done
	}
	return nil
}

// lacksOutputs reports whether a step is done and has not left what the job wants of it now.
func lacksOutputs(def *catalog.Definition, s *steps.Step) bool {
	if s.Status != steps.Succeeded {
		return false
	}
	step := def.Step(s.Name)
	return slices.ContainsFunc(step.Outputs, func(name string) bool { return s.Outputs[name] == nil })
}

// undone reports whether anything of a list of steps is not done.
func undone(list []steps.Step) bool {
	return slices.ContainsFunc(list, func(s steps.Step) bool { return !s.Status.Done() })
}

func stepNames(list []steps.Step) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, ", ")
}
