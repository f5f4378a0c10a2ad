package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// maxLineBuffer is the capacity in bytes of the buffer that a Writer keeps between two lines.
const maxLineBuffer = 4 << 10

// WriterOptions say how a log is written.
type WriterOptions struct {
	// Shared says that another process writes to the same file, such as a command that has it as its output.
	// Then the end of the file is looked at before each line; otherwise the Writer remembers what it wrote.
	Shared bool
}

// Writer appends to the log of an operation: the raw output of work inside this process, and lines of the daemon's
// own. Each of its writes is one write of the file. It is safe for concurrent use.
type Writer struct {
	shared bool
	file   *os.File

	mu      sync.Mutex
	buf     []byte
	size    int64 // size, midLine: counts only when known
	midLine bool
	known   bool
}

// NewWriter returns a Writer over file, which must be open for reading and appending (os.O_RDWR | os.O_APPEND): only
// an appending write is in the right place when somebody else writes too, and the end of the file is read. The
// Writer owns the file from then on.
func NewWriter(file *os.File, o WriterOptions) (*Writer, error) {
	w := &Writer{file: file, shared: o.Shared}
	if err := w.lookAtEndLocked(); err != nil {
		return nil, err
	}
	return w, nil
}

// Line appends a line of the daemon's own: text and a newline, after another newline if the work is in the middle of
// a line. It is one write, so nothing of another process comes in between. With Shared, a process that writes between
// the look and the write can still have the line follow what it left unfinished, or find an empty line there.
func (w *Writer) Line(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared || !w.known {
		if err := w.lookAtEndLocked(); err != nil {
			return err
		}
	}
	w.buf = w.buf[:0]
	if w.midLine {
		w.buf = append(w.buf, '\n')
	}
	w.buf = append(w.buf, strings.TrimSuffix(text, "\n")...)
	w.buf = append(w.buf, '\n')
	_, err := w.writeLocked(w.buf)
	if cap(w.buf) > maxLineBuffer {
		w.buf = nil
	}
	return err
}

// Linef is Line with the text made as by [fmt.Sprintf].
func (w *Writer) Linef(format string, args ...any) error {
	return w.Line(fmt.Sprintf(format, args...))
}

// Write appends p as it is, as the work's own output. It makes Writer an [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeLocked(p)
}

func (w *Writer) writeLocked(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := w.file.Write(p)
	if err != nil {
		w.known = false // some of it may be there
		return n, fmt.Errorf("append to the log: %w", err)
	}
	w.size += int64(n)
	w.midLine = p[len(p)-1] != '\n'
	return n, nil
}

// Len returns the length of the log in bytes, whoever wrote it.
func (w *Writer) Len() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared || !w.known {
		if err := w.lookAtEndLocked(); err != nil {
			return 0, err
		}
	}
	return w.size, nil
}

// Sync makes what was written durable. It does not hold up writers.
func (w *Writer) Sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	return nil
}

// Close closes the file. It does not sync it.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	return nil
}

// lookAtEndLocked finds out how long the file is and whether it ends in the middle of a line. NewWriter is alone and
// needs no lock.
func (w *Writer) lookAtEndLocked() error {
	w.known = false
	info, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the end of the log: %w", err)
	}
	w.size = info.Size()
	w.midLine = false
	if w.size > 0 {
		var last [1]byte
		n, err := w.file.ReadAt(last[:], w.size-1)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("look at the end of the log (it must be open for reading too): %w", err)
		}
		w.midLine = n == 1 && last[0] != '\n'
	}
	w.known = true
	return nil
}
