package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
	"github.com/jobdir/jobdir/statefs"
)

// Limits for jobs with steps. The record of every operation contains each step, and is written as a whole at
// each change.
const (
	maxSteps   = 256
	maxOutputs = 64
)

const outputName outbox.Expression = `^[A-Za-z_][A-Za-z0-9_]{0,62}$`

// readSteps decodes the steps when all other keys of the job are known, each into a copy of the definition of the job.
// checkSteps does the rest.
func (j *jobDecoder) readSteps() {
	n := j.values["steps"]
	if n == nil {
		return
	}
	elements := j.List(n, "steps")
	if len(elements) > maxSteps {
		j.Fail(elements[maxSteps], "", "the job has more than %d steps", maxSteps)
		elements = elements[:maxSteps]
	}
	known := jobKeys.set("a step", inStep, "it is a key of the job")
	for _, e := range elements {
		work := *j.def // without what is of the job alone
		work.Milestones, work.Schedule, work.Then = nil, nil, nil
		work.Run, work.Items, work.Handler = nil, nil, ""
		work.Summary, work.Lane, work.Limits = "", "", nil
		s := newDecoder(j.Decoder, e, &work)
		s.parent, s.step = j.def, &Step{at: j.Position(e)}
		before := len(s.Problems)
		if s.decode(e, known, jobKeys, inStep, "") {
			s.checkStep(len(s.Problems) == before)
			j.steps = append(j.steps, s)
		}
		// A step takes its lane and limits beside those of the job.
		s.step.Summary, s.step.Lane, s.step.Limits = work.Summary, work.Lane, work.Limits
		work.Summary, work.Lane, work.Limits = cmp.Or(work.Summary, j.def.Summary), j.def.Lane, j.def.Limits
	}
}

func readStepName(s *jobDecoder, n *yamlfile.Node, key string) {
	name, ok := s.Text(n, key)
	if ok && !shortName.MatchString(name) {
		s.Fail(n, shortNameHint, "name cannot be %q", phrase.Clip(name))
	}
	s.step.Name = name
}

func readMilestone(s *jobDecoder, n *yamlfile.Node, key string) {
	s.step.Milestone = s.milestone(n, key)
}

func readWhen(s *jobDecoder, n *yamlfile.Node, key string) {
	text, ok := s.Text(n, key)
	if s.step.When = strings.TrimSpace(text); ok && s.step.When == "" {
		s.Fail(n, "leave the key out", "when is empty")
	}
}

func readNeeds(s *jobDecoder, n *yamlfile.Node, key string) {
	s.step.Needs, s.needs = s.Texts(n, key, "a step of needs", "needs names %q twice")
}

func readOutputs(s *jobDecoder, n *yamlfile.Node, key string) {
	names, at := s.Texts(n, key, "an output", "the output %q is given twice")
	for i, name := range names {
		if !outputName.MatchString(name) {
			s.Fail(at[i], "letters, digits and _, no digit first, 63 characters at most",
				"an output cannot have the name %q", phrase.Clip(name))
		}
	}
	s.step.Outputs = names
	if len(n.Elements) > maxOutputs {
		s.Fail(n, "", "a step has more than %d outputs", maxOutputs)
	}
}

// checkStep checks the settings of a step on their own. If keys were wrong, the work may be present but
// misspelt.
func (j *jobDecoder) checkStep(whole bool) {
	step := j.step
	if j.at["name"] == nil {
		j.Fail(j.root, "every step has a name of its own", "the key %q is missing", "name")
	}
	if step.Optional && step.Approve {
		j.Fail(j.at["approve"], "nothing waits for an optional step: leave out one of the two",
			"an optional step cannot wait for an approval")
	}
	const kinds = "a step has run, or items and run, or handler; one with approve: true can do without"
	if j.hasWork() {
		j.checkKind("step", kinds)
		j.checkRestart()
		if k := j.at["outputs"]; k != nil && j.at["items"] != nil {
			j.Fail(k, "the command of an item leaves the result of that item",
				"outputs has a meaning only with run alone or handler")
		}
		if k := j.at["fail_when"]; k != nil && j.at["items"] == nil && j.at["handler"] == nil {
			j.Fail(k, "", "fail_when has a meaning only with items or handler")
		}
		return
	}
	if !step.Approve {
		if whole {
			j.Fail(j.root, kinds, "the step has no work")
		}
		return
	}
	for _, row := range jobKeys {
		if k := j.at[row.name]; k != nil && row.in&(inStep|inGate) == inStep {
			j.Fail(k, "a step with approve and without run, items and handler only waits for a person",
				"%s has a meaning only with work", row.name)
		}
	}
}

