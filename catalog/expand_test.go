package catalog

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	d := job(t, "run: [x]\nparams: {a: {type: string}, n: {type: integer}}\n")
	p, err := d.Bind(url.Values{"a": {"${params.n} ${id} $(rm) 'x'"}, "n": {"7"}})
	if err != nil {
		t.Fatal(err)
	}
	v := Values{Params: p, ID: "ID", Item: "-rf"}
	for in, want := range map[string]string{
		"":                       "",
		"plain $x ${HOME} $":     "plain $x ${HOME} $",
		"${params.n}":            "7",
		"<${params.n}${id}>":     "<7ID>",
		"${params.a}":            "${params.n} ${id} $(rm) 'x'",
		"${item}":                "-rf",
		"$${item}":               "$-rf",
		"${${item}}":             "${-rf}",
		"${params}":              "${params}",
		"<${steps.x.outputs.y}>": "<>",
		"${id":                   "${id",
		"${params.n":             "${params.n",
		"${ id }":                "${ id }",
		"${params.n\n}${item":    "${params.n\n}${item",
		"${result.x} ${params.":  "${result.x} ${params.",
	} {
		if got := Expand(in, v); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestCommandKeepsElements(t *testing.T) {
	t.Parallel()
	d := job(t, `run: [echo, "${params.a}", "--t=${params.a}", 0644, true]
params: {a: {type: string}}
env: {B: "${id}", A: "${params.a}"}
dir: /srv/${id}
`)
	p, err := d.Bind(url.Values{"a": {"x y; z\n$HOME"}})
	if err != nil {
		t.Fatal(err)
	}
	v := Values{Params: p, ID: "ID"}
	if got, want := d.Command(v), []string{
		"echo", "x y; z\n$HOME", "--t=x y; z\n$HOME", "0644",
		"true",
	}; !slices.Equal(got, want) {
		t.Errorf("command %q", got)
	}
	if got, want := d.Environ(v), []string{"B=ID", "A=x y; z\n$HOME"}; !slices.Equal(got, want) {
		t.Errorf("environment %q", got)
	}
	if got := d.Folder(v); got != "/srv/ID" {
		t.Errorf("folder %q", got)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "${id}", "a${params.a}b${item}", "${params.", "$${id}}", "${${id}"} {
		f.Add(s, "v", "${id}")
	}
	f.Fuzz(func(t *testing.T, s, id, item string) {
		var whole strings.Builder
		references := 0
		for p := range pieces(s) {
			if p.ref != "" {
				references++
				whole.WriteString("${" + p.ref + "}")
			} else {
				whole.WriteString(p.literal)
			}
		}
		if whole.String() != s {
			t.Errorf("the pieces of %q give %q", s, whole.String())
		}
		got := Expand(s, Values{ID: id, Item: item})
		if references == 0 && got != s {
			t.Errorf("%q without references became %q", s, got)
		}
		if limit := len(s) + references*(len(id)+len(item)); len(got) > limit {
			t.Errorf("%q became %q: a value was looked at again", s, got)
		}
	})
}
