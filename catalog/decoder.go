package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxProblems bounds what is reported of one file; later ones follow from the
// first as a rule.
const maxProblems = 50

// decoder turns nodes into values and notes every problem on its way, so that a
// person sees all mistakes of a file at once.
type decoder struct {
	file     string
	problems Problems
}

// fail notes a problem at a node.
func (d *decoder) fail(n *node, hint, format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, &Problem{
			File: d.file, Line: n.line, Column: n.column,
			Message: fmt.Sprintf(format, args...), Hint: hint,
		})
	}
}

func (d *decoder) position(n *node) Position {
	return Position{File: d.file, Line: n.line, Column: n.column}
}

// keySet are the keys of one kind of mapping.
type keySet struct {
	owner string   // what the mapping is, for messages
	known []string // in the order of the documentation
	other []string // keys that belong somewhere else
	where string   // the hint for those
}

// mapping calls set for each key that is known, once, in the order of the file.
func (d *decoder) mapping(n *node, keys keySet, set func(key string, k, value *node)) bool {
	if n.kind != mappingKind {
		d.fail(n, "", "%s must be a mapping, not %s", keys.owner, n.kind)
		return false
	}
	seen := map[string]*node{}
	for _, e := range n.entries {
		key := e.key.text
		if first := seen[key]; first != nil {
			d.fail(e.key, fmt.Sprintf("the first is in line %d", first.line), "the key %q is given twice", clip(key))
			continue
		}
		seen[key] = e.key
		switch {
		case slices.Contains(keys.known, key):
			set(key, e.key, e.value)
		case slices.Contains(keys.other, key):
			hint := keys.where
			if slices.Contains(keys.known, key+"s") {
				hint += fmt.Sprintf("; did you mean %q?", key+"s")
			}
			d.fail(e.key, hint, "%s has no key %q", keys.owner, key)
		default:
			hint := didYouMean(key, keys.known)
			if hint == "" {
				hint = "known here: " + strings.Join(keys.known, ", ")
			}
			d.fail(e.key, hint, "unknown key %q", clip(key))
		}
	}
	return true
}

// text reads a text; what names the value in messages.
func (d *decoder) text(n *node, what string) (string, bool) {
	if n.kind != textKind {
		hint := ""
		if n.text != "" {
			hint = fmt.Sprintf("put it in quotes: %q", clip(n.text))
		}
		d.fail(n, hint, "%s must be a text, not %s", what, n.kind)
		return "", false
	}
	return n.text, d.noNUL(n, what)
}

func (d *decoder) noNUL(n *node, what string) bool {
	if strings.Contains(n.text, "\x00") {
		d.fail(n, "", "%s has a NUL character", what)
		return false
	}
	return true
}

// written returns a text, number or boolean in its original form: 0644 stays "0644".
func (d *decoder) written(n *node, what string) (string, bool) {
	switch n.kind {
	case textKind, integerKind, numberKind, booleanKind:
		return n.text, d.noNUL(n, what)
	case mappingKind, listKind, nullKind:
	}
	hint := `an empty text is ""`
	if n.kind == mappingKind {
		hint = `put a text with ": " or in braces in quotes`
	}
	d.fail(n, hint, "%s must be a text, not %s", what, n.kind)
	return "", false
}

// word reads a text that must be one of a fixed list.
func (d *decoder) word(n *node, what string, words []string) (string, bool) {
	s, ok := d.text(n, what)
	if ok && !slices.Contains(words, s) {
		d.fail(n, allowed(s, words), "%s cannot be %q", what, clip(s))
		ok = false
	}
	return s, ok
}

func (d *decoder) boolean(n *node, what string) bool {
	if n.kind != booleanKind {
		d.fail(n, "write true or false", "%s must be a boolean, not %s", what, n.describe())
		return false
	}
	return strings.EqualFold(n.text, "true")
}

// integer reads a decimal integer within ±[MaxInteger].
func (d *decoder) integer(n *node, what string) (int64, bool) {
	if n.kind != integerKind {
		d.fail(n, "", "%s must be an integer, not %s", what, n.describe())
		return 0, false
	}
	v, reason := parseInteger(n.text)
	if reason != "" {
		d.fail(n, "write a plain decimal number", "%s: %s", what, reason)
		return 0, false
	}
	return v.integer, true
}

// list reads a list with at least one element.
func (d *decoder) list(n *node, what string) []*node {
	switch {
	case n.kind != listKind:
		d.fail(n, "write [A, B] or lines that begin with -", "%s must be a list, not %s", what, n.kind)
	case len(n.elements) == 0:
		d.fail(n, "", "%s is an empty list", what)
	}
	return n.elements
}

// duration reads a time of more than 0 and at most the given one.
func (d *decoder) duration(n *node, key string, most time.Duration, without string) time.Duration {
	var length time.Duration
	var ok bool
	if n.kind == textKind {
		length, ok = parseDuration(n.text)
	}
	switch {
	case !ok && durationForm.MatchString(n.text):
		d.fail(n, without, "%s cannot be %q: it is longer than %dh", key, clip(n.text), int(most.Hours()))
	case !ok:
		d.fail(n, "whole numbers with a unit, such as 500ms, 10s or 1m30s",
			"%s cannot be %s, which is not a duration", key, n.describe())
	case length < 1 || length > most:
		d.fail(n, without, "%s cannot be %q: it must be more than 0 and at most %dh", key, clip(n.text), int(most.Hours()))
	}
	return length
}

// names reads a list of texts without doubles; what names one of them in messages.
func (d *decoder) names(n *node, key, what, hint string, valid func(string) bool) []string {
	var list []string
	for _, e := range d.list(n, key) {
		s, ok := d.text(e, "a "+what)
		switch {
		case !ok:
		case !valid(s):
			d.fail(e, hint, "a %s cannot be %q", what, clip(s))
		case slices.Contains(list, s):
			d.fail(e, "", "the %s %q is given twice", what, s)
		}
		list = append(list, s)
	}
	return list
}

// wordForm is the form of a word. Its bound is no part of the expression: {0,126} makes an expression so large that
// compiling it delays the start of every command.
type wordForm struct {
	all     *regexp.Regexp
	longest int // in characters
}

func words(expression string, longest int) wordForm {
	return wordForm{regexp.MustCompile(`^` + expression + `$`), longest}
}

// MatchString reports whether a text has the form.
func (w wordForm) MatchString(s string) bool {
	return utf8.RuneCountInString(s) <= w.longest && w.all.MatchString(s)
}
