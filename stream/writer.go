package stream

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxLineBuffer is the capacity in bytes of the buffer that a Writer keeps between two lines.
const maxLineBuffer = 4 << 10

// Writer appends to the log of an operation: the raw output of work inside this process, and the daemon's own lines.
// Each of its writes is one write to the file. It is safe for concurrent use.
type Writer struct {
	shared bool                     // another process writes to the same file
	open   func() (*os.File, error) // nil for a Writer that has its file

	mu       sync.Mutex
	file     *os.File // nil until it is opened
	buf      []byte
	size     int64 // size and midLine are valid only if endKnown
	midLine  bool
	endKnown bool
}

// NewWriter returns a Writer for a file to which another process also writes, such as a command that has it as its
// output: Line reads the end of the file each time. The file must be open for reading and appending (os.O_RDWR |
// os.O_APPEND): appending writes cannot overwrite those of other processes. The Writer owns the file from then on.
func NewWriter(file *os.File) (*Writer, error) {
	w := &Writer{file: file, shared: true}
	return w, w.checkEndLocked()
}

// NewLazyWriter returns a Writer for a file to which only the Writer writes, so that it remembers the end of the file.
// open creates or opens it, as for NewWriter, before the first write. An error of open is returned by that write, and
// the next write tries again.
func NewLazyWriter(open func() (*os.File, error)) *Writer { return &Writer{open: open} }

// Open opens the file if it is not open yet.
func (w *Writer) Open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.openLocked()
}

func (w *Writer) openLocked() error {
	if w.file != nil {
		return nil
	}
	file, err := w.open()
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	w.file = file
	return nil
}

// findEndLocked opens the file and determines its end, unless that is known.
func (w *Writer) findEndLocked() error {
	if err := w.openLocked(); err != nil {
		return err
	}
	if w.endKnown && !w.shared {
		return nil
	}
	return w.checkEndLocked()
}

// Line appends one of the daemon's own lines: text and a newline, after another newline if the log ends in the
// middle of a line. It is one write, so output of another process cannot split it. Another process that
// writes between the check and the write can still cause the line to follow an unfinished line, or an empty line
// before it.
func (w *Writer) Line(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.findEndLocked(); err != nil {
		return err
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

// Write implements [io.Writer]: it appends p unchanged, as the work's own output.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeLocked(p)
}

func (w *Writer) writeLocked(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.openLocked(); err != nil {
		return 0, err
	}
	n, err := w.file.Write(p)
	if err != nil {
		w.endKnown = false // a part of p may be written
		return n, fmt.Errorf("append to the log: %w", err)
	}
	w.size += int64(n)
	w.midLine = p[len(p)-1] != '\n'
	return n, nil
}

// Len returns the length of the log in bytes, including writes of other processes.
func (w *Writer) Len() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.findEndLocked(); err != nil {
		return 0, err
	}
	return w.size, nil
}

// Sync makes earlier writes durable. It does not block writers.
func (w *Writer) Sync() error {
	w.mu.Lock()
	err, file := w.openLocked(), w.file
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	return nil
}

// Close closes the file. It does not sync it.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	return nil
}

// checkEndLocked determines the length of the file and whether it ends in the middle of a line. NewWriter calls it
// without the lock, as it has no concurrent callers.
func (w *Writer) checkEndLocked() error {
	w.endKnown = false
	info, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("read the end of the log: %w", err)
	}
	w.size = info.Size()
	w.midLine = false
	if w.size > 0 {
		if w.midLine, err = endsInLine(w.file, w.size); err != nil {
			return fmt.Errorf("read the end of the log (it must be open for reading too): %w", err)
		}
	}
	w.endKnown = true
	return nil
}
