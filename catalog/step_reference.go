package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/steps"
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

// output gives the output of a step as a text: a text as it is, nothing for null and for one that the step has not left, any other value as JSON.
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

// sight is what is known of the steps of a job at one place of its file.
type sight struct {
	names  []string         // of all steps, in the order of the file
	self   string           // the step that stands there, "" outside of the steps
	before map[string]*Step // those that are done before it begins
}

// checkOutput checks a reference to an output.
func (j *jobDecoder) checkOutput(at *node, ref string) {
	step, output, ok := stepReference(ref)
	switch {
	case len(j.sight.names) == 0:
		j.fail(at, "the job has no steps", "${%s} cannot be used here", clip(ref))
	case j.sight.self == "":
		j.fail(at, "it is known to the run, env, dir and items of steps that come after it", "${%s} cannot be used here", clip(ref))
	case !ok:
		j.fail(at, "write ${steps.NAME.outputs.NAME}", "${%s} is no output of a step", clip(ref))
	default:
		if wrong, hint := j.sight.output(step, output); wrong != "" {
			j.fail(at, hint, "%s", wrong)
		}
	}
}

// output says why an output of a step cannot be used, "" when it can.
func (s sight) output(step, output string) (wrong, hint string) {
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

// step says why nothing of a step can be used, "" when something can.
func (s sight) step(step string) (wrong, hint string) {
	switch {
	case s.before[step] != nil:
		return "", ""
	case !slices.Contains(s.names, step):
		return fmt.Sprintf("unknown step %q", clip(step)), s.known(step)
	case step == s.self:
		return "a step cannot use what itself is going to leave", ""
	}
	return fmt.Sprintf("the step %q does not come before this one", step), "add it to the needs of this step"
}

// known is the hint for a name that no step has.
func (s sight) known(name string) string {
	if hint := didYouMean(name, s.names); hint != "" {
		return hint
	}
	return "the steps are " + clip(strings.Join(s.names, ", "))
}
