package catalog

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

// What is wrong with a definition file, and where.
type (
	// Position is a place in a definition file.
	Position = yamlfile.Position
	// Problem is one thing that is wrong with a definition file, for a person who has the file open in an editor.
	Problem = yamlfile.Problem
	// Problems are the problems of one or more files, in the order of the text.
	Problems = yamlfile.Problems
)

// ParamError describes an invalid parameter of a submission. Its text is for the person who submitted.
type ParamError struct {
	Param  string // "" when the parameters as a whole are wrong
	Reason string // one of the Reason constants or a clause such as "'abc' is not an integer"
	Hint   string
}

// Reasons that name no value.
const (
	ReasonMissing = "missing"
	ReasonUnknown = "unknown"
)

// Error gives "parameter 'files': 'abc' is not an integer", "missing parameter
// 'title'" or "unknown parameter 'fils' (did you mean "files"?)".
func (e *ParamError) Error() string {
	var text string
	switch {
	case e.Param == "":
		text = e.Reason
	case e.Reason == ReasonMissing || e.Reason == ReasonUnknown:
		text = e.Reason + " parameter " + phrase.Quote(e.Param)
	default:
		text = "parameter " + phrase.Quote(e.Param) + ": " + e.Reason
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Params are the values of one submission: checked, with defaults filled in, in
// the order of the definition. The zero Params is empty. Params are immutable.
type Params struct{ bound []boundParam }

type boundParam struct {
	name  string
	value param.Value
}

// Lookup gives the value of a parameter, and whether it has one.
func (p Params) Lookup(name string) (param.Value, bool) {
	for _, b := range p.bound {
		if b.name == name {
			return b.value, true
		}
	}
	return param.Value{}, false
}

// Get gives the text form of a parameter, "" when it has no value.
func (p Params) Get(name string) string {
	v, _ := p.Lookup(name)
	return v.Text()
}

// All gives names and values in the order of the definition.
func (p Params) All() iter.Seq2[string, param.Value] {
	return func(yield func(string, param.Value) bool) {
		for _, b := range p.bound {
			if !yield(b.name, b.value) {
				return
			}
		}
	}
}

// JSON gives the values as one canonical JSON object (RFC 8785): sorted names,
// defaults filled in, parameters without a value left out.
func (p Params) JSON() json.RawMessage { return canonicalParams(p.bound) }

func canonicalParams(bound []boundParam) []byte {
	// Names of parameters are ASCII, so that this is the order of RFC 8785, section 3.2.3.
	sorted := slices.SortedFunc(slices.Values(bound), func(a, b boundParam) int { return strings.Compare(a.name, b.name) })
	b := []byte{'{'}
	for i, e := range sorted {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(param.AppendString(b, e.name), ':')
		b = e.value.AppendJSON(b)
	}
	return append(b, '}')
}

// MarshalJSON is [Params.JSON].
func (p Params) MarshalJSON() ([]byte, error) { return p.JSON(), nil }

// Environ gives each value as JOBDIR_PARAM_NAME=text, the name in capitals.
func (p Params) Environ() []string {
	env := make([]string, len(p.bound))
	for i, b := range p.bound {
		env[i] = "JOBDIR_PARAM_" + strings.ToUpper(b.name) + "=" + b.value.Text()
	}
	return env
}
