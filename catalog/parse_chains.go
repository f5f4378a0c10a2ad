package catalog

import (
	"encoding/json"
	"slices"
	"strings"
)

var thenKeys = keySet{owner: "then", known: []string{"job", "params"}}

// then decodes the job that follows.
func (j *jobDecoder) then(n *node) {
	t := &Then{}
	var job *node
	if !j.mapping(n, thenKeys, func(key string, _, n *node) {
		switch key {
		case "job":
			job = n
			j.thenJob(t, n)
		case "params":
			j.thenParams(t, n)
		}
	}) {
		return
	}
	if job == nil {
		j.fail(n, "write {job: group/name, params: {...}}", "then has no job")
	}
	j.def.Then = t
}

func (j *jobDecoder) thenJob(t *Then, n *node) {
	s, ok := j.text(n, "job")
	if !ok {
		return
	}
	group, name, cut := strings.Cut(s, "/")
	if !cut || !namePart.MatchString(group) || !namePart.MatchString(name) || len(s) > 63 {
		j.fail(n, "write group/name", "job cannot be %q", clip(s))
		return
	}
	t.Group, t.Name = group, name
	j.def.thenAt.job = j.position(n)
}

func (j *jobDecoder) thenParams(t *Then, n *node) {
	if n.kind != mappingKind {
		j.fail(n, "write NAME: VALUE", "params must be a mapping, not %s", n.kind)
		return
	}
	for _, e := range n.entries {
		name := e.key.text
		if slices.ContainsFunc(t.Params, func(p ThenParam) bool { return p.Name == name }) {
			j.fail(e.key, "", "the parameter %q is given twice", clip(name))
			continue
		}
		value := e.value
		var raw json.RawMessage
		switch value.kind {
		case textKind:
			if !j.noNUL(value, "the value of "+clip(name)) {
				continue
			}
			raw = appendString(nil, value.text)
			j.thenReferences(value)
		case integerKind:
			if _, ok := j.integer(value, "the value of "+clip(name)); !ok {
				continue
			}
			raw = json.RawMessage(strings.TrimPrefix(strings.ReplaceAll(value.text, "_", ""), "+"))
		case booleanKind:
			raw = json.RawMessage(strings.ToLower(value.text))
		case numberKind:
			number, reason := parseNumber(value.text)
			if reason != "" {
				j.fail(value, "write it as 0.5 or 1e3", "the value of %s: %s", clip(name), reason)
				continue
			}
			raw = json.RawMessage(number.text)
		case mappingKind, listKind, nullKind:
			j.fail(value, "write a text, a number or a boolean; ${result.NAME} gives any value", "the value of %s cannot be %s",
				clip(name), value.kind)
			continue
		}
		if !json.Valid(raw) {
			j.fail(value, "put it in quotes", "the value of %s cannot be %q", clip(name), clip(value.text))
			continue
		}
		t.Params = append(t.Params, ThenParam{Name: name, Value: raw})
		j.def.thenAt.params = append(j.def.thenAt.params, j.position(e.key))
	}
}

func (j *jobDecoder) thenReferences(n *node) {
	for p := range pieces(n.text) {
		if strings.HasPrefix(p.ref, stepsPrefix) {
			j.fail(n, "the outputs of steps are members of the result: write ${result.NAME}",
				"${%s} cannot be used here", clip(p.ref))
		}
	}
	for _, found := range thenReference.FindAllStringSubmatch(n.text, -1) {
		if name, isParam := strings.CutPrefix(found[1], "params."); isParam {
			j.uses = append(j.uses, use{at: n, text: "${params." + name + "}"})
		}
	}
}
