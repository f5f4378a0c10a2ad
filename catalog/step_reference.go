package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs/steps"
)

// stepsPrefix begins the references to what steps have left.
const stepsPrefix = "steps."

// stepReference cuts "steps.NAME.outputs.NAME" into its names.
func stepReference(ref string) (step, output string, ok bool) {
	parts := strings.Split(ref, ".")
	if len(parts) != 4 || parts[0] != "steps" || parts[2] != "outputs" {
		return "", "", false
	}
	return parts[1], parts[3], true
}

// output returns an output of a step as text: a text verbatim, "" for null and for a missing output, any
// other value as JSON.
func (v Values) output(ref string) string {
	step, name, _ := stepReference(ref)
	s := steps.Find(v.Steps, step)
	if s == nil || s.Outputs[name] == nil {
		return ""
	}
	var text string
	if json.Unmarshal(s.Outputs[name], &text) == nil {
		return text // null too
	}
	return string(s.Outputs[name])
}

// stepScope is what is known of the steps of a job at one place of its file.
type stepScope struct {
	names  []string         // of all steps, in the order of the file
	self   string           // the step that contains the reference, "" outside of the steps
	before map[string]*Step // steps that are done before it begins
}

// checkOutput checks a reference to an output.
func (j *jobDecoder) checkOutput(at *node, ref string) {
	step, output, ok := stepReference(ref)
	switch {
	case len(j.scope.names) == 0:
		j.fail(at, "the job has no steps", "${%s} cannot be used here", clip(ref))
	case j.scope.self == "":
		j.fail(at, "it is known to the run, env, dir and items of steps that come after it",
			"${%s} cannot be used here", clip(ref))
	case !ok:
		j.fail(at, "write ${steps.NAME.outputs.NAME}", "${%s} is no output of a step", clip(ref))
	default:
		if wrong, hint := j.scope.output(step, output); wrong != "" {
			j.fail(at, hint, "%s", wrong)
		}
	}
}

// output returns why an output of a step cannot be used, "" if it can.
func (s stepScope) output(step, output string) (wrong, hint string) {
	if wrong, hint = s.step(step); wrong != "" {
		return wrong, hint
	}
	outputs := s.before[step].Outputs
	if slices.Contains(outputs, output) {
		return "", ""
	}
	hint = didYouMean(output, outputs)
	switch {
	case hint != "":
	case s.before[step].Work == nil:
		hint = "it has no work"
	case len(outputs) == 0:
		hint = "name it in the outputs of that step"
	default:
		hint = "it sets " + clip(strings.Join(outputs, ", "))
	}
	return fmt.Sprintf("the step %q sets no output %q", step, clip(output)), hint
}

// step returns why a step cannot be referenced, "" if it can.
func (s stepScope) step(step string) (wrong, hint string) {
	switch {
	case s.before[step] != nil:
		return "", ""
	case !slices.Contains(s.names, step):
		return fmt.Sprintf("unknown step %q", clip(step)), s.unknownStepHint(step)
	case step == s.self:
		return "a step cannot use what itself is going to leave", ""
	}
	return fmt.Sprintf("the step %q does not come before this one", step), "add it to the needs of this step"
}

// unknownStepHint is the hint for a name that no step has.
func (s stepScope) unknownStepHint(name string) string {
	if hint := didYouMean(name, s.names); hint != "" {
		return hint
	}
	return "the steps are " + clip(strings.Join(s.names, ", "))
}
