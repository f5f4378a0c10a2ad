package catalog

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/catalog/param"
)

// job parses one job of group g and name n.
func job(tb testing.TB, body string) *Definition {
	tb.Helper()
	defs, err := Parse("job.yaml", []byte("group: g\nname: n\n"+body))
	if err != nil || len(defs) != 1 {
		tb.Fatalf("parse: %d definitions, %v", len(defs), err)
	}
	return defs[0]
}

const bound = `run: [x]
params:
  title: {type: string, required: true, pattern: "[a-z]+|"}
  files: {type: integer, default: 20, minimum: 0, maximum: 100}
  ratio: {type: number}
  dry: {type: boolean, default: false}
  mode: {type: string, enum: [fast, slow]}
  note: {type: string}
`

func TestBindText(t *testing.T) {
	t.Parallel()
	d := job(t, bound)
	for _, c := range []struct{ name, query, json, err string }{
		{"defaults", "title=a", `{"dry":false,"files":20,"title":"a"}`, ""},
		{
			"all", "title=a&files=7&ratio=1e2&dry=1&mode=slow&note=x%20y",
			`{"dry":true,"files":7,"mode":"slow","note":"x y","ratio":100,"title":"a"}`, "",
		},
		{"empty text is a value", "title=", `{"dry":false,"files":20,"title":""}`, ""},
		{"minus zero", "title=a&files=-0&ratio=-0.0", `{"dry":false,"files":0,"ratio":0,"title":"a"}`, ""},
		{"small number", "title=a&ratio=0.000000123", `{"dry":false,"files":20,"ratio":1.23e-7,"title":"a"}`, ""},
		{"large number", "title=a&ratio=1e21", `{"dry":false,"files":20,"ratio":1e+21,"title":"a"}`, ""},
		{"escapes", "title=a&note=%22%5C%0A%01%3C%E2%80%A8", `{"dry":false,"files":20,"note":"\"\\\n\u0001<` + "\u2028" +
			`","title":"a"}`, ""},
		{"missing", "files=1", "", "missing parameter 'title'"},
		{"unknown", "title=a&fils=1", "", `unknown parameter 'fils' (did you mean "files"?)`},
		{
			"reserved is unknown", "title=a&format=stream", "",
			"unknown parameter 'format' (known here: title, files, ratio, dry, mode, note)",
		},
		{"twice", "title=a&title=b", "", "parameter 'title': it is given 2 times"},
		{"no integer", "title=a&files=abc", "", "parameter 'files': 'abc' is not an integer"},
		{"exponent", "title=a&files=1e1", "", "parameter 'files': '1e1' is not an integer"},
		{"leading zero", "title=a&files=007", "", "parameter 'files': '007' is not an integer"},
		{"plus", "title=a&files=%2B5", "", "parameter 'files': '+5' is not an integer"},
		{"empty integer", "title=a&files=", "", "parameter 'files': '' is not an integer"},
		{
			"too large", "title=a&files=9007199254740992", "",
			"parameter 'files': '9007199254740992' is beyond the integers from -9007199254740991 to 9007199254740991",
		},
		{"minimum", "title=a&files=-1", "", "parameter 'files': -1 is less than the minimum 0"},
		{"maximum", "title=a&files=101", "", "parameter 'files': 101 is more than the maximum 100"},
		{"not finite", "title=a&ratio=1e999", "", "parameter 'ratio': '1e999' is too large a number"},
		{"infinity", "title=a&ratio=Inf", "", "parameter 'ratio': 'Inf' is not a number"},
		{"boolean", "title=a&dry=yes", "", "parameter 'dry': 'yes' is not a boolean (true, false, 1 or 0)"},
		{"enum", "title=a&mode=medium", "", "parameter 'mode': 'medium' is not one of fast, slow"},
		{"pattern is whole", "title=a1", "", "parameter 'title': 'a1' does not match the pattern [a-z]+|"},
		{"pattern and line feed", "title=a%0A", "", `parameter 'title': 'a\n' does not match the pattern [a-z]+|`},
		{"NUL", "title=a&note=a%00", "", "parameter 'note': the value has a NUL character"},
		{"UTF-8", "title=a&note=%FF", "", "parameter 'note': the value is not UTF-8 text"},
		{
			"length", "title=a&note=" + strings.Repeat("x", param.MaxString+1), "",
			"parameter 'note': the value is longer than 64KiB",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			values, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			p, err := d.Bind(values)
			checkBound(t, d, p, err, c.json, c.err)
		})
	}
}

