package catalog

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Then is the job that is submitted when an operation is completed.
type Then struct {
	Group, Name string
	Params      []ThenParam // in the order of the file

	at Position // of the name of the job
}

// ThenParam is a parameter of the next job. A text may contain ${params.X}, ${id} and ${result.X}; if it is
// only a reference, the value keeps its type instead of becoming text.
type ThenParam struct {
	Name  string
	Value json.RawMessage

	at Position // of the name
}

// Address is the address of the next job.
func (t *Then) Address() string { return t.Group + "/" + t.Name }

// thenReference finds what is replaced in a parameter of the next job.
var thenReference = regexp.MustCompile(`\$\{(id|params\.[A-Za-z0-9_-]+|result\.[A-Za-z0-9_-]+)\}`)

// Arguments returns the parameters of the next job as a JSON object. result returns members of the footer as
// JSON; the error names a missing member.
func (t *Then) Arguments(v Values, result func(name string) (json.RawMessage, bool)) (json.RawMessage, error) {
	value := func(ref string) (json.RawMessage, error) {
		if name, ok := strings.CutPrefix(ref, "result."); ok {
			if raw, ok := result(name); ok {
				return raw, nil
			}
			return nil, fmt.Errorf("the result has no member %q", name)
		}
		if name, ok := strings.CutPrefix(ref, "params."); ok {
			if bound, ok := v.Params.Lookup(name); ok {
				return json.Marshal(bound)
			}
			return json.RawMessage("null"), nil // it was not given: neither is this one
		}
		return json.Marshal(v.ID)
	}
	out := make(map[string]json.RawMessage, len(t.Params))
	for _, p := range t.Params {
		var text string
		if json.Unmarshal(p.Value, &text) != nil {
			out[p.Name] = p.Value
			continue
		}
		filled, err := fill(text, value)
		if err != nil {
			return nil, fmt.Errorf("parameter %s of %s: %w", p.Name, t.Address(), err)
		}
		out[p.Name] = filled
	}
	return json.Marshal(out)
}

// fill replaces the references in a text.
func fill(text string, value func(ref string) (json.RawMessage, error)) (json.RawMessage, error) {
	if whole := thenReference.FindStringSubmatch(text); whole != nil && whole[0] == text {
		return value(whole[1])
	}
	var failed error
	filled := thenReference.ReplaceAllStringFunc(text, func(ref string) string {
		raw, err := value(ref[2 : len(ref)-1])
		if err != nil && failed == nil {
			failed = err
		}
		return plainText(raw)
	})
	if failed != nil {
		return nil, failed
	}
	return json.Marshal(filled)
}
