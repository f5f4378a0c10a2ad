package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

// StepsPrefix begins the references to what steps have left.
const StepsPrefix = "steps."

// Output cuts "steps.NAME.outputs.NAME" into its names.
func Output(ref string) (step, output string, ok bool) {
	parts := strings.Split(ref, ".")
	if len(parts) != 4 || parts[0] != "steps" || parts[2] != "outputs" {
		return "", "", false
	}
	return parts[1], parts[3], true
}

// Scope is what is known of a job at one place of its file.
type Scope struct {
	Params []param.Param
	Names  []string           // of all steps, in the order of the file
	Self   string             // the step that contains the reference, "" outside of the steps
	Before map[string]Earlier // steps that are done before it begins
}

// Earlier is a step that is done before another one begins.
type Earlier struct {
	Outputs []string
	Gate    bool // it has no work
}

func (s Scope) hasParam(name string) bool {
	return slices.ContainsFunc(s.Params, func(p param.Param) bool { return p.Name == name })
}

// Param returns why a parameter cannot be used, "" if it can.
func (s Scope) Param(name string) (wrong, hint string) {
	if s.hasParam(name) {
		return "", ""
	}
	names := make([]string, len(s.Params))
	for i, p := range s.Params {
		names[i] = p.Name
	}
	hint = cmp.Or(phrase.DidYouMean(name, names), "known: "+strings.Join(slices.Compact(names), ", "))
	if len(names) == 0 {
		hint = "the job has no params"
	}
	return fmt.Sprintf("unknown parameter %q", phrase.Clip(name)), hint
}

// Output returns why an output of a step cannot be used, "" if it can.
func (s Scope) Output(step, output string) (wrong, hint string) {
	if wrong, hint = s.Step(step); wrong != "" {
		return wrong, hint
	}
	outputs := s.Before[step].Outputs
	if slices.Contains(outputs, output) {
		return "", ""
	}
	hint = phrase.DidYouMean(output, outputs)
	switch {
	case hint != "":
	case s.Before[step].Gate:
		hint = "it has no work"
	case len(outputs) == 0:
		hint = "name it in the outputs of that step"
	default:
		hint = "it sets " + phrase.Clip(strings.Join(outputs, ", "))
	}
	return fmt.Sprintf("the step %q sets no output %q", step, phrase.Clip(output)), hint
}

// Step returns why a step cannot be referenced, "" if it can.
func (s Scope) Step(step string) (wrong, hint string) {
	_, before := s.Before[step]
	switch {
	case before:
		return "", ""
	case !slices.Contains(s.Names, step):
		return fmt.Sprintf("unknown step %q", phrase.Clip(step)), s.UnknownStep(step)
	case step == s.Self:
		return "a step cannot use what itself is going to leave", ""
	}
	return fmt.Sprintf("the step %q does not come before this one", step), "add it to the needs of this step"
}

// UnknownStep is the hint for a name that no step has.
func (s Scope) UnknownStep(name string) string {
	return cmp.Or(phrase.DidYouMean(name, s.Names), "the steps are "+phrase.Clip(strings.Join(s.Names, ", ")))
}
