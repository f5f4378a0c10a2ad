package stream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	testStart = "<start_json>\n" + testHeaderLine + "\n</start_json>\n<log>\n"
	testEnd   = "</log>\n<end_json>\n" + testFooterText + "\n</end_json>\n"
)

// follow runs Text in a goroutine. stop returns the result of Text.
func follow(o *operation, s *sink) (stop func(error) error, done chan error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done = make(chan error, 1)
	src := o.source()
	go func() { done <- Text(ctx, s, s.Flush, src, 0) }()
	return func(cause error) error { cancel(cause); return <-done }, done
}

func TestTextFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		o.update(func(s *Snapshot) { s.Header = nil })
		var s sink
		_, done := follow(o, &s)
		arrived := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); got != want {
				t.Fatalf("%s: %q arrived, want %q", when, got, want)
			}
		}
		arrived("without a header", "")
		o.update(func(s *Snapshot) { s.Header = []byte(testHeader) })
		arrived("with a header, before any line", testStart)
		o.write("one\n")
		arrived("after a line", "one\n")
		o.write("two\nthr")
		arrived("in the middle of a line", "two\n")
		pass(partialDelay / 2)
		o.write("e")
		pass(partialDelay/2 - time.Nanosecond)
		arrived("just before the delay has passed", "")
		pass(time.Nanosecond)
		arrived("after the delay since the line began", "thre")
		o.write("e\n")
		arrived("after the rest of the line", "e\n")
		o.write("a <l")
		pass(partialDelay)
		arrived("with a candidate for a tag", "a ")
		o.write("og>\n")
		arrived("with a tag", "<\\log>\n")
		o.write("last <log")
		o.end()
		arrived("at the end", "last <\\log\n"+testEnd)
		if err := <-done; err != nil {
			t.Errorf("Text: %v", err)
		}
		if last := s.writes[len(s.writes)-1]; last != "<\\log\n"+testEnd {
			t.Errorf("the last write is %q, want the end of the log and all of the footer", last)
		}
	})
}

func TestTextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		var s sink
		stop, _ := follow(o, &s)
		o.write("a line\nand")
		synctest.Wait()
		if err := stop(ErrShutdown); !errors.Is(err, ErrShutdown) {
			t.Errorf("Text: %v, want the cause of the context", err)
		}
		if got := s.take(); got != testStart+"a line\n" {
			t.Errorf("%q arrived, want nothing after the last line", got)
		}
	})
}

func TestTextWithoutLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		log    string
		sealed int64
		offset int64
		want   string
	}{
		{"no file", "", 0, 0, testStart + testEnd},
		{"lost file", "", 10, 3, testStart + testEnd},
		{"lost end", "one\ntw", 10, 0, testStart + "one\ntw\n" + testEnd},
		{"offset in the lost part", "one\ntw", 10, 8, testStart + testEnd},
		{"bytes behind the seal", "one\ntwo\n", 4, 0, testStart + "one\n" + testEnd},
		{"middle of a line at the seal", "one\ntwo\n", 5, 0, testStart + "one\nt\n" + testEnd},
		{"only a newline", "\n", 1, 0, testStart + "\n" + testEnd},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newOperation(t)
			if tt.log != "" {
				o.write(tt.log)
			}
			o.end()
			o.update(func(s *Snapshot) { s.LogBytes = tt.sealed })
			if got := string(read(t, o, tt.offset)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// racingSource ends the operation between the read of the log and the snapshot that follows it, while a stray process
// keeps writing.
type racingSource struct {
	*reader
	looks int
}

func (r *racingSource) Log() (*os.File, error) {
	r.write("more\n")
	return r.reader.Log()
}

func (r *racingSource) Snapshot() (Snapshot, error) {
	if r.looks++; r.looks == 2 {
		r.end()
		r.update(func(s *Snapshot) { s.LogBytes -= int64(len("more\n")) })
	}
	return r.reader.Snapshot()
}

func TestTextStopsAtTheSeal(t *testing.T) {
	t.Parallel()
	o := newOperation(t)
	o.write("one\n")
	var out bytes.Buffer
	if err := Text(t.Context(), &out, nil, &racingSource{reader: o.source()}, 0); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), testStart+"one\n"+testEnd; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTextErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := []struct {
		name   string
		change func(*Snapshot)
		flush  func() error
		offset int64
		want   string
	}{
		{"negative offset", func(*Snapshot) {}, nil, -1, "offset -1"},
		{"no footer", func(s *Snapshot) { s.Footer = nil }, nil, 0, "has no footer"},
		{"no header", func(s *Snapshot) { s.Header = nil }, nil, 0, "has no header"},
		{"header is no JSON", func(s *Snapshot) { s.Header = []byte("{\n") }, nil, 0, "the header in the record is not JSON"},
		{
			"footer is no object", func(s *Snapshot) { s.Footer = []byte("[]") }, nil, 0,
			"the footer in the record is not a JSON object",
		},
		{"reader is gone", func(*Snapshot) {}, func() error { return broken }, 0, "send the stream: broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := endedOperation(t, nil)
			o.update(tt.change)
			err := Text(t.Context(), &sink{}, tt.flush, o.source(), tt.offset)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Text: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTextSourceCloses(t *testing.T) {
	t.Parallel()
	o := newOperation(t)
	src := o.source()
	close(src.wake)
	o.readers = nil
	if err := Text(t.Context(), &sink{}, nil, src, 0); !errors.Is(err, errWakeClosed) {
		t.Errorf("Text: %v, want %v", err, errWakeClosed)
	}
}

// slow allows one write per token.
type slow struct {
	bytes.Buffer
	tokens chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	<-s.tokens
	return s.Buffer.Write(b)
}

func TestTextSameBytesForAll(t *testing.T) {
	t.Parallel()
	o := newOperation(t)
	var log bytes.Buffer
	lazy := &slow{tokens: make(chan struct{}, 1<<20)}
	readers := []struct {
		w   *slow
		src Source
	}{{lazy, o.source()}, {&slow{tokens: closedTokens()}, o.source()}, {&slow{tokens: closedTokens()}, o.source()}}
	var wg sync.WaitGroup
	for _, r := range readers {
		wg.Go(func() {
			if err := Text(t.Context(), r.w, nil, r.src, 0); err != nil {
				t.Errorf("Text: %v", err)
			}
		})
	}
	for i, part := range []string{
		"one\n", "two <lo", "g>\n", strings.Repeat("x", 3*pieceSize), "<", "\\",
		"/log", ">\n\r", "</log",
	} {
		log.WriteString(part)
		o.write(part)
		if i%2 == 0 {
			lazy.tokens <- struct{}{}
		}
	}
	o.end()
	close(lazy.tokens)
	wg.Wait()
	for i, r := range readers {
		if !bytes.Equal(r.w.Bytes(), textOf(log.Bytes(), 0)) {
			t.Errorf("reader %d: %d bytes differ from the definition", i, r.w.Len())
		}
	}
	if late := read(t, o, 0); !bytes.Equal(late, lazy.Bytes()) {
		t.Error("a late read differs")
	}
}

func closedTokens() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A waiting follower holds no buffer. Not parallel, as it measures the heap.
func TestTextIdleMemory(t *testing.T) {
	const followers = 400
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		o.write("<a line\n")
		before := heap()
		var stops []func(error) error
		for range followers {
			stop, _ := follow(o, &sink{})
			stops = append(stops, stop)
		}
		synctest.Wait()
		each := (int64(heap()) - int64(before)) / followers
		t.Logf("%d bytes of heap for each idle follower", each)
		if each > pieceSize/8 {
			t.Errorf("an idle follower holds %d bytes of heap: a buffer is kept", each)
		}
		for _, stop := range stops {
			if err := stop(nil); !errors.Is(err, context.Canceled) {
				t.Errorf("Text: %v, want context.Canceled", err)
			}
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // the second collection empties pools
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWaitFooter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		src := o.source()
		done := make(chan string, 1)
		go func() {
			footer, err := WaitFooter(t.Context(), src)
			if err != nil {
				t.Errorf("WaitFooter: %v", err)
			}
			done <- string(footer)
		}()
		o.write("a line\n")
		synctest.Wait()
		select {
		case got := <-done:
			t.Fatalf("WaitFooter returned %q before the end", got)
		default:
		}
		o.end()
		if got := <-done; got != testFooterText {
			t.Errorf("WaitFooter = %q, want %q", got, testFooterText)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ErrShutdown)
		if _, err := WaitFooter(ctx, newOperation(t).source()); !errors.Is(err, ErrShutdown) {
			t.Errorf("WaitFooter of a running operation: %v, want the cause of the context", err)
		}
	})
}
