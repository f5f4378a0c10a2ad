package catalog

import (
	"slices"
	"strings"
)

func readParams(j *jobDecoder, n *node, _ string) {
	if n.kind != mappingKind {
		j.fail(n, "write NAME: {type: string}", "params must be a mapping, not %s", n.kind)
		return
	}
	for _, e := range n.entries {
		name := e.key.text
		switch {
		case ReservedParam(name):
			j.fail(e.key, "the daemon reads a query parameter of this name itself", "a parameter cannot have the name %q", name)
		case !paramName.MatchString(name):
			j.fail(e.key, "letters, digits and _, a letter first, 63 characters at most",
				"a parameter cannot have the name %q", clip(name))
		case j.def.Param(name) != nil:
			j.fail(e.key, "", "the parameter %q is given twice", name)
		case j.def.foldedParam(name) != "":
			j.fail(e.key, "commands find both as JOBDIR_PARAM_"+strings.ToUpper(name),
				"the parameters %q and %q differ by case alone",
				j.def.foldedParam(name), name)
		}
		j.def.Params = append(j.def.Params, (&paramDecoder{jobDecoder: j, at: map[string]*node{}}).param(name, e.key, e.value))
	}
}

// paramDecoder decodes one parameter. at has the values of its keys.
type paramDecoder struct {
	*jobDecoder
	at map[string]*node
}

// param decodes the rules of one parameter, then checks them against each other.
func (j *paramDecoder) param(name string, k, n *node) Param {
	p := Param{Name: name}
	at := j.at
	if !j.mapping(n, paramKeys.set("a parameter", 0, ""), func(key string, _, n *node) { at[key] = n }) {
		return p
	}
	before := len(j.problems)
	if t := at["type"]; t == nil {
		j.fail(k, "it is "+oneOf(paramTypes), "the parameter %q has no type", name)
	} else if s, ok := j.word(t, "type", paramTypes); ok {
		p.Type = ParamType(s)
	}
	if s := at["summary"]; s != nil {
		text, _ := j.text(s, "summary")
		p.Summary = strings.TrimSpace(text)
	}
	if r := at["required"]; r != nil {
		p.Required = j.boolean(r, "required")
	}
	if len(j.problems) > before {
		return p
	}
	j.normalize(&p, at["normalize"])
	j.bounds(&p)
	j.enum(&p, at["enum"])
	j.pattern(&p, at["pattern"])
	if len(j.problems) > before {
		return p // the default would be judged by rules that are wrong
	}
	for i, v := range p.Enum {
		rest := p
		rest.Enum = nil
		if same, _ := p.normalized(v); same != v {
			j.fail(at["enum"].elements[i], "write it as normalize leaves it", "enum: no value can be %s", quote(v.text))
		} else if reason := rest.check(v); reason != "" {
			j.fail(at["enum"].elements[i], "", "enum: %s", reason)
		}
	}
	if d := at["default"]; d != nil {
		if p.Required {
			j.fail(d, "leave out one of the two", "a required parameter cannot have a default")
		}
		p.Default = j.value(d, "default", p.Type)
		if !p.Default.IsZero() {
			v, reason := p.normalized(p.Default)
			if reason == "" && !v.IsZero() {
				reason = p.check(v)
			}
			if reason != "" {
				j.fail(d, "", "default: %s", reason)
			}
		}
	}
	return p
}

func (j *paramDecoder) normalize(p *Param, n *node) {
	if n == nil {
		return
	}
	if p.Type != StringType {
		j.fail(n, "it is for strings", "normalize has no meaning for %s", article(p.Type))
		return
	}
	for _, e := range j.list(n, "normalize") {
		s, ok := j.word(e, "normalize", normalizations)
		if ok && slices.Contains(p.Normalize, Normalize(s)) {
			j.fail(e, "", "normalize has %q twice", s)
		}
		p.Normalize = append(p.Normalize, Normalize(s))
	}
}

func (j *paramDecoder) bounds(p *Param) {
	for key, into := range map[string]*Value{"minimum": &p.Minimum, "maximum": &p.Maximum} {
		n := j.at[key]
		if n == nil {
			continue
		}
		if p.Type != IntegerType && p.Type != NumberType {
			j.fail(n, "it is for integers and numbers", "%s has no meaning for %s", key, article(p.Type))
			continue
		}
		*into = j.value(n, key, p.Type)
	}
	if !p.Minimum.IsZero() && !p.Maximum.IsZero() && p.Minimum.compare(p.Maximum) > 0 {
		j.fail(j.at["minimum"], "", "the minimum %s is more than the maximum %s", p.Minimum.text, p.Maximum.text)
	}
}

func (j *paramDecoder) enum(p *Param, n *node) {
	if n == nil {
		return
	}
	if p.Type == BooleanType || p.Type.composite() {
		j.fail(n, "", "enum has no meaning for %s", article(p.Type))
		return
	}
	for _, e := range j.list(n, "enum") {
		v := j.value(e, "enum", p.Type)
		if !v.IsZero() && slices.Contains(p.Enum, v) {
			j.fail(e, "", "enum has %s twice", quote(v.text))
		}
		p.Enum = append(p.Enum, v)
	}
}

func (j *paramDecoder) pattern(p *Param, n *node) {
	if n == nil {
		return
	}
	s, ok := j.text(n, "pattern")
	switch {
	case !ok:
		return
	case p.Type != StringType:
		j.fail(n, "it is for strings", "pattern has no meaning for %s", article(p.Type))
		return
	case s == "" || len(s) > maxPattern:
		j.fail(n, "", "pattern must have 1 to %d characters", maxPattern)
		return
	}
	expression, err := wholeMatch(s)
	if err != nil {
		j.fail(n, "see https://golang.org/s/re2syntax", "pattern: %s", err)
		return
	}
	p.Pattern, p.pattern = s, expression
}

// value reads a scalar that has exactly the type t.
func (d *decoder) value(n *node, what string, t ParamType) Value {
	fits := false
	switch t {
	case StringType:
		fits = n.kind == textKind
	case IntegerType:
		fits = n.kind == integerKind
	case NumberType:
		fits = n.kind == integerKind || n.kind == numberKind
	case BooleanType:
		fits = n.kind == booleanKind
	case ObjectType:
		fits = n.kind == mappingKind
	case ArrayType:
		fits = n.kind == listKind
	}
	if !fits {
		hint := ""
		if t == StringType && n.text != "" {
			hint = "put it in quotes: " + `"` + clip(n.text) + `"`
		}
		d.fail(n, hint, "%s must be %s, not %s", what, article(t), n.kind)
		return Value{}
	}
	text := n.text
	switch {
	case t == BooleanType:
		text = strings.ToLower(text)
	case t.composite():
		text = string(n.appendJSON(nil))
	}
	v, reason := parseText(t, text)
	if reason != "" {
		d.fail(n, "", "%s: %s", what, reason)
	}
	return v
}