// milestone reads the name of a milestone; key names it in messages.
func (j *jobDecoder) milestone(n *yamlfile.Node, key string) string {
	name, ok := j.Text(n, key)
	switch {
	case !ok:
	case name == statefs.FirstPhase:
		j.Fail(n, "it is the phase before the first milestone", "a milestone cannot be %q", name)
	case !shortName.MatchString(name):
		j.Fail(n, shortNameHint, "a milestone cannot be %q", phrase.Clip(name))
	}
	return name
}

// readMilestones decodes the milestones that are reached when all of a set of steps are done.
func readMilestones(j *jobDecoder, n *yamlfile.Node, key string) {
	for _, e := range j.Pairs(n, key, "write NAME: [STEP, STEP]") {
		m := Milestone{Name: j.milestone(e.Key, "a milestone")}
		place := milestonePlace{at: e.Key}
		m.Steps, place.steps = j.Texts(e.Value, "a milestone", "a step of a milestone", "the milestone has %q twice")
		j.def.Milestones, j.milestonesAt = append(j.def.Milestones, m), append(j.milestonesAt, place)
	}
}

// checkMilestones checks that each has a name of its own and steps that there are.
func (j *jobDecoder) checkMilestones() {
	var names []string
	named := func(name string, at *yamlfile.Node) {
		if name != "" && slices.Contains(names, name) {
			j.Fail(at, "each is reached once", "the milestone %q is given twice", phrase.Clip(name))
		}
		names = append(names, name)
	}
	for _, s := range j.steps {
		if k := s.at["milestone"]; k != nil {
			named(s.step.Milestone, k)
		}
	}
	for i, m := range j.def.Milestones {
		place := j.milestonesAt[i]
		named(m.Name, place.at)
		for k, name := range m.Steps {
			if j.stepOf(name) == nil {
				j.Fail(place.steps[k], j.scope.UnknownStep(name), "unknown step %q", phrase.Clip(name))
			}
		}
	}
}

// checkOutput checks a reference to an output.
func (j *jobDecoder) checkOutput(at *yamlfile.Node, ref string) {
	step, output, ok := condition.Output(ref)
	switch {
	case len(j.scope.Names) == 0:
		j.Fail(at, "the job has no steps", "${%s} cannot be used here", phrase.Clip(ref))
	case j.scope.Self == "":
		j.Fail(at, "it is known to the run, env, dir and items of steps that come after it",
			"${%s} cannot be used here", phrase.Clip(ref))
	case !ok:
		j.Fail(at, "write ${steps.NAME.outputs.NAME}", "${%s} is no output of a step", phrase.Clip(ref))
	default:
		if wrong, hint := j.scope.Output(step, output); wrong != "" {
			j.Fail(at, hint, "%s", wrong)
		}
	}
}

// checkCondition compiles the condition of a step.
func (j *jobDecoder) checkCondition() {
	if refers(j.step.When) {
		j.Fail(j.values["when"], "write the names alone: params.NAME, steps.NAME.outputs.NAME, id",
			"when is an expression, in which ${ and } have no meaning")
		return
	}
	compiled, wrong, hint := condition.Compile(j.step.When, j.scope)
	if wrong != "" {
		j.Fail(j.values["when"], hint, "%s", wrong)
	}
	j.step.condition = compiled
}
