package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/jobdir/jobdir/statefs/steps"
)

// condition is a compiled expression. It is shared by all who judge it.
type condition struct {
	program *vm.Program
	params  []string // that it uses
	outputs []string // that it uses, as "steps.NAME.outputs.NAME"
	status  []string // steps whose status it uses
}

// Holds evaluates the condition of the step with the parameters, the outputs and statuses of earlier steps,
// and the ID of the operation. It returns true for a step without a condition, and false for a condition
// whose value is nil. The error describes a value that the expression cannot handle. Holds has no side
// effects and is safe for concurrent use.
func (s *Step) Holds(v Values) (bool, error) {
	if s.condition == nil {
		return true, nil
	}
	env, err := s.condition.values(v)
	if err != nil {
		return false, fmt.Errorf("when of step %s: %w", s.Name, err)
	}
	result, err := expr.Run(s.condition.program, env)
	if err != nil {
		message := err.Error()
		if wrong, ok := errors.AsType[*file.Error](err); ok {
			message = wrong.Message
		}
		if strings.HasPrefix(message, "invalid operation: bool(") {
			message = "its value is neither true nor false"
		}
		return false, fmt.Errorf("when of step %s: %q cannot be judged: %s", s.Name, clip(s.When), clip(message))
	}
	holds, _ := result.(bool) // the library gives nothing else
	return holds, nil
}

// values returns the values of the names in an expression. A parameter without a value and a missing output
// are nil.
func (c *condition) values(v Values) (map[string]any, error) {
	env := map[string]any{"id": v.ID}
	for _, name := range c.params {
		value, _ := v.Params.Lookup(name)
		plain := value.Any()
		if raw, ok := plain.(json.RawMessage); ok {
			plain = plainJSON(raw)
		}
		env["params."+name] = plain
	}
	for _, name := range c.status {
		env[stepsPrefix+name+".status"] = ""
		if s := steps.Find(v.Steps, name); s != nil {
			env[stepsPrefix+name+".status"] = string(s.Status)
		}
	}
	for _, ref := range c.outputs {
		step, name, _ := stepReference(ref)
		env[ref] = nil
		s := steps.Find(v.Steps, step)
		if s == nil || s.Outputs[name] == nil {
			continue
		}
		if len(s.Outputs[name]) > MaxString {
			return nil, fmt.Errorf("%s is longer than %s", ref, Bytes(MaxString))
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
