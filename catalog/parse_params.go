package catalog

import (
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// paramKeys are those of a parameter. What a value can be depends on its type, so they are read together.
var paramKeys = table{
	sub("type", "it is required",
		custom("type", `"enum": ["string", "integer", "number", "boolean", "object", "array"]`, nil),
		"string (up to 64 KiB), integer (within ±9007199254740991), number (finite), boolean (true, false, 1 or 0), "+
			"object or array (any JSON, up to 64 KiB)."),
	sub("required", "", boolean(nil),
		"Whether the parameter must be given."),
	sub("default", "it stays empty",
		custom("value", `"type": ["string", "number", "boolean", "object", "array"]`, nil),
		"Value when it is not given."),
	sub("minimum", "", custom("number", `"type": "number"`, nil),
		"Smallest value of an integer or number."),
	sub("maximum", "", custom("number", `"type": "number"`, nil),
		"Largest value of an integer or number."),
	sub("enum", "",
		custom("list of values",
			`"type": "array", "minItems": 1, "uniqueItems": true, "items": {"type": ["string", "number"]}`, nil),
		"The values that are allowed."),
	sub("pattern", "", custom("expression", `"type": "string", "minLength": 1, "maxLength": 1000`, nil),
		"RE2 expression that the whole of a string must match."),
	sub("normalize", "",
		custom("list of trim, lowercase and drop_blank", `"type": "array", "minItems": 1, "uniqueItems": true, `+
			`"items": {"enum": ["trim", "lowercase", "drop_blank"]}`, nil),
		"What is done with a string, in this order, before it is checked: the result is what runs and what makes "+
			"operations equal. trim: no white space at its ends. lowercase: small letters. drop_blank: one of white space "+
			"alone counts as no value."),
	sub("summary", "", custom("text", `"type": "string"`, nil),
		"What the parameter is for, in a sentence."),
}

const paramName outbox.Expression = `^[A-Za-z][A-Za-z0-9_]{0,62}$`

func readParams(j *jobDecoder, n *yamlfile.Node, key string) {
	for _, e := range j.Pairs(n, key, "write NAME: {type: string}") {
		name := e.Key.Text
		folded := slices.IndexFunc(j.def.Params, func(p param.Param) bool { return strings.EqualFold(p.Name, name) })
		switch {
		case param.ReservedParam(name):
			j.Fail(e.Key, "the daemon reads a query parameter of this name itself", "a parameter cannot have the name %q", name)
		case !paramName.MatchString(name):
			j.Fail(e.Key, "letters, digits and _, a letter first, 63 characters at most",
				"a parameter cannot have the name %q", phrase.Clip(name))
		case j.def.Param(name) != nil:
			j.Fail(e.Key, "", "the parameter %q is given twice", name)
		case folded >= 0:
			j.Fail(e.Key, "commands find both as JOBDIR_PARAM_"+strings.ToUpper(name),
				"the parameters %q and %q differ by case alone", j.def.Params[folded].Name, name)
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
		p.Summary = readSummary(j.jobDecoder, s, "summary")
	}
	if r := at["required"]; r != nil {
		p.Required = j.Boolean(r, "required")
	}
	if len(j.Problems) > before {
		return p
	}
	j.rules(&p)
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

// rules decodes the rules that have a meaning for some types alone.
func (j *paramDecoder) rules(p *param.Param) {
	for _, rule := range []struct {
		key   string
		read  func(p *param.Param, n *yamlfile.Node)
		hint  string
		types []param.Type // that it has a meaning for
	}{
		{"normalize", j.normalize, "it is for strings", []param.Type{param.StringType}},
		{"minimum", j.minimum, "it is for integers and numbers", []param.Type{param.IntegerType, param.NumberType}},
		{"maximum", j.maximum, "it is for integers and numbers", []param.Type{param.IntegerType, param.NumberType}},
		{"enum", j.enum, "", []param.Type{param.StringType, param.IntegerType, param.NumberType}},
		{"pattern", j.pattern, "it is for strings", []param.Type{param.StringType}},
	} {
		switch n := j.at[rule.key]; {
		case n == nil:
		case slices.Contains(rule.types, p.Type):
			rule.read(p, n)
		default:
			j.Fail(n, rule.hint, "%s has no meaning for %s", rule.key, param.Article(p.Type))
		}
	}
	if !p.Minimum.IsZero() && !p.Maximum.IsZero() && p.Minimum.Compare(p.Maximum) > 0 {
		j.Fail(j.at["minimum"], "", "the minimum %s is more than the maximum %s", p.Minimum.Text(), p.Maximum.Text())
	}
}

func (j *paramDecoder) normalize(p *param.Param, n *yamlfile.Node) {
	for _, e := range j.List(n, "normalize") {
		s, ok := j.Word(e, "normalize", param.Normalizations)
		if ok && slices.Contains(p.Normalize, param.Normalize(s)) {
			j.Fail(e, "", "normalize has %q twice", s)
		}
		p.Normalize = append(p.Normalize, param.Normalize(s))
	}
}

func (j *paramDecoder) minimum(p *param.Param, n *yamlfile.Node) {
	p.Minimum = j.value(n, "minimum", p.Type)
}

func (j *paramDecoder) maximum(p *param.Param, n *yamlfile.Node) {
	p.Maximum = j.value(n, "maximum", p.Type)
}

func (j *paramDecoder) enum(p *param.Param, n *yamlfile.Node) {
	for _, e := range j.List(n, "enum") {
		v := j.value(e, "enum", p.Type)
		if !v.IsZero() && slices.Contains(p.Enum, v) {
			j.Fail(e, "", "enum has %s twice", phrase.Quote(v.Text()))
		}
		p.Enum = append(p.Enum, v)
	}
}

func (j *paramDecoder) pattern(p *param.Param, n *yamlfile.Node) {
	if expression := j.expression(n, "pattern"); expression != nil {
		if err := p.SetPattern(expression); err != nil {
			j.Fail(n, expressionHint, "pattern: %s", err)
		}
	}
}

// value reads a scalar that has exactly the type t.
func (j *jobDecoder) value(n *yamlfile.Node, what string, t param.Type) param.Value {
	fits := map[param.Type]bool{
		param.StringType:  n.Kind == yamlfile.Text,
		param.IntegerType: n.Kind == yamlfile.Integer,
		param.NumberType:  n.Kind == yamlfile.Integer || n.Kind == yamlfile.Number,
		param.BooleanType: n.Kind == yamlfile.Boolean,
		param.ObjectType:  n.Kind == yamlfile.Mapping,
		param.ArrayType:   n.Kind == yamlfile.List,
	}
	if !fits[t] {
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
		text = n.JSON()
	}
	v, reason := param.ParseText(t, text)
	if reason != "" {
		j.Fail(n, "", "%s: %s", what, reason)
	}
	return v
}
