package stream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func openLogFile(tb testing.TB, path string) *os.File {
	tb.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { file.Close() })
	return file
}

func newWriter(tb testing.TB, path string, shared bool) *Writer {
	tb.Helper()
	if !shared {
		return NewLazyWriter(func() (*os.File, error) { return openLogFile(tb, path), nil })
	}
	w, err := NewWriter(openLogFile(tb, path))
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func checkFile(tb testing.TB, path, want string) {
	tb.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if string(got) != want {
		tb.Errorf("the log holds %q, want %q", got, want)
	}
}

func TestWriterLines(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ID.log")
			w := newWriter(t, path, shared)
			steps := []struct {
				do   func() error
				want string
			}{
				{func() error { return w.Line("first") }, "first\n"},
				{func() error { return w.Line("with its own newline\n") }, "first\nwith its own newline\n"},
				{func() error { _, err := fmt.Fprintf(w, "[ %d", 1); return err }, "first\nwith its own newline\n[ 1"},
				{func() error { return w.Line(fmt.Sprintf("  %s", "Pause")) }, "first\nwith its own newline\n[ 1\n  Pause\n"},
				{func() error { _, err := w.Write(nil); return err }, "first\nwith its own newline\n[ 1\n  Pause\n"},
				{func() error { return w.Line("") }, "first\nwith its own newline\n[ 1\n  Pause\n\n"},
			}
			for i, s := range steps {
				if err := s.do(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				checkFile(t, path, s.want)
				if n, err := w.Len(); err != nil || n != int64(len(s.want)) {
					t.Errorf("step %d: Len = %d, %v, want %d", i, n, err, len(s.want))
				}
			}
			if err := errors.Join(w.Sync(), w.Close()); err != nil {
				t.Error(err)
			}
			if err := w.Line("late"); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Line after Close: %v, want os.ErrClosed", err)
			}
		})
	}
}

func TestWriterSharedSeesTheOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ID.log")
	w := newWriter(t, path, true)
	other := openLogFile(t, path)
	for _, text := range []string{"[ 1 / 2 ]", " a\n", "[ 2"} {
		if _, err := other.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Line("  Pause"); err != nil {
			t.Fatal(err)
		}
	}
	want := "[ 1 / 2 ]\n  Pause\n a\n  Pause\n[ 2\n  Pause\n"
	checkFile(t, path, want)
	if n, err := w.Len(); err != nil || n != int64(len(want)) {
		t.Errorf("Len = %d, %v, want %d", n, err, len(want))
	}
}

func TestWriterContinuesAnOldLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ID.log")
	if err := os.WriteFile(path, []byte("cut off"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := newWriter(t, path, false).Line("again"); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path, "cut off\nagain\n")
}

// Lines of many concurrent writers stay whole, whatever other writers leave unfinished.
func TestWriterConcurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ID.log")
	w := newWriter(t, path, false)
	const writers, lines = 8, 50
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range lines {
				if _, err := w.Write([]byte("half ")); err != nil {
					t.Error(err)
				}
				if err := w.Line(fmt.Sprintf("writer %d line %d", n, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range writers {
		for i := range lines {
			if line := fmt.Sprintf("\nwriter %d line %d\n", n, i); !strings.Contains(string(got), line) {
				t.Errorf("%q is not there as a line of its own", line)
			}
		}
	}
}

func TestWriterNeedsToRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ID.log")
	if err := os.WriteFile(path, []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pathError *fs.PathError
	if _, err := NewWriter(file); !errors.As(err, &pathError) ||
		!strings.Contains(err.Error(), "open for reading too") {
		t.Errorf("NewWriter over a file that cannot be read: %v", err)
	}
}
