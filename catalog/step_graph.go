package catalog

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/statefs/steps"
)

// checkSteps checks the steps against each other and against the job, and makes the definition's of them.
func (j *jobDecoder) checkSteps() {
	at := j.at["steps"]
	if at == nil {
		j.checkNeeded("milestones", "steps", "add steps")
		return
	}
	for _, s := range j.steps {
		if name := s.step.Name; slices.Contains(j.scope.Names, name) && name != "" {
			j.Fail(s.at["name"], "each step has a name of its own", "there are two steps %q", phrase.Clip(name))
		}
		j.scope.Names = append(j.scope.Names, s.step.Name)
	}
	if len(j.steps) > 0 && !slices.ContainsFunc(j.steps, func(s *jobDecoder) bool { return !s.step.Optional }) {
		j.Fail(at, "an operation is completed when its required steps are done: leave optional out of one",
			"all steps are optional")
	}
	before := len(j.Problems)
	for _, s := range j.steps {
		j.checkNeeds(s)
	}
	order := j.order(len(j.Problems) > before)
	for _, s := range j.steps {
		j.finish(s)
	}
	j.checkMilestones()
	if len(j.Problems) > 0 {
		return
	}
	for _, n := range order {
		j.def.Steps = append(j.def.Steps, j.stepOf(n.Name).step)
	}
}

func (j *jobDecoder) stepOf(name string) *jobDecoder {
	if i := slices.IndexFunc(j.steps, func(s *jobDecoder) bool { return s.step.Name == name }); i >= 0 {
		return j.steps[i]
	}
	return nil
}

func (j *jobDecoder) checkNeeds(s *jobDecoder) {
	for i, name := range s.step.Needs {
		needed := j.stepOf(name)
		switch {
		case name == s.step.Name:
			j.Fail(s.needs[i], "", "the step %q needs itself", phrase.Clip(name))
		case needed == nil:
			j.Fail(s.needs[i], j.scope.UnknownStep(name), "unknown step %q", phrase.Clip(name))
		case needed.step.Optional && !s.step.Optional:
			j.Fail(s.needs[i], "an optional step may fail: make both optional, or neither",
				"a required step cannot need the optional step %q", name)
		}
	}
}

// order sorts the steps in the order of their execution. It reports one cycle; while names are invalid there
// may be others, which it does not search.
func (j *jobDecoder) order(wrong bool) steps.Graph {
	graph := make(steps.Graph, len(j.steps))
	for i, s := range j.steps {
		graph[i] = steps.Node{Name: s.step.Name, Needs: s.step.Needs}
	}
	if wrong || len(j.Problems) > 0 {
		return nil
	}
	order, cycle := graph.Order()
	if cycle != nil {
		s := j.stepOf(cycle[0])
		j.Fail(s.needs[slices.Index(s.step.Needs, cycle[1])], "remove one of these needs",
			"the steps need each other in a circle: %s", strings.Join(cycle, " needs "))
	}
	return order
}

// ancestors are the steps that are done before one begins: all that it needs, directly or not. While a need is no
// step it may mean any, so that a misspelt one is one mistake and not many.
func (j *jobDecoder) ancestors(s *jobDecoder) map[string]condition.Earlier {
	all, unknown := map[string]condition.Earlier{}, false
	var add func(*jobDecoder)
	add = func(s *jobDecoder) {
		for _, name := range s.step.Needs {
			needed := j.stepOf(name)
			unknown = unknown || needed == nil
			if _, known := all[name]; needed != nil && !known {
				all[name] = needed.earlier()
				add(needed)
			}
		}
	}
	add(s)
	if unknown {
		for _, other := range j.steps {
			all[other.step.Name] = other.earlier()
		}
	}
	delete(all, s.step.Name) // it is part of a cycle
	return all
}

// earlier is what later steps may refer to.
func (j *jobDecoder) earlier() condition.Earlier {
	return condition.Earlier{Outputs: j.step.Outputs, Gate: !j.hasWork()}
}

// finish checks a step with what is known of the job and of the other steps.
func (j *jobDecoder) finish(s *jobDecoder) {
	s.scope = condition.Scope{Params: j.def.Params, Names: j.scope.Names, Self: s.step.Name, Before: j.ancestors(s)}
	if j.at["stall_after"] == nil {
		s.checkNeeded("on_stall", "stall_after", "add stall_after")
	}
	s.checkReferences()
	if s.hasWork() {
		s.step.Work = s.def
	}
	if s.step.When != "" {
		s.checkCondition()
	}
}

func (j *jobDecoder) hasWork() bool {
	return j.at["run"] != nil || j.at["items"] != nil || j.at["handler"] != nil
}
