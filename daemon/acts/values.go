package acts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// values checks the values of a set and converts parameters to the types of the job.
func (c *check) values() error {
	if len(c.args.Values) == 0 {
		return c.invalidMember("values",
			`it is missing; give what to set, as {"params.NAME": "...", "steps.NAME.outputs.NAME": 3}`)
	}
	if c.def == nil {
		return c.refusal("its job definition cannot be read")
	}
	out := maps.Clone(c.args.Values)
	given := make(map[string]json.RawMessage)
	for _, name := range slices.Sorted(maps.Keys(c.args.Values)) {
		value, _ := statefs.ParseValueName(name) // already checked
		if value.Step == "" {
			given[value.Name] = c.args.Values[name]
			continue
		}
		if err := c.output(name, value); err != nil {
			return err
		}
	}
	if len(given) > 0 {
		bound, err := c.params(given)
		if err != nil {
			return err
		}
		for name := range given {
			out[statefs.ValueName{Name: name}.String()] = bound[name]
		}
	}
	c.args.Values = out
	return nil
}

// output checks the name of an output.
func (c *check) output(name string, value statefs.ValueName) error {
	if steps.Find(c.rec.Steps, value.Step) == nil {
		return c.invalidMember("values."+name, "there is no step '%s'; its steps are %s", value.Step, StepNames(c.rec.Steps))
	}
	step := c.def.Step(value.Step)
	if step == nil || !slices.Contains(step.Outputs, value.Name) {
		known := "it has none"
		if step != nil && len(step.Outputs) > 0 {
			known = "its outputs are " + strings.Join(step.Outputs, ", ")
		}
		return c.invalidMember("values."+name, "step %s has no output '%s'; %s", value.Step, value.Name, known)
	}
	if string(c.args.Values[name]) == "null" {
		return c.invalidMember("values."+name, "an output has a value")
	}
	return nil
}

// params binds the corrected parameters together with the others, as a submit does. A null parameter without
// a default is removed.
func (c *check) params(given map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	for name := range given {
		if c.def.Param(name) == nil {
			// BindJSON reports the likely correct name; check it here because a removed parameter is not
			// bound below
			quoted, _ := json.Marshal(name) // a string always encodes
			if _, err := c.def.BindJSON(fmt.Appendf(nil, "{%s:null}", quoted)); err != nil {
				return nil, c.wrongParam(err)
			}
		}
	}
	next := &statefs.Record{ID: c.rec.ID, Params: c.rec.Params, Corrected: maps.Clone(c.rec.Corrected)}
	if next.Corrected == nil {
		next.Corrected = make(map[string]json.RawMessage)
	}
	maps.Copy(next.Corrected, given)
	merged, err := next.EffectiveParams()
	if err != nil {
		return nil, c.invalidMember("values", "%v", err)
	}
	params, err := c.def.BindJSON(merged)
	if err != nil {
		return nil, c.wrongParam(err)
	}
	out := make(map[string]json.RawMessage, len(given))
	for name := range given {
		out[name] = json.RawMessage("null")
		if value, ok := params.Lookup(name); ok {
			if out[name], err = value.MarshalJSON(); err != nil {
				return nil, c.invalidMember("values", "%v", err)
			}
		}
	}
	return out, nil
}

// wrongParam returns the error for an invalid parameter.
func (c *check) wrongParam(err error) error {
	wrong, ok := errors.AsType[*catalog.ParamError](err)
	if !ok || wrong.Param == "" {
		return c.invalidMember("values", "%v", err)
	}
	return c.invalidMember("values."+statefs.ValueName{Name: wrong.Param}.String(), "%v", wrong)
}
