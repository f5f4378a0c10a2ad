package catalog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/statefs/files"
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
	return func(yield func(Item, error) bool) {
		each := func(item Item) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !yield(item, nil) {
				return fs.SkipAll
			}
			return nil
		}
		var err error
		switch {
		case it.Range != nil:
			err = it.Range.list(v, each)
		case it.ListFile != "":
			err = listLines(it.ListFile, dir, v, each)
		default:
			err = listFiles(ctx, it.Glob, dir, v, each)
		}
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(Item{}, cmp.Or(ctx.Err(), err))
		}
	}
}

// list calls each for the numbers, until it returns an error.
func (r *Range) list(v Values, each func(Item) error) error {
	first, last, err := r.bounds(v)
	for n := first; err == nil && n <= last; n++ {
		err = each(Item{Name: strconv.FormatInt(n, 10)})
	}
	return err
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

// MaxLine is the length of the longest line of a list file, in bytes.
const MaxLine = 1 << 20

// listLines calls each for the lines of a list file, until it returns an error: every line that is not empty, LF or
// CRLF at its end, a byte order mark before the first one left out.
func listLines(list, dir string, v Values, each func(Item) error) error {
	if err := emptyReference(list, v); err != nil {
		return err
	}
	path := from(dir, Expand(list, v))
	file, err := openRegular(path)
	if err != nil {
		return fmt.Errorf("read item list: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, MaxLine+len("\r\n"))
	number := 0
	for lines.Scan() {
		number++
		line := lines.Bytes() // without its line end
		if number == 1 {
			line = bytes.TrimPrefix(line, yamlfile.ByteOrderMark)
		}
		switch {
		case len(line) == 0:
			continue
		case len(line) > MaxLine:
			return longLine(path, number)
		case bytes.IndexByte(line, 0) >= 0:
			return fmt.Errorf("read item list %s: line %d has a NUL character", path, number)
		}
		if err := each(Item{Name: string(line)}); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return longLine(path, number+1)
	} else if err != nil {
		return fmt.Errorf("read item list: %w", err)
	}
	return nil
}

func longLine(path string, number int) error {
	return fmt.Errorf("read item list %s: line %d is longer than %s", path, number, param.Bytes(MaxLine))
}

// openRegular opens a regular file, through a symbolic link if need be. It never
// blocks: a fifo that was put in the file's place is opened without waiting for a
// writer and then refused.
func openRegular(path string) (*os.File, error) {
	file, _, err := files.Regular(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	return file, err
}

// readRegular reads a regular file, up to one byte more than limit.
func readRegular(path string, limit int64) ([]byte, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	return data, errors.Join(err, file.Close())
}
