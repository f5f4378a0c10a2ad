package catalog

import (
	"encoding/json"
	"strings"
	"testing"
)

// A member of the result is a part of a name when it is a short text or a number, and no value of it leads outside.
func TestResultInAKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, value, want, problem string }{
		{"${result.out}/${id}.json", `"b"`, "b/ID.json", ""},
		{"${result.out}.json", `"b/c"`, "b/c.json", ""},
		{"${result.out}.json", `"ä b"`, "ä b.json", ""},
		{"${result.out}.json", `7`, "7.json", ""},
		{"${result.out}.json", `-1.5e3`, "-1.5e3.json", ""},
		{"${result.out}.json", `true`, "true.json", ""},
		{"${result.out}-${result.out}", `"x"`, "x-x", ""},
		{"${result.out}/${params.p}", `"${id}"`, "${id}/P", ""}, // what a value has is no reference
		{"${result.out}/${params.p}", `"${result.out}"`, "${result.out}/P", ""},
		{"${result.other}/${id}", `"b"`, "", `no member "other"`},
		{"${result.out}/${id}", `null`, "", `no member "out"`},
		{"${result.out}/${id}", `""`, "", "is empty"},
		{"${result.out}/${id}", `{"a": 1}`, "", "neither a text nor a number"},
		{"${result.out}/${id}", `["a"]`, "", "neither a text nor a number"},
		{"${result.out}/${id}", `"../x"`, "", "would lead outside"},
		{"a/${result.out}", `".."`, "", "would lead outside"},
		{"a${result.out}", `"/../../etc/passwd"`, "", "would lead outside"},
		{"${result.out}/${id}", `"."`, "", "would lead outside"},
		{"${result.out}/${id}", `"/etc"`, "", "would lead outside"},
		{"${result.out}/${id}", `"a//b"`, "", "an empty part"},
		{"${result.out}/${id}", `"a\\b"`, "", `has a \`},
		{"${result.out}/${id}", `"a\u0000b"`, "", "no name has"},
		{"${result.out}/${id}", `"a\nb"`, "", "no name has"},
		{"${result.out}/${id}", `"a\u0085b"`, "", "no name has"},
		{"${result.out}/${id}", `"` + strings.Repeat("b", 10<<10) + `"`, "", "longer than 200 bytes"},
		{"${result.out}/${id}", strings.Repeat("9", 10<<10), "", "longer than 200 bytes"},
	} {
		def, d := deliveryOf(t, `folder: {path: /srv, key: "`+c.target+`"}`)
		params, err := def.Bind(map[string][]string{"p": {"P"}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Name(Values{Params: params, ID: "ID", Result: func(name string) (json.RawMessage,
			bool,
		) {
			return json.RawMessage(c.value), name == "out"
		}})
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s of %.40s: %v, want %q", c.target, c.value, err, c.problem)
			}
		case err != nil || got != c.want:
			t.Errorf("%s of %s: %q, %v, want %q", c.target, c.value, got, err, c.want)
		}
	}
	_, d := deliveryOf(t, `folder: {path: /srv, key: "${result.out}/${artifact}", send: artifacts}`)
	v := Values{ID: "ID", Result: func(string) (json.RawMessage, bool) { return json.RawMessage(`"${artifact}"`), true }}
	if name, err := d.Artifact(v, "a.txt"); err != nil || name != "${artifact}/a.txt" {
		t.Errorf("an artifact is called %q, %v", name, err)
	}
	if _, err := d.Artifact(Values{ID: "ID"}, "a.txt"); err == nil {
		t.Error("without a result an artifact has a name")
	}
}
