package catalog

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/jobdir/jobdir/catalog/condition"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Values are what references are replaced by.
type Values struct {
	Params Params
	ID     string // of the operation
	Item   string // name of the item; "" where there is none
	// Steps are those of the operation, whose outputs may be used; nil where there are none.
	Steps []steps.Step
	// Result gives members of what the work has returned, as JSON; nil where there is none.
	Result func(name string) (json.RawMessage, bool)
}

func (v Values) reference(ref string) string {
	switch ref {
	case "id":
		return v.ID
	case "item":
		return v.Item
	}
	if strings.HasPrefix(ref, condition.StepsPrefix) {
		return v.output(ref)
	}
	return v.Params.Get(strings.TrimPrefix(ref, "params."))
}

// Expand replaces ${params.NAME}, ${steps.NAME.outputs.NAME}, ${item} and ${id} in s, each once: references
// inside a value stay as they are. Any other "${" is left alone.
func Expand(s string, v Values) string {
	if !strings.Contains(s, "${") {
		return s
	}
	return replace(s, v.reference)
}

// replace replaces the references in a text.
func replace(s string, by func(ref string) string) string {
	var b strings.Builder
	for p := range pieces(s) {
		b.WriteString(p.literal)
		if p.ref != "" {
			b.WriteString(by(p.ref))
		}
	}
	return b.String()
}

// firstReference returns the first reference in a text, "" if there is none.
func firstReference(s string) string {
	for p := range pieces(s) {
		if p.ref != "" {
			return p.ref
		}
	}
	return ""
}

// refers reports whether a text has a reference.
func refers(s string) bool { return firstReference(s) != "" }

// piece is a part of a string: literal text, or a reference without ${ and }.
type piece struct{ literal, ref string }

// pieces cuts a string into literal text and references.
func pieces(s string) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		start := 0
		for at := 0; at < len(s); {
			ref := referenceAt(s[at:])
			if ref == "" {
				at++
				continue
			}
			if start < at && !yield(piece{literal: s[start:at]}) || !yield(piece{ref: ref}) {
				return
			}
			at += len("${}") + len(ref)
			start = at
		}
		if start < len(s) {
			yield(piece{literal: s[start:]})
		}
	}
}

// referenceAt gives the reference with which s begins, or "". Everything of the
// form ${params.…} or ${steps.…} on one line counts, so that a misspelt name is found.
func referenceAt(s string) string {
	rest, ok := strings.CutPrefix(s, "${")
	if !ok {
		return ""
	}
	end := strings.IndexAny(rest, "}{$\n")
	if end < 0 || rest[end] != '}' {
		return ""
	}
	ref := rest[:end]
	if ref == "id" || ref == "item" || strings.HasPrefix(ref, "params.") || strings.HasPrefix(ref, condition.StepsPrefix) {
		return ref
	}
	return ""
}

// maxReferences bounds what one string can grow to: 64 values of [MaxString].
const maxReferences = 64

// output returns an output of a step as text: a text verbatim, "" for null and for a missing output, any
// other value as JSON.
func (v Values) output(ref string) string {
	step, name, _ := condition.Output(ref)
	s := steps.Find(v.Steps, step)
	if s == nil || s.Outputs[name] == nil {
		return ""
	}
	return plainText(s.Outputs[name])
}

// plainText returns a JSON text without its quotes, "" for null, and any other value as JSON.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
