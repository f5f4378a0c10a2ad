// Package condition compiles and evaluates the conditions of steps: one expression over the parameters of an operation,
// and the outputs and statuses of earlier steps, without side effects and in bounded time. It has the references to
// outputs too, which conditions and the texts of a job share. [Compile] refuses whatever is not listed here, so that a
// newer version of the library adds nothing to the language.
package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Condition is a compiled expression, which any number of goroutines may evaluate.
type Condition struct {
	text    string
	program *vm.Program
	Uses    Uses
}

// Uses are the names that a condition uses.
type Uses struct {
	Params   []string
	Outputs  []string // as "steps.NAME.outputs.NAME"
	Statuses []string // the names of the steps
}

// maxLength is the length of the longest condition, in bytes. With what conditions cannot do (no loops, and no
// names of their own, with which a value could be made larger again and again) it bounds the time and the memory that
// an evaluation takes.
const maxLength = 1000

const knownNames = "there are params.NAME, steps.NAME.outputs.NAME, steps.NAME.status and id"

// Compile reads an expression. wrong says what is wrong with it, "" if nothing is, and hint what to do about it.
func Compile(text string, scope Scope) (c *Condition, wrong, hint string) {
	if len(text) > maxLength {
		return nil, fmt.Sprintf("when is longer than %d bytes", maxLength), "let a step before it decide, and use its output"
	}
	r := reader{scope: scope, condition: &Condition{text: text}}
	options := []expr.Option{
		expr.Env(r.names()), expr.AsBool(), expr.Optimize(false), expr.Patch(&r), expr.DisableAllBuiltins(),
	}
	for _, name := range functions {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := compile(text, options)
	mistake, _ := errors.AsType[*file.Error](err)
	switch {
	case r.wrong != "":
		return nil, "when: " + r.wrong, r.hint
	case mistake != nil:
		message, hint := r.mistake(text, mistake.Message)
		return nil, fmt.Sprintf("when: %s, at character %d of it", message, mistake.From+1), hint
	case err != nil:
		return nil, "when is not true or false: " + phrase.OneLine(err.Error()), "compare it with something"
	}
	r.condition.program = program
	return r.condition, "", ""
}

// compile turns a panic of the library into an error: no text of a job file ends the daemon.
func compile(text string, options []expr.Option) (program *vm.Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			program, err = nil, &file.Error{Message: "it cannot be read: write it more simply"}
		}
	}()
	return expr.Compile(text, options...)
}

// Facts are what the names of a condition mean.
type Facts struct {
	ID    string
	Param func(name string) (param.Value, bool)
	Steps []steps.Step
}

// Holds evaluates the condition, and returns false for one whose value is nil. The error describes a value that the
// expression cannot handle. Holds has no side effects.
func (c *Condition) Holds(known Facts) (bool, error) {
	env, err := c.values(known)
	if err != nil {
		return false, err
	}
	result, err := expr.Run(c.program, env)
	if err != nil {
		message := err.Error()
		if wrong, ok := errors.AsType[*file.Error](err); ok {
			message = wrong.Message
		}
		if strings.HasPrefix(message, "invalid operation: bool(") {
			message = "its value is neither true nor false"
		}
		return false, fmt.Errorf("%q cannot be judged: %s", phrase.Clip(c.text), phrase.Clip(message))
	}
	holds, _ := result.(bool) // the library gives nothing else
	return holds, nil
}

// values returns the values of the names in an expression. A parameter without a value and a missing output
// are nil.
func (c *Condition) values(known Facts) (map[string]any, error) {
	env := map[string]any{"id": known.ID}
	for _, name := range c.Uses.Params {
		value, _ := known.Param(name)
		plain := value.Any()
		if raw, ok := plain.(json.RawMessage); ok {
			plain = plainJSON(raw)
		}
		env["params."+name] = plain
	}
	for _, name := range c.Uses.Statuses {
		env[StepsPrefix+name+".status"] = ""
		if s := steps.Find(known.Steps, name); s != nil {
			env[StepsPrefix+name+".status"] = string(s.Status)
		}
	}
	for _, ref := range c.Uses.Outputs {
		step, name, _ := Output(ref)
		env[ref] = nil
		s := steps.Find(known.Steps, step)
		if s == nil || s.Outputs[name] == nil {
			continue
		}
		if len(s.Outputs[name]) > param.MaxString {
			return nil, fmt.Errorf("%s is longer than %s", ref, param.Bytes(param.MaxString))
		}
		env[ref] = plainJSON(s.Outputs[name])
	}
	return env, nil
}

// plainJSON gives a JSON value as expressions see it: integers as int64, what they do not hold as float64.
func plainJSON(raw json.RawMessage) any {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	var value any
	if in.Decode(&value) != nil {
		return nil
	}
	return plain(value)
}

func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // beyond a double it is infinite
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plain(v[name])
		}
	}
	return value
}
