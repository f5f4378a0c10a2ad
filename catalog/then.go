package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
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

func checkThen(j *jobDecoder, n *yamlfile.Node) {
	if j.at["then.job"] == nil {
		j.Fail(n, "write {job: group/name, params: {...}}", "then has no job")
	}
}

func readThenJob(j *jobDecoder, n *yamlfile.Node, key string) {
	s, ok := j.Text(n, key)
	if !ok {
		return
	}
	group, name, cut := strings.Cut(s, "/")
	if !cut || !namePart.MatchString(group) || !namePart.MatchString(name) || len(s) > 63 {
		j.Fail(n, "write group/name", "job cannot be %q", phrase.Clip(s))
		return
	}
	j.def.Then.Group, j.def.Then.Name, j.def.Then.at = group, name, j.Position(n)
}

func readThenParams(j *jobDecoder, n *yamlfile.Node, key string) {
	t := j.def.Then
	for _, e := range j.Pairs(n, key, "write NAME: VALUE") {
		name := e.Key.Text
		if slices.ContainsFunc(t.Params, func(p ThenParam) bool { return p.Name == name }) {
			j.Fail(e.Key, "", "the parameter %q is given twice", phrase.Clip(name))
			continue
		}
		value, what := e.Value, "the value of "+phrase.Clip(name)
		raw := json.RawMessage(value.JSON())
		switch value.Kind {
		case yamlfile.Text:
			if !j.NoNUL(value, what) {
				continue
			}
			checkThenReferences(j, value)
		case yamlfile.Integer:
			if _, ok := j.Integer(value, what); !ok {
				continue
			}
		case yamlfile.Boolean:
		case yamlfile.Number:
			number, reason := param.ParseNumber(value.Text)
			if reason != "" {
				j.Fail(value, "write it as 0.5 or 1e3", "%s: %s", what, reason)
				continue
			}
			raw = json.RawMessage(number.Text())
		case yamlfile.Mapping, yamlfile.List, yamlfile.Null:
			j.Fail(value, "write a text, a number or a boolean; ${result.NAME} gives any value", "%s cannot be %s", what, value.Kind)
			continue
		}
		t.Params = append(t.Params, ThenParam{Name: name, Value: raw, at: j.Position(e.Key)})
	}
}

func checkThenReferences(j *jobDecoder, n *yamlfile.Node) {
	for p := range pieces(n.Text) {
		if strings.HasPrefix(p.ref, condition.StepsPrefix) {
			j.Fail(n, "the outputs of steps are members of the result: write ${result.NAME}",
				"${%s} cannot be used here", phrase.Clip(p.ref))
		}
	}
	for _, found := range thenReference.FindAllStringSubmatch(n.Text, -1) {
		if name, isParam := strings.CutPrefix(found[1], "params."); isParam {
			j.uses = append(j.uses, use{at: n, text: "${params." + name + "}"})
		}
	}
}

// checkFollowers reports jobs whose next job does not exist or does not accept the parameters that they pass.
// It runs after all files are read, because the two may be in different files. It returns the jobs that must
// not be used: none while there are other problems, because the missing job may be in a file with a problem.
func (s *snapshot) checkFollowers(claims map[string][]*Definition,
	elsewhere func(group, name string) *Definition,
) map[*Definition]bool {
	unfit, complete := map[*Definition]bool{}, len(s.problems) == 0
	broken := map[string]bool{} // files whose last good version counts: their places are others by now
	for _, p := range s.problems {
		broken[p.File] = true
	}
	find := func(t *Then) *Definition {
		for _, d := range claims[t.Group+"-"+t.Name] {
			if d.Group == t.Group {
				return d
			}
		}
		if elsewhere != nil {
			return elsewhere(t.Group, t.Name)
		}
		return nil
	}
	for _, defs := range claims {
		for _, d := range defs {
			if d.Then == nil || broken[d.at.File] {
				continue
			}
			next := find(d.Then)
			var found Problems
			if next == nil {
				hint := phrase.DidYouMean(d.Then.Address(), addresses(claims))
				found = Problems{d.Then.at.Problem(hint, "then: there is no job %q", d.Then.Address())}
			} else {
				found = d.followerProblems(next)
			}
			s.problems = append(s.problems, found...)
			unfit[d] = len(found) > 0 && complete
		}
	}
	return unfit
}

func addresses(claims map[string][]*Definition) (all []string) {
	for _, endpoint := range slices.Sorted(maps.Keys(claims)) {
		for _, d := range claims[endpoint] {
			all = append(all, d.Address())
		}
	}
	return all
}

// followerProblems returns parameters that the next job does not accept, or lacks, whatever the result is.
func (d *Definition) followerProblems(next *Definition) (found Problems) {
	t := d.Then
	given := map[string]bool{}
	for _, p := range t.Params {
		given[p.Name] = true
		taken := next.Param(p.Name)
		if taken == nil {
			found = append(found, p.at.Problem(next.paramHint(p.Name), "then: the job %s has no parameter %q",
				t.Address(), phrase.Clip(p.Name)))
			continue
		}
		if thenReference.Match(p.Value) {
			continue // its value is not known yet
		}
		v, reason := param.ParseJSON(taken.Type, p.Value)
		if reason == "" {
			_, reason = taken.Accept(v)
		}
		if reason != "" {
			found = append(found, p.at.Problem("", "then: the parameter %q of %s: %s", p.Name, t.Address(), reason))
		}
	}
	for i := range next.Params {
		if p := &next.Params[i]; p.Required && p.Default.IsZero() && !given[p.Name] {
			found = append(found, t.at.Problem("set it in then: {params: {...}}",
				"then: the job %s needs the parameter %q", t.Address(), p.Name))
		}
	}
	return found
}

// paramHint says which parameter of a job an unknown name may mean, or which there are.
func (d *Definition) paramHint(name string) string {
	if len(d.Params) == 0 {
		return "the job has no parameters"
	}
	names := d.paramNames()
	return cmp.Or(phrase.DidYouMean(name, names), "known here: "+strings.Join(names, ", "))
}
