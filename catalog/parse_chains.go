package catalog

import (
	"encoding/json"
	"slices"
	"strings"
)

func checkThen(j *jobDecoder, n *node) {
	if j.at["then.job"] == nil {
		j.fail(n, "write {job: group/name, params: {...}}", "then has no job")
	}
}

func readThenJob(j *jobDecoder, n *node, key string) {
	s, ok := j.text(n, key)
	if !ok {
		return
	}
	group, name, cut := strings.Cut(s, "/")
	if !cut || !namePart.MatchString(group) || !namePart.MatchString(name) || len(s) > 63 {
		j.fail(n, "write group/name", "job cannot be %q", clip(s))
		return
	}
	j.def.Then.Group, j.def.Then.Name = group, name
	j.def.thenAt.job = j.position(n)
}

func readThenParams(j *jobDecoder, n *node, _ string) {
	t := j.def.Then
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
			checkThenReferences(j, value)
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

func checkThenReferences(j *jobDecoder, n *node) {
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
