package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

//go:generate go test -count=1 -run TestKeysAreDocumented . -update

// key is a row of a table of keys. The parser, its hints, the JSON Schema and docs/keys.md are made from the tables: a
// new key of a job is a row of [jobKeys] with its reader, a field of [Definition], and, if clients see it, a member of
// api.Job that [Definition.Describe] sets.
type key struct {
	name string
	in   scope
	help string // what it means, in sentences
	// otherwise is what happens without the key, where that is no value of the key.
	otherwise string
	form
	stepHelp string // what it means in a step, if that is different
}

// row is a row of the table of [jobKeys].
func row(name string, in scope, otherwise string, f form, help string) key {
	return key{name: name, in: in, otherwise: otherwise, form: f, help: help}
}

// sub is a row of another table.
func sub(name, otherwise string, f form, help string) key { return row(name, 0, otherwise, f, help) }

func (k key) step(help string) key {
	k.stepHelp = help
	return k
}

// scope is where a key may be. The keys of other mappings have none.
type scope int

const (
	inJob  scope = 1 << iota
	inStep       // a step that has work
	inGate       // a step without work, which only waits for a person
	// ofCommand is set beside the others: the key has a meaning only for commands, and not with handler.
	ofCommand
	inBoth = inJob | inStep
)

// form is a kind of value.
type form struct {
	what   string                                            // names it in docs/keys.md
	preset string                                            // the default, as JSON; "" if there is none
	schema string                                            // members of the JSON Schema, without description and default
	keys   table                                             // of a mapping with fixed keys, whose schema has only what is beside them
	list   string                                            // members of the schema of a list of such mappings
	short  string                                            // a word that replaces the mapping
	read   func(j *jobDecoder, n *yamlfile.Node, key string) // nil if it is read later, with other keys
	clear  func(*Definition)                                 // sets the default
}

// table has the keys of one kind of mapping, in the order of the documentation.
type table []key

func (t table) row(name string, in scope) *key {
	return &t[slices.IndexFunc(t, func(k key) bool { return k.name == name && k.in&in == in })]
}

// set returns the keys for one scope; those of another scope are refused with the hint where.
func (t table) set(owner string, in scope, where string) yamlfile.Keys {
	set := yamlfile.Keys{Owner: owner, Where: where}
	for _, k := range t {
		if k.in&in == in {
			set.Known = append(set.Known, k.name)
		} else {
			set.Other = append(set.Other, k.name)
		}
	}
	return set
}

func (t table) clear(def *Definition) {
	for _, k := range t {
		if k.clear != nil {
			k.clear(def)
		}
	}
}

// decode reads a mapping with fixed keys.
func (j *jobDecoder) decode(n *yamlfile.Node, set yamlfile.Keys, t table, in scope, prefix string) bool {
	return j.Mapping(n, set, func(name string, k, n *yamlfile.Node) {
		j.at[prefix+name], j.values[prefix+name] = k, n
		if read := t.row(name, in).read; read != nil {
			read(j, n, name)
		}
	})
}

// field is where the value of a key is kept.
type field[T any] func(*Definition) *T

// custom is the form of a value with a reader of its own.
func custom(what, schema string, read func(j *jobDecoder, n *yamlfile.Node, key string)) form {
	return form{what: what, schema: schema, read: read}
}

// held is the form of a value with a reader of its own that returns it.
func held[T any](f field[T], what, schema string, read func(j *jobDecoder, n *yamlfile.Node, key string) T) form {
	return custom(what, schema, func(j *jobDecoder, n *yamlfile.Node, key string) { *f(j.def) = read(j, n, key) })
}

// boolean is true or false, false by default.
func boolean(f func(*Step) *bool) form {
	return form{
		what: "true or false", preset: "false", schema: `"type": "boolean"`,
		read: func(j *jobDecoder, n *yamlfile.Node, key string) { *f(j.step) = j.Boolean(n, key) },
	}
}

// duration is a time of more than 0 and at most the given one.
func duration(f field[time.Duration], most time.Duration, without string) form {
	return form{
		what: "duration", schema: `"$ref": "#/$defs/duration"`,
		clear: func(def *Definition) { *f(def) = 0 },
		read: func(j *jobDecoder, n *yamlfile.Node, key string) {
			*f(j.def) = j.Duration(n, key, most, "leave the key out "+without)
		},
	}
}

// word is one of several words; preset is the default, "" for none.
func word[T ~string](f field[T], preset T, words ...T) form {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	list := form{
		what: phrase.OneOf(texts), schema: `"enum": ["` + strings.Join(texts, `", "`) + `"]`,
		read: func(j *jobDecoder, n *yamlfile.Node, key string) {
			s, _ := j.Word(n, key, texts)
			*f(j.def) = T(s)
		},
	}
	if preset != "" {
		list.preset = strconv.Quote(string(preset))
		list.clear = func(def *Definition) { *f(def) = preset }
	}
	return list
}

// integer is an integer between two bounds; preset is the default, "" for none.
func integer(f field[int], least, most int64, preset, hint string) form {
	return form{
		what: fmt.Sprintf("integer, %d to %d", least, most), preset: preset,
		schema: fmt.Sprintf(`"type": "integer", "minimum": %d, "maximum": %d`, least, most),
		clear:  func(def *Definition) { *f(def), _ = strconv.Atoi(preset) },
		read: func(j *jobDecoder, n *yamlfile.Node, key string) {
			v, ok := j.Integer(n, key)
			if ok && (v < least || v > most) {
				j.Fail(n, hint, "%s cannot be %d", key, v)
			}
			*f(j.def) = int(v)
		},
	}
}

// number is a number between two bounds, both included.
func number(f field[float64], least, most, preset float64) form {
	return form{
		what: fmt.Sprintf("number, %g to %g", least, most), preset: fmt.Sprint(preset),
		schema: fmt.Sprintf(`"type": "number", "minimum": %g, "maximum": %g`, least, most),
		clear:  func(def *Definition) { *f(def) = preset },
		read: func(j *jobDecoder, n *yamlfile.Node, key string) {
			var err error
			v := f(j.def)
			*v, err = strconv.ParseFloat(strings.ReplaceAll(n.Text, "_", ""), 64)
			if (n.Kind != yamlfile.Integer && n.Kind != yamlfile.Number) || err != nil || *v < least || *v > most {
				j.Fail(n, "", "%s must be a number from %g to %g, not %s", key, least, most, n.Describe())
			}
		},
	}
}

// mapping has fixed keys. begin makes the value that they are part of; without it, their defaults hold for a job
// without the mapping too. end checks the keys against each other, if each is valid. rules are what the JSON Schema has
// beside the keys.
func mapping(keys table, rules string, begin func(*Definition), end func(j *jobDecoder, n *yamlfile.Node)) form {
	f := form{what: "mapping", keys: keys, schema: rules, clear: keys.clear}
	if begin != nil {
		f.clear = nil
	}
	f.read = func(j *jobDecoder, n *yamlfile.Node, name string) {
		if begin != nil {
			begin(j.def)
		}
		keys.clear(j.def)
		before := len(j.Problems)
		if j.decode(n, keys.set(name, 0, ""), keys, 0, name+".") && len(j.Problems) == before && end != nil {
			end(j, n)
		}
	}
	return f
}

// maxTimeout is longer than any work that one attempt can be expected to finish.
const maxTimeout = 365 * 24 * time.Hour

// maxGrace is far beyond what a program needs to end, and far below overflow.
const maxGrace = 24 * time.Hour
