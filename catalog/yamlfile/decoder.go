// Package yamlfile reads YAML files for people: [Split] cuts a file into its documents, [Parse] turns one into nodes
// that keep their place and their text, and a [Decoder] turns nodes into values and notes each [Problem] with file,
// line, column and a hint. It refuses what job files do not use, and is bounded in time whatever the text is. It does
// not know which keys a job has.
package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

// MaxProblems bounds what is reported of one file; later ones follow from the
// first as a rule.
const MaxProblems = 50

// Decoder turns nodes into values and notes every problem on its way, so that a
// person sees all mistakes of a file at once.
type Decoder struct {
	File     string
	Problems Problems
}

// Fail notes a problem at a node.
func (d *Decoder) Fail(n *Node, hint, format string, args ...any) {
	if len(d.Problems) < MaxProblems {
		d.Problems = append(d.Problems, d.Position(n).Problem(hint, format, args...))
	}
}

// Position returns the line and column of a node.
func (d *Decoder) Position(n *Node) Position {
	return Position{File: d.File, Line: n.Line, Column: n.Column}
}

// Keys are the keys of one kind of mapping.
type Keys struct {
	Owner string   // what the mapping is, for messages
	Known []string // in the order of the documentation
	Other []string // keys that belong somewhere else
	Where string   // the hint for those
}

// Mapping calls set for each key that is known, once, in the order of the file.
func (d *Decoder) Mapping(n *Node, keys Keys, set func(key string, k, value *Node)) bool {
	if n.Kind != Mapping {
		d.Fail(n, "", "%s must be a mapping, not %s", keys.Owner, n.Kind)
		return false
	}
	seen := map[string]*Node{}
	for _, e := range n.Entries {
		key := e.Key.Text
		if first := seen[key]; first != nil {
			d.Fail(e.Key, fmt.Sprintf("the first is in line %d", first.Line), "the key %q is given twice", phrase.Clip(key))
			continue
		}
		seen[key] = e.Key
		switch {
		case slices.Contains(keys.Known, key):
			set(key, e.Key, e.Value)
		case slices.Contains(keys.Other, key):
			hint := keys.Where
			if slices.Contains(keys.Known, key+"s") {
				hint += fmt.Sprintf("; did you mean %q?", key+"s")
			}
			d.Fail(e.Key, hint, "%s has no key %q", keys.Owner, key)
		default:
			hint := cmp.Or(phrase.DidYouMean(key, keys.Known), "known here: "+strings.Join(keys.Known, ", "))
			d.Fail(e.Key, hint, "unknown key %q", phrase.Clip(key))
		}
	}
	return true
}

// Text reads a text; what names the value in messages.
func (d *Decoder) Text(n *Node, what string) (string, bool) {
	if n.Kind != Text {
		hint := ""
		if n.Text != "" {
			hint = fmt.Sprintf("put it in quotes: %q", phrase.Clip(n.Text))
		}
		d.Fail(n, hint, "%s must be a text, not %s", what, n.Kind)
		return "", false
	}
	return n.Text, d.NoNUL(n, what)
}

// NoNUL reports whether the text of a node is without NUL characters, which no system call accepts, and adds a problem
// if it is not. what names the text.
func (d *Decoder) NoNUL(n *Node, what string) bool {
	if strings.Contains(n.Text, "\x00") {
		d.Fail(n, "", "%s has a NUL character", what)
		return false
	}
	return true
}

// Written returns a text, number or boolean in its original form: 0644 stays "0644".
func (d *Decoder) Written(n *Node, what string) (string, bool) {
	switch n.Kind {
	case Text, Integer, Number, Boolean:
		return n.Text, d.NoNUL(n, what)
	case Mapping, List, Null:
	}
	hint := `an empty text is ""`
	if n.Kind == Mapping {
		hint = `put a text with ": " or in braces in quotes`
	}
	d.Fail(n, hint, "%s must be a text, not %s", what, n.Kind)
	return "", false
}

// Word reads a text that must be one of a fixed list.
func (d *Decoder) Word(n *Node, what string, words []string) (string, bool) {
	s, ok := d.Text(n, what)
	if ok && !slices.Contains(words, s) {
		d.Fail(n, phrase.Allowed(s, words), "%s cannot be %q", what, phrase.Clip(s))
		ok = false
	}
	return s, ok
}

// Boolean returns the value of true or false. Anything else is a problem, and false.
func (d *Decoder) Boolean(n *Node, what string) bool {
	if n.Kind != Boolean {
		d.Fail(n, "write true or false", "%s must be a boolean, not %s", what, n.Describe())
		return false
	}
	return strings.EqualFold(n.Text, "true")
}

// Integer reads a decimal integer within ±[MaxInteger].
func (d *Decoder) Integer(n *Node, what string) (int64, bool) {
	if n.Kind != Integer {
		d.Fail(n, "", "%s must be an integer, not %s", what, n.Describe())
		return 0, false
	}
	v, reason := param.ParseInteger(n.Text)
	if reason != "" {
		d.Fail(n, "write a plain decimal number", "%s: %s", what, reason)
		return 0, false
	}
	return v.Integer(), true
}

// List reads a list with at least one element.
func (d *Decoder) List(n *Node, what string) []*Node {
	switch {
	case n.Kind != List:
		d.Fail(n, "write [A, B] or lines that begin with -", "%s must be a list, not %s", what, n.Kind)
	case len(n.Elements) == 0:
		d.Fail(n, "", "%s is an empty list", what)
	}
	return n.Elements
}

// Texts reads a list of texts, and returns their nodes too. A text that is there twice is a problem, which twice
// describes, and left out; what names one of them in messages.
func (d *Decoder) Texts(n *Node, key, what, twice string) (texts []string, at []*Node) {
	for _, e := range d.List(n, key) {
		s, ok := d.Text(e, what)
		switch {
		case !ok:
		case slices.Contains(texts, s):
			d.Fail(e, "", twice, phrase.Clip(s))
		default:
			texts, at = append(texts, s), append(at, e)
		}
	}
	return texts, at
}

// Duration reads a time of more than 0 and at most the given one.
func (d *Decoder) Duration(n *Node, key string, most time.Duration, without string) time.Duration {
	var length time.Duration
	var ok bool
	if n.Kind == Text {
		length, ok = param.ParseDuration(n.Text)
	}
	switch {
	case !ok && param.TooLong(n.Text):
		d.Fail(n, without, "%s cannot be %q: it is longer than %dh", key, phrase.Clip(n.Text), int(most.Hours()))
	case !ok:
		d.Fail(n, "whole numbers with a unit, such as 500ms, 10s or 1m30s",
			"%s cannot be %s, which is not a duration", key, n.Describe())
	case length < 1 || length > most:
		d.Fail(n, without, "%s cannot be %q: it must be more than 0 and at most %dh", key, phrase.Clip(n.Text), int(most.Hours()))
	}
	return length
}

// Pairs returns the entries of a mapping whose names are free.
func (d *Decoder) Pairs(n *Node, what, hint string) []Entry {
	if n.Kind != Mapping {
		d.Fail(n, hint, "%s must be a mapping, not %s", what, n.Kind)
	}
	return n.Entries
}

// Names reads a list of texts without doubles; what names one of them in messages.
func (d *Decoder) Names(n *Node, key, what, hint string, valid func(string) bool) []string {
	list, at := d.Texts(n, key, "a "+what, "the "+what+" %q is given twice")
	for i, s := range list {
		if !valid(s) {
			d.Fail(at[i], hint, "a %s cannot be %q", what, phrase.Clip(s))
		}
	}
	return list
}
