package statefs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// itemsSuffix ends the name of every file of item results.
const itemsSuffix = ".items.ndjson"

// itemLimit bounds one line of item results, in bytes.
const itemLimit = 16 << 20

// ReadItems calls each with every complete line of an operation's item results, in order, without
// the newline. The slice is valid only during the call. A last line without a newline was cut off
// by a crash and is skipped, and so is a line that is too long. Missing item results are not an
// error.
func (t *Tree) ReadItems(id ID, each func(line []byte) error) error {
	return t.readItemsOf(id, dayFile(id, itemsSuffix), each)
}

func (t *Tree) readItemsOf(id ID, name string, each func(line []byte) error) error {
	f, _, err := t.openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, files.ErrIrregular) { // as if the file did not exist
		return t.corrupt.clearName(name)
	}
	if err != nil {
		return fmt.Errorf("read the item results of %s: %w", id, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewReaderSize(f, 64<<10)
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line) <= itemLimit {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the item results of %s: %w", id, err)
		}
		if len(line) <= itemLimit {
			if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		line = line[:0]
	}
}

// RestoreItems writes open item results under their name again, if a folder, fifo, link, socket or
// device took it. That goes to corrupt/.
func RestoreItems(o *Owner, open *os.File) error {
	if info, err := os.Lstat(open.Name()); err != nil || info.Mode().IsRegular() {
		return nil //nolint:nilerr // item results that a person removed stay removed
	}
	f, err := o.appendTo(open.Name())
	if err != nil {
		return fmt.Errorf("write the item results %s again: %w", filepath.Base(open.Name()), err)
	}
	_, err = io.Copy(f, io.NewSectionReader(open, 0, math.MaxInt64))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the item results %s again: %w", filepath.Base(open.Name()), err)
	}
	return nil
}

// repairItems removes an incomplete last line that a crash left, so that the next line does not
// become part of it.
func repairItems(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	end := info.Size()
	block := make([]byte, 4<<10)
	for end > 0 {
		from := max(0, end-int64(len(block)))
		n, err := f.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}
		end = from
	}
	if end == info.Size() {
		return nil
	}
	return f.Truncate(end)
}