// checkBound compares the outcome, and that the JSON binds to the same again.
func checkBound(t *testing.T, d *Definition, p Params, err error, wantJSON, wantErr string) {
	t.Helper()
	if wantErr != "" {
		var pe *ParamError
		if err == nil || err.Error() != wantErr || !errors.As(err, &pe) {
			t.Errorf("error %v, want %s", err, wantErr)
		}
		return
	}
	if err != nil || string(p.JSON()) != wantJSON {
		t.Fatalf("got %s, %v\nwant %s", p.JSON(), err, wantJSON)
	}
	again, err := d.BindJSON(p.JSON())
	if err != nil || !slices.Equal(again.bound, p.bound) {
		t.Errorf("bound again: %s, %v", again.JSON(), err)
	}
}

func TestBindJSON(t *testing.T) {
	t.Parallel()
	d := job(t, bound)
	for _, c := range []struct{ name, body, json, err string }{
		{"types", `{"title":"a","files":7,"ratio":2.50,"dry":true}`, `{"dry":true,"files":7,"ratio":2.5,"title":"a"}`, ""},
		{"null is not given", `{"title":"a","files":null,"note":null}`, `{"dry":false,"files":20,"title":"a"}`, ""},
		{"written U+FFFD", `{"title":"a","note":"` + "\ufffd" + `\ufffd"}`, `{"dry":false,"files":20,"note":"` +
			"\ufffd\ufffd" + `","title":"a"}`, ""},
		{"surrogate pair", `{"title":"a","note":"\ud83d\ude00"}`, `{"dry":false,"files":20,"note":"😀","title":"a"}`, ""},
		{"half a pair", `{"title":"a","note":"\ud83d"}`, "", "parameter 'note': the string has half a surrogate pair"},
		{"nothing", ``, "", "missing parameter 'title'"},
		{"null", ` null `, "", "missing parameter 'title'"},
		{"text for integer", `{"title":"a","files":"5"}`, "", `parameter 'files': "5" is a text, not an integer`},
		{"integer for text", `{"title":5}`, "", "parameter 'title': '5' is not a string"},
		{"fraction", `{"title":"a","files":5.5}`, "", "parameter 'files': '5.5' is not an integer"},
		{"boolean for number", `{"title":"a","ratio":true}`, "", "parameter 'ratio': 'true' is not a number"},
		{"number for boolean", `{"title":"a","dry":1}`, "", "parameter 'dry': '1' is not a boolean"},
		{"object", `{"title":{}}`, "", "parameter 'title': '{}' is not a string"},
		{"twice", `{"title":"a","title":"b"}`, "", "parameter 'title': it is given twice"},
		{"unknown", `{"title":"a","x":null}`, "", "unknown parameter 'x' (known here: title, files, ratio, dry, mode, note)"},
		{"list", `[]`, "", "the parameters are not a JSON object: it begins with '['"},
		{"two", `{"title":"a"} {}`, "", "the parameters are not a JSON object: text follows it"},
		{"cut", `{"title":"a"`, "", "the parameters are not a JSON object: it is cut off"},
		{"cut in a value", `{"title":`, "", "the parameters are not a JSON object: it is cut off"},
		{"UTF-8", "{\"title\":\"\xff\"}", "", "the parameters are not a JSON object: the text is not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := d.BindJSON([]byte(c.body))
			checkBound(t, d, p, err, c.json, c.err)
		})
	}
}

