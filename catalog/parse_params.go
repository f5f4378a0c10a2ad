package catalog

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

var paramName = words(`[A-Za-z][A-Za-z0-9_]*`, 63)

func readParams(j *jobDecoder, n *yamlfile.Node, _ string) {
	if n.Kind != yamlfile.Mapping {
		j.Fail(n, "write NAME: {type: string}", "params must be a mapping, not %s", n.Kind)
		return
	}
	for _, e := range n.Entries {
		name := e.Key.Text
		switch {
		case param.ReservedParam(name):
			j.Fail(e.Key, "the daemon reads a query parameter of this name itself", "a parameter cannot have the name %q", name)
		case !paramName.MatchString(name):
			j.Fail(e.Key, "letters, digits and _, a letter first, 63 characters at most",
				"a parameter cannot have the name %q", phrase.Clip(name))
		case j.def.Param(name) != nil:
			j.Fail(e.Key, "", "the parameter %q is given twice", name)
		case j.def.foldedParam(name) != "":
			j.Fail(e.Key, "commands find both as JOBDIR_PARAM_"+strings.ToUpper(name),
				"the parameters %q and %q differ by case alone",
				j.def.foldedParam(name), name)
		}
		j.def.Params = append(j.def.Params, (&paramDecoder{jobDecoder: j, at: map[string]*yamlfile.Node{}}).param(name, e.Key, e.Value))
	}
}

// paramDecoder decodes one parameter. at has the values of its keys.
type paramDecoder struct {
	*jobDecoder
	at map[string]*yamlfile.Node
}

// param decodes the rules of one parameter, then checks them against each other.
func (j *paramDecoder) param(name string, k, n *yamlfile.Node) param.Param {
	p := param.Param{Name: name}
	at := j.at
	if !j.Mapping(n, paramKeys.set("a parameter", 0, ""), func(key string, _, n *yamlfile.Node) { at[key] = n }) {
		return p
	}
	before := len(j.Problems)
	if t := at["type"]; t == nil {
		j.Fail(k, "it is "+phrase.OneOf(param.Types), "the parameter %q has no type", name)
	} else if s, ok := j.Word(t, "type", param.Types); ok {
		p.Type = param.Type(s)
	}
	if s := at["summary"]; s != nil {
		text, _ := j.Text(s, "summary")
		p.Summary = strings.TrimSpace(text)
	}
	if r := at["required"]; r != nil {
		p.Required = j.Boolean(r, "required")
	}
	if len(j.Problems) > before {
		return p
	}
	j.normalize(&p, at["normalize"])
	j.bounds(&p)
	j.enum(&p, at["enum"])
	j.pattern(&p, at["pattern"])
	if len(j.Problems) > before {
		return p // the default would be judged by rules that are wrong
	}
	for i, v := range p.Enum {
		rest := p
		rest.Enum = nil
		if same, _ := p.Normalized(v); same != v {
			j.Fail(at["enum"].Elements[i], "write it as normalize leaves it", "enum: no value can be %s", phrase.Quote(v.Text()))
		} else if reason := rest.Check(v); reason != "" {
			j.Fail(at["enum"].Elements[i], "", "enum: %s", reason)
		}
	}
	if d := at["default"]; d != nil {
		if p.Required {
			j.Fail(d, "leave out one of the two", "a required parameter cannot have a default")
		}
		p.Default = j.value(d, "default", p.Type)
		if !p.Default.IsZero() {
			if _, reason := p.Accept(p.Default); reason != "" {
				j.Fail(d, "", "default: %s", reason)
			}
		}
	}
	return p
}

func (j *paramDecoder) normalize(p *param.Param, n *yamlfile.Node) {
	if n == nil {
		return
	}
	if p.Type != param.StringType {
		j.Fail(n, "it is for strings", "normalize has no meaning for %s", param.Article(p.Type))
		return
	}
	for _, e := range j.List(n, "normalize") {
		s, ok := j.Word(e, "normalize", param.Normalizations)
		if ok && slices.Contains(p.Normalize, param.Normalize(s)) {
			j.Fail(e, "", "normalize has %q twice", s)
		}
		p.Normalize = append(p.Normalize, param.Normalize(s))
	}
}

func (j *paramDecoder) bounds(p *param.Param) {
	for key, into := range map[string]*param.Value{"minimum": &p.Minimum, "maximum": &p.Maximum} {
		n := j.at[key]
		if n == nil {
			continue
		}
		if p.Type != param.IntegerType && p.Type != param.NumberType {
			j.Fail(n, "it is for integers and numbers", "%s has no meaning for %s", key, param.Article(p.Type))
			continue
		}
		*into = j.value(n, key, p.Type)
	}
	if !p.Minimum.IsZero() && !p.Maximum.IsZero() && p.Minimum.Compare(p.Maximum) > 0 {
		j.Fail(j.at["minimum"], "", "the minimum %s is more than the maximum %s", p.Minimum.Text(), p.Maximum.Text())
	}
}

func (j *paramDecoder) enum(p *param.Param, n *yamlfile.Node) {
	if n == nil {
		return
	}
	if p.Type == param.BooleanType || p.Type.Composite() {
		j.Fail(n, "", "enum has no meaning for %s", param.Article(p.Type))
		return
	}
	for _, e := range j.List(n, "enum") {
		v := j.value(e, "enum", p.Type)
		if !v.IsZero() && slices.Contains(p.Enum, v) {
			j.Fail(e, "", "enum has %s twice", phrase.Quote(v.Text()))
		}
		p.Enum = append(p.Enum, v)
	}
}

func (j *paramDecoder) pattern(p *param.Param, n *yamlfile.Node) {
	if n == nil {
		return
	}
	s, ok := j.Text(n, "pattern")
	switch {
	case !ok:
		return
	case p.Type != param.StringType:
		j.Fail(n, "it is for strings", "pattern has no meaning for %s", param.Article(p.Type))
		return
	case s == "" || len(s) > param.MaxPattern:
		j.Fail(n, "", "pattern must have 1 to %d characters", param.MaxPattern)
		return
	}
	if err := p.SetPattern(s); err != nil {
		j.Fail(n, "see https://golang.org/s/re2syntax", "pattern: %s", err)
	}
}

// value reads a scalar that has exactly the type t.
func (j *jobDecoder) value(n *yamlfile.Node, what string, t param.Type) param.Value {
	fits := false
	switch t {
	case param.StringType:
		fits = n.Kind == yamlfile.Text
	case param.IntegerType:
		fits = n.Kind == yamlfile.Integer
	case param.NumberType:
		fits = n.Kind == yamlfile.Integer || n.Kind == yamlfile.Number
	case param.BooleanType:
		fits = n.Kind == yamlfile.Boolean
	case param.ObjectType:
		fits = n.Kind == yamlfile.Mapping
	case param.ArrayType:
		fits = n.Kind == yamlfile.List
	}
	if !fits {
		hint := ""
		if t == param.StringType && n.Text != "" {
			hint = "put it in quotes: " + `"` + phrase.Clip(n.Text) + `"`
		}
		j.Fail(n, hint, "%s must be %s, not %s", what, param.Article(t), n.Kind)
		return param.Value{}
	}
	text := n.Text
	switch {
	case t == param.BooleanType:
		text = strings.ToLower(text)
	case t.Composite():
		text = string(n.AppendJSON(nil))
	}
	v, reason := param.ParseText(t, text)
	if reason != "" {
		j.Fail(n, "", "%s: %s", what, reason)
	}
	return v
}
