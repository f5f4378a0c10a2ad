package catalog

import (
	"bufio"
	"bytes"
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

// MaxLine is the length of the longest line of a list file, in bytes.
const MaxLine = 1 << 20

// listLines yields the lines of a list file: every line that is not empty, LF or
// CRLF at its end, a byte order mark before the first one left out.
func listLines(list, dir string, v Values) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := emptyReference(list, v); err != nil {
			yield(Item{}, err)
			return
		}
		path := from(dir, Expand(list, v))
		file, err := openRegular(path)
		if err != nil {
			yield(Item{}, fmt.Errorf("read item list: %w", err))
			return
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
				yield(Item{}, longLine(path, number))
				return
			case bytes.IndexByte(line, 0) >= 0:
				yield(Item{}, fmt.Errorf("read item list %s: line %d has a NUL character", path, number))
				return
			}
			if !yield(Item{Name: string(line)}, nil) {
				return
			}
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(Item{}, longLine(path, number+1))
		} else if err != nil {
			yield(Item{}, fmt.Errorf("read item list: %w", err))
		}
	}
}

func longLine(path string, number int) error {
	return fmt.Errorf("read item list %s: line %d is longer than %s", path, number, param.Bytes(MaxLine))
}

// errNotRegular is what a fifo, device or folder gives where a file is expected.
var errNotRegular = errors.New("not a regular file")

// openRegular opens a regular file, through a symbolic link if need be. It never
// blocks: a fifo that was put in the file's place is opened without waiting for a
// writer and then refused.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
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
