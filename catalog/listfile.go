package catalog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"syscall"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/yamlfile"
)

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
