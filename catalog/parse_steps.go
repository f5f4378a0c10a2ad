package catalog

import (
	"slices"
	"strings"
)

// Limits for jobs with steps. The record of every operation contains each step, and is written as a whole at
// each change.
const (
	maxSteps   = 256
	maxOutputs = 64
)

var (
	stepName   = words(`[a-z0-9][a-z0-9_-]*`, 63)
	outputName = words(`[A-Za-z_][A-Za-z0-9_]*`, 63)
)

const stepNameHint = "small letters, digits, _ and -, a letter or digit first, 63 characters at most"

// stepDecoder decodes one step. What a step and a job have in common it decodes as a job does, into a definition of
// its own.
type stepDecoder struct {
	jobDecoder
	step  *Step
	needs []*node
}

// readSteps decodes the steps independently of each other. The keys of a file come in any order, so
// checkSteps does the rest.
func readSteps(j *jobDecoder, n *node, key string) {
	elements := j.list(n, key)
	if len(elements) > maxSteps {
		j.fail(elements[maxSteps], "", "the job has more than %d steps", maxSteps)
		elements = elements[:maxSteps]
	}
	known := j.keys.set("a step", inStep, "it is a key of the job")
	for _, e := range elements {
		s := &stepDecoder{step: &Step{at: j.position(e)}, jobDecoder: newDecoder(j.decoder, e, j.keys, &Definition{})}
		before := len(s.problems)
		if s.mapping(e, known, s.key) {
			s.checkStep(len(s.problems) == before)
			j.steps = append(j.steps, s)
		}
		j.problems = s.problems
	}
}

// key decodes the value of one key of the step.
func (s *stepDecoder) key(key string, k, n *node) {
	s.at[key], s.values[key] = k, n
	if row := s.keys.row(key, inStep); row.readStep != nil {
		row.readStep(s, n, key)
	} else {
		row.read(&s.jobDecoder, n, key)
	}
}

func readStepName(s *stepDecoder, n *node, key string) {
	name, ok := s.text(n, key)
	if ok && !stepName.MatchString(name) {
		s.fail(n, stepNameHint, "name cannot be %q", clip(name))
	}
	s.step.Name = name
}

func readMilestone(s *stepDecoder, n *node, key string) { s.step.Milestone = s.milestone(n, n, key) }

func readWhen(s *stepDecoder, n *node, key string) {
	text, ok := s.text(n, key)
	if s.step.When = strings.TrimSpace(text); ok && s.step.When == "" {
		s.fail(n, "leave the key out", "when is empty")
	}
}

func readNeeds(s *stepDecoder, n *node, key string) {
	for _, e := range s.list(n, key) {
		name, ok := s.text(e, "a step of needs")
		if !ok {
			continue
		}
		if slices.Contains(s.step.Needs, name) {
			s.fail(e, "", "needs names %q twice", clip(name))
			continue
		}
		s.step.Needs, s.needs = append(s.step.Needs, name), append(s.needs, e)
	}
}

func readOutputs(s *stepDecoder, n *node, key string) {
	elements := s.list(n, key)
	for _, e := range elements {
		name, ok := s.text(e, "an output")
		switch {
		case !ok:
			continue
		case !outputName.MatchString(name):
			s.fail(e, "letters, digits and _, no digit first, 63 characters at most",
				"an output cannot have the name %q", clip(name))
		case slices.Contains(s.step.Outputs, name):
			s.fail(e, "", "the output %q is given twice", name)
		}
		s.step.Outputs = append(s.step.Outputs, name)
	}
	if len(elements) > maxOutputs {
		s.fail(n, "", "a step has more than %d outputs", maxOutputs)
	}
}

// checkStep checks the settings of a step on their own. If keys were wrong, the work may be present but
// misspelt.
func (s *stepDecoder) checkStep(whole bool) {
	step := s.step
	if s.at["name"] == nil {
		s.fail(s.root, "every step has a name of its own", "the key %q is missing", "name")
	}
	if step.Optional && step.Approve {
		s.fail(s.at["approve"], "nothing waits for an optional step: leave out one of the two",
			"an optional step cannot wait for an approval")
	}
	const kinds = "a step has run, or items and run, or handler; one with approve: true can do without"
	if s.at["run"] != nil || s.at["items"] != nil || s.at["handler"] != nil {
		s.checkKind("step", kinds)
		s.checkRestart()
		if k := s.at["outputs"]; k != nil && s.at["items"] != nil {
			s.fail(k, "the command of an item leaves the result of that item",
				"outputs has a meaning only with run alone or handler")
		}
		if k := s.at["fail_when"]; k != nil && s.at["items"] == nil && s.at["handler"] == nil {
			s.fail(k, "", "fail_when has a meaning only with items or handler")
		}
		return
	}
	if !step.Approve {
		if whole {
			s.fail(s.root, kinds, "the step has no work")
		}
		return
	}
	for _, row := range s.keys {
		if k := s.at[row.name]; k != nil && row.in&(inStep|inGate) == inStep {
			s.fail(k, "a step with approve and without run, items and handler only waits for a person",
				"%s has a meaning only with work", row.name)
		}
	}
}
