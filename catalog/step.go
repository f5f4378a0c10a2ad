package catalog

import (
	"fmt"
	"slices"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Step is one step of a job.
type Step struct {
	Name     string
	Summary  string
	Needs    []string // steps that are done before it begins
	Optional bool     // it never blocks, delays or fails the operation
	Approve  bool     // a person has to approve before it begins
	// Milestone is the phase of the operation once the step is done, "" when it is none.
	Milestone string
	// When is the condition as it is written, "" when it has none; [Step.Holds] judges it.
	When string
	// Outputs are the names of the values in its result that later steps may use; a result without one of them is a
	// failure.
	Outputs []string
	// Errors classify failures by the output of the work, in the order of the file.
	Errors []ErrorPattern
	// Lane is what it takes in place of the lane of the job, Limits what it takes beside its limits, for its time alone.
	Lane   string
	Limits []string
	// Work is the step as a job of its own: its run, items or handler and all settings of the step, with
	// those of the job as defaults. It is nil for a gate without work.
	Work *Definition

	condition *condition.Condition // nil: it always holds
	at        Position
}

// Position is where the step begins in its file.
func (s *Step) Position() Position { return s.at }

// Step gives the step of a name, nil when there is none.
func (d *Definition) Step(name string) *Step {
	for _, s := range d.Steps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Graph is the steps in the order in which they are done, as far as that order goes.
func (d *Definition) Graph() steps.Graph {
	graph := make(steps.Graph, len(d.Steps))
	for i, s := range d.Steps {
		graph[i] = steps.Node{Name: s.Name, Needs: s.Needs, Optional: s.Optional, Approve: s.Approve}
	}
	return graph
}

// NewSteps is the steps of an operation that begins, nil for a job without.
func (d *Definition) NewSteps() []steps.Step {
	var list []steps.Step
	for _, s := range d.Steps {
		list = append(list, steps.Step{
			Name: s.Name, Status: steps.Pending, Optional: s.Optional,
			Lane: s.Lane, Limits: s.Limits,
		})
	}
	return list
}

// Milestone is a phase that is reached when all of a set of steps are done.
type Milestone = api.JobMilestone

// Phase returns the furthest milestone that an operation has reached: the milestone whose last step is latest
// in the order of the steps. A milestone is reached when its steps have succeeded and no required step before
// them, and no step that they need, failed, is still open, or was skipped by a person. A step that its own
// condition skipped does not count.
func (d *Definition) Phase(list []steps.Step) string {
	phase, furthest, graph := statefs.FirstPhase, -1, d.Graph()
	reach := func(name string, of ...string) {
		last := -1
		for _, step := range of {
			if s := steps.Find(list, step); s == nil || s.Status != steps.Succeeded || !graph.PredecessorsSucceeded(list, step) {
				return
			}
			last = max(last, slices.IndexFunc(d.Steps, func(s *Step) bool { return s.Name == step }))
		}
		if last >= furthest {
			phase, furthest = name, last
		}
	}
	for _, s := range d.Steps {
		if s.Milestone != "" {
			reach(s.Milestone, s.Name)
		}
	}
	for _, m := range d.Milestones {
		reach(m.Name, m.Steps...)
	}
	return phase
}

// Holds evaluates the condition of the step with the parameters, the outputs and statuses of earlier steps,
// and the ID of the operation. It returns true for a step without a condition, and false for a condition
// whose value is nil. The error describes a value that the expression cannot handle. Holds has no side
// effects and is safe for concurrent use.
func (s *Step) Holds(v Values) (bool, error) {
	if s.condition == nil {
		return true, nil
	}
	holds, err := s.condition.Holds(condition.Facts{ID: v.ID, Param: v.Params.Lookup, Steps: v.Steps})
	if err != nil {
		return false, fmt.Errorf("when of step %s: %w", s.Name, err)
	}
	return holds, nil
}

// ErrorIn finds the first pattern that one of the lines matches, and that line; the last such line counts. It is nil
// when none does.
func (s *Step) ErrorIn(lines []string) (*ErrorPattern, string) {
	for i := range s.Errors {
		for _, line := range slices.Backward(lines) {
			if s.Errors[i].Match.MatchString(line) {
				return &s.Errors[i], line
			}
		}
	}
	return nil, ""
}
