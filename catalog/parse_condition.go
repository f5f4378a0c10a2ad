package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// maxCondition is the length of the longest condition, in bytes. With what conditions cannot do (no loops, and no
// names of their own, with which a value could be made larger again and again) it bounds the time and the memory that
// a judgement takes.
const maxCondition = 1000

const conditionNames = "there are params.NAME, steps.NAME.outputs.NAME, steps.NAME.status and id"

// checkCondition compiles the condition of a step.
func (s *stepDecoder) checkCondition() {
	text := s.step.When
	if len(text) > maxCondition {
		s.fail(s.values["when"], "let a step before it decide, and use its output", "when is longer than %d bytes", maxCondition)
		return
	}
	if hasReference(text) {
		s.fail(s.values["when"], "write the names alone: params.NAME, steps.NAME.outputs.NAME, id",
			"when is an expression, in which ${ and } have no meaning")
		return
	}
	reader := conditionReader{def: s.def, scope: s.scope, condition: &condition{}}
	options := []expr.Option{
		expr.Env(reader.names()), expr.AsBool(), expr.Optimize(false), expr.Patch(&reader),
		expr.DisableAllBuiltins(),
	}
	for _, name := range conditionFunctions {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := compile(text, options)
	wrong, _ := errors.AsType[*file.Error](err)
	switch {
	case reader.wrong != "":
		s.fail(s.values["when"], reader.hint, "when: %s", reader.wrong)
	case wrong != nil:
		message, hint := reader.mistake(text, wrong.Message)
		s.fail(s.values["when"], hint, "when: %s, at character %d of it", message, wrong.From+1)
	case err != nil:
		s.fail(s.values["when"], "compare it with something", "when is not true or false: %s", oneLine(err.Error()))
	default:
		reader.condition.program = program
		s.step.condition = reader.condition
	}
}

// compile has the library read a text of strangers: whatever it does, a daemon goes on with its last good definitions.
func compile(text string, options []expr.Option) (program *vm.Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			program, err = nil, &file.Error{Message: "it cannot be read: write it more simply"}
		}
	}()
	return expr.Compile(text, options...)
}

// unexpectedToken matches the library's message for an unexpected token.
var unexpectedToken = regexp.MustCompile(`^unexpected token [A-Za-z]+\((".*")\)$`)

// conditionSlips are the hints for what people write who know other languages.
var conditionSlips = map[string]string{
	`unexpected "="`:   "equal is ==",
	`unexpected "AND"`: "write and",
	`unexpected "OR"`:  "write or",
	`unexpected "is"`:  "equal is ==",
}

// mistake translates an error of the library into the terms of job files.
func (r *conditionReader) mistake(text, message string) (said, hint string) {
	message = oneLine(message)
	name, unknown := strings.CutPrefix(message, "unknown name ")
	switch {
	case message == "unexpected token EOF":
		return "it is cut off", ""
	case !unknown:
		message = unexpectedToken.ReplaceAllString(message, "unexpected $1")
		return message, conditionSlips[message]
	case r.def.Param(name) != nil:
		return fmt.Sprintf("unknown name %q", name), "write params." + name
	case slices.Contains(r.scope.names, name):
		return fmt.Sprintf("unknown name %q", name), fmt.Sprintf("write steps.%s.status or steps.%s.outputs.NAME", name, name)
	case name != "params" && name != "steps":
		return fmt.Sprintf("unknown name %q", name),
			cmp.Or(didYouMean(name, []string{"params", "steps", "id"}), conditionNames)
	}
	for _, step := range r.scope.names {
		if strings.Contains(step, "-") && strings.Contains(text, stepsPrefix+step) {
			return fmt.Sprintf("%s.%s is a subtraction", name, clip(step)), fmt.Sprintf("write steps[%q]", step)
		}
	}
	return name + " alone is no value", conditionNames
}
