package catalog

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
)

// Items is the list of items of a job: exactly one of the three is set.
type Items struct {
	// Glob is a pattern of files: *, ?, [a-z], {a,b} and ** for any depth.
	Glob string
	// ListFile is a text file with one item on each line (list in a job file).
	ListFile string
	// Range counts from its first to its last number.
	Range *Range
}

// Range is a range of integers, both ends included. It is empty when parameters
// put its last number before its first.
type Range struct{ First, Last Bound }

// Bound is one end of a range: a number, or the integer parameter or the output of a step that gives it.
type Bound struct {
	Number int64  // counts when the others are ""
	Param  string // name of the parameter
	Output string // "steps.NAME.outputs.NAME"
}

// known reports whether the bound is a number in the file.
func (b Bound) known() bool { return b.Param == "" && b.Output == "" }

func (b Bound) value(v Values) (int64, error) {
	switch {
	case b.Output != "":
		n, reason := param.ParseInteger(v.reference(b.Output))
		if reason != "" {
			return 0, fmt.Errorf("range: ${%s}: %s", b.Output, reason)
		}
		return n.Integer(), nil
	case b.Param == "":
		return b.Number, nil
	}
	n, ok := v.Params.Lookup(b.Param)
	if !ok || n.Kind != param.IntegerType {
		return 0, fmt.Errorf("range: parameter %s has no integer value", phrase.Quote(b.Param))
	}
	return n.Integer(), nil
}

func (r *Range) bounds(v Values) (first, last int64, err error) {
	if first, err = r.First.value(v); err != nil {
		return 0, 0, err
	}
	last, err = r.Last.value(v)
	return first, last, err
}

// Item is one unit of work.
type Item struct {
	// Name is what is shown and what ${item} gives: a number, a line, or the
	// path of a file as the pattern leads to it (relative to the job's folder
	// when the pattern is relative).
	Name string
	// Path leads to the file from the daemon's working directory; "" for items
	// that are no files.
	Path string
	// Size is the size of the file in bytes when it was listed.
	Size int64
}

// List enumerates the items. dir is the job's folder ([Definition.Folder]), from
// which relative paths begin. Numbers and lines are made one by one; a glob holds
// one directory at a time. An error is the last thing yielded; it names the file
// or folder. List can be called again and by several goroutines, and reads what
// is on disk at that time.
func (it *Items) List(ctx context.Context, dir string, v Values) iter.Seq2[Item, error] {
	var each iter.Seq2[Item, error]
	switch {
	case it.Range != nil:
		each = it.Range.list(v)
	case it.ListFile != "":
		each = listLines(it.ListFile, dir, v)
	default:
		each = listFiles(ctx, it.Glob, dir, v)
	}
	return func(yield func(Item, error) bool) {
		for item, err := range each {
			if ctx.Err() != nil {
				item, err = Item{}, ctx.Err()
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func (r *Range) list(v Values) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		first, last, err := r.bounds(v)
		if err != nil {
			yield(Item{}, err)
			return
		}
		for n := first; n <= last; n++ {
			if !yield(Item{Name: strconv.FormatInt(n, 10)}, nil) {
				return
			}
		}
	}
}

// emptyReference refuses a path whose reference has no text: "${params.path}/**"
// would otherwise mean every file of the machine.
func emptyReference(s string, v Values) error {
	for p := range pieces(s) {
		if p.ref != "" && v.reference(p.ref) == "" {
			return fmt.Errorf("items: %q has an empty value for ${%s}", s, p.ref)
		}
	}
	return nil
}

// from joins a path to the job's folder unless it is absolute.
func from(dir, path string) string {
	if filepath.IsAbs(path) || dir == "" {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// globEscaper makes every character literal in a pattern.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`,
	`}`, `\}`, `,`, `\,`)
