package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

// Bind takes parameters as text, as a query string or a command line gives them.
// Integers and numbers are written as in JSON (no leading zeros or plus; integers
// without exponent), booleans as true, false, 1 or 0. A parameter that is unknown
// or given twice is an error: the caller removes the names of [ReservedParam]
// and its own options first. Errors are [*ParamError].
func (d *Definition) Bind(values url.Values) (Params, error) {
	if err := d.checkNames(maps.Keys(values)); err != nil {
		return Params{}, err
	}
	return d.bind(completed, func(p *param.Param) (param.Value, string) {
		given := values[p.Name]
		switch len(given) {
		case 0:
			return param.Value{}, ""
		case 1:
			return param.ParseText(p.Type, given[0])
		}
		return param.Value{}, fmt.Sprintf("it is given %d times", len(given))
	})
}

// BindJSON takes parameters as a JSON object, whose values have the type that the
// parameter has: 5 is an integer and "5" is not. A member that is null counts as
// not given; no text at all and null count as {}. Errors are [*ParamError].
func (d *Definition) BindJSON(data []byte) (Params, error) {
	return d.bindMembers(completed, data)
}

// BindRecorded takes the parameters of an operation that was submitted, as its record holds them: they are what runs,
// so that nothing is filled in or normalised again. Errors are [*ParamError].
func (d *Definition) BindRecorded(data []byte) (Params, error) {
	return d.bindMembers(func(_ *param.Param, v param.Value) (param.Value, string) { return v, "" }, data)
}

// used returns the value that runs for a given value, which may be none; reason is why the given value is refused.
type used func(p *param.Param, given param.Value) (v param.Value, reason string)

// completed fills in the default, and holds the value against the rules of the parameter.
func completed(p *param.Param, v param.Value) (param.Value, string) {
	if v.IsZero() {
		v = p.Default
	}
	v, reason := p.Accept(v)
	if reason == "" && v.IsZero() && p.Required {
		reason = ReasonMissing
	}
	return v, reason
}

// bindMembers takes the members of a JSON object as parameters.
func (d *Definition) bindMembers(as used, data []byte) (Params, error) {
	members, err := ReadObject(data)
	if err == nil {
		err = d.checkNames(maps.Keys(members))
	}
	if err != nil {
		return Params{}, err
	}
	return d.bind(as, func(p *param.Param) (param.Value, string) {
		raw, ok := members[p.Name]
		if !ok || string(raw) == "null" {
			return param.Value{}, ""
		}
		return param.ParseJSON(p.Type, raw)
	})
}

func (d *Definition) bind(as used, given func(*param.Param) (v param.Value, reason string)) (out Params, err error) {
	for i := range d.Params {
		p := &d.Params[i]
		v, reason := given(p)
		if reason == "" {
			v, reason = as(p, v)
		}
		if reason != "" {
			return Params{}, &ParamError{Param: p.Name, Reason: reason}
		}
		if !v.IsZero() {
			out.bound = append(out.bound, boundParam{p.Name, v})
		}
	}
	return out, nil
}

func (d *Definition) checkNames(given iter.Seq[string]) error {
	for _, name := range slices.Sorted(given) {
		if d.Param(name) == nil {
			return &ParamError{Param: name, Reason: ReasonUnknown, Hint: d.paramHint(name)}
		}
	}
	return nil
}

// ReadObject reads the members of a JSON object. encoding/json lets the last of
// two equal names win and repairs broken UTF-8; both are errors here.
func ReadObject(data []byte) (map[string]json.RawMessage, error) {
	data = bytes.Trim(data, param.JSONSpace)
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	wrong := func(why string) error {
		return &ParamError{Reason: "the parameters are not a JSON object: " + why}
	}
	if string(data) == "{}" { // common: most operations have no parameters
		return map[string]json.RawMessage{}, nil
	}
	if !utf8.Valid(data) {
		return nil, wrong("the text is not UTF-8")
	}
	if data[0] != '{' {
		return nil, wrong("it begins with " + phrase.Quote(string(data[:1])))
	}
	if why := param.TooDeep(data); why != "" {
		return nil, wrong(why)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	members := map[string]json.RawMessage{}
	_, err := in.Token()
	for err == nil && in.More() {
		var key json.Token
		if key, err = in.Token(); err != nil {
			break
		}
		name, _ := key.(string) // the decoder accepts nothing else as a name
		if _, twice := members[name]; twice {
			return nil, &ParamError{Param: name, Reason: "it is given twice"}
		}
		var raw json.RawMessage
		err = in.Decode(&raw)
		members[name] = raw
	}
	if err == nil {
		_, err = in.Token()
	}
	if err != nil {
		return nil, wrong(param.JSONError(err))
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, wrong("text follows it")
	}
	return members, nil
}

// Identity gives the canonical JSON of the values that make operations of the job equal.
func (d *Definition) Identity(p Params) string {
	if d.Unique.By == nil {
		return string(p.JSON())
	}
	other := func(b boundParam) bool { return !slices.Contains(d.Unique.By, b.name) }
	return string(canonicalParams(slices.DeleteFunc(slices.Clone(p.bound), other)))
}

// paramHint says which parameter of a job an unknown name may mean, or which there are.
func (d *Definition) paramHint(name string) string {
	if len(d.Params) == 0 {
		return "the job has no parameters"
	}
	names := d.paramNames()
	return cmp.Or(phrase.DidYouMean(name, names), "known here: "+strings.Join(names, ", "))
}