func TestParamsReading(t *testing.T) {
	t.Parallel()
	p, err := job(t, bound).Bind(url.Values{"title": {"a"}, "ratio": {"0.10"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"JOBDIR_PARAM_TITLE=a", "JOBDIR_PARAM_FILES=20", "JOBDIR_PARAM_RATIO=0.1", "JOBDIR_PARAM_DRY=false"}
	if got := p.Environ(); !slices.Equal(got, want) {
		t.Errorf("environment %q", got)
	}
	var names []string
	for name, v := range p.All() {
		names = append(names, name+" "+string(v.Kind))
	}
	if !slices.Equal(names, []string{"title string", "files integer", "ratio number", "dry boolean"}) {
		t.Errorf("order %q", names)
	}
	if v, ok := p.Lookup("files"); !ok || v.Any() != int64(20) || p.Get("ratio") != "0.1" || p.Get("note") != "" {
		t.Errorf("values %v %q", v.Any(), p.Get("ratio"))
	}
}

const normalizing = `run: [x]
params:
  title: {type: string, normalize: [trim, lowercase, drop_blank], pattern: "[a-z ]+"}
  name: {type: string, required: true, normalize: [drop_blank]}
  mode: {type: string, default: " Fast ", normalize: [lowercase, trim], enum: [fast, slow]}
  note: {type: string, default: x, normalize: [drop_blank]}
  options: {type: object}
  files: {type: array}
`

func TestNormalize(t *testing.T) {
	t.Parallel()
	d := job(t, normalizing)
	for _, c := range []struct{ given, want, err string }{
		{`{"name":"n"}`, `{"mode":"fast","name":"n","note":"x"}`, ""},
		{`{"name":" n ","title":"  A b\t"}`, `{"mode":"fast","name":" n ","note":"x","title":"a b"}`, ""},
		{`{"name":"n","title":"\u2003 "}`, `{"mode":"fast","name":"n","note":"x"}`, ""},
		{`{"name":"n","title":null,"note":null}`, `{"mode":"fast","name":"n","note":"x"}`, ""},
		{`{"name":"n","note":" ","mode":"SLOW"}`, `{"mode":"slow","name":"n"}`, ""}, // defaults come first
		{
			`{"name":"n","options":{"b":1.0,"a":[null,-0]},"files":[ ]}`,
			`{"files":[],"mode":"fast","name":"n","note":"x","options":{"a":[null,0],"b":1}}`, "",
		},
		{`{"name":" "}`, "", "missing parameter 'name'"},
		{`{"name":"n","title":"A1"}`, "", "parameter 'title': 'a1' does not match"},
		{`{"name":"n","mode":" "}`, "", "parameter 'mode': '' is not one of fast, slow"},
		{`{"name":"n","options":[]}`, "", "parameter 'options': '[]' is not an object of JSON"},
		{`{"name":"n","options":"{}"}`, "", "parameter 'options': \"{}\" is a text, not an object"},
		{`{"name":"n","files":{}}`, "", "parameter 'files': '{}' is not an array of JSON"},
		{`{"name":"n","options":{"a":1,"a":2}}`, "", "parameter 'options': the name 'a' is given twice"},
		{
			`{"name":"n","files":["` + strings.Repeat("x", param.MaxString) + `"]}`, "",
			"parameter 'files': the value is longer than 64KiB",
		},
	} {
		p, err := d.BindJSON([]byte(c.given))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s: %v, want %s", c.given, err, c.err)
			}
			continue
		}
		if err != nil || string(p.JSON()) != c.want {
			t.Errorf("%s:\n%s (%v), want\n%s", c.given, p.JSON(), err, c.want)
			continue
		}
		kept, err := d.BindRecorded(p.JSON())
		if err != nil || string(kept.JSON()) != c.want {
			t.Errorf("%s: kept as %s (%v)", c.given, kept.JSON(), err)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	const params = "run: [x]\nparams: {a: {type: string}, b: {type: integer, default: 7}, c: {type: boolean}}\n"
	for body, want := range map[string]string{
		params:                            `{"a":"x","b":7}`,
		params + "unique: {by: [b, a]}\n": `{"a":"x","b":7}`,
		params + "unique: {by: [b]}\n":    `{"b":7}`,
		params + "unique: {by: [c]}\n":    `{}`,
	} {
		d := job(t, body)
		p, err := d.BindJSON([]byte(`{"a":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Identity(p); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
