package term

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/cli/exit"
)

// A command that follows ends when the reader of its output is gone, and only then.
func TestFollowingEndsWithItsReader(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	a := Streams{Out: writer}
	err = a.Following(t.Context(), func(ctx context.Context) error { return ctx.Err() })
	if err != nil {
		t.Errorf("with a reader it ended with %v", err)
	}
	err = a.Following(t.Context(), func(ctx context.Context) error {
		_ = reader.Close()
		<-ctx.Done()
		return fmt.Errorf("ask the daemon: %w", ctx.Err())
	})
	if code := exit.Code(err); code != 141 {
		t.Errorf("without one it ended with %v, %d", err, code)
	}
	err = a.Following(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return exit.With(exit.Partial)
	})
	if code := exit.Code(err); code != exit.Partial {
		t.Errorf("an outcome became %d", code)
	}
	if _, err := writer.WriteString("x"); exit.Code(fmt.Errorf("write the output: %w", err)) != 141 ||
		!errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write failed with %v", err)
	}
}

// What is no pipe has readers as long as it is there.
func TestFollowingWithoutAPipe(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, streams := range []Streams{{Out: file}, {Out: null}, {Out: &bytes.Buffer{}}} {
		gone := make(chan struct{})
		stop, err := watchReader(streams.Out, func() { close(gone) })
		if err != nil {
			t.Fatal(err)
		}
		stop()
		select {
		case <-gone:
			t.Errorf("the reader of %T is gone", streams.Out)
		default:
		}
	}
}
